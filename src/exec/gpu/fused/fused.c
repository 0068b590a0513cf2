// SPDX-License-Identifier: Apache-2.0
/* Lowering turns a collective call into the moves of its one kernel. */
#include "exec/gpu/fused/fused.h"

#include "plan/plan.h"
#include "util/util.h"

#include <stdio.h>
#include <string.h>

/* ---- moves ---- */

/* The readers and writers of a move are the whole difference between the collectives. */
static void set_sides(struct kolo_fused *f, enum kolo_coll coll, int root)
{
    const int all = KOLO_FUSED_ALL, each = KOLO_FUSED_EACH;
    switch (coll) {
    case KOLO_COLL_REDUCE:
        f->from = all, f->to = root;
        break;
    case KOLO_COLL_BROADCAST:
        f->from = root, f->to = all;
        break;
    case KOLO_COLL_GATHER:
        f->from = each, f->to = root, f->to_at = 1;
        break;
    case KOLO_COLL_SCATTER:
        f->from = root, f->to = each, f->from_at = 1;
        break;
    case KOLO_COLL_ALL_GATHER:
        f->from = each, f->to = all, f->to_at = 1;
        break;
    case KOLO_COLL_REDUCE_SCATTER:
        f->from = all, f->to = each, f->from_at = 1;
        break;
    case KOLO_COLL_ALL_TO_ALL:
        f->swaps = 1;
        break;
    default:
        f->from = all, f->to = all;
        break;
    }
}

/* The pieces of `moves` moves with so many elements in all. Each block takes as many pieces as the
 * others: if a few blocks take one more, the call takes as long as if all did. Longer pieces keep
 * more loads in flight; pieces of 8 KiB spread a small call over the multiprocessors. A multiple of
 * 16 bytes in any case, so that all pieces of a move are aligned as its first. */
static uint64_t piece_elements(uint64_t elements, uint64_t moves, size_t elem, unsigned sms)
{
    enum { LONG = 32 << 10, SHORT = 8 << 10, UNIT = 1 << 10 };
    const uint64_t bytes = elements * elem, blocks = 2 * (uint64_t)sms;
    const uint64_t rounds = kolo_max(1, (bytes + blocks * LONG - 1) / (blocks * LONG));
    const uint64_t in_move = kolo_max(1, blocks * rounds / moves), pieces = in_move * moves;
    const uint64_t even = kolo_round_up((bytes + pieces - 1) / pieces, UNIT);
    return kolo_max(SHORT, even) / elem;
}

static uint32_t pieces_of(uint64_t elements, uint64_t piece)
{
    return (uint32_t)((elements + piece - 1) / piece);
}

static void cut_swaps(struct kolo_fused *f, size_t count, unsigned sms)
{
    const uint64_t n = (uint64_t)f->nranks;
    f->nmoves = (uint32_t)(n * (n + 1) / 2);
    f->piece = piece_elements(count * f->nmoves, f->nmoves, f->elem, sms);
    f->len[0] = count;
    f->first_piece[1] = pieces_of(count, f->piece);
    f->npieces = f->nmoves * f->first_piece[1];
}

static void cut_moves(struct kolo_fused *f, const struct kolo_coll_args *args, unsigned sms)
{
    const size_t *counts = args->v.all; /* and the displacements behind them */
    uint64_t all = 0;
    f->nmoves = f->from == KOLO_FUSED_EACH || f->to == KOLO_FUSED_EACH ? (uint32_t)f->nranks : 1;
    for (uint32_t m = 0; m < f->nmoves; m++) {
        f->len[m] = counts != NULL ? counts[m] : args->count;
        f->at[m] = counts != NULL ? counts[f->nranks + (int)m] : m * args->count;
        all += f->len[m];
    }
    f->piece = piece_elements(all, f->nmoves, f->elem, sms);
    for (uint32_t m = 0; m < f->nmoves; m++) {
        f->first_piece[m + 1] = f->first_piece[m] + pieces_of(f->len[m], f->piece);
    }
    f->npieces = f->first_piece[f->nmoves];
}

void kolo_fused_lower(const struct kolo_coll_args *args, int nranks, unsigned sms,
                      struct kolo_fused *out)
{
    const bool averages = kolo_coll_reduces(args->coll) && args->op == KOLO_AVG;
    *out = (struct kolo_fused){.nranks = nranks,
                               .elem = (uint32_t)kolo_type_bytes(args->type),
                               .divisor = averages ? (uint32_t)nranks : 0};
    set_sides(out, args->coll, args->root);
    if (out->swaps) {
        cut_swaps(out, args->count, sms);
    } else {
        cut_moves(out, args, sms);
    }
}

unsigned kolo_fused_blocks(const struct kolo_fused *call, unsigned sms)
{
    return (unsigned)kolo_max(1, kolo_min(call->npieces, 2 * (size_t)sms));
}

/* ---- kernels ---- */

/* If the sign does not matter, signed types have the kernels of unsigned types. The bitwise
 * operations of bool are the logical operations of a byte. */
static enum kolo_type kernel_type(enum kolo_type type, kolo_op op)
{
    const bool by_sign = op == KOLO_SUM || op == KOLO_AVG || op == KOLO_MIN || op == KOLO_MAX;
    if (type == KOLO_BOOL) {
        return KOLO_UINT8;
    }
    return type <= KOLO_INT64 && !by_sign ? (enum kolo_type)(type | 1) : type;
}

/* Bytes that a kernel moves at once outside of its packs: elements are aligned to them. */
static size_t unit_bytes(enum kolo_type type)
{
    const bool halves = type == KOLO_INT32_INT32 || type == KOLO_FLOAT32_INT32;
    return halves ? 4 : kolo_min(kolo_type_bytes(type), 8);
}

void kolo_fused_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                     char out[KOLO_FUSED_NAME])
{
    const char *verb = op >= KOLO_OPS ? "scaled" : kolo_op_name(op == KOLO_AVG ? KOLO_SUM : op);
    if (!kolo_coll_reduces(coll)) {
        (void)snprintf(out, KOLO_FUSED_NAME, "kolo_fused_%s_%zu",
                       coll == KOLO_COLL_ALL_TO_ALL ? "swap" : "copy", unit_bytes(type));
        return;
    }
    if (type == KOLO_BOOL) {
        verb = op == KOLO_BAND ? "land" : op == KOLO_BOR ? "lor" : op == KOLO_BXOR ? "lxor" : verb;
    }
    (void)snprintf(out, KOLO_FUSED_NAME, "kolo_fused_%s_%s", verb,
                   kolo_type_name(kernel_type(type, op)));
}
