// SPDX-License-Identifier: Apache-2.0
/* The report of rank 0 on the measured points: rules, regret, guards, an explanation, a CSV file.
 */
#include "tools/tune/tune.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double BUSY = 0.05; /* as much noise as the least gain that counts */

static void name_way(const struct tune_way *way, char out[TUNE_TEXT])
{
    if (way->algo == NULL) {
        (void)snprintf(out, TUNE_TEXT, "%s", tune_composition_name(way->composition));
    } else if (way->tile_bytes > 0) {
        (void)snprintf(out, TUNE_TEXT, "%s/%zuk", kolo_algo_word(way->algo), way->tile_bytes >> 10);
    } else {
        (void)snprintf(out, TUNE_TEXT, "%s", kolo_algo_word(way->algo));
    }
}

static const char *buffers_of(const struct tune_point *p)
{
    return p->bytes < KOLO_ENTRY_BYTES ? "any" : p->shared ? "shared" : "private";
}

void tune_progress(const struct tune_rank *rank, double share, const char *what)
{
    static int told = -1;
    const int steps = rank->options.bar ? 40 : 10;
    const int done = (int)((share < 1 ? share : 1) * steps);
    if (rank->rank != 0 || done <= told || rank->options.explain) {
        return;
    }
    told = done;
    if (rank->options.bar) {
        (void)fprintf(stderr, "kolo tune, %d ranks [%.*s%*s] %-13s%c", rank->nranks, done,
                      "########################################", steps - done, "", what,
                      done == steps ? '\n' : '\r');
    } else {
        (void)fprintf(stderr, "kolo tune, %d ranks: %d %%, %s\n", rank->nranks, 100 * done / steps,
                      what);
    }
    (void)fflush(stderr);
}

void tune_print_rules(const struct tune_points *points, FILE *out)
{
    struct kolo_row rows[KOLO_TABLE_ROWS];
    struct kolo_text text = {0};
    const int count = tune_rows(points, rows, KOLO_TABLE_ROWS);
    for (int i = 0; i < count; i++) {
        kolo_table_write_row(&rows[i], &text);
    }
    (void)fprintf(out, "%s", text.chars != NULL ? text.chars : "");
    (void)fprintf(out,
                  "%d rule%s: where nothing is said, no algorithm gains more than 5 %% and two "
                  "standard deviations over the choice by price\n",
                  count, count == 1 ? "" : "s");
    kolo_text_free(&text);
}

/* ---- regret ---- */

struct regret {
    const struct tune_point *point;
    double value, sigma; /* (time - best) / best */
    int way, best;
};

/* The best way: the least median over all rounds of both parts. `alone`: only ways with the
 * standard's tiles. */
static int best_of_all(const struct tune_point *p, bool alone)
{
    int best = -1;
    double best_us = 0;
    for (int i = 0; i < p->nways; i++) {
        const struct tune_figure first = tune_time(&p->way[i], TUNE_DECIDE);
        const struct tune_figure second = tune_time(&p->way[i], TUNE_CHECK);
        if (p->way[i].algo == NULL || second.count == 0 ||
            (alone && p->way[i].tile_bytes != p->tile_bytes)) {
            continue;
        }
        const double us = (first.value * first.count + second.value * second.count) /
                          (first.count + second.count);
        if (best < 0 || us < best_us) {
            best = i;
            best_us = us;
        }
    }
    return best;
}

/* The regret of a way against the best, from the rounds that did not decide. False: the way was not
 * timed there. */
static bool regret_of(const struct tune_point *p, int way, bool alone, struct regret *out)
{
    const int best = best_of_all(p, alone);
    if (best < 0 || tune_time(&p->way[way], TUNE_CHECK).count == 0) {
        return false;
    }
    const struct tune_figure gain = tune_gain(&p->way[best], &p->way[way], TUNE_CHECK);
    const double value = gain.value / (1 - gain.value); /* relative to the best */
    *out = (struct regret){.point = p,
                           .value = value > 0 ? value : 0,
                           .sigma = gain.sigma / (1 - gain.value) / (1 - gain.value),
                           .way = way,
                           .best = best};
    return true;
}

static int by_regret(const void *a, const void *b)
{
    const double x = ((const struct regret *)a)->value, y = ((const struct regret *)b)->value;
    return (y > x) - (y < x);
}

static void print_worst(const struct regret *r, FILE *out)
{
    char way[TUNE_TEXT], best[TUNE_TEXT];
    const struct tune_point *p = r->point;
    name_way(&p->way[r->way], way);
    name_way(&p->way[r->best], best);
    (void)fprintf(out,
                  "    %-13s %9zu B %-7s %-18s %10.2f us, %-18s %10.2f us: %5.1f %% (+- %.1f)\n",
                  kolo_coll_name(p->coll), p->bytes, buffers_of(p), way,
                  tune_time(&p->way[r->way], TUNE_CHECK).value, best,
                  tune_time(&p->way[r->best], TUNE_CHECK).value, 100 * r->value, 100 * r->sigma);
}

/* List the regrets of all points, the worst first; the caller frees the list. `alone`: against
 * algorithms with the same tiles. */
static struct regret *list_regrets(const struct tune_points *points, bool tuned, bool alone,
                                   int *count, double *mean)
{
    struct regret *all = calloc((size_t)points->count + 1, sizeof *all);
    *count = 0;
    *mean = 0;
    for (int i = 0; all != NULL && i < points->count; i++) {
        const struct tune_point *p = &points->point[i];
        if (regret_of(p, tuned ? p->chosen : p->standard, alone, &all[*count])) {
            *mean += all[(*count)++].value;
        }
    }
    if (*count > 0) {
        *mean /= *count;
        qsort(all, (size_t)*count, sizeof *all, by_regret);
    }
    return all;
}

static void print_regret_of(const struct tune_points *points, bool tuned, bool alone, FILE *out)
{
    int count = 0;
    double mean = 0;
    struct regret *all = list_regrets(points, tuned, alone, &count, &mean);
    if (count > 0) {
        (void)fprintf(out,
                      "regret of the %s choice%s: mean %.1f %%, worst %.1f %%, over %d points\n",
                      tuned ? "tuned" : "default", alone ? ", tiles left alone" : "", 100 * mean,
                      100 * all[0].value, count);
    }
    for (int i = 0; i < count && i < 5 && all[i].value > 0; i++) {
        print_worst(&all[i], out);
    }
    free(all);
}

/* Print the median error of the comparisons. It shows whether the machine does other work. */
static void print_noise(const struct tune_points *points, FILE *out)
{
    int count = 0;
    double mean = 0;
    struct regret *all = list_regrets(points, false, false, &count, &mean);
    double *sigmas = calloc((size_t)count + 1, sizeof *sigmas);
    for (int i = 0; sigmas != NULL && i < count; i++) {
        int at = i;
        for (; at > 0 && sigmas[at - 1] > all[i].sigma; at--) {
            sigmas[at] = sigmas[at - 1];
        }
        sigmas[at] = all[i].sigma;
    }
    if (sigmas != NULL && count > 0) {
        const double median = sigmas[count / 2];
        (void)fprintf(out, "noise: a regret is known to %.1f %%%s\n", 100 * median,
                      median > BUSY ? "; the machine was busy, tune again when it is not" : "");
    }
    free(sigmas);
    free(all);
}

void tune_print_regret(const struct tune_points *points, FILE *out)
{
    print_regret_of(points, false, true, out);
    print_regret_of(points, false, false, out);
    print_regret_of(points, true, false, out);
    print_noise(points, out);
}

/* ---- guards ---- */

static void guard_composed(const struct tune_point *p, int nranks, FILE *out)
{
    for (int i = 0; i < p->nways; i++) {
        const struct tune_way *way = &p->way[i];
        const struct tune_figure gain = tune_gain(way, &p->way[p->chosen], TUNE_CHECK);
        if (way->algo == NULL && tune_is_worth(&gain)) {
            char name[TUNE_TEXT], chosen[TUNE_TEXT];
            name_way(way, name);
            name_way(&p->way[p->chosen], chosen);
            (void)fprintf(
                out, "guard: %s of %zu B, %d ranks, %s buffers: %s is %.0f %% faster than %s\n",
                kolo_coll_name(p->coll), p->bytes, nranks, buffers_of(p), name, 100 * gain.value,
                chosen);
        }
    }
}

static void guard_monotone(const struct tune_point *p, const struct tune_point *larger, FILE *out)
{
    const struct tune_figure small = tune_time(&p->way[p->chosen], TUNE_CHECK);
    const struct tune_figure large = tune_time(&larger->way[larger->chosen], TUNE_CHECK);
    const double noise = 2 * hypot(small.sigma, large.sigma) + 0.05 * small.value;
    if (small.count > 0 && large.count > 0 && large.value + noise < small.value) {
        (void)fprintf(out, "guard: %s with %s buffers takes %.2f us for %zu B, %.2f us for %zu B\n",
                      kolo_coll_name(p->coll), buffers_of(p), small.value, p->bytes, large.value,
                      larger->bytes);
    }
}

void tune_print_guards(const struct tune_points *points, FILE *out)
{
    for (int i = 0; i < points->count; i++) {
        const struct tune_point *p = &points->point[i];
        guard_composed(p, points->nranks, out);
        if (i + 1 < points->count && p[1].coll == p->coll && p[1].shared == p->shared) {
            guard_monotone(p, p + 1, out);
        }
    }
}

/* ---- one point ---- */

static struct tune_figure all_rounds(const struct tune_way *way)
{
    double values[TUNE_ROUNDS];
    int count = 0;
    for (int part = 0; part < TUNE_PARTS; part++) {
        for (int i = 0; i < TUNE_ROUNDS && count < TUNE_ROUNDS; i++) {
            if (way->us[part][i] > 0) {
                values[count++] = way->us[part][i];
            }
        }
    }
    return tune_figure_of(values, count);
}

/* The way with the least median, except way `except`; -1: none. */
static int fastest_but(const struct tune_point *p, int except)
{
    int best = -1;
    for (int i = 0; i < p->nways; i++) {
        const struct tune_figure time = all_rounds(&p->way[i]);
        if (i != except && p->way[i].algo != NULL && time.count > 0 &&
            (best < 0 || time.value < all_rounds(&p->way[best]).value)) {
            best = i;
        }
    }
    return best;
}

/* Sort the ways by their times. */
static void sort_ways(const struct tune_point *p, int order[TUNE_WAYS])
{
    for (int i = 0; i < p->nways; i++) {
        const double us = all_rounds(&p->way[i]).value;
        int at = i;
        for (; at > 0 && all_rounds(&p->way[order[at - 1]]).value > us; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

static void explain_way(const struct tune_point *p, int i, FILE *out)
{
    char name[TUNE_TEXT], predicted[TUNE_TEXT] = "-";
    const struct tune_way *way = &p->way[i];
    const struct tune_figure time = all_rounds(way);
    name_way(way, name);
    if (way->algo != NULL) {
        (void)snprintf(predicted, sizeof predicted, "%.2f", way->predicted_us);
    }
    if (time.count > 0) {
        (void)fprintf(out, "  %-24s %10s %10.2f %8.2f%s\n", name, predicted, time.value, time.sigma,
                      i == p->standard    ? "  <- chosen"
                      : way->algo == NULL ? "  (other collectives)"
                                          : "");
    }
}

void tune_print_explanation(const struct tune_point *p, int nranks, FILE *out)
{
    char name[TUNE_TEXT];
    int order[TUNE_WAYS];
    const int other = fastest_but(p, p->standard);
    sort_ways(p, order);
    (void)fprintf(out, "%s of %zu B a rank, %d ranks, %s buffers; microseconds\n",
                  kolo_coll_title(p->coll), p->bytes, nranks, buffers_of(p));
    (void)fprintf(out, "  %-24s %10s %10s %8s\n", "algorithm/tile", "predicted", "measured", "+-");
    for (int i = 0; i < p->nways; i++) {
        explain_way(p, order[i], out);
    }
    name_way(&p->way[p->standard], name);
    (void)fprintf(out, "chosen: %s, by %s", name, p->source);
    if (other >= 0) {
        const double chosen_us = all_rounds(&p->way[p->standard]).value;
        const double ratio = all_rounds(&p->way[other]).value / chosen_us;
        name_way(&p->way[other], name);
        (void)fprintf(out, "; next: %s, %.1f %% %s", name, 100 * fabs(ratio - 1),
                      ratio < 1 ? "faster" : "slower");
    }
    (void)fprintf(out, "\n");
}

/* ---- CSV ---- */

static void write_way(const struct tune_points *points, const struct tune_point *p, int i,
                      FILE *file)
{
    char name[TUNE_TEXT];
    const struct tune_way *way = &p->way[i];
    const struct tune_figure first = tune_time(way, TUNE_DECIDE);
    const struct tune_figure second = tune_time(way, TUNE_CHECK);
    const struct tune_figure all = all_rounds(way);
    if (all.count == 0) {
        return;
    }
    name_way(way, name);
    (void)fprintf(file, "%s,%d,%zu,%s,%s,%zu,%.3f,%.3f,%.3f,%d,%.3f,%.3f,%s\n",
                  kolo_coll_name(p->coll), points->nranks, p->bytes, buffers_of(p), name,
                  way->tile_bytes, way->algo != NULL ? way->predicted_us : 0, all.value, all.sigma,
                  all.count, first.value, second.value,
                  i == p->standard && i == p->chosen ? "default+chosen"
                  : i == p->standard                 ? "default"
                  : i == p->chosen                   ? "chosen"
                                                     : "");
}

bool tune_write_csv(const struct tune_points *points, const char *path)
{
    FILE *file = fopen(path, "a");
    if (file == NULL) {
        (void)fprintf(stderr, "kolo tune: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    if (ftell(file) == 0) {
        (void)fprintf(file, "collective,ranks,bytes,buffers,algorithm,tile_bytes,predicted_us,"
                            "measured_us,sigma_us,rounds,first_us,second_us,role\n");
    }
    for (int i = 0; i < points->count; i++) {
        for (int k = 0; k < points->point[i].nways; k++) {
            write_way(points, &points->point[i], k, file);
        }
    }
    if (fclose(file) != 0) {
        (void)fprintf(stderr, "kolo tune: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}
