// SPDX-License-Identifier: Apache-2.0
/* A rank of a program that closes all descriptors from 3 up while it has a communicator, and that
 * may open files of its own at the same numbers, as daemons do.
 *
 * It prints a line for each call, "NAME STATUS TEXT"; "cpu N", the percentage of a core that its
 * idle threads took; "file N (was X): Y" for each own file that somebody has written, read or
 * closed; and "end" when all is destroyed.
 *
 * usage: closed nothing|files|sockets|polls [RANK]
 *        closed id     (an id is created before all is closed, and its ranks, two threads, after)
 *   nothing   the numbers stay closed
 *   files     regular files and memory files
 *   sockets   one end of a pair, which holds bytes
 *   polls     eventfds, and epolls with an event
 *   RANK      only this rank does so */
#include <kolo/kolo.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 3, OWN_MOST = 128, ABOVE = 300, FEW = 2, MANY = 60000, SHARED = 5000 };
enum { FILE_BYTES = 1 << 20, PATTERN = 0x5a, COUNT = 7, IDLE_MS = 600, TIMEOUT_MS = 4000 };
enum { SMALL_BYTES = 12288, TURN_MS = 200 };

enum kind { NOTHING, FILES, SOCKETS, POLLS };

struct own {       /* a file of the program at a number that kolo had */
    int fd, other; /* other: the socket's peer */
    bool is_epoll;
    struct stat made;
    char was[96];
};

static struct own own[OWN_MOST];
static int owns;

static void need(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(3);
    }
}

static void say(const char *what, kolo_status st)
{
    (void)printf("%s %s %s\n", what, kolo_status_name(st), st == KOLO_OK ? "" : kolo_error_text());
    (void)fflush(stdout);
}

static void wait_ms(int ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    (void)nanosleep(&time, NULL);
}

/* ---- own files ---- */

static void note_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    need(folder != NULL, "/proc/self/fd");
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const int fd = atoi(entry->d_name);
        if (fd < FIRST || fd == dirfd(folder)) {
            continue;
        }
        need(owns < OWN_MOST, "too many descriptors");
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        own[owns] = (struct own){.fd = fd, .other = -1};
        (void)!readlink(path, own[owns].was, sizeof own[owns].was - 1);
        owns++;
    }
    (void)closedir(folder);
}

static int open_file(int i)
{
    static char bytes[FILE_BYTES];
    const int fd = i % 2 == 0 ? memfd_create("own", MFD_CLOEXEC)
                              : open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    memset(bytes, PATTERN, sizeof bytes);
    need(fd >= 0 && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes, "an own file");
    return fd;
}

static int open_socket(struct own *o)
{
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "an own pair");
    o->other = fcntl(pair[1], F_DUPFD_CLOEXEC, ABOVE);
    need(o->other >= 0 && close(pair[1]) == 0 && write(o->other, "own", 3) == 3, "an own pair");
    return pair[0];
}

static int open_poll(struct own *o, int i)
{
    o->is_epoll = i % 2 == 1;
    const int event = eventfd(COUNT, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!o->is_epoll) {
        return event;
    }
    struct epoll_event ready = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = UINT64_C(0x5a5a5a)};
    o->other = fcntl(event, F_DUPFD_CLOEXEC, ABOVE);
    need(o->other >= 0 && close(event) == 0, "an own eventfd");
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    need(fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, o->other, &ready) == 0, "an own epoll");
    return fd;
}

/* A thread of kolo may hold the number for the moment in which it reads a file. */
static void move_to(int fd, int number)
{
    bool moved = false;
    for (int ms = 0; ms < TURN_MS && !moved; ms++) {
        moved = fcntl(number, F_GETFD) < 0 && dup3(fd, number, O_CLOEXEC) == number;
        if (!moved) {
            wait_ms(1);
        }
    }
    need(moved, "a number of kolo");
    need(close(fd) == 0, "close");
}

static void open_own(enum kind kind)
{
    for (int i = 0; i < owns && kind != NOTHING; i++) {
        const int fd = kind == FILES     ? open_file(i)
                       : kind == SOCKETS ? open_socket(&own[i])
                                         : open_poll(&own[i], i);
        if (fd != own[i].fd) {
            move_to(fd, own[i].fd);
        }
        need(fstat(own[i].fd, &own[i].made) == 0, "fstat");
    }
}

/* What happened to it; NULL: nothing. */
static const char *find_damage(enum kind kind, const struct own *o)
{
    static char bytes[FILE_BYTES];
    struct stat info;
    int waiting = 0;
    uint64_t count = 0;
    struct epoll_event event;
    if (fstat(o->fd, &info) != 0) {
        return "closed";
    }
    if (info.st_dev != o->made.st_dev || info.st_ino != o->made.st_ino) {
        return "replaced";
    }
    switch (kind) {
    case FILES:
        if (info.st_size != FILE_BYTES || lseek(o->fd, 0, SEEK_CUR) != FILE_BYTES) {
            return "of another size or at another place";
        }
        need(pread(o->fd, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes, "pread");
        for (int i = 0; i < FILE_BYTES; i++) {
            if (bytes[i] != PATTERN) {
                return "of other bytes";
            }
        }
        return NULL;
    case SOCKETS:
        if (recv(o->other, bytes, 1, MSG_DONTWAIT | MSG_PEEK) >= 0) {
            return "written to, or shut down";
        }
        return ioctl(o->fd, FIONREAD, &waiting) == 0 && waiting == 3 ? NULL : "read";
    case POLLS:
        if (o->is_epoll) {
            return epoll_wait(o->fd, &event, 1, 0) == 1 && event.data.u64 == UINT64_C(0x5a5a5a)
                       ? NULL
                       : "robbed of an event";
        }
        return read(o->fd, &count, sizeof count) == (ssize_t)sizeof count && count == COUNT
                   ? NULL
                   : "of another count";
    default:
        return NULL;
    }
}

static void look_after(enum kind kind)
{
    for (int i = 0; i < owns && kind != NOTHING; i++) {
        const char *damage = find_damage(kind, &own[i]);
        if (damage != NULL) {
            (void)printf("file %d (was %s): %s\n", own[i].fd, own[i].was, damage);
        }
    }
}

/* ---- idle threads ---- */

static double cpu_ms(void)
{
    struct rusage used;
    need(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

static void say_idle(void)
{
    const double before = cpu_ms();
    wait_ms(IDLE_MS);
    (void)printf("cpu %.0f\n", (cpu_ms() - before) / IDLE_MS * 100);
    (void)fflush(stdout);
}

/* ---- the rank ---- */

static kolo_status sum(struct kolo_comm *comm, int *data, int count)
{
    const int n = kolo_comm_size(comm), me = kolo_comm_rank(comm);
    for (int i = 0; i < count; i++) {
        data[i] = i * (me + 1);
    }
    const kolo_status st =
        kolo_all_reduce(data, data, (size_t)count, KOLO_INT32, KOLO_SUM, comm, NULL);
    for (int i = 0; i < count && st == KOLO_OK; i++) {
        need(data[i] == i * (n * (n + 1) / 2), "a wrong sum");
    }
    return st;
}

static kolo_status pass_on(struct kolo_comm *comm, int *data)
{
    const int n = kolo_comm_size(comm), me = kolo_comm_rank(comm);
    kolo_status st = kolo_group_begin();
    if (st == KOLO_OK) {
        st = kolo_send(data, FEW, KOLO_INT32, (me + 1) % n, comm, NULL);
        const kolo_status received =
            kolo_recv(data + FEW, FEW, KOLO_INT32, (me + n - 1) % n, comm, NULL);
        const kolo_status ended = kolo_group_end();
        st = st != KOLO_OK ? st : received != KOLO_OK ? received : ended;
    }
    return st;
}

/* Nobody can look at a number and close it in one step. So the ranks take turns, and each waits
 * until kolo's threads have done with the end of the call before, or of the rank before. */
static void close_all(enum kind kind, int turn)
{
    wait_ms((turn + 1) * TURN_MS);
    note_open();
    need(syscall(SYS_close_range, (unsigned)FIRST, ~0u, 0) == 0, "close_range");
    open_own(kind);
}

static int run_rank(enum kind kind, int only)
{
    struct kolo_comm *comm = NULL, *part = NULL;
    struct kolo_config config = KOLO_CONFIG_INIT;
    static int data[MANY];
    void *shared = NULL, *small = NULL, *late = NULL;
    config.timeout_ms = TIMEOUT_MS;
    need(kolo_comm_create_env(&config, &comm) == KOLO_OK &&
             kolo_mem_alloc(SHARED * sizeof(int), &shared) == KOLO_OK &&
             kolo_mem_alloc(SMALL_BYTES, &small) == KOLO_OK && sum(comm, data, FEW) == KOLO_OK &&
             sum(comm, data, MANY) == KOLO_OK && sum(comm, shared, SHARED) == KOLO_OK &&
             kolo_barrier(comm, NULL) == KOLO_OK,
         kolo_error_text());
    if (only < 0 || only == kolo_comm_rank(comm)) {
        close_all(kind, kolo_comm_rank(comm));
    }
    say_idle();
    say("few", sum(comm, data, FEW));
    say("many", sum(comm, data, MANY));
    say("pass", pass_on(comm, data));
    say("shared", sum(comm, shared, SHARED));
    kolo_mem_free(small);
    say("alloc", kolo_mem_alloc(SMALL_BYTES, &late));
    const kolo_status st = kolo_comm_split(comm, 0, 0, NULL, &part);
    say("split", st);
    kolo_comm_destroy(st == KOLO_OK ? part : NULL);
    kolo_comm_destroy(comm);
    kolo_mem_free(shared);
    kolo_mem_free(late);
    look_after(kind);
    (void)puts("end");
    return 0;
}

/* ---- an id ---- */

struct member {
    struct kolo_id id;
    int rank;
};

static void *run_member(void *arg)
{
    const struct member *m = arg;
    struct kolo_comm *comm = NULL;
    struct kolo_config config = KOLO_CONFIG_INIT;
    int data[FEW];
    config.timeout_ms = TIMEOUT_MS;
    const kolo_status st = kolo_comm_create(&m->id, 2, m->rank, &config, &comm);
    say("create", st == KOLO_OK ? sum(comm, data, FEW) : st);
    kolo_comm_destroy(comm);
    return NULL;
}

static int run_id(void)
{
    struct member member[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t thread;
    need(kolo_id_create(&member[0].id) == KOLO_OK, kolo_error_text());
    member[1].id = member[0].id;
    close_all(FILES, 0);
    say_idle();
    need(pthread_create(&thread, NULL, run_member, &member[1]) == 0, "pthread_create");
    (void)run_member(&member[0]);
    pthread_join(thread, NULL);
    say_idle();
    look_after(FILES);
    (void)puts("end");
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "nothing";
    if (strcmp(what, "id") == 0) {
        return run_id();
    }
    const enum kind kind = strcmp(what, "files") == 0     ? FILES
                           : strcmp(what, "sockets") == 0 ? SOCKETS
                           : strcmp(what, "polls") == 0   ? POLLS
                                                          : NOTHING;
    return run_rank(kind, argc > 2 ? atoi(argv[2]) : -1);
}
