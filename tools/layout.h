// SPDX-License-Identifier: Apache-2.0
/* Ranks on a machine that need not be this one, for `kolo plan`. */
#ifndef KOLO_TOOLS_LAYOUT_H
#define KOLO_TOOLS_LAYOUT_H

#include "plan/plan.h"
#include "topology/layout/groups.h"
#include "tune/model.h"

struct kolo_tool_layout {
    int nranks;
    struct kolo_place *place; /* NULL: nothing is known of the machine */
    int *order;
    struct kolo_groups groups;
    struct kolo_model model; /* points to `place` */
};

/* Rank i on cpu i mod cpus of the machine in the hwloc XML file `topo`, or where `groups` says
 * (as KOLO_GROUPS); both NULL: nowhere. The costs are those of KOLO_COSTS, else round numbers.
 * Errors: INVALID, SYSTEM. */
KOLO_CHECK kolo_status kolo_tool_layout_open(const char *topo, const char *groups, int nranks,
                                             struct kolo_tool_layout *out);
void kolo_tool_layout_close(struct kolo_tool_layout *layout);
/* Ring, groups and root 0 of a collective here. */
struct kolo_shape kolo_tool_layout_shape(const struct kolo_tool_layout *layout,
                                         enum kolo_coll coll);
/* Add the line of the log that says what would be chosen for `bytes`, and every candidate's price.
 * Errors: UNSUPPORTED, SYSTEM. */
KOLO_CHECK kolo_status kolo_tool_layout_choose(const struct kolo_tool_layout *layout,
                                               enum kolo_coll coll, size_t bytes,
                                               struct kolo_text *out);

#endif
