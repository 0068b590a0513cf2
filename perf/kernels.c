// SPDX-License-Identifier: Apache-2.0
/* The speed of each reduction kernel on one core, beside the same traffic without arithmetic.
 *
 * The floor loads k streams of words, joins them by exclusive or, and stores one stream, with the
 * widest instructions of the machine. GB/s counts all loads and stores: (k + 1) times the bytes of
 * an array. So figures are comparable across k. The ratio of kernel and floor tells how much of the
 * memory's speed the kernel uses. KOLO_ISA lowers the kernels, not the floor.
 *
 * Only this program uses the library's internals, because no collective calls just one kernel. */
#include "exec/reduce/reduce.h"
#include "util/util.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SOURCES = 8, ROUNDS = 5, FIRST_BYTES = 1024, STRIDE = 4096 + 320 };

struct kernels_options {
    const char *type, *op; /* NULL: all types; the first operation of each */
    int sources;           /* 0: 1, 2, 4, 8 */
    size_t bytes;          /* 0: 1 KiB to 64 MiB */
};

struct kernels_job {
    kolo_reduce_fn *kernel; /* NULL: the floor */
    void *dst;
    const void *src[MAX_SOURCES];
    unsigned sources;
    size_t bytes, element;
    unsigned divisor;
};

/* ---- the floor ---- */

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
#if defined(__x86_64__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* There is one loop for each measured k, so that the streams' addresses stay in registers. */
CLONES static void floor_1(uint64_t *dst, const void *const *src, size_t words)
{
    const uint64_t *a = src[0];
    INDEPENDENT
    for (size_t i = 0; i < words; i++) {
        dst[i] = a[i] ^ 1;
    }
}

CLONES static void floor_2(uint64_t *dst, const void *const *src, size_t words)
{
    const uint64_t *a = src[0], *b = src[1];
    INDEPENDENT
    for (size_t i = 0; i < words; i++) {
        dst[i] = a[i] ^ b[i];
    }
}

CLONES static void floor_4(uint64_t *dst, const void *const *src, size_t words)
{
    const uint64_t *a = src[0], *b = src[1], *c = src[2], *d = src[3];
    INDEPENDENT
    for (size_t i = 0; i < words; i++) {
        dst[i] = a[i] ^ b[i] ^ c[i] ^ d[i];
    }
}

CLONES static void floor_8(uint64_t *dst, const void *const *src, size_t words)
{
    const uint64_t *a = src[0], *b = src[1], *c = src[2], *d = src[3];
    const uint64_t *e = src[4], *f = src[5], *g = src[6], *h = src[7];
    INDEPENDENT
    for (size_t i = 0; i < words; i++) {
        dst[i] = a[i] ^ b[i] ^ c[i] ^ d[i] ^ e[i] ^ f[i] ^ g[i] ^ h[i];
    }
}

static void run_floor(const struct kernels_job *job)
{
    const size_t words = job->bytes / 8;
    switch (job->sources) {
    case 1:
        floor_1(job->dst, job->src, words);
        break;
    case 2:
        floor_2(job->dst, job->src, words);
        break;
    case 4:
        floor_4(job->dst, job->src, words);
        break;
    default:
        floor_8(job->dst, job->src, words);
    }
}

/* ---- timing ---- */

static void run_once(const struct kernels_job *job)
{
    if (job->kernel) {
        job->kernel(job->dst, job->src, job->sources, job->bytes / job->element, job->divisor);
    } else {
        run_floor(job);
    }
}

static double seconds_of(const struct kernels_job *job, unsigned calls)
{
    const double begin = kolo_now_us();
    for (unsigned i = 0; i < calls; i++) {
        run_once(job);
    }
    return (kolo_now_us() - begin) * 1e-6;
}

/* Take the best of several rounds, with kernel and floor by turns: disturbances only slow down. */
static void measure(const struct kernels_job *job, double *kernel_gbps, double *floor_gbps)
{
    const size_t traffic = job->bytes * (job->sources + 1);
    const unsigned calls = (unsigned)kolo_max(1, (size_t)8 * 1024 * 1024 / traffic);
    struct kernels_job floor = *job;
    double best[2] = {1e9, 1e9};
    floor.kernel = NULL;
    for (int round = 0; round < ROUNDS; round++) {
        const double kernel_s = seconds_of(job, calls), floor_s = seconds_of(&floor, calls);
        best[0] = kernel_s < best[0] ? kernel_s : best[0];
        best[1] = floor_s < best[1] ? floor_s : best[1];
    }
    *kernel_gbps = (double)traffic * calls / best[0] * 1e-9;
    *floor_gbps = (double)traffic * calls / best[1] * 1e-9;
}

static void print_row(enum kolo_type type, kolo_op op, struct kernels_job *job)
{
    double kernel = 0, floor = 0;
    job->kernel = kolo_reduce_kernel(type, op);
    job->element = kolo_type_bytes(type);
    job->divisor = op == KOLO_AVG ? job->sources : 0;
    measure(job, &kernel, &floor);
    printf("%-14s %-6s %2u %10zu %9.2f %9.2f %6.2f\n", kolo_type_name(type), kolo_op_name(op),
           job->sources, job->bytes, kernel, floor, kernel / floor);
    fflush(stdout);
}

/* ---- rows ---- */

static bool wants(const char *asked, const char *name)
{
    return asked == NULL || strcmp(asked, name) == 0 || strcmp(asked, "all") == 0;
}

static void print_type(const struct kernels_options *o, enum kolo_type type,
                       struct kernels_job *job)
{
    bool first = true;
    for (kolo_op op = 0; op < KOLO_OPS; op++) {
        if (kolo_op_valid(type, op) && (o->op ? wants(o->op, kolo_op_name(op)) : first)) {
            print_row(type, op, job);
            first = false;
        }
    }
}

static void print_types(const struct kernels_options *o, struct kernels_job *job)
{
    for (int type = 0; type < KOLO_TYPES; type++) {
        if (wants(o->type, kolo_type_name((enum kolo_type)type))) {
            print_type(o, (enum kolo_type)type, job);
        }
    }
}

static void print_rows(const struct kernels_options *o, char *memory, size_t most)
{
    for (int sources = 1; sources <= MAX_SOURCES; sources *= 2) {
        for (size_t bytes = FIRST_BYTES; bytes <= (size_t)64 << 20; bytes *= 4) {
            struct kernels_job job = {.sources = (unsigned)sources, .bytes = bytes, .dst = memory};
            const bool usual =
                bytes != 4096 && bytes != 65536 && bytes != (1 << 20) && bytes != (16 << 20);
            if ((o->sources && o->sources != sources) || (o->bytes ? o->bytes != bytes : !usual)) {
                continue;
            }
            for (int i = 0; i < sources; i++) {
                job.src[i] = memory + (size_t)(i + 1) * (most + STRIDE);
            }
            print_types(o, &job);
        }
    }
}

/* ---- command line ---- */

static bool parse(int argc, char **argv, struct kernels_options *out)
{
    long sources = 0;
    for (int c = 0; (c = getopt(argc, argv, "t:o:k:b:")) != -1;) {
        switch (c) {
        case 't':
            out->type = optarg;
            break;
        case 'o':
            out->op = optarg;
            break;
        case 'k':
            if (!kolo_parse_int(optarg, 1, MAX_SOURCES, &sources) || !kolo_is_pow2((int)sources)) {
                return false;
            }
            out->sources = (int)sources;
            break;
        case 'b':
            if (!kolo_parse_bytes(optarg, &out->bytes)) {
                return false;
            }
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct kernels_options options = {.type = NULL};
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: kernels [-t TYPE] [-o OP|all] [-k 1|2|4|8] [-b BYTES]\n"
                        "  BYTES of an array: 1K to 64M, a power of 4\n");
        return 2;
    }
    /* Arrays begin at different offsets in a page: the CPU takes equal offsets for one address. */
    const size_t most = options.bytes ? options.bytes : (size_t)64 << 20;
    char *memory = aligned_alloc(64, kolo_round_up((MAX_SOURCES + 1) * (most + STRIDE), 64));
    if (memory == NULL) {
        fprintf(stderr, "kernels: no memory for arrays of %zu bytes\n", most);
        return 1;
    }
    /* This byte gives small numbers in every type: no NaN, no overflow, no subnormal. */
    memset(memory, 0x3c, (MAX_SOURCES + 1) * (most + STRIDE));
    printf("# kernels for %s; GB/s of loads and stores together\n", kolo_reduce_isa());
    printf("%-14s %-6s %2s %10s %9s %9s %6s\n", "# type", "op", "k", "bytes", "kernel", "floor",
           "ratio");
    print_rows(&options, memory, most);
    free(memory);
    return 0;
}
