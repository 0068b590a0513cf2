// SPDX-License-Identifier: Apache-2.0
/* The bytes of frames, into sockets and out of them.
 *
 * Out: one sendmsg() writes headers and payloads of several frames; payloads are not copied. In:
 * one recv() reads a header and a short payload into a staging buffer. The rest of a longer payload
 * is read straight to its place, and the next header behind it in the same call. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum { FEW_BYTES = 512, PARTS = 64, BATCH_BYTES = 64 << 10, ROUNDS = 16, RUNS = 16 };
enum { LAST_TRIES = 100, LAST_NAP_US = 100 };

/* ---- out ---- */

static struct kolo_tcp_out *out_at(struct kolo_tcp_socket *s, int i)
{
    return &s->out[(s->first + i) % KOLO_TCP_QUEUE];
}

/* The next frame to write, with its sums. */
static bool pull_frame(struct kolo_tcp_socket *s, struct kolo_tcp_out *out)
{
    if (!kolo_tcp_message_pull(s->link, out)) {
        return false;
    }
    kolo_tcp_lossless_encode(s, out);
    if (s->link->sums) {
        kolo_tcp_fill_sums(out);
    }
    return true;
}

/* A socket has one buffer for coded bytes, so that a coded frame is the last one in the ring. */
static bool takes_frame(struct kolo_tcp_socket *s)
{
    return s->count == 0 || (s->count < KOLO_TCP_QUEUE && out_at(s, s->count - 1)->coded == NULL);
}

/* Pull frames until they make one batch. */
static void fill_batch(struct kolo_tcp_socket *s)
{
    size_t bytes = 0;
    for (int i = 0; i < s->count; i++) {
        bytes += out_at(s, i)->frame.len;
    }
    while (bytes < BATCH_BYTES && takes_frame(s) && pull_frame(s, out_at(s, s->count))) {
        bytes += out_at(s, s->count)->frame.len;
        s->count++;
    }
}

/* Parts of one frame that are not written yet; returns how many. */
static int add_parts(struct kolo_tcp_out *out, struct iovec *part, int room)
{
    int used = 0;
    size_t at = out->at;
    if (at < KOLO_TCP_HEAD) {
        part[used++] = (struct iovec){(char *)&out->frame + at, KOLO_TCP_HEAD - at};
        at = KOLO_TCP_HEAD;
    }
    at -= KOLO_TCP_HEAD;
    while (out->message != NULL && at < out->frame.len && used < room) {
        size_t run = 0;
        char *from = kolo_tcp_payload_at(out, at, &run);
        part[used++] = (struct iovec){from, run};
        at += run;
    }
    return used;
}

static void count_written(struct kolo_tcp_socket *s, size_t bytes)
{
    while (s->count > 0) {
        struct kolo_tcp_out *out = out_at(s, 0);
        const size_t left = KOLO_TCP_HEAD + out->frame.len - out->at;
        if (bytes < left) {
            out->at += bytes;
            return;
        }
        bytes -= left;
        const struct kolo_tcp_out done = *out;
        s->first = (s->first + 1) % KOLO_TCP_QUEUE;
        s->count--;
        kolo_tcp_message_sent(s->link, &done);
    }
}

/* A few bytes are copied together: that costs less than a list of parts. */
static ssize_t send_parts(const struct kolo_tcp_socket *s, struct iovec *part, size_t nparts,
                          size_t bytes)
{
    char few[FEW_BYTES];
    char *at = few;
    if (s->seal != NULL) {
        return kolo_seal_send(s->seal, s->fd, part, nparts);
    }
    if (bytes > sizeof few) {
        const struct msghdr message = {.msg_iov = part, .msg_iovlen = nparts};
        return sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (size_t i = 0; i < nparts; i++) {
        at = mempcpy(at, part[i].iov_base, part[i].iov_len);
    }
    return send(s->fd, few, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The socket cannot be written any more. Bytes that it still holds may give the reason. */
static void end_socket(struct kolo_tcp_socket *s, int error)
{
    while (s->state == KOLO_TCP_UP && s->link->base.failed == KOLO_OK && kolo_tcp_stream_read(s)) {
    }
    kolo_tcp_ended(s, error);
}

bool kolo_tcp_stream_write(struct kolo_tcp_socket *s)
{
    struct iovec part[PARTS];
    size_t nparts = 0;
    size_t asked = 0;
    fill_batch(s);
    for (int i = 0; i < s->count && nparts < PARTS; i++) {
        nparts += (size_t)add_parts(out_at(s, i), part + nparts, (int)(PARTS - nparts));
    }
    if (nparts == 0) {
        return false;
    }
    for (size_t i = 0; i < nparts; i++) {
        asked += part[i].iov_len;
    }
    const ssize_t n = send_parts(s, part, nparts, asked);
    if (n < 0) {
        s->full = errno == EAGAIN;
        if (errno != EAGAIN && errno != EINTR) {
            end_socket(s, errno);
        }
        return false;
    }
    /* A seal takes fewer bytes than it is given, and holds those that the kernel did not take. */
    s->full = s->seal != NULL ? kolo_seal_holds(s->seal) : (size_t)n < asked;
    count_written(s, (size_t)n);
    return true;
}

bool kolo_tcp_stream_is_within(const struct kolo_tcp_socket *s)
{
    return (s->count > 0 && s->out[s->first].at > 0) || kolo_seal_holds(s->seal);
}

bool kolo_tcp_stream_finish(struct kolo_tcp_socket *s)
{
    struct iovec part[PARTS];
    while (s->state == KOLO_TCP_UP && s->count > 0 && kolo_tcp_stream_is_within(s)) {
        const size_t nparts = (size_t)add_parts(out_at(s, 0), part, PARTS);
        const ssize_t n = send_parts(s, part, nparts, SIZE_MAX);
        if (n < 0) {
            return errno != EAGAIN && errno != EINTR;
        }
        count_written(s, (size_t)n);
    }
    return true;
}

static bool has_room(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    return poll(&room, 1, 0) == 1;
}

/* Append a frame to `bytes`, of which `*len` are used. */
static void add_last(struct kolo_tcp_frame *frame, char *bytes, size_t *len)
{
    frame->magic = KOLO_TCP_FRAME_MAGIC;
    frame->sum = kolo_tcp_head_sum(frame);
    memcpy(bytes + *len, frame, KOLO_TCP_HEAD);
    *len += KOLO_TCP_HEAD;
}

/* Write all of `bytes`, or none of them: false. A peer that reads nothing is not waited for. */
static bool write_last(const struct kolo_tcp_socket *s, char *bytes, size_t len)
{
    size_t at = 0;
    for (int tries = 0; at < len && tries < LAST_TRIES; tries++) {
        struct iovec rest = {bytes + at, len - at};
        if (s->seal != NULL && tries == 0 && !has_room(s->fd)) {
            return false; /* what is sealed must be sent */
        }
        const ssize_t n = send_parts(s, &rest, 1, SIZE_MAX);
        at += n > 0 ? (size_t)n : 0;
        if (n < 0 && ((at == 0 && !kolo_seal_holds(s->seal)) || errno != EAGAIN)) {
            return errno != EAGAIN;
        }
        if (at < len) {
            (void)usleep(LAST_NAP_US);
        }
    }
    return true;
}

bool kolo_tcp_stream_last(struct kolo_tcp_socket *s, enum kolo_tcp_kind kind, uint32_t number)
{
    enum { PARTS_MAX = KOLO_REASON_TEXT / KOLO_TCP_TEXT_PART };
    char text[KOLO_REASON_TEXT], bytes[(PARTS_MAX + 1) * KOLO_TCP_HEAD];
    struct kolo_tcp_frame last = {.kind = (uint8_t)kind, .number = number};
    size_t len = 0;
    if (s->state != KOLO_TCP_UP || kolo_tcp_stream_is_within(s)) {
        return true;
    }
    const size_t said =
        kind == KOLO_TCP_ABORT ? kolo_carriers_reason_text(&s->link->ep->all, text) : 0;
    for (uint32_t i = 0; i * KOLO_TCP_TEXT_PART < said; i++) {
        struct kolo_tcp_frame part = {.kind = KOLO_TCP_TEXT, .number = i};
        memcpy((char *)&part + offsetof(struct kolo_tcp_frame, offset),
               text + (size_t)i * KOLO_TCP_TEXT_PART, KOLO_TCP_TEXT_PART);
        add_last(&part, bytes, &len);
    }
    add_last(&last, bytes, &len);
    return write_last(s, bytes, len);
}

/* ---- in ---- */

/* False: the sum of the payload is wrong. */
static bool take_payload(struct kolo_tcp_socket *s, size_t len)
{
    struct kolo_carrier_message *into = s->into;
    if (s->link->sums && !kolo_tcp_payload_is_right(s, len, s->left == len)) {
        return false;
    }
    s->left -= len;
    s->at += len;
    if (s->decodes) {
        return s->left > 0 || kolo_tcp_lossless_deliver(s);
    }
    if (s->left == 0) {
        s->into = NULL;
    }
    kolo_tcp_message_came(s->link, &s->frame, into, len, s->left == 0);
    return true;
}

/* Move payload out of the staging buffer. */
static bool unpack_payload(struct kolo_tcp_socket *s)
{
    size_t part = kolo_min(s->left, s->tail - s->head);
    size_t done = 0;
    while (done < part) {
        struct iovec to;
        if (kolo_tcp_payload_room(s, done, part - done, &to, 1) == 0) {
            break;
        }
        memcpy(to.iov_base, s->staging + s->head + done, to.iov_len);
        done += to.iov_len;
    }
    s->head += part;
    return take_payload(s, part);
}

/* The header in s->frame came: find the place of its payload. */
static bool take_head(struct kolo_tcp_socket *s)
{
    s->left = s->frame.len;
    s->at = s->frame.offset;
    s->patience = KOLO_TCP_PATIENCE;
    if (!kolo_tcp_head_is_right(s)) {
        return false;
    }
    return s->frame.kind == KOLO_TCP_CODED ? kolo_tcp_lossless_begin(s)
                                           : kolo_tcp_message_arrives(s->link, &s->frame, &s->into);
}

/* Parse the frames in the staging buffer, complete or begun. False: a frame is invalid. */
static bool parse_frames(struct kolo_tcp_socket *s)
{
    while (s->head < s->tail || kolo_tcp_is_within_payload(s)) {
        if (kolo_tcp_is_within_payload(s)) {
            if (s->head == s->tail && s->left > 0) {
                break;
            }
            if (!unpack_payload(s)) {
                return false;
            }
            continue;
        }
        if (s->tail - s->head < KOLO_TCP_HEAD) {
            break;
        }
        memcpy(&s->frame, s->staging + s->head, KOLO_TCP_HEAD);
        s->head += KOLO_TCP_HEAD;
        if (!take_head(s)) {
            return false;
        }
    }
    memmove(s->staging, s->staging + s->head, s->tail - s->head);
    s->tail -= s->head;
    s->head = 0;
    return true;
}

/* As recvmsg(), of a sealed socket: fill the parts as far as records have come. */
static ssize_t open_bytes(struct kolo_tcp_socket *s, const struct iovec *part, int nparts)
{
    ssize_t came = 0;
    for (int i = 0; i < nparts; i++) {
        for (size_t at = 0; at < part[i].iov_len;) {
            const ssize_t n =
                kolo_seal_recv(s->seal, s->fd, (char *)part[i].iov_base + at, part[i].iov_len - at);
            if (n <= 0) { /* an end or an error comes again */
                return came > 0 ? came : n;
            }
            at += (size_t)n;
            came += n;
        }
    }
    return came;
}

/* One recvmsg(): first the rest of a payload into its place, then into the staging buffer. */
static ssize_t receive_bytes(struct kolo_tcp_socket *s, size_t *direct, size_t *asked)
{
    struct iovec part[RUNS + 1];
    int nparts = 0;
    if (kolo_tcp_is_within_payload(s) && s->left > 0) {
        nparts = kolo_tcp_payload_room(s, 0, s->left, part, RUNS);
    }
    *direct = 0;
    for (int i = 0; i < nparts; i++) {
        *direct += part[i].iov_len;
    }
    *asked = *direct;
    if (*direct == s->left || nparts == 0) { /* else the bytes behind are not the next header */
        part[nparts++] = (struct iovec){s->staging + s->tail, KOLO_TCP_STAGING - s->tail};
        *asked += KOLO_TCP_STAGING - s->tail;
    }
    if (s->seal != NULL) {
        return open_bytes(s, part, nparts);
    }
    if (nparts == 1) {
        return recv(s->fd, part[0].iov_base, part[0].iov_len, MSG_DONTWAIT);
    }
    struct msghdr message = {.msg_iov = part, .msg_iovlen = (size_t)nparts};
    return recvmsg(s->fd, &message, MSG_DONTWAIT);
}

/* One recvmsg(): a header, then payload into its probable place, then into the staging buffer. */
static ssize_t receive_expected(struct kolo_tcp_socket *s, const struct iovec *place, size_t *asked)
{
    struct iovec part[3] = {{s->staging, KOLO_TCP_HEAD},
                            *place,
                            {s->staging + KOLO_TCP_HEAD, KOLO_TCP_STAGING - KOLO_TCP_HEAD}};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = 3};
    *asked = KOLO_TCP_STAGING + place->iov_len;
    return recvmsg(s->fd, &message, MSG_DONTWAIT);
}

/* Other frames came than expected. The bytes in the wrong place are copied out first. The receive
 * of that place has not begun, so nothing is lost. */
static bool parse_elsewhere(struct kolo_tcp_socket *s, const struct iovec *place, size_t bytes)
{
    const size_t strayed = kolo_min(bytes - KOLO_TCP_HEAD, place->iov_len);
    char *staging = s->staging;
    char *all = malloc(bytes);
    if (all == NULL) {
        return false;
    }
    char *at = mempcpy(all, staging, KOLO_TCP_HEAD);
    at = mempcpy(at, place->iov_base, strayed);
    memcpy(at, staging + KOLO_TCP_HEAD, bytes - KOLO_TCP_HEAD - strayed);
    s->staging = all;
    s->tail = bytes;
    const bool good = parse_frames(s);
    s->staging = staging;
    s->tail = good ? s->tail : 0;
    memcpy(staging, all, s->tail); /* less than a header */
    free(all);
    return good;
}

/* `bytes` came by receive_expected(). */
static bool parse_expected(struct kolo_tcp_socket *s, const struct iovec *place, size_t bytes)
{
    if (bytes <= KOLO_TCP_HEAD) {
        s->tail = bytes;
        return parse_frames(s);
    }
    memcpy(&s->frame, s->staging, KOLO_TCP_HEAD);
    if (!kolo_tcp_message_is_expected(s->link, &s->frame)) {
        return parse_elsewhere(s, place, bytes);
    }
    if (!kolo_tcp_head_is_right(s) || !kolo_tcp_message_arrives(s->link, &s->frame, &s->into)) {
        return false;
    }
    const size_t there = kolo_min(bytes - KOLO_TCP_HEAD, place->iov_len);
    s->left = s->frame.len;
    s->at = 0;
    s->head = KOLO_TCP_HEAD;
    s->tail = bytes - there;
    return take_payload(s, there) && parse_frames(s);
}

bool kolo_tcp_stream_read(struct kolo_tcp_socket *s)
{
    bool moved = false;
    for (int round = 0; round < ROUNDS; round++) {
        struct iovec place;
        size_t direct = 0;
        size_t asked = 0;
        const bool guesses = !kolo_tcp_is_within_payload(s) && s->tail == 0 && s->seal == NULL &&
                             s->coded == NULL && kolo_tcp_message_expects(s->link, &place);
        const ssize_t n =
            guesses ? receive_expected(s, &place, &asked) : receive_bytes(s, &direct, &asked);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        s->ripe = false;
        if (n <= 0) {
            if (n < 0 && errno == EBADMSG) {
                kolo_tcp_fail(s->link, "sent bytes that were changed on their way", EBADMSG);
            } else if (n == 0 || errno != EAGAIN) {
                kolo_tcp_ended(s, n == 0 ? 0 : errno);
            }
            return moved;
        }
        moved = true;
        const size_t there = kolo_min((size_t)n, direct);
        s->tail += guesses ? 0 : (size_t)n - there;
        if ((there > 0 && !take_payload(s, there)) ||
            !(guesses ? parse_expected(s, &place, (size_t)n) : parse_frames(s))) {
            kolo_tcp_fail(s->link, "sent an invalid message", EBADMSG);
            return moved;
        }
        /* Fewer bytes than asked are all, for now. Their end was told with them, and is not again. */
        if (((size_t)n < asked && !s->over) || s->state != KOLO_TCP_UP) {
            return moved;
        } else if (kolo_tcp_message_is_early(s)) {
            break;
        }
    }
    s->ripe = true;
    return moved;
}
