// SPDX-License-Identifier: Apache-2.0
/* kolo beside the MPI library that launched it: all-reduce of floats, both in one job, by turns.
 *
 *   mpirun -np 2 compare_mpi [-b MIN] [-e MAX] [-f FACTOR] [-r ROUNDS] [-s]
 *
 * Each round times a batch of calls of each library, in an order that changes from round to round,
 * with a barrier before each batch; a batch's time is the slowest rank's. Medians over the rounds
 * are printed, and their ratio. -s: buffers of kolo_mem_alloc(). The host may move virtual cores
 * between rounds, so only the ratio of one run means anything. */
#include <kolo/kolo.h>

#include <getopt.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 101 };

struct setup {
    size_t min_bytes, max_bytes;
    int factor, rounds;
    bool shared;
    struct kolo_comm *comm;
    float *send, *recv;
};

static void check(kolo_status st)
{
    if (st != KOLO_OK) {
        fprintf(stderr, "compare_mpi: %s: %s\n", kolo_status_name(st), kolo_error_text());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double batch_us(const struct setup *s, size_t count, int calls, bool mpi)
{
    double mine, slowest = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < calls; i++) {
        if (mpi) {
            MPI_Allreduce(s->send, s->recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else {
            check(kolo_all_reduce(s->send, s->recv, count, KOLO_FLOAT32, KOLO_SUM, s->comm, NULL));
        }
    }
    mine = (MPI_Wtime() - begin) * 1e6 / calls;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static long wrong_results(const struct setup *s, size_t count, int nranks)
{
    long wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += s->recv[i] != (float)(nranks * (nranks - 1) / 2) + (float)nranks * (float)(i % 7);
    }
    return wrong;
}

static void compare(const struct setup *s, size_t bytes, int rank, int nranks)
{
    const size_t count = bytes / sizeof(float);
    const int calls = bytes >= 4 << 20     ? 3
                      : bytes >= 256 << 10 ? 20
                      : bytes >= 16 << 10  ? 100
                                           : 500;
    double kolo_us[MAX_ROUNDS], mpi_us[MAX_ROUNDS];
    long mine = 0, wrong = 0;
    (void)batch_us(s, count, 2, true);
    (void)batch_us(s, count, 2, false);
    mine = wrong_results(s, count, nranks);
    MPI_Reduce(&mine, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    for (int r = 0; r < s->rounds; r++) {
        for (int turn = 0; turn < 2; turn++) {
            const bool mpi = (turn + r) % 2 == 0;
            *(mpi ? &mpi_us[r] : &kolo_us[r]) = batch_us(s, count, calls, mpi);
        }
    }
    if (rank == 0) {
        const double k = median(kolo_us, s->rounds), m = median(mpi_us, s->rounds);
        printf("%12zu %12.2f %12.2f %12.2f %10ld\n", bytes, k, m, k / m, wrong);
        fflush(stdout);
    }
}

static void allocate(struct setup *s, int rank)
{
    const size_t bytes = s->max_bytes > 64 ? s->max_bytes : 64;
    if (s->shared) {
        check(kolo_mem_alloc(bytes, (void **)&s->send));
        check(kolo_mem_alloc(bytes, (void **)&s->recv));
    } else {
        s->send = malloc(bytes);
        s->recv = malloc(bytes);
    }
    if (s->send == NULL || s->recv == NULL) {
        fprintf(stderr, "compare_mpi: no memory for two buffers of %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        s->send[i] = (float)rank + (float)(i % 7);
    }
    memset(s->recv, 0, bytes);
}

static void usage(int status)
{
    fprintf(status ? stderr : stdout,
            "usage: compare_mpi [-b BYTES] [-e BYTES] [-f FACTOR] [-r ROUNDS <= %d] [-s]\n",
            MAX_ROUNDS);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void read_options(int argc, char **argv, struct setup *s)
{
    for (int opt = 0; (opt = getopt(argc, argv, "b:e:f:r:sh")) != -1;) {
        switch (opt) {
        case 'b':
            s->min_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'e':
            s->max_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            s->factor = atoi(optarg);
            break;
        case 'r':
            s->rounds = atoi(optarg);
            break;
        case 's':
            s->shared = true;
            break;
        default:
            usage(opt == 'h' ? 0 : 2);
        }
    }
    if (s->factor < 2 || s->rounds < 1 || s->rounds > MAX_ROUNDS || s->min_bytes < 4 ||
        s->min_bytes > s->max_bytes) {
        usage(2);
    }
}

int main(int argc, char **argv)
{
    struct setup s = {.min_bytes = 8, .max_bytes = 16 << 20, .factor = 4, .rounds = 11};
    int rank, nranks;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    read_options(argc, argv, &s);
    int len = 0;
    MPI_Get_library_version(library, &len);
    library[strcspn(library, ",\n")] = '\0';
    check(kolo_comm_create_env(NULL, &s.comm));
    allocate(&s, rank);
    if (rank == 0) {
        printf("# all-reduce, float sum, %d ranks, %s buffers; medians of %d rounds\n", nranks,
               s.shared ? "kolo_mem_alloc" : "private", s.rounds);
        printf("# %10s %12s %12s %12s %10s\n#\n", "bytes", "kolo us", library, "kolo / MPI",
               "wrong");
    }
    for (size_t bytes = s.min_bytes; bytes <= s.max_bytes; bytes *= (size_t)s.factor) {
        compare(&s, bytes, rank, nranks);
    }
    kolo_comm_destroy(s.comm);
    if (s.shared) {
        kolo_mem_free(s.send);
        kolo_mem_free(s.recv);
    } else {
        free(s.send);
        free(s.recv);
    }
    MPI_Finalize();
    return 0;
}
