// SPDX-License-Identifier: Apache-2.0
/* Calls that move data go where they are faster: a trial of each size tells. MPI may read the memory of
 * another process at once, or know the machine better than kolo does.
 *
 * A trial is a series of calls, counted alike on all ranks: some by kolo, some by MPI, and some by kolo
 * once more, so that cold memory is no reason. The first calls of a part are not timed. Of the others the
 * second shortest counts, because other processes lengthen calls and never shorten them. At the end the
 * ranks add up their times, and so decide alike. After some thousands of calls the next trial begins.
 *
 * Reductions take no part: kolo and MPI may add in different orders, and a program's sums must not
 * depend on a clock. */
#include "shim.h"

enum { WARM = 2, TIMED = 8, PART = WARM + TIMED, FIRST = 2 * PART, TRIAL = FIRST + 2 * PART };
enum { NEXT_TRIAL = 8192, BETTER_PERCENT = 95 };

/* The call that this thread times. */
static __attribute__((tls_model("initial-exec"))) _Thread_local struct {
    struct kmpi_comm *comm; /* NULL: none */
    struct kmpi_choice *choice;
    enum kmpi_coll coll;
    size_t bytes;
    int64_t begin_ns;
} timed;

static struct kmpi_choice *choice_of(struct kmpi_comm *c, enum kmpi_coll coll, size_t bytes)
{
    static const signed char row[KMPI_COLLS] = {
        [KMPI_BCAST] = 0,  [KMPI_ALLGATHER] = 1, [KMPI_ALLGATHERV] = 2,
        [KMPI_GATHER] = 3, [KMPI_SCATTER] = 4,   [KMPI_ALLTOALL] = 5};
    const int log = 63 - __builtin_clzll(bytes);
    return &c->choices[row[coll]][log < KMPI_SIZES ? log : KMPI_SIZES - 1];
}

/* Whether call number `n` of a trial is MPI's. */
static bool is_for_mpi(uint32_t n)
{
    return n >= FIRST && n < FIRST + PART;
}

enum kmpi_why kmpi_choose(struct kmpi_comm *c, enum kmpi_coll coll, size_t bytes)
{
    timed.comm = NULL;
    if (bytes == 0 || c->serves_all) {
        return bytes == 0 ? KMPI_EMPTY : KMPI_SERVED;
    }
    struct kmpi_choice *choice = choice_of(c, coll, bytes);
    const uint32_t n = choice->calls++;
    if (__builtin_expect(n >= TRIAL, 1)) {
        if (choice->calls == NEXT_TRIAL) {
            choice->calls = PART; /* kolo is warm */
        }
        return choice->is_mpi ? KMPI_SLOWER : KMPI_SERVED;
    }
    if (n % PART == 0 && n <= FIRST) {
        choice->shortest_ns[is_for_mpi(n)][0] = choice->shortest_ns[is_for_mpi(n)][1] = UINT32_MAX;
    }
    timed.comm = c;
    timed.choice = choice;
    timed.coll = coll;
    timed.bytes = bytes;
    timed.begin_ns = kmpi_now_ns();
    return is_for_mpi(n) ? KMPI_TRIAL : KMPI_SERVED;
}

/* All ranks have timed the same calls. */
static void decide(struct kmpi_comm *c, struct kmpi_choice *choice)
{
    uint64_t ns[2] = {choice->shortest_ns[0][1], choice->shortest_ns[1][1]};
    if (kolo_all_reduce(ns, ns, 2, KOLO_UINT64, KOLO_SUM, c->kolo, NULL) == KOLO_OK) {
        choice->is_mpi = ns[1] * 100 < ns[0] * BETTER_PERCENT;
        kmpi_log(c, "%s of %zu bytes: kolo %.2f us, MPI %.2f us", kmpi_coll_name(timed.coll),
                 timed.bytes, (double)ns[0] / 1000 / c->nranks, (double)ns[1] / 1000 / c->nranks);
    }
}

static void end_timed(void)
{
    struct kmpi_choice *choice = timed.choice;
    struct kmpi_comm *c = timed.comm;
    const int64_t ns = kmpi_now_ns() - timed.begin_ns;
    const uint32_t n = choice->calls - 1, now = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    uint32_t *shortest = choice->shortest_ns[is_for_mpi(n)];
    timed.comm = NULL;
    if (n % PART >= WARM && now < shortest[1]) {
        shortest[1] = now < shortest[0] ? shortest[0] : now;
        shortest[0] = now < shortest[0] ? now : shortest[0];
    }
    if (n == TRIAL - 1) {
        decide(c, choice);
    }
}

int kmpi_ended(int rc)
{
    if (timed.comm != NULL) {
        end_timed();
    }
    return rc;
}
