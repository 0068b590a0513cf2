// SPDX-License-Identifier: Apache-2.0
/* One machine as a graph.
 *
 * - Nodes: NUMA nodes, PCI switches, GPUs, NICs and the NVSwitch.
 * - Links: each has a capacity in GB/s (1e9 bytes a second) per direction. A capacity is the rate
 *   that transfers reach, not the line rate. speed.c has the numbers and their sources.
 *
 * Every source of a machine becomes this graph: discovery, hwloc XML, NCCL and RCCL topology XML,
 * nvidia-smi's matrix, and kolo's own dump. The planner, the text output and the pictures read
 * nothing else. */
#ifndef KOLO_TOPOLOGY_MACHINE_GRAPH_H
#define KOLO_TOPOLOGY_MACHINE_GRAPH_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_node_kind {
    KOLO_NODE_NUMA,
    KOLO_NODE_SWITCH, /* a PCI switch */
    KOLO_NODE_GPU,
    KOLO_NODE_NIC,       /* a card, with all its ports */
    KOLO_NODE_NVSWITCH,  /* all NVSwitches of a host are one node */
    KOLO_NODE_DEVICE,    /* a PCI device of an unknown class */
    KOLO_NODE_INTERFACE, /* a network interface made by software: it has no device */
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
    int parent;   /* node above it in the PCI tree: a switch or a NUMA node; -1 none */
    uint64_t bus; /* KOLO_BUS_NONE: no address */
    int number;   /* NUMA: OS index; GPU, NIC: as the source counts; -1 unknown */
    int arch;     /* GPU: compute capability 80, gfx 908 ...; CPU: family << 8 | model; 0 unknown */
    int gdr;      /* NIC, GPU: 1 GPUDirect RDMA works, 0 it does not, -1 unknown */
    int port;     /* NIC: number of its first port; 0 unknown */
    int ports;    /* NIC: how many it has; 0 unknown, which counts as one */
    int rdma;     /* NIC: 1 it has a verbs device, 0 it has not, -1 unknown */
    int count;    /* NVSWITCH: number of switches; 0 unknown */
    uint32_t class_id, vendor, device;
    uint64_t guid;   /* NIC; 0 unknown */
    double gbs;      /* NIC: rate of all its ports; 0 unknown */
    char *name;      /* "mlx5_0+mlx5_1", "Tesla V100", "GenuineIntel"; NULL unknown */
    char *cpus;      /* NUMA: its CPUs as a list, such as "0-19,40-59"; NULL unknown */
    char *arch_text; /* CPU: "x86_64"; GPU: "gfx942"; NULL unknown */
};

struct kolo_graph_edge {
    int a, b; /* nodes */
    enum kolo_link_kind kind;
    int count;    /* bundled lanes: NVLinks between the two; 1 elsewhere */
    double gbs;   /* of the whole bundle, each way */
    bool assumed; /* the source gives no value; this is the usual one */
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
    struct kolo_text notes; /* oddities of the source, one a line */
    int nnotes;
    size_t bytes, limit; /* memory in use, and its limit; 0: no limit */
};

struct kolo_graph *kolo_graph_create(const char *source, const char *format, size_t limit);
void kolo_graph_destroy(struct kolo_graph *graph); /* NULL is allowed */

/* Add a node of this kind below `parent` (-1: no parent); its other values are unknown. Returns its
 * index; -1: no memory, or beyond the limit. Pointers to nodes stay valid until the next call. */
int kolo_graph_add(struct kolo_graph *graph, enum kolo_node_kind kind, int parent);
/* Add a link. kolo_graph_finish() merges links of one kind between the same two nodes. False: no
 * memory, or beyond the limit. */
bool kolo_graph_join(struct kolo_graph *graph, const struct kolo_graph_edge *link);
/* Remove the links by which two GPUs reach each other without PCI: the links between the two GPUs,
 * and the links of both to the NVSwitch. */
void kolo_graph_cut(struct kolo_graph *graph, int a, int b);
/* Keep the GPUs whose nodes are `used`. The other GPUs become devices and lose all links but PCI.
 */
void kolo_graph_keep(struct kolo_graph *graph, const bool *used);
/* Copy text into a node's name, cpus or arch_text; NULL or "" changes nothing. False: no memory, or
 * beyond the limit. */
bool kolo_graph_text(struct kolo_graph *graph, char **where, const char *text);
/* Add a note about an oddity. The first 64 notes are kept, the others only counted. */
void kolo_graph_note(struct kolo_graph *graph, const char *format, ...) KOLO_PRINTF(2, 3);
/* Take each NVLink as `gbs` GB/s, each way. */
void kolo_graph_set_nvlink(struct kolo_graph *graph, double gbs);
/* Whether the source leaves open if the GPUs have links: it describes several GPUs of servers and no
 * link between GPUs, and nothing in it shows that these GPUs have no links. */
bool kolo_graph_hides_links(const struct kolo_graph *graph);

/* A link as one of its ends declares it: a source lists NVLinks per GPU, and names the other end by
 * its address. */
struct kolo_link_claim {
    int from;                 /* GPU */
    uint64_t to;              /* KOLO_BUS_NONE: hidden; only NVSwitches are hidden */
    enum kolo_node_kind kind; /* of the other end: GPU, NVSWITCH or NUMA (a CPU with NVLink) */
    enum kolo_link_kind link;
    int count;
    double gbs; /* all `count` links, each way; 0: the usual rate of the GPU's arch */
};
struct kolo_link_claims {
    struct kolo_link_claim *claim;
    int count, room;
};
bool kolo_link_claims_add(struct kolo_graph *graph, struct kolo_link_claims *claims,
                          const struct kolo_link_claim *claim);
/* Turn claims into links and free the claims. Two claims by both ends make one link, with the
 * values of the smaller claim. */
KOLO_CHECK kolo_status kolo_link_claims_join(struct kolo_graph *graph,
                                             struct kolo_link_claims *claims);

/* Complete the graph after its last node and link. Merges parallel links, numbers gpu[] and nic[],
 * joins NUMA nodes if the source joins none, and corrects PCI links that cannot be as slow as
 * declared. Errors: INVALID (beyond the limit), SYSTEM. */
KOLO_CHECK kolo_status kolo_graph_finish(struct kolo_graph *graph);
/* End the reading of a graph that has status `st` so far. OK: finishes the graph and returns it.
 * Error: destroys the graph. Errors: `st`, those of kolo_graph_finish(). */
KOLO_CHECK kolo_status kolo_graph_end(struct kolo_graph *graph, kolo_status st,
                                      struct kolo_graph **out);

/* The node with this bus address and kind (-1: any kind); -1: none. */
int kolo_graph_find(const struct kolo_graph *graph, uint64_t bus, int kind);
/* The link of this kind (-1: any kind) between two nodes; NULL: none. */
struct kolo_graph_edge *kolo_graph_link(const struct kolo_graph *graph, int a, int b, int kind);
/* The first child of `parent` behind node `after`; -1: none. Parents come before their children. */
int kolo_graph_next_child(const struct kolo_graph *graph, int parent, int after);
/* The NUMA node above `node`, or `node` if it is a NUMA node; -1: none. */
int kolo_graph_numa(const struct kolo_graph *graph, int node);
/* The only NVSWITCH node, added on first use; -1: no memory, or beyond the limit. */
int kolo_graph_nvswitch(struct kolo_graph *graph);
/* The error after a failed addition: INVALID if the graph has a limit, else SYSTEM. */
kolo_status kolo_graph_full(const struct kolo_graph *graph);
/* Grow an array to hold one more element, and count its memory in the graph. NULL: no memory, or
 * beyond the limit; the old array is then unchanged. */
void *kolo_graph_grow(struct kolo_graph *graph, void *array, int count, int *room, size_t each);
/* A node's label with its bus address, such as "GPU0 0000:07:00.0". A GPU's number is its place in
 * gpu[]; other nodes show their kind or name. */
void kolo_node_label(const struct kolo_graph *graph, int node, struct kolo_text *out);
const char *kolo_node_kind_name(enum kolo_node_kind kind);
const char *kolo_link_kind_name(enum kolo_link_kind kind);

/* Hash of the values that the planner reads: machines with equal hashes get equal plans. */
uint64_t kolo_graph_hash(const struct kolo_graph *graph);

/* ---- addresses and speeds (speed.c) -----------------------------------------------------------
 */

/* Parse an address: "0000:3b:00.0", "00000000:3B:00.0" or "3b:00.0". False: not an address, such as
 * "fffffff:ffff:ff". */
bool kolo_bus_parse(const char *text, uint64_t *out);
/* Print an address; KOLO_BUS_NONE is "-". */
void kolo_bus_print(uint64_t bus, char out[24]);

/* GB/s of a PCI link, from its speed ("16.0 GT/s PCIe") and its lanes (0: 16). 0: the text has no
 * number, or a value is out of range. */
double kolo_pci_gbs(const char *speed, int width);
/* GB/s of a PCI link, from the line rate that hwloc reports. */
double kolo_pci_gbs_of_wire(double wire_gbs);
/* The usual link of a GPU with this compute capability (0: unknown): 16 lanes of its generation. */
double kolo_pci_gbs_usual(int arch);
/* GB/s of one NVLink of a GPU with this compute capability; of one xgmi link of gfx `arch`. */
double kolo_nvlink_gbs(int arch);
double kolo_xgmi_gbs(int arch);
/* GB/s between two NUMA nodes, from their CPU: vendor (NULL: unknown), architecture (NULL: unknown)
 * and `arch` of struct kolo_node. */
double kolo_smp_gbs(const char *vendor, const char *arch_text, int family_model);

/* The kind of node that a PCI class code stands for. */
enum kolo_node_kind kolo_pci_kind(uint32_t class_id, uint32_t vendor);

/* ---- graph of a host (host_graph.c) ---- */

struct kolo_host;
/* Make a graph of the devices that hwloc found. `host` was discovered with devices. Errors: SYSTEM.
 */
KOLO_CHECK kolo_status kolo_graph_of_host(const struct kolo_host *host, struct kolo_graph **out);
#ifdef __cplusplus
}
#endif
#endif
