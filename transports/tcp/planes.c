// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/planes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    SYMBOLS = 256,
    LENGTHS_AT = KOLO_PLANES_HEAD,
    ENDS_AT = LENGTHS_AT + SYMBOLS / 2,
    REST_AT = ENDS_AT + 4 * (KOLO_PLANES_STREAMS - 1),
    STREAMS = KOLO_PLANES_STREAMS,
    DEPTH = KOLO_PLANES_DEPTH,
    TABLE = 1 << DEPTH,
    AT_ONCE = 4, /* exponents of one look-up */
    FLOATS_LEAST = 512
};
static_assert((int)KOLO_PLANES_SLACK >= (int)AT_ONCE, "room for a step");

/* ---- planes ---- */

static void split_halves(const uint16_t *src, size_t n, uint8_t *exponent, uint8_t *rest)
{
    for (size_t i = 0; i < n; i++) {
        exponent[i] = (uint8_t)(src[i] >> 7);
        rest[i] = (uint8_t)((src[i] & 0x7f) | (src[i] >> 8 & 0x80));
    }
}

static void join_halves(uint16_t *dst, size_t n, const uint8_t *exponent, const uint8_t *rest)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = (uint16_t)(exponent[i] << 7 | (rest[i] & 0x7f) | (rest[i] & 0x80) << 8);
    }
}

static void split_words(const uint32_t *src, size_t n, uint8_t *exponent, uint8_t *rest)
{
    uint8_t *middle = rest + n, *high = middle + n;
    for (size_t i = 0; i < n; i++) {
        exponent[i] = (uint8_t)(src[i] >> 23);
        rest[i] = (uint8_t)src[i];
        middle[i] = (uint8_t)(src[i] >> 8);
        high[i] = (uint8_t)((src[i] >> 16 & 0x7f) | (src[i] >> 24 & 0x80));
    }
}

static void join_words(uint32_t *dst, size_t n, const uint8_t *exponent, const uint8_t *rest)
{
    const uint8_t *middle = rest + n, *high = middle + n;
    for (size_t i = 0; i < n; i++) {
        dst[i] = (uint32_t)exponent[i] << 23 | rest[i] | (uint32_t)middle[i] << 8 |
                 (uint32_t)(high[i] & 0x7f) << 16 | (uint32_t)(high[i] & 0x80) << 24;
    }
}

/* ---- codes ---- */

struct symbol {
    uint32_t weight;
    int value;
};

static int by_weight(const void *a, const void *b)
{
    const struct symbol *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight ? -1 : 1) : x->value - y->value;
}

/* The depths of `n` symbols, lightest first, in a Huffman tree. Nodes of two symbols or more come
 * into being in the order of their weight, so that two queues serve for a heap. */
static void find_depths(const struct symbol *symbol, int n, int *depth)
{
    uint32_t weight[2 * SYMBOLS];
    int parent[2 * SYMBOLS] = {0}, leaf = 0, node = n, made = n;
    for (int i = 0; i < n; i++) {
        weight[i] = symbol[i].weight;
    }
    for (; made < 2 * n - 1; made++) {
        weight[made] = 0;
        for (int k = 0; k < 2; k++) {
            const int least =
                leaf < n && (node == made || weight[leaf] <= weight[node]) ? leaf++ : node++;
            weight[made] += weight[least];
            parent[least] = made;
        }
    }
    int level[2 * SYMBOLS];
    level[2 * n - 2] = 0;
    for (int i = 2 * n - 3; i >= 0; i--) {
        level[i] = level[parent[i]] + 1;
    }
    for (int i = 0; i < n; i++) {
        depth[i] = level[i] > 0 ? level[i] : 1;
    }
}

/* Make codes of at most DEPTH bits: lighter symbols get longer codes until all have room. */
static void limit_depths(int n, int *depth)
{
    int taken = 0;
    for (int i = 0; i < n; i++) {
        depth[i] = depth[i] < DEPTH ? depth[i] : DEPTH;
        taken += TABLE >> depth[i];
    }
    for (int i = 0; taken > TABLE; i = i + 1 < n ? i + 1 : 0) {
        if (depth[i] < DEPTH) {
            depth[i]++;
            taken -= TABLE >> depth[i];
        }
    }
}

static void choose_lengths(const uint32_t *weight, uint8_t *length)
{
    struct symbol symbol[SYMBOLS];
    int depth[SYMBOLS], n = 0;
    for (int i = 0; i < SYMBOLS; i++) {
        length[i] = 0;
        if (weight[i] > 0) {
            symbol[n++] = (struct symbol){weight[i], i};
        }
    }
    qsort(symbol, (size_t)n, sizeof *symbol, by_weight);
    find_depths(symbol, n, depth);
    limit_depths(n, depth);
    for (int i = 0; i < n; i++) {
        length[symbol[i].value] = (uint8_t)depth[i];
    }
}

static uint32_t mirrored(uint32_t code, int bits)
{
    uint32_t out = 0;
    for (int i = 0; i < bits; i++) {
        out = out << 1 | (code >> i & 1);
    }
    return out;
}

/* The codes of these lengths. False: more codes than there is room for. */
static bool make_codes(const uint8_t *length, uint16_t *code)
{
    uint32_t next = 0;
    for (int bits = 1; bits <= DEPTH; bits++) {
        next <<= 1;
        for (int i = 0; i < SYMBOLS; i++) {
            if (length[i] == bits) {
                if (next >= 1u << bits) {
                    return false;
                }
                code[i] = (uint16_t)mirrored(next++, bits);
            }
        }
    }
    return true;
}

/* ---- encoding ---- */

static size_t quarter_of(size_t n)
{
    return (n + STREAMS - 1) / STREAMS;
}

static void count_symbols(const uint8_t *symbol, size_t n, uint32_t *weight)
{
    uint32_t part[STREAMS][SYMBOLS] = {{0}}; /* equal neighbours must not wait for each other */
    size_t i = 0;
    for (; i + STREAMS <= n; i += STREAMS) {
        for (size_t k = 0; k < STREAMS; k++) {
            part[k][symbol[i + k]]++;
        }
    }
    for (; i < n; i++) {
        part[0][symbol[i]]++;
    }
    for (int s = 0; s < SYMBOLS; s++) {
        weight[s] = part[0][s] + part[1][s] + part[2][s] + part[3][s];
    }
}

/* The bits of a code above its length, which is in the lowest 4. */
static inline size_t put(uint64_t *bits, size_t held, uint32_t entry)
{
    *bits |= (uint64_t)(entry >> 4) << held;
    return held + (entry & 15);
}

/* Returns the end of the stream. `room`: where nothing may be written any more. */
static uint8_t *write_stream(const uint32_t *entry, const uint8_t *symbol, size_t n, uint8_t *to,
                             const uint8_t *room)
{
    uint64_t bits = 0;
    size_t held = 0, i = 0;
    for (; i + AT_ONCE <= n && to + sizeof bits <= room; i += AT_ONCE) {
        for (size_t k = 0; k < AT_ONCE; k++) {
            held = put(&bits, held, entry[symbol[i + k]]);
        }
        memcpy(to, &bits, sizeof bits); /* at most 7 + 4 * DEPTH bits */
        to += held / 8;
        bits >>= held & ~(size_t)7;
        held &= 7;
    }
    for (; i < n || held > 0; held = held > 8 ? held - 8 : 0) {
        while (i < n && held < 8) {
            held = put(&bits, held, entry[symbol[i++]]);
        }
        *to++ = (uint8_t)bits;
        bits >>= 8;
    }
    return to;
}

static size_t coded_bits(const uint32_t *weight, const uint8_t *length)
{
    size_t bits = 0;
    for (int i = 0; i < SYMBOLS; i++) {
        bits += (size_t)weight[i] * length[i];
    }
    return bits;
}

/* No bytes may be at NULL, which memcpy() forbids. */
static void copy_some(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

static size_t write_raw(const void *src, size_t bytes, uint8_t *to)
{
    to[0] = KOLO_PLANES_RAW;
    copy_some(to + KOLO_PLANES_HEAD, src, bytes);
    return bytes + KOLO_PLANES_HEAD;
}

static void write_lengths(const uint8_t *length, uint8_t *to)
{
    for (int i = 0; i < SYMBOLS / 2; i++) {
        to[i] = (uint8_t)(length[2 * i] | length[2 * i + 1] << 4);
    }
}

static uint8_t *write_streams(const uint8_t *length, const uint8_t *symbol, size_t n, uint8_t *to,
                              uint8_t *ends, const uint8_t *room)
{
    uint16_t code[SYMBOLS] = {0};
    uint32_t entry[SYMBOLS];
    (void)make_codes(length, code);
    for (int i = 0; i < SYMBOLS; i++) {
        entry[i] = (uint32_t)code[i] << 4 | length[i];
    }
    for (size_t k = 0, at = 0; k < STREAMS; k++) {
        const size_t part = quarter_of(n) < n - at ? quarter_of(n) : n - at;
        uint8_t *end = write_stream(entry, symbol + at, part, to, room);
        const uint32_t bytes = (uint32_t)(end - to);
        if (k < STREAMS - 1) {
            memcpy(ends + 4 * k, &bytes, sizeof bytes);
        }
        to = end;
        at += part;
    }
    return to;
}

size_t kolo_planes_encode(unsigned float_bytes, const void *src, size_t bytes, void *dst,
                          struct kolo_planes_room *room)
{
    const size_t n = bytes / float_bytes, rest = bytes - n;
    uint8_t *exponent = room->exponent, length[SYMBOLS], *to = dst;
    uint32_t weight[SYMBOLS];
    if (n < FLOATS_LEAST) {
        return write_raw(src, bytes, to);
    }
    if (float_bytes == 2) {
        split_halves(src, n, exponent, to + REST_AT);
    } else {
        split_words(src, n, exponent, to + REST_AT);
    }
    count_symbols(exponent, n, weight);
    choose_lengths(weight, length);
    if (REST_AT + rest + coded_bits(weight, length) / 8 + STREAMS >= bytes) {
        return write_raw(src, bytes, to);
    }
    const size_t behind = bytes % float_bytes;
    to[0] = KOLO_PLANES_CODED;
    write_lengths(length, to + LENGTHS_AT);
    memcpy(to + REST_AT + rest - behind, (const char *)src + bytes - behind, behind);
    return (
        size_t)(write_streams(length, exponent, n, to + REST_AT + rest, to + ENDS_AT, to + bytes) -
                to);
}

/* ---- decoding ---- */

struct entry { /* of the next DEPTH bits: the exponents whose codes are whole in them */
    uint8_t symbol[AT_ONCE];
    uint8_t bits, count, first_bits, unused;
};

struct stream {
    const uint8_t *from, *end; /* bytes that are not in `bits` */
    uint64_t bits;
    unsigned held;
    uint8_t *to, *stop;
};

static bool read_lengths(const uint8_t *from, uint8_t *length)
{
    uint8_t most = 0;
    for (int i = 0; i < SYMBOLS / 2; i++) {
        length[2 * i] = from[i] & 15;
        length[2 * i + 1] = from[i] >> 4;
        most = length[2 * i] > most ? length[2 * i] : most;
        most = length[2 * i + 1] > most ? length[2 * i + 1] : most;
    }
    return most > 0 && most <= DEPTH;
}

/* Bits that no code begins with stand for any exponent: a decoder moves on, and nothing is lost. */
static bool make_table(const uint8_t *length, struct entry *table)
{
    uint16_t code[SYMBOLS] = {0};
    uint8_t first[TABLE] = {0}, bits[TABLE];
    if (!make_codes(length, code)) {
        return false;
    }
    memset(bits, 1, sizeof bits);
    for (int s = 0; s < SYMBOLS; s++) {
        for (unsigned at = code[s]; length[s] > 0 && at < TABLE; at += 1u << length[s]) {
            first[at] = (uint8_t)s;
            bits[at] = length[s];
        }
    }
    for (unsigned i = 0; i < TABLE; i++) {
        struct entry e = {.first_bits = bits[i]};
        while (e.count < AT_ONCE && e.bits + bits[i >> e.bits] <= DEPTH) {
            e.symbol[e.count++] = first[i >> e.bits];
            e.bits = (uint8_t)(e.bits + bits[i >> e.bits]);
            /* the last of these are short of bits: a code that fits is not changed by what follows */
        }
        table[i] = e;
    }
    return true;
}

/* Have at least 56 bits. Eight bytes must follow. */
static inline void refill(struct stream *s)
{
    uint64_t more;
    memcpy(&more, s->from, sizeof more);
    s->bits |= more << s->held;
    s->from += (63 - s->held) >> 3;
    s->held |= 56;
}

static inline void step(struct stream *s, const struct entry *table)
{
    const struct entry *e = &table[s->bits & (TABLE - 1)];
    memcpy(s->to, e->symbol, AT_ONCE);
    s->to += e->count;
    s->bits >>= e->bits;
    s->held -= e->bits;
}

enum { STEPS = 56 / DEPTH }; /* of one refill */

static inline bool may_run(const struct stream *s)
{
    return s->end - s->from >= 8 && s->stop - s->to >= STEPS * AT_ONCE;
}

static void run_streams(struct stream *s, const struct entry *table)
{
    struct stream a = s[0], b = s[1], c = s[2], d = s[3];
    while (may_run(&a) && may_run(&b) && may_run(&c) && may_run(&d)) {
        refill(&a);
        refill(&b);
        refill(&c);
        refill(&d);
#pragma GCC unroll 8
        for (int i = 0; i < STEPS; i++) {
            step(&a, table);
            step(&b, table);
            step(&c, table);
            step(&d, table);
        }
    }
    s[0] = a, s[1] = b, s[2] = c, s[3] = d;
}

/* The rest of a stream, one exponent at a time. False: it ends early, or too late. */
static bool finish_stream(struct stream *s, const struct entry *table)
{
    s->bits &= ~(uint64_t)0 >> (63 - s->held) >> 1; /* a refill leaves bits above those it counts */
    while (s->to < s->stop) {
        for (; s->held < DEPTH && s->from < s->end; s->held += 8) {
            s->bits |= (uint64_t)*s->from++ << s->held;
        }
        const struct entry *e = &table[s->bits & (TABLE - 1)];
        if (e->first_bits > s->held) {
            return false;
        }
        *s->to++ = e->symbol[0];
        s->bits >>= e->first_bits;
        s->held -= e->first_bits;
    }
    return s->from == s->end && s->held < 8;
}

static bool open_streams(struct stream *s, const uint8_t *ends, const uint8_t *from,
                         const uint8_t *end, uint8_t *to, size_t n)
{
    for (size_t k = 0, at = 0; k < STREAMS; k++) {
        const size_t part = quarter_of(n) < n - at ? quarter_of(n) : n - at;
        uint32_t bytes = (uint32_t)(end - from);
        if (k < STREAMS - 1) {
            memcpy(&bytes, ends + 4 * k, sizeof bytes);
        }
        if (bytes > (size_t)(end - from)) {
            return false;
        }
        s[k] = (struct stream){
            .from = from, .end = from + bytes, .to = to + at, .stop = to + at + part};
        from += bytes;
        at += part;
    }
    return true;
}

static bool decode_exponents(const uint8_t *src, const uint8_t *from, const uint8_t *end,
                             uint8_t *exponent, size_t n)
{
    struct stream stream[STREAMS];
    struct entry table[TABLE];
    uint8_t length[SYMBOLS];
    if (!read_lengths(src + LENGTHS_AT, length) || !make_table(length, table) ||
        !open_streams(stream, src + ENDS_AT, from, end, exponent, n)) {
        return false;
    }
    run_streams(stream, table);
    bool whole = true;
    for (int k = 0; k < STREAMS; k++) {
        whole = finish_stream(&stream[k], table) && whole;
    }
    return whole;
}

bool kolo_planes_decode(unsigned float_bytes, const void *src, size_t coded, void *dst,
                        size_t bytes, struct kolo_planes_room *room)
{
    const uint8_t *from = src;
    const size_t n = bytes / float_bytes, rest = bytes - n, behind = bytes % float_bytes;
    uint8_t *exponent = room->exponent;
    if (coded < KOLO_PLANES_HEAD || bytes > KOLO_PLANES_BLOCK) {
        return false;
    }
    if (from[0] == KOLO_PLANES_RAW && coded == bytes + KOLO_PLANES_HEAD) {
        copy_some(dst, from + KOLO_PLANES_HEAD, bytes);
        return true;
    }
    if (from[0] != KOLO_PLANES_CODED || n < FLOATS_LEAST || coded < REST_AT + rest ||
        !decode_exponents(from, from + REST_AT + rest, from + coded, exponent, n)) {
        return false;
    }
    if (float_bytes == 2) {
        join_halves(dst, n, exponent, from + REST_AT);
    } else {
        join_words(dst, n, exponent, from + REST_AT);
    }
    memcpy((char *)dst + bytes - behind, from + REST_AT + rest - behind, behind);
    return true;
}
