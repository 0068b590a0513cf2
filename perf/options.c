// SPDX-License-Identifier: Apache-2.0
/* The command line: the letters and long names of nccl-tests, and a few of kolo's own. A bad option
 * is an error that names the option, its value and the allowed values. So a sweep never measures
 * another thing than the user asked for. One table gives parsing, limits and help. */
#include "perf.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 4096 }; /* of one process */
enum { LONG_ONLY = 256, DETERMINISTIC = LONG_ONLY, SHARED, VARY, STREAM, SPREAD, STYLE };
/* SWITCH: 0 or 1; without a value it is 1. LACKING: the values lo to hi, with which nccl-tests does
 * the same as kolo; the help says why there are no others. */
enum perf_kind {
    WHOLE,
    SWITCH,
    LACKING,
    BYTES,
    REAL,
    FLAG,
    TYPE,
    OP,
    ROOT,
    TEXT,
    NCCL_STYLE,
    HELP
};

struct row {
    int letter;
    enum perf_kind kind;
    const char *name;
    size_t at;   /* offset in struct perf_options */
    long lo, hi; /* WHOLE, LACKING, REAL */
    const char *arg, *help;
};
#define AT(member) offsetof(struct perf_options, member)
static const struct row rows[] = {
    {'b', BYTES, "minbytes", AT(min_bytes), 0, 0, "SIZE",
     "smallest size; suffix K, M or G, as in 8, 1.5M or 32MB (32M)"},
    {'e', BYTES, "maxbytes", AT(max_bytes), 0, 0, "SIZE", "largest size (32M)"},
    {'i', BYTES, "stepbytes", AT(step_bytes), 0, 0, "SIZE", "fixed step between sizes (1M)"},
    {'f', WHOLE, "stepfactor", AT(step_factor), 0, 1024, "N",
     "instead of --stepbytes: each size is N times the last; 0 and 1: none"},
    {'n', WHOLE, "iters", AT(iters), 1, 1000000000, "N", "timed calls (20)"},
    {'w', WHOLE, "warmup_iters", AT(warmup), 0, 1000000000, "N",
     "untimed calls before them; one more is always made (1)"},
    {'m', WHOLE, "agg_iters", AT(agg), 1, 1000000, "N", "calls in one group (1)"},
    {'N', WHOLE, "run_cycles", AT(cycles), 0, 1000000000, "N",
     "runs of the whole sweep; 0: endless (1)"},
    {'c', WHOLE, "check", AT(checks), 0, 1000000000, "N", "checked calls of each size (1)"},
    {'o', OP, "op", 0, 0, 0, "OP",
     "sum prod min max avg mulsum land lor lxor band bor bxor minloc maxloc, or all (sum)"},
    {'d', TYPE, "datatype", 0, 0, 0, "TYPE",
     "int8 uint8 int16 uint16 int32 uint32 int64 uint64 half bfloat16 float double f8e4m3 f8e5m2\n"
     "                               bool i32_i32 i64_i64 f32_i32 f64_i32, or all (float)"},
    {'r', ROOT, "root", 0, 0, INT_MAX, "RANK", "root, or all (0)"},
    {'t', WHOLE, "nthreads", AT(threads), 1, RANKS_MAX, "N",
     "threads of each process, each a rank (1)"},
    {'g', WHOLE, "ngpus", AT(gpus), 1, RANKS_MAX, "N",
     "ranks of each such thread, each a thread as well (1)"},
    {'p', SWITCH, "parallel_init", AT(parallel_init), 0, 1, "0|1",
     "1: the threads of one process join on their own, as processes do (0)"},
    {'z', WHOLE, "blocking", AT(blocking), 0, 3, "0..3",
     "1: wait for each call, then a barrier, which counts; 2: without a barrier;\n"
     "                               3: time calls one by one, each after a barrier, which does\n"
     "                               not count (0)"},
    {'a', WHOLE, "average", AT(average), 0, 3, "0..3",
     "time of: 0 rank 0, 1 the average, 2 min, 3 max of all ranks (1)"},
    {'C', SWITCH, "report_cputime", AT(cpu_time), 0, 1, "0|1",
     "1: the time until the calls are issued; see --stream (0)"},
    {'S', SWITCH, "report_timestamps", AT(timestamps), 0, 1, "0|1",
     "1: end each row with the date and time (0)"},
    {'R', WHOLE, "local_register", AT(registered), 0, 2, "0..2",
     "1: register the buffers; 2: as --shared (0)"},
    {'u', WHOLE, "unalign", AT(unalign), 0, 1 << 20, "N",
     "use the buffers from their N-th element on (0)"},
    {'y', SWITCH, "stream_null", AT(no_stream), 0, 1, "0|1",
     "1: no stream, which is the default; not with --stream (0)"},
    {'T', WHOLE, "timeout", AT(timeout_s), 0, INT_MAX / 1000, "SECONDS",
     "longest wait for a peer; 0: kolo's own"},
    {'J', TEXT, "output_file", AT(json), 0, 0, "FILE", "also write the results as JSON"},
    {'I', SWITCH, "per_iter_timing", AT(per_call), 0, 1, "0|1",
     "1: add statistics of single calls, all of them with -J (0)"},
    {'K', WHOLE, "per_iter_skip", AT(skipped), 0, 1000000000, "N",
     "leave the first N calls out of these statistics (0)"},
    {STREAM, FLAG, "stream", AT(stream), 0, 0, NULL, "queue the calls on a stream, wait once"},
    {DETERMINISTIC, FLAG, "deterministic", AT(deterministic), 0, 0, NULL,
     "always sum in rank order"},
    {SHARED, FLAG, "shared", AT(shared), 0, 0, NULL, "take buffers from kolo_mem_alloc()"},
    {VARY, FLAG, "vary", AT(vary), 0, 0, NULL,
     "rewrite the inputs before each timed call, untimed; implies -z 3"},
    {SPREAD, REAL, "spread", AT(spread), 0, 1, "0..1",
     "alltoallv: 0 equal blocks, 1 sizes grow with distance (1)"},
    {'G', LACKING, "cudagraph", AT(neutral), 0, 0, "0", "calls on host memory have no graph"},
    {'x', LACKING, "cta_policy", AT(neutral), 0, 0, "0", "processors have no CTAs"},
    {'D', LACKING, "device_implementation", AT(neutral), 0, 0, "0",
     "kolo has no kernels to choose"},
    {'V', LACKING, "device_cta_count", AT(neutral), 1, 128, "N", "no effect, as without -D (16)"},
    {'M', LACKING, "memory", AT(neutral), 0, 0, "0", "no GPU memory is used"},
    {STYLE, NCCL_STYLE, "style", 0, 0, 0, "nccl", "print the table in the form of nccl-tests"},
    {'h', HELP, "help", 0, 0, 0, NULL, "print this help"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Take an option's value. False: the value is not allowed. */
static bool take(const struct row *row, const char *value, struct perf_options *options)
{
    void *member = (char *)options + row->at;
    switch (row->kind) {
    case WHOLE:
    case SWITCH:
    case LACKING:
        return perf_whole_of(value, row->lo, row->hi, member);
    case BYTES:
        return perf_bytes_of(value, member);
    case REAL:
        return perf_real_of(value, row->lo, row->hi, member);
    case FLAG:
        *(bool *)member = true;
        return true;
    case TYPE:
        return perf_types_of(value, &options->types);
    case OP:
        return perf_ops_of(value, &options->ops);
    case ROOT:
        return perf_root_of(value, &options->root);
    case TEXT:
        *(const char **)member = value;
        return *value != '\0';
    case NCCL_STYLE:
        return strcmp(value, "nccl") == 0;
    default:
        return true;
    }
}

static void print_allowed(const struct row *row, FILE *err)
{
    switch (row->kind) {
    case WHOLE:
        fprintf(err, "a whole number from %ld to %ld", row->lo, row->hi);
        break;
    case LACKING:
        fprintf(err, row->lo == row->hi ? "%ld" : "%ld to %ld", row->lo, row->hi);
        fprintf(err, ": %s", row->help);
        break;
    case BYTES:
        fprintf(err, "bytes, with K, M or G after the number, up to 1048576G");
        break;
    case REAL:
        fprintf(err, "a number from %ld to %ld", row->lo, row->hi);
        break;
    case ROOT:
        fprintf(err, "a rank or all");
        break;
    case TEXT:
        fprintf(err, "the name of a file");
        break;
    case TYPE:
    case OP:
        fprintf(err, "one of");
        for (int t = 0; row->kind == TYPE && t < KOLO_TYPES; t++) {
            fprintf(err, " %s", perf_type_name((enum kolo_type)t));
        }
        for (uint32_t op = 0; row->kind == OP && op < PERF_OP_NONE; op++) {
            fprintf(err, " %s", perf_op_name(op));
        }
        fprintf(err, " all");
        break;
    default:
        fprintf(err, "%s", row->arg);
    }
}

static void print_option(const struct row *row, FILE *text)
{
    if (row->letter < LONG_ONLY) {
        fprintf(text, "-%c/", row->letter);
    }
    fprintf(text, "--%s", row->name);
}

static void print_help(const struct perf_collective *collective, FILE *text)
{
    fprintf(
        text,
        "usage: %s [options]\n"
        "Each process that kolo run, mpirun or torchrun starts is a rank. With -t and -g each of "
        "its\nthreads is one.\n\n",
        collective->name);
    for (size_t r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        char left[64];
        const bool lettered = row->letter < LONG_ONLY;
        snprintf(left, sizeof(left), "%c%c%s--%s %s", lettered ? '-' : ' ',
                 lettered ? row->letter : ' ', lettered ? "," : " ", row->name,
                 row->arg != NULL ? row->arg : "");
        const bool only = row->kind == LACKING && row->lo == row->hi;
        fprintf(text, "  %-28s %s%s\n", left, only ? "only this: " : "", row->help);
    }
    fprintf(text,
            "\nExit status: 0 done, 1 out of memory or file error, 2 bad option, 3 kolo failed, "
            "4 timeout,\n7 wrong data, or bandwidth below KOLO_TESTS_MIN_BW (GB/s).\n");
}

static void getopt_tables(char *letters, struct option *names)
{
    *letters++ = ':';
    for (size_t r = 0; r < ROWS; r++) {
        const int has_arg = rows[r].kind == SWITCH ? optional_argument
                            : rows[r].arg != NULL  ? required_argument
                                                   : no_argument;
        names[r] = (struct option){rows[r].name, has_arg, NULL, rows[r].letter};
        if (rows[r].letter < LONG_ONLY) {
            *letters++ = (char)rows[r].letter;
            for (int colons = 0; colons < has_arg; colons++) {
                *letters++ = ':';
            }
        }
    }
    names[ROWS] = (struct option){NULL, 0, NULL, 0};
    *letters = '\0';
}

static const struct row *row_of(int letter)
{
    for (size_t r = 0; r < ROWS; r++) {
        if (rows[r].letter == letter) {
            return &rows[r];
        }
    }
    return NULL;
}

static enum perf_parsed refuse(const struct perf_collective *collective, const struct row *row,
                               const char *value, FILE *err)
{
    fprintf(err, "%s: ", collective->name);
    print_option(row, err);
    if (value == NULL) {
        fprintf(err, " needs a value: ");
    } else {
        fprintf(err, ": %s is not allowed; give ", value);
    }
    print_allowed(row, err);
    fprintf(err, "\n");
    return PERF_BAD;
}

/* Report a word that getopt could not place: a known option without its value, or an unknown one.
 */
static enum perf_parsed refuse_word(const struct perf_collective *collective, int found, int letter,
                                    const char *word, FILE *err)
{
    const struct row *row = row_of(letter);
    if (found == ':' && row != NULL) {
        return refuse(collective, row, NULL, err);
    }
    if (letter != 0 && letter < LONG_ONLY && row == NULL) {
        fprintf(err, "%s: -%c is no option; -h lists them\n", collective->name, letter);
    } else {
        fprintf(err, "%s: %s is no option or takes no value; -h lists them\n", collective->name,
                word);
    }
    return PERF_BAD;
}

/* The value of a switch that getopt left as a word of its own, or 1. */
static const char *value_of_switch(int argc, char **argv)
{
    if (optind < argc && argv[optind][0] != '-') {
        return argv[optind++];
    }
    return "1";
}

static bool some_pair_fits(const struct perf_options *options)
{
    for (int t = 0; t < KOLO_TYPES; t++) {
        for (uint32_t op = 0; op < PERF_OP_NONE; op++) {
            const bool asked = (options->types >> t & 1) != 0 && (options->ops >> op & 1) != 0;
            if (asked && perf_op_takes(op, (enum kolo_type)t)) {
                return true;
            }
        }
    }
    return false;
}

static int lowest(uint32_t bits)
{
    return __builtin_ctz(bits);
}

/* Check the options together, for errors that no single option shows. */
static enum perf_parsed check_together(const struct perf_collective *collective,
                                       const struct perf_options *options, FILE *err)
{
    if (options->min_bytes > options->max_bytes) {
        fprintf(err, "%s: -b/--minbytes: %zu is not allowed; give at most -e/--maxbytes, %zu\n",
                collective->name, options->min_bytes, options->max_bytes);
        return PERF_BAD;
    }
    if (options->step_factor <= 1 && options->step_bytes == 0) {
        fprintf(err, "%s: -i/--stepbytes: 0 is not allowed; give at least 1\n", collective->name);
        return PERF_BAD;
    }
    if (options->skipped >= options->iters) {
        fprintf(err, "%s: -K/--per_iter_skip: %ld is not allowed; give less than -n/--iters, %ld\n",
                collective->name, options->skipped, options->iters);
        return PERF_BAD;
    }
    if (options->threads * options->gpus > RANKS_MAX) {
        fprintf(err,
                "%s: -g/--ngpus: %ld is not allowed; give at most %ld with -t/--nthreads %ld\n",
                collective->name, options->gpus, RANKS_MAX / options->threads, options->threads);
        return PERF_BAD;
    }
    if (options->no_stream != 0 && options->stream) {
        fprintf(err, "%s: -y/--stream_null: 1 is not allowed with --stream; give one of them\n",
                collective->name);
        return PERF_BAD;
    }
    if (collective->chained && options->agg > 1) {
        fprintf(err,
                "%s: -m/--agg_iters: %ld is not allowed; give 1: a call's messages need those of "
                "the one before\n",
                collective->name, options->agg);
        return PERF_BAD;
    }
    if (collective->reduces && !some_pair_fits(options)) {
        const bool one_type = options->types != PERF_ALL_TYPES,
                   one_op = options->ops != PERF_ALL_OPS;
        fprintf(err, "%s: -o/--op: %s does not reduce -d/--datatype %s\n", collective->name,
                one_op ? perf_op_name((uint32_t)lowest(options->ops)) : "all",
                one_type ? perf_type_name((enum kolo_type)lowest(options->types)) : "all");
        return PERF_BAD;
    }
    return PERF_RUN;
}

static const struct perf_options defaults = {
    .min_bytes = 32 << 20,
    .max_bytes = 32 << 20,
    .step_bytes = 1 << 20,
    .step_factor = 1,
    .iters = 20,
    .warmup = 1,
    .agg = 1,
    .checks = 1,
    .cycles = 1,
    .threads = 1,
    .average = PERF_AVERAGE,
    .gpus = 1,
    .types = 1u << KOLO_FLOAT32,
    .ops = 1u << KOLO_SUM,
    .spread = 1,
};

enum perf_parsed perf_options_parse(const struct perf_collective *collective, int argc, char **argv,
                                    struct perf_options *out, FILE *out_text, FILE *err_text)
{
    char letters[3 * ROWS + 2]; /* each with up to two colons */
    struct option names[ROWS + 1];
    struct perf_options options = defaults;
    getopt_tables(letters, names);
    opterr = 0;
    optind = 0; /* GNU: start again */
    for (;;) {
        const int found = getopt_long(argc, argv, letters, names, NULL);
        if (found == -1) {
            break;
        }
        if (found == '?' || found == ':') {
            return refuse_word(collective, found, optopt, argv[optind - 1], err_text);
        }
        const struct row *row = row_of(found);
        if (row->kind == HELP) {
            print_help(collective, out_text);
            return PERF_HELP;
        }
        const bool alone = row->kind == SWITCH && optarg == NULL;
        const char *value = alone ? value_of_switch(argc, argv) : optarg;
        if (!take(row, value, &options)) {
            return refuse(collective, row, value, err_text);
        }
    }
    if (optind < argc) {
        fprintf(err_text, "%s: %s is not allowed; give options only\n", collective->name,
                argv[optind]);
        return PERF_BAD;
    }
    const enum perf_parsed parsed = check_together(collective, &options, err_text);
    if (parsed == PERF_RUN) {
        *out = options;
    }
    return parsed;
}

size_t perf_next_bytes(const struct perf_options *options, size_t bytes)
{
    size_t next = bytes + options->step_bytes;
    if (options->step_factor > 1) {
        /* A factor leaves 0 at 0. */
        next = bytes == 0 ? 1 : bytes * (size_t)options->step_factor;
    }
    return next > options->max_bytes ? SIZE_MAX : next;
}
