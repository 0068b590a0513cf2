// SPDX-License-Identifier: Apache-2.0
/* Declarations that the readers of a log's messages share. Each reader takes the rest of a line
 * behind its first word. It sets `broken` if the line is of its form and ends early. */
#ifndef KOLO_TOOLS_LOG_TAKE_H
#define KOLO_TOOLS_LOG_TAKE_H

#include "tools/log/member.h"

enum { KOLO_LOG_RANKS = 1 << 24, KOLO_LOG_CHANNELS = 4096 };

/* "Channel 00/02 : 0 1 2" and "Channel 00/0 : 0[0] -> 1[1] via X" (take.c). */
KOLO_CHECK kolo_status kolo_log_take_channel(struct kolo_log *log, struct kolo_log_line *l,
                                             bool *broken);
/* "Ring 02 : 1 -> 2 -> 3"; in 2.4 the forms of a channel (take.c). */
KOLO_CHECK kolo_status kolo_log_take_place(struct kolo_log *log, struct kolo_log_line *l,
                                           bool *broken);
/* "Trees [0] 1/2/-1->0->-1" and "Tree 0 : -1 -> 0 -> 1/8/-1" (trees.c). */
KOLO_CHECK kolo_status kolo_log_take_trees(struct kolo_log *log, struct kolo_log_line *l,
                                           bool *broken);
KOLO_CHECK kolo_status kolo_log_take_tree(struct kolo_log *log, struct kolo_log_line *l,
                                          bool *broken);
/* "comm 0x... rank 3 nranks 16 ..." and the lines of a start without a rank (comm_lines.c).
 * Lines of other forms are passed over. */
KOLO_CHECK kolo_status kolo_log_take_comm(struct kolo_log *log, struct kolo_log_line *l);

/* ---- helpers (take.c) ---- */

kolo_status kolo_log_fail_full(const struct kolo_log *log);
/* Note who says the last of `count` elements of a list. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_note_speaker(struct kolo_log *log, int **of, int count, int *room,
                                             int member);
struct kolo_log_hint kolo_log_hint_of(enum kolo_log_about about);
/* Add what RCCL puts behind its lines: "comm 0x... nRanks 08 busId c1000". */
void kolo_log_take_suffix(struct kolo_log *log, const struct kolo_log_line *l,
                          struct kolo_log_hint *hint);

/* ---- faults: why a job is slow or died, as far as the log says so in words (fault.c) ---- */

/* Note a message of the library that tells of a fault or a setting. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_take_fault(struct kolo_log *log, const struct kolo_log_line *l);
/* Note a line of another program that tells of the library's end. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_take_foreign(struct kolo_log *log, const char *begin,
                                             const char *end);
/* Add the faults to the issues. */
void kolo_log_check_faults(struct kolo_log *log);
void kolo_log_faults_free(struct kolo_log *log);

#endif
