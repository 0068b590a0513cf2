// SPDX-License-Identifier: Apache-2.0
// covers: src/mpi
/* One rank has no memory. The ranks still decide alike, and none waits for ever.
 *
 * This program's malloc() and calloc() refuse what the library of kolo asks for while `refuses` is set
 * on rank 1. First there is no memory for the state of a communicator: MPI serves it on all ranks.
 * Then there is none for a packed buffer of a call that all ranks have given to kolo: the call fails
 * on all ranks. Prints "right". */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);

static int refuses, refused;

static int refuse(void *caller)
{
    Dl_info from;
    if (!refuses || dladdr(caller, &from) == 0 || strstr(from.dli_fname, "libkolo_mpi") == NULL) {
        return 0;
    }
    refused++;
    return 1;
}

void *malloc(size_t bytes)
{
    return refuse(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return refuse(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

static int sums(MPI_Comm comm, int times)
{
    int size = 0, right = 1;
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < times; i++) {
        int sum = 0, one = 1;
        right = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS &&
                sum == size && right;
    }
    return right;
}

/* Ranks gather numbers with gaps, which are packed. */
static int gather(MPI_Comm comm)
{
    static int in[2], out[2 * 64];
    MPI_Datatype gap;
    MPI_Type_create_resized(MPI_INT, 0, 2 * (MPI_Aint)sizeof(int), &gap);
    MPI_Type_commit(&gap);
    const int rc = MPI_Allgather(in, 1, gap, out, 1, gap, comm);
    MPI_Type_free(&gap);
    return rc;
}

int main(int argc, char **argv)
{
    int rank = 0, right = 1, all = 0, on_all = 0;
    MPI_Comm first, second;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    MPI_Comm_set_errhandler(second, MPI_ERRORS_RETURN);
    right = sums(MPI_COMM_WORLD, 3);
    refuses = rank == 1;
    right = sums(first, 3) && right;
    refuses = 0;
    right = sums(first, 3) && right;
    right = (rank == 1) == (refused > 0) && right;
    right = sums(second, 3) && gather(second) == MPI_SUCCESS && right;
    refuses = rank == 1;
    refused = 0;
    right = gather(second) != MPI_SUCCESS && right;
    right = (rank == 1) == (refused > 0) && right;
    refuses = 0;
    MPI_Comm_free(&first);
    MPI_Comm_free(&second);
    right = sums(MPI_COMM_WORLD, 3) && right;
    PMPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    on_all = all;
    if (rank == 0) {
        puts(on_all ? "right" : "wrong");
    }
    MPI_Finalize();
    return !on_all;
}
