// SPDX-License-Identifier: Apache-2.0
/* `kolo run`: N local ranks of a program, as one command. When one rank fails, the others get
 * SIGTERM, then SIGKILL. Each rank is a process group, so its children end with it.
 *
 * A rank that ended stays a zombie until the job is over. Until then no other process can get its
 * number, so a signal to its group reaches no stranger. */
#include "tools/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE_MS = 3000, STATUS_TIMEOUT = 124, STATUS_USAGE = 2 };

/* ---- signals -----------------------------------------------------------------------------------
 */

/* The state that a handler may use. groups[] is written before a signal can need it, and does not
 * shrink until the job is over. */
static struct {
    volatile sig_atomic_t caught, ngroups;
    pid_t groups[RUN_MOST_RANKS];
    int wake[2]; /* a pipe that wakes the main loop */
} shared;

static void signal_groups(int number)
{
    for (int i = 0; i < shared.ngroups; i++) {
        (void)kill(-shared.groups[i], number);
    }
}

static void wake_up(void)
{
    (void)!write(shared.wake[1], "", 1);
}

static void on_wake(int number)
{
    const int saved = errno;
    (void)number;
    wake_up();
    errno = saved;
}

static void on_end(int number)
{
    const int saved = errno;
    signal_groups(shared.caught != 0 ? SIGKILL : number);
    signal_groups(SIGCONT); /* a stopped rank would not notice */
    shared.caught = number;
    wake_up();
    errno = saved;
}

/* The ranks are not in the terminal's foreground group, so stop them and continue them here. */
static void on_stop(int number)
{
    const int saved = errno;
    signal_groups(number);
    (void)raise(SIGSTOP);
    signal_groups(SIGCONT);
    wake_up();
    errno = saved;
}

static bool catch_signals(void)
{
    static const struct {
        int number;
        void (*handler)(int);
    } rows[] = {{SIGCHLD, on_wake}, {SIGCONT, on_wake}, {SIGINT, on_end},  {SIGTERM, on_end},
                {SIGHUP, on_end},   {SIGQUIT, on_end},  {SIGTSTP, on_stop}};
    if (pipe2(shared.wake, O_CLOEXEC | O_NONBLOCK) != 0) {
        (void)fprintf(stderr, "kolo run: pipe: %s\n", strerror(errno));
        return false;
    }
    for (size_t i = 0; i < KOLO_LENGTH(rows); i++) {
        struct sigaction action = {.sa_handler = rows[i].handler};
        struct sigaction before;
        sigemptyset(&action.sa_mask);
        (void)sigaction(rows[i].number, NULL, &before);
        if (before.sa_handler != SIG_IGN || rows[i].number == SIGCHLD) { /* keep nohup's SIG_IGN */
            (void)sigaction(rows[i].number, &action, NULL);
        }
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* to see a group's end even if init does not reap */
    return true;
}

/* ---- the job -----------------------------------------------------------------------------------
 */

struct run_job {
    struct run_state run;
    int status;         /* of the first failure */
    bool ending;        /* the other ranks got SIGTERM */
    double kill_us;     /* when to send SIGKILL; 0: it was sent */
    double deadline_us; /* of the whole job; 0: none */
};

static void end_rest(struct run_job *job, int status)
{
    if (job->ending) {
        return;
    }
    job->ending = true;
    job->status = status;
    job->kill_us = kolo_now_us() + GRACE_MS * 1e3;
    signal_groups(SIGTERM);
    signal_groups(SIGCONT); /* a stopped rank would not notice */
}

static int status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* Report how a rank failed, after its own output. A death by a signal that we passed on is no
 * failure: the user asked for it. */
static void report_failure(struct run_job *job, int rank)
{
    struct run_rank *failed = &job->run.ranks[rank];
    const int number = WIFSIGNALED(failed->status) ? WTERMSIG(failed->status) : 0;
    run_drain(&job->run, failed);
    if (number != 0 && number == shared.caught) {
        return;
    }
    if (number != 0) {
        (void)fprintf(stderr, "kolo run: rank %d (pid %d) was killed by signal %d (%s)%s\n", rank,
                      (int)failed->pid, number, strsignal(number),
                      WCOREDUMP(failed->status) ? ", core dumped" : "");
    } else {
        (void)fprintf(stderr, "kolo run: rank %d (pid %d) exited with status %d\n", rank,
                      (int)failed->pid, WEXITSTATUS(failed->status));
    }
}

static bool is_rank(const struct run_state *run, pid_t pid)
{
    for (int i = 0; i < run->nstarted; i++) {
        if (run->ranks[i].pid == pid) {
            return true;
        }
    }
    return false;
}

/* Reap processes whose parent, a rank, is gone: they are our children now. They are reaped here,
 * if the kernel reports them before a rank that has ended, and at the end of the job. */
static void reap_orphans(const struct run_state *run)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 ||
            is_rank(run, info.si_pid)) {
            return;
        }
        (void)waitpid(info.si_pid, NULL, 0);
    }
}

/* Report the ranks of an elastic job that failed, and replace them. */
static void replace_failed(struct run_job *job)
{
    for (int i = 0; i < job->run.nstarted; i++) {
        const struct run_rank *rank = &job->run.ranks[i];
        if (!rank->exited || rank->status == 0 || rank->given_up) {
            continue;
        }
        report_failure(job, i);
        const pid_t old = run_elastic_replace(&job->run, i);
        if (old != 0) {
            shared.groups[i] = rank->pid; /* before the old number may become a stranger's */
            (void)waitpid(old, NULL, 0);
        }
    }
}

/* A rank has failed. An elastic job goes on if it can, all others end. */
static void follow_failure(struct run_job *job, int rank)
{
    char why[RUN_WHY_BYTES];
    const bool given_up = run_elastic_given_up(&job->run, why);
    if (!given_up && shared.caught == 0 && run_elastic_goes_on(&job->run)) {
        replace_failed(job);
        return;
    }
    report_failure(job, rank);
    if (given_up) {
        (void)fprintf(stderr, "kolo run: %s\n", why);
    }
    end_rest(job, given_up ? EXIT_FAILURE : status_of(job->run.ranks[rank].status));
}

/* Note the ranks that ended. Among failures seen at once, a signal is likelier the cause than an
 * exit status: ranks that lose a peer exit with a status. */
static void look_for_ends(struct run_job *job)
{
    int first = -1;
    for (int i = 0; i < job->run.nstarted; i++) {
        struct run_rank *rank = &job->run.ranks[i];
        siginfo_t info = {0};
        if (rank->exited ||
            waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0) {
            continue;
        }
        rank->exited = true;
        rank->status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0)
                                                  : W_EXITCODE(0, info.si_status);
        rank->status |= info.si_code == CLD_DUMPED ? WCOREFLAG : 0;
        job->run.nexited++;
        const bool is_signal = WIFSIGNALED(rank->status);
        if (rank->status != 0 &&
            (first < 0 || (is_signal && !WIFSIGNALED(job->run.ranks[first].status)))) {
            first = i;
        }
    }
    if (first >= 0 && !job->ending) {
        follow_failure(job, first);
    }
}

static void look_at_clock(struct run_job *job)
{
    const double now_us = kolo_now_us();
    if (!job->ending && job->deadline_us > 0 && now_us >= job->deadline_us) {
        (void)fprintf(stderr, "kolo run: %d of %d ranks had not ended after %d s\n",
                      job->run.nstarted - job->run.nexited, job->run.nstarted,
                      job->run.options.timeout_s);
        end_rest(job, STATUS_TIMEOUT);
    }
    if (job->ending && job->kill_us > 0 && now_us >= job->kill_us) {
        signal_groups(SIGKILL);
        job->kill_us = 0;
    }
    if (job->run.output_is_closed) {
        end_rest(job, 128 + SIGPIPE);
    }
}

static int wait_ms(const struct run_job *job)
{
    const double next_us = job->ending ? job->kill_us : job->deadline_us;
    const double left_ms = (next_us - kolo_now_us()) / 1e3;
    if (next_us <= 0) {
        return -1;
    }
    return left_ms < 0 ? 0 : (int)left_ms + 1;
}

static void pump_and_reap(struct run_job *job, int timeout_ms)
{
    char bytes[64];
    run_pump(&job->run, shared.wake[0], timeout_ms);
    while (read(shared.wake[0], bytes, sizeof bytes) > 0) {
    }
    reap_orphans(&job->run);
    look_for_ends(job);
    look_at_clock(job);
}

static bool start_all(struct run_job *job)
{
    struct run_state *run = &job->run;
    for (int rank = 0; rank < run->options.nranks; rank++) {
        const int error = run_start_rank(run, rank);
        if (error != 0) {
            (void)fprintf(stderr, "kolo run: cannot start rank %d, %s: %s\n", rank,
                          run->options.command[0], strerror(error));
            end_rest(job, error == ENOENT ? 127 : 126);
            return false;
        }
        shared.groups[rank] = run->ranks[rank].pid;
        shared.ngroups = rank + 1;
        if (shared.caught != 0) { /* this rank has missed the signal */
            (void)kill(-run->ranks[rank].pid, shared.caught);
        }
    }
    return true;
}

/* End the processes that ranks started and left behind. A group exists as long as it has members,
 * even after its leader is reaped. So its number belongs to no stranger while the group exists. */
static void end_groups(struct run_job *job)
{
    const double kill_us = kolo_now_us() + GRACE_MS * 1e3;
    const int count = shared.ngroups;
    int left = count;
    signal_groups(SIGTERM);
    shared.ngroups = 0;
    for (int i = 0; i < count; i++) {
        (void)waitpid(shared.groups[i], NULL, 0);
    }
    while (left > 0) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        left = 0;
        for (int i = 0; i < count; i++) {
            const bool is_over = kolo_now_us() >= kill_us;
            if (shared.groups[i] != 0 && kill(-shared.groups[i], is_over ? SIGKILL : 0) != 0) {
                shared.groups[i] = 0;
            }
            left += shared.groups[i] != 0;
        }
        if (left > 0) {
            run_pump(&job->run, -1, 2);
        }
    }
}

static int run_job(struct run_job *job)
{
    const int timeout_s = job->run.options.timeout_s;
    if (timeout_s > 0) {
        job->deadline_us = kolo_now_us() + timeout_s * 1e6;
    }
    (void)start_all(job);
    while (job->run.nexited < job->run.nstarted) {
        pump_and_reap(job, wait_ms(job));
    }
    end_groups(job);
    run_finish_output(&job->run);
    return job->status;
}

int kolo_tool_run(int argc, char **argv)
{
    struct run_job job = {0};
    bool help = false;
    if (!run_parse_options(argc, argv, &job.run.options, &help)) {
        return STATUS_USAGE;
    }
    if (help) {
        return 0;
    }
    if (job.run.options.mpi != NULL) {
        return run_mpi(&job.run.options);
    }
    if (!run_prepare(&job.run)) {
        return STATUS_USAGE;
    }
    job.run.input.to = -1;
    job.run.ranks = calloc((size_t)job.run.options.nranks, sizeof *job.run.ranks);
    if (job.run.ranks == NULL || !catch_signals()) {
        free(job.run.ranks);
        return 1;
    }
    const bool elastic = job.run.options.min_ranks > 0;
    const int status = !elastic || run_elastic_prepare() ? run_job(&job) : 1;
    run_elastic_end();
    free(job.run.ranks);
    return status;
}
