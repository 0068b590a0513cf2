// SPDX-License-Identifier: Apache-2.0
/* Payloads of floats in fewer bytes: frames of CODED.
 *
 * The sender codes a part of a message when its frame is the next to write. The receiver collects the
 * coded payload beside the message, and goes on as if a frame of DATA had come in one piece. So the
 * rules of message.c hold for both kinds, and sums are those of the bytes on the wire. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>

enum { CODED_LEAST = 64 << 10 }; /* bytes of a frame: coding shorter ones gains little time */

kolo_status kolo_tcp_lossless_prepare(struct kolo_endpoint *ep)
{
    if (ep->coder == NULL && (ep->coder = calloc(1, sizeof *ep->coder)) == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "tcp: out of memory for lossless coding");
    }
    return KOLO_OK;
}

/* ---- out ---- */

/* The floats of a frame; NULL: it has none that are long enough, in one row, and aligned. */
static const char *floats_of(const struct kolo_tcp_out *out)
{
    const struct kolo_req *req = out->message != NULL ? out->message->req : NULL;
    size_t run = 0;
    if (req == NULL || req->float_bytes == 0 || out->bytes < CODED_LEAST) {
        return NULL;
    }
    const char *at = kolo_bytes_at(&req->data, out->frame.offset, &run);
    return run >= out->bytes && (uintptr_t)at % req->float_bytes == 0 ? at : NULL;
}

static size_t encode_blocks(struct kolo_tcp_coder *coder, const struct kolo_tcp_coded_head *head,
                            const char *from, char *to)
{
    char *end = mempcpy(to, head, sizeof *head);
    for (size_t at = 0, part = 0; at < head->bytes; at += part) {
        part = kolo_min(head->bytes - at, KOLO_PLANES_BLOCK);
        const uint32_t coded = (uint32_t)kolo_planes_encode(head->float_bytes, from + at, part,
                                                            end + sizeof coded, &coder->room);
        end = (char *)mempcpy(end, &coded, sizeof coded) + coded;
    }
    return (size_t)(end - to);
}

void kolo_tcp_lossless_encode(struct kolo_tcp_socket *s, struct kolo_tcp_out *out)
{
    struct kolo_endpoint *ep = s->link->ep;
    const char *from = ep->codes != KOLO_TCP_CODES_NEVER ? floats_of(out) : NULL;
    if (from == NULL) {
        return;
    }
    if (s->coding == NULL && (s->coding = malloc(KOLO_TCP_CODED_OUT)) == NULL) {
        return; /* it goes as it is */
    }
    const struct kolo_tcp_coded_head head = {out->bytes, out->message->req->float_bytes};
    if (!kolo_tcp_price_pays(s, head.float_bytes, from, head.bytes)) {
        return;
    }
    const size_t coded = encode_blocks(ep->coder, &head, from, s->coding);
    kolo_tcp_price_note(s->link, head.float_bytes, head.bytes, coded);
    if (coded < out->bytes) {
        out->coded = s->coding;
        out->frame.kind = KOLO_TCP_CODED;
        out->frame.len = (uint32_t)coded;
    }
}

/* ---- in ---- */

bool kolo_tcp_lossless_begin(struct kolo_tcp_socket *s)
{
    if (!s->link->decodes || s->frame.len < sizeof(struct kolo_tcp_coded_head) ||
        s->frame.len > KOLO_TCP_CODED_IN) {
        return false;
    }
    if (s->coded == NULL && (s->coded = malloc(KOLO_TCP_CODED_IN)) == NULL) {
        kolo_tcp_fail(s->link, "cannot be read: out of memory for a coded frame", ENOMEM);
        return false;
    }
    s->decodes = true;
    s->at = 0;
    return true;
}

/* Put decoded bytes in their place, from byte `at` of the message on. */
static void place(const struct kolo_carrier_message *into, size_t at, const char *from, size_t len)
{
    struct iovec run;
    for (; kolo_tcp_message_room(into, at, len, &run, 1) > 0; len -= run.iov_len) {
        memcpy(run.iov_base, from, run.iov_len);
        from += run.iov_len;
        at += run.iov_len;
    }
}

/* Decode the blocks in [from, end). False: they are not such blocks. */
static bool decode_blocks(struct kolo_tcp_coder *coder, const struct kolo_tcp_coded_head *head,
                          const char *from, const char *end,
                          const struct kolo_carrier_message *into, size_t to)
{
    for (size_t at = 0, part = 0; at < head->bytes; at += part) {
        uint32_t coded = 0;
        part = kolo_min(head->bytes - at, KOLO_PLANES_BLOCK);
        if ((size_t)(end - from) < sizeof coded) {
            return false;
        }
        memcpy(&coded, from, sizeof coded);
        from += sizeof coded;
        if (coded > (size_t)(end - from) ||
            !kolo_planes_decode(head->float_bytes, from, coded, coder->block, part, &coder->room)) {
            return false;
        }
        place(into, to + at, coder->block, part);
        from += coded;
    }
    return from == end;
}

bool kolo_tcp_lossless_deliver(struct kolo_tcp_socket *s)
{
    struct kolo_carrier_message *into = NULL;
    struct kolo_tcp_coded_head head;
    const char *end = s->coded + s->frame.len;
    memcpy(&head, s->coded, sizeof head);
    s->decodes = false;
    s->frame.kind = KOLO_TCP_DATA;
    s->frame.len = head.bytes;
    if (head.bytes == 0 || head.bytes > KOLO_TCP_FRAME_MOST ||
        (head.float_bytes != 2 && head.float_bytes != 4) ||
        !kolo_tcp_message_arrives(s->link, &s->frame, &into) ||
        !decode_blocks(s->link->ep->coder, &head, s->coded + sizeof head, end, into,
                       s->frame.offset)) {
        return false;
    }
    kolo_tcp_message_came(s->link, &s->frame, into, head.bytes, true);
    return true;
}
