// SPDX-License-Identifier: Apache-2.0
/* Calls that move data go where they are faster: a trial of each size tells. MPI may read the memory of
 * another process at once, or know the machine better than kolo does.
 *
 * A trial is a series of calls, counted alike on all ranks: a part by kolo, a part by MPI, and so on. The
 * first calls of a part are not timed. The ranks add up their times of each part. The median of the
 * parts counts: other processes lengthen a few parts, but a wait that comes in every tenth call, as on
 * crowded cores, lengthens most. Kolo has to be clearly faster. After some thousands of calls the next
 * trial begins.
 *
 * A program may make few long calls, and the slower way costs it much. So a trial of long calls ends
 * once three parts by each agree that one of them is faster by a quarter.
 *
 * Reductions take no part: kolo and MPI may add in different orders, and a program's sums must not
 * depend on a clock. */
#include "shim.h"

#include <string.h>

enum { NEXT_TRIAL = 8192, FASTER_PERCENT = 95, LONG_BYTES = 1 << 16 };
enum { PARTS_THAT_AGREE = 3, CLEARLY_PERCENT = 125 };

/* Calls of a part. Long calls vary less, and many of them take long. */
struct part {
    uint32_t warm, calls;
};
static const struct part short_part = {2, 10}, long_part = {1, 3};

static const struct part *part_of(size_t bytes)
{
    return bytes < LONG_BYTES ? &short_part : &long_part;
}

static uint32_t trial_of(size_t bytes)
{
    return 2 * KMPI_PARTS * part_of(bytes)->calls;
}

/* The call that this thread times: its communicator (NULL: none), and the rest. */
_Thread_local struct kmpi_comm *kmpi_timed;
static __attribute__((tls_model("initial-exec"))) _Thread_local struct {
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

/* A call of a trial. The usual call saves no registers for it. */
static __attribute__((noinline)) enum kmpi_why begin_timed(struct kmpi_comm *c, enum kmpi_coll coll,
                                                           struct kmpi_choice *choice, size_t bytes)
{
    const uint32_t n = choice->calls - 1;
    kmpi_timed = c;
    timed.choice = choice;
    timed.coll = coll;
    timed.bytes = bytes;
    timed.begin_ns = kmpi_now_ns();
    return n / part_of(bytes)->calls % 2 == 0 ? KMPI_SERVED : KMPI_TRIAL;
}

enum kmpi_why kmpi_choose(struct kmpi_comm *c, enum kmpi_coll coll, size_t bytes)
{
    kmpi_timed = NULL;
    if (bytes == 0 || c->serves_all) {
        return bytes == 0 ? KMPI_EMPTY : KMPI_SERVED;
    }
    struct kmpi_choice *choice = choice_of(c, coll, bytes);
    const uint32_t n = choice->calls++;
    if (__builtin_expect(n < trial_of(bytes), 0)) {
        return begin_timed(c, coll, choice, bytes);
    }
    if (n == NEXT_TRIAL - 1) {
        choice->calls = 0;
    }
    return choice->is_mpi ? KMPI_SLOWER : KMPI_SERVED;
}

static uint64_t median(uint64_t ns[KMPI_PARTS], int parts)
{
    for (int i = 1; i < parts; i++) {
        const uint64_t now = ns[i];
        int at = i;
        for (; at > 0 && ns[at - 1] > now; at--) {
            ns[at] = ns[at - 1];
        }
        ns[at] = now;
    }
    return ns[parts / 2];
}

/* Whether each part so far took clearly longer by the way `slow` than by the other. */
static bool is_clearly(uint64_t ns[2][KMPI_PARTS], int parts, int slow)
{
    bool all = parts >= PARTS_THAT_AGREE;
    for (int i = 0; i < parts; i++) {
        all = all && ns[slow][i] * 100 > ns[!slow][i] * CLEARLY_PERCENT;
    }
    return all;
}

/* All ranks have timed the same calls: `parts` parts by each way. */
static void decide(struct kmpi_comm *c, struct kmpi_choice *choice, int parts)
{
    uint64_t ns[2][KMPI_PARTS];
    memcpy(ns, choice->ns, sizeof ns);
    if (kolo_all_reduce(ns, ns, sizeof ns / sizeof ns[0][0], KOLO_UINT64, KOLO_SUM, c->kolo,
                        NULL) != KOLO_OK) {
        return;
    }
    if (parts < KMPI_PARTS && !is_clearly(ns, parts, 0) && !is_clearly(ns, parts, 1)) {
        return; /* the trial goes on */
    }
    const struct part *part = part_of(timed.bytes);
    const uint64_t kolo_ns = median(ns[0], parts), mpi_ns = median(ns[1], parts);
    const double calls = (double)(part->calls - part->warm) * c->nranks;
    choice->is_mpi = kolo_ns * 100 > mpi_ns * FASTER_PERCENT;
    choice->calls = trial_of(timed.bytes);
    kmpi_log(c, "%s of %zu bytes, %d parts: kolo %.2f us, MPI %.2f us", kmpi_coll_name(timed.coll),
             timed.bytes, parts, (double)kolo_ns / 1000 / calls, (double)mpi_ns / 1000 / calls);
}

void kmpi_end_timed(void)
{
    struct kmpi_choice *choice = timed.choice;
    struct kmpi_comm *c = kmpi_timed;
    const uint64_t now = (uint64_t)(kmpi_now_ns() - timed.begin_ns);
    const struct part *part = part_of(timed.bytes);
    const uint32_t n = choice->calls - 1, at = n / part->calls;
    uint64_t *ns = &choice->ns[at % 2][at / 2];
    kmpi_timed = NULL;
    *ns = n % part->calls < part->warm ? 0 : *ns + now;
    const bool is_last = (n + 1) % (2 * part->calls) == 0; /* of a part by MPI */
    if (is_last && (part == &long_part || n == trial_of(timed.bytes) - 1)) {
        decide(c, choice, (int)(at / 2) + 1);
    }
}
