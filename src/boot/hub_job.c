// SPDX-License-Identifier: Apache-2.0
/* The hub's state of a job: its ranks, their contributions, and the one error text that all ranks
 * get. No function here waits. Output that a socket does not take is kept for later, and input is
 * handled when it comes. */
#include "boot/hub.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINGER_MS = 30000, WARN_MS = 10000 };

/* ---- output ---- */

/* Keep the bytes that the socket did not take. Without memory for them the connection is ended. */
static void keep_unsent(struct kolo_conn *conn, const unsigned char *bytes, size_t len)
{
    if (len == 0) {
        return;
    }
    if (conn->out_len + len > conn->out_cap) {
        const size_t cap = conn->out_len + len;
        unsigned char *out = realloc(conn->out, cap);
        if (out == NULL) {
            (void)shutdown(conn->fd, SHUT_RDWR);
            return;
        }
        conn->out = out;
        conn->out_cap = cap;
    }
    memcpy(conn->out + conn->out_len, bytes, len);
    conn->out_len += len;
}

/* The number of bytes that the socket takes. A broken socket counts as if it took all: the next read
 * detects the failure, and then the output does not matter. */
static size_t send_now(int fd, const struct iovec parts[2])
{
    const struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = 2};
    for (;;) {
        const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n >= 0) {
            return (size_t)n;
        }
        if (errno == EAGAIN) {
            return 0;
        }
        if (errno != EINTR) {
            (void)shutdown(fd, SHUT_RDWR);
            return parts[0].iov_len + parts[1].iov_len;
        }
    }
}

/* Send a frame whose header has the digest of the body. */
static void put_summed(struct kolo_conn *conn, struct kolo_boot_header header, const void *body)
{
    const size_t len = header.len;
    const struct iovec parts[2] = {{&header, sizeof header}, {(void *)body, len}};
    kolo_boot_seal(&conn->guard, &header);
    size_t sent = conn->out_len > 0 ? 0 : send_now(conn->fd, parts);
    for (int i = 0; i < 2; i++) {
        const size_t done = kolo_min(sent, parts[i].iov_len);
        if (done < parts[i].iov_len) {
            keep_unsent(conn, (const unsigned char *)parts[i].iov_base + done,
                        parts[i].iov_len - done);
        }
        sent -= done;
    }
}

static void put_frame(struct kolo_conn *conn, enum kolo_boot_type type, const void *body,
                      size_t len, uint32_t seq)
{
    struct kolo_boot_header header = kolo_boot_header_make(type, seq, len);
    void *bytes = malloc(len + 1);
    if (bytes != NULL && kolo_boot_mask(&conn->guard, type, body, len, bytes) &&
        kolo_boot_sum(bytes, len, header.sum)) {
        put_summed(conn, header, bytes);
    } else {
        (void)shutdown(conn->fd, SHUT_RDWR);
    }
    free(bytes);
}

/* Send the header of an answer that lies in shared memory. False: the socket takes no descriptor, for
 * example because too many are on their way. */
static bool put_shared(struct kolo_conn *conn, struct kolo_boot_header header, int shared)
{
    if (shared < 0 || conn->pid == 0 || conn->out_len > 0) {
        return false;
    }
    kolo_boot_seal(&conn->guard, &header);
    const ssize_t n = kolo_boot_send_shared(conn->fd, &header, shared);
    if (n < 0) {
        conn->guard.sent--; /* the frame will be another one */
        return false;
    }
    keep_unsent(conn, (const unsigned char *)&header + n, sizeof header - (size_t)n);
    return true;
}

void kolo_hub_flush(struct kolo_conn *conn)
{
    const ssize_t n = send(conn->fd, conn->out, conn->out_len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        conn->out_len = 0;
    }
    if (n > 0) {
        conn->out_len -= (size_t)n;
        memmove(conn->out, conn->out + n, conn->out_len);
    }
}

static void tell_error(struct kolo_conn *conn, const struct kolo_boot_error *error, uint32_t ended)
{
    put_frame(conn, KOLO_BOOT_ERROR, error, sizeof *error, ended);
    conn->state = KOLO_CONN_TOLD;
    conn->deadline_us = INFINITY;
}

/* The job fails: send the error to every rank. Ranks of other processes come first, because this
 * process may exit as soon as its own rank has the error. */
void kolo_hub_fail(struct kolo_hub *hub, kolo_status status, const char *format, ...)
{
    const pid_t self = getpid();
    if (hub->failed) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(hub->error.text, sizeof hub->error.text, format, args);
    va_end(args);
    hub->error.status = status;
    hub->failed = true;
    hub->linger_until_us = kolo_now_us() + LINGER_MS * 1e3;
    KOLO_LOG(INFO, INIT, "meeting point \"%s\" failed: %s", hub->meet.name, hub->error.text);
    for (int own = 0; own < 2; own++) {
        for (size_t i = 0; i < hub->nconns; i++) {
            struct kolo_conn *conn = hub->conns[i];
            if (conn->state == KOLO_CONN_JOINED && conn->fd >= 0 &&
                (conn->pid == self) == (own == 1)) {
                tell_error(conn, &hub->error, hub->ended);
            }
        }
    }
}

/* ---- joining ---- */

void kolo_hub_challenge(struct kolo_hub *hub, struct kolo_conn *conn)
{
    struct kolo_boot_challenge out = {.host_rank = hub->host_rank, .version = KOLO_VERSION};
    if (kolo_random(out.nonce, sizeof out.nonce) != KOLO_OK ||
        !kolo_boot_guard_turn(&conn->guard, &conn->hello, sizeof conn->hello)) {
        (void)shutdown(conn->fd, SHUT_RDWR);
        return;
    }
    conn->state = KOLO_CONN_CHALLENGED;
    put_frame(conn, KOLO_BOOT_CHALLENGE, &out, sizeof out, 0);
    if (!kolo_boot_guard_turn(&conn->guard, &out, sizeof out)) {
        (void)shutdown(conn->fd, SHUT_RDWR);
    }
}

/* Whether a rank that proved the secret has wrong arguments. *error gets the text. */
static bool is_wrong(const struct kolo_hub *hub, const struct kolo_conn *conn,
                     struct kolo_boot_error *error)
{
    const struct kolo_boot_hello *hello = &conn->hello;
    *error = (struct kolo_boot_error){.status = KOLO_ERR_INVALID};
    const int masks = conn->in.wire / KOLO_BOOT_MASKED, wire = conn->in.wire % KOLO_BOOT_MASKED;
    if (hello->version != KOLO_VERSION || wire != KOLO_BOOT_WIRE) {
        error->status = KOLO_ERR_VERSION;
        (void)snprintf(error->text, sizeof error->text,
                       "rank %d uses kolo version %u (protocol %u), the meeting point %d (%d)",
                       hello->rank, hello->version, wire, KOLO_VERSION, KOLO_BOOT_WIRE);
    } else if (masks != conn->guard.masks) {
        (void)snprintf(error->text, sizeof error->text,
                       "KOLO_ENCRYPT is %d on rank %d and %d at the meeting point", masks,
                       hello->rank, conn->guard.masks);
    } else if (hello->nranks < 1 || hello->nranks > KOLO_BOOT_MAX_RANKS || hello->rank < 0 ||
               hello->rank >= hello->nranks || hello->timeout_ms < 1 || hello->left_ms < 0) {
        (void)snprintf(error->text, sizeof error->text, "rank %d of %d makes no sense", hello->rank,
                       hello->nranks);
    } else if (hub->nranks != 0 && hello->nranks != hub->nranks) {
        (void)snprintf(error->text, sizeof error->text, "rank %d says %d ranks, rank %d said %d",
                       hello->rank, hello->nranks, hub->first, hub->nranks);
    } else if (hub->nranks != 0 && hub->ranks[hello->rank] != KOLO_RANK_ABSENT) {
        const bool out = hub->ranks[hello->rank] == KOLO_RANK_OUT;
        error->status = out ? KOLO_ERR_PEER : KOLO_ERR_INVALID;
        (void)snprintf(error->text, sizeof error->text, "rank %d %s", hello->rank,
                       out ? "is left out: the others go on without it" : "joined twice");
    } else {
        return false;
    }
    return true;
}

/* Until when the others may take to contribute. */
static double exchange_deadline(const struct kolo_conn *conn)
{
    return conn->arrived ? kolo_now_us() + conn->hello.timeout_ms * 1e3 : INFINITY;
}

static void welcome_ranks(struct kolo_hub *hub)
{
    const int32_t host_rank = hub->host_rank;
    hub->complete = true;
    for (size_t i = 0; i < hub->nconns; i++) {
        struct kolo_conn *conn = hub->conns[i];
        if (conn->state == KOLO_CONN_JOINED) {
            put_frame(conn, KOLO_BOOT_WELCOME, &host_rank, sizeof host_rank, 0);
            conn->deadline_us = exchange_deadline(conn);
        }
    }
}

static void admit_rank(struct kolo_hub *hub, struct kolo_conn *conn)
{
    const struct kolo_boot_hello *hello = &conn->hello;
    if (hub->nranks == 0) {
        hub->ranks = calloc((size_t)hello->nranks, 1); /* KOLO_RANK_ABSENT */
        if (hub->ranks == NULL) {
            kolo_hub_fail(hub, KOLO_ERR_SYSTEM, "out of memory for %d ranks", hello->nranks);
            tell_error(conn, &hub->error, hub->ended);
            return;
        }
        hub->nranks = hello->nranks;
        hub->first = hello->rank;
        hub->warn_us = kolo_now_us() + WARN_MS * 1e3;
    }
    conn->state = KOLO_CONN_JOINED;
    conn->rank = hello->rank;
    conn->deadline_us = kolo_now_us() + hello->left_ms * 1e3;
    hub->ranks[conn->rank] = KOLO_RANK_HERE;
    hub->njoined++;
    if (conn->pid == getpid() && (hub->host_rank < 0 || hub->host_rank > conn->rank)) {
        hub->host_rank = conn->rank;
    }
    put_frame(conn, KOLO_BOOT_JOINED, NULL, 0, 0);
    if (hub->njoined == hub->nranks) {
        welcome_ranks(hub);
    }
}

/* A rank that joins wrongly fails a job that is not complete. A complete job goes on, and so does
 * one that the rank is left out of. */
void kolo_hub_join(struct kolo_hub *hub, struct kolo_conn *conn)
{
    struct kolo_boot_error error;
    if (hub->failed) {
        if (hub->nranks > 0 && !is_wrong(hub, conn, &error)) {
            hub->ranks[conn->hello.rank] = KOLO_RANK_HERE;
            hub->njoined++;
        }
        tell_error(conn, &hub->error, hub->ended);
    } else if (!is_wrong(hub, conn, &error)) {
        admit_rank(hub, conn);
    } else {
        if (!hub->complete && error.status != KOLO_ERR_PEER) {
            kolo_hub_fail(hub, (kolo_status)error.status, "%s", error.text);
        }
        tell_error(conn, &error, 0);
    }
}

/* ---- leaving ---- */

/* Note the rank whose end is the reason of a failure. Only the first one counts, and only before
 * the job has failed. A rank may report the end of another rank. */
static void note_end(struct kolo_hub *hub, uint32_t ended)
{
    if (!hub->failed && hub->ended == 0 && ended <= (uint32_t)hub->nranks) {
        hub->ended = ended;
    }
}

void kolo_hub_lose(struct kolo_hub *hub, struct kolo_conn *conn)
{
    const char *how = conn->said_bye ? "left" : "died";
    const enum kolo_conn_state state = conn->state;
    close(conn->fd);
    conn->fd = -1;
    if (state == KOLO_CONN_CHALLENGED) {
        hub->nunproven++;
        hub->unproven_rank = conn->hello.rank;
    }
    if (state != KOLO_CONN_JOINED) {
        return;
    }
    conn->state = KOLO_CONN_TOLD;
    hub->ranks[conn->rank] = conn->said_bye ? KOLO_RANK_LEFT : KOLO_RANK_DIED;
    hub->nleft++;
    const bool during = hub->exchanging && !conn->arrived;
    if (!hub->complete || !conn->said_bye || during) {
        note_end(hub, (uint32_t)conn->rank + 1);
    }
    if (!hub->complete) {
        kolo_hub_fail(hub, KOLO_ERR_PEER, "rank %d %s before all %d ranks had joined", conn->rank,
                      how, hub->nranks);
    } else if (!conn->said_bye || during) {
        kolo_hub_fail(hub, KOLO_ERR_PEER, "rank %d %s %s exchange %u", conn->rank, how,
                      during ? "during" : "before the end of", hub->seq);
    }
}

void kolo_hub_give_up(struct kolo_hub *hub, struct kolo_conn *conn)
{
    conn->said_bye = true;
    note_end(hub, conn->in.seq);
    conn->error.text[sizeof conn->error.text - 1] = '\0';
    kolo_hub_fail(hub, KOLO_ERR_PEER, "rank %d could not go on: %.600s", conn->rank,
                  conn->error.text);
}

/* The text shows no field of the frame, because somebody else may have sent it. */
void kolo_hub_refuse(struct kolo_hub *hub, struct kolo_conn *conn)
{
    if (conn->state == KOLO_CONN_ACCEPTED || conn->state == KOLO_CONN_CHALLENGED) {
        kolo_hub_lose(hub, conn);
    } else if (conn->state == KOLO_CONN_JOINED) {
        kolo_hub_fail(hub, KOLO_ERR_LINK,
                      "rank %d sent an invalid message, or it changed on its way", conn->rank);
    }
}

void kolo_hub_warn(struct kolo_hub *hub)
{
    char list[KOLO_HUB_LIST_CHARS];
    hub->warn_us = INFINITY;
    kolo_hub_list(hub, hub->complete ? KOLO_HUB_MISSING : KOLO_HUB_ABSENT, list);
    KOLO_LOG(WARN, INIT, "the job of %d ranks has waited %d s for %s to %s", hub->nranks,
             WARN_MS / 1000, list, hub->complete ? "go on joining" : "join");
}

void kolo_hub_time_out(struct kolo_hub *hub, struct kolo_conn *conn)
{
    char list[KOLO_HUB_LIST_CHARS];
    char strangers[96] = "";
    if (conn->state != KOLO_CONN_JOINED) {
        kolo_hub_lose(hub, conn);
        return;
    }
    if (hub->nunproven > 0) {
        (void)snprintf(strangers, sizeof strangers,
                       "; %d connection%s did not prove the secret, the last as rank %d",
                       hub->nunproven, hub->nunproven == 1 ? "" : "s", hub->unproven_rank);
    }
    const enum kolo_hub_pick late = hub->complete ? KOLO_HUB_MISSING : KOLO_HUB_ABSENT;
    kolo_hub_list(hub, late, list);
    note_end(hub, 1 + (uint32_t)kolo_hub_first(hub, late)); /* the first one is at fault */
    if (hub->complete) {
        kolo_hub_fail(hub, KOLO_ERR_TIMEOUT,
                      "exchange %u: %s had not come when rank %d's %d ms were over", hub->seq, list,
                      conn->rank, conn->hello.timeout_ms);
    } else {
        kolo_hub_fail(hub, KOLO_ERR_TIMEOUT,
                      "%s of %d had not joined when rank %d's %d ms were over%s", list, hub->nranks,
                      conn->rank, conn->hello.timeout_ms, strangers);
    }
}

/* ---- exchanges ---- */

/* The first contribution sets the size. Memory is allocated only after the size was checked. */
static bool open_exchange(struct kolo_hub *hub, struct kolo_conn *conn)
{
    char list[KOLO_HUB_LIST_CHARS];
    if (hub->nleft > hub->nout) {
        kolo_hub_list(hub, KOLO_HUB_GONE, list);
        kolo_hub_fail(hub, KOLO_ERR_PEER, "%s had left or died when rank %d began exchange %u",
                      list, conn->rank, hub->seq);
        return false;
    }
    hub->spreading = conn->in.type == KOLO_BOOT_SPREAD;
    if (!hub->spreading && conn->in.len > KOLO_BOOT_MAX_BYTES / (size_t)hub->nranks) {
        return false;
    }
    hub->bytes = hub->spreading ? 0 : conn->in.len;
    hub->all_bytes = hub->bytes * (size_t)hub->nranks;
    hub->all = calloc(kolo_max(hub->spreading ? KOLO_BOOT_SPREAD_BYTES : 1, hub->all_bytes), 1);
    if (hub->all == NULL) {
        kolo_hub_fail(hub, KOLO_ERR_SYSTEM, "no memory to exchange %zu bytes a rank", hub->bytes);
        return false;
    }
    hub->exchanging = true;
    hub->warn_us = kolo_now_us() + WARN_MS * 1e3;
    hub->bytes_from = conn->rank;
    hub->narrived = hub->nout;
    return true;
}

static bool begin_spread(struct kolo_hub *hub, struct kolo_conn *conn)
{
    conn->body = hub->all;
    if (conn->rank == 0) {
        hub->all_bytes = conn->in.len;
    }
    return conn->in.len <= (conn->rank == 0 ? KOLO_BOOT_SPREAD_BYTES : 0);
}

/* The first exchange begins with the first rank that has joined. */
bool kolo_hub_begin(struct kolo_hub *hub, struct kolo_conn *conn)
{
    if (conn->in.seq != hub->seq || conn->arrived || conn->said_bye) {
        return false;
    }
    if (!hub->exchanging && !open_exchange(hub, conn)) {
        return false;
    }
    if ((conn->in.type == KOLO_BOOT_SPREAD) != hub->spreading) {
        kolo_hub_fail(hub, KOLO_ERR_MISMATCH, "exchange %u: ranks %d and %d do not do the same",
                      hub->seq, conn->rank, hub->bytes_from);
        return false;
    }
    if (hub->spreading) {
        return begin_spread(hub, conn);
    }
    if (conn->in.len != hub->bytes) {
        kolo_hub_fail(hub, KOLO_ERR_MISMATCH,
                      "exchange %u: rank %d gives %u bytes, rank %d gave %zu", hub->seq, conn->rank,
                      conn->in.len, hub->bytes_from, hub->bytes);
        return false;
    }
    conn->body = hub->all + (size_t)conn->rank * hub->bytes;
    return true;
}

/* Ranks of this process come last (`own`): with its answer it may exit, and the hub with it. */
static void answer_exchange(struct kolo_hub *hub, const struct kolo_boot_header *header, int shared,
                            bool own)
{
    const pid_t self = getpid();
    for (size_t i = 0; i < hub->nconns; i++) {
        struct kolo_conn *conn = hub->conns[i];
        if (conn->state == KOLO_CONN_JOINED && (conn->pid == self) == own) {
            if (conn->guard.masks) { /* with a key of its own */
                put_frame(conn, KOLO_BOOT_ALL, hub->all, header->len, header->seq);
            } else if (!put_shared(conn, *header, shared)) {
                put_summed(conn, *header, hub->all);
            }
            conn->arrived = false;
            conn->deadline_us = INFINITY;
        }
    }
}

void kolo_hub_end(struct kolo_hub *hub, struct kolo_conn *conn)
{
    conn->arrived = true;
    if (hub->complete) { /* else the time left to join is the limit */
        conn->deadline_us = exchange_deadline(conn);
    }
    hub->narrived++;
    if (hub->narrived < hub->nranks) {
        return;
    }
    struct kolo_boot_header header = kolo_boot_header_make(KOLO_BOOT_ALL, hub->seq, hub->all_bytes);
    (void)kolo_boot_sum(hub->all, hub->all_bytes, header.sum); /* once for all ranks */
    const int shared =
        hub->all_bytes >= KOLO_BOOT_SHARE_BYTES ? kolo_boot_share(hub->all, hub->all_bytes) : -1;
    answer_exchange(hub, &header, shared, false);
    answer_exchange(hub, &header, shared, true);
    if (shared >= 0) {
        close(shared);
    }
    free(hub->all);
    hub->all = NULL;
    hub->exchanging = false;
    hub->seq++;
}

void kolo_hub_part(struct kolo_hub *hub)
{
    for (size_t i = 0; i < hub->nconns; i++) {
        if (hub->conns[i]->out_len > 0) {
            return;
        }
    }
    for (size_t i = 0; i < hub->nconns; i++) {
        struct kolo_conn *conn = hub->conns[i];
        if (conn->said_bye && conn->state == KOLO_CONN_JOINED && !conn->told_bye) {
            conn->told_bye = true;
            put_frame(conn, KOLO_BOOT_BYE, NULL, 0, 0);
        }
    }
}
