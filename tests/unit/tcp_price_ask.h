// SPDX-License-Identifier: Apache-2.0
/* A connection without a socket, of a rate that is told, and whether it codes frames. */
#ifndef TESTS_UNIT_TCP_PRICE_ASK_H
#define TESTS_UNIT_TCP_PRICE_ASK_H

#include <stdbool.h>
#include <stddef.h>

struct price_sender;

/* bytes_per_us 0: no rate is known yet. */
struct price_sender *price_sender_make(bool by_price, double bytes_per_us);
void price_sender_end(struct price_sender *s);
/* Send one frame; the bytes that coding left of it, 0: it went as it is. */
size_t price_sender_send(struct price_sender *s, unsigned float_bytes, const void *from,
                         size_t bytes);

#endif
