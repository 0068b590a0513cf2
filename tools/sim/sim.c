// SPDX-License-Identifier: Apache-2.0
/* `kolo sim` runs the lowered programs of a collective on a machine that a file describes. */
#include "tools/sim/sim.h"

#include "plugin/catalogue.h"
#include "sim/report.h"
#include "tools/output.h"
#include "tools/sim/replay.h"
#include "tools/sim/start.h"
#include "tools/sim/svg.h"
#include "tune/tune.h"
#include "util/grow.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20, MAX_ROWS = 4096 };

static const size_t MOST_BYTES = (size_t)1 << 40;

struct sim_options {
    const char *coll, *machine, *algo, *json, *trace, *svg;
    long nranks, root, per_host, seed;
    size_t first, last;
    long factor;
    bool replay, path, every, bootstrap, help;
};

// clang-format off
static const char usage[] =
    "Usage: kolo sim COLLECTIVE -n N [--machine FILE] [--algo NAME] [-b SIZE] [-e SIZE] [-f FACTOR]\n"
    "       kolo sim --bootstrap -n N [--machine FILE] [-k N]\n"
    "       kolo sim --replay [-n N] [--machine FILE] RECORD...\n"
    "Predict the time of a collective (allreduce, ...) on a machine that need not be here. The\n"
    "programs that would run there are simulated, op by op.\n"
    "  -n, --ranks N      number of ranks\n"
    "  -m, --machine FILE the machine: lines \"name value\"; \"live\" measures this one; without it,\n"
    "                     one host with the costs of KOLO_COSTS, or typical ones\n"
    "  -a, --algo NAME    the algorithm: \"ring\", ...; \"all\": each of them, and the best;\n"
    "                     without it, the one that kolo would choose for each size\n"
    "  -b, --min SIZE     the least size in bytes, as in the benchmarks (8)\n"
    "  -e, --max SIZE     the greatest size (the least, or with neither 64M)\n"
    "  -f, --factor N     from a size to the next (8)\n"
    "  -r, --root R       root of a rooted collective (0)\n"
    "  -k, --per-host N   put N ranks on each host, whatever the machine file says\n"
    "  -s, --seed N       of the machine's noise (1)\n"
    "  -p, --path         print the critical path of each row\n"
    "  -t, --trace FILE   write the last row's ops as a trace that Perfetto and Chrome show\n"
    "  -S, --svg FILE     draw the use of cores and links of the last row\n"
    "  -J, --json FILE    write the results as JSON (\"-\": to standard output, and no table)\n"
    "  -E, --every        simulate every rank, also where one host stands for all\n"
    "  -B, --bootstrap    predict the start of a job: launch, meeting, communicator, first call\n"
    "  -R, --replay       what the calls of flight records, kolo's or PyTorch's as JSON, would take\n"
    "                     on the machine, a file for each rank; with -n, on so many ranks\n"
    "  -h, --help         print this help\n"
    "Names of a machine file: those of KOLO_COSTS (kolo env KOLO_COSTS), and\n";
// clang-format on

static int print_usage(FILE *to, int status)
{
    struct kolo_text names = {0};
    kolo_sim_machine_names(&names);
    (void)fprintf(to, "%s%s", usage, names.chars != NULL ? names.chars : "");
    kolo_text_free(&names);
    return status;
}

static int fail_usage(const char *what, const char *value)
{
    (void)fprintf(stderr, "kolo sim: %s%s%s (see kolo sim --help)\n", what,
                  value != NULL ? ": " : "", value != NULL ? value : "");
    return 2;
}

static int unknown_coll(const char *name)
{
    struct kolo_text all = {0};
    kolo_coll_list(&all, ", ");
    (void)fprintf(stderr, "kolo sim: \"%s\" is no collective; there are %s\n", name,
                  all.chars != NULL ? all.chars : "some");
    kolo_text_free(&all);
    return 2;
}

static int fail_library(void)
{
    (void)fprintf(stderr, "kolo sim: %s\n", kolo_error_text());
    return 1;
}

/* ---- options ---- */

static bool take_number(const char *value, long least, long most, long *out)
{
    return kolo_parse_int(value, least, most, out);
}

static bool take_option(int option, const char *value, struct sim_options *o)
{
    switch (option) {
    case 'n':
        return take_number(value, 1, MAX_RANKS, &o->nranks);
    case 'r':
        return take_number(value, 0, MAX_RANKS - 1, &o->root);
    case 'k':
        return take_number(value, 1, MAX_RANKS, &o->per_host);
    case 's':
        return take_number(value, 0, INT32_MAX, &o->seed);
    case 'f':
        return take_number(value, 2, 1 << 20, &o->factor);
    case 'b':
        return kolo_parse_bytes(value, &o->first);
    case 'e':
        return kolo_parse_bytes(value, &o->last);
    case 'm':
        o->machine = value;
        return true;
    case 'a':
        o->algo = value;
        return true;
    case 't':
        o->trace = value;
        return true;
    case 'S':
        o->svg = value;
        return true;
    case 'J':
        o->json = value;
        return true;
    case 'p':
        return o->path = true;
    case 'B':
        return o->bootstrap = true;
    case 'E':
        return o->every = true;
    case 'R':
        return o->replay = true;
    default:
        return o->help = true;
    }
}

static int parse_options(int argc, char **argv, struct sim_options *o)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'},    {"machine", required_argument, NULL, 'm'},
        {"algo", required_argument, NULL, 'a'},     {"min", required_argument, NULL, 'b'},
        {"max", required_argument, NULL, 'e'},      {"factor", required_argument, NULL, 'f'},
        {"root", required_argument, NULL, 'r'},     {"seed", required_argument, NULL, 's'},
        {"per-host", required_argument, NULL, 'k'}, {"path", no_argument, NULL, 'p'},
        {"trace", required_argument, NULL, 't'},    {"json", required_argument, NULL, 'J'},
        {"svg", required_argument, NULL, 'S'},      {"every", no_argument, NULL, 'E'},
        {"bootstrap", no_argument, NULL, 'B'},      {"replay", no_argument, NULL, 'R'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    int option;
    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":n:m:a:b:e:f:r:s:k:t:J:S:pBERh", options, NULL)) !=
           -1) {
        if (option == '?' || option == ':') {
            (void)kolo_option_refuse("kolo sim", argc, argv, option);
            return 2;
        }
        if (!take_option(option, optarg, o)) {
            return fail_usage("a value is out of range or no number", optarg);
        }
    }
    if (o->help) {
        return 0;
    }
    if (o->replay) {
        return optind < argc ? 0 : fail_usage("--replay needs a file", NULL);
    }
    if (o->bootstrap) {
        return optind == argc && o->nranks > 0
                   ? 0
                   : fail_usage("--bootstrap needs -n, and no collective", NULL);
    }
    o->coll = optind < argc ? argv[optind++] : NULL;
    if (optind < argc) {
        return fail_usage("one collective at a time", argv[optind]);
    }
    if (o->coll == NULL || o->nranks == 0) {
        return fail_usage("which collective, and how many ranks? kolo sim allreduce -n 64", NULL);
    }
    o->last = o->last > 0 ? o->last : o->first > 0 ? o->first : (size_t)64 << 20;
    o->first = o->first > 0 ? o->first : 8;
    if (o->first > MOST_BYTES || o->last > MOST_BYTES) {
        return fail_usage("sizes end at 1T", NULL);
    }
    return o->root < o->nranks ? 0 : fail_usage("--root must be less than -n", NULL);
}

/* ---- a row ---- */

static bool wants(const struct sim_options *o, const struct kolo_algo *algo,
                  const struct kolo_algo *chosen)
{
    if (o->algo == NULL) {
        return algo == chosen;
    }
    return strcmp(o->algo, "all") == 0 || strcmp(o->algo, kolo_algo_word(algo)) == 0 ||
           strcmp(o->algo, algo->base.name) == 0;
}

/* Whether the collective has an algorithm of the wanted name. */
static bool has_wanted(const struct sim_options *o, enum kolo_coll coll)
{
    for (int i = 0; i < kolo_algo_count_all(); i++) {
        const struct kolo_algo *algo = kolo_algo_at(i);
        if (algo->coll == coll && wants(o, algo, algo)) {
            return true;
        }
    }
    return false;
}

static struct sim_row *add_row(struct sim_sweep *sweep)
{
    struct sim_row *grown = kolo_grow(sweep->row, sweep->nrows, &sweep->cap, sizeof *grown);
    if (grown == NULL) {
        return NULL;
    }
    sweep->row = grown;
    sweep->row[sweep->nrows] = (struct sim_row){0};
    return &sweep->row[sweep->nrows++];
}

/* Tell once why there is no row. */
static void skip_algo(struct sim_sweep *sweep, const struct kolo_algo *algo)
{
    if (sweep->skipped.chars == NULL || strstr(sweep->skipped.chars, kolo_error_text()) == NULL) {
        kolo_text_add(&sweep->skipped, "# no %s: %s\n", kolo_algo_word(algo), kolo_error_text());
    }
}

/* Simulate one algorithm. An algorithm that has no plan for these ranks is skipped. */
static kolo_status simulate(const struct sim_options *o, const struct kolo_sim_machine *machine,
                            struct sim_sweep *sweep, const struct kolo_algo *algo, size_t size,
                            size_t tile_bytes)
{
    const bool blocks = !kolo_coll_flat(sweep->coll);
    const size_t parts = blocks ? (size_t)sweep->nranks : 1;
    const size_t count = sweep->coll == KOLO_COLL_BARRIER ? 0 : size / parts / sizeof(float);
    const struct kolo_sim_options options = {.algo = algo,
                                             .machine = machine,
                                             .nranks = sweep->nranks,
                                             .root =
                                                 kolo_coll_rooted(sweep->coll) ? sweep->root : 0,
                                             .bytes = count * sizeof(float),
                                             .tile_bytes = tile_bytes,
                                             .seed = (uint64_t)o->seed,
                                             .fold = !o->every && o->trace == NULL,
                                             .moments = o->path || o->trace != NULL,
                                             .use = o->svg != NULL};
    struct kolo_sim_result result;
    const kolo_status st = kolo_sim_run(&options, &result);
    if (st == KOLO_ERR_UNSUPPORTED || st == KOLO_ERR_INVALID) {
        skip_algo(sweep, algo);
        return KOLO_OK;
    }
    KOLO_TRY(st);
    struct sim_row *row = add_row(sweep);
    if (row == NULL) {
        kolo_sim_result_free(&result);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the results");
    }
    row->algo = algo;
    row->count = count;
    row->size = count * sizeof(float) * parts;
    row->us = result.total_us;
    row->result = result;
    sim_row_rate(sweep, row);
    return KOLO_OK;
}

static kolo_status fail_write(const char *path)
{
    return kolo_fail(KOLO_ERR_SYSTEM, "cannot write %s: %s", path, strerror(errno));
}

static kolo_status write_trace(const struct sim_options *o, const struct kolo_sim_machine *machine,
                               const struct sim_sweep *sweep, const struct sim_row *row)
{
    const struct kolo_sim_options options = {.machine = machine, .nranks = sweep->nranks};
    FILE *file = fopen(o->trace, "we");
    bool ok = file != NULL && kolo_sim_trace_write(&row->result, &options, file);
    ok = (file == NULL || fclose(file) == 0) && ok;
    return ok ? KOLO_OK : fail_write(o->trace);
}

static kolo_status write_svg(const struct sim_options *o, const struct sim_sweep *sweep,
                             const struct sim_row *row)
{
    struct kolo_text text = {0};
    sim_svg(sweep, row, &text);
    FILE *file = text.chars != NULL ? fopen(o->svg, "we") : NULL;
    bool ok = file != NULL && fwrite(text.chars, 1, text.len, file) == text.len;
    ok = (file == NULL || fclose(file) == 0) && ok;
    kolo_text_free(&text);
    return ok ? KOLO_OK : fail_write(o->svg);
}

/* The reports need the moments of one row at a time. */
static kolo_status report(const struct sim_options *o, const struct kolo_sim_machine *machine,
                          const struct sim_sweep *sweep, struct sim_row *row)
{
    struct kolo_text text = {0};
    struct kolo_sim_path path;
    kolo_status st = KOLO_OK;
    if (o->path && (o->json == NULL || strcmp(o->json, "-") != 0)) {
        kolo_sim_path_find(&row->result, &path);
        kolo_text_add(&text, "# %s, %zu bytes. ", kolo_algo_word(row->algo), row->size);
        kolo_sim_path_say(&path, &text);
        (void)printf("%s", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
    st = o->trace != NULL ? write_trace(o, machine, sweep, row) : st;
    st = st == KOLO_OK && o->svg != NULL ? write_svg(o, sweep, row) : st;
    kolo_sim_result_free(&row->result);
    return st;
}

static kolo_status sweep_size(const struct sim_options *o, const struct kolo_sim_machine *machine,
                              struct kolo_chooser *chooser, struct sim_sweep *sweep, size_t size)
{
    const size_t parts = kolo_coll_flat(sweep->coll) ? 1 : (size_t)sweep->nranks;
    struct kolo_pick pick = {0};
    KOLO_TRY(kolo_choose(chooser, sweep->coll, kolo_coll_rooted(sweep->coll) ? sweep->root : 0,
                         size / parts / sizeof(float) * sizeof(float), KOLO_FLOAT32, &pick));
    for (int i = 0; i < kolo_algo_count_all(); i++) {
        const struct kolo_algo *algo = kolo_algo_at(i);
        const int before = sweep->nrows;
        if (algo->coll != sweep->coll || !wants(o, algo, pick.algo)) {
            continue;
        }
        KOLO_TRY(simulate(o, machine, sweep, algo, size, pick.tile_bytes));
        if (sweep->nrows > before) {
            struct sim_row *row = &sweep->row[before];
            row->chosen = algo == pick.algo;
            if (o->path || o->trace != NULL || o->svg != NULL) {
                KOLO_TRY(report(o, machine, sweep, row));
            }
        }
    }
    return KOLO_OK;
}

/* ---- the sweep ---- */

static void print_tables(const struct sim_options *o, const struct sim_sweep *sweep)
{
    (void)printf("# kolo sim: %s, %d ranks, machine: %s\n", kolo_coll_title(sweep->coll),
                 sweep->nranks, sweep->machine);
    sim_print_error(sweep->values, sweep->nranks, stdout);
    (void)printf("%s", sweep->skipped.chars != NULL ? sweep->skipped.chars : "");
    if (o->algo == NULL) {
        sim_print_table(sweep, NULL, stdout);
        return;
    }
    for (int i = 0; i < kolo_algo_count_all(); i++) {
        const struct kolo_algo *algo = kolo_algo_at(i);
        bool found = false;
        for (int k = 0; k < sweep->nrows; k++) {
            found = found || sweep->row[k].algo == algo;
        }
        if (found) {
            (void)printf("#\n# %s\n", algo->base.name);
            sim_print_table(sweep, algo, stdout);
        }
    }
    sim_print_best(sweep, stdout);
}

static int write_results(const struct sim_options *o, const struct sim_sweep *sweep)
{
    struct kolo_text json = {0};
    int status = sweep->nrows > 0 ? 0 : 1;
    if (o->json == NULL || strcmp(o->json, "-") != 0) {
        print_tables(o, sweep);
    }
    if (o->json != NULL) {
        sim_add_json(sweep, &json);
        status = kolo_output_write("kolo sim", o->json, &json) != 0 ? 1 : status;
        kolo_text_free(&json);
    }
    return status;
}

static kolo_status run_sweep(const struct sim_options *o, const struct kolo_sim_machine *machine,
                             struct sim_sweep *sweep)
{
    struct kolo_sim_place place;
    struct kolo_chooser *chooser = NULL;
    int *host = NULL;
    KOLO_TRY(kolo_sim_place_open(machine, sweep->nranks, &place));
    kolo_status st = sim_chooser_open(&place, &host, &chooser);
    for (size_t size = o->first; size <= o->last && st == KOLO_OK && sweep->nrows < MAX_ROWS;
         size *= (size_t)o->factor) {
        st = sweep_size(o, machine, chooser, sweep, size);
        if (sweep->coll == KOLO_COLL_BARRIER) {
            break; /* it has no sizes */
        }
    }
    kolo_chooser_destroy(chooser);
    free(host);
    kolo_sim_place_close(&place);
    return st;
}

static const char *machine_name(const struct sim_options *o)
{
    return o->machine != NULL ? o->machine : "typical costs";
}

int kolo_tool_sim(int argc, char **argv)
{
    struct sim_options o = {.factor = 8, .seed = 1};
    struct kolo_sim_machine machine;
    struct sim_sweep sweep = {0};
    const int bad = parse_options(argc, argv, &o);
    if (bad != 0) {
        return bad;
    }
    if (o.help) {
        return print_usage(stdout, 0);
    }
    if (!o.replay && !o.bootstrap && !kolo_coll_find(o.coll, strlen(o.coll), &sweep.coll)) {
        return unknown_coll(o.coll);
    }
    if (kolo_plugins_load() != KOLO_OK ||
        sim_machine_open(o.machine, (int)o.per_host, &machine) != KOLO_OK) {
        return fail_library();
    }
    if (!o.replay && !o.bootstrap && !has_wanted(&o, sweep.coll)) {
        return fail_usage("kolo plan --list has no such algorithm of the collective", o.algo);
    }
    if (o.bootstrap) {
        return sim_bootstrap(&machine, machine_name(&o), (int)o.nranks, o.json);
    }
    if (o.replay) {
        const struct sim_replay_options options = {.path = argv + optind,
                                                   .npaths = argc - optind,
                                                   .nranks = (int)o.nranks,
                                                   .seed = (uint64_t)o.seed,
                                                   .machine = &machine,
                                                   .machine_name = machine_name(&o),
                                                   .json = o.json};
        return sim_replay(&options);
    }
    sweep.values = &machine;
    sweep.nranks = (int)o.nranks;
    sweep.root = (int)o.root;
    sweep.machine = machine_name(&o);
    const kolo_status st = run_sweep(&o, &machine, &sweep);
    const int status = st == KOLO_OK ? write_results(&o, &sweep) : fail_library();
    for (int i = 0; i < sweep.nrows; i++) {
        kolo_sim_result_free(&sweep.row[i].result);
    }
    free(sweep.row);
    kolo_text_free(&sweep.skipped);
    return status;
}
