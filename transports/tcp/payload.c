// SPDX-License-Identifier: Apache-2.0
/* Where the payload of a frame is, and its sums. */
#include "transports/tcp/tcp.h"
#include "util/crc.h"

#include <errno.h>
#include <stdio.h>

uint32_t kolo_tcp_head_sum(const struct kolo_tcp_frame *frame)
{
    return kolo_crc32c(0, frame, offsetof(struct kolo_tcp_frame, sum));
}

char *kolo_tcp_payload_at(const struct kolo_tcp_out *out, size_t at, size_t *run)
{
    *run = out->frame.len - at;
    if (out->coded != NULL) {
        return (char *)out->coded + at;
    }
    size_t room = 0;
    char *from = kolo_bytes_at(&out->message->req->data, out->frame.offset + at, &room);
    *run = kolo_min(*run, room);
    return from;
}

void kolo_tcp_fill_sums(struct kolo_tcp_out *out)
{
    size_t run = 0;
    out->frame.payload_sum = 0;
    for (size_t at = 0; out->message != NULL && at < out->frame.len; at += run) {
        const char *from = kolo_tcp_payload_at(out, at, &run);
        out->frame.payload_sum = kolo_crc32c(out->frame.payload_sum, from, run);
    }
    out->frame.sum = kolo_tcp_head_sum(&out->frame);
}

/* Fail the link for a wrong sum. The text names the message if the sum of the header is right. */
static void fail_sum(struct kolo_tcp_socket *s, bool head)
{
    const struct kolo_tcp_frame *f = &s->frame;
    char what[200];
    if (head) {
        (void)snprintf(what, sizeof what,
                       "sent the header of a frame with a wrong checksum, by connection %d",
                       s->index);
    } else {
        (void)snprintf(
            what, sizeof what,
            "sent a frame with a wrong checksum, by connection %d: message %u of channel "
            "%u, bytes %llu to %llu of %llu",
            s->index, f->number, f->channel, (unsigned long long)f->offset,
            (unsigned long long)(f->offset + f->len), (unsigned long long)f->total);
    }
    kolo_tcp_fail(s->link, what, EBADMSG);
}

bool kolo_tcp_head_is_right(struct kolo_tcp_socket *s)
{
    if (s->link->sums && kolo_tcp_head_sum(&s->frame) != s->frame.sum) {
        fail_sum(s, true);
        return false;
    }
    s->sum = 0;
    return true;
}

int kolo_tcp_payload_room(const struct kolo_tcp_socket *s, size_t done, size_t left,
                          struct iovec *out, int count)
{
    if (!s->decodes) {
        return kolo_tcp_message_room(s->into, s->at + done, left, out, count);
    }
    out[0] = (struct iovec){s->coded + s->at + done, left};
    return left > 0;
}

bool kolo_tcp_is_within_payload(const struct kolo_tcp_socket *s)
{
    return s->into != NULL || s->decodes;
}

bool kolo_tcp_payload_is_right(struct kolo_tcp_socket *s, size_t len, bool whole)
{
    struct iovec run;
    for (size_t done = 0; done < len; done += run.iov_len) {
        if (kolo_tcp_payload_room(s, done, len - done, &run, 1) == 0) {
            return true;
        }
        s->sum = kolo_crc32c(s->sum, run.iov_base, run.iov_len);
    }
    if (whole && (s->decodes || !s->into->failed) && s->sum != s->frame.payload_sum) {
        fail_sum(s, false);
        return false;
    }
    return true;
}
