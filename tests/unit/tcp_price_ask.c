// SPDX-License-Identifier: Apache-2.0
#include "tcp_price_ask.h"

#include "transports/tcp/tcp.h"

#include <stdlib.h>

struct price_sender {
    struct kolo_endpoint ep;
    struct kolo_link link;
    char coding[KOLO_TCP_CODED_OUT];
};

struct price_sender *price_sender_make(bool by_price, double bytes_per_us)
{
    struct price_sender *s = calloc(1, sizeof *s);
    if (s == NULL || kolo_tcp_lossless_prepare(&s->ep) != KOLO_OK) {
        abort();
    }
    s->ep.codes = by_price ? KOLO_TCP_CODES_BY_PRICE : KOLO_TCP_CODES_ALWAYS;
    s->link.ep = &s->ep;
    s->link.nsockets = 1;
    s->link.socket[0] = (struct kolo_tcp_socket){
        .link = &s->link, .fd = -1, .rate = bytes_per_us, .coding = s->coding};
    return s;
}

void price_sender_end(struct price_sender *s)
{
    free(s->ep.coder);
    free(s);
}

size_t price_sender_send(struct price_sender *s, unsigned float_bytes, const void *from,
                         size_t bytes)
{
    if (!kolo_tcp_price_pays(&s->link.socket[0], float_bytes, from, bytes)) {
        return 0;
    }
    size_t coded = 0;
    for (size_t at = 0, part = 0; at < bytes; at += part) {
        part = kolo_min(bytes - at, KOLO_PLANES_BLOCK);
        coded += kolo_planes_encode(float_bytes, (const char *)from + at, part, s->coding,
                                    &s->ep.coder->room);
    }
    kolo_tcp_price_note(&s->link, float_bytes, bytes, coded);
    return coded;
}
