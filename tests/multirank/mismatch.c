// SPDX-License-Identifier: Apache-2.0
/* A rank of a job whose ranks make different calls, in cases that a seed decides.
 *
 * In each case a new communicator makes a few equal calls. Then one rank makes another call than
 * the others: another collective, count, type, operation or root, or another length of a v-form.
 * Equal calls follow, in a fast loop or none. Every rank must hear MISMATCH with both calls within
 * a second. A rank prints a line for each case that went otherwise, and at the end
 *
 *   <rank>: <cases> cases, <silent> silent, <other> other errors, <unnamed> unnamed, <late> late,
 *   the last after <ms> ms
 *
 * usage: mismatch SEED FIRST COUNT     (cases FIRST to FIRST + COUNT - 1) */
#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 8, MOST = 70000, LIMIT_MS = 1000, PATIENCE_MS = 2500, TIMEOUT_MS = 10000 };
enum form {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    GATHER,
    SCATTER,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BARRIER,
    GATHER_V,
    SCATTER_V,
    ALL_GATHER_V,
    REDUCE_SCATTER_V,
    ALL_TO_ALL_V,
    FORMS
};
static const char *const form_name[FORMS] = {
    "allreduce", "reduce",        "broadcast",      "gather",   "scatter",
    "allgather", "reducescatter", "alltoall",       "barrier",  "gatherv",
    "scatterv",  "allgatherv",    "reducescatterv", "alltoallv"};

struct call {
    enum form form;
    size_t count;
    enum kolo_type type;
    kolo_op op;
    int root;
    bool less; /* a length of a v-form is one element less than it should be */
};

struct scene { /* a case */
    struct call base, other;
    const char *kind;
    int before, after, odd; /* odd: the rank that makes the other call */
    enum form tail;
};

static char in[(size_t)MOST * RANKS * 8], out[(size_t)MOST * RANKS * 8];
static int rank, nranks;
static struct {
    int silent, others, unnamed, late;
    double worst_ms;
} sum;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- cases ---- */

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}
static int below(uint64_t *state, int n)
{
    return (int)(draw(state) % (uint64_t)n);
}

static bool reduces(enum form f)
{
    return f == ALL_REDUCE || f == REDUCE || f == REDUCE_SCATTER || f == REDUCE_SCATTER_V;
}
static bool is_rooted(enum form f)
{
    return f == REDUCE || f == BROADCAST || f == GATHER || f == SCATTER || f == GATHER_V ||
           f == SCATTER_V;
}
static bool is_v(enum form f)
{
    return f >= GATHER_V;
}

/* Change one thing that makes it another call. */
static const char *change(struct call *c, uint64_t *state)
{
    static const char *const kinds[] = {"collective", "count", "type",
                                        "operation",  "root",  "length"};
    for (;;) {
        const int kind = below(state, 6);
        const enum form f = c->form;
        if (kind == 0) {
            c->form = (enum form)(((int)f + 1 + below(state, FORMS - 1)) % FORMS);
        } else if (kind == 1 && f != BARRIER && !is_v(f)) {
            c->count++;
        } else if (kind == 2 && reduces(f)) {
            c->type = c->type == KOLO_FLOAT32 ? KOLO_INT32 : KOLO_FLOAT32;
        } else if (kind == 2 && f != BARRIER && !is_v(f)) {
            c->type = KOLO_FLOAT64;
        } else if (kind == 3 && reduces(f)) {
            c->op = KOLO_MAX;
        } else if (kind == 4 && is_rooted(f)) {
            c->root = (c->root + 1 + below(state, nranks - 1)) % nranks;
        } else if (kind == 5 && is_v(f)) {
            c->less = true;
        } else {
            continue;
        }
        return kinds[kind];
    }
}

static struct scene scene_of(uint64_t seed, int number)
{
    static const size_t counts[] = {1, 2, 6, 300, 5000, MOST - RANKS - 1};
    static const int afters[] = {0, 0, 3, 400};
    static const enum form tails[] = {ALL_REDUCE, BROADCAST, BARRIER, SCATTER};
    uint64_t state = seed * UINT64_C(1000003) + (uint64_t)number;
    struct scene s = {.before = below(&state, 4), .odd = below(&state, nranks)};
    s.base = (struct call){.form = (enum form)below(&state, FORMS),
                           .count = counts[below(&state, 6)],
                           .type = below(&state, 2) ? KOLO_FLOAT32 : KOLO_INT32,
                           .op = KOLO_SUM,
                           .root = below(&state, nranks)};
    s.after = afters[below(&state, 4)];
    s.tail = tails[below(&state, 4)];
    s.other = s.base;
    s.kind = change(&s.other, &state);
    return s;
}

/* ---- calls ---- */

static kolo_status make_v(const struct call *c, struct kolo_comm *comm)
{
    size_t counts[RANKS], displs[RANKS], back[RANKS], at = 0;
    const int victim = (rank + 1) % nranks; /* whose block is short */
    for (int r = 0; r < nranks; r++) {
        counts[r] = c->form == ALL_TO_ALL_V ? c->count : c->count + (size_t)r;
        back[r] = counts[r];
        counts[r] -= c->less && r == victim ? 1 : 0;
        displs[r] = at;
        at += c->count + RANKS;
    }
    const size_t own = c->count + (size_t)rank - (c->less && rank != c->root ? 1 : 0);
    switch (c->form) {
    case GATHER_V:
        return kolo_gatherv(in, own, out, counts, displs, c->type, c->root, comm, NULL);
    case SCATTER_V:
        return kolo_scatterv(in, counts, displs, out, own, c->type, c->root, comm, NULL);
    case ALL_GATHER_V:
        return kolo_all_gatherv(in, out, counts, displs, c->type, comm, NULL);
    case REDUCE_SCATTER_V:
        return kolo_reduce_scatterv(in, out, counts, c->type, c->op, comm, NULL);
    default:
        return kolo_all_to_allv(in, counts, displs, out, back, displs, c->type, comm, NULL);
    }
}

static kolo_status make(const struct call *c, struct kolo_comm *comm)
{
    switch (c->form) {
    case ALL_REDUCE:
        return kolo_all_reduce(in, out, c->count, c->type, c->op, comm, NULL);
    case REDUCE:
        return kolo_reduce(in, out, c->count, c->type, c->op, c->root, comm, NULL);
    case BROADCAST:
        return kolo_broadcast(in, out, c->count, c->type, c->root, comm, NULL);
    case GATHER:
        return kolo_gather(in, out, c->count, c->type, c->root, comm, NULL);
    case SCATTER:
        return kolo_scatter(in, out, c->count, c->type, c->root, comm, NULL);
    case ALL_GATHER:
        return kolo_all_gather(in, out, c->count, c->type, comm, NULL);
    case REDUCE_SCATTER:
        return kolo_reduce_scatter(in, out, c->count, c->type, c->op, comm, NULL);
    case ALL_TO_ALL:
        return kolo_all_to_all(in, out, c->count, c->type, comm, NULL);
    case BARRIER:
        return kolo_barrier(comm, NULL);
    default:
        return make_v(c, comm);
    }
}

/* The words by which an error must name the call. A v-form's count is left out: each rank has its
 * own. */
static void describe(const struct call *c, int number, char *text, size_t room)
{
    char root[32] = "", op[32] = "";
    if (c->form == BARRIER) {
        (void)snprintf(text, room, "call %d, barrier", number);
        return;
    }
    if (is_v(c->form)) {
        (void)snprintf(text, room, "call %d, %s of ", number, form_name[c->form]);
        return;
    }
    if (is_rooted(c->form)) {
        (void)snprintf(root, sizeof root, ", root %d", c->root);
    }
    if (reduces(c->form)) {
        (void)snprintf(op, sizeof op, ", %s", c->op == KOLO_MAX ? "max" : "sum");
    }
    (void)snprintf(text, room, "call %d, %s of %zu %s%s%s", number, form_name[c->form], c->count,
                   kolo_type_name(c->type), op, root);
}

/* "ranks A and B are in different calls: <one>, and <the other>", one of them the odd rank. */
static bool names_both(const struct scene *s, const char *text)
{
    int a = -1, b = -1;
    char one[96], other[96];
    const char *at = strstr(text, "ranks ");
    describe(&s->base, s->before + 1, one, sizeof one);
    describe(&s->other, s->before + 1, other, sizeof other);
    return at != NULL && sscanf(at, "ranks %d and %d are in different calls", &a, &b) == 2 &&
           (a == s->odd) != (b == s->odd) && strstr(text, one) != NULL &&
           strstr(text, other) != NULL;
}

/* ---- a case ---- */

static kolo_status play(const struct scene *s, struct kolo_comm *comm)
{
    const struct call tail = {
        .form = s->tail, .count = 2, .type = KOLO_FLOAT32, .op = KOLO_SUM, .root = 0};
    kolo_status st = make(rank == s->odd ? &s->other : &s->base, comm);
    for (int i = 0; i < s->after && st == KOLO_OK; i++) {
        st = make(&tail, comm);
    }
    return st;
}

static void judge(const struct scene *s, int number, const struct kolo_failure *f, double ms)
{
    const bool silent = f->status == KOLO_OK, mismatch = f->status == KOLO_ERR_MISMATCH;
    const bool named = mismatch && names_both(s, f->text), late = ms > LIMIT_MS;
    sum.silent += silent;
    sum.others += !silent && !mismatch;
    sum.unnamed += mismatch && !named;
    sum.late += !silent && late;
    sum.worst_ms = !silent && ms > sum.worst_ms ? ms : sum.worst_ms;
    if (!named || late) {
        (void)printf(
            "%d: case %d (%s of rank %d; %s of %zu; %d before, %d %s after): %s after %.0f "
            "ms: %s\n",
            rank, number, s->kind, s->odd, form_name[s->base.form], s->base.count, s->before,
            s->after, form_name[s->tail], kolo_status_name(f->status), ms, f->text);
        (void)fflush(stdout);
    }
}

static bool run_case(const struct scene *s, int number, struct kolo_comm *world)
{
    static const struct call warm = {
        .form = ALL_REDUCE, .count = 3, .type = KOLO_FLOAT32, .op = KOLO_SUM};
    struct kolo_config config = KOLO_CONFIG_INIT;
    struct kolo_comm *comm = NULL;
    struct kolo_failure failure = {.size = sizeof failure};
    config.timeout_ms = TIMEOUT_MS;
    if (kolo_comm_split(world, 0, rank, &config, &comm) != KOLO_OK) {
        (void)printf("%d: case %d: split: %s\n", rank, number, kolo_error_text());
        return false;
    }
    for (int i = 0; i < s->before; i++) {
        if (make(&warm, comm) != KOLO_OK) {
            (void)printf("%d: case %d: a call before: %s\n", rank, number, kolo_error_text());
            return false;
        }
    }
    if (kolo_barrier(world, NULL) != KOLO_OK) {
        return false;
    }
    const double begin = now_ms();
    (void)play(s, comm);
    while (kolo_comm_error(comm) == KOLO_OK && now_ms() - begin < PATIENCE_MS) {
        (void)nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    const double end = now_ms();
    const bool told = kolo_comm_failure(comm, &failure) == KOLO_OK;
    judge(s, number, &failure, end - begin);
    const bool met = kolo_barrier(world, NULL) == KOLO_OK; /* nobody leaves before all have heard */
    kolo_comm_destroy(comm);
    return told && met;
}

int main(int argc, char **argv)
{
    struct kolo_comm *world = NULL;
    bool good = argc == 4;
    if (!good || kolo_comm_create_env(NULL, &world) != KOLO_OK) {
        (void)printf("usage: mismatch SEED FIRST COUNT: %s\n", kolo_error_text());
        return 2;
    }
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    const int first = atoi(argv[2]), count = atoi(argv[3]);
    rank = kolo_comm_rank(world);
    nranks = kolo_comm_size(world);
    for (int i = first; i < first + count && good; i++) {
        const struct scene s = scene_of(seed, i);
        good = run_case(&s, i, world);
    }
    (void)printf("%d: %d cases, %d silent, %d other errors, %d unnamed, %d late, the last after "
                 "%.0f ms\n",
                 rank, good ? count : -1, sum.silent, sum.others, sum.unnamed, sum.late,
                 sum.worst_ms);
    kolo_comm_destroy(world);
    return good && sum.silent + sum.others + sum.unnamed + sum.late == 0 ? 0 : 1;
}
