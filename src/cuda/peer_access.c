// SPDX-License-Identifier: Apache-2.0
/* Trial copies between two GPUs. A copy is enqueued and polled: the driver's own waits have no
 * deadline. A copy between contexts with peer access runs in the copy engine of its stream's GPU.
 * So there are four copies to try: each GPU writes to the other, and reads from it. Requests and
 * their completions take different ways through bridges. */
#include "cuda/peer_access.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COPIES = 4 }; /* timed together: over a fast link one copy ends too soon to be measured */

struct end {
    int ordinal, device;
    kolo_cuda_context context; /* NULL: not retained */
    kolo_cuda_stream stream;
    kolo_cuda_address memory;
    bool enabled; /* this trial gave this context access to the other end's memory */
};

struct trial {
    const struct kolo_cuda *cuda;
    struct end end[2];
    unsigned char *sent, *back; /* pinned */
    size_t bytes;
    int timeout_ms;
    double deadline_us;
};

#define CUDA(t, name, call) kolo_cuda_check((t)->cuda, (t)->cuda->call, name)

static void leave_context(const struct trial *t)
{
    kolo_cuda_context context = NULL;
    (void)t->cuda->ctx_pop_current(&context);
}

static kolo_status fail_link(const struct trial *t, const char *what, int error)
{
    const char *name = NULL;
    (void)t->cuda->get_error_name(error, &name);
    return kolo_fail(KOLO_ERR_LINK, "%s: %s (CUDA error %d)", what,
                     name != NULL ? name : "an unknown error", error);
}

/* ---- beginning and end ---- */

static kolo_status check_claims(const struct trial *t)
{
    for (int i = 0; i < 2; i++) {
        const struct end *own = &t->end[i], *peer = &t->end[1 - i];
        int can = 0;
        KOLO_TRY(CUDA(t, "cuDeviceCanAccessPeer",
                      device_can_access_peer(&can, own->device, peer->device)));
        if (can == 0) {
            return kolo_fail(KOLO_ERR_UNSUPPORTED, "GPU %d claims no access to memory of GPU %d",
                             own->ordinal, peer->ordinal);
        }
    }
    return KOLO_OK;
}

/* xorshift64 (Marsaglia 2003, doi:10.18637/jss.v008.i14); the state is never 0. */
static void fill_pattern(unsigned char *out, size_t bytes)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t at = 0; at < bytes; at += sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(out + at, &state, sizeof state);
    }
}

/* Allocate an end's stream and memory. The end's context is current. */
static kolo_status furnish_end(struct trial *t, struct end *own, const struct end *peer)
{
    enum { PORTABLE = 1 }; /* CU_MEMHOSTALLOC_PORTABLE: pinned for both contexts */
    const int error = t->cuda->ctx_enable_peer_access(peer->context, 0);
    if (error != KOLO_CUDA_OK && error != KOLO_CUDA_PEER_ALREADY_ENABLED) {
        char what[96];
        (void)snprintf(what, sizeof what, "GPU %d is refused access to memory of GPU %d",
                       own->ordinal, peer->ordinal);
        return fail_link(t, what, error);
    }
    own->enabled = error == KOLO_CUDA_OK;
    KOLO_TRY(CUDA(t, "cuStreamCreate", stream_create(&own->stream, KOLO_CUDA_NON_BLOCKING)));
    KOLO_TRY(CUDA(t, "cuMemAlloc", mem_alloc(&own->memory, t->bytes)));
    if (t->sent == NULL) {
        void *host = NULL;
        KOLO_TRY(CUDA(t, "cuMemHostAlloc", mem_host_alloc(&host, 2 * t->bytes, PORTABLE)));
        t->sent = host;
        t->back = t->sent + t->bytes;
        fill_pattern(t->sent, t->bytes);
    }
    return KOLO_OK;
}

static kolo_status begin_trial(struct trial *t)
{
    for (int i = 0; i < 2; i++) {
        KOLO_TRY(CUDA(t, "cuDeviceGet", device_get(&t->end[i].device, t->end[i].ordinal)));
    }
    KOLO_TRY(check_claims(t));
    for (int i = 0; i < 2; i++) {
        KOLO_TRY(CUDA(t, "cuDevicePrimaryCtxRetain",
                      device_primary_ctx_retain(&t->end[i].context, t->end[i].device)));
    }
    for (int i = 0; i < 2; i++) {
        KOLO_TRY(CUDA(t, "cuCtxPushCurrent", ctx_push_current(t->end[i].context)));
        const kolo_status st = furnish_end(t, &t->end[i], &t->end[1 - i]);
        leave_context(t);
        KOLO_TRY(st);
    }
    return KOLO_OK;
}

/* Whether nothing runs in the end's stream any more. If so, its context is current. An error that
 * comes twice means that the context is lost. */
static bool enter_idle(const struct trial *t, const struct end *e)
{
    int errors = 0;
    do {
        int error = t->cuda->ctx_push_current(e->context);
        if (error == KOLO_CUDA_OK) {
            error = e->stream != NULL ? t->cuda->stream_query(e->stream) : KOLO_CUDA_OK;
            if (error == KOLO_CUDA_OK) {
                return true;
            }
            leave_context(t);
        }
        errors += error != KOLO_CUDA_NOT_READY;
    } while (errors < 2 && kolo_now_us() < t->deadline_us);
    return false;
}

/* Free an end's stream and memory. The end's context is current. */
static void give_back(struct trial *t, const struct end *own, const struct end *peer)
{
    if (own->memory != 0) {
        (void)t->cuda->mem_free(own->memory);
    }
    if (own->stream != NULL) {
        (void)t->cuda->stream_destroy(own->stream);
    }
    if (own->enabled) {
        (void)t->cuda->ctx_disable_peer_access(peer->context);
    }
    if (t->sent != NULL) {
        (void)t->cuda->mem_free_host(t->sent);
        t->sent = NULL;
    }
}

/* Free both ends only when both are idle, because a copy works on both. */
static void finish_trial(struct trial *t)
{
    const int retained = t->end[1].context != NULL ? 2 : t->end[0].context != NULL ? 1 : 0;
    int entered = 0;
    while (entered < retained && enter_idle(t, &t->end[entered])) {
        entered++;
    }
    const bool idle = entered == retained;
    for (int i = entered - 1; i >= 0; i--) {
        if (idle) {
            give_back(t, &t->end[i], &t->end[1 - i]);
        }
        leave_context(t);
    }
    for (int i = 0; i < retained && idle; i++) {
        (void)t->cuda->device_primary_ctx_release(t->end[i].device);
    }
}

/* ---- copies ---- */

/* Poll until the end's stream is idle; the end's context is current. Returns a CUresult, NOT_READY
 * at the deadline. */
static int poll_stream(const struct trial *t, const struct end *e)
{
    const struct timespec nap = {0, 100000};
    const double spin_until_us = kolo_now_us() + 2000; /* a nap would count as copying time */
    for (;;) {
        const int error = t->cuda->stream_query(e->stream);
        const double now_us = kolo_now_us();
        if (error != KOLO_CUDA_NOT_READY || now_us > t->deadline_us) {
            return error;
        }
        if (now_us > spin_until_us) {
            (void)nanosleep(&nap, NULL);
        }
    }
}

/* Copy `from` to the end's memory, or the end's memory to `to`; the other pointer is NULL. */
static kolo_status copy_host(const struct trial *t, const struct end *e, const void *from, void *to)
{
    KOLO_TRY(CUDA(t, "cuCtxPushCurrent", ctx_push_current(e->context)));
    int error = from != NULL ? t->cuda->memcpy_htod_async(e->memory, from, t->bytes, e->stream)
                             : t->cuda->memcpy_dtoh_async(to, e->memory, t->bytes, e->stream);
    if (error == KOLO_CUDA_OK) {
        error = poll_stream(t, e);
    }
    leave_context(t);
    if (error == KOLO_CUDA_NOT_READY) {
        return kolo_fail(KOLO_ERR_TIMEOUT,
                         "a copy between GPU %d and the host has not ended after %d ms", e->ordinal,
                         t->timeout_ms);
    }
    return kolo_cuda_check(t->cuda, error, "a copy between a GPU and the host");
}

/* `by` is the end whose engine copies. */
static kolo_status copy_peer(const struct trial *t, const struct end *from, const struct end *to,
                             const struct end *by, const char *way)
{
    int error = KOLO_CUDA_OK;
    KOLO_TRY(CUDA(t, "cuCtxPushCurrent", ctx_push_current(by->context)));
    for (int i = 0; i < COPIES && error == KOLO_CUDA_OK; i++) {
        error = t->cuda->memcpy_peer_async(to->memory, to->context, from->memory, from->context,
                                           t->bytes, by->stream);
    }
    if (error == KOLO_CUDA_OK) {
        error = poll_stream(t, by);
    }
    leave_context(t);
    if (error == KOLO_CUDA_NOT_READY) {
        return kolo_fail(KOLO_ERR_TIMEOUT, "%s: not done after %d ms", way, t->timeout_ms);
    }
    return error == KOLO_CUDA_OK ? KOLO_OK : fail_link(t, way, error);
}

static kolo_status compare_data(const struct trial *t, const char *way)
{
    size_t wrong = 0, first = t->bytes;
    if (memcmp(t->sent, t->back, t->bytes) == 0) {
        return KOLO_OK;
    }
    for (size_t i = t->bytes; i-- > 0;) {
        if (t->sent[i] != t->back[i]) {
            wrong++;
            first = i;
        }
    }
    return kolo_fail(KOLO_ERR_LINK, "%s: %zu of %zu bytes arrive wrong, the first is byte %zu", way,
                     wrong, t->bytes, first);
}

/* The target is zeroed first, so that the pattern of an earlier copy cannot pass for this one's. */
static kolo_status try_way(const struct trial *t, int from, int to, int by, double *seconds)
{
    char way[96];
    if (by == from) {
        (void)snprintf(way, sizeof way, "GPU %d writes to GPU %d", t->end[from].ordinal,
                       t->end[to].ordinal);
    } else {
        (void)snprintf(way, sizeof way, "GPU %d reads from GPU %d", t->end[to].ordinal,
                       t->end[from].ordinal);
    }
    memset(t->back, 0, t->bytes);
    KOLO_TRY(copy_host(t, &t->end[to], t->back, NULL));
    KOLO_TRY(copy_host(t, &t->end[from], t->sent, NULL));
    const double begin_us = kolo_now_us();
    KOLO_TRY(copy_peer(t, &t->end[from], &t->end[to], &t->end[by], way));
    *seconds = (kolo_now_us() - begin_us) / 1e6;
    KOLO_TRY(copy_host(t, &t->end[to], NULL, t->back));
    return compare_data(t, way);
}

kolo_status kolo_peer_access_try(const struct kolo_cuda *cuda, const int pair[2], size_t bytes,
                                 int timeout_ms, double *gbs_out)
{
    struct trial t = {.cuda = cuda,
                      .end = {{.ordinal = pair[0]}, {.ordinal = pair[1]}},
                      .bytes = bytes,
                      .timeout_ms = timeout_ms,
                      .deadline_us = kolo_now_us() + timeout_ms * 1e3};
    double slowest = 0;
    kolo_status st = begin_trial(&t);
    for (int way = 0; way < 4 && st == KOLO_OK; way++) {
        double seconds = 0;
        const int from = way / 2, by = way % 2;
        st = try_way(&t, from, 1 - from, by, &seconds);
        slowest = seconds > slowest ? seconds : slowest;
    }
    finish_trial(&t);
    if (st == KOLO_OK) {
        *gbs_out = (double)bytes * COPIES / slowest / 1e9;
    }
    return st;
}
