// SPDX-License-Identifier: Apache-2.0
/* A rank that makes compressed calls and checks them: each element against the bound that was told
 * before the call, and the bits against those of the other ranks.
 *
 * usage: codec check WANT       WANT: compressed, uncompressed or either
 *        codec mismatch         rank 1 names another codec than the others
 * A rank prints a line for each complaint. Its status is 0 if there was none. */
#include <kolo/kolo.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };

static int rank, nranks, complaints;
static struct kolo_comm *comm;

enum form { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, FORMS };
static const char *const form_name[FORMS] = {"all_reduce", "all_gather", "reduce_scatter"};

struct call {
    enum form form;
    enum kolo_codec codec;
    kolo_op op;
    size_t count;
    bool in_place;
    kolo_stream stream;
};

static void complain(const struct call *c, const char *what, size_t i, double x)
{
    if (complaints++ < 5) {
        printf("%d: %s of %zu, %s, %s%s: element %zu: %s %g\n", rank, form_name[c->form], c->count,
               kolo_codec_name(c->codec), kolo_op_name(c->op), c->in_place ? ", in place" : "", i,
               what, x);
    }
}

static void must(kolo_status st)
{
    if (st != KOLO_OK) {
        printf("%d: %s: %s\n", rank, kolo_status_name(st), kolo_error_text());
        exit(2);
    }
}

/* ---- inputs, which every rank can compute for every rank ---- */

static float value(int of, size_t i)
{
    uint64_t x = (uint64_t)i * 8 + (uint64_t)of + UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    const float unit = (float)(int32_t)(x >> 32) * 0x1p-31f;
    const bool outlier = x % 97 == 0;
    return ldexpf(unit, (int)(i / 60 % 41) - 20 + (outlier ? 8 : 0));
}

/* The elements of `of`'s input from `first` on. */
static float largest(int of, size_t first, size_t count)
{
    float most = 0;
    for (size_t i = first; i < first + count; i++) {
        most = fmaxf(most, fabsf(value(of, i)));
    }
    return most;
}

/* ---- one call ---- */

static size_t in_count(const struct call *c)
{
    return c->form == REDUCE_SCATTER ? c->count * (size_t)nranks : c->count;
}
static size_t out_count(const struct call *c)
{
    return c->form == ALL_GATHER ? c->count * (size_t)nranks : c->count;
}

static void make(const struct call *c, const float *in, float *out)
{
    const size_t n = c->count;
    switch (c->form) {
    case ALL_REDUCE:
        must(kolo_all_reduce_codec(in, out, n, KOLO_FLOAT32, c->op, c->codec, comm, c->stream));
        break;
    case ALL_GATHER:
        must(kolo_all_gather_codec(in, out, n, KOLO_FLOAT32, c->codec, comm, c->stream));
        break;
    default:
        must(kolo_reduce_scatter_codec(in, out, n, KOLO_FLOAT32, c->op, c->codec, comm, c->stream));
        break;
    }
    if (c->stream != NULL) {
        must(kolo_stream_sync(c->stream));
    }
}

/* The exact element, and the sum of the largest magnitudes of its block. Elements have at most 52
 * bits from the first to the last, so that sums in double are exact. */
static double exact_of(const struct call *c, size_t i, int block, double *total)
{
    const size_t n = c->count, part = c->form == ALL_GATHER ? i / n : 0;
    const size_t at = c->form == ALL_GATHER ? i % n : i;
    const size_t base = c->form == REDUCE_SCATTER ? (size_t)rank * n : 0;
    const size_t first = at / (size_t)block * (size_t)block;
    const size_t length = n - first < (size_t)block ? n - first : (size_t)block;
    double sum = 0;
    *total = 0;
    for (int q = 0; q < nranks; q++) {
        if (c->form != ALL_GATHER || q == (int)part) {
            sum += (double)value(q, base + at);
            *total += (double)largest(q, base + first, length);
        }
    }
    if (c->form != ALL_GATHER && c->op == KOLO_AVG) {
        sum /= nranks;
        *total /= nranks;
    }
    return sum;
}

/* The largest part of the bound that an error takes. */
static double check_bound(const struct call *c, const float *out)
{
    struct kolo_codec_bound bound = {.size = sizeof bound};
    double worst = 0;
    must(kolo_comm_codec_bound(comm, c->codec, c->form != ALL_GATHER, &bound));
    const size_t count = out_count(c), step = count > 20000 ? 37 : 1;
    for (size_t i = 0; i < count; i += step) {
        double total;
        const double exact = exact_of(c, i, bound.block, &total);
        const double part = fabs((double)out[i] - exact) / (bound.factor * total + bound.floor);
        worst = part > worst ? part : worst;
        if (!(part <= 1)) {
            complain(c, "the error as a part of the bound is", i, part);
        }
    }
    return worst;
}

/* All ranks must have the same bits. */
static void check_bits(const struct call *c, const float *out)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), all[MOST_RANKS];
    for (size_t i = 0; i < out_count(c); i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    must(kolo_all_gather(&hash, all, 1, KOLO_UINT64, comm, NULL));
    for (int q = 0; q < nranks; q++) {
        if (all[q] != hash) {
            complain(c, "other bits than on rank", 0, q);
        }
    }
}

static void check_call(const struct call *c, const char *want)
{
    const size_t nin = in_count(c), nout = out_count(c), most = nin > nout ? nin : nout;
    float *send = malloc((nin + 1) * sizeof *send), *recv = malloc((most + 1) * sizeof *recv);
    float *in = send, *out = recv;
    if (send == NULL || recv == NULL) {
        exit(2);
    }
    if (c->in_place) {
        in = recv + (c->form == ALL_GATHER ? (size_t)rank * c->count : 0);
        out = recv + (c->form == REDUCE_SCATTER ? (size_t)rank * c->count : 0);
    }
    for (size_t i = 0; i < nin; i++) {
        in[i] = value(rank, i);
    }
    make(c, in, out);
    const double worst = check_bound(c, out);
    if (c->form != REDUCE_SCATTER) {
        check_bits(c, out);
    }
    const bool compressed = worst > 1e-2;
    if ((strcmp(want, "compressed") == 0 && !compressed && c->count > 50) ||
        (strcmp(want, "uncompressed") == 0 && compressed)) {
        complain(c, "that is not as asked for: the largest part of the bound is", 0, worst);
    }
    free(send);
    free(recv);
}

/* ---- the cases ---- */

static void check_all(const char *want)
{
    const size_t counts[] = {0, 1, 59, 60, 61, 120, 1000, 60 * 64, 30011, 300007};
    kolo_stream stream;
    must(kolo_stream_create(&stream));
    for (int form = 0; form < FORMS; form++) {
        for (int codec = KOLO_CODEC_INT8; codec < KOLO_CODECS; codec++) {
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                const struct call c = {.form = (enum form)form,
                                       .codec = (enum kolo_codec)codec,
                                       .op = i % 3 == 1 ? KOLO_AVG : KOLO_SUM,
                                       .count = counts[i],
                                       .in_place = (i + (size_t)codec) % 2 == 0,
                                       .stream = i % 4 == 3 ? stream : NULL};
                check_call(&c, want);
            }
        }
    }
    kolo_stream_destroy(stream);
}

/* A NaN must come out as NaN on all ranks, and leave other blocks alone. */
static void check_nan(enum kolo_codec codec)
{
    enum { COUNT = 600 };
    struct kolo_codec_bound bound = {.size = sizeof bound};
    must(kolo_comm_codec_bound(comm, codec, 1, &bound));
    const size_t block = (size_t)bound.block, first = 100 / block * block;
    float x[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        x[i] = 1;
    }
    if (rank == nranks - 1) {
        x[100] = NAN;
    }
    must(kolo_all_reduce_codec(x, x, COUNT, KOLO_FLOAT32, KOLO_SUM, codec, comm, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        const bool apart = i < first || i >= first + block;
        if ((i == 100 && !isnan(x[i])) || (apart && fabsf(x[i] - (float)nranks) > 1e-5f)) {
            printf("%d: beside a NaN: element %zu is %g\n", rank, i, (double)x[i]);
            complaints++;
        }
    }
}

static enum kolo_codec within(int reduces, double total, double absolute, double relative)
{
    enum kolo_codec out = KOLO_CODECS;
    must(kolo_comm_codec_within(comm, reduces, total, absolute, relative, &out));
    return out;
}

static void expect_codec(enum kolo_codec have, enum kolo_codec want, const char *where)
{
    if (have != want) {
        printf("%d: within %s: %s, not %s\n", rank, where, kolo_codec_name(have),
               kolo_codec_name(want));
        complaints++;
    }
}

/* A codec is chosen for its own bound, and none for half of the least one. */
static void check_within(void)
{
    const enum kolo_codec shortest_first[] = {KOLO_CODEC_INT4, KOLO_CODEC_INT8, KOLO_CODEC_BF16};
    const double total = 8.0 * nranks;
    struct kolo_codec_bound bound = {.size = sizeof bound};
    for (int reduces = 0; reduces < 2; reduces++) {
        for (int i = 0; i < 3; i++) {
            const enum kolo_codec codec = shortest_first[i];
            must(kolo_comm_codec_bound(comm, codec, reduces, &bound));
            const double factor = bound.factor * (1 + 1e-9), error = factor * total + bound.floor;
            expect_codec(within(reduces, total, 0, factor), codec, "a relative error");
            expect_codec(within(reduces, total, error, 0), codec, "an absolute error");
        }
        expect_codec(within(reduces, total, 0, bound.factor / 2), KOLO_CODEC_NONE, "too little");
        /* The floor is half of what is allowed at `low`, and more at a share of it. */
        must(kolo_comm_codec_bound(comm, KOLO_CODEC_INT4, reduces, &bound));
        const double low = 1.5 * bound.floor / bound.factor;
        const bool has_int4 = within(reduces, low, 0, 2 * bound.factor) == KOLO_CODEC_INT4;
        expect_codec(has_int4 ? KOLO_CODEC_INT4 : KOLO_CODEC_NONE,
                     reduces ? KOLO_CODEC_NONE : KOLO_CODEC_INT4, "what averages allow");
    }
}

static void expect_invalid(kolo_status st, const char *word)
{
    if (st != KOLO_ERR_INVALID || strstr(kolo_error_text(), word) == NULL) {
        printf("%d: not INVALID with \"%s\": %s, %s\n", rank, word, kolo_status_name(st),
               kolo_error_text());
        complaints++;
    }
}

static void check_refusals(void)
{
    float x[2] = {0};
    struct kolo_codec_bound bound = {.size = 3};
    expect_invalid(
        kolo_all_reduce_codec(x, x, 2, KOLO_INT32, KOLO_SUM, KOLO_CODEC_INT8, comm, NULL), "int32");
    expect_invalid(
        kolo_all_reduce_codec(x, x, 2, KOLO_FLOAT32, KOLO_MAX, KOLO_CODEC_INT8, comm, NULL), "max");
    expect_invalid(kolo_all_gather_codec(x, x, 2, KOLO_FLOAT32, KOLO_CODECS, comm, NULL), "codec");
    expect_invalid(kolo_comm_codec_bound(comm, KOLO_CODEC_INT8, 1, &bound), "size");
    expect_invalid(kolo_comm_codec_bound(comm, KOLO_CODECS, 1, &bound), "codec");
    enum kolo_codec codec;
    expect_invalid(kolo_comm_codec_within(comm, 1, 1, -1, 0, &codec), "negative");
    expect_invalid(kolo_comm_codec_within(comm, 1, (double)NAN, 0, 0, &codec), "negative");
    expect_invalid(kolo_comm_codec_within(comm, 1, 1, 1, 1, NULL), "out");
    const int32_t one = 1;
    int32_t sum = 0; /* no codec: any type */
    must(kolo_all_reduce_codec(&one, &sum, 1, KOLO_INT32, KOLO_SUM, KOLO_CODEC_NONE, comm, NULL));
    if (sum != nranks) {
        complaints++;
    }
}

static int make_mismatch(void)
{
    float x[100] = {0};
    const enum kolo_codec codec = rank == 1 ? KOLO_CODEC_BF16 : KOLO_CODEC_INT8;
    kolo_status st = kolo_all_reduce_codec(x, x, 100, KOLO_FLOAT32, KOLO_SUM, codec, comm, NULL);
    for (int i = 0; i < 3 && st == KOLO_OK; i++) {
        st = kolo_all_reduce(x, x, 100, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
    printf("%s: %s\n", kolo_status_name(st), kolo_error_text());
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return 64;
    }
    must(kolo_comm_create_env(NULL, &comm));
    rank = kolo_comm_rank(comm);
    nranks = kolo_comm_size(comm);
    if (strcmp(argv[1], "mismatch") == 0) {
        return make_mismatch();
    }
    check_all(argc > 2 ? argv[2] : "either");
    check_nan(KOLO_CODEC_INT8);
    check_nan(KOLO_CODEC_INT4);
    check_nan(KOLO_CODEC_FP8);
    check_within();
    check_refusals();
    kolo_comm_destroy(comm);
    return complaints > 0;
}
