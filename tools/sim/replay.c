// SPDX-License-Identifier: Apache-2.0
/* Replays the calls of flight records on a simulated machine. A call takes as long as the simulation
 * says; timeline.h says what follows from that. */
#include "tools/sim/replay.h"

#include "tools/output.h"
#include "tools/sim/record.h"
#include "tools/sim/sim.h"
#include "tools/sim/timeline.h"
#include "util/escape.h"
#include "util/grow.h"

#include <stdlib.h>
#include <string.h>

struct replay_row { /* calls that are alike */
    enum kolo_coll coll;
    bool message;
    int nranks, root, ncalls;
    size_t bytes;
    const struct kolo_algo *algo;
    struct sim_price price; /* of one call, as simulated */
    double recorded_us; /* of all of them together, each by its shortest rank: the last to come */
};

struct replay_ranks { /* a communicator's, on the machine */
    struct kolo_sim_place place;
    struct kolo_chooser *chooser;
    int *host;
    int nranks;
    bool open;
};

struct replay {
    const struct sim_replay_options *options;
    struct sim_records records;
    struct replay_ranks *group; /* [records.ngroups] */
    struct replay_row *row;
    int nrows, cap;
    struct sim_timeline timeline;
};

/* ---- what a call takes ---- */

static kolo_status open_ranks(struct replay *r, int group, int nranks)
{
    struct replay_ranks *ranks = &r->group[group];
    if (ranks->open) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_sim_place_open(r->options->machine, nranks, &ranks->place));
    ranks->open = true;
    ranks->nranks = nranks;
    return sim_chooser_open(&ranks->place, &ranks->host, &ranks->chooser);
}

static void close_ranks(struct replay_ranks *ranks)
{
    if (ranks->open) {
        kolo_chooser_destroy(ranks->chooser);
        free(ranks->host);
        kolo_sim_place_close(&ranks->place);
    }
}

static kolo_status simulate(const struct replay *r, struct replay_ranks *ranks,
                            struct replay_row *row)
{
    struct kolo_pick pick = {0};
    struct kolo_sim_result result;
    const size_t bytes = row->bytes / sizeof(float) * sizeof(float);
    KOLO_TRY(kolo_choose(ranks->chooser, row->coll, row->root, bytes, KOLO_FLOAT32, &pick));
    const struct kolo_sim_options options = {.algo = pick.algo,
                                             .machine = r->options->machine,
                                             .nranks = ranks->nranks,
                                             .root = row->root,
                                             .bytes = bytes,
                                             .tile_bytes = pick.tile_bytes,
                                             .seed = r->options->seed,
                                             .fold = true};
    KOLO_TRY(kolo_sim_run(&options, &result));
    row->algo = pick.algo;
    row->price.us = result.total_us;
    row->price.core_us = result.wire_us * r->options->machine->net_core_share;
    kolo_sim_result_free(&result);
    return KOLO_OK;
}

/* The row of calls like this one. */
static kolo_status find_row(struct replay *r, const struct sim_call *call, struct replay_row **out)
{
    struct replay_ranks *ranks = &r->group[call->group];
    const bool message = r->records.group[call->group].messages;
    const int root = kolo_coll_rooted(call->coll) && call->root < ranks->nranks ? call->root : 0;
    for (int i = 0; i < r->nrows; i++) {
        struct replay_row *row = &r->row[i];
        if (row->coll == call->coll && row->message == message && row->bytes == call->bytes &&
            row->root == root && row->nranks == ranks->nranks) {
            *out = row;
            return KOLO_OK;
        }
    }
    struct replay_row *grown = kolo_grow(r->row, r->nrows, &r->cap, sizeof *grown);
    if (grown == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the results");
    }
    r->row = grown;
    *out = &r->row[r->nrows];
    **out = (struct replay_row){.coll = call->coll,
                                .message = message,
                                .nranks = ranks->nranks,
                                .root = root,
                                .bytes = call->bytes};
    KOLO_TRY(simulate(r, ranks, *out));
    r->nrows++;
    return KOLO_OK;
}

/* What a call takes, as sim_cost. */
static kolo_status cost(void *context, const struct sim_call *call, double recorded_us,
                        struct sim_price *out)
{
    struct replay_row *row = NULL;
    KOLO_TRY(find_row(context, call, &row));
    row->recorded_us += recorded_us;
    row->ncalls++;
    *out = row->price;
    return KOLO_OK;
}

/* ---- the part of the records that all ranks have ---- */

static bool has_group(const struct sim_record *record, int group, uint64_t *first, uint64_t *last)
{
    bool found = false;
    for (int i = 0; i < record->ncalls; i++) {
        if (record->call[i].group == group) {
            const uint64_t number = record->call[i].number;
            *first = !found || number < *first ? number : *first;
            *last = !found || number > *last ? number : *last;
            found = true;
        }
    }
    return found;
}

/* Leave out the calls of a communicator that are not in the record of each of its ranks: a record
 * has only the last calls. The time of a call that is left out counts as computation. */
static void cut_group(struct replay *r, int group)
{
    uint64_t from = 0, to = UINT64_MAX, first, last;
    for (int i = 0; i < r->records.nrecords; i++) {
        if (has_group(&r->records.record[i], group, &first, &last)) {
            from = first > from ? first : from;
            to = last < to ? last : to;
        }
    }
    for (int i = 0; i < r->records.nrecords; i++) {
        struct sim_record *record = &r->records.record[i];
        int kept = 0;
        for (int k = 0; k < record->ncalls; k++) {
            const struct sim_call call = record->call[k];
            if (call.group != group || (call.number >= from && call.number <= to)) {
                record->call[kept++] = call;
            }
        }
        record->ncalls = kept;
    }
}

/* ---- results ---- */

struct replay_totals { /* milliseconds */
    double recorded, predicted, compute, calls, waits;
};

static struct replay_totals totals_of(const struct replay *r)
{
    const struct sim_timeline *t = &r->timeline;
    const double n = r->records.nrecords * 1e3;
    return (struct replay_totals){.recorded = t->recorded / 1e3,
                                  .predicted = t->predicted / 1e3,
                                  .compute = t->compute / n,
                                  .calls = t->calls / n,
                                  .waits = t->waits / n};
}

static const char *row_name(const struct replay_row *row)
{
    return row->message ? "message" : kolo_coll_name(row->coll);
}

static void print_notes(const struct replay *r)
{
    int unfinished = 0, unknown = 0, largest = 0;
    for (int i = 0; i < r->records.nrecords; i++) {
        unfinished += r->records.record[i].unfinished;
        unknown += r->records.record[i].unknown;
    }
    for (int i = 0; i < r->records.ngroups; i++) {
        largest = r->records.group[i].nranks > largest ? r->records.group[i].nranks : largest;
    }
    if (r->records.nrecords < largest) {
        (void)printf("# records of %d of %d ranks: waits for the others count as calls\n",
                     r->records.nrecords, largest);
    }
    if (r->timeline.overlapping > 0) {
        (void)printf(
            "# %d calls begin before the one before them is over; the replay takes them one "
            "after the other\n",
            r->timeline.overlapping);
    }
    if (unfinished > 0) {
        (void)printf("# %d calls are not over in the records, and left out\n", unfinished);
    }
    if (unknown > 0) {
        (void)printf("# %d entries are messages or no known collective; their time counts as "
                     "computation\n",
                     unknown);
    }
}

static void print_results(const struct replay *r)
{
    const struct replay_totals t = totals_of(r);
    int most = 0;
    for (int i = 0; i < r->nrows; i++) {
        most = r->row[i].nranks > most ? r->row[i].nranks : most;
    }
    (void)printf("# kolo sim --replay: %d calls of %d records, machine: %s\n", r->timeline.ncalls,
                 r->records.nrecords, r->options->machine_name);
    sim_print_error(r->options->machine, most, stdout);
    print_notes(r);
    (void)printf("#%15s %12s %6s %7s %13s %13s  %s\n", "collective", "bytes", "ranks", "calls",
                 "recorded(us)", "predicted(us)", "algorithm");
    for (int i = 0; i < r->nrows; i++) {
        const struct replay_row *row = &r->row[i];
        (void)printf("%16s %12zu %6d %7d %13.2f %13.2f  %s\n", row_name(row), row->bytes,
                     row->nranks, row->ncalls, row->recorded_us / row->ncalls, row->price.us,
                     kolo_algo_word(row->algo));
    }
    (void)printf("# recorded:  %.3f ms\n", t.recorded);
    (void)printf(
        "# predicted: %.3f ms, %.2f times as long; a rank computes %.3f ms, is in calls for "
        "%.3f ms, and waits for the last rank for %.3f ms\n",
        t.predicted, t.recorded > 0 ? t.predicted / t.recorded : 0, t.compute, t.calls, t.waits);
}

static int write_json(const struct replay *r)
{
    struct kolo_text json = {0};
    const struct replay_totals t = totals_of(r);
    kolo_text_add(&json, "{\"machine\": \"");
    kolo_text_json(&json, r->options->machine_name);
    kolo_text_add(&json,
                  "\", \"recorded_ms\": %.9g, \"predicted_ms\": %.9g, \"compute_ms\": %.9g, "
                  "\"calls_ms\": %.9g, \"waits_ms\": %.9g, \"overlapping\": %d, \"calls\": [",
                  t.recorded, t.predicted, t.compute, t.calls, t.waits, r->timeline.overlapping);
    for (int i = 0; i < r->nrows; i++) {
        const struct replay_row *row = &r->row[i];
        kolo_text_add(&json,
                      "%s\n {\"collective\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"root\": %d, "
                      "\"calls\": %d, \"recorded_us\": %.9g, \"predicted_us\": %.9g, "
                      "\"algorithm\": \"%s\"}",
                      i > 0 ? "," : "", row_name(row), row->bytes, row->nranks, row->root,
                      row->ncalls, row->recorded_us / row->ncalls, row->price.us,
                      row->algo->base.name);
    }
    kolo_text_add(&json, "\n]}\n");
    const int status = kolo_output_write("kolo sim", r->options->json, &json);
    kolo_text_free(&json);
    return status;
}

/* ---- the command ---- */

static kolo_status open_groups(struct replay *r)
{
    int largest = 0;
    for (int i = 0; i < r->records.ngroups; i++) {
        largest = r->records.group[i].nranks > largest ? r->records.group[i].nranks : largest;
    }
    for (int i = 0; i < r->records.ngroups; i++) {
        const int recorded = r->records.group[i].nranks;
        const bool scaled =
            r->options->nranks > 0 && recorded == largest && !r->records.group[i].messages;
        const int nranks = scaled ? r->options->nranks : recorded;
        if (nranks < 1) {
            return kolo_fail(KOLO_ERR_INVALID, "%s: pg_config does not tell the ranks of \"%s\"",
                             r->options->path[0], r->records.group[i].name);
        }
        KOLO_TRY(open_ranks(r, i, nranks));
        cut_group(r, i);
    }
    return KOLO_OK;
}

static kolo_status run(struct replay *r)
{
    KOLO_TRY(sim_records_read(r->options->path, r->options->npaths, &r->records));
    r->group = calloc((size_t)r->records.ngroups + 1, sizeof *r->group);
    if (r->group == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d records", r->records.nrecords);
    }
    KOLO_TRY(open_groups(r));
    KOLO_TRY(sim_timeline_walk(&r->records, cost, r, &r->timeline));
    return r->timeline.ncalls > 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID, "no call is in the records of all its ranks");
}

int sim_replay(const struct sim_replay_options *options)
{
    struct replay r = {.options = options};
    int status = 0;
    if (run(&r) != KOLO_OK) {
        (void)fprintf(stderr, "kolo sim: %s\n", kolo_error_text());
        status = 1;
    } else {
        if (options->json == NULL || strcmp(options->json, "-") != 0) {
            print_results(&r);
        }
        status = options->json != NULL ? write_json(&r) : 0;
    }
    for (int i = 0; i < r.records.ngroups && r.group != NULL; i++) {
        close_ranks(&r.group[i]);
    }
    free(r.group);
    free(r.row);
    sim_records_free(&r.records);
    return status;
}
