// SPDX-License-Identifier: Apache-2.0
/* The collectives: their names, the number of chunks of each buffer, and the chunks of IN and OUT
 * that are the same memory in an in-place call. */
#include "plan.h"

static const char *const coll_names[KOLO_COLLS] = {"allreduce",     "reduce",   "broadcast",
                                                   "gather",        "scatter",  "allgather",
                                                   "reducescatter", "alltoall", "barrier"};
static const char *const coll_titles[KOLO_COLLS] = {"AllReduce",     "Reduce",   "Broadcast",
                                                    "Gather",        "Scatter",  "AllGather",
                                                    "ReduceScatter", "AllToAll", "Barrier"};

const char *kolo_coll_name(enum kolo_coll coll)
{
    return (unsigned)coll < KOLO_COLLS ? coll_names[coll] : "unknown";
}

static bool is_name(const char *text, size_t len, const char *name)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '_') {
            continue;
        }
        if (*name == '\0' || text[i] != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

bool kolo_coll_find(const char *name, size_t len, enum kolo_coll *out)
{
    for (int c = 0; c < KOLO_COLLS; c++) {
        if (is_name(name, len, coll_names[c])) {
            *out = (enum kolo_coll)c;
            return true;
        }
    }
    return false;
}

void kolo_coll_list(struct kolo_text *out, const char *between)
{
    for (int c = 0; c < KOLO_COLLS; c++) {
        kolo_text_add(out, "%s%s", c > 0 ? between : "", coll_names[c]);
    }
}

const char *kolo_coll_title(enum kolo_coll coll)
{
    return (unsigned)coll < KOLO_COLLS ? coll_titles[coll] : "Unknown";
}

int kolo_plan_buf_chunks(const struct kolo_plan *plan, int rank, enum kolo_buf buf)
{
    const bool root = rank == plan->shape.root;
    const int n = plan->shape.nranks;
    if (buf == KOLO_SCRATCH) {
        return plan->scratch_chunks;
    }
    switch (plan->shape.coll) {
    case KOLO_COLL_ALL_REDUCE:
        return plan->chunks;
    case KOLO_COLL_REDUCE:
        return buf == KOLO_IN || root ? plan->chunks : 0;
    case KOLO_COLL_BROADCAST:
        return buf == KOLO_OUT || root ? plan->chunks : 0;
    case KOLO_COLL_GATHER:
        return buf == KOLO_IN ? 1 : root ? n : 0;
    case KOLO_COLL_SCATTER:
        return buf == KOLO_OUT ? 1 : root ? n : 0;
    case KOLO_COLL_ALL_GATHER:
        return buf == KOLO_IN ? 1 : n;
    case KOLO_COLL_REDUCE_SCATTER:
        return buf == KOLO_OUT ? 1 : n;
    case KOLO_COLL_ALL_TO_ALL:
        return n;
    default:
        return 0;
    }
}

int kolo_alias_out_chunk(const struct kolo_plan *plan, int rank, int chunk)
{
    switch (plan->shape.coll) {
    case KOLO_COLL_ALL_REDUCE:
    case KOLO_COLL_REDUCE:
    case KOLO_COLL_BROADCAST:
    case KOLO_COLL_ALL_TO_ALL:
        return kolo_plan_buf_chunks(plan, rank, KOLO_OUT) > 0 ? chunk : -1;
    case KOLO_COLL_ALL_GATHER:
        return rank;
    case KOLO_COLL_GATHER:
        return rank == plan->shape.root ? rank : -1;
    case KOLO_COLL_SCATTER:
    case KOLO_COLL_REDUCE_SCATTER:
        return chunk == rank ? 0 : -1;
    default:
        return -1;
    }
}
