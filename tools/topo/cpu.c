// SPDX-License-Identifier: Apache-2.0
/* `kolo topo` for a machine's CPUs. Rank i is on PU i (mod the number of PUs). The ring, the groups
 * and both trees are shown as log lines in NCCL's form and as small drawings, or as SVG. */
#include "tools/topo/parts.h"
#include "topology/draw/draw.h"
#include "topology/draw/lines.h"
#include "topology/layout/groups.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_DRAWN = 64, CHANNELS = 2 };

static void plan_layout(const struct kolo_host *host, int nranks, struct kolo_place *place,
                        int *order)
{
    for (int rank = 0; rank < nranks; rank++) {
        const int cpu = kolo_host_pu_os(host, rank % kolo_host_pus(host));
        place[rank] = kolo_host_place(host, cpu);
    }
    kolo_order_ranks(nranks, NULL, place, order);
}

/* Print the groups; nothing if out of memory. */
static void print_groups(const struct kolo_layout *layout, struct kolo_text *out)
{
    struct kolo_groups groups;
    if (kolo_groups_make(layout->nranks, NULL, layout->place, &groups) == KOLO_OK) {
        kolo_line_groups(out, layout->nranks, &groups);
        kolo_text_add(out, "\n");
        kolo_groups_free(&groups);
    }
}

static void print_lines(const struct kolo_layout *layout, struct kolo_text *out)
{
    for (int channel = 0; channel < CHANNELS; channel++) {
        kolo_line_ring(out, channel, CHANNELS, layout->nranks, layout->order);
        kolo_text_add(out, "\n");
    }
    print_groups(layout, out);
    for (int rank = 0; rank < layout->nranks; rank++) {
        struct kolo_tree trees[CHANNELS];
        for (int which = 0; which < CHANNELS; which++) {
            kolo_tree_build(layout->nranks, layout->order, which, rank, &trees[which]);
        }
        kolo_line_trees(out, rank, CHANNELS, trees);
        kolo_text_add(out, "\n");
    }
}

static void print_drawings(const struct kolo_layout *layout, struct kolo_text *out)
{
    kolo_text_add(out, "\nring; ( ) share an L3, | next package:\n");
    kolo_draw_ring(layout, out);
    for (int which = 0; which < CHANNELS && layout->nranks <= MAX_DRAWN; which++) {
        kolo_text_add(out, "\ntree %d:\n", which);
        kolo_draw_tree(layout, which, out);
    }
}

static void show_layout(const struct kolo_host *host, const struct kolo_layout *layout,
                        struct kolo_text *text, struct kolo_text *svg)
{
    if (text != NULL) {
        kolo_host_print(host, text);
        kolo_text_add(text, "\n");
        print_lines(layout, text);
        print_drawings(layout, text);
    }
    if (svg != NULL) {
        kolo_draw_svg(layout, svg);
    }
}

bool kolo_topo_cpus(const struct kolo_host *host, int ranks, struct kolo_text *text,
                    struct kolo_text *svg)
{
    const int nranks = ranks > 0 ? ranks : kolo_host_pus(host);
    struct kolo_place *place = calloc((size_t)nranks, sizeof *place);
    int *order = calloc((size_t)nranks, sizeof *order);
    const bool fits = place != NULL && order != NULL;
    if (fits) {
        plan_layout(host, nranks, place, order);
        show_layout(host, &(struct kolo_layout){nranks, order, NULL, place}, text, svg);
    } else {
        (void)fprintf(stderr, "kolo topo: no memory for %d ranks\n", nranks);
    }
    free(order);
    free(place);
    return fits;
}
