// SPDX-License-Identifier: Apache-2.0
/* Adds NVML's GPUs to the graph.
 *
 * NVML gives the address of a link's other end. In virtual machines the address is empty or not of
 * this machine, because NVSwitches are hidden there; the other end is then an NVSwitch. A link's
 * capacity is 80 % of the speed that NVML gives. If it gives none, the GPU's generation decides. */
#include "topology/machine/graph.h"
#include "topology/machine/nvml.h"

#include <stdlib.h>
#include <string.h>

static uint64_t bus_of(const struct kolo_nvml_pci *pci)
{
    return (uint64_t)pci->domain << 16 | (uint64_t)(pci->bus & 0xff) << 8 |
           (uint64_t)(pci->device & 0x1f) << 3;
}

/* The NUMA node for GPUs that hwloc does not see: the only node, else one without a number. */
static int place_unknown(struct kolo_graph *g)
{
    int only = -1, count = 0;
    for (int i = 0; i < g->nnodes; i++) {
        if (g->node[i].kind == KOLO_NODE_NUMA && g->node[i].number < 0) {
            return i;
        }
        if (g->node[i].kind == KOLO_NODE_NUMA) {
            only = i;
            count++;
        }
    }
    return count == 1 ? only : kolo_graph_add(g, KOLO_NODE_NUMA, -1);
}

static int add_gpu(struct kolo_graph *g, uint64_t bus)
{
    int node = kolo_graph_find(g, bus, -1);
    if (node >= 0) {
        g->node[node].kind = KOLO_NODE_GPU;
        return node;
    }
    const int numa = place_unknown(g);
    node = numa >= 0 ? kolo_graph_add(g, KOLO_NODE_GPU, numa) : -1;
    const struct kolo_graph_edge link = {numa, node, KOLO_LINK_PCI, 1, kolo_pci_gbs_usual(0), true};
    if (node >= 0) {
        g->node[node].bus = bus;
        return kolo_graph_join(g, &link) ? node : -1;
    }
    return -1;
}

static double field_value(const struct kolo_nvml_field *f)
{
    if (f->status != KOLO_NVML_OK) {
        return 0;
    }
    switch ((int)f->type) {
    case KOLO_NVML_DOUBLE:
        return f->value.real;
    case KOLO_NVML_UINT:
        return (double)f->value.int32;
    case KOLO_NVML_ULONG:
    case KOLO_NVML_ULONGLONG:
        return (double)f->value.int64;
    default:
        return 0;
    }
}

static double ask_field(const struct kolo_nvml *nvml, kolo_nvml_device device, unsigned field,
                        unsigned scope)
{
    struct kolo_nvml_field f = {.field = field, .scope = scope};
    return nvml->fields != NULL && nvml->fields(device, 1, &f) == KOLO_NVML_OK ? field_value(&f)
                                                                               : 0;
}

/* NVML has a link's state as a field from compute capability 9 on, before that as a function. */
static bool is_up(const struct kolo_nvml *nvml, kolo_nvml_device device, unsigned link, int arch)
{
    int active = 0;
    if (arch >= 90 && ask_field(nvml, device, KOLO_NVML_LINK_STATE, link) > 0) {
        return true;
    }
    return nvml->link_state != NULL && nvml->link_state(device, link, &active) == KOLO_NVML_OK &&
           active != 0;
}

static struct kolo_link_claim claim_of(const struct kolo_nvml *nvml, kolo_nvml_device device,
                                       unsigned link, int node)
{
    struct kolo_nvml_pci pci = {0};
    int type = -1;
    struct kolo_link_claim claim = {node, KOLO_BUS_NONE, KOLO_NODE_NVSWITCH, KOLO_LINK_NVLINK, 1,
                                    0};
    claim.gbs = 0.8 * ask_field(nvml, device, KOLO_NVML_LINK_SPEED_MBPS, link) / 1000;
    if (nvml->link_type != NULL) {
        (void)nvml->link_type(device, link, &type);
    }
    if (type == KOLO_NVML_REMOTE_NPU) {
        claim.kind = KOLO_NODE_NUMA;
    } else if (type != KOLO_NVML_REMOTE_SWITCH && nvml->link_remote != NULL &&
               nvml->link_remote(device, link, &pci) == KOLO_NVML_OK && pci.bus_id[0] != '\0') {
        claim.to = bus_of(&pci);
        claim.kind = KOLO_NODE_GPU;
    }
    return claim;
}

static kolo_status add_links(const struct kolo_nvml *nvml, struct kolo_graph *g,
                             kolo_nvml_device device, int node, struct kolo_link_claims *claims)
{
    for (unsigned link = 0; link < KOLO_NVML_LINKS_MAX; link++) {
        if (is_up(nvml, device, link, g->node[node].arch)) {
            const struct kolo_link_claim claim = claim_of(nvml, device, link, node);
            if (!kolo_link_claims_add(g, claims, &claim)) {
                return kolo_graph_full(g);
            }
        }
    }
    return KOLO_OK;
}

static kolo_status describe_gpu(const struct kolo_nvml *nvml, struct kolo_graph *g,
                                kolo_nvml_device device, int node, int index)
{
    char name[96] = "";
    int major = 0, minor = 0;
    struct kolo_nvml_fabric fabric = {.version = KOLO_NVML_FABRIC_VERSION};
    struct kolo_node *n = &g->node[node];
    n->number = index;
    if (nvml->capability != NULL && nvml->capability(device, &major, &minor) == KOLO_NVML_OK) {
        n->arch = 10 * major + minor;
    }
    if (nvml->fabric != NULL && nvml->fabric(device, &fabric) == KOLO_NVML_OK &&
        fabric.state == 3) {
        static const unsigned char none[16];
        n->guid = memcmp(fabric.cluster, none, sizeof none) != 0
                      ? kolo_hash(fabric.clique, fabric.cluster, sizeof fabric.cluster)
                      : 0;
    }
    if (nvml->name != NULL && nvml->name(device, name, sizeof name) == KOLO_NVML_OK) {
        name[sizeof name - 1] = '\0';
    }
    return kolo_graph_text(g, &n->name, name) ? KOLO_OK : kolo_graph_full(g);
}

/* Add a note for each pair of GPUs between which the driver forbids peer access. */
static void check_p2p(const struct kolo_nvml *nvml, struct kolo_graph *g,
                      const kolo_nvml_device *device, int count)
{
    static const char *const why[] = {"",
                                      "the chipset does not support it",
                                      "a GPU does not support it",
                                      "they hang on different I/O hubs",
                                      "the driver's settings forbid it",
                                      "it is not supported"};
    for (int i = 0; i < count && nvml->p2p != NULL; i++) {
        for (int j = 0; j < i; j++) {
            int read = 0, write = 0;
            const bool told = device[i] != NULL && device[j] != NULL &&
                              nvml->p2p(device[j], device[i], KOLO_NVML_P2P_READ, &read) == 0 &&
                              nvml->p2p(device[j], device[i], KOLO_NVML_P2P_WRITE, &write) == 0;
            const int status = read != 0 ? read : write;
            if (told && status != 0) {
                kolo_graph_note(g, "GPUs %d and %d have no peer access: %s", j, i,
                                status > 0 && status < (int)KOLO_LENGTH(why) ? why[status]
                                                                             : "reason unknown");
            }
        }
    }
}

static kolo_status add_all(const struct kolo_nvml *nvml, struct kolo_graph *g,
                           kolo_nvml_device *device, int count, struct kolo_link_claims *claims)
{
    for (int i = 0; i < count; i++) {
        struct kolo_nvml_pci pci = {0};
        if (nvml->by_index((unsigned)i, &device[i]) != KOLO_NVML_OK ||
            nvml->pci(device[i], &pci) != KOLO_NVML_OK) {
            kolo_graph_note(g, "NVML tells nothing of its GPU %d: left out", i);
            device[i] = NULL;
            continue;
        }
        const int node = add_gpu(g, bus_of(&pci));
        if (node < 0) {
            return kolo_graph_full(g);
        }
        KOLO_TRY(describe_gpu(nvml, g, device[i], node, i));
        KOLO_TRY(add_links(nvml, g, device[i], node, claims));
    }
    return KOLO_OK;
}

kolo_status kolo_nvml_add(const struct kolo_nvml *nvml, struct kolo_graph *graph)
{
    struct kolo_link_claims claims = {0};
    unsigned count = 0;
    if (nvml->count(&count) != KOLO_NVML_OK || count > 4096) {
        kolo_graph_note(graph, "NVML cannot count its GPUs");
        return KOLO_OK;
    }
    kolo_nvml_device *device = calloc((size_t)count + 1, sizeof *device);
    if (device == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %u GPUs", count);
    }
    kolo_status st = add_all(nvml, graph, device, (int)count, &claims);
    if (st == KOLO_OK) {
        check_p2p(nvml, graph, device, (int)count);
        st = kolo_link_claims_join(graph, &claims);
    }
    free(claims.claim);
    free(device);
    return st;
}
