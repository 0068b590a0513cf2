// SPDX-License-Identifier: Apache-2.0
/* The store of symbols. Sums lie in one growing array, with their sets beside them. A hash table
 * finds an equal sum. Its size is a power of two, and it is at most half full. */
#include "plan/verify/symbol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool kolo_symbols_init(struct kolo_symbols *s, const struct kolo_plan *plan)
{
    const int n = plan->shape.nranks;
    *s = (struct kolo_symbols){.nranks = n, .words = ((size_t)n + 63) / 64, .table_size = 256};
    s->leaf = malloc(((size_t)n + 1) * sizeof *s->leaf);
    s->table = calloc(s->table_size, sizeof *s->table);
    if (s->leaf == NULL || s->table == NULL) {
        return false;
    }
    kolo_symbol next = KOLO_UNWRITTEN + 1;
    for (int r = 0; r < n; r++) {
        s->leaf[r] = next;
        next += (kolo_symbol)kolo_plan_buf_chunks(plan, r, KOLO_IN);
    }
    s->leaf[n] = s->first_sum = next;
    s->leaf_rank = malloc((size_t)next * sizeof *s->leaf_rank);
    if (s->leaf_rank == NULL) {
        return false;
    }
    for (int r = 0; r < n; r++) {
        for (kolo_symbol id = s->leaf[r]; id < s->leaf[r + 1]; id++) {
            s->leaf_rank[id] = r;
        }
    }
    return true;
}

void kolo_symbols_free(struct kolo_symbols *s)
{
    free(s->leaf);
    free(s->leaf_rank);
    free(s->sum);
    free(s->set);
    free(s->table);
}

static bool is_sum(const struct kolo_symbols *s, kolo_symbol id)
{
    return id >= s->first_sum;
}

static const struct kolo_sum *sum_of(const struct kolo_symbols *s, kolo_symbol id)
{
    return &s->sum[id - s->first_sum];
}

static int chunk_of(const struct kolo_symbols *s, kolo_symbol id)
{
    return is_sum(s, id) ? sum_of(s, id)->chunk : (int)(id - s->leaf[s->leaf_rank[id]]);
}

/* Word w of the set of ranks that contribute to id. */
static uint64_t set_word(const struct kolo_symbols *s, kolo_symbol id, size_t w)
{
    if (is_sum(s, id)) {
        return s->set[(size_t)(id - s->first_sum) * s->words + w];
    }
    const size_t rank = (size_t)s->leaf_rank[id];
    return rank / 64 == w ? UINT64_C(1) << rank % 64 : 0;
}

static uint64_t full_word(const struct kolo_symbols *s, size_t w)
{
    const size_t left = (size_t)s->nranks - 64 * w;
    return left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1;
}

int kolo_symbol_common(const struct kolo_symbols *s, kolo_symbol a, kolo_symbol b)
{
    for (size_t w = 0; w < s->words; w++) {
        const uint64_t both = set_word(s, a, w) & set_word(s, b, w);
        if (both != 0) {
            return (int)(64 * w) + __builtin_ctzll(both);
        }
    }
    return -1;
}

/* A rank that does not contribute, or -1. */
static int missing_rank(const struct kolo_symbols *s, kolo_symbol id)
{
    for (size_t w = 0; w < s->words; w++) {
        const uint64_t missing = full_word(s, w) & ~set_word(s, id, w);
        if (missing != 0) {
            return (int)(64 * w) + __builtin_ctzll(missing);
        }
    }
    return -1;
}

static uint32_t hash_sum(kolo_symbol left, kolo_symbol right)
{
    const uint64_t h = (((uint64_t)left << 32) | right) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

/* The table's entry for this sum: its number + 1, or 0 and free. `last` follows from the set. */
static uint32_t *find(const struct kolo_symbols *s, kolo_symbol left, kolo_symbol right)
{
    uint32_t at = hash_sum(left, right) & (s->table_size - 1);
    while (s->table[at] != 0) {
        const struct kolo_sum *sum = &s->sum[s->table[at] - 1];
        if (sum->left == left && sum->right == right) {
            break;
        }
        at = (at + 1) & (s->table_size - 1);
    }
    return &s->table[at];
}

static bool grow_table(struct kolo_symbols *s)
{
    assert(s->table_size > 0);
    uint32_t *table = calloc((size_t)s->table_size * 2, sizeof *table);
    if (table == NULL) {
        return false;
    }
    free(s->table);
    s->table = table;
    s->table_size *= 2;
    for (uint32_t i = 0; i < s->sums; i++) {
        *find(s, s->sum[i].left, s->sum[i].right) = i + 1;
    }
    return true;
}

static bool grow_sums(struct kolo_symbols *s)
{
    const uint32_t cap = s->cap > 0 ? 2 * s->cap : 128;
    struct kolo_sum *sum = realloc(s->sum, cap * sizeof *sum);
    if (sum == NULL) {
        return false;
    }
    s->sum = sum;
    uint64_t *set = realloc(s->set, cap * s->words * sizeof *set);
    if (set == NULL) {
        return false;
    }
    s->set = set;
    s->cap = cap;
    return true;
}

static bool add_new(struct kolo_symbols *s, struct kolo_sum sum, kolo_symbol *out)
{
    if ((s->sums == s->cap && !grow_sums(s)) || (2 * s->sums >= s->table_size && !grow_table(s))) {
        return false;
    }
    uint64_t *set = &s->set[s->sums * s->words];
    for (size_t w = 0; w < s->words; w++) {
        set[w] = set_word(s, sum.left, w) | set_word(s, sum.right, w);
    }
    s->sum[s->sums] = sum;
    *out = s->first_sum + s->sums;
    *find(s, sum.left, sum.right) = ++s->sums;
    return true;
}

static bool union_is_full(const struct kolo_symbols *s, kolo_symbol a, kolo_symbol b)
{
    for (size_t w = 0; w < s->words; w++) {
        if ((set_word(s, a, w) | set_word(s, b, w)) != full_word(s, w)) {
            return false;
        }
    }
    return true;
}

enum kolo_sum_error kolo_symbol_add(struct kolo_symbols *s, kolo_symbol left, kolo_symbol right,
                                    bool last, kolo_symbol *out)
{
    const uint32_t known = *find(s, left, right);
    if (known != 0 && s->sum[known - 1].last == last) {
        *out = s->first_sum + known - 1;
        return KOLO_SUM_OK;
    }
    if (chunk_of(s, left) != chunk_of(s, right)) {
        return KOLO_SUM_CHUNKS;
    }
    if ((is_sum(s, left) && sum_of(s, left)->last) ||
        (is_sum(s, right) && sum_of(s, right)->last)) {
        return KOLO_SUM_AFTER_LAST;
    }
    if (kolo_symbol_common(s, left, right) >= 0) {
        return KOLO_SUM_TWICE;
    }
    if (union_is_full(s, left, right) != last) {
        return last ? KOLO_SUM_EARLY_LAST : KOLO_SUM_NOT_LAST;
    }
    const struct kolo_sum sum = {left, right, chunk_of(s, left), last};
    return add_new(s, sum, out) ? KOLO_SUM_OK : KOLO_SUM_MEMORY;
}

bool kolo_symbol_complete(const struct kolo_symbols *s, kolo_symbol id, int chunk)
{
    return id != KOLO_UNWRITTEN && chunk_of(s, id) == chunk && missing_rank(s, id) < 0;
}

bool kolo_symbol_in_rank_order(const struct kolo_symbols *s, kolo_symbol id)
{
    for (int r = s->nranks - 1; r > 0; r--) {
        if (!is_sum(s, id)) {
            return false;
        }
        const struct kolo_sum *sum = sum_of(s, id);
        if (is_sum(s, sum->right) || s->leaf_rank[sum->right] != r) {
            return false;
        }
        id = sum->left;
    }
    return id != KOLO_UNWRITTEN && !is_sum(s, id) && s->leaf_rank[id] == 0;
}

/* Depth first with an own stack; an entry of 0 stands for a closing parenthesis. */
void kolo_symbol_print(const struct kolo_symbols *s, kolo_symbol id, char *out, size_t len)
{
    enum { DEPTH = 32 };
    kolo_symbol stack[DEPTH];
    const char *plus = "";
    int top = 0;
    size_t at = 0;
    if (id == KOLO_UNWRITTEN) {
        (void)snprintf(out, len, "nothing");
        return;
    }
    stack[top++] = id;
    while (top > 0 && at + 24 < len && top + 3 < DEPTH) {
        const kolo_symbol now = stack[--top];
        if (now == KOLO_UNWRITTEN) {
            at += (size_t)snprintf(out + at, len - at, ")");
        } else if (is_sum(s, now)) {
            at += (size_t)snprintf(out + at, len - at, "%s(", plus);
            plus = "";
            stack[top++] = KOLO_UNWRITTEN;
            stack[top++] = sum_of(s, now)->right;
            stack[top++] = sum_of(s, now)->left;
        } else {
            at += (size_t)snprintf(out + at, len - at, "%sx%d[%d]", plus, s->leaf_rank[now],
                                   chunk_of(s, now));
            plus = " + ";
        }
        if (now == KOLO_UNWRITTEN) {
            plus = " + ";
        }
    }
    if (top > 0) {
        (void)snprintf(out + at, len - at, "...");
    }
}
