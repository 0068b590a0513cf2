// SPDX-License-Identifier: Apache-2.0
/* Questions about a host: its PUs and caches, the place of a PU or of the calling thread, and the
 * distance between two places. */
#include "topology/machine/parts.h"

#include <sched.h>
#include <stdlib.h>

/* ---- a host ---- */

int kolo_host_pus(const struct kolo_host *host)
{
    return host->count[KOLO_PART_PU];
}

int kolo_host_pu_os(const struct kolo_host *host, int i)
{
    return i >= 0 && i < kolo_host_pus(host) ? host->pu[i].os : -1;
}

size_t kolo_host_l3_bytes(const struct kolo_host *host)
{
    size_t bytes = 0;
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_L3, i)) >= 0;) {
        const size_t size = (size_t)host->part[i].bytes;
        bytes = bytes == 0 || (size != 0 && size < bytes) ? size : bytes;
    }
    return bytes;
}

static int index_above(const struct kolo_host *host, int pu, enum kolo_part_kind kind)
{
    const int up = kolo_parts_above(host, pu, kind);
    return up >= 0 ? host->part[up].index : -1;
}

/* A PU may be local to several nodes (DRAM and HBM): the first one names the place. */
static int numa_of(const struct kolo_host *host, int pu)
{
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_NUMA, i)) >= 0;) {
        if (hwloc_bitmap_isset(host->part[i].cpus, (unsigned)host->part[pu].number)) {
            return host->part[i].index;
        }
    }
    return -1;
}

struct kolo_place kolo_host_place(const struct kolo_host *host, int pu_os_index)
{
    const int pu = kolo_parts_pu(host, pu_os_index);
    if (pu < 0) {
        return kolo_place_unknown();
    }
    return (struct kolo_place){
        .pu = host->part[pu].index,
        .core = index_above(host, pu, KOLO_PART_CORE),
        .l3 = index_above(host, pu, KOLO_PART_L3),
        .numa = numa_of(host, pu),
        .package = index_above(host, pu, KOLO_PART_PACKAGE),
    };
}

/* ---- the distance of two places ---- */

static bool is_equal(int a, int b)
{
    return a >= 0 && a == b;
}

static bool is_different(int a, int b)
{
    return a >= 0 && b >= 0 && a != b;
}

enum kolo_near kolo_near_of(const struct kolo_place *a, const struct kolo_place *b)
{
    if (is_equal(a->core, b->core)) {
        return KOLO_NEAR_CORE;
    }
    if (is_different(a->package, b->package)) {
        return KOLO_NEAR_HOST;
    }
    if (is_different(a->numa, b->numa)) {
        return KOLO_NEAR_PACKAGE;
    }
    if (is_equal(a->l3, b->l3)) {
        return KOLO_NEAR_L3;
    }
    if (is_equal(a->numa, b->numa)) {
        return KOLO_NEAR_NUMA;
    }
    return is_equal(a->package, b->package) ? KOLO_NEAR_PACKAGE : KOLO_NEAR_UNKNOWN;
}

bool kolo_host_pair(const struct kolo_host *host, enum kolo_near near, int cpu[2])
{
    const int first = kolo_host_pu_os(host, 0);
    const struct kolo_place here = kolo_host_place(host, first);
    for (int i = 1; i < kolo_host_pus(host); i++) {
        const int other = kolo_host_pu_os(host, i);
        const struct kolo_place there = kolo_host_place(host, other);
        if (kolo_near_of(&here, &there) == near) {
            cpu[0] = first;
            cpu[1] = other;
            return true;
        }
    }
    return false;
}

/* ---- the calling thread ---- */

static int common_index(int a, int b)
{
    return a == b ? a : -1;
}

/* The kernel wants a mask that covers every possible CPU, and returns EINVAL for a smaller one. */
static cpu_set_t *read_affinity(int *cpus)
{
    for (*cpus = 1024; *cpus <= 1 << 20; *cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)*cpus);
        if (set == NULL || sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)*cpus), set) == 0) {
            return set;
        }
        CPU_FREE(set);
    }
    return NULL;
}

hwloc_bitmap_t kolo_host_bound(const struct kolo_host *host)
{
    int cpus = 0;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    cpu_set_t *set = bound != NULL ? read_affinity(&cpus) : NULL;
    for (int i = 0; i < kolo_host_pus(host) && set != NULL; i++) {
        const int cpu = host->pu[i].os;
        if (cpu < cpus && CPU_ISSET_S((size_t)cpu, CPU_ALLOC_SIZE((size_t)cpus), set)) {
            (void)hwloc_bitmap_set(bound, (unsigned)cpu);
        }
    }
    if (set != NULL) {
        CPU_FREE(set);
    }
    return bound;
}

struct kolo_place kolo_host_here(const struct kolo_host *host)
{
    struct kolo_place here = kolo_place_unknown();
    hwloc_bitmap_t bound = kolo_host_bound(host);
    const int first = bound != NULL ? hwloc_bitmap_first(bound) : -1;
    if (first >= 0) {
        here = kolo_host_place(host, first);
    }
    for (int cpu = first; cpu >= 0; cpu = hwloc_bitmap_next(bound, cpu)) {
        const struct kolo_place place = kolo_host_place(host, cpu);
        here = (struct kolo_place){
            common_index(here.pu, place.pu), common_index(here.core, place.core),
            common_index(here.l3, place.l3), common_index(here.numa, place.numa),
            common_index(here.package, place.package)};
    }
    hwloc_bitmap_free(bound);
    return here;
}
