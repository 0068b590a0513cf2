// SPDX-License-Identifier: Apache-2.0
/* The inside of struct kolo_host: the parts of a machine, as a tree in one array. Parts come from
 * hwloc's discovery (host.c) or from an hwloc XML file (formats/read_hwloc.c). kolo reads such
 * files with its own reader, because hwloc trusts its files. */
#ifndef KOLO_TOPOLOGY_MACHINE_PARTS_H
#define KOLO_TOPOLOGY_MACHINE_PARTS_H

#include "topology/machine/host.h"

#include <hwloc.h>

enum kolo_part_kind {
    KOLO_PART_MACHINE,
    KOLO_PART_PACKAGE,
    KOLO_PART_NUMA,
    KOLO_PART_L3,
    KOLO_PART_L2,
    KOLO_PART_L1, /* of data, or unified */
    KOLO_PART_CORE,
    KOLO_PART_PU,
    KOLO_PART_OTHER, /* what nobody asks for, but what may hold others */
    KOLO_PART_BRIDGE,
    KOLO_PART_PCI,
    KOLO_PART_OS, /* an OS device, below its PCI device */
    KOLO_PART_KINDS
};

struct kolo_part {
    enum kolo_part_kind kind;
    int parent; /* -1: the machine */
    int end;    /* what it holds are the parts after it up to this one */
    int index;  /* among those of its kind; -1: holds no PU, as if it were not there */
    int number; /* PU, NUMA: OS index, -1 none; OS: its hwloc_obj_osdev_type_t */
    int pus;    /* within it */
    int arch;   /* MACHINE, PACKAGE: family << 8 | model of the CPU */
    bool pci;   /* BRIDGE: joins PCI to PCI */
    uint32_t class_id, vendor_id, device_id;
    float wire_gbs;      /* PCI, BRIDGE: 0 unknown */
    uint64_t bytes;      /* of a cache; NUMA: of memory */
    uint64_t bus;        /* PCI, BRIDGE: as in struct kolo_node */
    uint64_t id;         /* by which a matrix names it */
    hwloc_bitmap_t cpus; /* NUMA: PUs that it is local to, of those there are */
    char *name;          /* OS; MACHINE: the architecture. NULL unknown, as below */
    char *model;         /* CPU, GPU */
    char *vendor;        /* CPU */
};

struct kolo_pu {
    int os, part;
};

/* The matrix NVLinkBandwidth: line rates in MB/s from one part to another; absent ones are 0. */
struct kolo_part_rate {
    int from, to; /* parts */
    uint64_t mbs;
};

struct kolo_host {
    char *file;             /* NULL: this machine */
    int holds;              /* of the shared one; 0: it has one owner */
    struct kolo_part *part; /* each before what it holds, in hwloc's order; part[0]: the machine */
    int nparts, part_room;
    int count[KOLO_PART_KINDS]; /* of those with an index */
    struct kolo_pu *pu;         /* in the order of OS indices */
    hwloc_bitmap_t cpus;        /* those */
    struct kolo_part_rate *rate;
    int nrates, rate_room;
    size_t bytes, limit; /* of memory taken, and the most that may be; 0: no limit */
};

enum { KOLO_HOST_PUS_MAX = 1 << 16, KOLO_HOST_NUMAS_MAX = 1024, KOLO_HOST_PARTS_MAX = 1 << 18 };
enum { KOLO_NVSWITCH_CLASS = 0x0680 }; /* a bridge of another kind, on PCI */

/* CPUs the calling thread is bound to, cut to those of `host`; the caller frees it. NULL: no
 * memory. */
hwloc_bitmap_t kolo_host_bound(const struct kolo_host *host);

/* ---- parts (parts.c) ---- */

struct kolo_host *kolo_parts_begin(const char *file, size_t limit); /* NULL: no memory */
/* A new part in `parent`, all else unknown; its number, or -1: no memory, or beyond the limit. What
 * it holds is added before kolo_parts_close(). Pointers to parts are good until the next. */
int kolo_parts_open(struct kolo_host *host, enum kolo_part_kind kind, int parent);
void kolo_parts_close(struct kolo_host *host, int part);
/* Copy a text into a part; NULL leaves it. False: no memory. */
bool kolo_parts_text(struct kolo_host *host, char **where, const char *text);
/* Count memory that a part holds beside these; false: beyond the limit. */
bool kolo_parts_take(struct kolo_host *host, size_t bytes);
bool kolo_parts_rate(struct kolo_host *host, int from, int to, uint64_t mbs);
/* After the last part. Errors: INVALID (no PU, or two of one OS index), SYSTEM. */
KOLO_CHECK kolo_status kolo_parts_end(struct kolo_host *host);
/* No memory, or the limit: the status to return. */
kolo_status kolo_parts_full(const struct kolo_host *host);

/* The next of a kind after part `after`, -1 for the first; -1: there is no more. */
int kolo_parts_next(const struct kolo_host *host, enum kolo_part_kind kind, int after);
/* The nearest of a kind that holds a part; -1: none. */
int kolo_parts_above(const struct kolo_host *host, int part, enum kolo_part_kind kind);
/* How many of a kind a part holds. */
int kolo_parts_inside(const struct kolo_host *host, int part, enum kolo_part_kind kind);
/* OS indices of the PUs that a part holds; the caller frees it. NULL: no memory. */
hwloc_bitmap_t kolo_parts_cpus(const struct kolo_host *host, int part);
/* The part of the PU with this OS index; -1: none. */
int kolo_parts_pu(const struct kolo_host *host, int os);

#endif
