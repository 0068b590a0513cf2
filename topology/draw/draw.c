// SPDX-License-Identifier: Apache-2.0
/* Drawings for a terminal. The ring is one line, and its punctuation shows the machine:
 *     (0 1) (2 3) | (4 5) (6 7)
 * A tree is drawn in preorder, as a file manager draws folders. The walk keeps only the path from
 * the root, because each node knows its parent. */
#include "topology/draw/draw.h"

enum { MAX_DEPTH = 40 }; /* floor(log2(INT_MAX)) = 30 */

static int host_at(const struct kolo_layout *layout, int position)
{
    return layout->host_of != NULL ? layout->host_of[layout->order[position]] : 0;
}

static struct kolo_place place_at(const struct kolo_layout *layout, int position)
{
    return layout->place != NULL ? layout->place[layout->order[position]] : kolo_place_unknown();
}

/* The separator between a position and the previous one. */
static const char *separator_before(const struct kolo_layout *layout, int position)
{
    if (position == 0) {
        return "";
    }
    if (host_at(layout, position - 1) != host_at(layout, position)) {
        return " || ";
    }
    const struct kolo_place before = place_at(layout, position - 1);
    return before.package != place_at(layout, position).package ? " | " : " ";
}

static bool shares_l3(const struct kolo_layout *layout, int a, int b)
{
    if (a < 0 || b >= layout->nranks || host_at(layout, a) != host_at(layout, b)) {
        return false;
    }
    return place_at(layout, a).l3 == place_at(layout, b).l3;
}

void kolo_draw_ring(const struct kolo_layout *layout, struct kolo_text *out)
{
    for (int i = 0; i < layout->nranks; i++) {
        const bool grouped = place_at(layout, i).l3 >= 0;
        const bool opens = grouped && !shares_l3(layout, i - 1, i);
        const bool closes = grouped && !shares_l3(layout, i, i + 1);
        kolo_text_add(out, "%s%s%d%s", separator_before(layout, i), opens ? "(" : "",
                      layout->order[i], closes ? ")" : "");
    }
    kolo_text_add(out, "\n");
}

static int first_child(const struct kolo_tree *tree)
{
    return tree->down[0] >= 0 ? tree->down[0] : tree->down[1];
}

static bool has_two(const struct kolo_tree *tree)
{
    return tree->down[0] >= 0 && tree->down[1] >= 0;
}

/* last[d]: the path's node at depth d has no sibling left to draw. */
static void add_branch(struct kolo_text *out, const bool *last, int depth, int rank)
{
    for (int d = 1; d < depth; d++) {
        kolo_text_add(out, "%s", last[d] ? "   " : "|  ");
    }
    if (depth > 0) {
        kolo_text_add(out, "%s", last[depth] ? "`- " : "|- ");
    }
    kolo_text_add(out, "%d\n", rank);
}

void kolo_draw_tree(const struct kolo_layout *layout, int which, struct kolo_text *out)
{
    const int n = layout->nranks;
    bool last[MAX_DEPTH] = {true};
    int depth = 0;
    int position = 0;
    while (kolo_tree_at(n, which, position).up >= 0) {
        position = kolo_tree_at(n, which, position).up;
    }
    for (;;) {
        struct kolo_tree tree = kolo_tree_at(n, which, position);
        add_branch(out, last, depth, layout->order[position]);
        if (first_child(&tree) >= 0) {
            position = first_child(&tree);
            last[++depth] = !has_two(&tree);
            continue;
        }
        while (depth > 0 && last[depth]) {
            position = tree.up;
            tree = kolo_tree_at(n, which, position);
            depth--;
        }
        if (depth == 0) {
            return;
        }
        position = kolo_tree_at(n, which, tree.up).down[1];
        last[depth] = true;
    }
}
