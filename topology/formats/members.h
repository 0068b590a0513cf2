// SPDX-License-Identifier: Apache-2.0
/* Names and values of a machine's graph, written as XML attributes or JSON members. */
#ifndef KOLO_TOPOLOGY_MACHINE_MEMBERS_H
#define KOLO_TOPOLOGY_MACHINE_MEMBERS_H

#include "topology/machine/graph.h"

enum kolo_notation { KOLO_AS_XML, KOLO_AS_JSON };

/* Add one name and its text, escaped; NULL adds nothing. In JSON a comma comes before it. */
void kolo_member_text(struct kolo_text *out, enum kolo_notation as, const char *name,
                      const char *value);

/* Add all known values of a node except its kind. */
void kolo_node_members(struct kolo_text *out, enum kolo_notation as, const struct kolo_node *n);

#endif
