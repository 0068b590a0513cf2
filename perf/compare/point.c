// SPDX-License-Identifier: Apache-2.0
/* Counts, inputs and expected results of one collective. Inputs are small whole numbers, so that
 * sums are exact in every type and order: 0 to 3 for up to 64 ranks, 0 or 1 in int8. */
#include "worker.h"

#include <string.h>

static const char *const collective_names[COMPARE_COLLECTIVES] = {
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
    "all_to_all", "gather", "scatter",   "barrier",    "handover"};

static const struct {
    const char *name;
    size_t bytes;
} types[COMPARE_TYPES] = {{"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2},
                          {"int8", 1},    {"int32", 4},   {"int64", 8}};

enum { CACHE_LINE = 64 };

bool compare_reduces(enum compare_collective collective)
{
    return collective == COMPARE_ALL_REDUCE || collective == COMPARE_REDUCE ||
           collective == COMPARE_REDUCE_SCATTER;
}

/* Whether the larger buffer has a block for each rank. */
static bool is_blocked(enum compare_collective collective)
{
    return collective >= COMPARE_ALL_GATHER && collective <= COMPARE_SCATTER;
}

static void set_elems(struct compare_point *p)
{
    const size_t all = p->count * (size_t)p->nranks;
    const bool is_root = p->rank == p->root;
    const size_t send[COMPARE_COLLECTIVES] = {p->count, p->count, p->count,          p->count, all,
                                              all,      p->count, is_root ? all : 0, 0,        0};
    const size_t recv[COMPARE_COLLECTIVES] = {
        p->count, is_root ? p->count : 0, p->count, all, p->count,
        all,      is_root ? all : 0,      p->count, 0,   0};
    p->send_elems = send[p->collective];
    p->recv_elems = recv[p->collective];
}

bool compare_point_parse(const char *collective, const char *type, size_t bytes,
                         struct compare_point *point)
{
    int c = 0, t = 0;
    while (c < COMPARE_COLLECTIVES && strcmp(collective_names[c], collective) != 0) {
        c++;
    }
    while (t < COMPARE_TYPES && strcmp(types[t].name, type) != 0) {
        t++;
    }
    if (c == COMPARE_COLLECTIVES || t == COMPARE_TYPES) {
        return false;
    }
    point->collective = (enum compare_collective)c;
    point->type = (enum compare_type)t;
    point->elem_bytes = types[t].bytes;
    const size_t blocks = is_blocked(point->collective) ? (size_t)point->nranks : 1;
    point->count = bytes / types[t].bytes / blocks;
    point->count = point->count == 0 ? 1 : point->count;
    point->root = 0;
    set_elems(point);
    return true;
}

/* ---- inputs ---- */

/* All elements at the start of a cache line have one value, which compare_point_rewrite() stores.
 */
static unsigned number(const struct compare_point *p, int rank, size_t index)
{
    const unsigned most = p->type == COMPARE_INT8 ? 1 : 3;
    if (index % (CACHE_LINE / p->elem_bytes) == 0) {
        return (unsigned)(rank + 1) & most;
    }
    uint32_t mixed = (uint32_t)index * 2654435761u + (uint32_t)(rank + 1) * 40503u;
    mixed ^= mixed >> 15;
    return (mixed * 2246822519u >> 13) & most;
}

static void encode(const struct compare_point *p, unsigned value, unsigned char *out)
{
    const union {
        float f32;
        uint32_t bits;
    } single = {.f32 = (float)value};
    const uint32_t exponent = (single.bits >> 23) - 127 + 15; /* float16's; no subnormals here */
    const uint16_t half = value == 0 ? 0 : (uint16_t)(exponent << 10 | (single.bits >> 13 & 0x3ff));
    const uint16_t brain = (uint16_t)(single.bits >> 16);
    const double f64 = value;
    const int64_t whole = value; /* little endian: its first bytes are the shorter integers */
    const void *forms[COMPARE_TYPES] = {&single.f32, &f64, &half, &brain, &whole, &whole, &whole};
    memcpy(out, forms[p->type], p->elem_bytes);
}

/* The cells of a table of encoded small numbers. */
struct table {
    unsigned char cell[4 * COMPARE_RANKS_MAX][8];
};

static void make_table(const struct compare_point *p, struct table *out)
{
    for (unsigned value = 0; value < 4 * COMPARE_RANKS_MAX; value++) {
        encode(p, value, out->cell[value]);
    }
}

void compare_point_fill(const struct compare_point *p)
{
    static struct table table;
    make_table(p, &table);
    memset(p->recv, 0xA5, p->recv_elems * p->elem_bytes);
    if (p->collective == COMPARE_BROADCAST && p->rank != p->root) {
        return; /* in place: send is recv */
    }
    for (size_t i = 0; i < p->send_elems; i++) {
        memcpy((unsigned char *)p->send + i * p->elem_bytes, table.cell[number(p, p->rank, i)],
               p->elem_bytes);
    }
}

void compare_point_rewrite(const struct compare_point *p)
{
    unsigned char first[8];
    encode(p, number(p, p->rank, 0), first);
    unsigned char *at = p->send, *end = at + p->send_elems * p->elem_bytes;
    if (p->collective == COMPARE_BROADCAST && p->rank != p->root) {
        return;
    }
    /* volatile: the compiler must not drop a store that leaves the value unchanged. */
    for (; at < end; at += CACHE_LINE) {
        switch (p->elem_bytes) {
        case 8:
            *(volatile uint64_t *)at = *(const uint64_t *)first;
            break;
        case 4:
            *(volatile uint32_t *)at = *(const uint32_t *)first;
            break;
        default:
            *(volatile unsigned char *)at = first[0];
            break;
        }
    }
}

/* ---- results ---- */

static unsigned summed(const struct compare_point *p, size_t index)
{
    unsigned sum = 0;
    for (int q = 0; q < p->nranks; q++) {
        sum += number(p, q, index);
    }
    return sum;
}

static unsigned expected(const struct compare_point *p, size_t index)
{
    const size_t block = index / p->count, within = index % p->count;
    const size_t mine = (size_t)p->rank * p->count;
    switch (p->collective) {
    case COMPARE_ALL_REDUCE:
    case COMPARE_REDUCE:
        return summed(p, index);
    case COMPARE_REDUCE_SCATTER:
        return summed(p, mine + index);
    case COMPARE_ALL_GATHER:
    case COMPARE_GATHER:
        return number(p, (int)block, within);
    case COMPARE_ALL_TO_ALL:
        return number(p, (int)block, mine + within);
    case COMPARE_SCATTER:
        return number(p, p->root, mine + index);
    default:
        return number(p, p->root, index);
    }
}

uint64_t compare_point_wrong(const struct compare_point *p)
{
    static struct table table;
    uint64_t wrong = 0;
    make_table(p, &table);
    for (size_t i = 0; i < p->recv_elems; i++) {
        wrong += memcmp((const unsigned char *)p->recv + i * p->elem_bytes,
                        table.cell[expected(p, i)], p->elem_bytes) != 0;
    }
    return wrong;
}
