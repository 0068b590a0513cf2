// SPDX-License-Identifier: Apache-2.0
/* `kolo plan` shows the plan that an algorithm makes for a shape, as text and as a picture, with
 * its proof and its price. The algorithm is in the catalogue or in a plug-in, so this is the place
 * to try a new algorithm. */
#include "tools/plan.h"

#include "plan/plan.h"
#include "plan/price.h"
#include "plan/print.h"
#include "plan/verify/verify.h"
#include "plugin/catalogue.h"
#include "tools/layout.h"
#include "tools/output.h"
#include "topology/draw/lines.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 4096, LISTED_RANKS = 64 };

struct plan_options {
    const char *name, *svg, *plugin, *groups, *topo;
    long nranks, root;
    size_t bytes;
    bool list, verify, price, help;
};

// clang-format off
static const char usage[] =
    "Usage: kolo plan NAME -n N [--root R] [--groups LIST | --topo FILE] [--verify] [--price]\n"
    "                 [--bytes B] [--svg FILE]\n"
    "       kolo plan COLLECTIVE -n N --groups LIST | --topo FILE [--bytes B]\n"
    "       kolo plan --list [-n N]\n"
    "Show, prove, price or draw the plan of algorithm NAME. With none of --verify, --price and --svg\n"
    "it prints the steps. With a collective name (allreduce, ...) it prints the predicted time of each\n"
    "algorithm, and the algorithm that kolo would choose.\n"
    "  -n, --ranks N      number of ranks (1 to 4096)\n"
    "  -r, --root R       root of a rooted collective (0)\n"
    "  -g, --groups LIST  groups of near ranks: the L3 of each rank, as in \"0,0,1,1\"; after a ';' its\n"
    "                     NUMA node, then its package; a short list repeats\n"
    "  -t, --topo FILE    take the groups from this hwloc XML file: rank i runs on cpu i mod cpus\n"
    "  -v, --verify       prove the plan, and report whether it sums in rank order\n"
    "  -p, --price        predict the time: ranks are 1 us and 10 GB/s apart; with --groups or --topo\n"
    "                     over shared memory, with KOLO_COSTS or typical costs of a server\n"
    "  -b, --bytes B      size for the price: bytes per rank, or of one block (1M)\n"
    "  -s, --svg FILE     draw the plan\n"
    "  -P, --plugin FILE  take the algorithm from this shared object; NAME may be left out\n"
    "  -l, --list         list the algorithms: name, valid ranks, source; with -n, those for N ranks\n"
    "  -h, --help         print this help\n";
// clang-format on

static int fail_usage(const char *what, const char *value)
{
    (void)fprintf(stderr, "kolo plan: %s%s%s (see kolo plan --help)\n", what,
                  value != NULL ? ": " : "", value != NULL ? value : "");
    return 2;
}

/* ---- options ---- */

static int take_option(int option, const char *value, struct plan_options *o)
{
    switch (option) {
    case 'n':
        return kolo_parse_int(value, 1, MAX_RANKS, &o->nranks)
                   ? 0
                   : fail_usage("-n wants 1 to 4096 ranks", value);
    case 'r':
        return kolo_parse_int(value, 0, MAX_RANKS - 1, &o->root)
                   ? 0
                   : fail_usage("--root wants a rank", value);
    case 'b':
        return kolo_parse_bytes(value, &o->bytes) ? 0 : fail_usage("--bytes wants bytes", value);
    case 's':
        o->svg = value;
        return 0;
    case 'P':
        o->plugin = value;
        return 0;
    case 'g':
        o->groups = value;
        return 0;
    case 't':
        o->topo = value;
        return 0;
    case 'l':
        o->list = true;
        return 0;
    case 'v':
        o->verify = true;
        return 0;
    case 'p':
        o->price = true;
        return 0;
    default:
        o->help = true;
        return 0;
    }
}

static int parse_options(int argc, char **argv, struct plan_options *o)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'},  {"root", required_argument, NULL, 'r'},
        {"bytes", required_argument, NULL, 'b'},  {"svg", required_argument, NULL, 's'},
        {"plugin", required_argument, NULL, 'P'}, {"list", no_argument, NULL, 'l'},
        {"groups", required_argument, NULL, 'g'}, {"topo", required_argument, NULL, 't'},
        {"verify", no_argument, NULL, 'v'},       {"price", no_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    int option;
    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":n:r:b:s:P:g:t:lvph", options, NULL)) != -1) {
        if (option == '?' || option == ':') {
            (void)kolo_option_refuse("kolo plan", argc, argv, option);
            return 2;
        }
        const int bad = take_option(option, optarg, o);
        if (bad != 0) {
            return bad;
        }
    }
    if (optind < argc) {
        o->name = argv[optind++];
    }
    if (optind < argc) {
        return fail_usage("one algorithm at a time", argv[optind]);
    }
    if (o->help || o->list) {
        return 0;
    }
    if (o->name == NULL && o->plugin == NULL) {
        return fail_usage("which algorithm? kolo plan --list has them", NULL);
    }
    if (o->nranks == 0) {
        return fail_usage("how many ranks? -n N", NULL);
    }
    if (o->groups != NULL && o->topo != NULL) {
        return fail_usage("either --groups or --topo", NULL);
    }
    return o->root < o->nranks ? 0 : fail_usage("--root must be less than -n", NULL);
}

/* ---- the catalogue ---- */

/* Whether an algorithm has a plan for this many ranks. The groups of the shape are two halves. */
static bool has_plan(const struct kolo_algo *algo, int nranks)
{
    int group[MAX_RANKS];
    for (int r = 0; r < nranks; r++) {
        group[r] = 2 * r < nranks ? 0 : (nranks + 1) / 2;
    }
    const struct kolo_shape shape = {
        .size = sizeof shape, .coll = algo->coll, .nranks = nranks, .nlevels = 1, .group = group};
    struct kolo_plan *plan = NULL;
    const bool found = kolo_plan_build(algo, &shape, 0, &plan) == KOLO_OK;
    kolo_plan_destroy(plan);
    return found;
}

/* Add "any", or the numbers of ranks up to 64 that have a plan. None has, of an algorithm that needs
 * rings or trees planned on GPUs. */
static void list_ranks(const struct kolo_algo *algo, struct kolo_text *out)
{
    int first = 0;
    int missing = 0;
    for (int n = 1; n <= LISTED_RANKS + 1; n++) {
        const bool found = n <= LISTED_RANKS && has_plan(algo, n);
        missing += n <= LISTED_RANKS && !found;
        if (found && first == 0) {
            first = n;
        } else if (!found && first > 0) {
            const char *comma = out->len > 0 ? "," : "";
            if (first == n - 1) {
                kolo_text_add(out, "%s%d", comma, first);
            } else {
                kolo_text_add(out, "%s%d-%d", comma, first, n - 1);
            }
            first = 0;
        }
    }
    if (missing == 0) {
        kolo_text_free(out);
        kolo_text_add(out, "any");
    }
}

static void list_algo(const struct kolo_algo *algo, const struct plan_options *o)
{
    struct kolo_text ranks = {0};
    if (o->nranks > 0 && !has_plan(algo, (int)o->nranks)) {
        return;
    }
    list_ranks(algo, &ranks);
    (void)printf("%-26s %-14s %-16s %s\n", algo->base.name, kolo_coll_title(algo->coll),
                 ranks.chars != NULL ? ranks.chars : "planned GPUs", algo->source);
    kolo_text_free(&ranks);
}

static int list_plans(const struct plan_options *o)
{
    (void)printf("%-26s %-14s %-16s %s\n", "name", "collective", "ranks", "source");
    for (int i = 0; i < kolo_algo_count_all(); i++) {
        list_algo(kolo_algo_at(i), o);
    }
    return 0;
}

/* Number of letters to change, add or remove (Levenshtein), for names of up to 47 letters. */
static int rank_distance(const char *a, const char *b)
{
    enum { LEN = 48 };
    int row[LEN];
    const int na = (int)strnlen(a, LEN - 1);
    const int nb = (int)strnlen(b, LEN - 1);
    for (int j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            const int change = diagonal + (a[i - 1] != b[j - 1]);
            const int edit = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < edit ? change : edit;
        }
    }
    return row[nb];
}

/* Report an unknown name, and list the collectives and similar algorithms: a few letters differ, or
 * the word is part of the name. */
static int unknown_name(const char *name)
{
    struct kolo_text colls = {0};
    const char *lead = "; near it:";
    (void)fprintf(stderr, "kolo plan: \"%s\" is no algorithm and no collective", name);
    for (int i = 0; i < kolo_algo_count_all(); i++) {
        const char *other = kolo_algo_at(i)->base.name;
        if (rank_distance(name, other) <= 3 || strstr(other, name) != NULL) {
            (void)fprintf(stderr, "%s %s", lead, other);
            lead = ",";
        }
    }
    kolo_coll_list(&colls, ", ");
    (void)fprintf(stderr, "; the collectives are %s; kolo plan --list has the algorithms\n",
                  colls.chars != NULL ? colls.chars : "many");
    kolo_text_free(&colls);
    return 2;
}

/* ---- output of a plan ---- */

static int print_steps(const struct kolo_plan *plan)
{
    struct kolo_text text = {0};
    kolo_plan_text(plan, &text);
    (void)fputs(text.chars != NULL ? text.chars : "", stdout);
    kolo_text_free(&text);
    return 0;
}

static int fail_library(void)
{
    (void)fprintf(stderr, "kolo plan: %s\n", kolo_error_text());
    return 1;
}

static int verify_plan(const struct kolo_plan *plan)
{
    bool rank_order = false;
    if (kolo_verify_plan(plan) != KOLO_OK || kolo_verify_expression(plan, &rank_order) != KOLO_OK) {
        return fail_library();
    }
    (void)printf("proved, out of place and in place%s\n",
                 !kolo_coll_reduces(plan->shape.coll) ? ""
                 : rank_order ? "; sums are ((x0 + x1) + x2) + ... in rank order"
                              : "; sums have one order on every rank, not that of ranks");
    return 0;
}

static int price_plan(const struct kolo_plan *plan, size_t bytes,
                      const struct kolo_tool_layout *layout)
{
    struct kolo_model_machine placed;
    struct kolo_machine machine = {.link = {.latency_us = 1.0, .us_per_byte = 1e-4},
                                   .copy_us_per_byte = 1e-4,
                                   .reduce_us_per_byte = 1e-4,
                                   .step_us = 0.05,
                                   .local_step_us = 0.05};
    struct kolo_price p;
    if (layout->place != NULL) {
        kolo_model_machine(&layout->model, layout->nranks, NULL, &placed);
        machine = placed.machine;
    }
    if (kolo_price_plan(plan, bytes, 0, &machine, true, &p) != KOLO_OK) {
        return fail_library();
    }
    (void)printf(
        "%zu bytes: %.2f us, in %d tiles of %zu bytes a chunk; a rank moves up to %zu bytes one "
        "way; %d messages on the critical path:\n",
        bytes, p.total_us, p.tiles, p.piece_bytes, p.bytes_moved, p.messages);
    for (int i = 0; i < p.hops; i++) {
        char text[KOLO_STEP_TEXT];
        const struct kolo_hop *hop = &p.hop[i];
        kolo_step_print(&plan->rank[hop->rank].step[hop->step], text);
        (void)printf("%12.2f us  tile %d rank %d step %d: %s\n", hop->end_us, hop->tile, hop->rank,
                     hop->step, text);
    }
    kolo_price_free(&p);
    return 0;
}

static int draw_plan(const struct kolo_plan *plan, const char *path)
{
    struct kolo_text text = {0};
    if (kolo_plan_svg(plan, &text) != KOLO_OK) {
        return fail_library();
    }
    FILE *file = fopen(path, "w");
    bool ok =
        file != NULL && text.chars != NULL && fwrite(text.chars, 1, text.len, file) == text.len;
    ok = (file == NULL || fclose(file) == 0) && ok;
    if (!ok) {
        (void)fprintf(stderr, "kolo plan: cannot write %s: %s\n", path, strerror(errno));
    }
    kolo_text_free(&text);
    return ok ? 0 : 1;
}

static int show_plan(const struct kolo_algo *algo, const struct plan_options *o,
                     const struct kolo_tool_layout *layout)
{
    struct kolo_shape shape = kolo_tool_layout_shape(layout, algo->coll);
    struct kolo_plan *plan = NULL;
    struct kolo_text summary = {0};
    shape.root = kolo_coll_rooted(algo->coll) ? (int)o->root : 0;
    if (kolo_plan_build(algo, &shape, -1, &plan) != KOLO_OK) {
        return fail_library();
    }
    int status = 0;
    if (!o->verify && !o->price && o->svg == NULL) {
        status = print_steps(plan);
    } else {
        kolo_plan_summary(plan, &summary);
        (void)printf("%s\n", summary.chars != NULL ? summary.chars : "");
        kolo_text_free(&summary);
    }
    if (o->verify) {
        status = verify_plan(plan);
    }
    if (status == 0 && o->price) {
        status = price_plan(plan, o->bytes, layout);
    }
    if (status == 0 && o->svg != NULL) {
        status = draw_plan(plan, o->svg);
    }
    kolo_plan_destroy(plan);
    return status;
}

/* Show the choice for a collective. */
static int show_choice(enum kolo_coll coll, const struct plan_options *o,
                       const struct kolo_tool_layout *layout)
{
    struct kolo_text text = {0};
    if (layout->place == NULL) {
        return fail_usage("where are the ranks? --groups or --topo, with the collective", o->name);
    }
    const size_t bytes = coll == KOLO_COLL_BARRIER ? 0 : o->bytes;
    if (kolo_tool_layout_choose(layout, coll, bytes, &text) != KOLO_OK) {
        return fail_library();
    }
    (void)printf("%s\n", text.chars != NULL ? text.chars : "");
    kolo_text_free(&text);
    return 0;
}

static void print_groups(const struct kolo_tool_layout *layout)
{
    struct kolo_text text = {0};
    if (layout->place != NULL) {
        kolo_line_groups(&text, layout->nranks, &layout->groups);
        (void)printf("%s\n", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
}

/* Show an algorithm, or a collective if `algo` is NULL. */
static int show_named(const struct kolo_algo *algo, const struct plan_options *o)
{
    struct kolo_tool_layout layout;
    enum kolo_coll coll = KOLO_COLL_ALL_REDUCE;
    if (algo == NULL && !kolo_coll_find(o->name, strlen(o->name), &coll)) {
        return unknown_name(o->name);
    }
    if (kolo_tool_layout_open(o->topo, o->groups, (int)o->nranks, &layout) != KOLO_OK) {
        return fail_library();
    }
    print_groups(&layout);
    const int status =
        algo != NULL ? show_plan(algo, o, &layout) : show_choice((enum kolo_coll)coll, o, &layout);
    kolo_tool_layout_close(&layout);
    return status;
}

/* The loader wants absolute paths, because a variable outlives the folder in which it was set. */
static kolo_status load_plugin(const char *file)
{
    char *path = realpath(file, NULL);
    const kolo_status st = kolo_plugin_load_file(path != NULL ? path : file);
    free(path);
    return st;
}

int kolo_tool_plan(int argc, char **argv)
{
    struct plan_options o = {.bytes = (size_t)1 << 20};
    const int bad = parse_options(argc, argv, &o);
    if (bad != 0) {
        return bad;
    }
    if (o.help) {
        (void)fputs(usage, stdout);
        return 0;
    }
    if (kolo_plugins_load() != KOLO_OK) {
        return fail_library();
    }
    const int known = kolo_algo_count_all(); /* later algorithms come from o.plugin */
    if (o.plugin != NULL && load_plugin(o.plugin) != KOLO_OK) {
        return fail_library();
    }
    if (o.list) {
        return list_plans(&o);
    }
    const struct kolo_algo *algo = o.name != NULL ? kolo_algo_find(o.name) : kolo_algo_at(known);
    if (algo == NULL && o.name == NULL) {
        (void)fprintf(stderr, "kolo plan: %s brings no algorithm\n", o.plugin);
        return 1;
    }
    return show_named(algo, &o);
}
