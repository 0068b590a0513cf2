// SPDX-License-Identifier: Apache-2.0
/* Log lines that tools for NCCL's log can read. Forms: rings as in NCCL 2.23 and later, trees as in
 * 2.8, connections as in 2.18. NCCL cuts its ring line at 127 characters; kolo never cuts a line.
 */
#include "topology/draw/lines.h"

#include <stdio.h>

void kolo_line_ring(struct kolo_text *out, int channel, int nchannels, int nranks, const int *order)
{
    const int width = snprintf(NULL, 0, "%d", nranks - 1);
    kolo_text_add(out, "Channel %02d/%02d :", channel, nchannels);
    for (int i = 0; i < nranks; i++) {
        kolo_text_add(out, " %*d", width, order[i]);
    }
}

void kolo_line_trees(struct kolo_text *out, int rank, int nchannels, const struct kolo_tree *trees)
{
    kolo_text_add(out, "Trees");
    for (int i = 0; i < nchannels; i++) {
        const struct kolo_tree *tree = &trees[i];
        const bool swap = tree->down[0] < 0; /* a lone child is written first */
        kolo_text_add(out, " [%d] %d/%d/%d->%d->%d", i, tree->down[swap], tree->down[!swap],
                      tree->down[2], rank, tree->up);
    }
}

void kolo_line_edge(struct kolo_text *out, const struct kolo_edge *edge)
{
    kolo_text_add(out, "Channel %02d/%01d : %d[%d] -> %d[%d] via %s", edge->channel,
                  edge->connection, edge->from, edge->from_device, edge->to, edge->to_device,
                  edge->via);
}

/* ---- groups ---- */

/* "0-3,8": the ranks of a group. */
static void add_members(struct kolo_text *out, int nranks, const int *group, int name)
{
    int first = -1;
    const char *comma = "";
    for (int r = name; r <= nranks; r++) {
        const bool in = r < nranks && group[r] == name;
        if (in && first < 0) {
            first = r;
        } else if (!in && first >= 0) {
            kolo_text_add(out, first == r - 1 ? "%s%d" : "%s%d-%d", comma, first, r - 1);
            comma = ",";
            first = -1;
        }
    }
}

void kolo_line_groups(struct kolo_text *out, int nranks, const struct kolo_groups *groups)
{
    kolo_text_add(out, "Groups :%s", groups->nlevels == 0 ? " none, all ranks are alike" : "");
    for (int l = 0; l < groups->nlevels; l++) {
        const int *group = groups->group + (size_t)l * (size_t)nranks;
        kolo_text_add(out, "%s %s", l > 0 ? "," : "", groups->name[l]);
        for (int r = 0; r < nranks; r++) {
            if (group[r] == r) {
                kolo_text_add(out, " ");
                add_members(out, nranks, group, r);
            }
        }
    }
}
