// SPDX-License-Identifier: Apache-2.0
/* The names of MPI that this library overrides. */
#include "shim.h"

#define NAME __attribute__((visibility("default")))

/* Each name is there for int, and from MPI 4 on for MPI_Count. */
#define INTS(array) ((struct kmpi_list){(array), false})
#define WIDE(array) ((struct kmpi_list){(array), true})
#define SIDE(buf_, count_, type_)                                                                  \
    &(const struct kmpi_side)                                                                      \
    {                                                                                              \
        .buf = (buf_), .count = (count_), .type = (type_)                                          \
    }
#define SIDE_V(buf_, counts_, displs_, type_)                                                      \
    &(const struct kmpi_side)                                                                      \
    {                                                                                              \
        .buf = (buf_), .counts = (counts_), .displs = (displs_), .type = (type_)                   \
    }

NAME int MPI_Barrier(MPI_Comm comm)
{
    int rc = MPI_SUCCESS;
    return kmpi_barrier(comm, &rc) ? rc : PMPI_Barrier(comm);
}

#define BCAST(name, count_t)                                                                       \
    NAME int MPI_##name(void *buf, count_t count, MPI_Datatype type, int root, MPI_Comm comm)      \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return kmpi_bcast(buf, count, type, root, comm, &rc)                                       \
                   ? rc                                                                            \
                   : kmpi_ended(PMPI_##name(buf, count, type, root, comm));                        \
    }

#define REDUCE(name, count_t)                                                                      \
    NAME int MPI_##name(const void *send, void *recv, count_t count, MPI_Datatype type, MPI_Op op, \
                        int root, MPI_Comm comm)                                                   \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return kmpi_reduce(send, recv, count, type, op, root, comm, &rc)                           \
                   ? rc                                                                            \
                   : PMPI_##name(send, recv, count, type, op, root, comm);                         \
    }

#define ALLREDUCE(name, call, count_t)                                                             \
    NAME int MPI_##name(const void *send, void *recv, count_t count, MPI_Datatype type, MPI_Op op, \
                        MPI_Comm comm)                                                             \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return call(send, recv, count, type, op, comm, &rc)                                        \
                   ? rc                                                                            \
                   : PMPI_##name(send, recv, count, type, op, comm);                               \
    }

#define REDUCE_SCATTER(name, count_t, LIST)                                                        \
    NAME int MPI_##name(const void *send, void *recv, const count_t counts[], MPI_Datatype type,   \
                        MPI_Op op, MPI_Comm comm)                                                  \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return kmpi_reduce_scatter(send, recv, LIST(counts), type, op, comm, &rc)                  \
                   ? rc                                                                            \
                   : PMPI_##name(send, recv, counts, type, op, comm);                              \
    }

#define ALL(name, call, count_t)                                                                   \
    NAME int MPI_##name(const void *send, count_t send_count, MPI_Datatype send_type, void *recv,  \
                        count_t recv_count, MPI_Datatype recv_type, MPI_Comm comm)                 \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return call(SIDE(send, send_count, send_type), SIDE(recv, recv_count, recv_type), comm,    \
                    &rc)                                                                           \
                   ? rc                                                                            \
                   : kmpi_ended(PMPI_##name(send, send_count, send_type, recv, recv_count,         \
                                            recv_type, comm));                                     \
    }

#define ROOTED(name, call, count_t)                                                                \
    NAME int MPI_##name(const void *send, count_t send_count, MPI_Datatype send_type, void *recv,  \
                        count_t recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)       \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return call(SIDE(send, send_count, send_type), SIDE(recv, recv_count, recv_type), root,    \
                    comm, &rc)                                                                     \
                   ? rc                                                                            \
                   : kmpi_ended(PMPI_##name(send, send_count, send_type, recv, recv_count,         \
                                            recv_type, root, comm));                               \
    }

#define ALLGATHERV(name, count_t, displ_t, LIST)                                                   \
    NAME int MPI_##name(const void *send, count_t send_count, MPI_Datatype send_type, void *recv,  \
                        const count_t counts[], const displ_t displs[], MPI_Datatype recv_type,    \
                        MPI_Comm comm)                                                             \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return kmpi_allgatherv(SIDE(send, send_count, send_type),                                  \
                               SIDE_V(recv, LIST(counts), LIST(displs), recv_type), comm, &rc)     \
                   ? rc                                                                            \
                   : kmpi_ended(PMPI_##name(send, send_count, send_type, recv, counts, displs,     \
                                            recv_type, comm));                                     \
    }

#define GATHERV(name, count_t, displ_t, LIST)                                                      \
    NAME int MPI_##name(const void *send, count_t send_count, MPI_Datatype send_type, void *recv,  \
                        const count_t counts[], const displ_t displs[], MPI_Datatype recv_type,    \
                        int root, MPI_Comm comm)                                                   \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return kmpi_gatherv(SIDE(send, send_count, send_type),                                     \
                            SIDE_V(recv, LIST(counts), LIST(displs), recv_type), root, comm, &rc)  \
                   ? rc                                                                            \
                   : PMPI_##name(send, send_count, send_type, recv, counts, displs, recv_type,     \
                                 root, comm);                                                      \
    }

#define SCATTERV(name, count_t, displ_t, LIST)                                                     \
    NAME int MPI_##name(const void *send, const count_t counts[], const displ_t displs[],          \
                        MPI_Datatype send_type, void *recv, count_t recv_count,                    \
                        MPI_Datatype recv_type, int root, MPI_Comm comm)                           \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return kmpi_scatterv(SIDE_V(send, LIST(counts), LIST(displs), send_type),                  \
                             SIDE(recv, recv_count, recv_type), root, comm, &rc)                   \
                   ? rc                                                                            \
                   : PMPI_##name(send, counts, displs, send_type, recv, recv_count, recv_type,     \
                                 root, comm);                                                      \
    }

#define ALLTOALLV(name, count_t, displ_t, LIST)                                                    \
    NAME int MPI_##name(const void *send, const count_t send_counts[],                             \
                        const displ_t send_displs[], MPI_Datatype send_type, void *recv,           \
                        const count_t recv_counts[], const displ_t recv_displs[],                  \
                        MPI_Datatype recv_type, MPI_Comm comm)                                     \
    {                                                                                              \
        int rc = MPI_SUCCESS;                                                                      \
        return kmpi_alltoallv(SIDE_V(send, LIST(send_counts), LIST(send_displs), send_type),       \
                              SIDE_V(recv, LIST(recv_counts), LIST(recv_displs), recv_type), comm, \
                              &rc)                                                                 \
                   ? rc                                                                            \
                   : PMPI_##name(send, send_counts, send_displs, send_type, recv, recv_counts,     \
                                 recv_displs, recv_type, comm);                                    \
    }

/* A name with and without the wide form's ending. */
#define ALL_NAMES(c, count_t, displ_t, LIST)                                                       \
    BCAST(Bcast##c, count_t)                                                                       \
    REDUCE(Reduce##c, count_t)                                                                     \
    ALLREDUCE(Allreduce##c, kmpi_allreduce, count_t)                                               \
    ALLREDUCE(Reduce_scatter_block##c, kmpi_reduce_scatter_block, count_t)                         \
    REDUCE_SCATTER(Reduce_scatter##c, count_t, LIST)                                               \
    ALL(Allgather##c, kmpi_allgather, count_t)                                                     \
    ALL(Alltoall##c, kmpi_alltoall, count_t)                                                       \
    ROOTED(Gather##c, kmpi_gather, count_t)                                                        \
    ROOTED(Scatter##c, kmpi_scatter, count_t)                                                      \
    ALLGATHERV(Allgatherv##c, count_t, displ_t, LIST)                                              \
    GATHERV(Gatherv##c, count_t, displ_t, LIST)                                                    \
    SCATTERV(Scatterv##c, count_t, displ_t, LIST)                                                  \
    ALLTOALLV(Alltoallv##c, count_t, displ_t, LIST)

ALL_NAMES(, int, int, INTS)
#if KMPI_HAS_WIDE
ALL_NAMES(_c, MPI_Count, MPI_Aint, WIDE)
#endif
