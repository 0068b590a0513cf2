// SPDX-License-Identifier: Apache-2.0
/* Buffers that the other ranks of this host can map. A large collective reads such inputs in place.
 * Memory of malloc() must be copied first.
 *
 *   cc shared.c -o shared $(pkg-config --cflags --libs kolo)
 *   kolo run -n 2 ./shared */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 4 << 20, CALLS = 10 };

static void must(kolo_status status)
{
    if (status < 0) {
        (void)fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_error_text());
        exit(1);
    }
}

static double now_ms(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Milliseconds of an all-reduce. The first call includes the setup, and is not timed. */
static double time_ms(float *send, float *recv, struct kolo_comm *comm)
{
    must(kolo_all_reduce(send, recv, COUNT, KOLO_FLOAT32, KOLO_SUM, comm, NULL));
    const double begin = now_ms();
    for (int i = 0; i < CALLS; i++) {
        must(kolo_all_reduce(send, recv, COUNT, KOLO_FLOAT32, KOLO_SUM, comm, NULL));
    }
    return (now_ms() - begin) / CALLS;
}

int main(void)
{
    const size_t bytes = COUNT * sizeof(float);
    struct kolo_comm *comm = NULL;
    void *shared[2] = {NULL, NULL};
    must(kolo_comm_create_env(NULL, &comm));

    /* Zeroed memory, which needs no communicator. If no shared memory is left (in containers
     * /dev/shm is often small), the error says so. malloc() then works as well. */
    must(kolo_mem_alloc(bytes, &shared[0]));
    must(kolo_mem_alloc(bytes, &shared[1]));
    float *private[2] = {calloc(COUNT, sizeof(float)), calloc(COUNT, sizeof(float))};
    if (private[0] == NULL || private[1] == NULL) {
        return 1;
    }
    const double private_ms = time_ms(private[0], private[1], comm);
    const double shared_ms = time_ms(shared[0], shared[1], comm);
    if (kolo_comm_rank(comm) == 0) {
        printf("16 MiB: %.1f ms from malloc(), %.1f ms from kolo_mem_alloc()\n", private_ms,
               shared_ms);
    }

    kolo_comm_destroy(comm);
    for (int i = 0; i < 2; i++) {
        free(private[i]);
        kolo_mem_free(shared[i]);
    }
}
