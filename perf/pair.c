// SPDX-License-Identifier: Apache-2.0
/* The speed of a connection between two ranks, as ib_write_lat and ib_write_bw measure a device:
 *
 *   ping    half the time of a message there and back, the median of all
 *   stream  the time of one message among many in one direction, WINDOW of them in a group
 *
 * usage: pair ping|stream CALLS BYTES...      as rank 0 or 1; KOLO_TRANSPORT chooses the transport
 * Rank 0 prints "BYTES MICROSECONDS" for each size. Both ranks check the data at the end of each
 * size. */
#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 128 /* ib_write_bw's --tx-depth */, WARM_UPS = 2 };

static struct kolo_comm *comm;
static unsigned char *out, *in;

static void need(kolo_status st)
{
    if (st < 0) {
        (void)fprintf(stderr, "pair: %s\n", kolo_error_text());
        exit(3);
    }
}

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare_us(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Microseconds one way. */
static double ping(size_t bytes, int calls)
{
    double *us = malloc((size_t)calls * sizeof *us);
    need(us != NULL ? KOLO_OK : KOLO_ERR_SYSTEM);
    for (int i = 0; i < calls; i++) {
        const double begin = now_us();
        if (kolo_comm_rank(comm) == 0) {
            need(kolo_send(out, bytes, KOLO_UINT8, 1, comm, NULL));
            need(kolo_recv(in, bytes, KOLO_UINT8, 1, comm, NULL));
        } else {
            need(kolo_recv(in, bytes, KOLO_UINT8, 0, comm, NULL));
            need(kolo_send(out, bytes, KOLO_UINT8, 0, comm, NULL));
        }
        us[i] = now_us() - begin;
    }
    qsort(us, (size_t)calls, sizeof *us, compare_us);
    const double median = us[calls / 2] / 2;
    free(us);
    return median;
}

/* Microseconds of a message in a stream. The time ends when the other rank, which has all messages,
 * answers with a byte. */
static double stream(size_t bytes, int calls)
{
    const double begin = now_us();
    for (int done = 0; done < calls; done += WINDOW) {
        need(kolo_group_begin());
        for (int i = done; i < calls && i < done + WINDOW; i++) {
            need(kolo_comm_rank(comm) == 0 ? kolo_send(out, bytes, KOLO_UINT8, 1, comm, NULL)
                                           : kolo_recv(in, bytes, KOLO_UINT8, 0, comm, NULL));
        }
        need(kolo_group_end());
    }
    unsigned char heard = 0;
    need(kolo_comm_rank(comm) == 0 ? kolo_recv(&heard, 1, KOLO_UINT8, 1, comm, NULL)
                                   : kolo_send(&heard, 1, KOLO_UINT8, 0, comm, NULL));
    return (now_us() - begin) / calls;
}

/* Fill in the data that rank `of` sends. The inputs of each size differ. */
static void fill(unsigned char *at, size_t bytes, int of)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(i * 31 + bytes + (size_t)of * 7);
    }
}

static bool is_right(size_t bytes, bool received)
{
    unsigned char *expected = malloc(bytes);
    if (expected == NULL) {
        return false;
    }
    fill(expected, bytes, 1 - kolo_comm_rank(comm));
    const bool same = !received || memcmp(expected, in, bytes) == 0;
    free(expected);
    return same;
}

static void measure(bool is_ping, size_t bytes, int calls)
{
    double (*const run)(size_t, int) = is_ping ? ping : stream;
    fill(out, bytes, kolo_comm_rank(comm));
    memset(in, 0, bytes);
    (void)run(bytes, WARM_UPS);
    const double us = run(bytes, calls);
    if (!is_right(bytes, is_ping || kolo_comm_rank(comm) == 1)) {
        (void)fprintf(stderr, "pair: wrong data, %zu bytes\n", bytes);
        exit(7);
    }
    if (kolo_comm_rank(comm) == 0) {
        (void)printf("%zu %.3f\n", bytes, us);
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    size_t most = 0;
    const int calls = argc > 3 ? atoi(argv[2]) : 0;
    const bool is_ping = argc > 1 && strcmp(argv[1], "ping") == 0;
    for (int i = 3; i < argc; i++) {
        const size_t bytes = strtoull(argv[i], NULL, 10);
        most = bytes > most ? bytes : most;
    }
    if (calls < 1 || most == 0 || (!is_ping && strcmp(argv[1], "stream") != 0)) {
        (void)fprintf(stderr, "usage: pair ping|stream CALLS BYTES...\n");
        return 2;
    }
    need(kolo_comm_create_env(NULL, &comm));
    if (kolo_comm_size(comm) != 2) {
        (void)fprintf(stderr, "pair: wants 2 ranks\n");
        return 2;
    }
    need(kolo_mem_alloc(most, (void **)&out));
    need(kolo_mem_alloc(most, (void **)&in));
    for (int i = 3; i < argc; i++) {
        measure(is_ping, strtoull(argv[i], NULL, 10), calls);
    }
    kolo_mem_free(in);
    kolo_mem_free(out);
    kolo_comm_destroy(comm);
    return 0;
}
