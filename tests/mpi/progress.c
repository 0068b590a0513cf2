// SPDX-License-Identifier: Apache-2.0
// covers: src/mpi src/exec/cpu
/* A rank that waits in a collective lets MPI's messages move.
 *
 * Rank 0 sends a message that is too long to go before its receive, and enters a collective. Rank 1
 * receives the message first. MPI promises that this ends. If rank 0's wait moved no messages, both
 * would wait for ever.
 *
 * A message that was sent before a barrier is found by one look after it, as MPI's own barriers have it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4 << 20, ROUNDS = 20 };

static char buffer[BYTES];

/* One collective of each way that a wait may go. */
static int collective(int round)
{
    static double in[65536], out[65536];
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int n = round % 2 == 0 ? 1 : 65536;
    for (int i = 0; i < n; i++) {
        in[i] = rank + i;
    }
    switch (round % 5) {
    case 0:
    case 1:
        MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        return out[n - 1] == size * (size - 1) / 2 + (double)size * (n - 1);
    case 2:
        MPI_Barrier(MPI_COMM_WORLD);
        return 1;
    case 3:
        MPI_Bcast(in, n, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
        return in[0] == size - 1;
    default: {
        int counts[64], displs[64];
        for (int i = 0; i < size; i++) {
            counts[i] = 1;
            displs[i] = i;
        }
        MPI_Gatherv(in, 1, MPI_DOUBLE, out, counts, displs, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        return rank != 0 || out[size - 1] == size - 1;
    }
    }
}

/* Whether the last rank finds the short message that rank 0 sent before a barrier. */
static int finds_at_once(int rank, int size)
{
    int sent = rank, found = 1, round = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    for (; round < ROUNDS && found; round++) {
        if (rank == 0) {
            MPI_Isend(&sent, 1, MPI_INT, size - 1, round, MPI_COMM_WORLD, &request);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == size - 1) {
            MPI_Iprobe(0, round, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
            MPI_Recv(&sent, 1, MPI_INT, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Bcast(&found, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    }
    return found;
}

int main(int argc, char **argv)
{
    int rank = 0, size = 0, right = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank == 0) {
            memset(buffer, 'a' + round, sizeof buffer);
            MPI_Isend(buffer, BYTES, MPI_CHAR, 1, round, MPI_COMM_WORLD, &request);
        } else if (rank == 1) {
            MPI_Recv(buffer, BYTES, MPI_CHAR, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            right = right && buffer[BYTES - 1] == 'a' + round;
        }
        right = collective(round) && right;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    right = finds_at_once(rank, size) && right;
    int all = 0;
    MPI_Reduce(&right, &all, 1, MPI_INT, MPI_LAND, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        puts(all ? "right" : "wrong");
    }
    MPI_Finalize();
    return rank == 0 && !all;
}
