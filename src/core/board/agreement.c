// SPDX-License-Identifier: Apache-2.0
/* See agreement.h. The word `decided` holds a number and a slot: the agreement, and the member
 * whose proposal it took. That member may be dead by then; its proposal stays on the board. Source:
 * Herlihy, "Wait-Free Synchronization", 1991 (consensus by compare-and-swap). */
#include "core/board/agreement.h"

enum { SLOT_BITS = 20, STATUS_BITS = 8 };

struct proposal {
    _Atomic uint64_t number; /* 0 while it is being written */
    _Atomic uint64_t word;
    _Atomic unsigned char seen[]; /* [nslots] */
};

static struct proposal *proposal_of(const struct kolo_board *board, int slot)
{
    return (struct proposal *)((char *)board + kolo_board_proposal_at((int)board->nslots, slot));
}

void kolo_agreement_come(struct kolo_board *board, int slot, uint64_t number, uint64_t word)
{
    atomic_store_explicit(&board->slot[slot].brought, word, memory_order_relaxed);
    atomic_store_explicit(&board->slot[slot].came_to, number, memory_order_release);
}

bool kolo_agreement_has_come(const struct kolo_board *board, int slot, uint64_t number,
                             uint64_t *word_out)
{
    if (atomic_load_explicit(&board->slot[slot].came_to, memory_order_acquire) < number) {
        return false;
    }
    *word_out = atomic_load_explicit(&board->slot[slot].brought, memory_order_relaxed);
    return true;
}

void kolo_agreement_propose(struct kolo_board *board, int slot, uint64_t number, uint64_t word,
                            const unsigned char *seen)
{
    struct proposal *mine = proposal_of(board, slot);
    atomic_store_explicit(&mine->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&mine->word, word, memory_order_relaxed);
    for (uint32_t i = 0; i < board->nslots; i++) {
        atomic_store_explicit(&mine->seen[i], seen[i], memory_order_relaxed);
    }
    atomic_store_explicit(&mine->number, number, memory_order_release);
    uint64_t before = atomic_load(&board->decided);
    while (before >> SLOT_BITS < number &&
           !atomic_compare_exchange_weak(&board->decided, &before,
                                         number << SLOT_BITS | (uint64_t)slot)) {
    }
}

enum kolo_outcome kolo_agreement_read(const struct kolo_board *board, uint64_t number,
                                      uint64_t *word_out, unsigned char *seen_out)
{
    const uint64_t decided = atomic_load_explicit(&board->decided, memory_order_acquire);
    const uint64_t slot = decided & ((1u << SLOT_BITS) - 1);
    if (decided >> SLOT_BITS != number || slot >= board->nslots) {
        return decided >> SLOT_BITS < number ? KOLO_OUTCOME_OPEN : KOLO_OUTCOME_PASSED;
    }
    const struct proposal *taken = proposal_of(board, (int)slot);
    bool same = atomic_load_explicit(&taken->number, memory_order_acquire) == number;
    *word_out = atomic_load_explicit(&taken->word, memory_order_relaxed);
    for (uint32_t i = 0; i < board->nslots; i++) {
        seen_out[i] = atomic_load_explicit(&taken->seen[i], memory_order_relaxed);
    }
    /* Its writer goes on only after all that it counts with have read this. */
    atomic_thread_fence(memory_order_acquire);
    same = same && atomic_load_explicit(&taken->number, memory_order_relaxed) == number;
    return same ? KOLO_OUTCOME_DECIDED : KOLO_OUTCOME_PASSED;
}

kolo_status kolo_standing_settle(struct kolo_board *board, kolo_status status, int *at_fault)
{
    uint32_t said = 0;
    const uint32_t mine =
        1u | (uint32_t)(0 - (int)status) << 1 | (uint32_t)(*at_fault + 1) << STATUS_BITS;
    if (atomic_compare_exchange_strong(&board->standing, &said, mine)) {
        return status;
    }
    *at_fault = (int)(said >> STATUS_BITS) - 1;
    return (kolo_status)(0 - (int)(said >> 1 & ((1u << (STATUS_BITS - 1)) - 1)));
}
