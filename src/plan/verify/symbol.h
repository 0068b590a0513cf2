// SPDX-License-Identifier: Apache-2.0
/* Symbols: the values of chunks in a proof.
 *
 * A symbol is a number. 0 is "unwritten". Then come the leaves: the value that rank r had in chunk
 * c of its IN. Then come sums of two symbols, in order. Equal expressions are one number
 * (hash-consing), so "the same expression on every rank" is one comparison. Each sum has the set of
 * the ranks that contribute to it.
 */
#ifndef KOLO_PLAN_VERIFY_SYMBOL_H
#define KOLO_PLAN_VERIFY_SYMBOL_H

#include "plan/plan.h"

typedef uint32_t kolo_symbol;
#define KOLO_UNWRITTEN 0u

struct kolo_sum {
    kolo_symbol left, right;
    int chunk;
    bool last;
};

struct kolo_symbols {
    int nranks;
    size_t words;          /* words of a set of ranks */
    kolo_symbol *leaf;     /* [nranks + 1]: a rank's first leaf */
    int *leaf_rank;        /* [leaves + 1] */
    kolo_symbol first_sum; /* the first symbol that is a sum */
    struct kolo_sum *sum;
    uint64_t *set; /* [cap * words]: the ranks that contribute */
    uint32_t sums, cap;
    uint32_t *table; /* open addressing; 0 is free, else number of sum + 1 */
    uint32_t table_size;
};

enum kolo_sum_error {
    KOLO_SUM_OK,
    KOLO_SUM_CHUNKS,     /* chunks of two indices are mixed */
    KOLO_SUM_TWICE,      /* a rank contributes to both sides */
    KOLO_SUM_AFTER_LAST, /* a side was already marked LAST */
    KOLO_SUM_NOT_LAST,   /* complete, but the step is not LAST */
    KOLO_SUM_EARLY_LAST, /* LAST, but a rank is missing */
    KOLO_SUM_MEMORY
};

bool kolo_symbols_init(struct kolo_symbols *s, const struct kolo_plan *plan);
void kolo_symbols_free(struct kolo_symbols *s);

static inline kolo_symbol kolo_symbol_leaf(const struct kolo_symbols *s, int rank, int chunk)
{
    return s->leaf[rank] + (kolo_symbol)chunk;
}
/* left + right. `last`: the step says that this addition completes the reduction. */
enum kolo_sum_error kolo_symbol_add(struct kolo_symbols *s, kolo_symbol left, kolo_symbol right,
                                    bool last, kolo_symbol *out);
/* Whether `id` is the sum of chunk `chunk` over all ranks. With an addition it must be marked LAST.
 */
bool kolo_symbol_complete(const struct kolo_symbols *s, kolo_symbol id, int chunk);
/* Whether `id` is ((x0 + x1) + x2) + ... in rank order. */
bool kolo_symbol_in_rank_order(const struct kolo_symbols *s, kolo_symbol id);
/* A rank that contributes to both, or -1. */
int kolo_symbol_common(const struct kolo_symbols *s, kolo_symbol a, kolo_symbol b);
/* Print "(x0[3] + x1[3])". A long text is cut. */
void kolo_symbol_print(const struct kolo_symbols *s, kolo_symbol id, char *out, size_t len);

#endif
