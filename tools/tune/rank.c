// SPDX-License-Identifier: Apache-2.0
/* One rank of `kolo tune`. It joins the others, lists the points and measures them. Rank 0 reports
 * and writes the table. */
#include "tools/tune/tune.h"
#include "topology/source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- points ---- */

/* Fill in a point's ways: the candidates by price, the standard choice, and the compositions. */
static kolo_status fill_ways(struct tune_rank *r, struct tune_point *p)
{
    struct kolo_candidate_list list;
    struct kolo_pick pick;
    struct kolo_chooser *chooser = r->comm->selection.chooser;
    KOLO_TRY(kolo_candidates(chooser, p->coll, p->bytes, p->shared, &list));
    for (int i = 0; i < list.count; i++) {
        (void)tune_add(p, list.candidate[i].algo, list.candidate[i].tile_bytes,
                       list.candidate[i].us);
    }
    p->tile_bytes = list.count > 0 ? list.candidate[0].tile_bytes : 0;
    KOLO_TRY(p->shared ? kolo_choose_mapped(chooser, p->coll, 0, p->bytes, KOLO_FLOAT32, &pick)
                       : kolo_choose(chooser, p->coll, 0, p->bytes, KOLO_FLOAT32, &pick));
    (void)tune_add(p, pick.algo, pick.tile_bytes, pick.predicted_us);
    p->standard = p->chosen = tune_find(p, pick.algo, pick.tile_bytes);
    p->source = pick.source;
    for (int c = tune_composition(p->coll, r->nranks, p->bytes, 0); c >= 0 && p->nways < TUNE_WAYS;
         c = tune_composition(p->coll, r->nranks, p->bytes, c + 1)) {
        p->way[p->nways++] = (struct tune_way){.composition = c, .predicted_us = pick.predicted_us};
    }
    return KOLO_OK;
}

/* Whether four buffers of each rank fit in half of the memory. */
static bool fits_memory(const struct tune_rank *r, enum kolo_coll coll, size_t bytes)
{
    const double pages = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return (double)tune_span(coll, r->nranks, bytes) * 4 * r->comm->ranks.local_size < pages / 2;
}

static kolo_status add_point(struct tune_rank *r, enum kolo_coll coll, bool shared, size_t bytes)
{
    if (shared && bytes < KOLO_ENTRY_BYTES) {
        return KOLO_OK; /* such calls do not depend on the kind of buffers */
    }
    if (!fits_memory(r, coll, bytes)) {
        r->skipped++;
        return KOLO_OK;
    }
    struct tune_point *p = &r->points.point[r->points.count++];
    *p = (struct tune_point){.coll = coll, .shared = shared, .bytes = bytes};
    r->memory.bytes = kolo_max(r->memory.bytes, tune_span(coll, r->nranks, bytes));
    return fill_ways(r, p);
}

static kolo_status add_sizes(struct tune_rank *r, enum kolo_coll coll, bool shared)
{
    const struct tune_options *o = &r->options;
    size_t bytes = o->min_bytes;
    for (; bytes < o->max_bytes; bytes *= (size_t)o->factor) {
        KOLO_TRY(add_point(r, coll, shared, bytes));
    }
    return add_point(r, coll, shared, o->max_bytes);
}

static kolo_status make_points(struct tune_rank *r)
{
    const struct tune_options *o = &r->options;
    r->points.nranks = r->nranks;
    r->points.point = calloc((size_t)KOLO_COLLS * 2 * TUNE_SIZES, sizeof *r->points.point);
    if (r->points.point == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for points");
    }
    for (int c = 0; c < KOLO_COLLS; c++) {
        const enum kolo_coll coll = (enum kolo_coll)c;
        if ((o->colls >> c & 1) == 0) {
            continue;
        }
        if (coll == KOLO_COLL_BARRIER) {
            KOLO_TRY(add_point(r, coll, false, 0));
            continue;
        }
        if (!o->explain || !o->shared) {
            KOLO_TRY(add_sizes(r, coll, false));
        }
        if (!o->explain || o->shared) {
            KOLO_TRY(add_sizes(r, coll, true));
        }
    }
    return r->points.count > 0 ? KOLO_OK
                               : kolo_fail(KOLO_ERR_INVALID, "nothing to measure: the buffers of "
                                                             "these sizes do not fit");
}

/* ---- joining ---- */

/* Join the ranks. Tuning starts from the choice by price; an explanation keeps the user's settings.
 */
static kolo_status join_ranks(struct tune_rank *r)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    const char *given = kolo_env("KOLO_TUNE_FILE");
    config.name = "tune";
    if (!r->options.explain) {
        if (r->options.out == NULL && given != NULL && strcmp(given, "none") != 0) {
            kolo_text_add(&r->path, "%s", given);
        }
        config.algo = "";
        (void)setenv("KOLO_TUNE_FILE", "none", 1);
    }
    KOLO_TRY(kolo_comm_create_env(&config, &r->comm));
    config.name = "control";
    KOLO_TRY(kolo_comm_create_env(&config, &r->control));
    r->rank = kolo_comm_rank(r->comm);
    r->nranks = kolo_comm_size(r->comm);
    return r->nranks > 1 ? KOLO_OK : kolo_fail(KOLO_ERR_INVALID, "one rank has nothing to choose");
}

/* Before the measurement, rank 0 checks that the table can be written. If not, all ranks stop. */
static kolo_status open_table(struct tune_rank *r)
{
    int mine = KOLO_OK, worst = KOLO_OK;
    struct kolo_text text = {0};
    const struct tune_points none = {0};
    KOLO_TRY(kolo_host_discover(&r->host));
    if (r->rank == 0 && !r->options.dry_run && !r->options.explain) {
        mine = r->path.chars != NULL ? KOLO_OK : tune_file_path(&r->options, r->host, &r->path);
        mine = mine == KOLO_OK ? tune_file_compose(r->path.chars, r->host, &none, &text) : mine;
        kolo_text_free(&text);
    }
    KOLO_TRY(kolo_all_reduce(&mine, &worst, 1, KOLO_INT32, KOLO_MIN, r->control, NULL));
    return mine == KOLO_OK && worst != KOLO_OK ? kolo_fail((kolo_status)worst, "rank 0 gave up")
                                               : (kolo_status)worst;
}

static kolo_status measure_all(struct tune_rank *r)
{
    KOLO_TRY(join_ranks(r));
    KOLO_TRY(open_table(r));
    KOLO_TRY(make_points(r));
    KOLO_TRY(tune_memory_take(r->memory.bytes + 64, &r->memory));
    return tune_measure(r);
}

/* ---- the end ---- */

static kolo_status keep_table(const struct tune_rank *r)
{
    struct kolo_text text = {0};
    kolo_status st = tune_file_compose(r->path.chars, r->host, &r->points, &text);
    st = st == KOLO_OK ? tune_file_write(r->path.chars, text.chars) : st;
    kolo_text_free(&text);
    if (st == KOLO_OK) {
        (void)printf("table: %s\n", r->path.chars);
    } else {
        (void)fprintf(stderr, "kolo tune: %s\n", kolo_error_text());
    }
    return st;
}

static int report_tuning(const struct tune_rank *r)
{
    const struct tune_options *o = &r->options;
    if (o->explain) {
        tune_print_explanation(&r->points.point[0], r->nranks, stdout);
        return 0;
    }
    tune_print_rules(&r->points, stdout);
    tune_print_guards(&r->points, stdout);
    tune_print_regret(&r->points, stdout);
    if (r->skipped > 0) {
        (void)printf("%d points were not measured: give more --time, or fewer sizes\n", r->skipped);
    }
    return (o->csv == NULL || tune_write_csv(&r->points, o->csv)) &&
                   (o->dry_run || keep_table(r) == KOLO_OK)
               ? 0
               : 1;
}

int tune_rank_main(const struct tune_options *options)
{
    struct tune_rank r = {.options = *options};
    const kolo_status st = measure_all(&r);
    int status = 0;
    if (st != KOLO_OK) {
        (void)fprintf(stderr, "kolo tune: %s\n", kolo_error_text());
        status = 1;
    } else if (r.rank == 0) {
        status = report_tuning(&r);
    }
    kolo_comm_destroy(r.comm);
    kolo_comm_destroy(r.control);
    kolo_host_destroy(r.host);
    kolo_text_free(&r.path);
    tune_memory_free(&r.memory);
    free(r.points.point);
    return status;
}
