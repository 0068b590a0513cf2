// SPDX-License-Identifier: Apache-2.0
/* The thread that hands out descriptors, and the client's side of it.
 *
 * Abstract names have no permissions, so any local process can connect. It holds one of CLIENTS
 * places for DEADLINE_US at most, and a full table drops its oldest client. The thread reads one
 * request of fixed size from each client, and nothing else. */
#include "memory/serve.h"

#include "memory/segment.h"
#include "util/pass_fd.h"
#include "util/threads.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAGIC       UINT32_C(0x6b6f6c31)
#define DEADLINE_US 5e6
#define REFUSED_US  3e5
#define STARVED_US  1e5

enum { CLIENTS = 32, STOP = 0, LISTENER = 1, FIRST_CLIENT = 2 };

struct request {
    uint32_t magic;
    uint32_t segment;
    unsigned char token[16];
};
struct answer {
    uint32_t magic;
    int32_t status;
    uint64_t len;
};
static_assert(sizeof(struct request) == 24 && sizeof(struct answer) == 16, "no padding");

static struct {
    pthread_mutex_t lock;
    bool named;
    struct kolo_shm_identity identity;
    int users;
    pthread_t thread;
    int listener, stop;
    _Atomic int spare; /* closed to accept a client when no descriptor is left; -1: closed */
    _Atomic double starved_us; /* when not even the spare helped any more; 0: no client waits */
} service = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void close_all(void)
{
    close(service.listener);
    close(service.stop);
    close(service.spare);
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

static socklen_t fill_address(const struct kolo_shm_identity *identity, struct sockaddr_un *address)
{
    char *at = address->sun_path + 1; /* a leading 0 makes it abstract */
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    at += sprintf(at, "kolo-shm-");
    for (size_t i = 0; i < sizeof identity->name; i++) {
        at += sprintf(at, "%02x", (unsigned)identity->name[i]);
    }
    return (socklen_t)(at - (char *)address);
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
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

static void send_answer(int client, struct answer *answer, int fd)
{
    union kolo_fd_room room;
    struct iovec part = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        kolo_fd_attach(&message, &room, fd);
    }
    (void)sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Take one request and send one answer. The caller then closes the client in any case. */
static void serve_client(int client)
{
    struct request request;
    const ssize_t got = recv(client, &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
    if (got != (ssize_t)sizeof request || request.magic != MAGIC || !right_token(request.token)) {
        return;
    }
    struct answer answer = {MAGIC, KOLO_OK, 0};
    const int fd = kolo_segment_descriptor(request.segment, &answer.len);
    answer.status = fd >= 0 ? KOLO_OK : errno == ENOENT ? KOLO_ERR_INVALID : KOLO_ERR_SYSTEM;
    send_answer(client, &answer, fd);
    if (fd >= 0) {
        close(fd);
    }
}

struct clients {
    struct pollfd poll[FIRST_CLIENT + CLIENTS];
    double deadline[CLIENTS];
    int count; /* the oldest client comes first */
};

static void remove_client(struct clients *clients, int index)
{
    close(clients->poll[FIRST_CLIENT + index].fd);
    clients->count--;
    for (int i = index; i < clients->count; i++) {
        clients->poll[FIRST_CLIENT + i] = clients->poll[FIRST_CLIENT + i + 1];
        clients->deadline[i] = clients->deadline[i + 1];
    }
}

static int make_spare(void)
{
    return fcntl(service.stop, F_DUPFD_CLOEXEC, 3);
}

static int take_connection(void)
{
    return accept4(service.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* No spare is left, or another thread took its descriptor first. The client keeps waiting. */
static void free_spare(void)
{
    if (service.starved_us == 0) {
        service.starved_us = kolo_now_us();
    }
    (void)usleep(1000);
}

static void accept_client(struct clients *clients)
{
    int fd = take_connection();
    if (fd < 0 && errno == EMFILE && service.spare >= 0) {
        close(atomic_exchange(&service.spare, -1));
        fd = take_connection();
    }
    if (fd < 0) {
        if (errno == EMFILE) {
            free_spare();
        }
        return;
    }
    service.starved_us = 0;
    if (!same_user(fd)) {
        close(fd);
        return;
    }
    if (clients->count == CLIENTS) {
        remove_client(clients, 0);
    }
    clients->poll[FIRST_CLIENT + clients->count] = (struct pollfd){fd, POLLIN, 0};
    clients->deadline[clients->count] = kolo_now_us() + DEADLINE_US;
    clients->count++;
}

static int wait_ms(const struct clients *clients)
{
    if (clients->count == 0) {
        return -1;
    }
    const double left_us = clients->deadline[0] - kolo_now_us();
    return left_us <= 0 ? 0 : (int)(left_us / 1000) + 1;
}

static void *run_service(void *argument)
{
    struct clients clients = {.count = 0};
    (void)argument;
    kolo_thread_begin();
    clients.poll[STOP] = (struct pollfd){service.stop, POLLIN, 0};
    clients.poll[LISTENER] = (struct pollfd){service.listener, POLLIN, 0};
    while (clients.poll[STOP].revents == 0) {
        (void)poll(clients.poll, (nfds_t)(FIRST_CLIENT + clients.count), wait_ms(&clients));
        for (int i = clients.count - 1; i >= 0; i--) {
            if (clients.poll[FIRST_CLIENT + i].revents != 0) {
                serve_client(clients.poll[FIRST_CLIENT + i].fd);
                remove_client(&clients, i);
            }
        }
        while (clients.count > 0 && clients.deadline[0] < kolo_now_us()) {
            remove_client(&clients, 0);
        }
        if (clients.poll[LISTENER].revents != 0) {
            accept_client(&clients);
        }
        if (service.spare < 0) {
            service.spare = make_spare();
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
    const socklen_t len = fill_address(&service.identity, &address);
    service.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    service.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int spare = service.stop >= 0 ? make_spare() : -1;
    service.spare = spare;
    service.starved_us = 0;
    int failed = 0;
    if (service.stop < 0 || service.listener < 0 || spare < 0 ||
        bind(service.listener, (const struct sockaddr *)&address, len) != 0 ||
        listen(service.listener, 128) != 0) {
        failed = errno;
    } else {
        failed = start_thread();
    }
    if (failed != 0) {
        close_all();
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: starting the service: %s",
                         kolo_why(failed));
    }
    return KOLO_OK;
}

kolo_status kolo_service_start(void)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&service.lock);
    const kolo_status status = service.users == 0 ? listen_and_start() : KOLO_OK;
    if (status == KOLO_OK) {
        service.users++;
    }
    pthread_mutex_unlock(&service.lock);
    return status;
}

void kolo_service_stop(void)
{
    static const uint64_t one = 1;
    pthread_mutex_lock(&service.lock);
    /* In a forked child the count is 0, because the thread and its sockets are the parent's. */
    if (service.users > 0 && --service.users == 0) {
        (void)!write(service.stop, &one, sizeof one);
        pthread_join(service.thread, NULL);
        close_all();
    }
    pthread_mutex_unlock(&service.lock);
}

bool kolo_service_starved(void)
{
    const double since_us = service.starved_us;
    return since_us != 0 && kolo_now_us() - since_us > STARVED_US;
}

/* ---- the client ---- */

/* OK: keep waiting. Else the reason to stop. */
static kolo_status still_waiting(const struct kolo_shm_owner *owner, double since_us)
{
    const int aborted = __atomic_load_n(owner->aborted, __ATOMIC_ACQUIRE);
    const double waited_us = kolo_now_us() - since_us;
    if (aborted != 0) {
        return (kolo_status)aborted;
    }
    if (owner->on_wait != NULL) {
        return owner->on_wait(owner->owner, owner->rank, waited_us);
    }
    return waited_us <= DEADLINE_US
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_TIMEOUT, "rank %d (pid %d) did not hand out its memory in 5 s",
                           owner->rank, owner->pid);
}

static bool knock(const struct kolo_shm_owner *owner, int fd)
{
    struct sockaddr_un address;
    const socklen_t len = fill_address(&owner->identity, &address);
    return connect(fd, (const struct sockaddr *)&address, len) == 0;
}

static kolo_status fail_gone(const struct kolo_shm_owner *owner)
{
    return kolo_fail(KOLO_ERR_PEER, "rank %d (pid %d) is gone, and its memory with it", owner->rank,
                     owner->pid);
}

/* Connect `fd`. Owners listen before they announce memory: one that refuses for long has left. */
static kolo_status reach_owner(const struct kolo_shm_owner *owner, int fd, double since_us)
{
    const double refused_until = kolo_now_us() + REFUSED_US;
    while (!knock(owner, fd)) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
            return kolo_fail(KOLO_ERR_LINK, "connecting to rank %d (pid %d): %s", owner->rank,
                             owner->pid, strerror(errno));
        }
        if (errno == ECONNREFUSED && kolo_now_us() > refused_until) {
            return fail_gone(owner);
        }
        KOLO_TRY(still_waiting(owner, since_us));
        (void)poll(NULL, 0, 1);
    }
    if (!same_user(fd)) {
        return kolo_fail(KOLO_ERR_LINK, "rank %d (pid %d) belongs to another user", owner->rank,
                         owner->pid);
    }
    return KOLO_OK;
}

/* The owner lacks memory that it had announced, or did not answer. Usually its communicator has
 * failed, or it died. That news is on its way, so wait for it: it is the better error. */
static kolo_status await_reason(const struct kolo_shm_owner *owner)
{
    const double since_us = kolo_now_us();
    while (kolo_now_us() < since_us + REFUSED_US) {
        KOLO_TRY(still_waiting(owner, since_us));
        (void)poll(NULL, 0, 1);
    }
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool gone = !knock(owner, fd) && errno == ECONNREFUSED;
    close(fd);
    return gone ? fail_gone(owner) : KOLO_OK;
}

/* Receive the answer. *fd gets the descriptor, or -1. *cut: there was no free one for it. */
static ssize_t receive_answer(int socket_fd, struct answer *answer, int *fd, bool *cut)
{
    union kolo_fd_room room;
    struct iovec part = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    const ssize_t got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    *fd = got >= 0 ? kolo_fd_attached(&message) : -1;
    *cut = got >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
    return got;
}

/* The memory must have the announced size, and must never shrink while it is mapped. A process that
 * may not make memfds sends unnamed memory instead. It cannot be sealed. */
static bool is_trustworthy(int fd, uint64_t len)
{
    struct stat info;
    const int seals = fcntl(fd, F_GET_SEALS);
    return fstat(fd, &info) == 0 && info.st_size >= 0 && (uint64_t)info.st_size == len && len > 0 &&
           seals >= 0 && ((seals & F_SEAL_SHRINK) != 0 || (seals == F_SEAL_SEAL && !info.st_nlink));
}

static kolo_status ask_descriptor(const struct kolo_shm_owner *owner, int socket_fd, uint32_t id,
                                  int *fd, uint64_t *len, double since_us)
{
    struct request request = {MAGIC, id, {0}};
    struct answer answer = {0};
    struct pollfd wait = {socket_fd, POLLIN, 0};
    memcpy(request.token, owner->identity.token, sizeof request.token);
    KOLO_TRY(reach_owner(owner, socket_fd, since_us));
    const bool sent = send(socket_fd, &request, sizeof request, MSG_NOSIGNAL) >= 0;
    while (sent && poll(&wait, 1, 20) <= 0) {
        KOLO_TRY(still_waiting(owner, since_us));
    }
    bool cut = false;
    const ssize_t got = sent ? receive_answer(socket_fd, &answer, fd, &cut) : -1;
    if (got != (ssize_t)sizeof answer || answer.magic != MAGIC) {
        KOLO_TRY(await_reason(owner));
        return kolo_fail(KOLO_ERR_LINK, "rank %d (pid %d) refuses to share its memory", owner->rank,
                         owner->pid);
    }
    if (answer.status == KOLO_ERR_SYSTEM) {
        return kolo_fail(KOLO_ERR_SYSTEM,
                         "rank %d (pid %d) has too few descriptors to share its memory (ulimit -n)",
                         owner->rank, owner->pid);
    }
    if (answer.status != KOLO_OK) {
        KOLO_TRY(await_reason(owner));
        return kolo_fail(KOLO_ERR_PEER, "rank %d (pid %d) has no memory segment %u: it has left",
                         owner->rank, owner->pid, id);
    }
    if (*fd < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s rank %d (pid %d)%s%s",
                         cut ? "no descriptor left for memory of" : "no descriptor came from",
                         owner->rank, owner->pid, cut ? ": " : "", cut ? kolo_why(EMFILE) : "");
    }
    if (!is_trustworthy(*fd, answer.len)) {
        return kolo_fail(KOLO_ERR_LINK, "rank %d (pid %d) sent something that is no sealed segment",
                         owner->rank, owner->pid);
    }
    *len = answer.len;
    return KOLO_OK;
}

kolo_status kolo_service_fetch(const struct kolo_shm_owner *owner, uint32_t id, int *fd,
                               uint64_t *len)
{
    int came = -1;
    const int socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_fd < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: socket: %s", kolo_why(errno));
    }
    const kolo_status status = ask_descriptor(owner, socket_fd, id, &came, len, kolo_now_us());
    close(socket_fd);
    if (owner->on_wait != NULL) {
        (void)owner->on_wait(owner->owner, owner->rank, -1);
    }
    if (status != KOLO_OK && came >= 0) {
        close(came);
    }
    *fd = status == KOLO_OK ? came : *fd;
    return status;
}
