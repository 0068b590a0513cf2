// SPDX-License-Identifier: Apache-2.0
/* One machine as a graph: NUMA nodes, PCI switches, GPUs, NICs and the NVSwitch are its nodes; each
 * link has a capacity in GB/s (1e9 bytes a second) per direction. Whatever a machine was read from
 * (discovery, hwloc XML, NCCL and RCCL topology XML, nvidia-smi's matrix, our own dump) becomes
 * this; planner, text and pictures know nothing else. Capacities are what transfers reach, not line
 * rates: see speed.c for the numbers and where they come from. */
#ifndef KOLO_TOPOLOGY_MACHINE_GRAPH_H
#define KOLO_TOPOLOGY_MACHINE_GRAPH_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_node_kind {
    KOLO_NODE_NUMA,
    KOLO_NODE_SWITCH, /* of PCI, or a card with several ports */
    KOLO_NODE_GPU,
    KOLO_NODE_NIC,      /* one port */
    KOLO_NODE_NVSWITCH, /* all NVSwitches of a host are one node */
    KOLO_NODE_DEVICE,   /* on PCI, of a class we do not know */
    KOLO_NODE_KINDS
};

enum kolo_link_kind {
    KOLO_LINK_PCI,
    KOLO_LINK_NVLINK,
    KOLO_LINK_XGMI,
    KOLO_LINK_C2C,
    KOLO_LINK_SMP, /* between NUMA nodes */
    KOLO_LINK_KINDS
};

/* A PCI address: domain << 16 | bus << 8 | device << 3 | function; domains have up to 32 bits. */
#define KOLO_BUS_NONE UINT64_MAX

struct kolo_node {
    enum kolo_node_kind kind;
    int parent;   /* what it hangs on in the PCI tree (a switch, a NUMA node); -1: nothing */
    uint64_t bus; /* KOLO_BUS_NONE: has no address */
    int number;   /* NUMA: OS index; GPU, NIC: as the source counts; -1 unknown */
    int arch;     /* GPU: compute capability 80, gfx 908 ...; CPU: family << 8 | model; 0 unknown */
    int gdr;      /* NIC, GPU: 1 GPUDirect RDMA works, 0 not, -1 unknown */
    int port;     /* NIC; 0 unknown */
    int rdma;     /* NIC: 1 it has a verbs device, 0 it has none, -1 unknown */
    int count;    /* NVSWITCH: how many there are; 0 unknown */
    uint32_t class_id, vendor, device;
    uint64_t guid;   /* NIC; 0 unknown */
    double gbs;      /* NIC: rate of the port; 0 unknown */
    char *name;      /* "mlx5_0", "Tesla V100", "GenuineIntel"; NULL unknown */
    char *cpus;      /* NUMA: its CPUs as the source writes them; NULL unknown */
    char *arch_text; /* CPU: "x86_64"; GPU: "gfx942"; NULL unknown */
};

struct kolo_graph_edge {
    int a, b; /* nodes */
    enum kolo_link_kind kind;
    int count;    /* bundled lanes: NVLinks between the two; 1 elsewhere */
    double gbs;   /* of the whole bundle, each way */
    bool assumed; /* the source does not say; a usual value stands here */
};

struct kolo_graph {
    struct kolo_node *node;
    int nnodes, node_room;
    struct kolo_graph_edge *link;
    int nlinks, link_room;
    int *gpu; /* nodes in the planner's order: by `number` where all have one, else by bus */
    int ngpus;
    int *nic;
    int nnics;
    char *source;           /* file, or "this machine" */
    const char *format;     /* "NCCL topology XML" ... */
    struct kolo_text notes; /* what was odd, a line each */
    int nnotes;
    size_t bytes, limit; /* of memory taken, and the most that may be; 0: no limit */
};

struct kolo_graph *kolo_graph_create(const char *source, const char *format, size_t limit);
void kolo_graph_destroy(struct kolo_graph *graph); /* NULL is allowed */

/* A new node of this kind, all else unknown, hanging on `parent` (-1: nothing); its index, or -1:
 * no memory, or beyond the limit. Pointers to nodes are good until the next. */
int kolo_graph_add(struct kolo_graph *graph, enum kolo_node_kind kind, int parent);
/* Add a link; kolo_graph_finish() makes one of those that join the same two nodes by the same kind.
 * False: no memory. */
bool kolo_graph_join(struct kolo_graph *graph, const struct kolo_graph_edge *link);
/* Take away the links over which two GPUs reach each other without PCI: those between them, and
 * those of both to the NVSwitch. */
void kolo_graph_cut(struct kolo_graph *graph, int a, int b);
/* Forget the GPUs whose nodes are not `used`: they become devices, which have no links beside PCI.
 */
void kolo_graph_keep(struct kolo_graph *graph, const bool *used);
/* Copy text into a node's name, cpus or arch_text; NULL or "" leaves it. False: no memory. */
bool kolo_graph_text(struct kolo_graph *graph, char **where, const char *text);
/* Say that something was odd; the first 64 are kept, the rest counted. */
void kolo_graph_note(struct kolo_graph *graph, const char *format, ...) KOLO_PRINTF(2, 3);

/* A link that one end of it declares: NVLinks are told per GPU, and the other end by its address.
 */
struct kolo_link_claim {
    int from;                 /* GPU */
    uint64_t to;              /* KOLO_BUS_NONE: hidden, which only NVSwitches are */
    enum kolo_node_kind kind; /* of the other end: GPU, NVSWITCH or NUMA (a CPU with NVLink) */
    enum kolo_link_kind link;
    int count;
    double gbs; /* each way, of all `count`; 0: by the GPU's architecture */
};
struct kolo_link_claims {
    struct kolo_link_claim *claim;
    int count, room;
};
bool kolo_link_claims_add(struct kolo_graph *graph, struct kolo_link_claims *claims,
                          const struct kolo_link_claim *claim);
/* Turn claims into links: what both ends claim counts once, by the smaller claim. */
KOLO_CHECK kolo_status kolo_link_claims_join(struct kolo_graph *graph,
                                             struct kolo_link_claims *claims);

/* After the last node and link: makes one link of several, numbers gpu[] and nic[], joins NUMA
 * nodes that nothing joins yet, and mends links that cannot be as slow as they say. Errors: SYSTEM.
 */
KOLO_CHECK kolo_status kolo_graph_finish(struct kolo_graph *graph);
/* Hand out what was read with status `st`, finished; of an error nothing is left. Errors: st's,
 * those of kolo_graph_finish(). */
KOLO_CHECK kolo_status kolo_graph_end(struct kolo_graph *graph, kolo_status st,
                                      struct kolo_graph **out);

/* Node with this bus address and kind (-1: any); -1: none. */
int kolo_graph_find(const struct kolo_graph *graph, uint64_t bus, int kind);
/* The link between two nodes; NULL: none. Any kind if `kind` is -1. */
struct kolo_graph_edge *kolo_graph_link(const struct kolo_graph *graph, int a, int b, int kind);
/* The NUMA node that `node` hangs on, its own index if it is one; -1: none. */
int kolo_graph_numa(const struct kolo_graph *graph, int node);
/* The only NVSWITCH node, made on first use; -1: no memory. */
int kolo_graph_nvswitch(struct kolo_graph *graph);
/* All addresses, sorted, for many searches; free() it. Errors: SYSTEM. */
struct kolo_bus_entry {
    uint64_t bus;
    int node;
};
KOLO_CHECK kolo_status kolo_graph_index(struct kolo_graph *graph, struct kolo_bus_entry **out);
int kolo_index_find(const struct kolo_graph *graph, const struct kolo_bus_entry *index,
                    uint64_t bus);
/* No memory, or the limit: the status to return. */
kolo_status kolo_graph_full(const struct kolo_graph *graph);
/* An array with room for one more element, in the graph's account; NULL: none. */
void *kolo_graph_grow(struct kolo_graph *graph, void *array, int count, int *room, size_t each);
/* A GPU of the graph by its place in gpu[]: "GPU0 (0000:07:00.0)"; other nodes by kind and name. */
void kolo_node_label(const struct kolo_graph *graph, int node, struct kolo_text *out);
const char *kolo_node_kind_name(enum kolo_node_kind kind);
const char *kolo_link_kind_name(enum kolo_link_kind kind);

/* Hash of all that the planner reads: equal machines plan alike. */
uint64_t kolo_graph_hash(const struct kolo_graph *graph);

/* ---- addresses and speeds (speed.c) -----------------------------------------------------------
 */

/* "0000:3b:00.0", "00000000:3B:00.0", "3b:00.0", "fffffff:ffff:ff" is none. False: not an address.
 */
bool kolo_bus_parse(const char *text, uint64_t *out);
/* Into at least 24 bytes. */
void kolo_bus_print(uint64_t bus, char out[24]);

/* GB/s of a PCI link: "16.0 GT/s PCIe" and lanes. 0: the text has no number. */
double kolo_pci_gbs(const char *speed, int width);
/* The same from hwloc's GB/s on the wire. */
double kolo_pci_gbs_of_wire(double wire_gbs);
double kolo_pci_gbs_usual(void);
/* GB/s of one NVLink of a GPU with this compute capability; of one xgmi link of gfx `arch`. */
double kolo_nvlink_gbs(int arch);
double kolo_xgmi_gbs(int arch);
/* GB/s between two NUMA nodes of such CPUs: vendor NULL unknown, model as in struct kolo_node. */
double kolo_smp_gbs(const char *vendor, const char *arch_text, int family_model);

/* What a PCI class code is. */
enum kolo_node_kind kolo_pci_kind(uint32_t class_id, uint32_t vendor);

/* ---- graph of a host (host_graph.c) ---- */

struct kolo_host;
/* The devices that hwloc found; `host` was opened with its devices. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_graph_of_host(const struct kolo_host *host, struct kolo_graph **out);
#ifdef __cplusplus
}
#endif
#endif
