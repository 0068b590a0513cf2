// SPDX-License-Identifier: Apache-2.0
/* A move carries the bytes of one op from its sources into its destinations. */
#include "exec/cpu/parts.h"
#include "util/copy.h"

#include <stdlib.h>

enum { BLOCK_BYTES = 32 * 1024, PAST_BYTES = 4096 };

/* Which destinations are stored past the caches. User memory, if its lines would be read from memory
 * only to be overwritten; a copy into several places keeps it in the cache. Memory that peers read,
 * as stores.h says. */
struct past {
    bool user, shared;
};

static bool is_one_of(const char *dst, char *const *src, unsigned k)
{
    for (unsigned i = 0; i < k; i++) {
        if (dst == src[i]) {
            return true;
        }
    }
    return false;
}

static struct past past_of(const struct kolo_exec *x, const struct kolo_bound_op *op,
                           char *const *at, size_t bytes)
{
    const unsigned k = op->nsrc;
    const bool user =
        op->past == KOLO_PAST || (op->past != 0 && x->in != x->out && !is_one_of(at[k], at, k));
    return (struct past){
        .user = user && (op->ndst == 1 || k > 1 || (op->last && x->divisor > 1)),
        .shared = x->bound->chooses && x->past && bytes >= KOLO_STORE_BYTES,
    };
}

static bool goes_past(const struct kolo_exec *x, const struct kolo_bound_op *op, struct past past,
                      unsigned destination)
{
    const uint32_t kind = x->bound->at[op->first + op->nsrc + destination].kind;
    return (past.user && (kind == K_OUT || kind == K_PEER_OUT)) ||
           (past.shared && (kind == K_SLOT || kind == K_PEER_OUT));
}

/* move_bytes() with some stores past the caches. Each block is reduced into a destination that is
 * stored in the ordinary way, else into a scratch block, and is then copied on. */
static void move_past(const struct kolo_exec *x, const struct kolo_bound_op *op, char *const *at,
                      size_t bytes, struct past past)
{
    _Alignas(64) char scratch[PAST_BYTES];
    const unsigned k = op->nsrc, m = op->ndst;
    const unsigned divisor = op->last ? x->divisor : 0;
    const bool folds = k > 1 || divisor > 1;
    const size_t block = PAST_BYTES / x->elem * x->elem;
    unsigned kept = 0;
    while (kept < m && goes_past(x, op, past, kept)) {
        kept++;
    }
    for (size_t done = 0; done < bytes; done += block) {
        const size_t len = kolo_min(block, bytes - done);
        const char *made = at[0] + done;
        if (folds) {
            char *to = kept < m ? at[k + kept] + done : scratch;
            const void *src[MAX_OPERANDS];
            for (unsigned i = 0; i < k; i++) {
                src[i] = at[i] + done;
            }
            x->reduce(to, src, k, len / x->elem, divisor);
            made = to;
        }
        for (unsigned i = 0; i < m; i++) {
            char *to = at[k + i] + done;
            if (to == made) {
                continue;
            }
            if (goes_past(x, op, past, i)) {
                kolo_copy_past(to, made, len);
            } else {
                kolo_copy(to, made, len);
            }
        }
    }
    kolo_copy_fence();
}

/* Move k sources, in order, into m destinations. The sources are reduced a block at a time into the
 * first destination and copied on from there. Storing to two streams from registers costs twice as
 * much (measured). */
static void move_bytes(const struct kolo_exec *x, const struct kolo_bound_op *op, char *const *at,
                       size_t bytes)
{
    const unsigned k = op->nsrc, m = op->ndst;
    const unsigned divisor = op->last ? x->divisor : 0;
    const bool folds = k > 1 || divisor > 1;
    const struct past past = past_of(x, op, at, bytes);
    bool any = false;
    for (unsigned i = 0; (past.user || past.shared) && i < m; i++) {
        any |= goes_past(x, op, past, i);
    }
    if (m == 1 && !folds) {
        if (at[k] == at[0]) { /* in place, onto itself: skipped, as peers may be reading */
            return;
        }
        if (any) {
            kolo_copy_past(at[k], at[0], bytes);
            kolo_copy_fence();
        } else {
            kolo_copy(at[k], at[0], bytes);
        }
        return;
    }
    if (any) {
        move_past(x, op, at, bytes, past);
        return;
    }
    if (m == 1) {
        x->reduce(at[k], (const void *const *)at, k, bytes / x->elem, divisor);
        return;
    }
    const size_t block = BLOCK_BYTES / x->elem * x->elem;
    for (size_t done = 0; done < bytes; done += block) {
        const size_t len = kolo_min(block, bytes - done);
        const char *from = at[0] + done;
        if (folds) {
            const void *src[MAX_OPERANDS];
            for (unsigned i = 0; i < k; i++) {
                src[i] = at[i] + done;
            }
            x->reduce(at[k] + done, src, k, len / x->elem, divisor);
            from = at[k] + done;
        }
        for (unsigned i = folds ? 1 : 0; i < m; i++) {
            if (at[k + i] + done != from) {
                kolo_copy(at[k + i] + done, from, len);
            }
        }
    }
}

/* Move chunk by chunk, because the pieces are not contiguous or have several lengths. */
static void move_odd(const struct kolo_exec *x, const struct kolo_bound_op *op,
                     const struct tile *tile, char **at, char *const *base)
{
    const struct kolo_bound *b = x->bound;
    const struct kolo_uop *uop = &b->prog->op[op->uop];
    const unsigned n = (unsigned)op->nsrc + op->ndst;
    for (uint32_t j = 0; j < uop->count; j++) {
        for (unsigned i = 0; i < n; i++) {
            const struct kolo_at *a = &b->prog->at[op->first + i];
            const bool in = a->space == KOLO_AT_IN || a->space == KOLO_AT_PEER_IN;
            const bool out = a->space == KOLO_AT_OUT || a->space == KOLO_AT_PEER_OUT;
            const size_t *off = in ? b->extents.in_off : b->extents.out_off;
            at[i] = base[i] + (in || out ? off[a->index + j] - off[a->index] : j * b->piece);
        }
        const size_t len = kolo_bound_piece_bytes(b, op, j, tile->t);
        if (len > 0) {
            move_bytes(x, op, at, len);
        }
    }
}

/* An op with very many sources. Only plans of hundreds of ranks have them. */
static __attribute__((noinline)) bool
move_many(const struct kolo_exec *x, const struct kolo_bound_op *op, const struct tile *tile)
{
    const unsigned n = (unsigned)op->nsrc + op->ndst;
    char **at = malloc(2 * n * sizeof *at);
    if (at == NULL) {
        return false;
    }
    for (unsigned i = 0; i < n; i++) {
        at[n + i] = address(x, tile, &x->bound->at[op->first + i]);
    }
    const size_t bytes = kolo_bound_piece_bytes(x->bound, op, 0, tile->t);
    if (op->odd || op->ndst == 1 || op->nsrc <= MAX_OPERANDS) {
        move_odd(x, op, tile, at, at + n);
    } else if (bytes > 0) { /* reduce into the first destination, then copy */
        struct kolo_bound_op first = *op;
        first.ndst = 1;
        move_bytes(x, &first, at + n, bytes);
        for (unsigned i = 1; i < op->ndst; i++) {
            kolo_copy(at[n + op->nsrc + i], at[n + op->nsrc], bytes);
        }
    }
    free(at);
    return true;
}

kolo_status kolo_exec_move(const struct kolo_exec *x, const struct kolo_bound_op *op,
                           const struct tile *tile)
{
    const unsigned n = (unsigned)op->nsrc + op->ndst;
    char *at[MAX_OPERANDS];
    if (KOLO_UNLIKELY(x->env->jitter != NULL)) {
        x->env->jitter(x->env->jitter_arg);
    }
    if (KOLO_UNLIKELY(n > MAX_OPERANDS)) {
        return move_many(x, op, tile) ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory");
    }
    const struct kolo_bound_at *operand = &x->bound->at[op->first];
    for (unsigned i = 0; i < n; i++) {
        at[i] = address(x, tile, &operand[i]);
    }
    if (KOLO_UNLIKELY(op->odd)) {
        char *each[MAX_OPERANDS];
        move_odd(x, op, tile, each, at);
        return KOLO_OK;
    }
    const size_t len = tile->last ? op->last_len : op->len;
    if (len > 0) {
        move_bytes(x, op, at, len);
    }
    return KOLO_OK;
}
