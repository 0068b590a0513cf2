// SPDX-License-Identifier: Apache-2.0
/* `kolo run`: N local ranks of a program, as one command. When one rank fails, the others get
 * SIGTERM, then SIGKILL. Each rank is a process group, so its children end with it.
 *
 * A rank that ended stays a zombie until the job is over. Until then no other process can get its
 * number, so a signal to its group reaches no stranger. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 4096, GRACE_MS = 3000, STATUS_TIMEOUT = 124, STATUS_USAGE = 2 };

// clang-format off
static const char usage[] =
    "Usage: kolo run -n N [OPTIONS] COMMAND [ARGUMENTS]\n"
    "Start N ranks of COMMAND on this host, and end when they end.\n"
    "  -n, --ranks N      number of ranks\n"
    "      --mpi[=LIBMPI] with mpirun instead of -n: mpirun -n N kolo run --mpi COMMAND. The program's\n"
    "                     collectives of MPI run over kolo. LIBMPI is the path of the MPI library, of\n"
    "                     programs that are not linked with it (Python)\n"
    "      --elastic MIN:MAX\n"
    "                     instead of -n: start MAX ranks, and go on while at least MIN are left. A rank\n"
    "                     that fails is started again, and enters the running job. For programs that\n"
    "                     change their members, such as python -m kolo_train --elastic MIN:MAX\n"
    "      --max-restarts N\n"
    "                     of an elastic job, all ranks together (default: three for each rank)\n"
    "      --prefix       begin each line of output with its rank (default: all ranks but rank 0,\n"
    "                     which prints the tables)\n"
    "      --no-prefix    ranks write to standard output and error themselves (also with -n 1)\n"
    "      --timeout S    end the job after S seconds, with status 124\n"
    "      --bind core    rank i runs on the i-th allowed CPU (default if there are enough CPUs)\n"
    "      --bind none    ranks run on all allowed CPUs (default if there are more ranks than CPUs)\n"
    "  -h, --help         print this help\n"
    "Only rank 0 reads standard input. A rank fails if its status is not 0 or a signal ends it. The\n"
    "other ranks then get SIGTERM, and SIGKILL after 3 s. The exit status is that of the first failed\n"
    "rank, or 128 + the number of its signal. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the\n"
    "ranks; a second signal kills them.\n";
// clang-format on

/* ---- options -----------------------------------------------------------------------------------
 */

static bool refuse_option(const char *format, ...) KOLO_PRINTF(1, 2);
static bool refuse_option(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fputs("kolo run: ", stderr);
    (void)vfprintf(stderr, format, args);
    (void)fputs(" (kolo run --help)\n", stderr);
    va_end(args);
    return false;
}

static bool set_number(const char *option, const char *text, long hi, int *out)
{
    long value = 0;
    if (!kolo_parse_int(text, 1, hi, &value)) {
        return refuse_option("%s: \"%s\" is not a number of 1 to %ld", option, text, hi);
    }
    *out = (int)value;
    return true;
}

static bool set_bind(const char *text, enum run_bind *out)
{
    if (strcmp(text, "core") != 0 && strcmp(text, "none") != 0) {
        return refuse_option("--bind: \"%s\" is neither core nor none", text);
    }
    *out = text[0] == 'c' ? RUN_BIND_CORE : RUN_BIND_NONE;
    return true;
}

enum {
    OPTION_PREFIX = 256,
    OPTION_NO_PREFIX,
    OPTION_TIMEOUT,
    OPTION_BIND,
    OPTION_MPI,
    OPTION_ELASTIC,
    OPTION_RESTARTS
};

static bool set_option(int option, struct run_options *out, bool *help)
{
    switch (option) {
    case 'n':
        return set_number("-n", optarg, MAX_RANKS, &out->nranks);
    case OPTION_PREFIX:
        out->prefix = RUN_PREFIX_ALL;
        return true;
    case OPTION_NO_PREFIX:
        out->prefix = RUN_PREFIX_NONE;
        return true;
    case OPTION_TIMEOUT:
        return set_number("--timeout", optarg, 1000000, &out->timeout_s);
    case OPTION_BIND:
        return set_bind(optarg, &out->bind);
    case OPTION_ELASTIC:
        return run_elastic_range(optarg, MAX_RANKS, out) ||
               refuse_option("--elastic: \"%s\" is not MIN:MAX, two numbers of 1 to %d", optarg,
                             MAX_RANKS);
    case OPTION_RESTARTS:
        return set_number("--max-restarts", optarg, 1000000, &out->max_restarts);
    case OPTION_MPI:
        out->mpi = optarg != NULL ? optarg : "";
        return true;
    case 'h':
        *help = true;
        return true;
    default:
        return false;
    }
}

static bool parse_options(int argc, char **argv, struct run_options *out, bool *help)
{
    static const struct option longs[] = {
        {"ranks", required_argument, NULL, 'n'},
        {"prefix", no_argument, NULL, OPTION_PREFIX},
        {"no-prefix", no_argument, NULL, OPTION_NO_PREFIX},
        {"timeout", required_argument, NULL, OPTION_TIMEOUT},
        {"bind", required_argument, NULL, OPTION_BIND},
        {"mpi", optional_argument, NULL, OPTION_MPI},
        {"elastic", required_argument, NULL, OPTION_ELASTIC},
        {"max-restarts", required_argument, NULL, OPTION_RESTARTS},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int option;
    *out = (struct run_options){0};
    optind = 0;
    while ((option = getopt_long(argc, argv, "+:n:h", longs, NULL)) != -1) {
        if (option == ':') {
            return refuse_option("%s needs a value", argv[optind - 1]);
        }
        if (option == '?') {
            return refuse_option("unknown option %s", argv[optind - 1]);
        }
        if (!set_option(option, out, help)) {
            return false;
        }
    }
    out->command = argv + optind;
    if (*help) {
        return true;
    }
    if (out->mpi != NULL && out->nranks != 0) {
        return refuse_option("--mpi: mpirun starts the ranks: mpirun -n %d kolo run --mpi COMMAND",
                             out->nranks);
    }
    if (out->mpi == NULL && out->nranks == 0) {
        return refuse_option("how many ranks? -n N");
    }
    if (out->max_restarts != 0 && out->min_ranks == 0) {
        return refuse_option("--max-restarts is for --elastic MIN:MAX");
    }
    out->max_restarts = out->max_restarts != 0 ? out->max_restarts : 3 * out->nranks;
    return optind < argc || refuse_option("which command?");
}

/* ---- signals -----------------------------------------------------------------------------------
 */

/* The state that a handler may use. groups[] is written before a signal can need it, and does not
 * shrink until the job is over. */
static struct {
    volatile sig_atomic_t caught, ngroups;
    pid_t groups[MAX_RANKS];
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
    if (first >= 0 && !job->ending && shared.caught == 0 && run_elastic_goes_on(&job->run)) {
        replace_failed(job);
    } else if (first >= 0 && !job->ending) {
        report_failure(job, first);
        end_rest(job, status_of(job->run.ranks[first].status));
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
    if (!parse_options(argc, argv, &job.run.options, &help)) {
        return STATUS_USAGE;
    }
    if (help) {
        (void)fputs(usage, stdout);
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
