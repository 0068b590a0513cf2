// SPDX-License-Identifier: Apache-2.0
/* What the reports of the ranks of members.c must have in common, and what is counted over all
 * trials. */
#include "members.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COMPLAINTS_SHOWN = 20, TIMES_MOST = 4000 };
enum wrong { HANGS, RESULTS, FALSE_DEATHS, OTHERS, WRONGS };
static const char *const wrong_names[] = {"hangs", "wrong results", "false deaths", "other faults"};
const char *const operation_names[] = {"start",  "calls", "idle",        "agree",
                                       "shrink", "grow",  "reconfigure", "destroy"};

struct times {
    const char *what;
    double ms[TIMES_MOST];
    int count;
};
static struct {
    int wrong[WRONGS], of[OPERATIONS], victims;
    int verdicts, right; /* of ranks */
    int judged, split;   /* trials; those of two victims in which ranks have named either */
    struct times calls, idle, shrink, grow;
} found = {.calls = {.what = "ms to tell, in calls"},
           .idle = {.what = "ms to tell, between calls"},
           .shrink = {.what = "ms to shrink"},
           .grow = {.what = "ms to grow"}};

static bool is_hit(int rank)
{
    return trial.victim_us[rank] >= 0;
}

static bool is_lost(int rank)
{
    return is_hit(rank) && trial.fault != PAUSE;
}

static void __attribute__((format(printf, 3, 4)))
complain(int number, enum wrong kind, const char *format, ...)
{
    static const char *const how[] = {"dies", "stops", "pauses"};
    va_list args;
    if (found.wrong[kind]++ > COMPLAINTS_SHOWN) {
        return;
    }
    (void)printf("trial %d (%s, %d and %d ranks%s", number, operation_names[trial.operation],
                 trial.nold, trial.nnew, trial.tcp ? ", tcp" : "");
    for (int i = 1; i < trial.nold + trial.nnew; i++) {
        if (trial.host[i] != trial.host[0]) {
            (void)printf(", rank %d on host %d", i, trial.host[i]);
        }
    }
    for (int i = 0; i < MOST; i++) {
        if (is_hit(i)) {
            (void)printf(", rank %d %s after %d us", i, how[trial.fault], trial.victim_us[i]);
        }
    }
    (void)printf("): %s: ", wrong_names[kind]);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
    (void)fflush(stdout);
}

void complain_of_hang(int number)
{
    complain(number, HANGS, "some rank has not ended");
}

/* No board has all ranks: they agree over links. */
static bool over_links(void)
{
    bool over = trial.tcp;
    for (int i = 1; i < trial.nold + trial.nnew; i++) {
        over = over || trial.host[i] != trial.host[0];
    }
    return over;
}

/* ---- who has failed ---- */

/* In the first communicator, ranks have the numbers of the trial. */
static void check_failed_sets(int number, int rank)
{
    const struct report *r = &shared->report[rank];
    const bool comes_last = trial.fault == STOP && over_links() && is_hit(rank);
    for (int i = 0; i < atomic_load(&r->nsteps) && !comes_last; i++) {
        for (int q = 0; q < trial.nold && r->step[i].epoch == 0; q++) {
            if ((r->step[i].failed >> q & 1) != 0 && !is_lost(q) && takes_part(q)) {
                complain(number, FALSE_DEATHS, "rank %d was told that rank %d has failed", rank, q);
            }
        }
    }
}

/* Communicators differ by their epoch: every change makes one more, the same for all. */
static void check_steps(int number, int n)
{
    for (int i = 0; i < n; i++) {
        const struct report *a = &shared->report[i];
        check_failed_sets(number, i);
        for (int j = 0; j < i; j++) {
            const struct report *b = &shared->report[j];
            int at[2] = {0, 0}; /* new ranks have no steps of the first communicator */
            const int na = atomic_load(&a->nsteps), nb = atomic_load(&b->nsteps);
            while (at[0] < na && at[1] < nb && a->step[at[0]].epoch != b->step[at[1]].epoch) {
                at[a->step[at[0]].epoch > b->step[at[1]].epoch]++;
            }
            for (; at[0] < na && at[1] < nb; at[0]++, at[1]++) {
                const struct step *x = &a->step[at[0]], *y = &b->step[at[1]];
                if (x->epoch != y->epoch || x->word != y->word || x->failed != y->failed) {
                    complain(number, RESULTS,
                             "ranks %d and %d agreed on %d %llx %llx and %d %llx %llx", i, j,
                             x->epoch, (unsigned long long)x->word, (unsigned long long)x->failed,
                             y->epoch, (unsigned long long)y->word, (unsigned long long)y->failed);
                    return;
                }
            }
        }
    }
}

static int count_hit(int n)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        count += is_hit(i);
    }
    return count;
}

/* The verdicts of those that go on. Of two victims, ranks of different hosts may name either. */
static void check_verdicts(int number, int n)
{
    const kolo_status wanted = trial.fault == KILL ? KOLO_ERR_PEER : KOLO_ERR_TIMEOUT;
    int first = -2;
    bool split = false;
    for (int i = 0; i < n; i++) {
        const struct report *r = &shared->report[i];
        if (is_lost(i) || r->named == -2) {
            continue;
        }
        const bool names_one = r->named >= 0 && r->named < n;
        const bool right = r->failed == wanted && names_one && is_lost(r->named);
        if (names_one && !is_lost(r->named)) {
            complain(number, FALSE_DEATHS, "rank %d names rank %d (%s)", i, r->named,
                     kolo_status_name(r->failed));
        } else if (!right) {
            (void)printf("trial %d: rank %d: %s names rank %d\n", number, i,
                         kolo_status_name(r->failed), r->named);
        }
        found.verdicts++;
        found.right += right;
        split = split || (first != -2 && first != r->named);
        first = first == -2 ? r->named : first;
    }
    found.judged += first != -2;
    found.split += split;
    if (split && count_hit(n) == 1) {
        complain(number, OTHERS, "ranks do not name the same one");
    }
}

/* ---- how it ended ---- */

/* The operation is not tried again without a rank that died in it. */
static bool ends_with_a_rank(void)
{
    return trial.operation == START || trial.operation == GROW ||
           (trial.operation == RECONFIGURE && over_links() && trial.nnew > 0);
}

static void check_rank(int number, int i, const struct report *first, bool any_old)
{
    const struct report *r = &shared->report[i];
    if (trial.operation == DESTROY) { /* some had left before the death */
        if (r->changed != KOLO_OK && r->changed != KOLO_ERR_PEER) {
            complain(number, OTHERS, "rank %d: %s %s", i, kolo_status_name(r->changed), r->text);
        }
    } else if ((r->changed == KOLO_OK) != (first->changed == KOLO_OK)) {
        complain(number, OTHERS, "rank %d: %s (%s), another %s (%s)", i,
                 kolo_status_name(r->changed), r->text, kolo_status_name(first->changed),
                 first->text);
    } else if (r->last != KOLO_OK && any_old && (!ends_with_a_rank() || r->changed == KOLO_OK)) {
        complain(number, OTHERS, "rank %d: %s %s", i, kolo_status_name(r->last), r->text);
    } else if (r->size != first->size || r->epoch != first->epoch) {
        complain(number, OTHERS, "rank %d is one of %d in epoch %d, another of %d in %d", i,
                 r->size, r->epoch, first->size, first->epoch);
    }
    if (r->wrong) {
        complain(number, RESULTS, "rank %d got a wrong result", i);
    }
}

static void check_reports(int number, int n)
{
    const struct report *first = NULL;
    int nsurvivors = 0;
    bool any_old = false; /* else new ranks wait in vain */
    for (int i = 0; i < trial.nold; i++) {
        any_old = any_old || (!is_lost(i) && takes_part(i));
    }
    for (int i = 0; i < n; i++) {
        if (!is_lost(i) && takes_part(i)) {
            nsurvivors++;
            first = first == NULL ? &shared->report[i] : first;
            check_rank(number, i, first, any_old);
        }
    }
    if (trial.operation != DESTROY && first != NULL && first->changed == KOLO_OK &&
        first->size < nsurvivors) {
        complain(number, FALSE_DEATHS, "%d survivors, but only %d have gone on", nsurvivors,
                 first->size);
    }
    for (int i = 0; trial.fault == STOP && i < n; i++) {
        if (is_hit(i) && takes_part(i) && shared->report[i].last == KOLO_OK && first != NULL &&
            first->size < nsurvivors + 1) {
            complain(number, OTHERS, "rank %d stopped, and was not told that the others went on",
                     i);
        }
    }
}

/* Nobody may have noticed a pause. */
static void check_pause(int number, int n)
{
    for (int i = 0; i < n; i++) {
        const struct report *r = &shared->report[i];
        if (takes_part(i) && (r->changed != KOLO_OK || r->last != KOLO_OK)) {
            complain(number, FALSE_DEATHS, "rank %d: %s %s", i, kolo_status_name(r->last), r->text);
        }
    }
}

/* Over links, nobody goes on without a rank that lives: all give up, and name it. By the time when it
 * goes on they have left, so it may agree alone. */
static void check_given_up(int number, int n)
{
    for (int i = 0; i < n; i++) {
        const struct report *r = &shared->report[i];
        char name[32] = "";
        const bool in_new = trial.operation == RECONFIGURE && r->changed == KOLO_OK;
        for (int k = 0; k < (in_new ? trial.nmembers : n); k++) {
            const int q = in_new ? trial.members[k] : k;
            if (q >= 0 && is_hit(q)) {
                (void)snprintf(name, sizeof name, "rank %d", k);
            }
        }
        if (!is_hit(i) && takes_part(i) && r->last != KOLO_OK &&
            (r->last != KOLO_ERR_TIMEOUT || strstr(r->text, name) == NULL)) {
            complain(number, OTHERS, "rank %d: %s %s", i, kolo_status_name(r->last), r->text);
        }
    }
}

/* ---- times ---- */

static void add(struct times *t, double ms)
{
    if (t->count < TIMES_MOST) {
        t->ms[t->count++] = ms;
    }
}

/* From the death to the last rank that hears of it, and on to the last that has gone on. */
static void take_recovery(int n)
{
    double hit = 0, known = 0, first_known = 1e18, back = 0;
    bool all_back = true;
    for (int i = 0; i < n; i++) {
        const struct report *r = &shared->report[i];
        if (is_hit(i)) {
            hit = r->hit_ms;
        } else {
            known = r->failed_ms > known ? r->failed_ms : known;
            first_known = r->failed_ms < first_known ? r->failed_ms : first_known;
            back = r->back_ms > back ? r->back_ms : back;
            all_back = all_back && r->back_ms > 0;
        }
    }
    if (count_hit(n) == 1 && hit > 0 && first_known > 0) {
        add(trial.operation == IDLE ? &found.idle : &found.calls, known - hit);
        if (all_back) {
            add(&found.shrink, back - first_known);
        }
    }
}

static void take_growth(int n)
{
    double begun = 1e18, grown = 0;
    bool all = true;
    for (int i = 0; i < n; i++) {
        const struct report *r = &shared->report[i];
        begun = r->begun_ms < begun ? r->begun_ms : begun;
        grown = r->grown_ms > grown ? r->grown_ms : grown;
        all = all && r->grown_ms > 0 && !is_hit(i);
    }
    if (all) {
        add(&found.grow, grown - begun);
    }
}

void check_trial(int number)
{
    const int n = trial.nold + trial.nnew;
    const bool loses =
        trial.operation == CALLS || trial.operation == IDLE || trial.operation == SHRINK;
    check_steps(number, n);
    if (trial.fault == STOP && over_links() && !loses) {
        check_given_up(number, n);
    } else {
        check_reports(number, n);
    }
    if (trial.fault == PAUSE) {
        check_pause(number, n);
    } else if (loses) {
        check_verdicts(number, n);
    }
    if (trial.fault == KILL && loses) {
        take_recovery(n);
    } else if (trial.operation == GROW) {
        take_growth(n);
    }
    found.of[trial.operation]++;
    found.victims += count_hit(n);
}

static void print_times(const struct times *t)
{
    (void)printf("%s:", t->what);
    for (int i = 0; i < t->count; i++) {
        (void)printf(" %.2f", t->ms[i]);
    }
    (void)printf("\n");
}

int print_findings(int trials)
{
    int wrong = 0;
    print_times(&found.calls);
    print_times(&found.idle);
    print_times(&found.shrink);
    print_times(&found.grow);
    for (int i = 0; i < OPERATIONS; i++) {
        (void)printf("%d %s, ", found.of[i], operation_names[i]);
    }
    for (int i = 0; i < WRONGS; i++) {
        (void)printf("%d %s, ", found.wrong[i], wrong_names[i]);
        wrong += found.wrong[i];
    }
    (void)printf(
        "%d trials, %d victims, %d verdicts, %d right ones, %d causes, %d of either victim, "
        "%d wrong\n",
        trials, found.victims, found.verdicts, found.right, found.judged, found.split, wrong);
    return wrong;
}
