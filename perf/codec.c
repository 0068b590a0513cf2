// SPDX-License-Identifier: Apache-2.0
/* codec: calls by each codec beside the same calls without one. A row is a collective and a size: the
 * median of the slowest rank's times in microseconds, and how many times faster than uncompressed
 * the call is. Whether a call is compressed is the choice by price, or KOLO_CODEC.
 *
 * usage: codec [COLLECTIVE [ROUNDS [BYTES...]]]      (all_reduce, all_gather or reduce_scatter) */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 1000 };

static struct kolo_comm *comm;

static void must(kolo_status st)
{
    if (st != KOLO_OK) {
        fprintf(stderr, "%s: %s\n", kolo_status_name(st), kolo_error_text());
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void call(const char *collective, const float *in, float *out, size_t count,
                 enum kolo_codec codec)
{
    const size_t block = count / (size_t)kolo_comm_size(comm);
    if (strcmp(collective, "all_gather") == 0) {
        must(kolo_all_gather_codec(in, out, block, KOLO_FLOAT32, codec, comm, NULL));
    } else if (strcmp(collective, "reduce_scatter") == 0) {
        must(kolo_reduce_scatter_codec(in, out, block, KOLO_FLOAT32, KOLO_SUM, codec, comm, NULL));
    } else {
        must(kolo_all_reduce_codec(in, out, count, KOLO_FLOAT32, KOLO_SUM, codec, comm, NULL));
    }
}

/* The median over rounds of the slowest rank's time. */
static double median_us(const char *collective, const float *in, float *out, size_t count,
                        enum kolo_codec codec, int rounds)
{
    double us[ROUNDS_MAX];
    call(collective, in, out, count, codec);
    for (int i = 0; i < rounds; i++) {
        must(kolo_barrier(comm, NULL));
        const double begin = now_us();
        call(collective, in, out, count, codec);
        double mine = now_us() - begin;
        must(kolo_all_reduce(&mine, &us[i], 1, KOLO_FLOAT64, KOLO_MAX, comm, NULL));
    }
    qsort(us, (size_t)rounds, sizeof *us, by_value);
    return us[rounds / 2];
}

static void measure(const char *collective, size_t bytes, int rounds)
{
    const size_t count = bytes / sizeof(float);
    float *in = malloc(bytes + 1), *out = malloc(bytes + 1);
    if (in == NULL || out == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        in[i] = (float)(rand() % 20001 - 10000) / 10000.0f;
    }
    const double plain = median_us(collective, in, out, count, KOLO_CODEC_NONE, rounds);
    if (kolo_comm_rank(comm) == 0) {
        printf("%s %zu none %.0f", collective, bytes, plain);
    }
    for (int codec = KOLO_CODEC_NONE + 1; codec < KOLO_CODECS; codec++) {
        const double us = median_us(collective, in, out, count, (enum kolo_codec)codec, rounds);
        if (kolo_comm_rank(comm) == 0) {
            printf(" %s %.0f %.2fx", kolo_codec_name((enum kolo_codec)codec), us, plain / us);
        }
    }
    if (kolo_comm_rank(comm) == 0) {
        printf("\n");
        fflush(stdout);
    }
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    const char *collective = argc > 1 ? argv[1] : "all_reduce";
    const int rounds = argc > 2 ? atoi(argv[2]) : 9;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "codec: rounds are 1 to %d\n", ROUNDS_MAX);
        return 2;
    }
    must(kolo_comm_create_env(NULL, &comm));
    for (int i = 3; i < argc; i++) {
        measure(collective, strtoull(argv[i], NULL, 10), rounds);
    }
    for (size_t bytes = 4096; argc <= 3 && bytes <= 64u << 20; bytes *= 4) {
        measure(collective, bytes, rounds);
    }
    kolo_comm_destroy(comm);
    return 0;
}
