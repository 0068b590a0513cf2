// SPDX-License-Identifier: Apache-2.0
/* The socket of this process, and the connections to the sockets of others. Sources: unix(7),
 * pidfd_open(2), and SO_PEERPIDFD of Linux 6.5. */
#include "core/health/life.h"

#include "boot/bootstrap.h"
#include "util/descriptor.h"
#include "util/secret.h"
#include "util/util.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum { WATCHERS = 4096 };
enum { ENDS_MS = 20 /* from the end of a process's socket to the end of the process */ };

static struct {
    pthread_mutex_t lock;
    unsigned char name[KOLO_LIFE_NAME];
    struct kolo_own_fd listener;
    int users;
} life = {.lock = PTHREAD_MUTEX_INITIALIZER, .listener = {.fd = -1}};

/* ---- forks ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&life.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&life.lock);
}

/* The child must not keep the parent's socket open. */
static void in_child(void)
{
    kolo_own_fd_close(&life.listener);
    life.users = 0;
    pthread_mutex_unlock(&life.lock);
}

static void register_fork(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- this process ---- */

static socklen_t fill_address(const unsigned char *name, struct sockaddr_un *address)
{
    char *at = address->sun_path + 1; /* a leading 0 makes it abstract */
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    at += sprintf(at, "kolo-life-");
    for (int i = 0; i < KOLO_LIFE_NAME; i++) {
        at += sprintf(at, "%02x", (unsigned)name[i]);
    }
    return (socklen_t)(at - (char *)address);
}

/* Under the lock. */
static bool listen_here(void)
{
    struct sockaddr_un address;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || kolo_random(life.name, sizeof life.name) != KOLO_OK ||
        bind(fd, (const struct sockaddr *)&address, fill_address(life.name, &address)) != 0 ||
        listen(fd, WATCHERS) != 0) {
        KOLO_LOG(INFO, INIT, "no socket that ends with this process: %s", strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    life.listener = kolo_own_fd(fd);
    return true;
}

bool kolo_life_begin(unsigned char name[KOLO_LIFE_NAME])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, register_fork);
    pthread_mutex_lock(&life.lock);
    const bool lives = kolo_own_fd_is(&life.listener) || listen_here();
    if (lives) {
        life.users++;
        memcpy(name, life.name, sizeof life.name);
    } else {
        memset(name, 0, sizeof life.name);
    }
    pthread_mutex_unlock(&life.lock);
    return lives;
}

void kolo_life_end(void)
{
    pthread_mutex_lock(&life.lock);
    if (life.users > 0 && --life.users == 0) {
        kolo_own_fd_close(&life.listener);
    }
    pthread_mutex_unlock(&life.lock);
}

/* ---- another process ---- */

static void ask_socket(int fd, struct kolo_life *out)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;
    out->pid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? peer.pid : 0;
    len = sizeof out->pidfd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &out->pidfd, &len) != 0) {
        out->pidfd = -1;
    }
}

static bool has_name(const unsigned char *name)
{
    int i = 0;
    while (i < KOLO_LIFE_NAME && name[i] == 0) {
        i++;
    }
    return i < KOLO_LIFE_NAME;
}

void kolo_life_watch(const unsigned char name[KOLO_LIFE_NAME], int pid, bool same_space,
                     struct kolo_life *out)
{
    struct sockaddr_un address;
    *out = (struct kolo_life){.fd = -1, .pidfd = -1, .pid = same_space ? pid : 0};
    const int fd =
        has_name(name) ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    const socklen_t len = fd >= 0 ? fill_address(name, &address) : 0;
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, len) == 0) {
        out->fd = fd;
        ask_socket(fd, out);
    } else if (fd >= 0) {
        out->gone = errno == ECONNREFUSED;
        close(fd);
    }
    if (out->pidfd < 0 && out->pid > 0 && !out->gone) {
        out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
        out->gone = out->pidfd < 0 && errno == ESRCH;
    }
    out->pid = kolo_pid_space() != 0 ? out->pid : 0; /* else /proc has other IDs */
}

/* What has ended stays so. */
static int poll_for(int epoll, int fd, uint64_t token)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = token};
    if (fd >= 0 && epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

void kolo_life_poll(struct kolo_life *life_of, int epoll, uint64_t token)
{
    life_of->fd = poll_for(epoll, life_of->fd, token);
    life_of->pidfd = poll_for(epoll, life_of->pidfd, token);
}

/* A forked child may hold them, too, so closing them alone would not be enough. */
void kolo_life_end_poll(struct kolo_life *life_of, int epoll)
{
    if (epoll >= 0) {
        kolo_epoll_close(epoll, life_of->fd);
        kolo_epoll_close(epoll, life_of->pidfd);
    }
    life_of->fd = life_of->pidfd = -1;
}

static bool has_ended(int pid)
{
    const char state = kolo_process_state(pid);
    return state == 0 || state == 'Z' || state == 'X';
}

bool kolo_life_is_over(struct kolo_life *life_of)
{
    struct pollfd end[] = {{.fd = life_of->fd, .events = POLLIN},
                           {.fd = life_of->pidfd, .events = POLLIN}};
    const bool none = life_of->fd < 0 && life_of->pidfd < 0;
    life_of->gone =
        life_of->gone || (none ? life_of->pid > 0 && has_ended(life_of->pid) : poll(end, 2, 0) > 0);
    return life_of->gone;
}

bool kolo_life_goes_on(const struct kolo_life *life_of)
{
    struct pollfd end = {.fd = life_of->pidfd, .events = POLLIN};
    return life_of->pidfd >= 0 && poll(&end, 1, ENDS_MS) == 0 &&
           !(life_of->pid > 0 && kolo_process_is_ending(life_of->pid));
}
