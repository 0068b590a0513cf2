// SPDX-License-Identifier: Apache-2.0
/* Messages that share a port. */
#include "plan/price_inner.h"

#include <math.h>

/* All that have begun get equal shares. They begin one after another. */
void kolo_price_share_port(struct kolo_price_flow *flow, int count, double free_us)
{
    double now_us = flow[0].begin_us > free_us ? flow[0].begin_us : free_us;
    for (int begun = 0, open = 0, done = 0; done < count;) {
        for (; begun < count && flow[begun].begin_us <= now_us; begun++) {
            open++;
        }
        double least_us = HUGE_VAL;
        for (int i = 0; i < begun; i++) {
            least_us =
                flow[i].end_us < 0 && flow[i].left_us < least_us ? flow[i].left_us : least_us;
        }
        double next_us = open > 0 ? now_us + least_us * open : HUGE_VAL;
        next_us = begun < count && flow[begun].begin_us < next_us ? flow[begun].begin_us : next_us;
        for (int i = 0, each = open; i < begun; i++) {
            if (flow[i].end_us < 0) {
                flow[i].left_us -= (next_us - now_us) / each;
                const bool ends = flow[i].left_us <= 1e-12 * next_us;
                flow[i].end_us = ends ? next_us : -1;
                open -= ends;
                done += ends;
            }
        }
        now_us = next_us;
    }
}
