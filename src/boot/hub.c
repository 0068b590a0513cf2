// SPDX-License-Identifier: Apache-2.0
/* The hub's thread: it polls the connections of all ranks and never blocks on any of them.
 *
 * Before its proof a connection costs one descriptor for at most 5 s, and the oldest one makes room
 * for a new one. So a stranger delays no rank. */
#include "boot/hub.h"

#include "util/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LISTENERS = 2, MAX_UNPROVEN = 512, UNPROVEN_MS = 5000, PROVING_MS = 100 };

/* ---- input ---- */

/* A header is complete. False: its MAC is wrong, or the connection may not send it now. Otherwise
 * choose the place of its body. A HELLO gets its answer even if its MAC is wrong: a rank with
 * another secret must learn of that. */
static bool begin_frame(struct kolo_hub *hub, struct kolo_conn *conn)
{
    const struct kolo_boot_header *in = &conn->in;
    const bool sealed = kolo_boot_is_sealed(&conn->guard, in);
    if (!sealed && conn->state != KOLO_CONN_ACCEPTED) {
        return false;
    }
    switch (in->type) {
    case KOLO_BOOT_HELLO:
        conn->body = (unsigned char *)&conn->hello;
        return conn->state == KOLO_CONN_ACCEPTED && in->len == sizeof conn->hello;
    case KOLO_BOOT_PROVE:
        return conn->state == KOLO_CONN_CHALLENGED && in->len == 0;
    case KOLO_BOOT_GATHER:
    case KOLO_BOOT_SPREAD:
        return conn->state == KOLO_CONN_JOINED && kolo_hub_begin(hub, conn);
    case KOLO_BOOT_BYE:
        return conn->state == KOLO_CONN_JOINED && in->len == 0 && !conn->said_bye;
    case KOLO_BOOT_ERROR:
        conn->body = (unsigned char *)&conn->error;
        return conn->state == KOLO_CONN_JOINED && in->len == sizeof conn->error;
    default:
        return false;
    }
}

static void end_frame(struct kolo_hub *hub, struct kolo_conn *conn)
{
    if (conn->in.len > 0 && !kolo_boot_is_whole(&conn->in, conn->body)) {
        kolo_hub_refuse(hub, conn);
        return;
    }
    if (!kolo_boot_unmask(&conn->guard, &conn->in, conn->body)) {
        kolo_hub_refuse(hub, conn);
        return;
    }
    switch (conn->in.type) {
    case KOLO_BOOT_HELLO:
        if (conn->hello.name == kolo_boot_name_hash(&hub->meet)) {
            kolo_hub_challenge(hub, conn);
        } else { /* the rank came early, for the job's next meeting at this address */
            (void)shutdown(conn->fd, SHUT_RDWR);
            hub->linger_until_us = kolo_now_us(); /* a job that has failed makes room for it */
        }
        break;
    case KOLO_BOOT_PROVE:
        kolo_hub_join(hub, conn);
        break;
    case KOLO_BOOT_GATHER:
    case KOLO_BOOT_SPREAD:
        kolo_hub_end(hub, conn);
        break;
    case KOLO_BOOT_ERROR:
        kolo_hub_give_up(hub, conn);
        break;
    default: /* BYE: begin_frame() refuses all other types */
        conn->said_bye = true;
        break;
    }
}

/* Receive at most `len` bytes. -1: the connection has ended. 0: no bytes at the moment. */
static ssize_t take_bytes(int fd, void *out, size_t len)
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

/* Read one piece of a header or body. False: no more bytes now. */
static bool read_piece(struct kolo_hub *hub, struct kolo_conn *conn)
{
    const size_t head = sizeof conn->in;
    unsigned char scrap[4096];
    if (conn->state == KOLO_CONN_TOLD) {
        const ssize_t ignored = take_bytes(conn->fd, scrap, sizeof scrap);
        if (ignored < 0) {
            kolo_hub_lose(hub, conn);
        }
        return ignored > 0;
    }
    const bool in_head = conn->got < head;
    unsigned char *to =
        in_head ? (unsigned char *)&conn->in + conn->got : conn->body + (conn->got - head);
    const ssize_t n = take_bytes(conn->fd, to, head + (in_head ? 0 : conn->in.len) - conn->got);
    if (n <= 0) {
        if (n < 0) {
            kolo_hub_lose(hub, conn);
        }
        return false;
    }
    conn->got += (size_t)n;
    const bool strange = in_head && conn->got >= sizeof conn->in.magic &&
                         conn->in.magic != KOLO_BOOT_MAGIC; /* no need to wait for more of it */
    if (strange || (in_head && conn->got == head && !begin_frame(hub, conn))) {
        kolo_hub_refuse(hub, conn);
        return conn->fd >= 0;
    }
    if (conn->got >= head && conn->got == head + conn->in.len) {
        conn->got = 0;
        end_frame(hub, conn);
    }
    return conn->fd >= 0;
}

/* Read a bounded number of pieces, so that a long payload of one rank does not delay the others. */
static void read_conn(struct kolo_hub *hub, struct kolo_conn *conn)
{
    for (int pieces = 0; pieces < 16 && conn->fd >= 0; pieces++) {
        if (!read_piece(hub, conn)) {
            return;
        }
    }
}

/* ---- the thread ---- */

static struct kolo_conn *oldest_unproven(const struct kolo_hub *hub, size_t *count_out)
{
    struct kolo_conn *oldest = NULL;
    *count_out = 0;
    for (size_t i = 0; i < hub->nconns; i++) {
        struct kolo_conn *conn = hub->conns[i];
        if (conn->fd >= 0 &&
            (conn->state == KOLO_CONN_ACCEPTED || conn->state == KOLO_CONN_CHALLENGED)) {
            oldest = oldest == NULL ? conn : oldest; /* the array is in order of arrival */
            ++*count_out;
        }
    }
    return oldest;
}

static bool has_room(struct kolo_hub *hub)
{
    if (hub->nconns < hub->cap) {
        return true;
    }
    const size_t cap = hub->cap == 0 ? 16 : 2 * hub->cap;
    struct kolo_conn **conns = realloc(hub->conns, cap * sizeof *conns);
    if (conns == NULL) {
        return false;
    }
    hub->conns = conns;
    struct pollfd *polls = realloc(hub->polls, (cap + LISTENERS) * sizeof *polls);
    if (polls == NULL) {
        return false;
    }
    hub->polls = polls;
    hub->cap = cap;
    return true;
}

/* Add a connection. On this host a process of another user is refused at once. */
static void add_conn(struct kolo_hub *hub, int fd, bool net)
{
    size_t unproven = 0;
    pid_t pid = 0;
    struct kolo_conn *conn = NULL;
    if ((net || kolo_boot_peer_is_us(fd, &pid)) && has_room(hub)) {
        conn = calloc(1, sizeof *conn);
    }
    if (net) {
        kolo_net_options(fd, UNPROVEN_MS);
    }
    if (conn == NULL) {
        close(fd);
        return;
    }
    struct kolo_conn *oldest = oldest_unproven(hub, &unproven);
    if (unproven >= MAX_UNPROVEN) {
        kolo_hub_lose(hub, oldest);
    }
    (void)kolo_boot_guard_begin(&conn->guard, &hub->meet, true); /* failed: nobody can join */
    conn->guard.masks = net && hub->encrypts;
    conn->fd = fd;
    conn->own = kolo_own_fd(fd);
    conn->pid = pid;
    conn->rank = -1;
    conn->deadline_us = kolo_now_us() + UNPROVEN_MS * 1e3;
    hub->conns[hub->nconns++] = conn;
}

/* Too few descriptors: the oldest stranger makes room, once a rank would have proved itself.
 * Without a stranger the job is too big. */
static void out_of_descriptors(struct kolo_hub *hub)
{
    size_t unproven = 0;
    struct kolo_conn *oldest = oldest_unproven(hub, &unproven);
    if (oldest != NULL) {
        if (oldest->deadline_us - kolo_now_us() < (UNPROVEN_MS - PROVING_MS) * 1e3) {
            kolo_hub_lose(hub, oldest);
        } else {
            (void)usleep(1000);
        }
        return;
    }
    if (hub->reserved_fd < 0) { /* the job has failed: wait until a rank with its error has left */
        (void)usleep(1000);
        return;
    }
    kolo_hub_fail(hub, KOLO_ERR_SYSTEM,
                  "no descriptor left for a rank's connection, after %d of them: %s", hub->njoined,
                  kolo_why(errno));
    close(hub->reserved_fd);
    hub->reserved_fd = -1;
}

static void accept_all(struct kolo_hub *hub, int which)
{
    for (int count = 0; count < 64 && hub->listener[which] >= 0; count++) {
        const int fd = kolo_boot_accept(hub->listener[which]);
        if (fd >= 0) {
            add_conn(hub, fd, which == 1);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            out_of_descriptors(hub);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void close_ended(struct kolo_hub *hub)
{
    size_t kept = 0;
    for (size_t i = 0; i < hub->nconns; i++) {
        struct kolo_conn *conn = hub->conns[i];
        if (conn->fd >= 0) {
            hub->conns[kept++] = conn;
        } else {
            explicit_bzero(&conn->guard, sizeof conn->guard);
            free(conn->out);
            free(conn);
        }
    }
    hub->nconns = kept;
}

/* Handle the deadlines that have passed. Returns the milliseconds until the next one. */
static int next_deadline_ms(struct kolo_hub *hub)
{
    const double now_us = kolo_now_us();
    double next_us = hub->failed ? hub->linger_until_us : INFINITY;
    if (!hub->failed && hub->nranks > 0 && (hub->exchanging || !hub->complete)) {
        if (hub->warn_us <= now_us) {
            kolo_hub_warn(hub);
        }
        next_us = hub->warn_us;
    }
    for (size_t i = 0; i < hub->nconns; i++) {
        struct kolo_conn *conn = hub->conns[i];
        if (conn->fd >= 0 && conn->deadline_us <= now_us) {
            kolo_hub_time_out(hub, conn);
        }
        if (conn->fd >= 0 && conn->deadline_us < next_us) {
            next_us = conn->deadline_us;
        }
    }
    return next_us <= now_us ? 0 : (int)fmin((next_us - now_us) / 1e3 + 1, KOLO_FD_LOOK_MS);
}

/* Whether the program has left the descriptors alone: one speaks for all, as there may be many. */
static bool is_whole(const struct kolo_hub *hub)
{
    return kolo_own_fd_is(&hub->own[0]);
}

/* Those that the program has closed are not closed again. The ranks that wait for this hub see that
 * it has gone. */
static void forget_lost(struct kolo_hub *hub)
{
    struct kolo_own_fd reserved = hub->own[0]; /* its duplicate */
    reserved.fd = hub->reserved_fd;
    hub->reserved_fd = kolo_own_fd_is(&reserved) ? hub->reserved_fd : -1;
    for (int i = 0; i < LISTENERS; i++) {
        hub->listener[i] = kolo_own_fd_is(&hub->own[i]) ? hub->listener[i] : -1;
    }
    for (size_t i = 0; i < hub->nconns; i++) {
        struct kolo_conn *conn = hub->conns[i];
        conn->fd = kolo_own_fd_is(&conn->own) ? conn->fd : -1;
    }
}

static bool is_done(const struct kolo_hub *hub)
{
    if (hub->failed) {
        const bool all_know = hub->nranks > 0 && hub->njoined == hub->nranks && hub->nconns == 0;
        return all_know || kolo_now_us() >= hub->linger_until_us;
    }
    return hub->complete && hub->nleft == hub->nranks;
}

static void serve_once(struct kolo_hub *hub)
{
    const int timeout_ms = next_deadline_ms(hub);
    close_ended(hub); /* a connection that timed out */
    const size_t count = hub->nconns;
    for (int i = 0; i < LISTENERS; i++) {
        hub->polls[i] = (struct pollfd){.fd = hub->listener[i], .events = POLLIN};
    }
    for (size_t i = 0; i < count; i++) {
        const short out = hub->conns[i]->out_len > 0 ? POLLOUT : 0;
        hub->polls[i + LISTENERS] =
            (struct pollfd){.fd = hub->conns[i]->fd, .events = POLLIN | out};
    }
    if (poll(hub->polls, count + LISTENERS, timeout_ms) <= 0 || !is_whole(hub)) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct kolo_conn *conn = hub->conns[i];
        const short events = hub->polls[i + LISTENERS].revents;
        if (conn->fd >= 0 && (events & POLLOUT) != 0 && conn->out_len > 0) {
            kolo_hub_flush(conn);
        }
        if (conn->fd >= 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
            read_conn(hub, conn);
        }
    }
    for (int i = 0; i < LISTENERS; i++) {
        if (hub->polls[i].revents != 0) {
            accept_all(hub, i);
        }
    }
    if (hub->complete && hub->listener[1] >= 0) { /* all ranks have joined */
        close(hub->listener[1]);
        hub->listener[1] = hub->own[1].fd = -1;
    }
    kolo_hub_part(hub);
    close_ended(hub);
}

static void hub_free(struct kolo_hub *hub)
{
    for (size_t i = 0; i < hub->nconns; i++) {
        if (hub->conns[i]->fd >= 0) {
            close(hub->conns[i]->fd);
            hub->conns[i]->fd = -1;
        }
    }
    close_ended(hub);
    for (int i = 0; i < LISTENERS; i++) {
        if (hub->listener[i] >= 0) {
            close(hub->listener[i]);
        }
    }
    if (hub->reserved_fd >= 0) {
        close(hub->reserved_fd);
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
    struct kolo_hub *hub = arg;
    (void)pthread_setname_np(pthread_self(), "kolo-hub");
    kolo_thread_begin();
    while (!is_done(hub) && is_whole(hub)) {
        serve_once(hub);
    }
    if (!is_whole(hub)) {
        KOLO_LOG(WARN, INIT, "the program has closed the meeting point's descriptors");
        forget_lost(hub);
    }
    hub_free(hub);
    kolo_thread_end();
    return NULL;
}

/* Start the thread with every signal blocked: signals belong to the application. */
static int start_thread(struct kolo_hub *hub)
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

/* Note for whom the hub does not wait. False: no memory. */
static bool mark_absent(struct kolo_hub *hub, const bool *absent, int nranks, int host_rank)
{
    hub->ranks = absent != NULL ? calloc((size_t)nranks, 1) : NULL; /* KOLO_RANK_ABSENT */
    for (int r = 0; hub->ranks != NULL && r < nranks; r++) {
        hub->ranks[r] = absent[r] ? KOLO_RANK_OUT : KOLO_RANK_ABSENT;
        hub->nout += absent[r];
    }
    if (hub->ranks != NULL) {
        hub->nranks = nranks;
        hub->first = host_rank;
        hub->njoined = hub->nleft = hub->nout;
    }
    return absent == NULL || hub->ranks != NULL;
}

kolo_status kolo_boot_hub_start(const struct kolo_meet *meet, const int listener[2], int nranks,
                                int host_rank)
{
    struct kolo_hub *hub = calloc(1, sizeof *hub);
    long encrypts = 0;
    if (hub == NULL || !has_room(hub) || !mark_absent(hub, meet->absent, nranks, host_rank)) {
        for (int i = 0; i < LISTENERS; i++) {
            if (listener[i] >= 0) {
                close(listener[i]);
            }
        }
        free(hub != NULL ? hub->conns : NULL);
        free(hub != NULL ? hub->polls : NULL);
        free(hub);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the meeting point");
    }
    (void)kolo_env_int("KOLO_ENCRYPT", 0, 1, 0, &encrypts); /* else ranks say what is wrong */
    hub->encrypts = encrypts == 1;
    hub->meet = *meet;
    hub->meet.absent = NULL; /* its owner's */
    memcpy(hub->listener, listener, sizeof hub->listener);
    hub->own[0] = kolo_own_fd(listener[0]);
    hub->own[1] = kolo_own_fd(listener[1]);
    hub->host_rank = host_rank;
    hub->reserved_fd = fcntl(listener[0], F_DUPFD_CLOEXEC, 3);
    const int error = hub->reserved_fd >= 0 ? start_thread(hub) : errno;
    if (error != 0) {
        hub_free(hub);
        return kolo_fail(KOLO_ERR_SYSTEM, "starting the meeting point: %s", kolo_why(error));
    }
    return KOLO_OK;
}

kolo_status kolo_boot_host(const struct kolo_meet *meet, int nranks, int rank)
{
    int listener[2] = {-1, -1};
    KOLO_AWAIT(kolo_boot_listen(meet, &listener[0]));
    const kolo_status st =
        meet->place.family != 0 ? kolo_boot_listen_net(meet, &listener[1]) : KOLO_OK;
    if (st != KOLO_OK) {
        close(listener[0]);
        return st;
    }
    return kolo_boot_hub_start(meet, listener, nranks, rank);
}
