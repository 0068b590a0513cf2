// SPDX-License-Identifier: Apache-2.0
/* Messages. A request begins when some request of its communicator is waited for: all of them then go
 * as one group, in which none waits for another. XLA begins all messages of an exchange and waits for
 * each, in one thread. */
#include "trampoline.h"

#include <stdlib.h>

struct tramp_request {
    struct tramp_comm *comm;
    bool is_send, is_done;
    void *buf; /* is only read by a send */
    size_t bytes;
    int peer, tag;
    int result;
    struct tramp_request *next; /* that has not begun either */
};

static kolo_status start(const struct tramp_request *r)
{
    const int tag = r->tag == TRAMP_ANY_TAG ? KOLO_ANY_TAG : r->tag;
    const int peer = r->peer == TRAMP_ANY_SOURCE ? KOLO_ANY_SOURCE : r->peer;
    if (r->is_send) {
        return kolo_send_tag(r->buf, r->bytes, KOLO_UINT8, peer, tag, r->comm->kolo, NULL);
    }
    return kolo_recv_tag(r->buf, r->bytes, KOLO_UINT8, peer, tag, NULL, r->comm->kolo, NULL);
}

/* Run messages as a group. */
static int run(struct tramp_request *first)
{
    kolo_status st = kolo_group_begin();
    for (const struct tramp_request *r = first; r != NULL && st == KOLO_OK; r = r->next) {
        st = start(r);
    }
    const int failed = tramp_result(st);
    const int ended = tramp_result(kolo_group_end());
    return failed != TRAMP_SUCCESS ? failed : ended;
}

/* The lock of the communicator is held. */
static void run_pending(struct tramp_comm *c)
{
    struct tramp_request *first = c->first;
    c->first = NULL;
    c->last = &c->first;
    const int result = run(first);
    for (struct tramp_request *r = first; r != NULL; r = r->next) {
        r->result = result;
        r->is_done = true;
    }
}

static int post(const struct tramp_request *wanted, tramp_handle comm, tramp_handle type, int count,
                tramp_handle *request)
{
    *request = TRAMP_REQUEST_NULL;
    struct tramp_comm *c = tramp_enter(comm);
    struct tramp_request *r = c == NULL ? NULL : malloc(sizeof *r);
    if (r == NULL) {
        return c == NULL ? TRAMP_ERR_OTHER : tramp_fail("kolo: out of memory for a message");
    }
    *r = *wanted;
    r->comm = c;
    if (!tramp_bytes(type, count, &r->bytes)) {
        free(r);
        return TRAMP_ERR_OTHER;
    }
    (void)pthread_mutex_lock(&c->lock);
    *c->last = r;
    c->last = &r->next;
    (void)pthread_mutex_unlock(&c->lock);
    *request = (tramp_handle)r;
    return TRAMP_SUCCESS;
}

int MPIABI_Isend(const void *buf, int count, tramp_handle type, int peer, int tag,
                 tramp_handle comm, tramp_handle *request)
{
    const struct tramp_request wanted = {
        .is_send = true, .buf = (void *)(uintptr_t)buf, .peer = peer, .tag = tag};
    return post(&wanted, comm, type, count, request);
}

int MPIABI_Irecv(void *buf, int count, tramp_handle type, int peer, int tag, tramp_handle comm,
                 tramp_handle *request)
{
    const struct tramp_request wanted = {.buf = buf, .peer = peer, .tag = tag};
    return post(&wanted, comm, type, count, request);
}

static void tell(struct tramp_status *status, int source, int tag, int error)
{
    if ((uintptr_t)status != TRAMP_STATUS_IGNORE) {
        *status = (struct tramp_status){.source = source, .tag = tag, .error = error};
    }
}

int MPIABI_Wait(tramp_handle *request, struct tramp_status *status)
{
    struct tramp_request *r = (struct tramp_request *)*request;
    if (*request == TRAMP_REQUEST_NULL) {
        tell(status, TRAMP_ANY_SOURCE, TRAMP_ANY_TAG, TRAMP_SUCCESS);
        return TRAMP_SUCCESS;
    }
    (void)pthread_mutex_lock(&r->comm->lock);
    if (!r->is_done) {
        run_pending(r->comm);
    }
    (void)pthread_mutex_unlock(&r->comm->lock);
    const int result = r->result;
    tell(status, r->peer, r->tag, result);
    free(r);
    *request = TRAMP_REQUEST_NULL;
    return result;
}

int MPIABI_Sendrecv(const void *send, int send_count, tramp_handle send_type, int to, int send_tag,
                    void *recv, int recv_count, tramp_handle recv_type, int from, int recv_tag,
                    tramp_handle comm, struct tramp_status *status)
{
    struct tramp_comm *c = tramp_enter(comm);
    struct tramp_request in = {.comm = c, .buf = recv, .peer = from, .tag = recv_tag};
    struct tramp_request out = {.comm = c,
                                .is_send = true,
                                .buf = (void *)(uintptr_t)send,
                                .peer = to,
                                .tag = send_tag,
                                .next = &in};
    if (c == NULL || !tramp_bytes(send_type, send_count, &out.bytes) ||
        !tramp_bytes(recv_type, recv_count, &in.bytes)) {
        return TRAMP_ERR_OTHER;
    }
    const int result = run(&out);
    tell(status, from, recv_tag, result);
    return result;
}
