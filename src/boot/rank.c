// SPDX-License-Identifier: Apache-2.0
/* A rank's side of the meeting point: connect until the deadline, prove, wait, exchange.
 *
 * The hub watches the deadlines of this rank, too, because only the hub knows which ranks are
 * missing. A rank waits a second longer before it reports its own time-out.
 *
 * If a connection ends before the hub has acknowledged the rank, the rank connects again. The hub
 * may have closed it for another connection, or may be starting anew. */
#include "boot/wire.h"
#include "util/descriptor.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    GRACE_MS = 1000,
    CONNECT_MS = 3000,
    RETRY_FIRST_US = 20,
    RETRY_LAST_US = 10000,
    LOOK_MS = 100
};

struct kolo_boot {
    struct kolo_meet meet;
    int fd;     /* -1: this rank is alone */
    int shared; /* memory of the frame that comes; -1: its bytes come over the socket */
    int rank, nranks, timeout_ms;
    int host_rank;    /* the rank whose process runs the hub; -1: not known */
    bool hub_is_here; /* this process runs the hub */
    bool served;      /* the other ranks have taken all that they need of the hub */
    bool encrypts;    /* KOLO_ENCRYPT */
    bool joined;      /* the hub acknowledged this rank */
    bool complete;    /* the hub acknowledged all ranks */
    kolo_status error;
    struct kolo_boot_guard guard;
    uint32_t seq;
    double deadline_us;                  /* of the present step */
    const struct kolo_boot_first *first; /* until all have joined; NULL: none */
};

/* ---- bytes over the connection ---- */

/* Tell the parent which rank's end has ended the meeting. Other numbers stand for none. */
static void blame(const struct kolo_boot *boot, uint32_t rank)
{
    if (boot->meet.parent != NULL && rank < (uint32_t)boot->nranks) {
        boot->meet.parent->at_fault = (int)rank;
    }
}

static kolo_status hub_lost(const struct kolo_boot *boot)
{
    if (!boot->joined) {
        return KOLO_INPROGRESS;
    }
    blame(boot, (uint32_t)boot->host_rank);
    if (boot->host_rank >= 0) {
        return kolo_fail(KOLO_ERR_PEER,
                         "rank %d died or left: its process ran meeting point \"%s\"",
                         boot->host_rank, boot->meet.name);
    }
    return kolo_fail(KOLO_ERR_PEER, "the process that ran meeting point \"%s\" died",
                     boot->meet.name);
}

/* Stop if the communicator that the ranks come from says so: a rank that died never joins. */
static kolo_status check_parent(const struct kolo_boot *boot)
{
    struct kolo_meet_parent *parent = boot->meet.parent;
    return parent == NULL ? KOLO_OK
                          : parent->may_wait(parent, boot->complete ? KOLO_MEET_COMPLETE
                                                     : boot->joined ? KOLO_MEET_JOINED
                                                                    : KOLO_MEET_SEEKING);
}

/* Other ranks may wait for memory of this process, which has no descriptor left to accept them. */
kolo_status kolo_boot_may_wait(const struct kolo_boot *boot)
{
    KOLO_TRY(check_parent(boot));
    return boot->meet.starved == NULL || !boot->meet.starved()
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM,
                           "no descriptor left for a rank that asks rank %d for memory: %s",
                           boot->rank, kolo_why(EMFILE));
}

static kolo_status wait_for(const struct kolo_boot *boot, short events)
{
    for (;;) {
        const double left_ms = (boot->deadline_us - kolo_now_us()) / 1e3;
        const int most_ms = (int)fmin(left_ms + 1, LOOK_MS);
        const int n = left_ms <= 0 ? 0 : kolo_poll_soon(boot->fd, events, most_ms);
        if (n > 0) {
            return KOLO_OK;
        }
        KOLO_TRY(kolo_boot_may_wait(boot));
        if (n < 0 && errno != EINTR) {
            return kolo_fail(KOLO_ERR_SYSTEM, "poll: %s", strerror(errno));
        }
        if (left_ms <= 0) {
            return kolo_boot_no_answer(&boot->meet, boot->host_rank, boot->rank, boot->timeout_ms);
        }
    }
}

static kolo_status take_bytes(struct kolo_boot *boot, void *out, size_t len)
{
    unsigned char *at = out;
    while (len > 0) {
        const ssize_t n = kolo_boot_receive(boot->fd, at, len, &boot->shared);
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        } else if (n < 0 && errno == EMFILE) {
            return kolo_fail(KOLO_ERR_SYSTEM, "no descriptor left for an answer of \"%s\": %s",
                             boot->meet.name, kolo_why(EMFILE));
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return hub_lost(boot);
        } else if (errno == EAGAIN) {
            KOLO_TRY(wait_for(boot, POLLIN));
        }
    }
    return KOLO_OK;
}

/* A frame differs from the frame that the hub sent. */
static kolo_status changed_frame(const struct kolo_boot *boot)
{
    return kolo_fail(KOLO_ERR_LINK,
                     "a message of meeting point \"%s\" to rank %d changed on its way, or somebody "
                     "else sent it",
                     boot->meet.name, boot->rank);
}

static kolo_status take_body(struct kolo_boot *boot, const struct kolo_boot_header *in, void *out)
{
    if (boot->shared < 0) {
        KOLO_AWAIT(take_bytes(boot, out, in->len));
    } else if (!kolo_boot_take_shared(&boot->shared, out, in->len)) {
        return changed_frame(boot);
    }
    return (in->len == 0 || kolo_boot_is_whole(in, out)) && kolo_boot_unmask(&boot->guard, in, out)
               ? KOLO_OK
               : changed_frame(boot);
}

/* Take the hub's error. Its frame must be a status and a text. */
static kolo_status take_error(struct kolo_boot *boot, const struct kolo_boot_header *in)
{
    struct kolo_boot_error error;
    if (in->len != sizeof error) {
        return kolo_fail(KOLO_ERR_LINK, "meeting point \"%s\" sent an error of %u bytes",
                         boot->meet.name, in->len);
    }
    KOLO_AWAIT(take_body(boot, in, &error));
    error.text[sizeof error.text - 1] = '\0';
    blame(boot, in->seq - 1);
    const bool known = error.status < 0 && error.status >= KOLO_ERR_INTERNAL;
    const kolo_status st = known ? (kolo_status)error.status : KOLO_ERR_INTERNAL;
    /* Not of a new job: there kolo_boot_give_up() waits, so that a hub of this process lives for
     * GRACE_MS more and tells ranks that come late. */
    boot->error = boot->meet.parent != NULL ? st : boot->error;
    return kolo_fail(st, "%s", error.text);
}

/* Take the frame that must come now: `len` bytes into `body`. INPROGRESS: the connection ended. */
static kolo_status take_frame(struct kolo_boot *boot, enum kolo_boot_type type, void *body,
                              size_t len)
{
    struct kolo_boot_header in;
    KOLO_AWAIT(take_bytes(boot, &in, sizeof in));
    if (!kolo_boot_is_sealed(&boot->guard, &in)) {
        return type == KOLO_BOOT_CHALLENGE ? kolo_boot_other_secret(&boot->meet, boot->rank)
                                           : changed_frame(boot);
    }
    if (in.magic == KOLO_BOOT_MAGIC && in.type == KOLO_BOOT_ERROR) {
        return take_error(boot, &in);
    }
    if (in.magic != KOLO_BOOT_MAGIC || in.type != type || in.len != len || in.seq != boot->seq) {
        return kolo_fail(KOLO_ERR_LINK,
                         "meeting point \"%s\" sent type %u, %u bytes, exchange %u; expected type "
                         "%u, %zu bytes, exchange %u",
                         boot->meet.name, in.type, in.len, in.seq, type, len, boot->seq);
    }
    return take_body(boot, &in, body);
}

/* A write error shuts the connection, but is no error here. The hub may have sent the reason before
 * it closed, and the next read finds it. The hub sees the shut connection. */
static kolo_status put_bytes(const struct kolo_boot *boot, const unsigned char *at, size_t left)
{
    while (left > 0) {
        const ssize_t n = send(boot->fd, at, left, MSG_NOSIGNAL);
        if (n >= 0) {
            at += n;
            left -= (size_t)n;
        } else if (errno == EAGAIN) {
            KOLO_TRY(wait_for(boot, POLLOUT));
        } else if (errno != EINTR) {
            (void)shutdown(boot->fd, SHUT_RDWR);
            return KOLO_OK;
        }
    }
    return KOLO_OK;
}

static kolo_status put_frame(struct kolo_boot *boot, enum kolo_boot_type type, const void *body,
                             size_t len)
{
    const int blamed = boot->meet.parent != NULL ? boot->meet.parent->at_fault : -1;
    const uint32_t seq = type == KOLO_BOOT_ERROR ? (uint32_t)(blamed + 1) : boot->seq;
    struct kolo_boot_header header = kolo_boot_header_make(type, seq, len);
    unsigned char *frame = malloc(sizeof header + len);
    if (frame == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message of %zu bytes", len);
    }
    unsigned char *to = frame + sizeof header;
    kolo_status st =
        kolo_boot_mask(&boot->guard, type, body, len, to) && kolo_boot_sum(to, len, header.sum)
            ? KOLO_OK
            : kolo_boot_no_crypto();
    if (st == KOLO_OK) {
        kolo_boot_seal(&boot->guard, &header);
        memcpy(frame, &header, sizeof header);
        st = put_bytes(boot, frame, sizeof header + len);
    }
    free(frame);
    return st;
}

/* ---- joining ---- */

static kolo_status greet_hub(struct kolo_boot *boot)
{
    const double left_ms = (boot->deadline_us - kolo_now_us()) / 1e3;
    struct kolo_boot_hello hello = {.version = KOLO_VERSION,
                                    .nranks = boot->nranks,
                                    .rank = boot->rank,
                                    .name = kolo_boot_name_hash(&boot->meet),
                                    .timeout_ms = boot->timeout_ms,
                                    .left_ms = left_ms > 0 ? (int32_t)left_ms : 0};
    KOLO_TRY(kolo_random(hello.nonce, sizeof hello.nonce));
    if (!kolo_boot_guard_begin(&boot->guard, &boot->meet, false)) {
        return kolo_boot_no_crypto();
    }
    boot->guard.masks = boot->encrypts && kolo_boot_is_net(boot->fd);
    KOLO_TRY(put_frame(boot, KOLO_BOOT_HELLO, &hello, sizeof hello));
    return kolo_boot_guard_turn(&boot->guard, &hello, sizeof hello) ? KOLO_OK
                                                                    : kolo_boot_no_crypto();
}

/* From CHALLENGE to JOINED. INPROGRESS: the connection ended. */
static kolo_status answer_hub(struct kolo_boot *boot)
{
    struct kolo_boot_challenge challenge;
    KOLO_AWAIT(take_frame(boot, KOLO_BOOT_CHALLENGE, &challenge, sizeof challenge));
    if (!kolo_boot_guard_turn(&boot->guard, &challenge, sizeof challenge)) {
        return kolo_boot_no_crypto();
    }
    KOLO_TRY(put_frame(boot, KOLO_BOOT_PROVE, NULL, 0));
    if (boot->first != NULL) {
        KOLO_TRY(put_frame(boot, KOLO_BOOT_GATHER, boot->first->mine, boot->first->bytes));
    }
    boot->host_rank = challenge.host_rank;
    return take_frame(boot, KOLO_BOOT_JOINED, NULL, 0);
}

/* INPROGRESS: no hub listens, or the hub closed the connection. */
static kolo_status try_join(struct kolo_boot *boot)
{
    pid_t pid = 0;
    int32_t host_rank = -1;
    const double left_ms = (boot->deadline_us - kolo_now_us()) / 1e3;
    const int tries_ms = left_ms < CONNECT_MS ? (int)left_ms + 1 : CONNECT_MS;
    kolo_status st = kolo_boot_connect(&boot->meet, tries_ms, &boot->fd);
    if (st != KOLO_OK) {
        return st;
    }
    boot->hub_is_here = kolo_boot_peer_is_us(boot->fd, &pid) && pid == getpid();
    st = greet_hub(boot);
    st = st == KOLO_OK ? answer_hub(boot) : st;
    if (st == KOLO_OK) {
        boot->joined = true;
        boot->deadline_us += GRACE_MS * 1e3;
        st = take_frame(boot, KOLO_BOOT_WELCOME, &host_rank, sizeof host_rank);
    }
    if (st != KOLO_OK) {
        if (st < 0 && boot->joined) { /* else the hub would take it for dead */
            kolo_boot_give_up(boot, st);
        }
        close(boot->fd);
        boot->fd = -1;
        return st;
    }
    boot->host_rank = host_rank;
    boot->complete = true;
    return KOLO_OK;
}

static kolo_status join_hub(struct kolo_boot *boot, bool host_hub)
{
    bool hosting = !host_hub;
    useconds_t pause_us = RETRY_FIRST_US;
    for (;;) {
        const kolo_status hosts =
            hosting ? KOLO_OK : kolo_boot_host(&boot->meet, boot->nranks, boot->rank);
        KOLO_TRY(hosts == KOLO_INPROGRESS ? KOLO_OK : hosts);
        hosting = hosts == KOLO_OK;
        const kolo_status st = try_join(boot);
        if (st != KOLO_INPROGRESS) {
            return st;
        }
        if (kolo_now_us() + pause_us >= boot->deadline_us) {
            return kolo_boot_nobody(&boot->meet, boot->rank, boot->timeout_ms);
        }
        KOLO_TRY(check_parent(boot));
        (void)usleep(pause_us);
        pause_us = pause_us < RETRY_LAST_US ? 2 * pause_us : RETRY_LAST_US;
    }
}

/* The answer to an exchange: its place has `total` bytes. */
static kolo_status take_all(struct kolo_boot *boot, void *all, size_t total)
{
    boot->deadline_us = kolo_now_us() + (boot->timeout_ms + GRACE_MS) * 1e3;
    KOLO_TRY(take_frame(boot, KOLO_BOOT_ALL, all, total));
    boot->seq++;
    return KOLO_OK;
}

static kolo_status join_and_exchange(struct kolo_boot *boot, bool host_hub)
{
    const struct kolo_boot_first *first = boot->first;
    if (boot->nranks == 1 && host_hub) {
        if (first != NULL) { /* without a connection */
            memcpy(first->all, first->mine, first->bytes);
        }
        return KOLO_OK;
    }
    KOLO_TRY(join_hub(boot, host_hub));
    if (first != NULL) {
        boot->error = take_all(boot, first->all, first->bytes * (size_t)boot->nranks);
    }
    return boot->error;
}

kolo_status kolo_boot_open(const struct kolo_meet *meet, int nranks, int rank, bool host_hub,
                           int timeout_ms, const struct kolo_boot_first *first,
                           struct kolo_boot **out)
{
    long encrypts = 0;
    KOLO_TRY(kolo_boot_check(meet, nranks, rank, timeout_ms));
    KOLO_TRY(kolo_env_int("KOLO_ENCRYPT", 0, 1, 0, &encrypts));
    struct kolo_boot *boot = calloc(1, sizeof *boot);
    if (boot == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the connection to \"%s\"", meet->name);
    }
    *boot = (struct kolo_boot){.meet = *meet,
                               .fd = -1,
                               .shared = -1,
                               .rank = rank,
                               .nranks = nranks,
                               .timeout_ms = timeout_ms,
                               .first = first,
                               .host_rank = -1,
                               .encrypts = encrypts == 1,
                               .deadline_us = kolo_now_us() + timeout_ms * 1e3};
    const kolo_status st = join_and_exchange(boot, host_hub);
    boot->first = NULL;
    if (st != KOLO_OK) {
        kolo_boot_close(boot);
        return st;
    }
    *out = boot;
    return KOLO_OK;
}

/* ---- exchanges ---- */

static kolo_status exchange_blocks(struct kolo_boot *boot, enum kolo_boot_type type,
                                   const void *mine, size_t bytes, void *all, size_t total)
{
    if (boot->error < 0) {
        return kolo_fail(boot->error, "an earlier exchange at \"%s\" failed", boot->meet.name);
    }
    boot->deadline_us = kolo_now_us() + (boot->timeout_ms + GRACE_MS) * 1e3;
    boot->error = put_frame(boot, type, mine, bytes);
    boot->error = boot->error == KOLO_OK ? take_all(boot, all, total) : boot->error;
    return boot->error;
}

kolo_status kolo_boot_all_gather(struct kolo_boot *boot, const void *mine, size_t bytes, void *all)
{
    if (bytes > KOLO_BOOT_MAX_BYTES / (size_t)boot->nranks) {
        return kolo_fail(KOLO_ERR_INVALID, "exchange of %zu bytes by each of %d ranks is over %d",
                         bytes, boot->nranks, KOLO_BOOT_MAX_BYTES);
    }
    if (boot->fd < 0) {
        if (bytes > 0) {
            memmove(all, mine, bytes);
        }
        return KOLO_OK;
    }
    return exchange_blocks(boot, KOLO_BOOT_GATHER, mine, bytes, all, bytes * (size_t)boot->nranks);
}

kolo_status kolo_boot_spread(struct kolo_boot *boot, void *data, size_t bytes)
{
    if (bytes > KOLO_BOOT_SPREAD_BYTES) {
        return kolo_fail(KOLO_ERR_INVALID, "spreading %zu bytes is over %d", bytes,
                         KOLO_BOOT_SPREAD_BYTES);
    }
    return boot->fd < 0 ? KOLO_OK
                        : exchange_blocks(boot, KOLO_BOOT_SPREAD, data, boot->rank == 0 ? bytes : 0,
                                          data, bytes);
}

kolo_status kolo_boot_barrier(struct kolo_boot *boot)
{
    return kolo_boot_all_gather(boot, NULL, 0, NULL);
}

/* Between exchanges the hub sends only errors. */
bool kolo_boot_has_ended(const struct kolo_boot *boot)
{
    struct pollfd one = {.fd = boot->fd, .events = POLLIN};
    return boot->fd >= 0 && poll(&one, 1, 0) > 0;
}

kolo_status kolo_boot_why(struct kolo_boot *boot)
{
    struct pollfd one = {.fd = boot->fd, .events = POLLIN};
    if (boot->fd < 0 || boot->error < 0 || poll(&one, 1, GRACE_MS) <= 0) {
        return KOLO_INPROGRESS;
    }
    boot->deadline_us = kolo_now_us() + GRACE_MS * 1e3;
    boot->error = take_frame(boot, KOLO_BOOT_ERROR, NULL, 0);
    return boot->error;
}

void kolo_boot_is_over(struct kolo_boot *boot)
{
    boot->served = true;
}

/* Leave a hub of this process. The process may exit after this, so the hub first delivers its
 * pending output. Without any it answers at once. */
static void leave_hub(struct kolo_boot *boot)
{
    boot->seq = 0;
    boot->deadline_us = kolo_now_us() + boot->timeout_ms * 1e3;
    if (put_frame(boot, KOLO_BOOT_BYE, NULL, 0) == KOLO_OK && boot->hub_is_here && !boot->served &&
        take_frame(boot, KOLO_BOOT_BYE, NULL, 0) != KOLO_OK) {
        KOLO_LOG(INFO, INIT, "rank %d left meeting point \"%s\" without an answer", boot->rank,
                 boot->meet.name);
    }
}

/* A hub of this process sends the error to its own rank last. */
void kolo_boot_give_up(struct kolo_boot *boot, kolo_status status)
{
    struct kolo_boot_error error = {.status = (int32_t)status};
    if (boot->fd < 0 || boot->error < 0) {
        return;
    }
    (void)snprintf(error.text, sizeof error.text, "%s", kolo_error_text());
    boot->error = status;
    boot->deadline_us = kolo_now_us() + GRACE_MS * 1e3;
    if (put_frame(boot, KOLO_BOOT_ERROR, &error, sizeof error) == KOLO_OK && boot->hub_is_here) {
        (void)take_frame(boot, KOLO_BOOT_ERROR, NULL, 0);
    }
    kolo_error_set(error.text);
}

void kolo_boot_close(struct kolo_boot *boot)
{
    if (boot == NULL) {
        return;
    }
    if (boot->fd >= 0) {
        if (boot->error == KOLO_OK) {
            leave_hub(boot);
        }
        close(boot->fd);
    }
    if (boot->shared >= 0) {
        close(boot->shared);
    }
    explicit_bzero(boot->meet.secret, sizeof boot->meet.secret);
    explicit_bzero(&boot->guard, sizeof boot->guard);
    free(boot);
}
