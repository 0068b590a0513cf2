// SPDX-License-Identifier: Apache-2.0
/* A lowered program as text: one op a line, stages set apart. */
#include "exec/lower/program.h"

static void print_at(const struct kolo_prog *p, const struct kolo_at *at, struct kolo_text *out)
{
    static const char *const names[] = {"in", "out", "scratch", "stage"};
    if (at->space <= KOLO_AT_STAGE) {
        kolo_text_add(out, " %s[%u", names[at->space], at->index);
    } else if (at->space == KOLO_AT_OUTBOX) {
        kolo_text_add(out, " outbox%d[%u", at->rank, at->index);
    } else {
        kolo_text_add(out, " %s%d[%u", at->space == KOLO_AT_PEER_IN ? "in" : "out", at->rank,
                      at->index);
    }
    (void)p;
    if (at->count > 1) {
        kolo_text_add(out, "..%u", at->index + at->count - 1);
    }
    kolo_text_add(out, "]");
}

static void print_operands(const struct kolo_prog *p, const struct kolo_uop *op,
                           struct kolo_text *out)
{
    for (uint32_t i = 0; i < (uint32_t)op->nsrc + op->ndst; i++) {
        const struct kolo_at *at = &p->at[op->first + i];
        switch (op->code) {
        case KOLO_DO_WAIT:
        case KOLO_DO_SIGNAL:
            kolo_text_add(out, " %d.%u", at->rank, at->phase);
            break;
        case KOLO_DO_LEFT:
            kolo_text_add(out, " %d", at->rank);
            break;
        case KOLO_DO_TAKEN:
            kolo_text_add(out, " #%u", at->index);
            break;
        default:
            kolo_text_add(out, "%s", i == op->nsrc && op->nsrc > 0 ? " ->" : "");
            print_at(p, at, out);
        }
    }
}

void kolo_prog_print(const struct kolo_prog *prog, struct kolo_text *out)
{
    static const char *const codes[] = {"wait",  "move",  "signal", "send", "recv",
                                        "taken", "after", "done",   "left"};
    kolo_text_add(out, "rank %d: %u ops, %d lanes, readers %d, entries %d\n", prog->me, prog->nops,
                  prog->nlanes, prog->nreaders, prog->nentries);
    for (int lane = 0; lane < prog->nlanes; lane++) {
        const struct kolo_lane_ops *ops = &prog->lane[lane];
        int stage = 0;
        for (uint32_t i = ops->begin; i < ops->end; i++) {
            const struct kolo_uop *op = &prog->op[i];
            stage += stage + 1 < ops->nstages && i == ops->stage[stage + 1];
            kolo_text_add(out, "  %d.%d %3u %-6s", lane, stage, i, codes[op->code]);
            if (op->code == KOLO_DO_SEND || op->code == KOLO_DO_RECV) {
                kolo_text_add(out, " #%u %s %d:", op->index,
                              op->code == KOLO_DO_SEND ? "to" : "from", op->peer);
            }
            if (op->code == KOLO_DO_AFTER) {
                kolo_text_add(out, " lane %d op %u", op->peer, op->index);
            }
            print_operands(prog, op, out);
            kolo_text_add(out, "%s%s\n", op->last ? " last" : "", op->lent ? " lent" : "");
        }
    }
}
