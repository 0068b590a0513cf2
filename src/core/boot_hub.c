// SPDX-License-Identifier: Apache-2.0
/* The hub: one thread that polls the connections of all ranks and never blocks on any of them.
 *
 *   accepted --HELLO--> challenged --PROOF--> joined --(all came)--> exchanges --> left
 *
 * A connection changes no state of the job before its proof. Until then it may cost one descriptor
 * for at most 5 s, and the oldest such makes room for a newer: a stranger delays nobody. After the
 * first error every rank that is here, or still comes within a while, is told the same sentence. */
#include "boot_wire.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_UNPROVEN = 512, LINGER_MS = 30000, UNPROVEN_MS = 5000, LIST_CHARS = 200 };

enum conn_state { ACCEPTED, CHALLENGED, JOINED, TOLD /* its error; what it says is ignored */ };
enum rank_state { ABSENT, HERE, LEFT, DIED };

struct conn {
    int fd; /* -1: closed, to be swept */
    enum conn_state state;
    pid_t pid;
    int rank;
    bool arrived;  /* contributed to the exchange that is going on */
    bool said_bye; /* it did */
    bool told_bye; /* we did */
    double deadline_us;
    struct kolo_boot_hello hello;
    struct kolo_boot_challenge challenge;
    struct kolo_boot_header in; /* the frame being read */
    size_t got;                 /* of header and body */
    unsigned char *body;        /* where its body goes */
    unsigned char proof[KOLO_BOOT_PROOF];
    unsigned char *out; /* what the socket did not take yet */
    size_t out_len, out_cap;
};

struct hub {
    struct kolo_meet meet;
    int listener; /* -1: out of descriptors, deaf */
    int host_rank;
    int nranks; /* 0: nobody has come */
    int first;  /* the rank that told nranks */
    int njoined, nleft;
    bool complete, failed, exchanging;
    unsigned char *ranks; /* enum rank_state [nranks] */
    struct conn **conns;
    struct pollfd *polls;
    size_t nconns, cap;
    uint32_t seq; /* of the exchange that goes on or comes next */
    size_t bytes; /* its bytes a rank, told by rank `bytes_from` */
    int bytes_from, narrived;
    unsigned char *all; /* nranks * bytes */
    int nunproven;      /* connections that said a rank and did not prove the secret */
    int unproven_rank;
    double linger_until_us;
    struct kolo_boot_error error;
};

/* ---- text ------------------------------------------------------------------------------------ */

/* Whether rank `rank` is among those that a list names. */
typedef bool (*pick_fn)(const struct hub *hub, int rank);

static bool is_absent(const struct hub *hub, int rank)
{
    return hub->ranks[rank] == ABSENT;
}

static bool is_gone(const struct hub *hub, int rank)
{
    return hub->ranks[rank] == LEFT || hub->ranks[rank] == DIED;
}

static bool is_missing(const struct hub *hub, int rank)
{
    for (size_t i = 0; i < hub->nconns; i++) {
        if (hub->conns[i]->state == JOINED && hub->conns[i]->rank == rank) {
            return !hub->conns[i]->arrived;
        }
    }
    return true;
}

/* "rank 3", "ranks 1, 4-7" or "ranks 1, 4-7 and 90 more" of the first `nranks`. */
static void list_ranks(const struct hub *hub, pick_fn pick, char out[LIST_CHARS + 64])
{
    int count = 0;
    int rest = 0;
    size_t len = 0;
    char list[LIST_CHARS + 32] = "";
    for (int rank = 0; rank < hub->nranks; rank++) {
        int last = rank;
        if (!pick(hub, rank)) {
            continue;
        }
        while (last + 1 < hub->nranks && pick(hub, last + 1)) {
            last++;
        }
        count += last - rank + 1;
        if (len >= LIST_CHARS - 24) {
            rest += last - rank + 1;
        } else {
            len += (size_t)snprintf(list + len, sizeof list - len, last > rank ? "%s%d-%d" : "%s%d",
                                    len > 0 ? ", " : "", rank, last);
        }
        rank = last;
    }
    const int end = snprintf(out, LIST_CHARS + 64, "%s %s", count == 1 ? "rank" : "ranks", list);
    if (rest > 0 && end > 0 && end < LIST_CHARS + 64) {
        (void)snprintf(out + end, (size_t)(LIST_CHARS + 64 - end), " and %d more", rest);
    }
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Keep what the socket did not take. A rank for which there is no memory sees the end of the
 * connection instead. */
static void keep(struct conn *conn, const unsigned char *bytes, size_t len)
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

/* What the socket takes at once. A broken one takes everything: that it is broken is noticed when
 * it is read, and then what was to be written does not matter. */
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
            return parts[0].iov_len + parts[1].iov_len;
        }
    }
}

static void put_frame(struct conn *conn, enum kolo_boot_type type, const void *body, size_t len,
                      uint32_t seq)
{
    struct kolo_boot_header header = kolo_boot_header_make(type, seq, len);
    const struct iovec parts[2] = {{&header, sizeof header}, {(void *)body, len}};
    size_t sent = conn->out_len > 0 ? 0 : send_now(conn->fd, parts);
    for (int i = 0; i < 2; i++) {
        const size_t done = kolo_min(sent, parts[i].iov_len);
        keep(conn, (const unsigned char *)parts[i].iov_base + done, parts[i].iov_len - done);
        sent -= done;
    }
}

static void flush(struct conn *conn)
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

static void tell(struct conn *conn, const struct kolo_boot_error *error)
{
    put_frame(conn, KOLO_BOOT_ERROR, error, sizeof *error, 0);
    conn->state = TOLD;
    conn->deadline_us = INFINITY;
}

/* The job cannot come up, or go on: tell every rank. Those of other processes first, because this
 * process may exit as soon as its own rank knows. */
static void fail(struct hub *hub, kolo_status status, const char *format, ...) KOLO_PRINTF(3, 4);
static void fail(struct hub *hub, kolo_status status, const char *format, ...)
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
    KOLO_LOG(INFO, INIT, "meeting point '%s' failed: %s", hub->meet.name, hub->error.text);
    for (int own = 0; own < 2; own++) {
        for (size_t i = 0; i < hub->nconns; i++) {
            struct conn *conn = hub->conns[i];
            if (conn->state == JOINED && conn->fd >= 0 && (conn->pid == self) == (own == 1)) {
                tell(conn, &hub->error);
            }
        }
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static void challenge(struct hub *hub, struct conn *conn)
{
    struct kolo_boot_challenge *out = &conn->challenge;
    *out = (struct kolo_boot_challenge){.host_rank = hub->host_rank, .version = KOLO_VERSION};
    if (kolo_boot_random(out->nonce, sizeof out->nonce) != KOLO_OK ||
        !kolo_boot_prove(&hub->meet, KOLO_BOOT_TO_RANK, &conn->hello, out, out->proof)) {
        (void)shutdown(conn->fd, SHUT_RDWR);
        return;
    }
    conn->state = CHALLENGED;
    put_frame(conn, KOLO_BOOT_CHALLENGE, out, sizeof *out, 0);
}

static bool proof_is_right(const struct hub *hub, const struct conn *conn)
{
    unsigned char expected[KOLO_BOOT_PROOF];
    return kolo_boot_prove(&hub->meet, KOLO_BOOT_TO_HUB, &conn->hello, &conn->challenge,
                           expected) &&
           kolo_boot_same(expected, conn->proof);
}

/* What is wrong with a rank that proved the secret, in `error`; false if nothing is. */
static bool is_wrong(const struct hub *hub, const struct conn *conn, struct kolo_boot_error *error)
{
    const struct kolo_boot_hello *hello = &conn->hello;
    *error = (struct kolo_boot_error){.status = KOLO_ERR_INVALID};
    if (hello->version != KOLO_VERSION || conn->in.wire != KOLO_BOOT_WIRE) {
        error->status = KOLO_ERR_VERSION;
        (void)snprintf(error->text, sizeof error->text,
                       "rank %d uses kolo version %u (protocol %u), the meeting point %d (%d)",
                       hello->rank, hello->version, conn->in.wire, KOLO_VERSION, KOLO_BOOT_WIRE);
    } else if (hello->nranks < 1 || hello->nranks > KOLO_BOOT_MAX_RANKS || hello->rank < 0 ||
               hello->rank >= hello->nranks || hello->timeout_ms < 1 || hello->left_ms < 0) {
        (void)snprintf(error->text, sizeof error->text, "rank %d of %d makes no sense", hello->rank,
                       hello->nranks);
    } else if (hub->nranks != 0 && hello->nranks != hub->nranks) {
        (void)snprintf(error->text, sizeof error->text, "rank %d says %d ranks, rank %d said %d",
                       hello->rank, hello->nranks, hub->first, hub->nranks);
    } else if (hub->nranks != 0 && hub->ranks[hello->rank] != ABSENT) {
        (void)snprintf(error->text, sizeof error->text, "rank %d joined twice", hello->rank);
    } else {
        return false;
    }
    return true;
}

static void welcome(struct hub *hub)
{
    const int32_t host_rank = hub->host_rank;
    hub->complete = true;
    for (size_t i = 0; i < hub->nconns; i++) {
        struct conn *conn = hub->conns[i];
        if (conn->state == JOINED) {
            put_frame(conn, KOLO_BOOT_WELCOME, &host_rank, sizeof host_rank, 0);
            conn->deadline_us = INFINITY;
        }
    }
}

static void admit(struct hub *hub, struct conn *conn)
{
    const struct kolo_boot_hello *hello = &conn->hello;
    if (hub->nranks == 0) {
        hub->ranks = calloc((size_t)hello->nranks, 1); /* ABSENT */
        if (hub->ranks == NULL) {
            fail(hub, KOLO_ERR_SYSTEM, "no memory for %d ranks", hello->nranks);
            tell(conn, &hub->error);
            return;
        }
        hub->nranks = hello->nranks;
        hub->first = hello->rank;
    }
    conn->state = JOINED;
    conn->rank = hello->rank;
    conn->deadline_us = kolo_now_us() + hello->left_ms * 1e3;
    hub->ranks[conn->rank] = HERE;
    hub->njoined++;
    if (conn->pid == getpid() && (hub->host_rank < 0 || hub->host_rank > conn->rank)) {
        hub->host_rank = conn->rank;
    }
    put_frame(conn, KOLO_BOOT_JOINED, NULL, 0, 0);
    if (hub->njoined == hub->nranks) {
        welcome(hub);
    }
}

/* A rank that comes wrongly ends a job that is coming up, since it cannot be complete; one that is
 * complete goes on without noticing. */
static void join(struct hub *hub, struct conn *conn)
{
    struct kolo_boot_error error;
    if (hub->failed) {
        if (hub->nranks > 0 && !is_wrong(hub, conn, &error)) {
            hub->ranks[conn->hello.rank] = HERE;
            hub->njoined++;
        }
        tell(conn, &hub->error);
    } else if (!is_wrong(hub, conn, &error)) {
        admit(hub, conn);
    } else {
        if (!hub->complete) {
            fail(hub, (kolo_status)error.status, "%s", error.text);
        }
        tell(conn, &error);
    }
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void lose(struct hub *hub, struct conn *conn)
{
    const char *how = conn->said_bye ? "left" : "died";
    const enum conn_state state = conn->state;
    close(conn->fd);
    conn->fd = -1;
    if (state == CHALLENGED) {
        hub->nunproven++;
        hub->unproven_rank = conn->hello.rank;
    }
    if (state != JOINED) {
        return;
    }
    conn->state = TOLD;
    hub->ranks[conn->rank] = conn->said_bye ? LEFT : DIED;
    hub->nleft++;
    if (!hub->complete) {
        fail(hub, KOLO_ERR_PEER, "rank %d %s before all %d ranks had joined", conn->rank, how,
             hub->nranks);
    } else if (hub->exchanging && !conn->arrived) {
        fail(hub, KOLO_ERR_PEER, "rank %d %s during exchange %u", conn->rank, how, hub->seq);
    }
}

/* It does not speak our language: a stranger is shown out, a rank takes the job with it (unless the
 * reason is already told). */
static void refuse(struct hub *hub, struct conn *conn)
{
    if (conn->state == ACCEPTED || conn->state == CHALLENGED) {
        lose(hub, conn);
    } else if (conn->state == JOINED) {
        fail(hub, KOLO_ERR_LINK, "rank %d sent what is no message (type %u, %u bytes)", conn->rank,
             conn->in.type, conn->in.len);
    }
}

static void time_out(struct hub *hub, struct conn *conn)
{
    char list[LIST_CHARS + 64];
    char strangers[96] = "";
    if (conn->state != JOINED) {
        lose(hub, conn);
        return;
    }
    if (hub->nunproven > 0) {
        (void)snprintf(strangers, sizeof strangers,
                       "; %d connections did not prove the secret, the last as rank %d",
                       hub->nunproven, hub->unproven_rank);
    }
    list_ranks(hub, hub->complete ? is_missing : is_absent, list);
    if (hub->complete) {
        fail(hub, KOLO_ERR_TIMEOUT, "exchange %u: %s had not come when rank %d's %d ms were over",
             hub->seq, list, conn->rank, conn->hello.timeout_ms);
    } else {
        fail(hub, KOLO_ERR_TIMEOUT, "%s of %d had not joined when rank %d's %d ms were over%s",
             list, hub->nranks, conn->rank, conn->hello.timeout_ms, strangers);
    }
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* The first contribution fixes the size; memory is taken only after that was checked. */
static bool open_exchange(struct hub *hub, struct conn *conn)
{
    char list[LIST_CHARS + 64];
    if (hub->nleft > 0) {
        list_ranks(hub, is_gone, list);
        fail(hub, KOLO_ERR_PEER, "%s had left or died when rank %d began exchange %u", list,
             conn->rank, hub->seq);
        return false;
    }
    if (conn->in.len > KOLO_BOOT_MAX_BYTES / (size_t)hub->nranks) {
        return false;
    }
    hub->bytes = conn->in.len;
    hub->all = malloc(kolo_max(1, hub->bytes * (size_t)hub->nranks));
    if (hub->all == NULL) {
        fail(hub, KOLO_ERR_SYSTEM, "no memory to exchange %zu bytes a rank", hub->bytes);
        return false;
    }
    hub->exchanging = true;
    hub->bytes_from = conn->rank;
    hub->narrived = 0;
    return true;
}

/* The header of a contribution is here: where its payload goes. False: it is refused. */
static bool begin_contribution(struct hub *hub, struct conn *conn)
{
    if (!hub->complete || conn->in.seq != hub->seq || conn->arrived || conn->said_bye) {
        return false;
    }
    if (!hub->exchanging && !open_exchange(hub, conn)) {
        return false;
    }
    if (conn->in.len != hub->bytes) {
        fail(hub, KOLO_ERR_MISMATCH, "exchange %u: rank %d gives %u bytes, rank %d gave %zu",
             hub->seq, conn->rank, conn->in.len, hub->bytes_from, hub->bytes);
        return false;
    }
    conn->body = hub->all + (size_t)conn->rank * hub->bytes;
    return true;
}

static void end_contribution(struct hub *hub, struct conn *conn)
{
    conn->arrived = true;
    conn->deadline_us = kolo_now_us() + conn->hello.timeout_ms * 1e3;
    hub->narrived++;
    if (hub->narrived < hub->nranks) {
        return;
    }
    for (size_t i = 0; i < hub->nconns; i++) {
        struct conn *to = hub->conns[i];
        if (to->state == JOINED) {
            put_frame(to, KOLO_BOOT_ALL, hub->all, hub->bytes * (size_t)hub->nranks, hub->seq);
            to->arrived = false;
            to->deadline_us = INFINITY;
        }
    }
    free(hub->all);
    hub->all = NULL;
    hub->exchanging = false;
    hub->seq++;
}

/* ---- input ----------------------------------------------------------------------------------- */

/* A whole header is here: is it one that this connection may send now, and where does its body go?
 */
static bool begin_frame(struct hub *hub, struct conn *conn)
{
    const struct kolo_boot_header *in = &conn->in;
    if (in->magic != KOLO_BOOT_MAGIC) {
        return false;
    }
    switch (in->type) {
    case KOLO_BOOT_HELLO:
        conn->body = (unsigned char *)&conn->hello;
        return conn->state == ACCEPTED && in->len == sizeof conn->hello;
    case KOLO_BOOT_PROVE:
        conn->body = conn->proof;
        return conn->state == CHALLENGED && in->len == sizeof conn->proof;
    case KOLO_BOOT_GATHER:
        return conn->state == JOINED && begin_contribution(hub, conn);
    case KOLO_BOOT_BYE:
        return conn->state == JOINED && in->len == 0 && !conn->said_bye;
    default:
        return false;
    }
}

static void end_frame(struct hub *hub, struct conn *conn)
{
    switch (conn->in.type) {
    case KOLO_BOOT_HELLO:
        challenge(hub, conn);
        break;
    case KOLO_BOOT_PROVE:
        if (proof_is_right(hub, conn)) {
            join(hub, conn);
        } else {
            lose(hub, conn);
        }
        break;
    case KOLO_BOOT_GATHER:
        end_contribution(hub, conn);
        break;
    default: /* BYE; begin_frame let nothing else pass */
        conn->said_bye = true;
        break;
    }
}

/* Receive what is there, up to `len`. -1: the connection is at its end. 0: nothing at the moment.
 */
static ssize_t take(int fd, void *out, size_t len)
{
    for (;;) {
        const ssize_t n = recv(fd, out, len, 0);
        if (n > 0) {
            return n;
        }
        if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            return -1;
        }
        if (errno == EAGAIN) {
            return 0;
        }
    }
}

/* One piece of a header or body. False: nothing more to read now. */
static bool read_piece(struct hub *hub, struct conn *conn)
{
    const size_t head = sizeof conn->in;
    unsigned char scrap[4096];
    if (conn->state == TOLD) {
        const ssize_t ignored = take(conn->fd, scrap, sizeof scrap);
        if (ignored < 0) {
            lose(hub, conn);
        }
        return ignored > 0;
    }
    const bool in_head = conn->got < head;
    unsigned char *to =
        in_head ? (unsigned char *)&conn->in + conn->got : conn->body + (conn->got - head);
    const ssize_t n = take(conn->fd, to, head + (in_head ? 0 : conn->in.len) - conn->got);
    if (n <= 0) {
        if (n < 0) {
            lose(hub, conn);
        }
        return false;
    }
    conn->got += (size_t)n;
    if (in_head && conn->got == head && !begin_frame(hub, conn)) {
        refuse(hub, conn);
        return conn->fd >= 0;
    }
    if (conn->got >= head && conn->got == head + conn->in.len) {
        conn->got = 0;
        end_frame(hub, conn);
    }
    return conn->fd >= 0;
}

/* A bounded number of pieces, so that one rank's long payload does not keep the others waiting. */
static void read_conn(struct hub *hub, struct conn *conn)
{
    for (int pieces = 0; pieces < 16 && conn->fd >= 0; pieces++) {
        if (!read_piece(hub, conn)) {
            return;
        }
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static struct conn *oldest_unproven(const struct hub *hub, size_t *count_out)
{
    struct conn *oldest = NULL;
    *count_out = 0;
    for (size_t i = 0; i < hub->nconns; i++) {
        struct conn *conn = hub->conns[i];
        if (conn->fd >= 0 && (conn->state == ACCEPTED || conn->state == CHALLENGED)) {
            oldest = oldest == NULL ? conn : oldest; /* the array is in order of arrival */
            ++*count_out;
        }
    }
    return oldest;
}

static bool has_room(struct hub *hub)
{
    if (hub->nconns < hub->cap) {
        return true;
    }
    const size_t cap = hub->cap == 0 ? 16 : 2 * hub->cap;
    struct conn **conns = realloc(hub->conns, cap * sizeof *conns);
    if (conns == NULL) {
        return false;
    }
    hub->conns = conns;
    struct pollfd *polls = realloc(hub->polls, (cap + 1) * sizeof *polls);
    if (polls == NULL) {
        return false;
    }
    hub->polls = polls;
    hub->cap = cap;
    return true;
}

static void add(struct hub *hub, int fd)
{
    size_t unproven = 0;
    pid_t pid = 0;
    struct conn *conn = NULL;
    if (kolo_boot_peer_is_us(fd, &pid) && has_room(hub)) {
        conn = calloc(1, sizeof *conn);
    }
    if (conn == NULL) {
        close(fd);
        return;
    }
    struct conn *oldest = oldest_unproven(hub, &unproven);
    if (unproven >= MAX_UNPROVEN) {
        lose(hub, oldest);
    }
    conn->fd = fd;
    conn->pid = pid;
    conn->rank = -1;
    conn->deadline_us = kolo_now_us() + UNPROVEN_MS * 1e3;
    hub->conns[hub->nconns++] = conn;
}

/* Too few descriptors: the oldest stranger makes room; where there is none, the job is too big. */
static void out_of_descriptors(struct hub *hub)
{
    size_t unproven = 0;
    struct conn *oldest = oldest_unproven(hub, &unproven);
    if (oldest != NULL) {
        lose(hub, oldest);
        return;
    }
    fail(hub, KOLO_ERR_SYSTEM, "no descriptor left for rank %d's connection (see ulimit -n): %s",
         hub->njoined, strerror(errno));
    close(hub->listener);
    hub->listener = -1;
}

static void accept_all(struct hub *hub)
{
    for (int count = 0; count < 64; count++) {
        const int fd = kolo_boot_accept(hub->listener);
        if (fd >= 0) {
            add(hub, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            out_of_descriptors(hub);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void sweep(struct hub *hub)
{
    size_t kept = 0;
    for (size_t i = 0; i < hub->nconns; i++) {
        struct conn *conn = hub->conns[i];
        if (conn->fd >= 0) {
            hub->conns[kept++] = conn;
        } else {
            free(conn->out);
            free(conn);
        }
    }
    hub->nconns = kept;
}

/* Say good-bye to those who wait for it once nothing is left to deliver. */
static void part(struct hub *hub)
{
    for (size_t i = 0; i < hub->nconns; i++) {
        if (hub->conns[i]->out_len > 0) {
            return;
        }
    }
    for (size_t i = 0; i < hub->nconns; i++) {
        struct conn *conn = hub->conns[i];
        if (conn->said_bye && conn->state == JOINED && !conn->told_bye) {
            conn->told_bye = true;
            put_frame(conn, KOLO_BOOT_BYE, NULL, 0, 0);
        }
    }
}

/* Milliseconds until the nearest deadline; those that are over are dealt with. */
static int next_deadline_ms(struct hub *hub)
{
    const double now_us = kolo_now_us();
    double next_us = hub->failed ? hub->linger_until_us : INFINITY;
    for (size_t i = 0; i < hub->nconns; i++) {
        struct conn *conn = hub->conns[i];
        if (conn->fd >= 0 && conn->deadline_us <= now_us) {
            time_out(hub, conn);
        }
        if (conn->fd >= 0 && conn->deadline_us < next_us) {
            next_us = conn->deadline_us;
        }
    }
    if (!isfinite(next_us)) {
        return -1;
    }
    return next_us <= now_us ? 0 : (int)fmin((next_us - now_us) / 1e3 + 1, 1e6);
}

static bool is_done(const struct hub *hub)
{
    if (hub->failed) {
        const bool all_know = hub->nranks > 0 && hub->njoined == hub->nranks && hub->nconns == 0;
        return all_know || kolo_now_us() >= hub->linger_until_us;
    }
    return hub->complete && hub->nleft == hub->nranks;
}

static void serve_once(struct hub *hub)
{
    const int timeout_ms = next_deadline_ms(hub);
    sweep(hub); /* a connection that timed out */
    const size_t count = hub->nconns;
    hub->polls[0] = (struct pollfd){.fd = hub->listener, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        const short out = hub->conns[i]->out_len > 0 ? POLLOUT : 0;
        hub->polls[i + 1] = (struct pollfd){.fd = hub->conns[i]->fd, .events = POLLIN | out};
    }
    if (poll(hub->polls, count + 1, timeout_ms) <= 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct conn *conn = hub->conns[i];
        const short events = hub->polls[i + 1].revents;
        if (conn->fd >= 0 && (events & POLLOUT) != 0 && conn->out_len > 0) {
            flush(conn);
        }
        if (conn->fd >= 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
            read_conn(hub, conn);
        }
    }
    if (hub->polls[0].revents != 0 && hub->listener >= 0) {
        accept_all(hub);
    }
    part(hub);
    sweep(hub);
}

static void hub_free(struct hub *hub)
{
    for (size_t i = 0; i < hub->nconns; i++) {
        if (hub->conns[i]->fd >= 0) {
            close(hub->conns[i]->fd);
            hub->conns[i]->fd = -1;
        }
    }
    sweep(hub);
    if (hub->listener >= 0) {
        close(hub->listener);
    }
    free(hub->conns);
    free(hub->polls);
    free(hub->ranks);
    free(hub->all);
    explicit_bzero(hub->meet.secret, sizeof hub->meet.secret);
    free(hub);
}

static void *hub_main(void *arg)
{
    struct hub *hub = arg;
    (void)pthread_setname_np(pthread_self(), "kolo-hub");
    while (!is_done(hub)) {
        serve_once(hub);
    }
    hub_free(hub);
    return NULL;
}

/* The thread takes no signals: they are for the application's threads. */
static int start_thread(struct hub *hub)
{
    sigset_t all;
    sigset_t before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread, NULL, hub_main, hub);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

kolo_status kolo_boot_hub_start(const struct kolo_meet *meet, int listener, int host_rank)
{
    struct hub *hub = calloc(1, sizeof *hub);
    if (hub == NULL || !has_room(hub)) {
        close(listener);
        free(hub);
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory for the meeting point");
    }
    hub->meet = *meet;
    hub->listener = listener;
    hub->host_rank = host_rank;
    const int error = start_thread(hub);
    if (error != 0) {
        hub_free(hub);
        return kolo_fail(KOLO_ERR_SYSTEM, "thread for the meeting point: %s", strerror(error));
    }
    return KOLO_OK;
}
