// SPDX-License-Identifier: Apache-2.0
/* The lines of this layer in kolo's log. A line tells once a communicator where calls of a name go, and
 * the last lines tell how many went there. */
#include "shim.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static const char *const coll_names[KMPI_COLLS] = {
    [KMPI_BARRIER] = "Barrier",
    [KMPI_BCAST] = "Bcast",
    [KMPI_REDUCE] = "Reduce",
    [KMPI_ALLREDUCE] = "Allreduce",
    [KMPI_REDUCE_SCATTER] = "Reduce_scatter",
    [KMPI_REDUCE_SCATTER_BLOCK] = "Reduce_scatter_block",
    [KMPI_ALLGATHER] = "Allgather",
    [KMPI_ALLGATHERV] = "Allgatherv",
    [KMPI_GATHER] = "Gather",
    [KMPI_GATHERV] = "Gatherv",
    [KMPI_SCATTER] = "Scatter",
    [KMPI_SCATTERV] = "Scatterv",
    [KMPI_ALLTOALL] = "Alltoall",
    [KMPI_ALLTOALLV] = "Alltoallv",
};

static const char *const why_texts[KMPI_WHYS] = {
    [KMPI_SERVED] = "kolo",
    [KMPI_OFF] = "MPI: KOLO_MPI is off on a rank, or the program ends",
    [KMPI_ONE_RANK] = "MPI: the communicator has one rank",
    [KMPI_INTERCOMM] = "MPI: an inter-communicator",
    [KMPI_NO_COMM] = "MPI: kolo could not join the ranks",
    [KMPI_ARGUMENT] = "MPI: an argument is wrong",
    [KMPI_EMPTY] = "MPI: no bytes",
    [KMPI_SLOWER] = "MPI: it is faster there; KOLO_MPI=all gives it to kolo",
    [KMPI_TRIAL] = "MPI: a trial whether it is faster there",
    [KMPI_OPERATION] = "MPI: kolo has no such operation on that type",
};

const char *kmpi_coll_name(enum kmpi_coll coll)
{
    return coll_names[coll];
}

static _Atomic unsigned long totals[KMPI_COLLS][KMPI_WHYS];

void kmpi_log(const struct kmpi_comm *c, const char *format, ...)
{
    char text[400], line[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(line, sizeof line, "MPI : rank %d of %d of %s: %s", c->rank, c->nranks, c->name,
                   text);
    kolo_log_line(line);
}

bool kmpi_note(struct kmpi_comm *c, enum kmpi_coll coll, enum kmpi_why why)
{
    const unsigned long before = atomic_load_explicit(
        &totals[coll][why], memory_order_relaxed); /* a lost count is no harm */
    atomic_store_explicit(&totals[coll][why], before + 1, memory_order_relaxed);
    if (__builtin_expect((c->said[coll] & (1u << why)) == 0, 0)) {
        c->said[coll] |= 1u << why;
        kmpi_log(c, "%s -> %s", coll_names[coll], why_texts[why]);
    }
    return why == KMPI_SERVED;
}

void kmpi_log_totals(void)
{
    int rank = 0;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int coll = 0; coll < KMPI_COLLS; coll++) {
        for (int why = 0; why < KMPI_WHYS; why++) {
            char line[256];
            const unsigned long n = atomic_load(&totals[coll][why]);
            if (n > 0) {
                (void)snprintf(line, sizeof line, "MPI : rank %d: %lu calls of %s -> %s", rank, n,
                               coll_names[coll], why_texts[why]);
                kolo_log_line(line);
            }
        }
    }
}
