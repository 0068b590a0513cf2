// SPDX-License-Identifier: Apache-2.0
/* Times the ways of all points, in rounds.
 *
 * A visit times every way of a point once. The order rotates from round to round, so that a
 * disturbance of the machine affects all ways alike. The slowest rank's time counts for a way.
 * After a short look, much slower ways are dropped, and the others get the time. All ranks decide
 * from the same figures, so they take the same steps without asking each other. */
#include "core/call/call.h"
#include "plan/price.h"
#include "tools/tune/tune.h"

#include <string.h>

enum { LOOKS = 2, TILES_ROUND = 5, THIN_ROUND = 9, MAX_CALLS = 4000 };
static const double LOOK_US = 100, SAMPLE_US = 400, CROWDED = 4; /* calls in a row */
static const double FAR = 1.5, NEAR = 1.25, CLOSE = 1.15;        /* times the best */
static const double DECIDED = 0.65; /* share of the time for TUNE_DECIDE */

struct visit {
    enum tune_part part;
    int round;
    bool shared; /* points of this kind only */
    double sample_us;
    double until_us; /* by the clock of rank 0 */
    bool over;       /* until_us has passed */
};

/* ---- one way ---- */

static kolo_status run_once(const struct tune_rank *r, const struct tune_point *p,
                            const struct tune_way *way)
{
    return way->algo != NULL
               ? tune_call(r->comm, &r->memory, p->shared, p->coll, p->bytes)
               : tune_compose(r->comm, &r->memory, p->shared, way->composition, p->bytes);
}

/* The newest time of a way, or its prediction. */
static double expected_us(const struct tune_way *way)
{
    for (int part = TUNE_CHECK; part >= TUNE_DECIDE; part--) {
        for (int i = TUNE_ROUNDS - 1; i >= 0; i--) {
            if (way->us[part][i] > 0) {
                return way->us[part][i];
            }
        }
    }
    return 2 * way->predicted_us + 1;
}

/* Time one way. Its first call is not timed: it finds its program in a cache, or makes it. */
static kolo_status time_way(const struct tune_rank *r, const struct tune_point *p,
                            const struct tune_way *way, double sample_us, double *out)
{
    const double wanted = sample_us / expected_us(way);
    const int calls = wanted < 1 ? 1 : wanted > MAX_CALLS ? MAX_CALLS : (int)wanted;
    kolo_call_force(r->comm, way->algo, way->tile_bytes);
    KOLO_TRY(run_once(r, p, way));
    KOLO_TRY(kolo_barrier(r->control, NULL));
    const double begin_us = kolo_now_us();
    for (int i = 0; i < calls; i++) {
        KOLO_TRY(run_once(r, p, way));
    }
    *out = (kolo_now_us() - begin_us) / calls;
    return KOLO_OK;
}

/* ---- a visit ---- */

static bool takes_part(const struct tune_way *way, enum tune_part part)
{
    return part == TUNE_DECIDE ? !way->dropped : way->checked;
}

/* Replace the times by those of the slowest rank. Rank 0 tells whether the time is over. */
static kolo_status agree_on(const struct tune_rank *r, struct visit *v, double *us, int count)
{
    double slowest[TUNE_WAYS + 1];
    us[count] = r->rank == 0 && kolo_now_us() > v->until_us;
    KOLO_TRY(
        kolo_all_reduce(us, slowest, (size_t)count + 1, KOLO_FLOAT64, KOLO_MAX, r->control, NULL));
    memcpy(us, slowest, sizeof slowest);
    v->over = slowest[count] > 0;
    return KOLO_OK;
}

static kolo_status visit_point(const struct tune_rank *r, struct tune_point *p, struct visit *v)
{
    double us[TUNE_WAYS + 1] = {0};
    for (int i = 0; i < p->nways; i++) {
        const int turn = v->round % 2 == 0 ? i : p->nways - 1 - i;
        struct tune_way *way = &p->way[(turn + v->round / 2) % p->nways];
        if (!takes_part(way, v->part)) {
            continue;
        }
        const kolo_status st = time_way(r, p, way, v->sample_us, &us[way - p->way]);
        way->dropped |= st == KOLO_ERR_UNSUPPORTED; /* its tiles fit on no rank */
        kolo_call_force(r->comm, NULL, 0);
        if (st != KOLO_OK && st != KOLO_ERR_UNSUPPORTED) {
            return st;
        }
    }
    KOLO_TRY(agree_on(r, v, us, p->nways));
    for (int i = 0; i < p->nways; i++) {
        if (us[i] > 0) {
            p->way[i].us[v->part][v->round] = us[i];
        }
    }
    return KOLO_OK;
}

/* ---- choice of the ways to time ---- */

/* Drop ways that take `times` as long as the best, but never the standard. */
static void thin_points(struct tune_point *p, double times)
{
    const double best_us = tune_time(&p->way[tune_best(p, TUNE_DECIDE)], TUNE_DECIDE).value;
    for (int i = 0; i < p->nways; i++) {
        const struct tune_figure time = tune_time(&p->way[i], TUNE_DECIDE);
        p->way[i].dropped |= i != p->standard && time.count > 0 && time.value > times * best_us;
    }
}

static void add_tiles_of(struct tune_point *p, int way, size_t span)
{
    static const size_t tiles[] = {32 << 10,        64 << 10,  128 << 10,
                                   KOLO_TILE_BYTES, 512 << 10, 1 << 20};
    const size_t standard = p->tile_bytes > 0 ? p->tile_bytes : KOLO_TILE_BYTES;
    for (size_t i = 0; i < KOLO_LENGTH(tiles); i++) {
        if (tiles[i] != standard && span > kolo_min(tiles[i], standard)) {
            (void)tune_add(p, p->way[way].algo, tiles[i], p->way[way].predicted_us);
        }
    }
}

/* Add the best two algorithms with other tiles, if the bytes fill several tiles. */
static void add_tiles(struct tune_point *p, int nranks)
{
    const int best = tune_best(p, TUNE_DECIDE);
    const size_t span = tune_span(p->coll, nranks, p->bytes);
    int second = -1;
    for (int i = 0; i < p->nways; i++) {
        const struct tune_way *way = &p->way[i];
        if (i == best || way->algo == NULL || way->dropped || way->algo == p->way[best].algo) {
            continue;
        }
        second = second < 0 || tune_time(way, TUNE_DECIDE).value <
                                   tune_time(&p->way[second], TUNE_DECIDE).value
                     ? i
                     : second;
    }
    add_tiles_of(p, best, span);
    if (second >= 0) {
        add_tiles_of(p, second, span);
    }
}

/* Times should not fall with growing size. If they do, the smaller size has a bad choice. */
static void take_hints(struct tune_points *points)
{
    for (int i = points->count - 1; i > 0; i--) {
        struct tune_point *larger = &points->point[i], *smaller = larger - 1;
        if (smaller->coll != larger->coll || smaller->shared != larger->shared) {
            continue;
        }
        const int hint = tune_hint(smaller, larger);
        if (hint >= 0) {
            const struct tune_way *way = &larger->way[hint];
            const int there = tune_find(smaller, way->algo, way->tile_bytes);
            if (there >= 0) {
                smaller->way[there].dropped = false;
            } else {
                (void)tune_add(smaller, way->algo, way->tile_bytes, way->predicted_us);
            }
        }
    }
}

/* The fastest way among those with the standard's tiles. */
static int best_alone(const struct tune_point *p)
{
    int best = p->standard;
    for (int i = 0; i < p->nways; i++) {
        const struct tune_figure time = tune_time(&p->way[i], TUNE_DECIDE);
        if (p->way[i].algo != NULL && p->way[i].tile_bytes == p->tile_bytes && time.count > 0 &&
            time.value < tune_time(&p->way[best], TUNE_DECIDE).value) {
            best = i;
        }
    }
    return best;
}

/* Select the ways for TUNE_CHECK: ways that may be the best, of all and with the standard's tiles,
 * and the ways compared to them. */
static void select_checked(struct tune_point *p)
{
    const int best = tune_best(p, TUNE_DECIDE), alone = best_alone(p);
    const double best_us = tune_time(&p->way[best], TUNE_DECIDE).value;
    const double alone_us = tune_time(&p->way[alone], TUNE_DECIDE).value;
    for (int i = 0; i < p->nways; i++) {
        struct tune_way *way = &p->way[i];
        const struct tune_figure time = tune_time(way, TUNE_DECIDE);
        const bool same_tile = way->tile_bytes == p->tile_bytes;
        const double close_us = CLOSE * (same_tile ? alone_us : best_us);
        way->checked = i == best || i == p->standard || i == p->chosen ||
                       (!way->dropped && time.count > 0 && time.value < close_us);
    }
}

static int count_ways(const struct tune_point *p, enum tune_part part)
{
    int count = 0;
    for (int i = 0; i < p->nways; i++) {
        count += takes_part(&p->way[i], part);
    }
    return count;
}

/* ---- rounds ---- */

/* Play one round. Returns OK at its end, or when the time is over. */
static kolo_status play_round(struct tune_rank *r, struct visit *v)
{
    const int least = v->part == TUNE_DECIDE && v->round > LOOKS ? 2 : 1;
    for (int i = 0; i < r->points.count && !v->over; i++) {
        struct tune_point *p = &r->points.point[i];
        if (p->shared == v->shared && count_ways(p, v->part) >= least) {
            KOLO_TRY(visit_point(r, p, v));
            tune_progress(r, (kolo_now_us() - r->begin_us) / (r->options.time_s * 1e6),
                          kolo_coll_name(p->coll));
        }
    }
    return KOLO_OK;
}

static kolo_status sample_rounds(struct tune_rank *r, struct visit *v)
{
    const double sample_us = v->sample_us;
    v->sample_us = LOOK_US;
    for (v->round = 0; v->round < LOOKS && !v->over; v->round++) {
        KOLO_TRY(play_round(r, v));
    }
    v->sample_us = sample_us;
    for (int i = 0; i < r->points.count; i++) {
        struct tune_point *p = &r->points.point[i];
        if (p->shared == v->shared) {
            r->skipped += tune_time(&p->way[p->standard], TUNE_DECIDE).count == 0;
            thin_points(p, FAR);
        }
    }
    return KOLO_OK;
}

static kolo_status decide_rounds(struct tune_rank *r, struct visit *v)
{
    for (; v->round < TUNE_ROUNDS && !v->over; v->round++) {
        for (int i = 0; v->round == TILES_ROUND && i < r->points.count; i++) {
            add_tiles(&r->points.point[i], r->nranks);
        }
        if (v->round == TILES_ROUND || v->round == THIN_ROUND) {
            take_hints(&r->points);
        }
        for (int i = 0; v->round == THIN_ROUND && i < r->points.count; i++) {
            thin_points(&r->points.point[i], NEAR);
        }
        KOLO_TRY(play_round(r, v));
    }
    for (int i = 0; i < r->points.count; i++) {
        if (r->points.point[i].shared == v->shared) {
            tune_decide(&r->points.point[i]);
            select_checked(&r->points.point[i]);
        }
    }
    return KOLO_OK;
}

/* Measure all points of one kind of buffers, until rank 0's clock reaches until_us. */
static kolo_status measure_points(struct tune_rank *r, bool shared, double until_us)
{
    const double begin_us = kolo_now_us(), all_us = until_us - begin_us;
    struct visit v = {.part = TUNE_DECIDE,
                      .shared = shared,
                      .sample_us =
                          r->comm->links.exec_env.crowded ? CROWDED * SAMPLE_US : SAMPLE_US,
                      .until_us = begin_us + DECIDED * all_us};
    KOLO_TRY(sample_rounds(r, &v));
    KOLO_TRY(decide_rounds(r, &v));
    v.part = TUNE_CHECK;
    v.until_us = until_us;
    v.over = false;
    for (v.round = 0; v.round < TUNE_ROUNDS && !v.over; v.round++) {
        KOLO_TRY(play_round(r, &v));
    }
    return KOLO_OK;
}

/* Private buffers come first: calls check for shared buffers only once a process has shared memory.
 */
kolo_status tune_measure(struct tune_rank *r)
{
    const double all_us = r->options.time_s * 1e6;
    int shared = 0;
    for (int i = 0; i < r->points.count; i++) {
        shared += r->points.point[i].shared;
    }
    const int private = r->points.count - shared;
    r->begin_us = kolo_now_us();
    if (private > 0) {
        KOLO_TRY(measure_points(r, false, r->begin_us + all_us * private / r->points.count));
    }
    if (shared > 0) {
        KOLO_TRY(tune_memory_share(&r->memory));
        KOLO_TRY(measure_points(r, true, r->begin_us + all_us));
    }
    tune_progress(r, 1, "done");
    return KOLO_OK;
}
