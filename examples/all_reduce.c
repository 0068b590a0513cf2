// SPDX-License-Identifier: Apache-2.0
/* The mean of a vector over all ranks.
 *
 *   cc all_reduce.c -o all_reduce $(pkg-config --cflags --libs kolo)
 *   kolo run -n 4 ./all_reduce
 *
 * Every rank runs this program. kolo_comm_create_env() learns from the launcher (kolo run, mpirun,
 * torchrun, srun) which rank this process is, and how to find the other ranks. A program started
 * without a launcher is a job of one rank. */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1000 };

/* Errors are negative. kolo_error_text() describes the error, and names the rank at fault. */
static void must(kolo_status status)
{
    if (status < 0) {
        (void)fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_error_text());
        exit(1);
    }
}

int main(void)
{
    struct kolo_comm *comm = NULL;
    must(kolo_comm_create_env(NULL, &comm));
    const int rank = kolo_comm_rank(comm);

    /* Counts are elements. The send buffer may be the receive buffer, too. */
    float values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)(i + rank);
    }
    must(kolo_all_reduce(values, values, COUNT, KOLO_FLOAT32, KOLO_AVG, comm, NULL));

    /* Without a stream (the last NULL) the call returns when the result is there. The result is the
     * same on every rank. */
    printf("rank %d of %d: the means go from %g to %g\n", rank, kolo_comm_size(comm), values[0],
           values[COUNT - 1]);

    /* The other ranks treat a rank that ends without this call as dead. */
    kolo_comm_destroy(comm);
}
