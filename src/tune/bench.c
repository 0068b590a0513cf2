// SPDX-License-Identifier: Apache-2.0
/* The measured costs of a flag, a byte and a yield on this machine.
 *
 * Two threads run on two cores: a leader that asks and a helper that answers. An answer is a flag
 * there and back, or a freshly written buffer. The leader copies or adds this buffer while the helper
 * writes the next one, because ranks work at the same time, too, and slow each other. Its bytes lie
 * in another core's cache, as a peer's bytes do. The helper writes as the executor does: to as many
 * places by turns, and in both store kinds. The cheaper kind gives the cost.
 *
 * The two threads run again on one core, where each yields to the other: this measures a switch.
 * They run again, shorter, on two cores of two L3 caches, two NUMA nodes and two packages, if the
 * machine has these.
 *
 * Of flags the fastest of many tries counts, because the others were disturbed, and of bytes the
 * median, because the fastest tries are twice as fast as calls are. If the helper does not answer
 * in time, the defaults stay.
 */
#include "costs.h"
#include "exec/reduce/reduce.h"
#include "topology/machine/host.h"
#include "tune.h"
#include "util/copy.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 64 * 1024, BUFFER_FLOATS = BUFFER_BYTES / 4, PLACES = 4 };
enum { BATCH = 64, BLOCK_FLOATS = 2048, TRIES = 1024 };
enum { MEMORY_BYTES = (PLACES + 2) * BUFFER_BYTES };
enum { PHASE_US = 5000, TURN_US = 2500 };
enum ask { ASK_FLAG, ASK_BYTES, ASK_END };

/* The cost of a step in flag latencies. A step takes or gives a line or two of another core, partly
 * hidden by other work. Interpreting the step costs some nanoseconds. Fitted to all collectives of
 * two processes. */
static const double STEP_LATENCIES = 0.6;

struct bench {
    _Alignas(128) _Atomic unsigned asked; /* the leader's: turn * 4 + enum ask */
    _Alignas(128) _Atomic unsigned answered;
    _Alignas(128) double wrote_us;   /* the helper's newest ASK_BYTES; behind `answered` */
    float *shared, *leader, *helper; /* `shared` has PLACES buffers, the others one each */
    float *place;                    /* that the helper writes next, of the leader */
    bool past;                       /* past the caches; of the leader */
    int cpu[2];                      /* of leader and helper */
    bool yields;
    unsigned turn;
    double phase_us, deadline_us;
    struct kolo_costs *costs;
};

static void pin_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    if (cpu >= 0 && cpu < CPU_SETSIZE) {
        CPU_SET((size_t)cpu, &one);
        (void)sched_setaffinity(0, sizeof one, &one); /* if refused, the result is less exact */
    }
}

/* ---- the helper ---- */

static void copy(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

static void *help(void *arg)
{
    struct bench *b = arg;
    unsigned seen = 0;
    pin_to(b->cpu[1]);
    for (unsigned polls = 1;; polls++) {
        const unsigned asked = atomic_load_explicit(&b->asked, memory_order_acquire);
        if (asked == seen) {
            if (b->yields || polls % 4096 == 0) {
                sched_yield();
            }
            continue;
        }
        seen = asked;
        if (asked % 4 == ASK_END) {
            return NULL;
        }
        if (asked % 4 == ASK_BYTES) {
            const double begin_us = kolo_now_us();
            (b->past ? kolo_copy_past : copy)(b->place, b->helper, BUFFER_BYTES);
            kolo_copy_fence(); /* stores past the caches are not ordered without it */
            b->wrote_us = kolo_now_us() - begin_us;
        }
        atomic_store_explicit(&b->answered, asked, memory_order_release);
    }
}

/* ---- the leader ---- */

static void ask_helper(struct bench *b, enum ask what)
{
    atomic_store_explicit(&b->asked, ++b->turn * 4 + (unsigned)what, memory_order_release);
}

/* False: the helper is late. */
static bool await_helper(struct bench *b, enum ask what)
{
    const unsigned want = b->turn * 4 + (unsigned)what;
    for (unsigned polls = 1; atomic_load_explicit(&b->answered, memory_order_acquire) != want;
         polls++) {
        if (b->yields) {
            sched_yield();
        }
        if (polls % 256 == 0 && kolo_now_us() > b->deadline_us) {
            return false;
        }
    }
    return true;
}

static bool take_turn(struct bench *b, enum ask what)
{
    ask_helper(b, what);
    return await_helper(b, what);
}

/* The time of a flag there and back, the best of many batches; 0 if no batch was in time. */
static double flag_and_back_us(struct bench *b, double limit_us)
{
    double best_us = 0;
    double begin_us = kolo_now_us();
    const double end_us = begin_us + limit_us;
    while (begin_us < end_us) {
        for (int i = 0; i < BATCH; i++) {
            if (!take_turn(b, ASK_FLAG)) {
                return best_us;
            }
        }
        const double now_us = kolo_now_us();
        const double each_us = (now_us - begin_us) / BATCH;
        best_us = best_us > 0 && best_us < each_us ? best_us : each_us;
        begin_us = now_us;
    }
    return best_us;
}

/* Add the bytes to a block that stays in the L1. The time is the cost of one more source. */
static void add_brought(const struct bench *b, const float *brought)
{
    kolo_reduce_fn *const add = kolo_reduce_kernel(KOLO_FLOAT32, KOLO_SUM);
    for (int at = 0; at < BUFFER_FLOATS; at += BLOCK_FLOATS) {
        const void *const both[2] = {b->leader, brought + at};
        add(b->leader, both, 2, BLOCK_FLOATS, 0);
    }
}

struct times { /* of many tries */
    double us[TRIES];
    int count;
};

static void keep(struct times *t, double us)
{
    if (t->count < TRIES) {
        t->us[t->count++] = us;
    }
}

static int compare_us(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* 0: nothing was measured. */
static double median_us(struct times *t)
{
    qsort(t->us, (size_t)t->count, sizeof *t->us, compare_us);
    return t->count > 0 ? t->us[t->count / 2] : 0;
}

struct byte_times { /* of a buffer */
    double write_us, read_us, add_us;
};

/* Measure a store kind: the helper writes a place while the leader reads the one before, as ranks
 * do. False: the helper is late and may still read what it was asked, so nothing more may be asked. */
static bool time_bytes(struct bench *b, bool past, struct byte_times *out)
{
    const double end_us = kolo_now_us() + b->phase_us;
    struct times wrote = {.count = 0}, read = {.count = 0}, added = {.count = 0};
    b->past = past;
    b->place = b->shared;
    bool in_time = take_turn(b, ASK_BYTES);
    for (int i = 1; in_time && kolo_now_us() < end_us; i++) {
        const float *brought = b->place;
        b->place = b->shared + (size_t)(i % PLACES) * BUFFER_FLOATS;
        ask_helper(b, ASK_BYTES);
        const double begin_us = kolo_now_us();
        if (i % 2 == 0) {
            memcpy(b->leader, brought, BUFFER_BYTES);
        } else {
            add_brought(b, brought);
        }
        const double took_us = kolo_now_us() - begin_us;
        in_time = await_helper(b, ASK_BYTES);
        if (in_time && i > PLACES) { /* the first turns find the places in other caches */
            keep(i % 2 == 0 ? &read : &added, took_us);
            keep(&wrote, b->wrote_us);
        }
    }
    *out = (struct byte_times){median_us(&wrote), median_us(&read), median_us(&added)};
    return in_time;
}

/* Measure the cost of bytes. A message is written once and read once, so a copy costs the mean of
 * both. */
static void measure_bytes(struct bench *b)
{
    double best_us = 0;
    bool in_time = true;
    for (int past = 0; past < 2 && in_time; past++) {
        struct byte_times t;
        in_time = time_bytes(b, past != 0, &t);
        const double all_us = t.write_us + t.read_us + t.add_us;
        if (t.add_us > 0 && (past == 0 || all_us < best_us)) {
            best_us = all_us;
            b->costs->copy_us_per_byte = (t.write_us + t.read_us) / 2 / BUFFER_BYTES;
            b->costs->reduce_us_per_byte = t.add_us / BUFFER_BYTES;
        }
    }
}

static void *lead(void *arg)
{
    struct bench *b = arg;
    pin_to(b->cpu[0]);
    b->deadline_us = kolo_now_us() + 3 * b->phase_us;
    const double both_us = flag_and_back_us(b, b->yields ? TURN_US : b->phase_us);
    if (both_us > 0) {
        *(b->yields ? &b->costs->switch_us : &b->costs->latency_us) = both_us / 2;
    }
    if (!b->yields || b->costs->cores == 1) {
        measure_bytes(b);
    }
    ask_helper(b, ASK_END);
    return NULL;
}

/* Run both threads. On one CPU they yield to each other. Nothing is measured if a thread cannot be
 * started. */
static void run_bench(struct bench *b, int leader_cpu, int helper_cpu)
{
    pthread_t leader;
    pthread_t helper;
    b->cpu[0] = leader_cpu;
    b->cpu[1] = helper_cpu;
    b->yields = leader_cpu == helper_cpu;
    atomic_store_explicit(&b->asked, 0, memory_order_relaxed);
    atomic_store_explicit(&b->answered, 0, memory_order_relaxed);
    b->turn = 0;
    if (pthread_create(&helper, NULL, help, b) != 0) {
        return;
    }
    if (pthread_create(&leader, NULL, lead, b) == 0) {
        pthread_join(leader, NULL);
    } else {
        ask_helper(b, ASK_END);
    }
    pthread_join(helper, NULL);
}

/* Pick the first and the last CPU that the ranks may use, because neighbours by number are often
 * threads of one core. A rank that is bound to one of several cores asks for more CPUs. The system
 * cuts the request down to the CPUs that this process may have. Returns the number of CPUs. */
static int pick_cpus(int cores_allowed, int cpu[2])
{
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) {
        return 0;
    }
    cpu_set_t all = mine;
    if (CPU_COUNT(&mine) == 1 && cores_allowed > 1) {
        memset(&all, 0xff, sizeof all);
        if (sched_setaffinity(0, sizeof all, &all) == 0) {
            (void)sched_getaffinity(0, sizeof all, &all);
            (void)sched_setaffinity(0, sizeof mine, &mine);
        }
    }
    int found = 0;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET((size_t)c, &all)) {
            cpu[found++ > 0] = c;
        }
    }
    return found;
}

/* Round to two digits: more would be noise. */
static double two_digits(double x)
{
    const double unit = pow(10, floor(log10(x)) - 1);
    return round(x / unit) * unit;
}

static void round_costs(struct kolo_costs *costs)
{
    costs->latency_us = two_digits(costs->latency_us);
    costs->copy_us_per_byte = two_digits(costs->copy_us_per_byte);
    costs->reduce_us_per_byte = two_digits(costs->reduce_us_per_byte);
    costs->step_us = two_digits(costs->step_us);
    costs->switch_us = two_digits(costs->switch_us);
    for (size_t i = 0; i < KOLO_LENGTH(costs->far); i++) {
        costs->far[i].latency_us = two_digits(costs->far[i].latency_us);
        costs->far[i].copy_us_per_byte = two_digits(costs->far[i].copy_us_per_byte);
    }
}

/* Measure between cores of two L3 caches, two nodes and two packages, if the machine has these. */
static void measure_far(struct bench *b, const struct kolo_host *host, struct kolo_costs *out)
{
    for (size_t i = 0; i < KOLO_LENGTH(out->far); i++) {
        struct kolo_costs far = {.cores = out->cores};
        int cpu[2];
        if (!kolo_host_pair(host, (enum kolo_near)(KOLO_NEAR_NUMA + i), cpu)) {
            continue;
        }
        b->costs = &far;
        b->phase_us = 0.5 * PHASE_US;
        run_bench(b, cpu[0], cpu[1]);
        out->far[i] = (struct kolo_far){far.latency_us, far.copy_us_per_byte};
        out->unbound = (int32_t)i + 1;
    }
}

/* Measure between the nearest cores, on one core, and between far cores. */
static void measure_all(struct bench *b, const struct kolo_host *host, struct kolo_costs *out)
{
    int cpu[2] = {-1, -1};
    const int found = pick_cpus(out->cores, cpu);
    bool near = false;
    for (int i = KOLO_NEAR_L3; host != NULL && i <= KOLO_NEAR_HOST && !near; i++) {
        near = kolo_host_pair(host, (enum kolo_near)i, cpu);
    }
    b->costs = out;
    b->phase_us = PHASE_US;
    if (out->cores > 1 && found > 1) {
        run_bench(b, cpu[0], cpu[1]);
        if (near) {
            measure_far(b, host, out);
        }
    }
    if (found > 0) {
        b->costs = out;
        b->phase_us = PHASE_US;
        run_bench(b, cpu[0], cpu[0]);
    }
}

void kolo_costs_measure(int cores_allowed, const struct kolo_host *host, struct kolo_costs *out)
{
    struct kolo_costs costs = kolo_costs_default;
    const size_t align = 4096;
    float *memory = aligned_alloc(align, MEMORY_BYTES);
    struct bench *bench = aligned_alloc(128, kolo_round_up(sizeof *bench, 128));
    costs.cores = cores_allowed > 1 ? cores_allowed : 1;
    if (memory != NULL && bench != NULL) {
        memset(memory, 0, MEMORY_BYTES);
        memset(bench, 0, sizeof *bench);
        bench->shared = memory;
        bench->leader = memory + (size_t)PLACES * BUFFER_BYTES / sizeof(float);
        bench->helper = bench->leader + BUFFER_BYTES / sizeof(float);
        measure_all(bench, host, &costs);
    }
    free(memory);
    free(bench);
    kolo_costs_keep_plausible(&costs);
    kolo_costs_complete(&costs);
    costs.step_us = STEP_LATENCIES * costs.latency_us;
    round_costs(&costs);
    *out = costs;
}
