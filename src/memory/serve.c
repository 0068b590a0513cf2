// SPDX-License-Identifier: Apache-2.0
/* The thread that hands out descriptors.
 *
 * Abstract names have no permissions, so any local process can connect. It holds one of CLIENTS
 * places for DEADLINE_US at most, and a full table drops its oldest client. The thread reads one
 * request of fixed size from each client, and nothing else. */
#include "memory/serve.h"

#include "memory/request.h"
#include "memory/segment.h"
#include "util/descriptor.h"
#include "util/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEADLINE_US 5e6
#define STARVED_US  1e5

enum { CLIENTS = 32, STOP = 0, LISTENER = 1, FIRST_CLIENT = 2 };

static struct {
    pthread_mutex_t lock;
    bool named;
    struct kolo_shm_identity identity;
    int users;
    bool runs; /* the thread is to be joined */
    pthread_t thread;
    struct kolo_own_fd listener;
    struct kolo_bell stop;
    _Atomic int reserved_fd; /* closed to accept a client when no descriptor is left; -1: closed */
    _Atomic double
        starved_us; /* when not even the reserved one helped any more; 0: no client waits */
} service = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The reserved descriptor is a duplicate of the bell. */
static void close_reserved(void)
{
    struct kolo_own_fd reserved = service.stop.rung;
    reserved.fd = atomic_exchange(&service.reserved_fd, -1);
    kolo_own_fd_close(&reserved);
}

static void close_all(void)
{
    close_reserved();
    kolo_own_fd_close(&service.listener);
    kolo_bell_close(&service.stop);
}

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&service.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&service.lock);
}

/* The child gets a name of its own and has no thread. It must not keep the parent's socket open. */
static void after_fork_child(void)
{
    if (service.users > 0) {
        close_all();
    }
    service.users = 0;
    service.runs = false;
    service.named = false;
    pthread_mutex_unlock(&service.lock); /* the only thread of the child locked it */
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* Under the lock. */
static kolo_status name_process(void)
{
    if (!service.named && getrandom(&service.identity, sizeof service.identity, 0) !=
                              (ssize_t)sizeof service.identity) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: getrandom: %s", strerror(errno));
    }
    service.named = true;
    return KOLO_OK;
}

kolo_status kolo_service_identity(struct kolo_shm_identity *out)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&service.lock);
    const kolo_status status = name_process();
    if (status == KOLO_OK) {
        *out = service.identity;
    }
    pthread_mutex_unlock(&service.lock);
    return status;
}

/* ---- the owner ---- */

/* Whether the token is right. The time does not depend on the place where it differs. */
static bool right_token(const unsigned char *token)
{
    unsigned differ = 0;
    for (size_t i = 0; i < sizeof service.identity.token; i++) {
        differ |= (unsigned)(token[i] ^ service.identity.token[i]);
    }
    return differ == 0;
}

static void send_answer(int client, struct kolo_shm_answer *answer, int fd)
{
    union kolo_fd_room room;
    struct iovec part = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        kolo_fd_attach(&message, &room, fd);
    }
    (void)sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Take one request and send one answer. True: the caller then closes the client. False: no request
 * has come yet. */
static bool serve_client(int client)
{
    struct kolo_shm_request request;
    const ssize_t got = recv(client, &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && errno == EAGAIN) {
        return false;
    }
    if (got != (ssize_t)sizeof request || request.magic != KOLO_SHM_MAGIC ||
        !right_token(request.token)) {
        return true;
    }
    struct kolo_shm_answer answer = {KOLO_SHM_MAGIC, KOLO_OK, 0};
    const int fd = kolo_segment_descriptor(request.segment, &answer.len);
    answer.status = fd >= 0 ? KOLO_OK : errno == ENOENT ? KOLO_ERR_INVALID : KOLO_ERR_SYSTEM;
    send_answer(client, &answer, fd);
    if (fd >= 0) {
        close(fd);
    }
    return true;
}

struct clients {
    struct pollfd poll[FIRST_CLIENT + CLIENTS];
    struct kolo_own_fd own[CLIENTS];
    double deadline[CLIENTS];
    int count; /* the oldest client comes first */
};

static void remove_client(struct clients *clients, int index)
{
    kolo_own_fd_close(&clients->own[index]);
    clients->count--;
    for (int i = index; i < clients->count; i++) {
        clients->poll[FIRST_CLIENT + i] = clients->poll[FIRST_CLIENT + i + 1];
        clients->own[i] = clients->own[i + 1];
        clients->deadline[i] = clients->deadline[i + 1];
    }
}

static int make_reserved(void)
{
    return fcntl(service.stop.rung.fd, F_DUPFD_CLOEXEC, 3);
}

static int take_connection(void)
{
    return accept4(service.listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* No reserved descriptor is left, or another thread took it first. The client keeps waiting. */
static void free_reserved(void)
{
    if (service.starved_us == 0) {
        service.starved_us = kolo_now_us();
    }
    (void)usleep(1000);
}

/* False: nobody is there. Most clients have sent their request by now, and take no place. */
static bool accept_client(struct clients *clients)
{
    int fd = take_connection();
    if (fd < 0 && errno == EMFILE && service.reserved_fd >= 0) {
        close_reserved();
        fd = take_connection();
    }
    if (fd < 0) {
        if (errno == EMFILE) {
            free_reserved();
        }
        return false;
    }
    service.starved_us = 0;
    if (!kolo_shm_same_user(fd) || serve_client(fd)) {
        close(fd);
        return true;
    }
    if (clients->count == CLIENTS) {
        remove_client(clients, 0);
    }
    clients->poll[FIRST_CLIENT + clients->count] = (struct pollfd){fd, POLLIN, 0};
    clients->own[clients->count] = kolo_own_fd(fd);
    clients->deadline[clients->count] = kolo_now_us() + DEADLINE_US;
    clients->count++;
    return true;
}

static int wait_ms(const struct clients *clients)
{
    const double left_us = clients->count > 0 ? clients->deadline[0] - kolo_now_us() : INFINITY;
    return left_us <= 0 ? 0 : (int)fmin(left_us / 1000 + 1, KOLO_FD_LOOK_MS);
}

/* Whether the program has left the descriptors alone. */
static bool is_whole(const struct clients *clients)
{
    bool whole = kolo_own_fd_is(&service.listener) && kolo_own_fd_is(&service.stop.heard);
    for (int i = 0; i < clients->count; i++) {
        whole = whole && kolo_own_fd_is(&clients->own[i]);
    }
    return whole;
}

static void serve_clients(struct clients *clients)
{
    for (int i = clients->count - 1; i >= 0; i--) {
        if (clients->poll[FIRST_CLIENT + i].revents != 0) {
            (void)serve_client(clients->poll[FIRST_CLIENT + i].fd);
            remove_client(clients, i);
        }
    }
    while (clients->count > 0 && clients->deadline[0] < kolo_now_us()) {
        /* It may have asked while this process was stopped. */
        (void)serve_client(clients->poll[FIRST_CLIENT].fd);
        remove_client(clients, 0);
    }
}

static void accept_clients(struct clients *clients)
{
    for (int i = 0; i < CLIENTS && accept_client(clients); i++) {
    }
}

static void *run_service(void *argument)
{
    struct clients clients = {.count = 0};
    (void)argument;
    kolo_thread_begin();
    clients.poll[STOP] = (struct pollfd){service.stop.heard.fd, POLLIN, 0};
    clients.poll[LISTENER] = (struct pollfd){service.listener.fd, POLLIN, 0};
    while (clients.poll[STOP].revents == 0) {
        (void)poll(clients.poll, (nfds_t)(FIRST_CLIENT + clients.count), wait_ms(&clients));
        if (!is_whole(&clients)) {
            KOLO_LOG(WARN, SHM,
                     "the program has closed descriptors of kolo: this process hands out "
                     "no shared memory any more");
            break;
        }
        serve_clients(&clients);
        if (clients.poll[LISTENER].revents != 0) {
            accept_clients(&clients);
        }
        if (service.reserved_fd < 0) {
            service.reserved_fd = make_reserved();
        }
    }
    while (clients.count > 0) {
        remove_client(&clients, 0);
    }
    kolo_thread_end();
    return NULL;
}

/* Start the thread with every signal blocked: signals belong to the application. */
static int start_thread(void)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int failed = pthread_create(&service.thread, NULL, run_service, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

/* Under the lock. */
static kolo_status listen_and_start(void)
{
    struct sockaddr_un address;
    KOLO_TRY(name_process());
    const socklen_t len = kolo_shm_fill_address(&service.identity, &address);
    const bool has_bell = kolo_bell_open(&service.stop);
    service.listener =
        kolo_own_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int reserved = has_bell ? make_reserved() : -1;
    service.reserved_fd = reserved;
    service.starved_us = 0;
    int failed = 0;
    if (!has_bell || service.listener.fd < 0 || reserved < 0 ||
        bind(service.listener.fd, (const struct sockaddr *)&address, len) != 0 ||
        listen(service.listener.fd, SOMAXCONN) != 0) {
        failed = errno;
    } else {
        failed = start_thread();
    }
    if (failed != 0) {
        close_all();
        service.runs = false;
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: starting the service: %s",
                         kolo_why(failed));
    }
    service.runs = true;
    return KOLO_OK;
}

/* Under the lock. Without its bell the thread ends by itself. */
static void end_thread(void)
{
    if (service.runs) {
        kolo_bell_ring(&service.stop);
        pthread_join(service.thread, NULL);
        close_all();
    }
    service.runs = false;
}

kolo_status kolo_service_start(void)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&service.lock);
    const bool lost = service.users > 0 && !kolo_own_fd_is(&service.listener);
    if (lost) { /* its name is taken until then */
        end_thread();
    }
    const kolo_status status = service.users == 0 || lost ? listen_and_start() : KOLO_OK;
    if (status == KOLO_OK) {
        service.users++;
    }
    pthread_mutex_unlock(&service.lock);
    return status;
}

void kolo_service_stop(void)
{
    pthread_mutex_lock(&service.lock);
    /* In a forked child the count is 0, because the thread and its sockets are the parent's. */
    if (service.users > 0 && --service.users == 0) {
        end_thread();
    }
    pthread_mutex_unlock(&service.lock);
}

bool kolo_service_starved(void)
{
    const double since_us = service.starved_us;
    return since_us != 0 && kolo_now_us() - since_us > STARVED_US;
}
