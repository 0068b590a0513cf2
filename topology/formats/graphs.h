// SPDX-License-Identifier: Apache-2.0
/* NCCL's graph XML: rings and trees that NCCL planned, not a machine. */
#ifndef KOLO_TOPOLOGY_FORMATS_GRAPHS_H
#define KOLO_TOPOLOGY_FORMATS_GRAPHS_H

#include "topology/layout/job.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Read the rings and chains of one host. Errors: INVALID (the text has file, line and fault),
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_graphs_read(const char *path, const char *bytes, size_t len,
                                        struct kolo_job *out);
/* Whether a file's first element is <graphs>. */
bool kolo_graphs_is(const char *bytes, size_t len);

#ifdef __cplusplus
}
#endif
#endif
