// SPDX-License-Identifier: Apache-2.0
/* The matrix that `nvidia-smi topo -m` prints. Each GPU and NIC has a row and a column. A cell
 * tells how two devices are joined. A row ends with its CPUs and its NUMA node.
 *
 *         GPU0  GPU1  mlx5_0  CPU Affinity  NUMA Affinity
 *   GPU0   X    NV2   PIX     0-19,40-59    0
 *
 * Two devices at PIX share a switch, at PXB a switch above, at PHB and NODE a NUMA node, and at SYS
 * only the machine. The tree is made from these classes, the nearest first. The matrix has no
 * widths and speeds, so usual values stand in. */
#include "topology/formats/read.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 512, CELL = 48 };

enum near { NEAR_SELF, NEAR_PIX, NEAR_PXB, NEAR_NODE, NEAR_SYS, NEAR_UNKNOWN };

struct matrix {
    const char *path;
    int ndevices, line;
    char (*name)[CELL];
    char (*cpus)[CELL]; /* of the row; "" unknown */
    int *numa;          /* of the row; -1 unknown */
    unsigned char *near;
    unsigned char *links; /* NV# */
};

static kolo_status fail_line(const struct matrix *m, const char *what, const char *text)
{
    return kolo_fail(KOLO_ERR_INVALID, "%s:%d: %s: \"%.40s\"", m->path, m->line, what, text);
}

/* Copy the next word of a line to `out`. Blanks and tabs separate words. NULL: the line is at its
 * end. Escape sequences for underlining are left out. */
static const char *next_word(const char *at, char out[CELL])
{
    size_t len = 0;
    for (;;) {
        at += strspn(at, " \t\r");
        if (*at != '\033') {
            break;
        }
        while (*at != '\0' && *at != '\n' && !isalpha((unsigned char)*at)) {
            at++;
        }
        at += isalpha((unsigned char)*at) != 0;
    }
    if (*at == '\0' || *at == '\n') {
        return NULL;
    }
    while (*at != '\0' && strchr(" \t\r\n\033", *at) == NULL) {
        if (len + 1 < CELL) {
            out[len++] = *at;
        }
        at++;
    }
    out[len] = '\0';
    return at;
}

/* Count the devices in the header. "CPU Affinity", the columns behind it, and "GPU NUMA ID" are not
 * devices. */
static int count_devices(const char *header)
{
    char word[CELL], next[CELL];
    int count = 0;
    for (const char *at = header; (at = next_word(at, word)) != NULL; count++) {
        if (strcmp(word, "CPU") == 0 || strcmp(word, "NUMA") == 0 ||
            (strcmp(word, "GPU") == 0 && next_word(at, next) != NULL)) {
            break;
        }
    }
    return count;
}

static bool parse_cell(const char *text, unsigned char *near, unsigned char *links)
{
    static const struct {
        const char *name;
        enum near near;
    } names[] = {{"X", NEAR_SELF},    {"PIX", NEAR_PIX},     {"PXB", NEAR_PXB},
                 {"PHB", NEAR_NODE},  {"NODE", NEAR_NODE},   {"SYS", NEAR_SYS},
                 {"SOC", NEAR_SYS},   {"N/A", NEAR_UNKNOWN}, {"ERR!", NEAR_UNKNOWN},
                 {"OK", NEAR_UNKNOWN}};
    long count = 0;
    for (size_t i = 0; i < KOLO_LENGTH(names); i++) {
        if (strcmp(text, names[i].name) == 0) {
            *near = (unsigned char)names[i].near;
            *links = 0;
            return true;
        }
    }
    if (strncmp(text, "NV", 2) != 0 || !kolo_parse_int(text + 2, 1, 255, &count)) {
        return false;
    }
    *near = NEAR_UNKNOWN; /* the cell shows NVLink instead of the PCI distance */
    *links = (unsigned char)count;
    return true;
}

static kolo_status parse_row(struct matrix *m, int row, const char *line)
{
    char word[CELL];
    long numa = -1;
    const size_t n = (size_t)m->ndevices;
    const char *at = next_word(line, word);
    if (at == NULL || strcmp(word, m->name[row]) != 0) {
        return fail_line(m, "not the row of the device that the header names", m->name[row]);
    }
    for (size_t column = 0; column < n; column++) {
        at = next_word(at, word);
        const size_t cell = (size_t)row * n + column;
        if (at == NULL || !parse_cell(word, &m->near[cell], &m->links[cell])) {
            return fail_line(m, "a cell is none of X NV# PIX PXB PHB NODE SYS",
                             at == NULL ? "" : word);
        }
    }
    if ((at = next_word(at, word)) != NULL) {
        memcpy(m->cpus[row], word, CELL);
        at = next_word(at, word);
    }
    m->numa[row] = at != NULL && kolo_parse_int(word, 0, 1 << 20, &numa) ? (int)numa : -1;
    return KOLO_OK;
}

/* The beginning of the next line; the end of the text if there is none. */
static const char *next_line(const char *at)
{
    at += strcspn(at, "\n");
    return *at == '\n' ? at + 1 : at;
}

static kolo_status parse_header(struct matrix *m, const char *header)
{
    const int count = count_devices(header);
    const size_t n = (size_t)count;
    if (count < 1 || count > DEVICES_MAX) {
        return kolo_fail(KOLO_ERR_INVALID, "%s:%d: a matrix of %d devices; 1 to %d are read",
                         m->path, m->line, count, DEVICES_MAX);
    }
    m->ndevices = count;
    m->name = calloc(n, sizeof *m->name);
    m->cpus = calloc(n, sizeof *m->cpus);
    m->numa = calloc(n, sizeof *m->numa);
    m->near = calloc(n * n, 1);
    m->links = calloc(n * n, 1);
    if (m->name == NULL || m->cpus == NULL || m->numa == NULL || m->near == NULL ||
        m->links == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", m->path);
    }
    const char *at = header;
    for (int i = 0; i < count; i++) {
        at = next_word(at, m->name[i]);
    }
    return KOLO_OK;
}

static kolo_status parse_matrix(struct matrix *m, const char *text)
{
    char word[CELL];
    const char *line = text;
    for (m->line = 1; *line != '\0'; line = next_line(line), m->line++) {
        if (next_word(line, word) != NULL && strcmp(word, "GPU0") == 0) {
            break;
        }
    }
    KOLO_TRY(parse_header(m, line));
    for (int row = 0; row < m->ndevices; row++) {
        line = next_line(line);
        m->line++;
        KOLO_TRY(parse_row(m, row, line));
    }
    return KOLO_OK;
}

/* Lines like "  NIC0: mlx5_0" below the matrix give the names of the header's NICs. */
static void rename_nics(struct matrix *m, const char *text)
{
    char word[CELL], name[CELL];
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        const char *at = next_word(line, word);
        const size_t len = at != NULL ? strlen(word) : 0;
        if (len < 5 || strncmp(word, "NIC", 3) != 0 || word[len - 1] != ':' ||
            next_word(at, name) == NULL) {
            continue;
        }
        word[len - 1] = '\0';
        for (int i = 0; i < m->ndevices; i++) {
            if (strcmp(m->name[i], word) == 0) {
                memcpy(m->name[i], name, CELL);
            }
        }
    }
}

/* ---- the tree ---- */

static bool is_gpu(const char *name)
{
    return strncmp(name, "GPU", 3) == 0 && isdigit((unsigned char)name[3]);
}

/* Give device j the smallest group of the devices that are at most `most` far. True: it changed. */
static bool join_nearest(const struct matrix *m, enum near most, int j, int *out)
{
    const int n = m->ndevices, old = out[j];
    for (int i = 0; i < n; i++) {
        if (m->near[(size_t)i * (size_t)n + (size_t)j] <= (unsigned char)most && out[i] < out[j]) {
            out[j] = out[i];
        }
    }
    return out[j] != old;
}

/* Group the devices that are at most `most` far from each other; a group is named by its smallest
 * device. NVLink may hide a distance in the matrix: a third device near both then joins them. */
static void group_devices(const struct matrix *m, enum near most, int *out)
{
    for (int i = 0; i < m->ndevices; i++) {
        out[i] = i;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int j = 0; j < m->ndevices; j++) {
            changed = join_nearest(m, most, j, out) || changed;
        }
    }
}

static bool share_numa(const struct matrix *m, int i, int j)
{
    return m->numa[i] >= 0 ? m->numa[j] == m->numa[i]
                           : m->cpus[i][0] != '\0' && strcmp(m->cpus[i], m->cpus[j]) == 0;
}

/* Merge two groups under the smaller name. */
static void merge_groups(int n, int *out, int a, int b)
{
    const int from = a > b ? a : b, to = a > b ? b : a;
    for (int k = 0; k < n; k++) {
        out[k] = out[k] == from ? to : out[k];
    }
}

/* Group the devices of one NUMA node: by its number, else by its CPUs, else by distance. */
static void group_numas(const struct matrix *m, int *out)
{
    group_devices(m, NEAR_NODE, out);
    for (int i = 0; i < m->ndevices; i++) {
        for (int j = 0; j < i; j++) {
            if (share_numa(m, i, j)) {
                merge_groups(m->ndevices, out, out[i], out[j]);
            }
        }
    }
}

static kolo_status add_child(struct kolo_graph *graph, enum kolo_node_kind kind, int parent,
                             int *out)
{
    *out = kolo_graph_add(graph, kind, parent);
    const struct kolo_graph_edge link = {parent, *out, KOLO_LINK_PCI, 1, kolo_pci_gbs_usual(),
                                         true};
    return *out >= 0 && (parent < 0 || kolo_graph_join(graph, &link)) ? KOLO_OK
                                                                      : kolo_graph_full(graph);
}

/* The levels above a device: NUMA node, upper switch, switch. A switch with a single device is left
 * out. */
struct smi_tree {
    int *group[3]; /* NUMA, PXB, PIX */
    int *node[3];  /* of the group named i; -1 not made yet */
};

static int count_members(const struct matrix *m, const int *group, int name)
{
    int count = 0;
    for (int i = 0; i < m->ndevices; i++) {
        count += group[i] == name;
    }
    return count;
}

static kolo_status place_device(struct kolo_graph *graph, const struct matrix *m,
                                const struct smi_tree *tree, int i, int *out)
{
    int parent = -1;
    for (int level = 0; level < 3; level++) {
        const int name = tree->group[level][i];
        const bool needed =
            level == 0 || (count_members(m, tree->group[level], name) > 1 &&
                           !(level == 2 && count_members(m, tree->group[1], tree->group[1][i]) ==
                                               count_members(m, tree->group[2], name)));
        if (needed && tree->node[level][name] < 0) {
            KOLO_TRY(add_child(graph, level == 0 ? KOLO_NODE_NUMA : KOLO_NODE_SWITCH, parent,
                               &tree->node[level][name]));
            if (level == 0) {
                struct kolo_node *numa = &graph->node[tree->node[level][name]];
                numa->number = m->numa[i];
                (void)kolo_graph_text(graph, &numa->cpus, m->cpus[i]);
            }
        }
        parent = needed ? tree->node[level][name] : parent;
    }
    return add_child(graph, is_gpu(m->name[i]) ? KOLO_NODE_GPU : KOLO_NODE_NIC, parent, out);
}

/* nvidia-smi does not tell whether NV12 leads to the other GPU or to a switch. It is a switch if a
 * GPU's links to all others add up to more than any GPU has. */
static bool has_nvswitch(const struct matrix *m)
{
    int gpus = 0, pairs = 0, most = 0;
    for (int i = 0; i < m->ndevices; i++) {
        gpus += is_gpu(m->name[i]);
        for (int j = 0; j < m->ndevices; j++) {
            const int links = m->links[(size_t)i * (size_t)m->ndevices + (size_t)j];
            pairs += links > 0;
            most = links > most ? links : most;
        }
    }
    return gpus > 2 && pairs == gpus * (gpus - 1) && most * (gpus - 1) > 18;
}

static kolo_status add_link(struct kolo_graph *graph, int a, int b, int count)
{
    const struct kolo_graph_edge link = {
        a, b, KOLO_LINK_NVLINK, count, count * kolo_nvlink_gbs(0), true};
    return kolo_graph_join(graph, &link) ? KOLO_OK : kolo_graph_full(graph);
}

static kolo_status add_links(struct kolo_graph *graph, const struct matrix *m, const int *node)
{
    const size_t n = (size_t)m->ndevices;
    const bool switched = has_nvswitch(m);
    const int nvswitch = switched ? kolo_graph_nvswitch(graph) : -1;
    if (switched && nvswitch < 0) {
        return kolo_graph_full(graph);
    }
    for (size_t i = 0; i < n; i++) {
        int most = 0;
        for (size_t j = 0; j < n; j++) {
            const int count = m->links[i * n + j];
            most = count > most ? count : most;
            if (!switched && j > i && count > 0) {
                KOLO_TRY(add_link(graph, node[i], node[j], count));
            }
        }
        if (switched && most > 0) {
            KOLO_TRY(add_link(graph, node[i], nvswitch, most));
        }
    }
    return KOLO_OK;
}

static kolo_status build_tree(struct kolo_graph *graph, const struct matrix *m,
                              const struct smi_tree *tree, int *node)
{
    group_numas(m, tree->group[0]);
    group_devices(m, NEAR_PXB, tree->group[1]);
    group_devices(m, NEAR_PIX, tree->group[2]);
    for (int i = 0; i < m->ndevices; i++) {
        long number = 0;
        KOLO_TRY(place_device(graph, m, tree, i, &node[i]));
        struct kolo_node *n = &graph->node[node[i]];
        if (is_gpu(m->name[i]) && kolo_parse_int(m->name[i] + 3, 0, 1 << 20, &number)) {
            n->number = (int)number;
        } else if (!kolo_graph_text(graph, &n->name, m->name[i])) {
            return kolo_graph_full(graph);
        }
    }
    return add_links(graph, m, node);
}

static void free_matrix(struct matrix *m)
{
    free(m->name);
    free(m->cpus);
    free(m->numa);
    free(m->near);
    free(m->links);
}

kolo_status kolo_read_smi(const struct kolo_xml_source *source, struct kolo_graph *graph)
{
    struct matrix m = {.path = source->path};
    struct smi_tree tree;
    kolo_status st = parse_matrix(&m, source->bytes);
    const size_t n = (size_t)m.ndevices;
    int *ints = st == KOLO_OK ? malloc(7 * n * sizeof *ints) : NULL;
    if (st == KOLO_OK && ints == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", source->path);
    }
    if (st == KOLO_OK) {
        rename_nics(&m, source->bytes);
        for (size_t level = 0; level < 3; level++) {
            tree.group[level] = ints + level * n;
            tree.node[level] = ints + (3 + level) * n;
        }
        memset(ints + 3 * n, 0xff, 3 * n * sizeof *ints);
        st = build_tree(graph, &m, &tree, ints + 6 * n);
        kolo_graph_note(graph,
                        "the matrix tells no speeds: NVLinks are taken as %.3g GB/s each, "
                        "PCI as %.3g GB/s",
                        kolo_nvlink_gbs(0), kolo_pci_gbs_usual());
    }
    free(ints);
    free_matrix(&m);
    return st;
}
