// SPDX-License-Identifier: Apache-2.0
/* Drop stores into scratch that nobody loads. A plan sums into scratch, and copies or sends from
 * there. The lowering lets the move of the sum store into these places as well, so scratch often
 * need not have it. */
#include "exec/lower/lowering.h"

#include <stdlib.h>
#include <string.h>

static void mark(bool *live, const struct kolo_at *at, bool value)
{
    if (at->space == KOLO_AT_SCRATCH) {
        memset(live + at->index, value, at->count * sizeof *live);
    }
}

static void mark_loads(const struct kolo_prog *p, const struct kolo_uop *op, bool *live)
{
    for (uint32_t k = 0; k < op->nsrc && (op->code == KOLO_DO_MOVE || op->code == KOLO_DO_SEND);
         k++) {
        mark(live, &p->at[op->first + k], true);
    }
}

static bool is_dead(const struct kolo_at *at, const bool *live)
{
    return at->space == KOLO_AT_SCRATCH &&
           (at->count == 0 || memchr(live + at->index, true, at->count) == NULL);
}

/* A move keeps one destination at least. */
static void drop_from(const struct kolo_prog *p, struct kolo_uop *op, const bool *live)
{
    struct kolo_at *dst = &p->at[op->first + op->nsrc];
    uint16_t kept = 0;
    for (uint16_t k = 0; k < op->ndst; k++) {
        if (!is_dead(&dst[k], live) || (kept == 0 && k + 1 == op->ndst)) {
            dst[kept++] = dst[k];
        }
    }
    op->ndst = kept;
}

void kolo_lower_dead(struct kolo_lowering *l)
{
    struct kolo_prog *p = l->prog;
    bool *live = calloc((size_t)l->plan->scratch_chunks + 1, sizeof *live);
    if (live == NULL) {
        l->failed = true;
        return;
    }
    for (uint32_t i = 0; i < p->nops && p->nlanes > 1; i++) { /* lanes run in any order */
        mark_loads(p, &p->op[i], live);
    }
    for (uint32_t i = p->nops; i-- > 0;) {
        struct kolo_uop *op = &p->op[i];
        if (op->code == KOLO_DO_MOVE) {
            drop_from(p, op, live);
        }
        for (uint32_t k = 0; k < op->ndst && p->nlanes == 1; k++) {
            mark(live, &p->at[op->first + op->nsrc + k], false);
        }
        mark_loads(p, op, live);
    }
    free(live);
}
