// SPDX-License-Identifier: Apache-2.0
// covers: src/mpi
/* Calls of one size are tried by kolo and by MPI, and then go where they are faster. All of them give the
 * right data, on two communicators, of which one ends within a trial.
 *
 * usage: choice. Prints "right". */
#include <mpi.h>
#include <stdio.h>

enum { MOST = 1 << 18, CALLS = 120, FEW = 25 };

static int in[MOST], out[MOST];

static int bcast_and_alltoall(MPI_Comm comm, int count, int calls)
{
    int rank = 0, size = 0, right = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int call = 0; call < calls; call++) {
        const int root = call % size;
        in[0] = in[count - 1] = rank == root ? call : -1;
        MPI_Bcast(in, count, MPI_INT, root, comm);
        right = right && in[0] == call && in[count - 1] == call;
        for (int to = 0; to < size; to++) {
            in[to * count] = in[(to + 1) * count - 1] = 100 * rank + to + call;
        }
        MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, comm);
        for (int from = 0; from < size; from++) {
            const int sent = 100 * from + rank + call;
            right = right && out[from * count] == sent && out[(from + 1) * count - 1] == sent;
        }
    }
    return right;
}

int main(int argc, char **argv)
{
    int size = 0, right = 1, all = 0, rank = 0;
    MPI_Comm copy;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int count = 1; count * size <= MOST; count *= 16) {
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        right = bcast_and_alltoall(copy, count, FEW) && right;
        right = bcast_and_alltoall(MPI_COMM_WORLD, count, CALLS) && right;
        MPI_Comm_free(&copy);
    }
    MPI_Reduce(&right, &all, 1, MPI_INT, MPI_LAND, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        puts(all ? "right" : "wrong");
    }
    MPI_Finalize();
    return 0;
}
