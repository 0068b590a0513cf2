// SPDX-License-Identifier: Apache-2.0
/* The ranks that an error of the hub names. */
#include "boot/hub.h"

#include <stdio.h>

int kolo_hub_first(const struct kolo_hub *hub, kolo_hub_pick pick)
{
    int rank = 0;
    while (rank < hub->nranks && !pick(hub, rank)) {
        rank++;
    }
    return rank;
}

void kolo_hub_list(const struct kolo_hub *hub, kolo_hub_pick pick, char out[KOLO_HUB_LIST])
{
    int count = 0, rest = 0;
    size_t len = 0;
    char list[KOLO_HUB_LIST - 32] = "";
    for (int rank = 0; rank < hub->nranks; rank++) {
        int last = rank;
        if (!pick(hub, rank)) {
            continue;
        }
        while (last + 1 < hub->nranks && pick(hub, last + 1)) {
            last++;
        }
        count += last - rank + 1;
        if (len >= KOLO_HUB_LIST - 88) {
            rest += last - rank + 1;
        } else {
            len += (size_t)snprintf(list + len, sizeof list - len, last > rank ? "%s%d-%d" : "%s%d",
                                    len > 0 ? ", " : "", rank, last);
        }
        rank = last;
    }
    const int end = snprintf(out, KOLO_HUB_LIST, "%s %s", count == 1 ? "rank" : "ranks", list);
    if (rest > 0 && end > 0 && end < KOLO_HUB_LIST) {
        (void)snprintf(out + end, (size_t)(KOLO_HUB_LIST - end), " and %d more", rest);
    }
}
