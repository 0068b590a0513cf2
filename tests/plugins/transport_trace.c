// SPDX-License-Identifier: Apache-2.0
/* A wrapper round a transport that counts what it carries: libkolo_transport_trace.so. Round dgram,
 * for all that goes by messages can be counted. When the last endpoint closes, the file that
 * KOLO_TRACE_FILE names gets a line "FROM TO BYTES MESSAGES" for each pair of ranks; messages of
 * less than 1 KiB, which are barriers and the like, are left out. */
#define kolo_transport_v1 dgram_v1
#include "examples/plugins/transport_dgram/dgram.c"
#undef kolo_transport_v1

enum { RANKS = 64, LEAST_BYTES = 1024 };

static atomic_ulong bytes[RANKS][RANKS], messages[RANKS][RANKS];
static atomic_int endpoints;

static void write_counts(const char *path)
{
    FILE *file = fopen(path, "we");
    for (int from = 0; from < RANKS && file != NULL; from++) {
        for (int to = 0; to < RANKS; to++) {
            if (atomic_load(&messages[from][to]) > 0) {
                fprintf(file, "%d %d %lu %lu\n", from, to, atomic_load(&bytes[from][to]),
                        atomic_load(&messages[from][to]));
            }
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static kolo_status trace_open(const struct kolo_env *env, struct kolo_endpoint **out)
{
    const kolo_status st = dgram_open(env, out);
    atomic_fetch_add(&endpoints, st == KOLO_OK);
    return st;
}

static void trace_close(struct kolo_endpoint *ep)
{
    const char *path = getenv("KOLO_TRACE_FILE");
    dgram_close(ep);
    if (atomic_fetch_sub(&endpoints, 1) == 1 && path != NULL) {
        write_counts(path);
    }
}

static kolo_status trace_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                               struct kolo_reach *out)
{
    const kolo_status st = dgram_probe(ep, peer, out);
    out->via = "TRACE";
    return st;
}

static kolo_status trace_send(struct kolo_link *link, const struct kolo_bytes *src,
                              struct kolo_req *req)
{
    const size_t total = src->bytes * src->count;
    const int from = link->ep->env.rank, to = link->peer;
    if (total >= LEAST_BYTES && from < RANKS && to < RANKS) {
        atomic_fetch_add(&bytes[from][to], total);
        atomic_fetch_add(&messages[from][to], 1);
    }
    return dgram_send(link, src, req);
}

KOLO_EXPORT
extern const struct kolo_transport kolo_transport_v1;
const struct kolo_transport kolo_transport_v1 = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "trace"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_MESSAGE,
    .open = trace_open,
    .close = trace_close,
    .probe = trace_probe,
    .address = dgram_address,
    .connect = dgram_connect,
    .disconnect = dgram_disconnect,
    .send = trace_send,
    .recv = dgram_recv,
    .progress = dgram_progress,
    .abort = dgram_abort,
};
