// SPDX-License-Identifier: Apache-2.0
/* The command line: the letters and long names of nccl-tests, and a few of kolo's own. A bad option
 * is an error that names the option, its value and the allowed values. So a sweep never measures
 * another thing than the user asked for. One table gives parsing, limits and help. */
#include "perf.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LONG_ONLY = 256, DETERMINISTIC = LONG_ONLY, SHARED, VARY, STREAM, SPREAD, STYLE };
enum perf_kind { WHOLE, BYTES, REAL, FLAG, TYPE, OP, ROOT, TEXT, NCCL_STYLE, HELP };

struct row {
    int letter;
    enum perf_kind kind;
    const char *name;
    size_t at;   /* offset in struct perf_options */
    long lo, hi; /* WHOLE, REAL */
    const char *arg, *help;
};
#define AT(member) offsetof(struct perf_options, member)
static const struct row rows[] = {
    {'b', BYTES, "minbytes", AT(min_bytes), 0, 0, "SIZE", "smallest size; suffix K, M or G (32M)"},
    {'e', BYTES, "maxbytes", AT(max_bytes), 0, 0, "SIZE", "largest size (32M)"},
    {'i', BYTES, "stepbytes", AT(step_bytes), 0, 0, "SIZE", "fixed step between sizes (1M)"},
    {'f', WHOLE, "stepfactor", AT(step_factor), 1, 1024, "N",
     "instead of --stepbytes: each size is N times the last"},
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
     "                            bool i32_i32 i64_i64 f32_i32 f64_i32, or all (float)"},
    {'r', ROOT, "root", 0, 0, INT_MAX, "RANK", "root, or all (0)"},
    {'t', WHOLE, "nthreads", AT(threads), 1, 4096, "N", "threads of this process, each a rank (1)"},
    {'g', WHOLE, "ngpus", AT(gpus), 1, 1, "1", "only 1; kept for command lines of nccl-tests"},
    {'z', WHOLE, "blocking", AT(blocking), 0, 1, "0|1",
     "1: time calls one by one, with a barrier before each (0)"},
    {'a', WHOLE, "average", AT(average), 0, 3, "0..3",
     "time of: 0 rank 0, 1 the average, 2 min, 3 max of all ranks (1)"},
    {'T', WHOLE, "timeout", AT(timeout_s), 1, INT_MAX / 1000, "SECONDS", "longest wait for a peer"},
    {'J', TEXT, "output_file", AT(json), 0, 0, "FILE", "also write the results as JSON"},
    {'I', FLAG, "per_iter_timing", AT(per_call), 0, 0, NULL,
     "add min, p50 and p99 of single calls"},
    {STREAM, FLAG, "stream", AT(stream), 0, 0, NULL, "queue the calls on a stream, wait once"},
    {DETERMINISTIC, FLAG, "deterministic", AT(deterministic), 0, 0, NULL,
     "always sum in rank order"},
    {SHARED, FLAG, "shared", AT(shared), 0, 0, NULL, "take buffers from kolo_mem_alloc()"},
    {VARY, FLAG, "vary", AT(vary), 0, 0, NULL,
     "rewrite the inputs before each timed call, untimed; implies -z 1"},
    {SPREAD, REAL, "spread", AT(spread), 0, 1, "0..1",
     "alltoallv: 0 equal blocks, 1 sizes grow with distance (1)"},
    {STYLE, NCCL_STYLE, "style", 0, 0, 0, "nccl", "print the table in the form of nccl-tests"},
    {'h', HELP, "help", 0, 0, 0, NULL, "print this help"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const uint32_t all_types = (1u << KOLO_TYPES) - 1, all_ops = (1u << PERF_OP_NONE) - 1;

static bool whole(const char *text, long lo, long hi, long *out)
{
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < lo || value > hi) {
        return false;
    }
    *out = value;
    return true;
}

static bool bytes_of(const char *text, size_t *out)
{
    static const char suffixes[] = "KMG";
    char *end = NULL;
    errno = 0;
    if (*text < '0' || *text > '9') {
        return false;
    }
    const unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = 0;
    for (unsigned s = 0; *end != '\0' && s < 3; s++) {
        shift = strncasecmp(end, &suffixes[s], 1) == 0 ? 10 * (s + 1) : shift;
    }
    end += shift != 0;
    /* 2^50 bytes are enough, and let sums of sizes not overflow. */
    if (*end != '\0' || errno != 0 || value > (1ull << 50) >> shift) {
        return false;
    }
    *out = (size_t)(value << shift);
    return true;
}

static bool real_of(const char *text, long lo, long hi, double *out)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= (double)lo && value <= (double)hi)) {
        return false;
    }
    *out = value;
    return true;
}

static bool type_of(const char *text, uint32_t *out)
{
    enum kolo_type type = KOLO_INT8;
    if (strcasecmp(text, "all") == 0) {
        *out = all_types;
        return true;
    }
    if (!perf_type_find(text, &type)) {
        return false;
    }
    *out = 1u << type;
    return true;
}

static bool op_of(const char *text, uint32_t *out)
{
    uint32_t op = 0;
    if (strcasecmp(text, "all") == 0) {
        *out = all_ops;
        return true;
    }
    if (!perf_op_find(text, &op)) {
        return false;
    }
    *out = 1u << op;
    return true;
}

static bool root_of(const char *text, long *out)
{
    if (strcasecmp(text, "all") == 0) {
        *out = -1;
        return true;
    }
    return whole(text, -1, INT_MAX, out);
}

/* Take an option's value. False: the value is not allowed. */
static bool take(const struct row *row, const char *value, struct perf_options *options)
{
    void *member = (char *)options + row->at;
    switch (row->kind) {
    case WHOLE:
        return whole(value, row->lo, row->hi, member);
    case BYTES:
        return bytes_of(value, member);
    case REAL:
        return real_of(value, row->lo, row->hi, member);
    case FLAG:
        *(bool *)member = true;
        return true;
    case TYPE:
        return type_of(value, &options->types);
    case OP:
        return op_of(value, &options->ops);
    case ROOT:
        return root_of(value, &options->root);
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
        "Each process that kolo run, mpirun or torchrun starts is a rank. With -t each thread is "
        "one.\n\n",
        collective->name);
    for (size_t r = 0; r < ROWS; r++) {
        const struct row *row = &rows[r];
        char left[64];
        const bool lettered = row->letter < LONG_ONLY;
        snprintf(left, sizeof(left), "%c%c%s--%s %s", lettered ? '-' : ' ',
                 lettered ? row->letter : ' ', lettered ? "," : " ", row->name,
                 row->arg != NULL ? row->arg : "");
        fprintf(text, "  %-25s %s\n", left, row->help);
    }
    fprintf(text,
            "\nExit status: 0 done, 1 out of memory or file error, 2 bad option, 3 kolo failed, "
            "4 timeout,\n7 wrong data, or bandwidth below KOLO_TESTS_MIN_BW (GB/s).\n");
}

static void getopt_tables(char *letters, struct option *names)
{
    *letters++ = ':';
    for (size_t r = 0; r < ROWS; r++) {
        const int has_arg = rows[r].arg != NULL ? required_argument : no_argument;
        names[r] = (struct option){rows[r].name, has_arg, NULL, rows[r].letter};
        if (rows[r].letter < LONG_ONLY) {
            *letters++ = (char)rows[r].letter;
            *letters = ':';
            letters += has_arg == required_argument;
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
    if (options->step_factor == 1 && options->step_bytes == 0) {
        fprintf(err, "%s: -i/--stepbytes: 0 is not allowed; give at least 1\n", collective->name);
        return PERF_BAD;
    }
    if (collective->reduces && !some_pair_fits(options)) {
        const bool one_type = options->types != all_types, one_op = options->ops != all_ops;
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
    char letters[2 * ROWS + 2];
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
        if (!take(row, optarg, &options)) {
            return refuse(collective, row, optarg, err_text);
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
