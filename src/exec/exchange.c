// SPDX-License-Identifier: Apache-2.0
/* A call of up to 48 bytes as one operation: my bytes and their epoch in my line, one look at
 * everybody's line, one reduction into OUT. What the five ops of such a program do (bind.c:
 * is_exchange), in their order, and little else: its time is that of the flags. */
#include "cpu_parts.h"

#include <string.h>

static inline void copy_small(char *dst, const char *src, uint32_t bytes)
{
    if (bytes == 8) {
        memcpy(dst, src, 8);
    } else if (bytes == 4) {
        memcpy(dst, src, 4);
    } else {
        memcpy(dst, src, bytes);
    }
}

static inline void wake(const struct kolo_wires *w, const int *list, int count)
{
    atomic_signal_fence(memory_order_seq_cst); /* as kolo_ring() says */
    for (int i = 0; i < count; i++) {
        struct kolo_head *head = &w->region[list[i]]->head;
        if (KOLO_UNLIKELY(atomic_load_explicit(&head->asleep, memory_order_relaxed) != 0)) {
            kolo_ring(head);
        }
    }
}

static inline kolo_status wait_for_lines(struct kolo_exec *x, uint32_t epoch, uintptr_t shift)
{
    struct kolo_wires *w = x->wires;
    const struct kolo_bound_op *wait = &x->bound->op[2];
    const struct kolo_bound_at *at = &x->bound->at[wait->first];
    for (unsigned i = 0; i < wait->nsrc; i++) {
        struct kolo_line *line = (struct kolo_line *)(at[i].at + shift);
        const int q = (int)at[i].rank;
        if (!kolo_reached(&line->epoch, epoch + 1)) {
            KOLO_TRY(kolo_wait(w, &line->epoch, epoch + 1, q));
        }
        if (KOLO_UNLIKELY(line->signature != x->signature)) {
            return kolo_mismatch(w, q);
        }
        saw_done(w, q, line->done);
    }
    return KOLO_OK;
}

kolo_status kolo_exchange(struct kolo_exec *x)
{
    struct kolo_wires *w = x->wires;
    const struct kolo_bound *b = x->bound;
    const struct kolo_prog *p = b->prog;
    const struct kolo_bound_op *put = &b->op[0], *move = &b->op[3];
    const uint32_t epoch = w->epoch, parity = epoch & (KOLO_DEPTH - 1);
    uintptr_t shift[KINDS];
    const void *src[MAX_OPERANDS];
    shift[K_IN] = (uintptr_t)x->in;
    shift[K_OUT] = (uintptr_t)x->out;
    shift[K_LINE] = parity * sizeof(struct kolo_line);
    KOLO_TRY(kolo_credit(w, epoch, true));
    w->readers[parity].list = p->readers;
    w->readers[parity].count = p->nreaders;
    struct kolo_line *mine = (struct kolo_line *)(b->at[b->op[1].first].at + shift[K_LINE]);
    copy_small(mine->data, x->in + b->at[put->first].at, put->last_len);
    mine->signature = x->signature;
    mine->done = epoch;
    atomic_store_explicit(&mine->epoch, epoch + 1, memory_order_release);
    wake(w, p->readers, p->nreaders);
    KOLO_TRY(wait_for_lines(x, epoch, shift[K_LINE]));
    const struct kolo_bound_at *at = &b->at[move->first];
    for (unsigned i = 0; i < move->nsrc; i++) {
        src[i] = (const void *)(at[i].at + shift[at[i].kind]);
    }
    x->reduce((char *)(at[move->nsrc].at + shift[K_OUT]), src, move->nsrc, b->exchange_count,
              move->last ? x->divisor : 0);
    w->epoch = epoch + 1;
    w->met++;
    atomic_store_explicit(&w->region[w->me]->head.done, epoch + 1, memory_order_release);
    wake(w, p->sources, p->nsources);
    return KOLO_OK;
}
