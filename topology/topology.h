// SPDX-License-Identifier: Apache-2.0
/* Topology: what this machine looks like, in which order ranks should stand in a ring, which two
 * trees span them, and how all of that reads in a log line or a drawing. Only discovery touches the
 * machine (through hwloc); orders, trees, lines and drawings are pure functions of their arguments,
 * so every rank that has the same places computes the same layout. */
#ifndef KOLO_TOPOLOGY_H
#define KOLO_TOPOLOGY_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the machine (host.c, host_print.c) ---- */

struct kolo_host; /* immutable once made; any number of threads may ask it */

/* Discover this machine, or load the hwloc XML file (format 2) that KOLO_TOPO_FILE names in its
 * place; a file of another format tells of GPUs and NICs only (graph.h), so CPUs are then this
 * machine's. Errors: INVALID (the file; the text names it and says what is wrong), SYSTEM. */
KOLO_CHECK kolo_status kolo_host_discover(struct kolo_host **out);
/* Load the hwloc XML file `path`. Errors as above. */
KOLO_CHECK kolo_status kolo_host_load(const char *path, struct kolo_host **out);
void kolo_host_destroy(struct kolo_host *host); /* NULL is allowed */

/* Human text. The first line sums up and serves alone as a log line; then packages, NUMA nodes,
 * caches and the PUs this process may use. */
void kolo_host_print(const struct kolo_host *host, struct kolo_text *out);

/* What a machine has that decides which algorithm is fast: 16 hexadecimal digits, a blank, and the
 * words that they are the hash of (packages, cores, PUs, L3s, NUMA nodes, model). One line. */
void kolo_host_fingerprint(const struct kolo_host *host, struct kolo_text *out);

/* PUs this process's control group allows. A narrower binding of the thread is not subtracted: a
 * launcher binds each rank to its own part. */
int kolo_host_pus(const struct kolo_host *host);
/* OS index of PU i of those, counted in the order of OS indices (the order taskset and Linux count
 * in, where a core's second PU often comes far behind its first); -1 if there is none. */
int kolo_host_pu_os(const struct kolo_host *host, int i);
/* Bytes of one cache, the smallest where they differ; 0 unknown. */
size_t kolo_host_l3_bytes(const struct kolo_host *host);
size_t kolo_host_l2_bytes(const struct kolo_host *host);

/* Where something runs: logical indices, which number neighbours consecutively; -1 unknown, absent,
 * or not one (a thread bound to two cores of one package has a package and no core). */
struct kolo_place {
    int pu, core, l3, numa, package;
};
static inline struct kolo_place kolo_place_unknown(void)
{
    const struct kolo_place place = {-1, -1, -1, -1, -1};
    return place;
}

/* Place of the PU with this OS index. */
struct kolo_place kolo_host_place(const struct kolo_host *host, int pu_os_index);
/* What all PUs the calling thread is bound to have in common. */
struct kolo_place kolo_host_here(const struct kolo_host *host);

/* The nearest thing that two places of a host are known to share. Bound more loosely than to one
 * L3, a rank is taken to be as far from another as it may be: in another L3 of what they share. */
enum kolo_near {
    KOLO_NEAR_CORE,
    KOLO_NEAR_L3,
    KOLO_NEAR_NUMA,    /* a NUMA node, but no L3 */
    KOLO_NEAR_PACKAGE, /* a package, but no NUMA node */
    KOLO_NEAR_HOST,    /* no package */
    KOLO_NEAR_UNKNOWN
};
enum kolo_near kolo_near_of(const struct kolo_place *a, const struct kolo_place *b);

/* OS indices of two PUs of this host that are just so near; false where there are none. The first
 * is the first PU there is. */
bool kolo_host_pair(const struct kolo_host *host, enum kolo_near near, int cpu[2]);

/* ---- groups of near ranks (groups.c) ---- */

enum { KOLO_GROUP_LEVELS = 4 };

/* Levels of groups, the nearest first, as in struct kolo_shape of kolo/plugin.h: at level l rank r
 * is in the group of rank group[l * nranks + r], its smallest. */
struct kolo_groups {
    int nlevels; /* 0: all ranks are equally near, or their places unknown */
    int *group;  /* [nlevels * nranks] */
    const char *name[KOLO_GROUP_LEVELS]; /* "L3", "NUMA node", "package", "host" */
};
/* From hosts and places (either may be NULL, as below). Levels that part nobody, join nobody, or
 * are not known of every rank are left out. Pure. Cost: n times the groups. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_groups_make(int nranks, const int *host_of,
                                        const struct kolo_place *place, struct kolo_groups *out);
void kolo_groups_free(struct kolo_groups *groups);
/* Places by hand: "0,0,1,1" are the numbers of the ranks' L3 caches; after a ';' those of their
 * NUMA nodes, then of their packages, which are one where they are not given. Lists shorter than
 * nranks begin again. False, and `out` undefined, where the text is not just that. */
bool kolo_places_parse(const char *text, int nranks, struct kolo_place *out);

/* ---- layout: order, trees (order.c, tree.c) ---- */

/* Order the ranks so that neighbours share caches: order[i] is the rank at position i. Sorted by
 * host, package, NUMA node, L3, core, PU, then rank; an unknown member sorts last. Each level's
 * numbering is rotated so that rank 0 comes first and yet every group (host, package, L3 ...) stays
 * in one piece; as a ring, each level is left the fewest possible times. host_of NULL: one host;
 * place NULL: none is known. Cost: n log n. */
void kolo_order_ranks(int nranks, const int *host_of, const struct kolo_place *place, int *order);

/* A rank's neighbours in a tree; -1 none. In a binary one down[0] stands before the rank in the
 * order, and there is no down[2]. */
struct kolo_tree {
    int up, down[3];
};

/* Position `position` of the two trees over positions 0..n-1 (0 <= which <= 1); members are
 * positions. Tree 0 is the in-order binary tree; tree 1 its mirror for even n, its shift by one for
 * odd n. Depth is floor(log2 n) in both. No position is interior in both; for even n each is
 * interior in exactly one, for odd n position 0 is a leaf in both and every other interior in
 * exactly one. Pure. Source: Sanders, Speck, Traff 2009, doi:10.1016/j.parco.2009.09.001 (two-tree
 * broadcast). */
struct kolo_tree kolo_tree_at(int n, int which, int position);
/* The same by ranks: order[] as above, NULL for 0..n-1. Cost: n (finds the rank's position). */
void kolo_tree_build(int nranks, const int *order, int which, int rank, struct kolo_tree *out);

/* ---- log lines in NCCL's form, never cut (lines.c) ---- */

/* "Channel 00/02 : 0 1 2": the ring of a channel, ranks right-aligned to the widest. */
void kolo_line_ring(struct kolo_text *out, int channel, int nchannels, int nranks,
                    const int *order);
/* "Groups : L3 0-3 4-7 8-11 12-15, package 0-7 8-15": ranks that are near each other. */
void kolo_line_groups(struct kolo_text *out, int nranks, const struct kolo_groups *groups);
/* "Trees [0] 14/-1/-1->13->12 [1] ...": down0/down1/down2->rank->up, a tree for each channel. */
void kolo_line_trees(struct kolo_text *out, int rank, int nchannels, const struct kolo_tree *trees);

/* One connection: rank[device] at both ends; device is the rank's on its host. */
struct kolo_edge {
    int channel, connection;
    int from, from_device;
    int to, to_device;
    const char *via; /* "SHM/direct", "NET/Socket/0" ... */
};
/* "Channel 00/0 : 0[0] -> 1[1] via SHM/direct" */
void kolo_line_edge(struct kolo_text *out, const struct kolo_edge *edge);

/* ---- drawings (draw.c, svg.c) ---- */

/* What a drawing shows; host_of and place may be NULL as above. */
struct kolo_layout {
    int nranks;
    const int *order;
    const int *host_of;
    const struct kolo_place *place;
};

/* One line: "(0 1) (2 3) | (4 5) || (6 7)"; parentheses share an L3, | parts packages, || hosts. */
void kolo_draw_ring(const struct kolo_layout *layout, struct kolo_text *out);
/* A tree, one rank a line, its root first. */
void kolo_draw_tree(const struct kolo_layout *layout, int which, struct kolo_text *out);
/* One SVG document: the ring, and below it both trees. */
void kolo_draw_svg(const struct kolo_layout *layout, struct kolo_text *out);

#ifdef __cplusplus
}
#endif
#endif
