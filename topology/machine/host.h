// SPDX-License-Identifier: Apache-2.0
/* A host: its processors and caches, and the place of a rank in them. A host comes from
 * topology/source.h. */
#ifndef KOLO_TOPOLOGY_MACHINE_HOST_H
#define KOLO_TOPOLOGY_MACHINE_HOST_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_host; /* immutable once made; any number of threads may ask it */

/* Discover this machine by hwloc. PCI and OS devices are optional: discovery without them is
 * faster. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_host_live(bool devices, struct kolo_host **out);
/* This machine without devices, discovered once a process. kolo_host_destroy() leaves it as it is.
 * Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_host_hold(struct kolo_host **out);
void kolo_host_destroy(struct kolo_host *host); /* NULL is allowed */

/* ---- questions (place.c) ---- */

/* Number of PUs that this process's control group allows. A narrower binding of the thread is not
 * subtracted: a launcher binds each rank to its own part. */
int kolo_host_pus(const struct kolo_host *host);
/* OS index of PU i, -1 if there is none. PUs are counted in the order of OS indices, as taskset and
 * Linux do; the second PU of a core often comes far behind its first. */
int kolo_host_pu_os(const struct kolo_host *host, int i);
/* Bytes of one L3, the smallest where they differ; 0 unknown. */
size_t kolo_host_l3_bytes(const struct kolo_host *host);

/* The place where a thread runs, in logical indices, which number neighbours consecutively. -1:
 * unknown, absent, or more than one (a thread bound to two cores of one package has a package and
 * no core). */
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
/* The place that all PUs of the calling thread's binding have in common. */
struct kolo_place kolo_host_here(const struct kolo_host *host);

/* The nearest part of a host that two places are known to share. A rank that is bound more loosely
 * than to one L3 counts as far from another: as if in another L3 of the part that both share. */
enum kolo_near {
    KOLO_NEAR_CORE,
    KOLO_NEAR_L3,
    KOLO_NEAR_NUMA,    /* a NUMA node, but no L3 */
    KOLO_NEAR_PACKAGE, /* a package, but no NUMA node */
    KOLO_NEAR_HOST,    /* no package */
    KOLO_NEAR_UNKNOWN
};
enum kolo_near kolo_near_of(const struct kolo_place *a, const struct kolo_place *b);

/* Find two PUs of this host at the distance `near` and give their OS indices. cpu[0] is the host's
 * first PU. False: no PU is at that distance from it. */
bool kolo_host_pair(const struct kolo_host *host, enum kolo_near near, int cpu[2]);

#ifdef __cplusplus
}
#endif
#endif
