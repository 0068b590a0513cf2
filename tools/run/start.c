// SPDX-License-Identifier: Apache-2.0
/* Starts one rank. It gets a process group of its own, so that its children can be ended with it.
 * It gets pipes for its output. It gets a parent-death signal, so that it does not survive a killed
 * `kolo run`. */
#include "boot/wire.h"
#include "tools/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_CPUS = 16384, RANK_FDS = 6 /* most of ours that one start needs */ };

static struct {
    char job[40];
    char secret[65];
    int torch_port;     /* where torch's ranks meet; 0: none is free */
    int cpus[MAX_CPUS]; /* the CPUs that we may run on */
    int ncpus;
    struct rlimit files; /* the limit at the start */
} job;

static void write_hex(const unsigned char *bytes, size_t count, char *out)
{
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

static void list_cpus(void)
{
    static unsigned long mask[MAX_CPUS / (8 * sizeof(long))];
    const cpu_set_t *set = (const cpu_set_t *)mask;
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) != 0) {
        return;
    }
    for (size_t cpu = 0; cpu < MAX_CPUS; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof mask, set)) {
            job.cpus[job.ncpus++] = (int)cpu;
        }
    }
}

/* A TCP port of this host that is free now; 0: none. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
                       getsockname(fd, (struct sockaddr *)&at, &len) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return bound ? ntohs(at.sin_port) : 0;
}

/* Raise the limit of open files for all pipes. The ranks get the original limit. */
static void raise_file_limit(int nranks)
{
    const rlim_t need = 32 + RANK_FDS * (rlim_t)nranks;
    if (getrlimit(RLIMIT_NOFILE, &job.files) == 0 && job.files.rlim_cur < need) {
        struct rlimit more = job.files;
        more.rlim_cur = need < more.rlim_max ? need : more.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &more);
    }
}

/* If we were started without standard streams, open them: a pipe must not get their numbers. */
static void open_standard_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd < 3) {
    }
    if (fd >= 3) {
        close(fd);
    }
}

bool run_prepare(struct run_state *run)
{
    unsigned char bytes[16];
    unsigned char secret[32];
    open_standard_streams();
    if (kolo_random(bytes, sizeof bytes) != KOLO_OK ||
        kolo_random(secret, sizeof secret) != KOLO_OK) {
        (void)fprintf(stderr, "kolo run: %s\n", kolo_error_text());
        return false;
    }
    write_hex(bytes, sizeof bytes, job.job);
    write_hex(secret, sizeof secret, job.secret);
    job.torch_port = free_port();
    list_cpus();
    raise_file_limit(run->options.nranks);
    if (run->options.bind == RUN_BIND_CORE && run->options.nranks > job.ncpus) {
        (void)fprintf(stderr, "kolo run: --bind core: %d ranks, but only %d cpus are allowed\n",
                      run->options.nranks, job.ncpus);
        return false;
    }
    if (run->options.bind == RUN_BIND_AUTO) {
        run->options.bind = run->options.nranks <= job.ncpus ? RUN_BIND_CORE : RUN_BIND_NONE;
    }
    return true;
}

static bool is_piped(const struct run_options *options)
{
    return options->prefix == RUN_PREFIX_ALL ||
           (options->prefix == RUN_PREFIX_OTHERS && options->nranks > 1);
}

/* ---- in the child ---- */

static void set_number(const char *name, int value)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", value);
    (void)setenv(name, text, 1);
}

static void set_environment(int nranks, int rank)
{
    set_number("KOLO_RANK", rank);
    set_number("KOLO_NRANKS", nranks);
    set_number("KOLO_LOCAL_RANK", rank);
    set_number("KOLO_LOCAL_SIZE", nranks);
    (void)setenv("KOLO_JOB", job.job, 1);
    (void)setenv("KOLO_SECRET", job.secret, 1);
    /* The hardware queues of a GPU, as many as there are: a stream that waits for another rank
     * holds up what is behind it in its queue. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/* What torch.distributed's init_process_group() reads. The place where its ranks meet may be the
 * user's. */
static void set_torch_environment(int nranks, int rank)
{
    char port[16];
    set_number("RANK", rank);
    set_number("WORLD_SIZE", nranks);
    set_number("LOCAL_RANK", rank);
    set_number("LOCAL_WORLD_SIZE", nranks);
    if (job.torch_port > 0) {
        (void)snprintf(port, sizeof port, "%d", job.torch_port);
        (void)setenv("MASTER_ADDR", "127.0.0.1", 0);
        (void)setenv("MASTER_PORT", port, 0);
    }
}

static void bind_to_cpu(int rank)
{
    static unsigned long mask[MAX_CPUS / (8 * sizeof(long))];
    CPU_SET_S((size_t)job.cpus[rank], sizeof mask, (cpu_set_t *)mask);
    (void)sched_setaffinity(0, sizeof mask, (const cpu_set_t *)mask);
}

/* Run the program, or report errno through `report`, which closes on exec. Does not return. */
static void become_rank(const struct run_state *run, int rank, pid_t parent, const int streams[3],
                        int report)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* the parent died before it could signal us */
    }
    for (int fd = 0; fd < 3; fd++) {
        if (streams[fd] >= 0) {
            (void)dup2(streams[fd], fd);
        }
    }
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)setrlimit(RLIMIT_NOFILE, &job.files);
    set_environment(run->options.nranks, rank);
    set_torch_environment(run->options.nranks, rank);
    run_elastic_environment(run, rank);
    if (run->options.bind == RUN_BIND_CORE) {
        bind_to_cpu(rank);
    }
    (void)execvp(run->options.command[0], run->options.command);
    const int error = errno;
    (void)!write(report, &error, sizeof error);
    _exit(127);
}

/* ---- in the parent ---- */

/* Open a pipe or file for stream `fd` of the rank. *theirs is the rank's end (-1: it inherits our
 * stream), *ours is our end (-1: none). */
static int open_stream(const struct run_state *run, int rank, int fd, int *theirs, int *ours)
{
    int ends[2] = {-1, -1};
    *theirs = -1;
    *ours = -1;
    if (fd == 0 && rank > 0) {
        *theirs = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return *theirs < 0 ? errno : 0;
    }
    if (fd == 0 ? !isatty(0) : !is_piped(&run->options)) {
        return 0;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    *theirs = ends[fd == 0 ? 0 : 1];
    *ours = ends[fd == 0 ? 1 : 0];
    (void)fcntl(*ours, F_SETFL, O_NONBLOCK);
    return 0;
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

/* Fork. Returns 0 once the program runs, else the errno with which it failed. */
static int spawn_rank(struct run_state *run, int rank, const int theirs[3])
{
    int report[2];
    int error = 0;
    const pid_t parent = getpid();
    if (pipe2(report, O_CLOEXEC) != 0) {
        return errno;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        become_rank(run, rank, parent, theirs, report[1]);
    }
    const int fork_error = pid < 0 ? errno : 0;
    close(report[1]);
    if (pid > 0) {
        (void)setpgid(pid, pid); /* parent and child both call it */
        while (read(report[0], &error, sizeof error) < 0 && errno == EINTR) {
        }
    }
    close(report[0]);
    if (pid > 0 && error != 0) {
        (void)waitpid(pid, NULL, 0);
    } else if (pid > 0) {
        run->ranks[rank].pid = pid;
        run->nstarted = run->nstarted > rank ? run->nstarted : rank + 1;
    }
    return pid < 0 ? fork_error : error;
}

int run_start_rank(struct run_state *run, int rank)
{
    int theirs[3] = {-1, -1, -1};
    int ours[3] = {-1, -1, -1};
    int error = 0;
    for (int fd = 0; fd < 3 && error == 0; fd++) {
        error = open_stream(run, rank, fd, &theirs[fd], &ours[fd]);
    }
    if (error == 0) {
        error = spawn_rank(run, rank, theirs);
    }
    close_all(theirs, 3);
    if (error != 0) {
        close_all(ours, 3);
        return error;
    }
    if (rank == 0) {
        if (run->input.to >= 0) { /* of the rank that is replaced */
            close(run->input.to);
        }
        run->input.to = ours[0];
    }
    const bool shown = run->options.prefix == RUN_PREFIX_ALL || rank > 0;
    for (int i = 0; i < 2; i++) {
        run->ranks[rank].streams[i] =
            (struct run_stream){.fd = ours[i + 1], .to = i + 1, .prefix = shown ? rank : -1};
    }
    return 0;
}
