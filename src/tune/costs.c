// SPDX-License-Identifier: Apache-2.0
/* The measured costs of a flag, a byte and a yield on this machine.
 *
 * Two threads run on two cores: a leader that asks and a helper that answers. An answer is a flag
 * there and back, or a freshly written buffer. The leader then copies or adds this buffer. Its
 * bytes lie in another core's cache, as a peer's bytes do.
 *
 * The two threads run again on one core, where each yields to the other: this measures a switch.
 * They run again, shorter, on two cores of two L3 caches, two NUMA nodes and two packages, if the
 * machine has these.
 *
 * The fastest of many tries counts, because the others were disturbed. If the helper does not
 * answer in time, the defaults stay.
 */
#include "topology/machine/host.h"
#include "tune.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 256 * 1024, BATCH = 64, BLOCK_FLOATS = 2048 };
enum { PHASE_US = 5000, TURN_US = 2500 };
enum ask { ASK_FLAG, ASK_BYTES, ASK_END };

/* The cost of a step in flag latencies. A step takes or gives a line or two of another core, partly
 * hidden by other work. Interpreting the step costs some nanoseconds. Fitted to all collectives of
 * two processes. */
static const double STEP_LATENCIES = 0.6;

/* Defaults beyond an L3.
 *
 * Latencies are round numbers between 35 ns and 215 ns. A flag took 35 ns within one L3, and 215 ns
 * after the cores of a virtual machine had been moved apart.
 *
 * Copies take about twice as long at the farthest. An all-reduce of 256 KiB took 8.7 us near and
 * 17 us on the moved cores. A broadcast of 1 MB took 115 us to the 24 ranks of a package and 206 us
 * to the 48 ranks of two (XHC, Cascade Lake). The values for the levels between are interpolated.
 */
static const struct far_default {
    double latency_us, copies; /* as long as near */
} far_defaults[] = {{0.1, 1.5}, {0.14, 1.75}, {0.22, 2}};

/* Between two packages. NCCL assumes 10 GB/s on Skylake, 16 on AMD, 22 on Sapphire Rapids. */
static const double CROSS_US_PER_BYTE = 5e-5;

/* Round numbers for a server whose two cores share no cache. */
static const struct kolo_costs defaults = {.size = sizeof(struct kolo_costs),
                                           .cores = 1,
                                           .latency_us = 0.2,
                                           .copy_us_per_byte = 5e-5,
                                           .reduce_us_per_byte = 2.5e-5,
                                           .step_us = 0.1,
                                           .switch_us = 1.0,
                                           .net = {30, 1e-3}};

struct bench {
    _Alignas(128) _Atomic unsigned asked; /* the leader's: turn * 4 + enum ask */
    _Alignas(128) _Atomic unsigned answered;
    _Alignas(128) double wrote_us; /* the helper's newest ASK_BYTES; behind `answered` */
    float *shared, *leader, *helper;
    int cpu[2]; /* of leader and helper */
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
            memcpy(b->shared, b->helper, BUFFER_BYTES);
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

/* Ask and wait for the answer. False: the helper is late. */
static bool take_turn(struct bench *b, enum ask what)
{
    ask_helper(b, what);
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

/* Add the shared bytes to a block that stays in the L1. The time is the cost of one more source. */
static void add_shared(const struct bench *b)
{
    for (int at = 0; at < BUFFER_BYTES / (int)sizeof(float); at += BLOCK_FLOATS) {
        for (int i = 0; i < BLOCK_FLOATS; i++) {
            b->leader[i] += b->shared[at + i];
        }
    }
}

static void keep_least(double *least, double value)
{
    *least = *least > 0 && *least < value ? *least : value;
}

/* Measure the cost of bytes. A message is written once and read once, so a copy costs the mean of
 * both. */
static void measure_bytes(struct bench *b)
{
    double write_us = 0;
    double read_us = 0;
    double add_us = 0;
    const double end_us = kolo_now_us() + 2 * b->phase_us;
    for (int i = 0; kolo_now_us() < end_us && take_turn(b, ASK_BYTES); i++) {
        const double wrote_us = b->wrote_us;
        const double begin_us = kolo_now_us();
        if (i % 2 == 0) {
            memcpy(b->leader, b->shared, BUFFER_BYTES);
            keep_least(&read_us, kolo_now_us() - begin_us);
        } else {
            add_shared(b);
            keep_least(&add_us, kolo_now_us() - begin_us);
        }
        keep_least(&write_us, wrote_us);
    }
    if (add_us > 0) { /* then there was a copy before it */
        b->costs->copy_us_per_byte = (write_us + read_us) / 2 / BUFFER_BYTES;
        b->costs->reduce_us_per_byte = add_us / BUFFER_BYTES;
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

/* Keep a cost of at most `most`, else take the default. No machine needs more, so a larger value
 * was measured while other programs had the cores. */
static void bound_cost(double *cost, double most, double fallback)
{
    *cost = *cost > 0 && *cost <= most ? *cost : fallback;
}

static void keep_plausible(struct kolo_costs *costs)
{
    bound_cost(&costs->latency_us, 5, defaults.latency_us);
    bound_cost(&costs->switch_us, 20, defaults.switch_us);
    bound_cost(&costs->copy_us_per_byte, 1e-3, defaults.copy_us_per_byte);
    bound_cost(&costs->reduce_us_per_byte, 1e-3, defaults.reduce_us_per_byte);
}

/* Fill in the defaults of unknown costs. Farther is never faster: a measurement that says so is
 * noise. */
static void complete_far(struct kolo_costs *costs)
{
    struct kolo_far near = {costs->latency_us, costs->copy_us_per_byte};
    for (size_t i = 0; i < KOLO_LENGTH(costs->far); i++) {
        struct kolo_far *far = &costs->far[i];
        bound_cost(&far->latency_us, 5, far_defaults[i].latency_us);
        bound_cost(&far->copy_us_per_byte, 1e-3, far_defaults[i].copies * costs->copy_us_per_byte);
        far->latency_us = far->latency_us > near.latency_us ? far->latency_us : near.latency_us;
        far->copy_us_per_byte = far->copy_us_per_byte > near.copy_us_per_byte
                                    ? far->copy_us_per_byte
                                    : near.copy_us_per_byte;
        near = *far;
    }
    bound_cost(&costs->cross_us_per_byte, 1e-3, CROSS_US_PER_BYTE);
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
    struct kolo_costs costs = defaults;
    const size_t align = 4096;
    float *memory = aligned_alloc(align, (size_t)3 * BUFFER_BYTES);
    struct bench *bench = aligned_alloc(128, kolo_round_up(sizeof *bench, 128));
    costs.cores = cores_allowed > 1 ? cores_allowed : 1;
    if (memory != NULL && bench != NULL) {
        memset(memory, 0, (size_t)3 * BUFFER_BYTES);
        memset(bench, 0, sizeof *bench);
        bench->shared = memory;
        bench->leader = memory + BUFFER_BYTES / sizeof(float);
        bench->helper = memory + 2 * BUFFER_BYTES / sizeof(float);
        measure_all(bench, host, &costs);
    }
    free(memory);
    free(bench);
    keep_plausible(&costs);
    complete_far(&costs);
    costs.step_us = STEP_LATENCIES * costs.latency_us;
    round_costs(&costs);
    *out = costs;
}

/* ---- KOLO_COSTS ---- */

/* Parse a positive decimal number such as "0.2" or "1e-3", alike in every locale. */
static bool parse_number(const char *text, size_t len, double *out)
{
    double value = 0;
    double unit = 1;
    size_t i = 0;
    size_t digits = 0;
    bool fraction = false;
    for (; i < len && (text[i] == '.' || (text[i] >= '0' && text[i] <= '9')); i++) {
        if (text[i] == '.') {
            if (fraction) {
                return false;
            }
            fraction = true;
            continue;
        }
        unit = fraction ? unit / 10 : 1;
        value = fraction ? value + unit * (text[i] - '0') : value * 10 + (text[i] - '0');
        digits++;
    }
    if (i < len && text[i] == 'e') {
        char exponent[8] = {0};
        long power = 0;
        const size_t rest = len - i - 1;
        if (rest == 0 || rest >= sizeof exponent) {
            return false;
        }
        memcpy(exponent, text + i + 1, rest);
        if (!kolo_parse_int(exponent, -30, 30, &power)) {
            return false;
        }
        value *= pow(10, (double)power);
        i = len;
    }
    *out = value;
    return i == len && digits > 0 && value > 0 && value < 1e30;
}

struct cost_name {
    const char *name;
    size_t offset;
    bool gbs; /* 1e9 bytes a second, kept as us a byte */
};

static const struct cost_name cost_names[] = {
    {"latency_us", offsetof(struct kolo_costs, latency_us), false},
    {"copy_gbs", offsetof(struct kolo_costs, copy_us_per_byte), true},
    {"reduce_gbs", offsetof(struct kolo_costs, reduce_us_per_byte), true},
    {"step_us", offsetof(struct kolo_costs, step_us), false},
    {"switch_us", offsetof(struct kolo_costs, switch_us), false},
    {"numa_latency_us", offsetof(struct kolo_costs, far[0].latency_us), false},
    {"numa_gbs", offsetof(struct kolo_costs, far[0].copy_us_per_byte), true},
    {"package_latency_us", offsetof(struct kolo_costs, far[1].latency_us), false},
    {"package_gbs", offsetof(struct kolo_costs, far[1].copy_us_per_byte), true},
    {"host_latency_us", offsetof(struct kolo_costs, far[2].latency_us), false},
    {"host_gbs", offsetof(struct kolo_costs, far[2].copy_us_per_byte), true},
    {"cross_gbs", offsetof(struct kolo_costs, cross_us_per_byte), true},
    {"net_latency_us", offsetof(struct kolo_costs, net.latency_us), false},
    {"net_gbs", offsetof(struct kolo_costs, net.copy_us_per_byte), true},
};

/* Parse one "name=value". `seen` has a bit for each name. */
static bool parse_cost(const char *text, size_t len, unsigned *seen, struct kolo_costs *costs)
{
    const char *equals = memchr(text, '=', len);
    double value = 0;
    if (equals == NULL) {
        return false;
    }
    const size_t name_len = (size_t)(equals - text);
    if (!parse_number(equals + 1, len - name_len - 1, &value)) {
        return false;
    }
    unsigned bit = 0;
    for (; bit < KOLO_LENGTH(cost_names); bit++) {
        const char *name = cost_names[bit].name;
        if (strlen(name) == name_len && strncmp(name, text, name_len) == 0) {
            const double cost = cost_names[bit].gbs ? 1e-3 / value : value;
            memcpy((char *)costs + cost_names[bit].offset, &cost, sizeof cost);
            break;
        }
    }
    if (bit == KOLO_LENGTH(cost_names)) {
        const bool whole = value < 1e6 && value == floor(value);
        if (name_len != 5 || strncmp(text, "cores", 5) != 0 || !whole) {
            return false;
        }
        costs->cores = (int32_t)value;
    }
    const bool again = (*seen >> bit & 1) != 0;
    *seen |= 1u << bit;
    return !again;
}

bool kolo_costs_parse(const char *text, struct kolo_costs *out)
{
    struct kolo_costs costs = defaults;
    unsigned seen = 0;
    for (const char *at = text;; at++) {
        const size_t len = strcspn(at, ",");
        if (!parse_cost(at, len, &seen, &costs)) {
            return false;
        }
        at += len;
        if (*at == '\0') {
            break;
        }
    }
    complete_far(&costs);
    *out = costs;
    return true;
}
