// SPDX-License-Identifier: Apache-2.0
/* Whether floats go coded to a peer. The sender alone decides, for each frame: the receiver decodes
 * what comes.
 *
 * By price, coding pays if the time of the coder at both ends is less than the time that the saved
 * bytes would take on the wire:
 *
 *   us_per_byte < (1 - kept) / rate
 *
 * - us_per_byte: encoding and decoding on this machine. A rank most often decodes as many bytes as it
 *   encodes. Both are measured with a block of the data, now and then.
 * - kept: what coding leaves of a byte, from that block and from the frames that were coded since.
 * - rate: what the kernel measured of the connection, from one acknowledgement to the next, while the
 *   program gave it enough to send. One processor codes for all connections that send at a time, so
 *   that their rates add up.
 *
 * Without a price, too, data that hardly gets shorter goes as it is for a while. */
#include "transports/tcp/tcp.h"

#include <linux/tcp.h>
#include <stddef.h>

#define GAIN_LEAST 0.05 /* of the bytes */
/* Of the time, to begin with. Coding that has begun goes on until it gains nothing. */
#define START_BELOW 0.92
#define FIRST_KEPT  0.7  /* is supposed before the first frame */
#define AGAIN_KEPT  0.94 /* is supposed later: one more frame without gain is enough */
#define NEWEST      0.25 /* the weight of the newest figure in a mean */
enum { HOLD_BYTES = 32 << 20, TRY_EVERY = 8, LOOK_US = 500 };

static struct kolo_tcp_price *price_of(struct kolo_link *link, unsigned float_bytes)
{
    return &link->price[float_bytes == 4];
}

/* ---- the rate of connections ---- */

/* Ask the kernel now and then. A rate that the program held down is only a lower bound. */
static void look_at_rate(struct kolo_tcp_socket *s)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    const double now = kolo_now_us();
    if (now - s->looked_us < LOOK_US) {
        return;
    }
    s->looked_us = now;
    if (getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        len < offsetof(struct tcp_info, tcpi_delivery_rate) + sizeof info.tcpi_delivery_rate) {
        return;
    }
    const double rate = (double)info.tcpi_delivery_rate / 1e6;
    if (!info.tcpi_delivery_rate_app_limited || (s->rate > 0 && rate > s->rate)) {
        s->rate += (s->rate > 0 ? NEWEST : 1) * (rate - s->rate);
    }
}

static double rate_of(const struct kolo_link *link)
{
    double rate = 0;
    for (int i = 0; i < link->nsockets; i++) {
        rate += link->socket[i].rate;
    }
    return rate;
}

/* Bytes a microsecond of this link and of the others that send. 0: not known. */
static double rate_beside(const struct kolo_link *link)
{
    double rate = rate_of(link);
    for (struct kolo_carrier *c = link->ep->all.active; c != NULL && rate > 0; c = c->next_active) {
        if (c != &link->base && (c->sends.first != NULL || c->flying.first != NULL)) {
            rate += rate_of(c->link);
        }
    }
    return rate;
}

/* ---- the coder ---- */

/* Code a block and decode it again, twice: the first time may wait for memory, or for other
 * programs. */
static void try_block(struct kolo_tcp_socket *s, struct kolo_tcp_price *p, unsigned float_bytes,
                      const char *from, size_t bytes)
{
    struct kolo_tcp_coder *coder = s->link->ep->coder;
    double *least = &coder->us_per_byte[float_bytes == 4];
    bytes = kolo_min(bytes, KOLO_PLANES_BLOCK);
    *least = 0;
    for (int i = 0; i < 2; i++) {
        const double begin = kolo_now_us();
        const size_t coded = kolo_planes_encode(float_bytes, from, bytes, s->coding, &coder->room);
        (void)!kolo_planes_decode(float_bytes, s->coding, coded, coder->block, bytes, &coder->room);
        const double us = (kolo_now_us() - begin) / (double)bytes;
        *least = i == 0 || us < *least ? us : *least;
        p->kept = (double)coded / (double)bytes;
    }
}

/* ---- decisions ---- */

static bool gains(const struct kolo_tcp_price *p)
{
    return p->kept < 1 - GAIN_LEAST;
}

static bool pays_now(struct kolo_tcp_socket *s, struct kolo_tcp_price *p, unsigned float_bytes,
                     const char *from, size_t bytes, double rate)
{
    const double *us_per_byte = &s->link->ep->coder->us_per_byte[float_bytes == 4];
    const bool may_change = !gains(p) && *us_per_byte * rate < START_BELOW;
    if (p->decisions++ % TRY_EVERY == 0 || may_change) {
        try_block(s, p, float_bytes, from, bytes);
    }
    return gains(p) && p->kept + *us_per_byte * rate < (p->codes ? 1 : START_BELOW);
}

static bool decide_by_price(struct kolo_tcp_socket *s, struct kolo_tcp_price *p,
                            unsigned float_bytes, const char *from, size_t bytes)
{
    look_at_rate(s);
    const double rate = rate_beside(s->link);
    if (rate <= 0) {
        return false; /* bytes that go as they are will tell */
    }
    if (p->left > 0) {
        p->left -= kolo_min(p->left, bytes);
        return p->codes && gains(p);
    }
    p->left = HOLD_BYTES;
    return pays_now(s, p, float_bytes, from, bytes, rate);
}

static bool decide_by_length(struct kolo_tcp_price *p, size_t bytes)
{
    if (gains(p)) {
        p->left = HOLD_BYTES;
        return true;
    }
    p->left -= kolo_min(p->left, bytes);
    p->kept = p->left == 0 ? AGAIN_KEPT : p->kept;
    return false;
}

static const char *name_of(unsigned float_bytes)
{
    return float_bytes == 4 ? "float32" : "bfloat16";
}

static void tell(const struct kolo_link *link, const struct kolo_tcp_price *p, unsigned float_bytes)
{
    KOLO_LOG(INFO, NET,
             "tcp: rank %d to %d: %s goes %s: coding leaves %.2f of the bytes and takes %.2f ns a "
             "byte, connections %.2f",
             link->ep->env.rank, link->base.peer.rank, name_of(float_bytes),
             p->codes ? "coded" : "as it is", p->kept,
             1e3 * link->ep->coder->us_per_byte[float_bytes == 4], 1e3 / rate_beside(link));
}

bool kolo_tcp_price_pays(struct kolo_tcp_socket *s, unsigned float_bytes, const char *from,
                         size_t bytes)
{
    struct kolo_tcp_price *p = price_of(s->link, float_bytes);
    const bool by_price = s->link->ep->codes == KOLO_TCP_CODES_BY_PRICE;
    const bool pays =
        by_price ? decide_by_price(s, p, float_bytes, from, bytes) : decide_by_length(p, bytes);
    const bool news = pays != p->codes || (p->kept > 0 && !p->told);
    p->codes = pays;
    if (by_price && news) {
        p->told = true;
        tell(s->link, p, float_bytes);
    }
    return pays;
}

void kolo_tcp_price_note(struct kolo_link *link, unsigned float_bytes, size_t bytes, size_t coded)
{
    struct kolo_tcp_price *p = price_of(link, float_bytes);
    const double before = p->kept > 0 ? p->kept : FIRST_KEPT;
    p->kept = before + NEWEST * ((double)coded / (double)bytes - before);
    p->bytes += bytes;
    p->coded += kolo_min(coded, bytes);
}

static void tell_sum(const struct kolo_link *link, unsigned float_bytes)
{
    const struct kolo_tcp_price *p = &link->price[float_bytes == 4];
    if (p->bytes > 0) {
        KOLO_LOG(INFO, NET, "tcp: rank %d to %d: %llu bytes of %s went as %llu", link->ep->env.rank,
                 link->base.peer.rank, (unsigned long long)p->bytes, name_of(float_bytes),
                 (unsigned long long)p->coded);
    }
}

void kolo_tcp_price_end(const struct kolo_link *link)
{
    tell_sum(link, 2);
    tell_sum(link, 4);
}
