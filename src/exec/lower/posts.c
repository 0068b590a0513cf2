// SPDX-License-Identifier: Apache-2.0
/* Receives are posted early: after the first sends of their stage, before its first wait. A
 * transport may let a long message wait until its receive is posted, and a short one that comes
 * before its receive is copied twice. */
#include "exec/lower/lowering.h"

#include <stdlib.h>
#include <string.h>

static bool is_early(const struct kolo_uop *op)
{
    return op->code == KOLO_DO_RECV && op->lent;
}

/* Order ops [begin, end): the early receives, then the others. */
static void post_first(struct kolo_prog *p, uint32_t begin, uint32_t end, struct kolo_uop *room)
{
    uint32_t early = begin, others = 0;
    for (uint32_t i = begin; i < end; i++) {
        *(is_early(&p->op[i]) ? &p->op[early++] : &room[others++]) = p->op[i];
    }
    memcpy(&p->op[early], room, others * sizeof *room);
}

/* Messages of a channel keep their order, so none is posted before a receive that must stay. */
static void post_stage(struct kolo_prog *p, uint32_t begin, uint32_t end, struct kolo_uop *room)
{
    while (begin < end && p->op[begin].code != KOLO_DO_TAKEN && p->op[begin].code != KOLO_DO_WAIT) {
        begin++;
    }
    for (uint32_t i = begin; i < end; begin = ++i) {
        while (i < end && (p->op[i].code != KOLO_DO_RECV || p->op[i].lent)) {
            i++;
        }
        post_first(p, begin, i, room);
    }
}

void kolo_lower_posts(struct kolo_lowering *l)
{
    struct kolo_prog *p = l->prog;
    const struct kolo_lane_ops *ops = &p->lane[0];
    if (l->failed || p->nreqs == 0 || p->nlanes > 1) { /* AFTER knows ops by their place */
        return;
    }
    struct kolo_uop *room = malloc(p->nops * sizeof *room);
    l->failed = room == NULL;
    for (int s = 0; s < ops->nstages && room != NULL; s++) {
        post_stage(p, ops->stage[s], ops->stage[s + 1], room);
    }
    free(room);
}
