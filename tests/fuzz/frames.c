// SPDX-License-Identifier: Apache-2.0
// covers: transports/tcp
/* Frames of the tcp transport, as a peer that has proved itself may send them: a link whose socket
 * is one end of a pair, receives and sends that are posted between the bytes that come.
 *
 * Input: 1 byte of flags (1 sums, 2 sums made right, 4 both ends code), then orders: what (2 bits), channel (2), then
 * by what: 0 bytes that come (a length, and they; by channel 3 many more behind them), 1 post a
 * receive, 2 post a send (a size each), 3 look at what came. Buffers have just their length, so
 * that a byte beyond is seen. */
#include "target.h"
#include "transports/tcp/tcp.h"
#include "util/crc.h"
#include "whole.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS = 24, COME_MOST = 600, FILL = 256 };

struct input {
    const uint8_t *at, *end;
};

struct post { /* a request and its bytes */
    struct kolo_req req;
    char *bytes;
};

struct play {
    struct kolo_endpoint ep;
    struct kolo_link *link;
    int peer; /* the other end */
    struct post post[REQUESTS];
    int posts;
    bool sums, right;
};

static void log_line(const char *text)
{
    (void)text;
}

static kolo_status fail(kolo_status status, const char *text)
{
    (void)text;
    return status;
}

static unsigned next(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* Sizes about the limits of the protocol. */
static size_t next_size(struct input *in)
{
    static const size_t about[] = {
        0, 8, 1024, 4096, KOLO_TCP_EAGER_SHARED, KOLO_TCP_EAGER, KOLO_TCP_EAGER + 5000};
    return about[next(in) % KOLO_LENGTH(about)] + next(in) % 4;
}

static void *not_null(void *ptr)
{
    if (ptr == NULL) {
        abort();
    }
    return ptr;
}

static void begin(struct play *p, unsigned flags)
{
    int fd[2];
    *p = (struct play){.sums = (flags & 1) != 0, .right = (flags & 2) != 0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) != 0) {
        abort();
    }
    p->ep.env = (struct kolo_env){.nranks = 2, .log = log_line, .fail = fail};
    p->link = not_null(calloc(1, sizeof *p->link));
    p->ep.all = (struct kolo_carriers){.name = "tcp",
                                       .env = &p->ep.env,
                                       .taken_kind = KOLO_TCP_TAKEN,
                                       .record_bytes = sizeof(struct kolo_carrier_message)};
    p->ep.acceptor = whole_acceptor();
    p->ep.epoll = p->ep.acceptor.epoll;
    p->link->ep = &p->ep;
    kolo_carrier_join(&p->link->base, &p->ep.all, p->link, &(struct kolo_peer){.rank = 1});
    p->link->nsockets = 1;
    p->link->sums = p->sums;
    p->link->decodes = (flags & 4) != 0;
    p->ep.codes = p->link->decodes ? KOLO_TCP_CODES_ALWAYS : KOLO_TCP_CODES_NEVER;
    if (kolo_tcp_lossless_prepare(&p->ep) != KOLO_OK) {
        abort();
    }
    for (int i = 0; i < KOLO_TCP_SOCKETS_MAX; i++) {
        p->link->socket[i].link = p->link;
        p->link->socket[i].fd = -1;
    }
    struct kolo_tcp_socket *s = &p->link->socket[0];
    s->fd = fd[0];
    watch_whole(&p->ep.acceptor, s->fd, s);
    s->state = KOLO_TCP_UP;
    s->staging = not_null(malloc(KOLO_TCP_STAGING));
    p->peer = fd[1];
}

/* What a sender would have put there, so that what is behind the sums is reached, too. */
static void make_right(const struct play *p, uint8_t *bytes, size_t len)
{
    struct kolo_tcp_frame frame;
    for (size_t at = 0; p->right && p->sums && at + sizeof frame <= len;
         at += sizeof frame + frame.len) {
        memcpy(&frame, bytes + at, sizeof frame);
        if (frame.len > len - at - sizeof frame) {
            return;
        }
        frame.payload_sum = kolo_crc32c(0, bytes + at + sizeof frame, frame.len);
        frame.sum = kolo_crc32c(0, &frame, offsetof(struct kolo_tcp_frame, sum));
        memcpy(bytes + at, &frame, sizeof frame);
    }
}

static void come(const struct play *p, struct input *in, bool many)
{
    static const uint8_t fill[FILL];
    uint8_t bytes[COME_MOST];
    size_t len = next(in) * 3;
    len = kolo_min(kolo_min(len, sizeof bytes), (size_t)(in->end - in->at));
    memcpy(bytes, in->at, len);
    in->at += len;
    make_right(p, bytes, len);
    (void)!write(p->peer, bytes, len);
    for (unsigned more = many ? next(in) : 0; more > 0; more--) {
        (void)!write(p->peer, fill, sizeof fill);
    }
}

static void post(struct play *p, struct input *in, unsigned channel, bool receives)
{
    if (p->posts == REQUESTS) {
        return;
    }
    struct post *it = &p->post[p->posts++];
    const size_t bytes = next_size(in);
    it->bytes = not_null(malloc(bytes > 0 ? bytes : 1));
    memset(it->bytes, 0x5a, receives ? 0 : bytes);
    it->req = (struct kolo_req){.channel = channel, .float_bytes = 2};
    it->req.exclusive = receives && next(in) % 2 == 1;
    const struct kolo_bytes data = {it->bytes, bytes, 1, bytes};
    if ((receives ? kolo_tcp_message_recv : kolo_tcp_message_send)(p->link, &data, &it->req) < 0) {
        it->req.status = KOLO_ERR_LINK;
    }
}

/* A turn of progress(): what came, then what goes, which the peer throws away. */
static void look(const struct play *p)
{
    char scrap[4096];
    struct kolo_tcp_socket *s = &p->link->socket[0];
    if (p->link->base.failed == KOLO_OK) {
        (void)kolo_tcp_stream_read(s);
    }
    while (p->link->base.failed == KOLO_OK && s->state == KOLO_TCP_UP && kolo_tcp_stream_write(s)) {
        while (read(p->peer, scrap, sizeof scrap) > 0) {
        }
    }
    if (p->link->base.failed != KOLO_OK) {
        kolo_tcp_message_end(p->link, p->link->base.failed);
    }
}

static void end(struct play *p)
{
    close(p->peer);
    look(p);
    kolo_tcp_message_end(p->link, KOLO_ERR_ABORTED);
    for (int i = 0; i < p->posts; i++) {
        if (p->post[i].req.status == KOLO_INPROGRESS) {
            abort(); /* nobody would ever give it back */
        }
    }
    kolo_tcp_message_end(p->link, KOLO_ERR_ABORTED); /* what came before its receive */
    kolo_tcp_socket_reset(&p->link->socket[0], KOLO_TCP_ENDED);
    free(p->link->socket[0].staging);
    free(p->link->socket[0].coded);
    free(p->link->socket[0].coding);
    free(p->ep.coder);
    kolo_carrier_leave(&p->link->base);
    free(p->link);
    for (int i = 0; i < p->posts; i++) {
        free(p->post[i].bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct play p;
    begin(&p, next(&in));
    while (in.at < in.end) {
        const unsigned order = next(&in), channel = order >> 2 & 3;
        switch (order & 3) {
        case 0:
            come(&p, &in, channel == 3);
            break;
        case 3:
            look(&p);
            break;
        default:
            post(&p, &in, channel, (order & 3) == 1);
            break;
        }
    }
    end(&p);
    return 0;
}
