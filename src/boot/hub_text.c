// SPDX-License-Identifier: Apache-2.0
/* Lists of ranks in the texts of the hub: those that have not joined, have left, or are late. */
#include "boot/hub.h"

#include <stdio.h>

enum { ROOM_FOR_NUMBERS = KOLO_HUB_LIST_CHARS - 64 };

static bool is_late(const struct kolo_hub *hub, int rank)
{
    for (size_t i = 0; i < hub->nconns; i++) {
        if (hub->conns[i]->state == KOLO_CONN_JOINED && hub->conns[i]->rank == rank) {
            return !hub->conns[i]->arrived;
        }
    }
    return hub->ranks[rank] != KOLO_RANK_OUT;
}

static bool is_picked(const struct kolo_hub *hub, enum kolo_hub_pick pick, int rank)
{
    switch (pick) {
    case KOLO_HUB_ABSENT:
        return hub->ranks[rank] == KOLO_RANK_ABSENT;
    case KOLO_HUB_GONE:
        return hub->ranks[rank] == KOLO_RANK_LEFT || hub->ranks[rank] == KOLO_RANK_DIED;
    default:
        return is_late(hub, rank);
    }
}

int kolo_hub_first(const struct kolo_hub *hub, enum kolo_hub_pick pick)
{
    int rank = 0;
    while (rank < hub->nranks && !is_picked(hub, pick, rank)) {
        rank++;
    }
    return rank;
}

void kolo_hub_list(const struct kolo_hub *hub, enum kolo_hub_pick pick,
                   char out[KOLO_HUB_LIST_CHARS])
{
    int count = 0;
    int rest = 0;
    size_t len = 0;
    char list[ROOM_FOR_NUMBERS + 32] = "";
    for (int rank = 0; rank < hub->nranks; rank++) {
        int last = rank;
        if (!is_picked(hub, pick, rank)) {
            continue;
        }
        while (last + 1 < hub->nranks && is_picked(hub, pick, last + 1)) {
            last++;
        }
        count += last - rank + 1;
        if (len >= ROOM_FOR_NUMBERS - 24) {
            rest += last - rank + 1;
        } else {
            len += (size_t)snprintf(list + len, sizeof list - len, last > rank ? "%s%d-%d" : "%s%d",
                                    len > 0 ? ", " : "", rank, last);
        }
        rank = last;
    }
    const int end =
        snprintf(out, KOLO_HUB_LIST_CHARS, "%s %s", count == 1 ? "rank" : "ranks", list);
    if (rest > 0 && end > 0 && end < KOLO_HUB_LIST_CHARS) {
        (void)snprintf(out + end, (size_t)(KOLO_HUB_LIST_CHARS - end), " and %d more", rest);
    }
}
