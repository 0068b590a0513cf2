// SPDX-License-Identifier: Apache-2.0
/* Log lines in NCCL's form: rings, trees, groups and connections. A line is never cut. */
#ifndef KOLO_TOPOLOGY_DRAW_LINES_H
#define KOLO_TOPOLOGY_DRAW_LINES_H

#include "topology/layout/groups.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "Channel 00/02 : 0 1 2": the ring of a channel, ranks right-aligned to the widest. */
void kolo_line_ring(struct kolo_text *out, int channel, int nchannels, int nranks,
                    const int *order);
/* "Groups : L3 0-3 4-7 8-11 12-15, package 0-7 8-15": ranks that are near each other. */
void kolo_line_groups(struct kolo_text *out, int nranks, const struct kolo_groups *groups);
/* "Trees [0] 14/-1/-1->13->12 [1] ...": down0/down1/down2->rank->up, one tree a channel. */
void kolo_line_trees(struct kolo_text *out, int rank, int nchannels, const struct kolo_tree *trees);

/* One connection, written rank[device] at both ends. The device is the rank's index on its host. */
struct kolo_edge {
    int channel, connection;
    int from, from_device;
    int to, to_device;
    const char *via; /* "SHM/direct", "NET/Socket/0" ... */
};
/* "Channel 00/0 : 0[0] -> 1[1] via SHM/direct" */
void kolo_line_edge(struct kolo_text *out, const struct kolo_edge *edge);

#ifdef __cplusplus
}
#endif
#endif
