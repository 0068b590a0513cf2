// SPDX-License-Identifier: Apache-2.0
/* Groups of ranks that are near each other: the ranks that share an L3, a NUMA node, a package or a
 * host. */
#ifndef KOLO_TOPOLOGY_LAYOUT_GROUPS_H
#define KOLO_TOPOLOGY_LAYOUT_GROUPS_H

#include "topology/machine/host.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_GROUP_LEVELS = 4 };

/* Levels of groups, the nearest level first, as in struct kolo_shape of kolo/plugin.h. At level l,
 * group[l * nranks + r] is the smallest rank of the group that holds rank r. */
struct kolo_groups {
    int nlevels;                         /* 0: all ranks are equally near, or places are unknown */
    int *group;                          /* [nlevels * nranks] */
    const char *name[KOLO_GROUP_LEVELS]; /* "L3", "NUMA node", "package", "host" */
};
/* Make groups from hosts and places. host_of NULL: all ranks are on one host; place NULL: no place
 * is known. A level is left out if it separates no ranks, joins no ranks, or is unknown for some
 * rank. Pure. Cost: n times the groups. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_groups_make(int nranks, const int *host_of,
                                        const struct kolo_place *place, struct kolo_groups *out);
void kolo_groups_free(struct kolo_groups *groups);
/* Parse places that a user wrote: up to three lists, separated by ';'. "0,0,1,1" gives each rank's
 * L3 cache; the second list gives NUMA nodes, the third packages. A list that is not given means
 * one node, or one package, for all. A list shorter than nranks repeats. False: the text has
 * another form, and `out` is undefined. */
bool kolo_places_parse(const char *text, int nranks, struct kolo_place *out);

#ifdef __cplusplus
}
#endif
#endif
