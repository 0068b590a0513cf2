// SPDX-License-Identifier: Apache-2.0
// covers: transports/verbs
/* What a peer of the verbs transport sends: words over its control connection and entries in a
 * ring, while messages are sent and received. The device is one that does as asked and carries
 * nothing.
 *
 * The input is a row of steps, each a byte that says which, and what it takes. */
#include "transports/verbs/verbs.h"

#include "target.h"
#include "whole.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS = 64, BUFFER = 80 << 10, FLAT = 1 << 16, KEYS = 7 };
enum step { WORD, ENTRY, SEND, RECEIVE, TURN, FAULT, CREDIT, STEPS };

/* ---- the device ---- */

static struct { /* completions that poll_cq() gives, and requests that wait for theirs */
    struct ibv_wc wc[16];
    int count;
    uint64_t posted[1024];
    int nposted;
} queue;

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *out)
{
    int n = 0;
    (void)cq;
    for (; n < count && n < queue.count; n++) {
        out[n] = queue.wc[n];
    }
    queue.count -= n;
    memmove(queue.wc, queue.wc + n, (size_t)queue.count * sizeof queue.wc[0]);
    for (; n < count && queue.nposted > 0; n++) {
        out[n] = (struct ibv_wc){.wr_id = queue.posted[0], .status = IBV_WC_SUCCESS};
        memmove(queue.posted, queue.posted + 1, (size_t)--queue.nposted * sizeof queue.posted[0]);
    }
    return n;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp;
    for (; wr != NULL; wr = wr->next) {
        *bad = wr;
        if ((wr->send_flags & IBV_SEND_SIGNALED) != 0 && queue.nposted < 1024) {
            queue.posted[queue.nposted++] = wr->wr_id;
        }
    }
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp;
    *bad = wr;
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *at, size_t len, int access)
{
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    (void)access;
    if (mr != NULL) {
        *mr = (struct ibv_mr){.pd = pd, .addr = at, .length = len, .lkey = KEYS, .rkey = KEYS};
    }
    return mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
    free(mr);
    return 0;
}

static struct ibv_context context = {
    .ops = {.poll_cq = poll_cq, .post_send = post_send, .post_recv = post_recv}};

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp *qp = calloc(1, sizeof *qp);
    (void)attr;
    if (qp != NULL) {
        qp->context = &context;
        qp->pd = pd;
    }
    return qp;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp;
    (void)attr;
    (void)mask;
    return 0;
}

static int destroy_qp(struct ibv_qp *qp)
{
    free(qp);
    queue.count = queue.nposted = 0;
    return 0;
}

static int query_port(struct ibv_context *of, uint8_t port, void *out)
{
    (void)of;
    (void)port;
    ((struct ibv_port_attr *)out)->state = IBV_PORT_ACTIVE;
    return 0;
}

static const char *status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_SUCCESS ? "success" : "an error";
}

static const struct kolo_verbs_library library = {.reg_mr = reg_mr,
                                                  .dereg_mr = dereg_mr,
                                                  .create_qp = create_qp,
                                                  .modify_qp = modify_qp,
                                                  .destroy_qp = destroy_qp,
                                                  .query_port = query_port,
                                                  .wc_status_str = status_str};

/* ---- the link ---- */

static void log_nothing(const char *text)
{
    (void)text;
}

static kolo_status fail(kolo_status status, const char *text)
{
    (void)text;
    return status;
}

struct world {
    struct kolo_endpoint ep;
    struct kolo_link *link;
    struct ibv_pd pd;
    struct ibv_cq cq;
    int words, sink; /* the peer's ends of the control connections */
    struct kolo_req req[REQUESTS];
    char *buffer[REQUESTS];
    int nreqs;
};

static bool join(struct world *w)
{
    int in[2], out[2];
    int pair[KOLO_VERBS_LANES][2] = {{0, 0}, {0, 0}};
    w->ep = (struct kolo_endpoint){.env = {.log = log_nothing, .fail = fail, .nranks = 2},
                                   .lib = &library,
                                   .pid = (int)getpid(),
                                   .timeout = 1,
                                   .nrails = 1,
                                   .acceptor = whole_acceptor()};
    w->ep.epoll = w->ep.acceptor.epoll;
    w->cq.context = &context;
    w->pd.context = &context;
    w->ep.rail[0] = (struct kolo_verbs_rail){.lib = &library,
                                             .port = 1,
                                             .context = &context,
                                             .pd = &w->pd,
                                             .cq = &w->cq,
                                             .cq_size = 1 << 16,
                                             .max_message = 10000,
                                             .self = {.speed_mbps = 1000, .mtu = IBV_MTU_4096}};
    w->link = calloc(1, sizeof *w->link);
    if (w->link == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, in) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, out) != 0) {
        return false;
    }
    w->words = in[1];
    w->sink = out[1];
    w->ep.all = (struct kolo_carriers){.name = "verbs",
                                       .env = &w->ep.env,
                                       .taken_kind = KOLO_VERBS_TAKEN,
                                       .record_bytes = sizeof(struct kolo_verbs_message),
                                       .drop = kolo_verbs_message_drop};
    w->link->ep = &w->ep;
    kolo_carrier_join(&w->link->base, &w->ep.all, w->link, &(struct kolo_peer){.rank = 1});
    w->link->address.nrails = 1;
    watch_whole(&w->ep.acceptor, in[0], w->link);
    watch_whole(&w->ep.acceptor, out[0], w->link);
    w->link->in = (struct kolo_verbs_stream){.fd = in[0], .up = true};
    w->link->out = (struct kolo_verbs_stream){.fd = out[0], .up = true};
    return kolo_verbs_memory_open(&w->ep) == KOLO_OK &&
           kolo_verbs_lanes_open(w->link, pair, 2) == KOLO_OK;
}

static void leave(struct world *w)
{
    struct kolo_link *link = w->link;
    kolo_verbs_lanes_stop(link);
    kolo_verbs_message_end(link, KOLO_ERR_ABORTED);
    for (int i = 0; i < w->nreqs; i++) {
        if (w->req[i].status == KOLO_INPROGRESS) {
            abort(); /* a request that nobody ends */
        }
        free(w->buffer[i]);
    }
    kolo_verbs_lanes_close(link);
    kolo_verbs_control_end(link);
    free(link->word);
    kolo_carrier_leave(&link->base);
    free(link);
    kolo_verbs_memory_close(&w->ep);
    kolo_verbs_memory_free(&w->ep);
    free(w->ep.lane);
    free(w->ep.lane_use);
    close(w->words);
    close(w->sink);
}

/* ---- steps ---- */

struct input {
    const uint8_t *at;
    size_t left;
};

/* The next bytes, zeros behind the end. */
static void take(struct input *in, void *out, size_t len)
{
    const size_t part = kolo_min(len, in->left);
    memset(out, 0, len);
    memcpy(out, in->at, part);
    in->at += part;
    in->left -= part;
}

static uint8_t take_byte(struct input *in)
{
    uint8_t byte = 0;
    take(in, &byte, 1);
    return byte;
}

static void hear_word(struct world *w, struct input *in)
{
    struct kolo_verbs_word word;
    char scrap[4096];
    take(in, &word, sizeof word);
    word.magic = KOLO_VERBS_MAGIC;
    (void)!write(w->words, &word, sizeof word);
    kolo_verbs_words_step(w->link);
    while (read(w->sink, scrap, sizeof scrap) > 0) {
    }
}

static void complete(const struct kolo_verbs_lane *lane, bool alone, uint32_t bytes, bool good)
{
    const uint32_t before = lane->taken & KOLO_VERBS_COUNTED;
    const uint32_t counts = (lane->sent & KOLO_VERBS_COUNTED) | before << KOLO_VERBS_BEFORE;
    queue.wc[queue.count++] =
        (struct ibv_wc){.wr_id = (uint64_t)(lane->id | UINT32_C(1) << 31) << 32,
                        .status = good ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR,
                        .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                        .byte_len = bytes,
                        .imm_data = htonl(counts | (alone ? KOLO_VERBS_ALONE : 0))};
}

static void hear_entry(struct world *w, struct input *in, bool plausible)
{
    struct kolo_verbs_lane *lane = &w->link->lane[take_byte(in) % 2];
    struct kolo_verbs_entry entry;
    uint8_t damage[4]; /* of the heads: where, and how */
    if (lane->qp == NULL || queue.count == 16) {
        return;
    }
    take(in, &entry, sizeof entry);
    take(in, damage, sizeof damage);
    entry.kind = (uint8_t)(entry.kind % 4 + 1);
    entry.len %= KOLO_VERBS_PIECE + 1;
    entry.zeros %= KOLO_VERBS_BRIEF + 1;
    if (plausible) {
        entry.channel %= 2;
        entry.zeros = entry.kind == KOLO_VERBS_DATA && entry.len + entry.zeros <= KOLO_VERBS_BRIEF
                          ? entry.zeros
                          : 0;
        entry.number = w->link->base.channel[entry.channel].received + (entry.number % 8) - 4;
        entry.total = entry.kind == KOLO_VERBS_DATA && (entry.zeros > 0 || entry.total % 2 == 0)
                          ? entry.len + entry.zeros
                      : entry.kind == KOLO_VERBS_DATA ? entry.len + entry.total % 3
                                                      : entry.total % FLAT;
        entry.offset = entry.zeros > 0 ? 0 : entry.offset % (entry.total + 1);
        const struct kolo_window_count known =
            w->link->base.channel[entry.channel].window.peer_taken;
        entry.taken = known.messages + entry.taken % 2;
        entry.taken_blocks = (uint16_t)(known.blocks + entry.taken_blocks % 200);
    }
    char *slot = lane->in + (size_t)(lane->taken % KOLO_VERBS_SLOTS) * KOLO_VERBS_SLOT;
    take(in, slot + kolo_verbs_entry_heads(&entry), 48);
    const size_t bytes = kolo_verbs_entry_write(slot, &entry);
    if (!plausible) {
        slot[damage[0] % KOLO_VERBS_HEADS] ^= (char)damage[1];
    }
    complete(lane, false, (uint32_t)bytes + (plausible ? 0 : damage[2] % 2), true);
    (void)kolo_verbs_lanes_poll(&w->ep);
}

static void post(struct world *w, struct input *in, bool sends)
{
    static const size_t lengths[] = {0, 1, 100, 8160, 9000, 65535, 65536, 70000};
    if (w->nreqs == REQUESTS) {
        return;
    }
    const uint8_t which = take_byte(in);
    struct kolo_req *req = &w->req[w->nreqs];
    const size_t bytes = lengths[which % 8], runs = which & 64 ? 2 : 1;
    w->buffer[w->nreqs] = calloc(1, bytes + 8);
    const struct kolo_bytes data = {w->buffer[w->nreqs], bytes / runs, runs,
                                    bytes / runs + runs - 1};
    req->channel = which >> 3 & 1;
    w->nreqs++;
    const kolo_status st = sends ? kolo_transport_verbs.send(w->link, &data, req)
                                 : kolo_transport_verbs.recv(w->link, &data, req);
    req->status = st < 0 ? st : req->status;
}

static void turn(struct world *w)
{
    (void)kolo_verbs_lanes_poll(&w->ep);
    if (w->link->base.failed == KOLO_OK) {
        kolo_verbs_lanes_step(w->link);
        (void)kolo_verbs_pump(w->link);
    }
}

static void do_step(struct world *w, struct input *in)
{
    struct kolo_verbs_lane *lane = &w->link->lane[0];
    switch ((enum step)(take_byte(in) % STEPS)) {
    case WORD:
        hear_word(w, in);
        break;
    case ENTRY:
        hear_entry(w, in, take_byte(in) % 4 != 0);
        break;
    case SEND:
        post(w, in, true);
        break;
    case RECEIVE:
        post(w, in, false);
        break;
    case TURN:
        turn(w);
        break;
    case FAULT:
        kolo_verbs_lane_break(&w->link->lane[take_byte(in) % 2], "the input says so");
        break;
    case CREDIT:
        if (lane->qp != NULL && queue.count < 16) {
            complete(lane, true, 0, take_byte(in) % 8 != 0);
        }
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world *w = calloc(1, sizeof *w);
    struct input in = {data, size};
    if (w == NULL) {
        return 0;
    }
    if (!join(w)) {
        abort();
    }
    while (in.left > 0 && w->link->base.failed == KOLO_OK) {
        do_step(w, &in);
    }
    leave(w);
    free(w);
    return 0;
}
