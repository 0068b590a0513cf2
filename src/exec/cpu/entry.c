// SPDX-License-Identifier: Apache-2.0
/* Entry lines, and the credit that a rank needs before it writes a line again. */
#include "exec/cpu/parts.h"

#include <string.h>

/* ---- credits: may a rank write a tile's memory again? ---- */

/* Whether all readers have finished `need` tiles. */
static kolo_status finished(struct kolo_exec_env *env, const struct kolo_readers *readers,
                            uint32_t need, bool block)
{
    if ((int32_t)(env->all_done - need) >= 0) {
        return KOLO_OK;
    }
    for (int i = 0; i < readers->count; i++) {
        const int q = readers->list[i];
        if (KOLO_LIKELY((int32_t)(env->seen_done[q] - need) >= 0)) {
            continue;
        }
        _Atomic uint32_t *done = &env->region[q]->head.done;
        if (!kolo_reached(done, need)) {
            if (!block) {
                env->stuck_at = q;
                return KOLO_INPROGRESS;
            }
            KOLO_TRY(kolo_wait(env, done, need, q));
        }
        env->seen_done[q] = atomic_load_explicit(done, memory_order_acquire);
    }
    return KOLO_OK;
}

kolo_status kolo_credit(struct kolo_exec_env *env, uint32_t epoch, bool block)
{
    return finished(env, &env->readers[epoch % KOLO_DEPTH], epoch + 1 - KOLO_DEPTH, block);
}

/* If the slot's last tile is KOLO_DEPTH tiles ago, its readers need no check. They had to finish
 * that tile before its lines were written again. */
kolo_status kolo_take_long_slot(struct kolo_exec_env *env, const struct kolo_prog *prog,
                                uint32_t epoch, bool block)
{
    const uint32_t slot = epoch % KOLO_LONG_DEPTH, last = env->long_slot[slot].epoch;
    if (epoch - last < KOLO_DEPTH) {
        KOLO_AWAIT(finished(env, &env->long_slot[slot].readers, last + 1, block));
    }
    env->long_slot[slot].readers = (struct kolo_readers){prog->readers, prog->nreaders};
    env->long_slot[slot].epoch = epoch;
    return KOLO_OK;
}

kolo_status kolo_mismatch(struct kolo_exec_env *env, int q)
{
    env->blamed = q;
    return kolo_fail(KOLO_ERR_MISMATCH,
                     "ranks %d and %d are in different calls (collective, size, type, operation, "
                     "root or algorithm) in tile %u",
                     env->me, q, env->epoch);
}

/* ---- entry ---- */

void kolo_entry_publish(struct kolo_exec_env *env, const struct kolo_entry *mine)
{
    struct kolo_entry *line = &env->region[env->me]->entry[env->entries % KOLO_ENTRY_LINES];
    memcpy(line->in, mine->in, sizeof line->in);
    memcpy(line->out, mine->out, sizeof line->out);
    line->in_at = mine->in_at;
    line->out_at = mine->out_at;
    line->apart = mine->apart;
    line->in_shared = mine->in_shared;
    line->out_shared = mine->out_shared;
    line->buffers = mine->buffers;
    line->signature = mine->signature;
    atomic_store_explicit(&line->number, env->entries + 1, memory_order_release);
    kolo_wake(&env->region[env->me]->head);
}

kolo_status kolo_entry_wait(struct kolo_exec_env *env, int q, bool block)
{
    _Atomic uint32_t *word = &env->region[q]->entry[env->entries % KOLO_ENTRY_LINES].number;
    if (kolo_reached(word, env->entries + 1)) {
        return KOLO_OK;
    }
    env->stuck_at = q;
    return block ? kolo_wait(env, word, env->entries + 1, q) : KOLO_INPROGRESS;
}
