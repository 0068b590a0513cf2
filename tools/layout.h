// SPDX-License-Identifier: Apache-2.0
/* Ranks on a machine that need not be this one, for `kolo plan`. */
#ifndef KOLO_TOOLS_LAYOUT_H
#define KOLO_TOOLS_LAYOUT_H

#include "plan/plan.h"
#include "topology/layout/groups.h"
#include "tune/model.h"

struct kolo_tool_layout {
    int nranks;
    struct kolo_place *place; /* NULL: no place is known */
    int *order;
    struct kolo_groups groups;
    struct kolo_model model; /* points to `place` */
};

/* Place ranks. `topo` is an hwloc XML file: rank i is on CPU i mod the number of CPUs. `groups` has
 * the form of KOLO_GROUPS. Both NULL: no rank has a place. The costs are those of KOLO_COSTS, else
 * round numbers. Errors: INVALID, SYSTEM. */
KOLO_CHECK kolo_status kolo_tool_layout_open(const char *topo, const char *groups, int nranks,
                                             struct kolo_tool_layout *out);
void kolo_tool_layout_close(struct kolo_tool_layout *layout);
/* The shape of a collective on this layout: its ring, its groups, and root 0. */
struct kolo_shape kolo_tool_layout_shape(const struct kolo_tool_layout *layout,
                                         enum kolo_coll coll);
/* Add the log line with the choice for `bytes`, and the price of each candidate. Errors:
 * UNSUPPORTED, SYSTEM. */
KOLO_CHECK kolo_status kolo_tool_layout_choose(const struct kolo_tool_layout *layout,
                                               enum kolo_coll coll, size_t bytes,
                                               struct kolo_text *out);

#endif
