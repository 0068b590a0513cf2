// SPDX-License-Identifier: Apache-2.0
/* Requests in the order they were posted, linked by kolo_req.next. Zeroed is empty. */
#ifndef KOLO_TRANSPORTS_FIFO_H
#define KOLO_TRANSPORTS_FIFO_H

#include <kolo/plugin.h>

struct kolo_req_fifo {
    struct kolo_req *first, *last; /* last: valid only if first is not NULL */
};

static inline void kolo_req_fifo_push(struct kolo_req_fifo *fifo, struct kolo_req *req)
{
    req->next = NULL;
    *(fifo->first == NULL ? &fifo->first : &fifo->last->next) = req;
    fifo->last = req;
}

/* Take out the oldest request, or NULL. Do this before you set its status: the status gives the
 * request back to its owner. */
static inline struct kolo_req *kolo_req_fifo_pop(struct kolo_req_fifo *fifo)
{
    struct kolo_req *req = fifo->first;
    fifo->first = req != NULL ? req->next : NULL;
    return req;
}

/* Take out the oldest request of `channel`, or NULL. */
static inline struct kolo_req *kolo_req_fifo_take(struct kolo_req_fifo *fifo, uint32_t channel)
{
    struct kolo_req *before = NULL;
    for (struct kolo_req *req = fifo->first; req != NULL; before = req, req = req->next) {
        if (req->channel == channel) {
            *(before != NULL ? &before->next : &fifo->first) = req->next;
            fifo->last = req->next == NULL ? before : fifo->last;
            return req;
        }
    }
    return NULL;
}

#endif
