// SPDX-License-Identifier: Apache-2.0
/* Two ranks. Rank 0 has one call pending, whose peer comes seconds later. In the meantime rank 0
 * measures the processor time that its process takes.
 *
 * usage: pending recv|reduce|blocking    a receive on a stream, an all-reduce on a stream, a
 *                                        blocking receive
 *        pending woken                   a receive on a stream stays pending, and an all-reduce on
 *                                        another stream must not wait for its nap
 *        pending brief                   short messages on a stream, which need no other thread
 * Rank 0 prints "cpu PERCENT" of a core, "ran MICROSECONDS" of the median all-reduce, or "ended N":
 * the messages that were over when their call returned. */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { SETTLE_MS = 1000, MEASURE_MS = 1000, CALLS = 101 };

static void need(int condition, const char *what)
{
    if (!condition) {
        (void)fprintf(stderr, "pending: %s: %s\n", what, kolo_error_text());
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double cpu_us(void)
{
    struct rusage used;
    need(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void wait_ms(int ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* The processor time while nothing happens, in percent of a core. */
static void say_idle(void)
{
    wait_ms(SETTLE_MS);
    const double before = cpu_us(), since = now_us();
    wait_ms(MEASURE_MS);
    (void)printf("cpu %.2f\n", (cpu_us() - before) / (now_us() - since) * 100);
}

static void run_pending(struct kolo_comm *comm, kolo_stream stream, int reduces)
{
    int x = 1, y = 0;
    if (kolo_comm_rank(comm) == 0) {
        need((reduces ? kolo_all_reduce(&x, &y, 1, KOLO_INT32, KOLO_SUM, comm, stream)
                      : kolo_recv(&y, 1, KOLO_INT32, 1, comm, stream)) == KOLO_OK,
             "a call");
        say_idle();
        need(kolo_stream_sync(stream) == KOLO_OK, "the end of a call");
        need(y == (reduces ? 2 : 1), "a wrong result");
        return;
    }
    wait_ms(SETTLE_MS + MEASURE_MS + SETTLE_MS / 2);
    need((reduces ? kolo_all_reduce(&x, &y, 1, KOLO_INT32, KOLO_SUM, comm, NULL)
                  : kolo_send(&x, 1, KOLO_INT32, 0, comm, NULL)) == KOLO_OK,
         "the call of rank 1");
}

/* The first second of the wait counts, too. */
static void run_blocking(struct kolo_comm *comm)
{
    int x = 1;
    if (kolo_comm_rank(comm) == 0) {
        const double before = cpu_us(), since = now_us();
        need(kolo_recv(&x, 1, KOLO_INT32, 1, comm, NULL) == KOLO_OK, "a receive");
        (void)printf("cpu %.2f\n", (cpu_us() - before) / (now_us() - since) * 100);
        return;
    }
    wait_ms(SETTLE_MS + 2 * MEASURE_MS);
    need(kolo_send(&x, 1, KOLO_INT32, 0, comm, NULL) == KOLO_OK, "a send");
}

static int is_less(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Both ranks have a receive pending, so that their progress threads nap. The all-reduce runs on
 * these threads: nobody waits for it but by polling. */
static void run_woken(struct kolo_comm *comm, kolo_stream stream)
{
    static double took[CALLS];
    const int me = kolo_comm_rank(comm);
    kolo_stream other = NULL;
    int x = 1, y = 0, z = 0;
    need(kolo_stream_create(&other) == KOLO_OK, "a stream");
    need(kolo_recv(&y, 1, KOLO_INT32, 1 - me, comm, stream) == KOLO_OK, "a receive");
    for (int i = 0; i < CALLS; i++) {
        if (i == 0) {
            wait_ms(SETTLE_MS);
        }
        need(kolo_barrier(comm, NULL) == KOLO_OK, "a barrier");
        const double since = now_us();
        kolo_status st = kolo_all_reduce(&x, &z, 1, KOLO_INT32, KOLO_SUM, comm, other);
        need(st == KOLO_OK, "an all-reduce");
        while ((st = kolo_stream_query(other)) == KOLO_INPROGRESS) {
            wait_ms(0);
        }
        need(st == KOLO_OK && z == 2, "the end of an all-reduce");
        took[i] = now_us() - since;
    }
    qsort(took, CALLS, sizeof took[0], is_less);
    need(kolo_send(&x, 1, KOLO_INT32, 1 - me, comm, NULL) == KOLO_OK, "a send");
    need(kolo_stream_sync(stream) == KOLO_OK && y == 1, "the end of a receive");
    kolo_stream_destroy(other);
    if (me == 0) {
        (void)printf("ran %.0f\n", took[CALLS / 2]);
    }
}

/* Short messages to rank 1, which receives them, and as many from rank 1, which have arrived before
 * their receives are posted. */
static void run_brief(struct kolo_comm *comm, kolo_stream stream)
{
    const int me = kolo_comm_rank(comm);
    int ended = 0;
    for (int i = 0; i < CALLS; i++) {
        int x = i, y = -1;
        if (me == 1) {
            need(kolo_recv(&y, 1, KOLO_INT32, 0, comm, NULL) == KOLO_OK && y == i, "a receive");
            need(kolo_send(&x, 1, KOLO_INT32, 0, comm, NULL) == KOLO_OK, "a send");
            need(kolo_barrier(comm, NULL) == KOLO_OK, "a barrier");
            continue;
        }
        need(kolo_send(&x, 1, KOLO_INT32, 1, comm, stream) == KOLO_OK, "a send");
        ended += kolo_stream_query(stream) == KOLO_OK;
        need(kolo_stream_sync(stream) == KOLO_OK, "the end of a send");
        need(kolo_barrier(comm, NULL) == KOLO_OK, "a barrier");
        need(kolo_recv(&y, 1, KOLO_INT32, 1, comm, stream) == KOLO_OK, "a receive");
        ended += kolo_stream_query(stream) == KOLO_OK;
        need(kolo_stream_sync(stream) == KOLO_OK && y == i, "the end of a receive");
    }
    if (me == 0) {
        (void)printf("ended %d\n", ended);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "recv";
    struct kolo_comm *comm = NULL;
    kolo_stream stream = NULL;
    need(kolo_comm_create_env(NULL, &comm) == KOLO_OK, "kolo_comm_create_env");
    need(kolo_stream_create(&stream) == KOLO_OK, "kolo_stream_create");
    need(kolo_barrier(comm, NULL) == KOLO_OK, "a barrier");
    if (strcmp(what, "blocking") == 0) {
        run_blocking(comm);
    } else if (strcmp(what, "woken") == 0) {
        run_woken(comm, stream);
    } else if (strcmp(what, "brief") == 0) {
        run_brief(comm, stream);
    } else {
        run_pending(comm, stream, strcmp(what, "reduce") == 0);
    }
    kolo_stream_destroy(stream);
    kolo_comm_destroy(comm);
    return 0;
}
