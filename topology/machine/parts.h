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
    KOLO_PART_OTHER, /* of no interest itself, but may contain others */
    KOLO_PART_BRIDGE,
    KOLO_PART_PCI,
    KOLO_PART_OS, /* an OS device, below its PCI device */
    KOLO_PART_KINDS
};

/* The types of an OS device, as bits. hwloc 2 has one type a device, hwloc 3 several. */
enum { KOLO_OS_GPU = 1, KOLO_OS_COPROC = 2, KOLO_OS_NETWORK = 4, KOLO_OS_OPENFABRICS = 8 };

struct kolo_part {
    enum kolo_part_kind kind;
    int parent; /* -1: the machine */
    int end;    /* the parts after this one and before `end` are inside it */
    int index;  /* among parts of its kind; -1: has no PU, and counts as absent */
    int number; /* PU, NUMA: OS index, -1 none; OS: its types, as bits */
    int pus;    /* PUs inside it */
    int arch;   /* MACHINE, PACKAGE: family << 8 | model of the CPU */
    bool pci;   /* BRIDGE: joins PCI to PCI */
    uint32_t class_id, vendor_id, device_id;
    float wire_gbs;      /* PCI, BRIDGE: 0 unknown */
    uint64_t bytes;      /* cache or NUMA memory */
    uint64_t bus;        /* PCI, BRIDGE: as in struct kolo_node */
    uint64_t id;         /* its name in a matrix */
    hwloc_bitmap_t cpus; /* NUMA: the local PUs that this host has */
    char *name;          /* OS; MACHINE: the architecture. NULL unknown, also below */
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
    struct kolo_part *part; /* in hwloc's order, a parent before its children; part[0]: machine */
    int nparts, part_room;
    int count[KOLO_PART_KINDS]; /* parts with an index */
    struct kolo_pu *pu;         /* in the order of OS indices */
    hwloc_bitmap_t cpus;        /* OS indices of all PUs */
    struct kolo_part_rate *rate;
    int nrates, rate_room;
    size_t bytes, limit; /* memory in use, and its limit; 0: no limit */
};

enum { KOLO_HOST_PUS_MAX = 1 << 16, KOLO_HOST_NUMAS_MAX = 1024, KOLO_HOST_PARTS_MAX = 1 << 18 };
enum { KOLO_NVSWITCH_CLASS = 0x0680 }; /* a bridge of another kind, on PCI */

/* The CPUs of `host` that the calling thread is bound to; the caller frees it. NULL: no memory. */
hwloc_bitmap_t kolo_host_bound(const struct kolo_host *host);

/* ---- parts (parts.c) ---- */

struct kolo_host *kolo_parts_begin(const char *file, size_t limit); /* NULL: no memory */
/* Add a part inside `parent`; its other values are unknown. Returns its number; -1: no memory, or
 * beyond the limit. Its children are added before kolo_parts_close(). Pointers to parts stay valid
 * until the next call. */
int kolo_parts_open(struct kolo_host *host, enum kolo_part_kind kind, int parent);
void kolo_parts_close(struct kolo_host *host, int part);
/* Copy a text into a part; NULL changes nothing. False: no memory, or beyond the limit. */
bool kolo_parts_text(struct kolo_host *host, char **where, const char *text);
/* Count other memory that a part holds. False: beyond the limit. */
bool kolo_parts_take(struct kolo_host *host, size_t bytes);
bool kolo_parts_rate(struct kolo_host *host, int from, int to, uint64_t mbs);
/* Complete the host after its last part. Errors: INVALID (no PU, or two PUs with one OS index),
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_parts_end(struct kolo_host *host);
/* The error after a failed addition: INVALID if the host has a limit, else SYSTEM. */
kolo_status kolo_parts_full(const struct kolo_host *host);

/* The next part of a kind after part `after` (-1: the first of the kind). -1: no more. */
int kolo_parts_next(const struct kolo_host *host, enum kolo_part_kind kind, int after);
/* The nearest part of a kind that contains `part`; -1: none. */
int kolo_parts_above(const struct kolo_host *host, int part, enum kolo_part_kind kind);
/* Number of parts of a kind inside `part`. */
int kolo_parts_inside(const struct kolo_host *host, int part, enum kolo_part_kind kind);
/* OS indices of the PUs inside a part; the caller frees it. NULL: no memory. */
hwloc_bitmap_t kolo_parts_cpus(const struct kolo_host *host, int part);
/* The part of the PU with this OS index; -1: none. */
int kolo_parts_pu(const struct kolo_host *host, int os);

#endif
