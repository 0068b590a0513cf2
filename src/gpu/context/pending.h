// SPDX-License-Identifier: Apache-2.0
/* The calls of the process for which streams wait, or will: those of proxies that are enqueued and
 * not yet served, those in graphs, which may be launched at any time, and all that waits on a fused
 * path, as one call. A call of the driver that waits for the GPU, and lets no other pass meanwhile,
 * is safe only if there are none. */
#ifndef KOLO_GPU_PENDING_H
#define KOLO_GPU_PENDING_H

#include <stdbool.h>

/* A call is pending from now on. enqueue_end() follows when it is in its stream. */
void kolo_pending_enqueue_begin(void);
void kolo_pending_enqueue_end(void);
/* A call is not pending any more, nor its graph. */
void kolo_pending_end(void);
/* Whether no call is pending. If so, none begins before alone_end(). Never blocks. */
bool kolo_pending_alone_begin(void);
void kolo_pending_alone_end(void);

#endif
