// SPDX-License-Identifier: Apache-2.0
/* The client's side of the thread that hands out descriptors: see serve.c. */
#include "memory/request.h"
#include "util/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#define DEADLINE_US 5e6
#define REFUSED_US  3e5

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
    const socklen_t len = kolo_shm_fill_address(&owner->identity, &address);
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
    if (!kolo_shm_same_user(fd)) {
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
static ssize_t receive_answer(int socket_fd, struct kolo_shm_answer *answer, int *fd, bool *cut)
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
    struct kolo_shm_request request = {KOLO_SHM_MAGIC, id, {0}};
    struct kolo_shm_answer answer = {0};
    memcpy(request.token, owner->identity.token, sizeof request.token);
    KOLO_TRY(reach_owner(owner, socket_fd, since_us));
    const bool sent = send(socket_fd, &request, sizeof request, MSG_NOSIGNAL) >= 0;
    while (sent && kolo_poll_soon(socket_fd, POLLIN, 20) <= 0) {
        KOLO_TRY(still_waiting(owner, since_us));
    }
    bool cut = false;
    const ssize_t got = sent ? receive_answer(socket_fd, &answer, fd, &cut) : -1;
    if (got != (ssize_t)sizeof answer || answer.magic != KOLO_SHM_MAGIC) {
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

static bool is_file(const struct stat *info, const struct kolo_own_fd *file)
{
    return info->st_dev == file->device && info->st_ino == file->inode;
}

/* The number may mean another file by now, and the process another process. So the file is looked at
 * before it is opened, because to open a device may do something. */
bool kolo_service_open(const struct kolo_shm_owner *owner, const struct kolo_own_fd *file, int *fd,
                       uint64_t *len)
{
    char path[48];
    struct stat info;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", owner->pid, file->fd);
    if (file->inode == 0 || file->fd < 0 || stat(path, &info) != 0 || !is_file(&info, file)) {
        return false;
    }
    const int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0) {
        return false;
    }
    if (fstat(opened, &info) != 0 || !is_file(&info, file) || info.st_size < 0 ||
        !is_trustworthy(opened, (uint64_t)info.st_size)) {
        close(opened);
        return false;
    }
    *fd = opened;
    *len = (uint64_t)info.st_size;
    return true;
}
