// SPDX-License-Identifier: Apache-2.0
/* Why a job is slow or died, as far as the log says so in words. */
#ifndef KOLO_TOOLS_LOG_FAULT_H
#define KOLO_TOOLS_LOG_FAULT_H

#include "log_line.h"

/* Note a message of the library that tells of a fault or a setting. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_take_fault(struct kolo_log *log, const struct kolo_log_line *l);
/* Note a line of another program that tells of the library's end. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_take_foreign(struct kolo_log *log, const char *begin,
                                             const char *end);
/* Add the faults to the issues. */
void kolo_log_check_faults(struct kolo_log *log);
void kolo_log_faults_free(struct kolo_log *log);

#endif
