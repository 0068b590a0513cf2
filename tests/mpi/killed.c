// SPDX-License-Identifier: Apache-2.0
// covers: src/mpi
/* The last rank is killed between two collectives. Each other rank writes what MPI tells it to the file
 * FOLDER/RANK: a launcher may drop the output of a job in which a rank has died.
 *
 * usage: killed FOLDER */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank = 0, size = 0, len = 0, in = 1, out = 0;
    char text[MPI_MAX_ERROR_STRING] = "", path[4096];
    MPI_Init(&argc, &argv);
    signal(SIGUSR1, SIG_IGN); /* by which MPICH's launcher tells of a death */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 100; i++) {
        MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == size - 1) {
        raise(SIGKILL);
    }
    const int rc = MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rc != MPI_SUCCESS) {
        MPI_Error_string(rc, text, &len);
    }
    (void)snprintf(path, sizeof path, "%s/%d", argc > 1 ? argv[1] : ".", rank);
    FILE *file = fopen(path, "w");
    if (file != NULL) {
        (void)fputs(rc == MPI_SUCCESS ? "success" : text, file);
        (void)fclose(file);
    }
    _exit(0); /* MPI_Finalize() may wait for the dead rank */
}
