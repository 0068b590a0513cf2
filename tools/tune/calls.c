// SPDX-License-Identifier: Apache-2.0
/* The timed calls, and the compositions that get the same result by other collectives.
 *
 * If a composition is faster than the collective itself, an algorithm is missing or badly chosen.
 * These are the guidelines of Traff, Gropp and Thakur, "Self-consistent MPI performance guidelines"
 * (2010), doi:10.1109/TPDS.2009.120. */
#include "tools/tune/tune.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENT = sizeof(float) };

/* ---- memory ---- */

static kolo_status take_memory(size_t bytes, bool shared, void **out)
{
    if (shared) {
        KOLO_TRY(kolo_mem_alloc(bytes, out));
    } else {
        *out = aligned_alloc(4096, kolo_round_up(bytes, 4096));
        if (*out == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for buffers of %zu bytes", bytes);
        }
    }
    for (size_t i = 0; i < bytes / ELEMENT; i++) {
        ((float *)*out)[i] = 1;
    }
    return KOLO_OK;
}

kolo_status tune_memory_take(size_t bytes, struct tune_memory *out)
{
    out->bytes = bytes;
    KOLO_TRY(take_memory(bytes, false, &out->in[0]));
    return take_memory(bytes, false, &out->out[0]);
}

kolo_status tune_memory_share(struct tune_memory *memory)
{
    KOLO_TRY(take_memory(memory->bytes, true, &memory->in[1]));
    return take_memory(memory->bytes, true, &memory->out[1]);
}

void tune_memory_free(struct tune_memory *memory)
{
    free(memory->in[0]);
    free(memory->out[0]);
    kolo_mem_free(memory->in[1]);
    kolo_mem_free(memory->out[1]);
    *memory = (struct tune_memory){0};
}

size_t tune_span(enum kolo_coll coll, int nranks, size_t bytes)
{
    return kolo_coll_flat(coll) || coll == KOLO_COLL_BARRIER ? bytes : bytes * (size_t)nranks;
}

/* ---- calls ---- */

kolo_status tune_call(struct kolo_comm *comm, const struct tune_memory *memory, bool shared,
                      enum kolo_coll coll, size_t bytes)
{
    const void *in = memory->in[shared];
    void *out = memory->out[shared];
    const size_t count = bytes / ELEMENT;
    switch (coll) {
    case KOLO_COLL_ALL_REDUCE:
        return kolo_all_reduce(in, out, count, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    case KOLO_COLL_REDUCE:
        return kolo_reduce(in, out, count, KOLO_FLOAT32, KOLO_SUM, 0, comm, NULL);
    case KOLO_COLL_BROADCAST:
        return kolo_broadcast(in, out, count, KOLO_FLOAT32, 0, comm, NULL);
    case KOLO_COLL_GATHER:
        return kolo_gather(in, out, count, KOLO_FLOAT32, 0, comm, NULL);
    case KOLO_COLL_SCATTER:
        return kolo_scatter(in, out, count, KOLO_FLOAT32, 0, comm, NULL);
    case KOLO_COLL_ALL_GATHER:
        return kolo_all_gather(in, out, count, KOLO_FLOAT32, comm, NULL);
    case KOLO_COLL_REDUCE_SCATTER:
        return kolo_reduce_scatter(in, out, count, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    case KOLO_COLL_ALL_TO_ALL:
        return kolo_all_to_all(in, out, count, KOLO_FLOAT32, comm, NULL);
    default:
        return kolo_barrier(comm, NULL);
    }
}

/* ---- compositions ---- */

/* The size of a part relative to the whole: the same, a rank's share, or the blocks of all ranks.
 */
enum scale { SAME, SHARE, ALL };

static const struct composition {
    enum kolo_coll whole;
    const char *name;
    int nparts;
    struct {
        enum kolo_coll coll;
        enum scale scale;
    } part[2];
} compositions[] = {
    {KOLO_COLL_ALL_REDUCE,
     "reduce+broadcast",
     2,
     {{KOLO_COLL_REDUCE, SAME}, {KOLO_COLL_BROADCAST, SAME}}},
    {KOLO_COLL_ALL_REDUCE,
     "reducescatter+allgather",
     2,
     {{KOLO_COLL_REDUCE_SCATTER, SHARE}, {KOLO_COLL_ALL_GATHER, SHARE}}},
    {KOLO_COLL_REDUCE, "allreduce", 1, {{KOLO_COLL_ALL_REDUCE, SAME}}},
    {KOLO_COLL_REDUCE,
     "reducescatter+gather",
     2,
     {{KOLO_COLL_REDUCE_SCATTER, SHARE}, {KOLO_COLL_GATHER, SHARE}}},
    {KOLO_COLL_BROADCAST,
     "scatter+allgather",
     2,
     {{KOLO_COLL_SCATTER, SHARE}, {KOLO_COLL_ALL_GATHER, SHARE}}},
    {KOLO_COLL_GATHER, "allgather", 1, {{KOLO_COLL_ALL_GATHER, SAME}}},
    {KOLO_COLL_SCATTER, "broadcast", 1, {{KOLO_COLL_BROADCAST, ALL}}},
    {KOLO_COLL_ALL_GATHER,
     "gather+broadcast",
     2,
     {{KOLO_COLL_GATHER, SAME}, {KOLO_COLL_BROADCAST, ALL}}},
    {KOLO_COLL_ALL_GATHER, "alltoall", 1, {{KOLO_COLL_ALL_TO_ALL, SAME}}},
    {KOLO_COLL_REDUCE_SCATTER,
     "reduce+scatter",
     2,
     {{KOLO_COLL_REDUCE, ALL}, {KOLO_COLL_SCATTER, SAME}}},
    {KOLO_COLL_REDUCE_SCATTER, "allreduce", 1, {{KOLO_COLL_ALL_REDUCE, ALL}}},
};

/* The bytes of a part; 0: the part would not be whole elements. */
static size_t part_bytes(enum scale scale, int nranks, size_t bytes)
{
    const size_t n = (size_t)nranks;
    if (scale == SHARE) {
        return bytes % (n * ELEMENT) == 0 ? bytes / n : 0;
    }
    return scale == ALL ? bytes * n : bytes;
}

int tune_composition(enum kolo_coll coll, int nranks, size_t bytes, int from)
{
    for (int i = from; i < (int)KOLO_LENGTH(compositions); i++) {
        if (compositions[i].whole == coll &&
            part_bytes(compositions[i].part[0].scale, nranks, bytes) > 0) {
            return i;
        }
    }
    return -1;
}

const char *tune_composition_name(int composition)
{
    return compositions[composition].name;
}

kolo_status tune_compose(struct kolo_comm *comm, const struct tune_memory *memory, bool shared,
                         int composition, size_t bytes)
{
    const struct composition *c = &compositions[composition];
    for (int i = 0; i < c->nparts; i++) {
        KOLO_TRY(tune_call(comm, memory, shared, c->part[i].coll,
                           part_bytes(c->part[i].scale, kolo_comm_size(comm), bytes)));
    }
    return KOLO_OK;
}
