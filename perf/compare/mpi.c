// SPDX-License-Identifier: Apache-2.0
/* MPI as a method of compare, built once for each installed MPI. MPI has no 16-bit floats. For
 * those it gets a user-defined operation, as from an application. */
#include "sum.h"
#include "worker.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static MPI_Datatype mpi_types[COMPARE_TYPES];
static MPI_Op half_sum[COMPARE_TYPES];

static void add(enum compare_type type, const void *in, void *inout, int count)
{
    const void *src[2] = {inout, in};
    compare_sum_of(type)(inout, src, 2, (size_t)count * 2, false);
}

static void add_float16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    add(COMPARE_FLOAT16, in, inout, *count);
}

static void add_bfloat16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    add(COMPARE_BFLOAT16, in, inout, *count);
}

static void make_types(void)
{
    mpi_types[COMPARE_FLOAT32] = MPI_FLOAT;
    mpi_types[COMPARE_FLOAT64] = MPI_DOUBLE;
    mpi_types[COMPARE_FLOAT16] = mpi_types[COMPARE_BFLOAT16] = MPI_UINT16_T;
    mpi_types[COMPARE_INT8] = MPI_INT8_T;
    mpi_types[COMPARE_INT32] = MPI_INT32_T;
    mpi_types[COMPARE_INT64] = MPI_INT64_T;
    MPI_Op_create(add_float16, 1, &half_sum[COMPARE_FLOAT16]);
    MPI_Op_create(add_bfloat16, 1, &half_sum[COMPARE_BFLOAT16]);
}

static bool start(struct compare_team *team, char *version, size_t cap)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0, rank = -1;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) {
        return false;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *tab = text; (tab = strchr(tab, '\t')) != NULL;) {
        *tab = ' ';
    }
    snprintf(version, cap, "%s", text);
    make_types();
    return rank == team->rank;
}

static const char *prepare(const struct compare_point *p)
{
    if (compare_reduces(p->collective) && compare_sum_of(p->type) == NULL) {
        return "no such type";
    }
    return p->collective == COMPARE_HANDOVER ? "is no collective" : NULL;
}

static bool call(const struct compare_point *p)
{
    const MPI_Datatype t = mpi_types[p->type];
    const bool half = p->type == COMPARE_FLOAT16 || p->type == COMPARE_BFLOAT16;
    const MPI_Op op = half ? half_sum[p->type] : MPI_SUM;
    const MPI_Comm all = MPI_COMM_WORLD;
    const int n = (int)p->count;
    switch (p->collective) {
    case COMPARE_ALL_REDUCE:
        return MPI_Allreduce(p->send, p->recv, n, t, op, all) == MPI_SUCCESS;
    case COMPARE_REDUCE:
        return MPI_Reduce(p->send, p->recv, n, t, op, p->root, all) == MPI_SUCCESS;
    case COMPARE_BROADCAST:
        return MPI_Bcast(p->recv, n, t, p->root, all) == MPI_SUCCESS;
    case COMPARE_ALL_GATHER:
        return MPI_Allgather(p->send, n, t, p->recv, n, t, all) == MPI_SUCCESS;
    case COMPARE_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(p->send, p->recv, n, t, op, all) == MPI_SUCCESS;
    case COMPARE_ALL_TO_ALL:
        return MPI_Alltoall(p->send, n, t, p->recv, n, t, all) == MPI_SUCCESS;
    case COMPARE_GATHER:
        return MPI_Gather(p->send, n, t, p->recv, n, t, p->root, all) == MPI_SUCCESS;
    case COMPARE_SCATTER:
        return MPI_Scatter(p->send, n, t, p->recv, n, t, p->root, all) == MPI_SUCCESS;
    default:
        return MPI_Barrier(all) == MPI_SUCCESS;
    }
}

/* A message may need its sender to make progress. */
static bool settle(void)
{
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
}

static void stop(void)
{
    MPI_Op_free(&half_sum[COMPARE_FLOAT16]);
    MPI_Op_free(&half_sum[COMPARE_BFLOAT16]);
    MPI_Finalize();
}

int main(void)
{
    static const struct compare_method mpi_method = {
        .start = start, .prepare = prepare, .call = call, .settle = settle, .stop = stop};
    return compare_worker(&mpi_method);
}
