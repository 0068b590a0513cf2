// SPDX-License-Identifier: Apache-2.0
/* `kolo tune`: its options, and the start of the ranks that measure. If a launcher started this
 * process, its ranks measure. Else a `kolo run` starts ranks for each number of ranks. */
#include "tools/tune/tune.h"

#include "boot/launch.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 4096, STATUS_USAGE = 2 };

// clang-format off
static const char usage[] =
    "Usage: kolo tune [-n RANKS[,RANKS...]] [-c COLLECTIVES] [-b BYTES] [-e BYTES] [OPTIONS]\n"
    "       kolo tune --explain COLLECTIVE BYTES [-n RANKS] [--shared]\n"
    "Measure which algorithm is fastest for each size, and write a table of rules. A rule is kept if it\n"
    "beats the predicted choice by more than 5 % and two standard deviations. Communicators on this\n"
    "machine then use the table. Under kolo run, mpirun, torchrun or srun it measures with their ranks.\n"
    "  -n, --ranks LIST     numbers of ranks to start (default: 2, 4, 8 ... and all cores)\n"
    "  -c, --colls LIST     collectives: allreduce, broadcast, ... (default: all)\n"
    "  -b, --begin BYTES    smallest size per rank (8)\n"
    "  -e, --end BYTES      largest size per rank (16M)\n"
    "  -f, --factor N       each size is N times the last (4)\n"
    "  -t, --time SECONDS   time for the whole run (50)\n"
    "  -o, --out FILE       table to write (default: KOLO_TUNE_FILE, or the table of this machine)\n"
    "  -d, --dry-run        write no table\n"
    "      --csv FILE       append every measured time to FILE\n"
    "      --explain        list the candidates of one call: predicted time, measured time, and the\n"
    "                       reason for the choice (also by KOLO_ALGO, KOLO_TUNE_FILE and plug-ins)\n"
    "      --shared         explain a call on memory of kolo_mem_alloc()\n"
    "  -h, --help           print this help\n"
    "The report lists the new rules, the sizes where another collective or a larger size is faster, and\n"
    "the regret: (chosen - best) / best, measured in rounds that were held out of the choice.\n";
// clang-format on

/* ---- options ---- */

static bool refuse_option(const char *format, ...) KOLO_PRINTF(1, 2);
static bool refuse_option(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fputs("kolo tune: ", stderr);
    (void)vfprintf(stderr, format, args);
    (void)fputs(" (kolo tune --help)\n", stderr);
    va_end(args);
    return false;
}

static bool set_ranks(const char *text, struct tune_options *o)
{
    o->njobs = 0;
    for (const char *at = text;; at++) {
        char word[16];
        long value = 0;
        const size_t len = strcspn(at, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)kolo_min(len, 15), at);
        if (!kolo_parse_int(word, 2, MAX_RANKS, &value) || o->njobs == TUNE_SIZES) {
            return refuse_option("-n: \"%s\" is no list of numbers of 2 to %d", text, MAX_RANKS);
        }
        o->nranks[o->njobs++] = (int)value;
        at += len;
        if (*at == '\0') {
            return true;
        }
    }
}

static bool set_colls(const char *text, struct tune_options *o)
{
    struct kolo_text allowed = {0};
    enum kolo_coll coll = KOLO_COLL_ALL_REDUCE;
    o->colls = 0;
    for (const char *at = text;; at++) {
        const size_t len = strcspn(at, ",");
        if (!kolo_coll_find(at, len, &coll)) {
            break;
        }
        o->colls |= 1u << coll;
        at += len;
        if (*at == '\0') {
            return true;
        }
    }
    kolo_coll_list(&allowed, " ");
    (void)refuse_option("\"%s\" is no list of collectives; there are %s", text, allowed.chars);
    kolo_text_free(&allowed);
    return false;
}

static bool set_bytes(const char *option, const char *text, size_t *out)
{
    if (!kolo_parse_bytes(text, out) || *out < 4 || *out % 4 != 0 || *out > (size_t)1 << 40) {
        return refuse_option("%s: \"%s\" is no number of bytes in whole float32 elements", option,
                             text);
    }
    return true;
}

static bool set_number(const char *option, const char *text, long low, long high, int *out)
{
    long value = 0;
    if (!kolo_parse_int(text, low, high, &value)) {
        return refuse_option("%s: \"%s\" is not a number of %ld to %ld", option, text, low, high);
    }
    *out = (int)value;
    return true;
}

enum { OPTION_CSV = 256, OPTION_EXPLAIN, OPTION_SHARED, OPTION_BAR };

static bool set_option(int option, struct tune_options *o)
{
    switch (option) {
    case 'n':
        return set_ranks(optarg, o);
    case 'c':
        return set_colls(optarg, o);
    case 'b':
        return set_bytes("-b", optarg, &o->min_bytes);
    case 'e':
        return set_bytes("-e", optarg, &o->max_bytes);
    case 'f':
        return set_number("-f", optarg, 2, 1 << 20, &o->factor);
    case 't':
        return set_number("--time", optarg, 1, 100000, &o->time_s);
    case 'o':
        o->out = optarg;
        return true;
    case OPTION_CSV:
        o->csv = optarg;
        return true;
    case OPTION_EXPLAIN:
        o->explain = true;
        return set_colls(optarg, o);
    case 'd':
        o->dry_run = true;
        return true;
    case OPTION_SHARED:
        o->shared = true;
        return true;
    case OPTION_BAR:
        o->bar = true;
        return true;
    default:
        o->help = true;
        return true;
    }
}

/* `--explain allreduce 1M`: the size is the remaining argument. */
static bool finish_explain(struct tune_options *o, int argc, char **argv, bool timed)
{
    if ((o->colls & (o->colls - 1)) != 0) {
        return refuse_option("--explain wants one collective");
    }
    const bool sized = o->colls != 1u << KOLO_COLL_BARRIER;
    if (optind + (sized ? 1 : 0) != argc) {
        return refuse_option("--explain wants a collective%s",
                             sized ? " and its bytes, such as 1M" : "");
    }
    if (sized && !set_bytes("--explain", argv[optind], &o->explain_bytes)) {
        return false;
    }
    o->min_bytes = o->max_bytes = o->explain_bytes;
    o->time_s = timed ? o->time_s : 1;
    if (o->njobs > 1) {
        return refuse_option("--explain wants one number of ranks");
    }
    if (o->shared && o->max_bytes < KOLO_ENTRY_BYTES) {
        return refuse_option("calls of less than %d bytes do not look at where buffers lie",
                             KOLO_ENTRY_BYTES);
    }
    return true;
}

static bool parse_options(int argc, char **argv, struct tune_options *o)
{
    static const struct option longs[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"colls", required_argument, NULL, 'c'},
                                          {"begin", required_argument, NULL, 'b'},
                                          {"end", required_argument, NULL, 'e'},
                                          {"factor", required_argument, NULL, 'f'},
                                          {"time", required_argument, NULL, 't'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"dry-run", no_argument, NULL, 'd'},
                                          {"csv", required_argument, NULL, OPTION_CSV},
                                          {"explain", required_argument, NULL, OPTION_EXPLAIN},
                                          {"shared", no_argument, NULL, OPTION_SHARED},
                                          {"bar", no_argument, NULL, OPTION_BAR},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    bool timed = false;
    int option;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":n:c:b:e:f:t:o:dh", longs, NULL)) != -1) {
        if (option == ':' || option == '?') {
            return option == ':' ? refuse_option("%s needs a value", argv[optind - 1])
                                 : refuse_option("unknown option %s", argv[optind - 1]);
        }
        timed = timed || option == 't';
        if (!set_option(option, o)) {
            return false;
        }
    }
    if (o->help) {
        return true;
    }
    if (o->explain) {
        return finish_explain(o, argc, argv, timed);
    }
    if (optind < argc) {
        return refuse_option("unexpected argument \"%s\"", argv[optind]);
    }
    if (o->shared || o->min_bytes > o->max_bytes) {
        return refuse_option(o->shared ? "--shared goes with --explain" : "-b is more than -e");
    }
    return true;
}

/* ---- starting ranks ---- */

static int count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;
}

/* Powers of two, and all cores. */
static void default_ranks(struct tune_options *o)
{
    const int all = count_cores();
    for (int n = 2; o->njobs == 0 || (n <= all && !o->explain); n *= 2) {
        o->nranks[o->njobs++] = n;
    }
    if (all > o->nranks[o->njobs - 1] && !o->explain) {
        o->nranks[o->njobs++] = all;
    }
}

/* Run this program under `kolo run`, with our options except -n, and a share of the time. Does not
 * return. */
static void become_job(int argc, char **argv, const struct tune_options *o, int nranks)
{
    char self[4096], number[16], seconds[16];
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    char **words = calloc((size_t)argc + 16, sizeof *words);
    int count = 0;
    if (len < 0 || words == NULL) {
        (void)fprintf(stderr, "kolo tune: cannot find this program: %s\n", strerror(errno));
        _exit(1);
    }
    self[len] = '\0';
    (void)snprintf(number, sizeof number, "%d", nranks);
    const int share_s = o->time_s / o->njobs;
    (void)snprintf(seconds, sizeof seconds, "%d", share_s > 0 ? share_s : 1);
    char *head[] = {self, "run", "-n", number, "--", self, "tune"};
    for (size_t i = 0; i < KOLO_LENGTH(head); i++) {
        words[count++] = head[i];
    }
    for (int i = 1; i < argc; i++) {
        words[count++] = argv[i];
    }
    words[count++] = "--time";
    words[count++] = seconds;
    words[count++] = isatty(2) ? "--bar" : NULL;
    (void)execv(self, words);
    (void)fprintf(stderr, "kolo tune: cannot start %s: %s\n", self, strerror(errno));
    _exit(1);
}

/* Run a job and wait for it. Interrupts reach the job too, and it then ends its ranks. */
static int run_job(int argc, char **argv, const struct tune_options *o, int nranks)
{
    int status = 0;
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* kolo run passes it on */
        if (getppid() != parent) {
            _exit(1);
        }
        become_job(argc, argv, o, nranks);
    }
    if (pid < 0) {
        (void)fprintf(stderr, "kolo tune: cannot fork: %s\n", strerror(errno));
        return 1;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_jobs(int argc, char **argv, const struct tune_options *o)
{
    int status = 0;
    (void)signal(SIGINT, SIG_IGN);
    for (int i = 0; i < o->njobs && status == 0; i++) {
        (void)fflush(stdout);
        status = run_job(argc, argv, o, o->nranks[i]);
    }
    return status;
}

int kolo_tool_tune(int argc, char **argv)
{
    struct tune_options o = {.colls = (1u << KOLO_COLLS) - 1,
                             .min_bytes = 8,
                             .max_bytes = (size_t)16 << 20,
                             .factor = 4,
                             .time_s = 50};
    struct kolo_launch launch;
    if (!parse_options(argc, argv, &o)) {
        return STATUS_USAGE;
    }
    if (o.help) {
        (void)fputs(usage, stdout);
        return 0;
    }
    if (kolo_launch_detect(&launch) != KOLO_OK) {
        (void)fprintf(stderr, "kolo tune: %s\n", kolo_error_text());
        return 1;
    }
    if (launch.nranks > 1) {
        return tune_rank_main(&o);
    }
    if (o.njobs == 0) {
        default_ranks(&o);
    }
    return run_jobs(argc, argv, &o);
}
