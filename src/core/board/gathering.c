// SPDX-License-Identifier: Apache-2.0
#include "core/board/gathering.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void kolo_gathering_come(struct kolo_comm *c, uint32_t number)
{
    atomic_store(&c->health.slot->gathers, number);
}

static bool have_come(const struct kolo_comm *c, uint32_t number, const int *ranks, int n)
{
    int i = 0;
    for (; i < n; i++) {
        const struct kolo_board_slot *slot = kolo_comm_slot(c, ranks[i]);
        if (slot != NULL && atomic_load(&slot->gathers) < number) {
            break;
        }
    }
    return i == n;
}

bool kolo_gathering_await(struct kolo_comm *c, uint32_t number, const int *ranks, int n,
                          int most_ms)
{
    struct kolo_board *board = c->health.board;
    const struct timespec most = {0, most_ms * 1000000L};
    uint32_t heard = board != NULL ? atomic_load(&board->gathered) : number;
    if (heard >= number) {
        return true;
    }
    if (!have_come(c, number, ranks, n)) {
        syscall(SYS_futex, &board->gathered, FUTEX_WAIT, heard, &most, NULL, 0);
        return false;
    }
    while (heard < number && !atomic_compare_exchange_weak(&board->gathered, &heard, number)) {
    }
    syscall(SYS_futex, &board->gathered, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return true;
}
