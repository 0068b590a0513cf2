// SPDX-License-Identifier: Apache-2.0
/* The machine of nvidia-smi's matrix. The row of a GPU tells its NUMA node. The row of a NIC does not:
 * a NIC is on the node of the GPUs that are near it. Below a NUMA node, two devices at PIX
 * share a switch, and at PXB a switch above. The matrix has no widths and speeds, so usual values
 * stand in. */
#include "topology/formats/read.h"
#include "topology/formats/smi.h"

#include <stdlib.h>
#include <string.h>

/* The levels above a device: NUMA node, upper switch, switch. A switch with a single device is left
 * out. */
enum { NUMA, PXB, PIX, LEVELS };
struct smi_tree {
    int *group[LEVELS]; /* [devices] named by a member; of the NUMA level ELSEWHERE: unknown */
    int *node[LEVELS];  /* of the group named i; -1 not made yet */
    int elsewhere;      /* the NUMA node of devices whose node is unknown; -1 not made yet */
    double pci_gbs;
};
enum { UNPLACED = -1, ELSEWHERE = -2 };

/* ---- groups ---- */

static bool is_told(const struct kolo_smi *m, int i)
{
    return m->numa[i] >= 0 || m->cpus[i][0] != '\0';
}

static bool share_numa(const struct kolo_smi *m, int i, int j)
{
    return m->numa[i] >= 0 ? m->numa[j] == m->numa[i]
                           : m->numa[j] < 0 && strcmp(m->cpus[i], m->cpus[j]) == 0;
}

/* The group of the placed devices that are at most `most` far from device i. ELSEWHERE: they are of
 * several groups. UNPLACED: there are none. */
static int group_near(const struct kolo_smi *m, const int *group, const bool *placed, int i,
                      int most)
{
    int found = UNPLACED;
    for (int j = 0; j < m->n; j++) {
        if (j != i && placed[j] && group[j] >= 0 && kolo_smi_near(m, i, j) <= most) {
            found = found == UNPLACED || found == group[j] ? group[j] : ELSEWHERE;
        }
    }
    return found;
}

/* Place the devices that no row places: by a shared switch, else by distance within a NUMA node.
 * Returns how many cannot be placed, because they are equally near to several NUMA nodes. */
static int place_others(const struct kolo_smi *m, int *group, bool *placed)
{
    static const int steps[] = {KOLO_SMI_PIX, KOLO_SMI_PXB, KOLO_SMI_NODE};
    int lost = 0;
    for (size_t s = 0; s < KOLO_LENGTH(steps); s++) {
        for (int i = 0; i < m->n; i++) {
            const int near = placed[i] ? UNPLACED : group_near(m, group, placed, i, steps[s]);
            if (near >= 0 || (near == ELSEWHERE && steps[s] == KOLO_SMI_NODE)) {
                group[i] = near;
                placed[i] = true;
                lost += near == ELSEWHERE;
            }
        }
    }
    for (int i = 0; i < m->n; i++) { /* nobody near is told: the first of those near each other */
        for (int j = 0; j < i && !placed[i]; j++) {
            if (kolo_smi_near(m, i, j) <= KOLO_SMI_NODE && group[j] >= 0) {
                group[i] = group[j];
                placed[i] = true;
            }
        }
        group[i] = placed[i] ? group[i] : i;
        placed[i] = true;
    }
    return lost;
}

static kolo_status group_numas(struct kolo_graph *graph, const struct kolo_smi *m, int *group)
{
    bool *placed = calloc((size_t)m->n, sizeof *placed);
    if (placed == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", m->path);
    }
    for (int i = 0; i < m->n; i++) {
        group[i] = i;
        placed[i] = is_told(m, i);
        for (int j = 0; j < i && placed[i] && group[i] == i; j++) {
            group[i] = is_told(m, j) && share_numa(m, i, j) ? group[j] : i;
        }
    }
    const int lost = place_others(m, group, placed);
    if (lost > 0) {
        kolo_graph_note(graph,
                        "%d device%s as near to one NUMA node as to another: the matrix does not "
                        "tell %s node",
                        lost, lost == 1 ? " is" : "s are", lost == 1 ? "its" : "their");
    }
    free(placed);
    return KOLO_OK;
}

/* Group the devices of one NUMA node that are at most `most` far from each other; a group is named
 * by its smallest device. NVLink may hide a distance in the matrix: a third device near both then
 * joins them. */
static void group_devices(const struct kolo_smi *m, int most, const int *numa, int *out)
{
    for (int i = 0; i < m->n; i++) {
        out[i] = i;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int j = 0; j < m->n; j++) {
            for (int i = 0; i < m->n; i++) {
                if (kolo_smi_near(m, i, j) <= most && numa[i] == numa[j] && out[i] < out[j]) {
                    out[j] = out[i];
                    changed = true;
                }
            }
        }
    }
}

/* ---- the tree ---- */

static kolo_status add_child(struct kolo_graph *graph, enum kolo_node_kind kind, int parent,
                             double gbs, int *out)
{
    *out = kolo_graph_add(graph, kind, parent);
    const struct kolo_graph_edge link = {parent, *out, KOLO_LINK_PCI, 1, gbs, true};
    return *out >= 0 && (parent < 0 || kolo_graph_join(graph, &link)) ? KOLO_OK
                                                                      : kolo_graph_full(graph);
}

static int count_members(const struct kolo_smi *m, const int *group, int name)
{
    int count = 0;
    for (int i = 0; i < m->n; i++) {
        count += group[i] == name;
    }
    return count;
}

/* Add the NUMA node of a group, with the number and the CPUs of the first row that has them. */
static kolo_status add_numa(struct kolo_graph *graph, const struct kolo_smi *m, const int *group,
                            int name, int *out)
{
    KOLO_TRY(add_child(graph, KOLO_NODE_NUMA, -1, 0, out));
    for (int i = 0; i < m->n; i++) {
        struct kolo_node *numa = &graph->node[*out];
        if (group[i] == name) {
            numa->number = numa->number < 0 ? m->numa[i] : numa->number;
            if (numa->cpus == NULL && !kolo_graph_text(graph, &numa->cpus, m->cpus[i])) {
                return kolo_graph_full(graph);
            }
        }
    }
    return KOLO_OK;
}

static kolo_status find_numa(struct kolo_graph *graph, const struct kolo_smi *m,
                             struct smi_tree *tree, int i, int *out)
{
    const int name = tree->group[NUMA][i];
    int *node = name >= 0 ? &tree->node[NUMA][name] : &tree->elsewhere;
    const kolo_status st = *node >= 0 ? KOLO_OK
                           : name < 0 ? add_child(graph, KOLO_NODE_NUMA, -1, 0, node)
                                      : add_numa(graph, m, tree->group[NUMA], name, node);
    *out = *node;
    return st;
}

static kolo_status place_device(struct kolo_graph *graph, const struct kolo_smi *m,
                                struct smi_tree *tree, int i, int *out)
{
    int parent = -1;
    KOLO_TRY(find_numa(graph, m, tree, i, &parent));
    for (int level = PXB; level < LEVELS; level++) {
        const int name = tree->group[level][i],
                  members = count_members(m, tree->group[level], name);
        const int above = count_members(m, tree->group[PXB], tree->group[PXB][i]);
        if (members < 2 || (level == PIX && members == above)) {
            continue;
        }
        if (tree->node[level][name] < 0) {
            KOLO_TRY(add_child(graph, KOLO_NODE_SWITCH, parent, tree->pci_gbs,
                               &tree->node[level][name]));
        }
        parent = tree->node[level][name];
    }
    return add_child(graph, kolo_smi_is_gpu(m->name[i]) ? KOLO_NODE_GPU : KOLO_NODE_NIC, parent,
                     tree->pci_gbs, out);
}

static kolo_status build_tree(struct kolo_graph *graph, const struct kolo_smi *m,
                              struct smi_tree *tree, int *node)
{
    KOLO_TRY(group_numas(graph, m, tree->group[NUMA]));
    group_devices(m, KOLO_SMI_PXB, tree->group[NUMA], tree->group[PXB]);
    group_devices(m, KOLO_SMI_PIX, tree->group[NUMA], tree->group[PIX]);
    for (int i = 0; i < m->n; i++) {
        long number = 0;
        KOLO_TRY(place_device(graph, m, tree, i, &node[i]));
        struct kolo_node *n = &graph->node[node[i]];
        if (kolo_smi_is_gpu(m->name[i]) && kolo_parse_int(m->name[i] + 3, 0, 1 << 20, &number)) {
            n->number = (int)number;
        } else if (!kolo_graph_text(graph, &n->name, m->name[i])) {
            return kolo_graph_full(graph);
        }
    }
    return KOLO_OK;
}

/* ---- NVLink ---- */

static int most_links(const struct kolo_smi *m)
{
    int most = 0;
    for (int i = 0; i < m->n * m->n; i++) {
        most = m->links[i] > most ? m->links[i] : most;
    }
    return most;
}

/* nvidia-smi does not tell whether NV12 leads to the other GPU or to a switch. It is a switch if a
 * GPU's links to all others add up to more than any GPU has. */
static bool has_nvswitch(const struct kolo_smi *m)
{
    int gpus = 0, pairs = 0;
    for (int i = 0; i < m->n; i++) {
        gpus += kolo_smi_is_gpu(m->name[i]);
        for (int j = 0; j < m->n; j++) {
            pairs += kolo_smi_links(m, i, j) > 0;
        }
    }
    return gpus > 2 && pairs == gpus * (gpus - 1) && most_links(m) * (gpus - 1) > 18;
}

/* The compute capability that the NVLinks of a GPU tell: more than 12 came with Hopper, more than 6
 * with Ampere. 0: unknown. */
static int arch_of(const struct kolo_smi *m)
{
    int most = most_links(m);
    const bool switched = has_nvswitch(m);
    for (int i = 0; i < m->n && !switched; i++) {
        int links = 0;
        for (int j = 0; j < m->n; j++) {
            links += kolo_smi_links(m, i, j);
        }
        most = links > most ? links : most;
    }
    return most > 12 ? 90 : most > 6 ? 80 : 0;
}

static kolo_status add_link(struct kolo_graph *graph, int a, int b, int count, double each)
{
    const struct kolo_graph_edge link = {a, b, KOLO_LINK_NVLINK, count, count * each, true};
    return kolo_graph_join(graph, &link) ? KOLO_OK : kolo_graph_full(graph);
}

static kolo_status add_links(struct kolo_graph *graph, const struct kolo_smi *m, const int *node)
{
    const bool switched = has_nvswitch(m);
    const double each = kolo_nvlink_gbs(arch_of(m));
    const int nvswitch = switched ? kolo_graph_nvswitch(graph) : -1;
    if (switched && nvswitch < 0) {
        return kolo_graph_full(graph);
    }
    for (int i = 0; i < m->n; i++) {
        int most = 0;
        for (int j = 0; j < m->n; j++) {
            const int count = kolo_smi_links(m, i, j);
            most = count > most ? count : most;
            if (!switched && j > i && count > 0) {
                KOLO_TRY(add_link(graph, node[i], node[j], count, each));
            }
        }
        if (switched && most > 0) {
            KOLO_TRY(add_link(graph, node[i], nvswitch, most, each));
        }
    }
    return KOLO_OK;
}

/* ---- notes ---- */

static void add_notes(struct kolo_graph *graph, const struct kolo_smi *m, double pci_gbs)
{
    const int links = most_links(m), arch = arch_of(m);
    int unknown = 0;
    for (int i = 0; i < m->n; i++) {
        for (int j = 0; j < i; j++) {
            unknown += kolo_smi_near(m, i, j) == KOLO_SMI_CUT;
        }
    }
    if (m->short_rows > 0) {
        kolo_graph_note(graph, "the matrix is cut: %d row%s from %.40s on %s not whole",
                        m->short_rows, m->short_rows == 1 ? "" : "s", m->name[m->first_short],
                        m->short_rows == 1 ? "is" : "are");
    }
    if (unknown > 0) {
        kolo_graph_note(graph, "the matrix is cut: how %d pair%s of NICs are joined is unknown",
                        unknown, unknown == 1 ? "" : "s");
    }
    if (m->unequal > 0) {
        kolo_graph_note(graph,
                        "%d pair%s of GPUs count their NVLinks differently: the smaller number is "
                        "taken",
                        m->unequal, m->unequal == 1 ? "" : "s");
    }
    if (links > 0) {
        kolo_graph_note(graph,
                        "the matrix tells no speeds: an NVLink is taken as %.3g GB/s%s, PCI as "
                        "%.3g GB/s",
                        kolo_nvlink_gbs(arch),
                        arch == 90 ? " (Hopper; --nvlink 40.1 for Blackwell)" : "", pci_gbs);
    } else {
        kolo_graph_note(graph, "the matrix tells no speeds: PCI is taken as %.3g GB/s", pci_gbs);
    }
}

static kolo_status build(struct kolo_graph *graph, const struct kolo_smi *m)
{
    const size_t n = (size_t)m->n;
    struct smi_tree tree = {.elsewhere = -1, .pci_gbs = kolo_pci_gbs_usual(arch_of(m))};
    int *ints = malloc((2 * LEVELS + 1) * n * sizeof *ints);
    if (ints == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", m->path);
    }
    for (size_t level = 0; level < LEVELS; level++) {
        tree.group[level] = ints + level * n;
        tree.node[level] = ints + (LEVELS + level) * n;
    }
    memset(ints + LEVELS * n, 0xff, LEVELS * n * sizeof *ints);
    int *node = ints + 2 * LEVELS * n;
    kolo_status st = build_tree(graph, m, &tree, node);
    if (st == KOLO_OK) {
        st = add_links(graph, m, node);
    }
    add_notes(graph, m, tree.pci_gbs);
    free(ints);
    return st;
}

kolo_status kolo_read_smi(const struct kolo_xml_source *source, struct kolo_graph *graph)
{
    struct kolo_smi m;
    kolo_status st = kolo_smi_read(source, &m);
    if (st == KOLO_OK) {
        st = build(graph, &m);
    }
    kolo_smi_free(&m);
    return st;
}
