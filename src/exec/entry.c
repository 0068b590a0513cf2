// SPDX-License-Identifier: Apache-2.0
/* Entry lines, and the credit that lets a line be written again. */
#include "cpu_parts.h"

#include <string.h>

/* ---- credits: may the lines and slots of tile `epoch` be written again? ---- */

kolo_status kolo_credit(struct kolo_wires *w, uint32_t epoch, bool block)
{
    const uint32_t need = epoch + 1 - KOLO_DEPTH;
    const int *list = w->readers[epoch % KOLO_DEPTH].list;
    if ((int32_t)(w->all_done - need) >= 0) {
        return KOLO_OK;
    }
    for (int i = 0; i < w->readers[epoch % KOLO_DEPTH].count; i++) {
        const int q = list[i];
        if (KOLO_LIKELY((int32_t)(w->seen_done[q] - need) >= 0)) {
            continue;
        }
        _Atomic uint32_t *done = &w->region[q]->head.done;
        if (!kolo_reached(done, need)) {
            if (!block) {
                w->stuck_at = q;
                return KOLO_INPROGRESS;
            }
            KOLO_TRY(kolo_wait(w, done, need, q));
        }
        w->seen_done[q] = atomic_load_explicit(done, memory_order_acquire);
    }
    return KOLO_OK;
}

kolo_status kolo_mismatch(struct kolo_wires *w, int q)
{
    w->blamed = q;
    return kolo_fail(KOLO_ERR_MISMATCH,
                     "ranks %d and %d are in different calls (collective, size, type, operation, "
                     "root or algorithm) in tile %u",
                     w->me, q, w->epoch);
}

/* ---- entry ---- */

void kolo_entry_publish(struct kolo_wires *w, const struct kolo_entry *mine)
{
    struct kolo_entry *line = &w->region[w->me]->entry[w->entries % KOLO_DEPTH];
    memcpy(line->in, mine->in, sizeof line->in);
    memcpy(line->out, mine->out, sizeof line->out);
    line->in_at = mine->in_at;
    line->out_at = mine->out_at;
    line->in_shared = mine->in_shared;
    line->out_shared = mine->out_shared;
    line->buffers = mine->buffers;
    line->signature = mine->signature;
    atomic_store_explicit(&line->number, w->entries + 1, memory_order_release);
    kolo_wake(&w->region[w->me]->head);
}

kolo_status kolo_entry_wait(struct kolo_wires *w, int q, bool block)
{
    _Atomic uint32_t *word = &w->region[q]->entry[w->entries % KOLO_DEPTH].number;
    if (kolo_reached(word, w->entries + 1)) {
        return KOLO_OK;
    }
    w->stuck_at = q;
    return block ? kolo_wait(w, word, w->entries + 1, q) : KOLO_INPROGRESS;
}
