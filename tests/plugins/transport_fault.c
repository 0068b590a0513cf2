// SPDX-License-Identifier: Apache-2.0
/* A wrapper round a built-in transport in which something goes wrong: libkolo_transport_fault.so,
 * for KOLO_TRANSPORT=fault. KOLO_FAULT_OVER names the transport inside (tcp), which carries
 * messages only, and KOLO_FAULT what happens, as WHAT:RANK:AT
 *
 *   kill:R:N   rank R is killed as it is about to send its N-th message (from 0)
 *   drop:R:N   rank R's N-th message, and all after it, do not go out
 *   short:R:N  of rank R's N-th message only the first half goes out
 *   delay:R:S  about half of rank R's messages wait for up to 2 ms; S is the seed. Messages of one
 *              channel stay in order, others overtake each other
 *
 * R -1 is every rank. Messages of all of a process's communicators count. It has the library's
 * transports once more in itself. */
#include "plugin/load.h"
#include "transports/bytes.h"
#include "transports/transports.h"
#include "util/util.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_US = 2000 };

static struct {
    struct kolo_transport inside;
    char what[8];
    int rank;
    unsigned at;
    atomic_uint sent;
} fault;

struct held { /* a send that waits */
    struct held *next;
    struct kolo_bytes data;
    struct kolo_req *req;
    double until_us;
};

struct kolo_endpoint {
    struct kolo_endpoint *inside;
    const struct kolo_env *env;
    struct kolo_link *links;
    bool faulty; /* this rank is the one */
    unsigned random;
};

struct kolo_link {
    struct kolo_link *inside, *next;
    struct kolo_endpoint *ep;
    struct held *first, **last;
    atomic_int aborted;
};

static bool is(const char *what)
{
    return strcmp(fault.what, what) == 0;
}

static kolo_status read_fault(const struct kolo_env *env)
{
    const char *over = getenv("KOLO_FAULT_OVER"), *text = getenv("KOLO_FAULT");
    over = over != NULL ? over : "tcp";
    if (text == NULL || sscanf(text, "%7[a-z]:%d:%u", fault.what, &fault.rank, &fault.at) != 3) {
        return env->fail(KOLO_ERR_INVALID, "fault: KOLO_FAULT is not WHAT:RANK:AT");
    }
    for (int i = 0; i < kolo_transports_count; i++) {
        if (strcmp(kolo_transports[i]->base.name, over) == 0) {
            kolo_transport_overlay(kolo_transports[i], &fault.inside);
            return KOLO_OK;
        }
    }
    return env->fail(KOLO_ERR_INVALID, "fault: KOLO_FAULT_OVER names no transport");
}

static kolo_status fault_open(const struct kolo_env *env, struct kolo_endpoint **out)
{
    KOLO_TRY(read_fault(env));
    struct kolo_endpoint *ep = calloc(1, sizeof *ep);
    if (ep == NULL) {
        return env->fail(KOLO_ERR_SYSTEM, "fault: no memory");
    }
    ep->env = env;
    ep->faulty = fault.rank < 0 || fault.rank == env->rank;
    ep->random = fault.at * 2654435761u + (unsigned)env->rank;
    const kolo_status st = fault.inside.open(env, &ep->inside);
    if (st < 0) {
        free(ep);
        return st;
    }
    *out = ep;
    return KOLO_OK;
}

static void fault_close(struct kolo_endpoint *ep)
{
    fault.inside.close(ep->inside);
    free(ep);
}

static kolo_status fault_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                               struct kolo_reach *out)
{
    KOLO_TRY(fault.inside.probe(ep->inside, peer, out));
    out->caps &= ~(uint64_t)KOLO_CAP_MAP;
    return KOLO_OK;
}

static kolo_status fault_address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    return fault.inside.address(ep->inside, buf, len);
}

static kolo_status fault_connect(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                 struct kolo_link **out)
{
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return ep->env->fail(KOLO_ERR_SYSTEM, "fault: no memory");
    }
    link->ep = ep;
    link->last = &link->first;
    const kolo_status st = fault.inside.connect(ep->inside, peer, &link->inside);
    if (st < 0) {
        free(link);
        return st;
    }
    link->next = ep->links;
    ep->links = link;
    *out = link;
    return KOLO_OK;
}

/* ---- messages that wait ---- */

static unsigned next_random(struct kolo_endpoint *ep)
{
    ep->random = ep->random * 1664525 + 1013904223;
    return ep->random >> 8;
}

static void finish(struct kolo_req *req, kolo_status status)
{
    __atomic_store_n(&req->status, status, __ATOMIC_RELEASE);
}

static bool has_held(const struct kolo_link *link, uint32_t channel)
{
    const struct held *h = link->first;
    while (h != NULL && h->req->channel != channel) {
        h = h->next;
    }
    return h != NULL;
}

static kolo_status hold(struct kolo_link *link, const struct kolo_bytes *src, struct kolo_req *req)
{
    struct held *h = malloc(sizeof *h);
    if (h == NULL) {
        return link->ep->env->fail(KOLO_ERR_SYSTEM, "fault: no memory");
    }
    *h = (struct held){
        .data = *src, .req = req, .until_us = kolo_now_us() + next_random(link->ep) % LONGEST_US};
    req->status = KOLO_INPROGRESS;
    req->bytes = kolo_bytes_total(src);
    *link->last = h;
    link->last = &h->next;
    return KOLO_OK;
}

/* Those whose time has come, and whose channel has none before them. Returns how many. */
static int let_go(struct kolo_link *link)
{
    const int why = atomic_load(&link->aborted);
    uint64_t blocked = 0;
    int count = 0;
    for (struct held **at = &link->first; *at != NULL;) {
        struct held *h = *at;
        const uint64_t channel = UINT64_C(1) << h->req->channel;
        if (why == KOLO_OK && ((blocked & channel) != 0 || kolo_now_us() < h->until_us)) {
            blocked |= channel;
            at = &h->next;
            continue;
        }
        *at = h->next;
        link->last = h->next == NULL ? at : link->last;
        const kolo_status st =
            why != KOLO_OK ? (kolo_status)why : fault.inside.send(link->inside, &h->data, h->req);
        if (st < 0) {
            finish(h->req, st);
        }
        free(h);
        count++;
    }
    return count;
}

static void fault_disconnect(struct kolo_link *link)
{
    struct kolo_link **at = &link->ep->links;
    int none = 0;
    (void)atomic_compare_exchange_strong(&link->aborted, &none, (int)KOLO_ERR_ABORTED);
    (void)let_go(link);
    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
    fault.inside.disconnect(link->inside);
    free(link);
}

/* ---- messages ---- */

static kolo_status fault_send(struct kolo_link *link, const struct kolo_bytes *src,
                              struct kolo_req *req)
{
    struct kolo_bytes half = *src;
    if (!link->ep->faulty) {
        return fault.inside.send(link->inside, src, req);
    }
    if (is("delay")) {
        return has_held(link, req->channel) || next_random(link->ep) % 2 == 0
                   ? hold(link, src, req)
                   : fault.inside.send(link->inside, src, req);
    }
    const unsigned number = atomic_fetch_add(&fault.sent, 1);
    if (is("kill") && number == fault.at) {
        (void)kill(getpid(), SIGKILL);
    }
    if (is("drop") && number >= fault.at) {
        req->bytes = req->moved = kolo_bytes_total(src);
        finish(req, KOLO_OK);
        return KOLO_OK;
    }
    if (is("short") && number == fault.at) {
        half.bytes /= 2;
    }
    return fault.inside.send(link->inside, &half, req);
}

static kolo_status fault_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                              struct kolo_req *req)
{
    return fault.inside.recv(link->inside, dst, req);
}

static int fault_progress(struct kolo_endpoint *ep, int budget)
{
    int gone = 0;
    for (struct kolo_link *link = ep->links; link != NULL; link = link->next) {
        gone += let_go(link);
    }
    const int moved = fault.inside.progress(ep->inside, budget);
    return moved < 0 ? moved : moved + gone;
}

static void fault_abort(struct kolo_link *link, kolo_status why)
{
    int none = 0;
    (void)atomic_compare_exchange_strong(&link->aborted, &none, (int)why);
    fault.inside.abort(link->inside, why);
}

static void fault_notify(struct kolo_link *link, uint64_t word)
{
    fault.inside.notify(link->inside, word);
}

KOLO_EXPORT
extern const struct kolo_transport kolo_transport_v1;
const struct kolo_transport kolo_transport_v1 = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "fault"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_MESSAGE | KOLO_CAP_NOTIFY,
    .open = fault_open,
    .close = fault_close,
    .probe = fault_probe,
    .address = fault_address,
    .connect = fault_connect,
    .disconnect = fault_disconnect,
    .send = fault_send,
    .recv = fault_recv,
    .progress = fault_progress,
    .abort = fault_abort,
    .notify = fault_notify,
};
