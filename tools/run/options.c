// SPDX-License-Identifier: Apache-2.0
/* The options of `kolo run`. */
#include "tools/run/run.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
        return set_number("-n", optarg, RUN_MOST_RANKS, &out->nranks);
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
        return run_elastic_range(optarg, RUN_MOST_RANKS, out) ||
               refuse_option("--elastic: \"%s\" is not MIN:MAX, two numbers of 1 to %d", optarg,
                             RUN_MOST_RANKS);
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

bool run_parse_options(int argc, char **argv, struct run_options *out, bool *help)
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
        (void)fputs(usage, stdout);
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
