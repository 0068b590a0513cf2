// SPDX-License-Identifier: Apache-2.0
/* What the choice of an algorithm is made from; alike on all ranks. */
#ifndef KOLO_CORE_SELECTION_H
#define KOLO_CORE_SELECTION_H

#include "tune/tune.h"

struct kolo_selection {
    struct kolo_rules *rules;
    struct kolo_table *table;
    struct kolo_chooser *chooser;
    const struct kolo_tuner *tuner;
    void *tuner_self;
    struct kolo_costs costs;
};

#endif
