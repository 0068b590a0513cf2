// SPDX-License-Identifier: Apache-2.0
/* The collectives of Fortran programs.
 *
 * Open MPI's Fortran functions call PMPI_*(), so its programs need Fortran names of their own. Those of
 * MPICH and Intel MPI call the C names of names.c, so their programs need nothing here.
 *
 * mpif.h and the module mpi call mpi_bcast_(), as gfortran, ifx and flang write the name. The module
 * mpi_f08 calls ompi_bcast_f(). The arguments are the same: addresses, and handles as integers.
 * Constants such as MPI_IN_PLACE are the addresses of variables that Open MPI has for Fortran. */
#include "shim.h"

/* The build looks at Open MPI's header: integers of Fortran must be those of C, for lists of them. */
#ifdef KMPI_FORTRAN

/* NULL where Open MPI was built without Fortran. */
extern int fortran_in_place __asm__("mpi_fortran_in_place_") __attribute__((weak));
extern int fortran_bottom __asm__("mpi_fortran_bottom_") __attribute__((weak));

static void *address(void *buf)
{
    if (&fortran_in_place != NULL && buf == &fortran_in_place) {
        return MPI_IN_PLACE;
    }
    if (&fortran_bottom != NULL && buf == &fortran_bottom) {
        return MPI_BOTTOM;
    }
    return buf;
}

/* Both names of a function, with its arguments, and the call that it makes. */
#define FORTRAN(name, params, call)                                                                \
    __attribute__((visibility("default"))) void mpi_##name##_ params;                              \
    __attribute__((visibility("default"), alias("mpi_" #name "_"))) void ompi_##name##_f params;   \
    void mpi_##name##_ params                                                                      \
    {                                                                                              \
        *error = call;                                                                             \
    }

#define TYPE(handle) PMPI_Type_f2c(*(handle))
#define OP(handle)   PMPI_Op_f2c(*(handle))
#define COMM         PMPI_Comm_f2c(*comm)

/* Open MPI's mpi_iprobe_() and its like do not pass through look.c. So messages move here. */
static int barrier(MPI_Comm comm)
{
    const int error = MPI_Barrier(comm);
    kmpi_catch_up();
    return error;
}

FORTRAN(barrier, (const MPI_Fint *comm, MPI_Fint *error), barrier(COMM))

FORTRAN(bcast,
        (void *buf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *root,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Bcast(address(buf), *count, TYPE(type), *root, COMM))

FORTRAN(reduce,
        (void *send, void *recv, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *root, const MPI_Fint *comm, MPI_Fint *error),
        MPI_Reduce(address(send), address(recv), *count, TYPE(type), OP(op), *root, COMM))

FORTRAN(allreduce,
        (void *send, void *recv, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Allreduce(address(send), address(recv), *count, TYPE(type), OP(op), COMM))

FORTRAN(reduce_scatter_block,
        (void *send, void *recv, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Reduce_scatter_block(address(send), address(recv), *count, TYPE(type), OP(op), COMM))

FORTRAN(reduce_scatter,
        (void *send, void *recv, const MPI_Fint counts[], const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Reduce_scatter(address(send), address(recv), counts, TYPE(type), OP(op), COMM))

FORTRAN(allgather,
        (void *send, const MPI_Fint *send_count, const MPI_Fint *send_type, void *recv,
         const MPI_Fint *recv_count, const MPI_Fint *recv_type, const MPI_Fint *comm,
         MPI_Fint *error),
        MPI_Allgather(address(send), *send_count, TYPE(send_type), address(recv), *recv_count,
                      TYPE(recv_type), COMM))

FORTRAN(alltoall,
        (void *send, const MPI_Fint *send_count, const MPI_Fint *send_type, void *recv,
         const MPI_Fint *recv_count, const MPI_Fint *recv_type, const MPI_Fint *comm,
         MPI_Fint *error),
        MPI_Alltoall(address(send), *send_count, TYPE(send_type), address(recv), *recv_count,
                     TYPE(recv_type), COMM))

FORTRAN(gather,
        (void *send, const MPI_Fint *send_count, const MPI_Fint *send_type, void *recv,
         const MPI_Fint *recv_count, const MPI_Fint *recv_type, const MPI_Fint *root,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Gather(address(send), *send_count, TYPE(send_type), address(recv), *recv_count,
                   TYPE(recv_type), *root, COMM))

FORTRAN(scatter,
        (void *send, const MPI_Fint *send_count, const MPI_Fint *send_type, void *recv,
         const MPI_Fint *recv_count, const MPI_Fint *recv_type, const MPI_Fint *root,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Scatter(address(send), *send_count, TYPE(send_type), address(recv), *recv_count,
                    TYPE(recv_type), *root, COMM))

FORTRAN(allgatherv,
        (void *send, const MPI_Fint *send_count, const MPI_Fint *send_type, void *recv,
         const MPI_Fint counts[], const MPI_Fint displs[], const MPI_Fint *recv_type,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Allgatherv(address(send), *send_count, TYPE(send_type), address(recv), counts, displs,
                       TYPE(recv_type), COMM))

FORTRAN(gatherv,
        (void *send, const MPI_Fint *send_count, const MPI_Fint *send_type, void *recv,
         const MPI_Fint counts[], const MPI_Fint displs[], const MPI_Fint *recv_type,
         const MPI_Fint *root, const MPI_Fint *comm, MPI_Fint *error),
        MPI_Gatherv(address(send), *send_count, TYPE(send_type), address(recv), counts, displs,
                    TYPE(recv_type), *root, COMM))

FORTRAN(scatterv,
        (void *send, const MPI_Fint counts[], const MPI_Fint displs[], const MPI_Fint *send_type,
         void *recv, const MPI_Fint *recv_count, const MPI_Fint *recv_type, const MPI_Fint *root,
         const MPI_Fint *comm, MPI_Fint *error),
        MPI_Scatterv(address(send), counts, displs, TYPE(send_type), address(recv), *recv_count,
                     TYPE(recv_type), *root, COMM))

FORTRAN(alltoallv,
        (void *send, const MPI_Fint send_counts[], const MPI_Fint send_displs[],
         const MPI_Fint *send_type, void *recv, const MPI_Fint recv_counts[],
         const MPI_Fint recv_displs[], const MPI_Fint *recv_type, const MPI_Fint *comm,
         MPI_Fint *error),
        MPI_Alltoallv(address(send), send_counts, send_displs, TYPE(send_type), address(recv),
                      recv_counts, recv_displs, TYPE(recv_type), COMM))

#endif
