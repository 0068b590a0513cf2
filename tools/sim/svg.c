// SPDX-License-Identifier: Apache-2.0
/* A picture of a simulated call: how much of its time each core and each link works. Few hosts are
 * drawn one by one, below their switches. Many are cells of maps, in the order of ranks. */
#include "tools/sim/svg.h"

#include "topology/draw/canvas.h"

#include <math.h>
#include <stdio.h>

enum { FEW_HOSTS = 32, CORES_ACROSS = 8, MOST_CELLS = 4096, LEFT = 24 };

static const double CELL = 18, BAR = 60, HOST_WIDTH = 240, TITLE = 13, SMALL = 10;

struct view {
    const struct sim_sweep *sweep;
    const struct sim_row *row;
    const struct kolo_sim_use *use;
    int hosts, rails, cores; /* that are drawn; of a host */
    int per_leaf;            /* hosts of a leaf switch; 0: one switch */
    struct kolo_canvas canvas;
};

/* ---- shares ---- */

static double share_of(const struct view *v, double us)
{
    return v->row->us > 0 ? fmin(us / v->row->us, 1) : 0;
}

static double core_share(const struct view *v, int core)
{
    return core < v->use->ncores ? share_of(v, v->use->core_us[core]) : 0;
}

/* way: 0 out or up, 1 in or down */
static double link_share(const struct view *v, int link, int way)
{
    return share_of(v, v->use->link_us[2 * link + way]);
}

/* From nearly white to dark red. */
static const char *colour_of(double share, char text[8])
{
    static const double ends[3][3] = {{247, 244, 236}, {244, 165, 90}, {165, 15, 35}};
    const int half = share < 0.5 ? 0 : 1;
    const double at = 2 * share - half;
    int rgb[3];
    for (int i = 0; i < 3; i++) {
        rgb[i] = (int)lround(ends[half][i] + at * (ends[half + 1][i] - ends[half][i]));
    }
    (void)snprintf(text, 8, "#%02x%02x%02x", (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2]);
    return text;
}

static void draw_cell(struct view *v, double x, double y, double size, double share)
{
    char colour[8];
    const struct kolo_box box = {x, y, size, size, 1, colour_of(share, colour), "#bbb"};
    kolo_canvas_box(&v->canvas, &box);
}

/* A bar that is full as far as the link is used, with the percentage behind it. */
static void draw_bar(struct view *v, double x, double y, const char *name, double share)
{
    char colour[8];
    const struct kolo_point text = {x + BAR + 4, y + 10};
    const struct kolo_box room = {x, y, BAR, 12, 1, "#ffffff", "#999"};
    const struct kolo_box full = {x, y, BAR * share, 12, 1, colour_of(share, colour), "none"};
    kolo_canvas_text(&v->canvas, (struct kolo_point){x - 4, y + 10}, SMALL, KOLO_ANCHOR_END, "%s",
                     name);
    kolo_canvas_box(&v->canvas, &room);
    kolo_canvas_box(&v->canvas, &full);
    kolo_canvas_text(&v->canvas, text, SMALL, KOLO_ANCHOR_START, "%.0f %%", 100 * share);
}

static double row_of(int i, int across)
{
    const int row = i / across;
    return row;
}

/* ---- what stands above the picture ---- */

static void say_busiest(struct view *v, double y)
{
    const struct kolo_sim_use *u = v->use;
    const int nlinks = u->nnics + (v->per_leaf > 0 ? u->nleaves : 0);
    int link = 0, core = 0;
    for (int i = 0; i < 2 * nlinks; i++) {
        link = u->link_us[i] > u->link_us[link] ? i : link;
    }
    for (int i = 0; i < u->ncores; i++) {
        core = u->core_us[i] > u->core_us[core] ? i : core;
    }
    struct kolo_text text = {0};
    if (link / 2 >= u->nnics) {
        kolo_text_add(&text, "leaf switch %d %s", link / 2 - u->nnics, link % 2 ? "down" : "up");
    } else {
        kolo_text_add(&text, "NIC %d of host %d %s", link / 2 % v->rails, link / 2 / v->rails,
                      link % 2 ? "in" : "out");
    }
    kolo_canvas_text(&v->canvas, (struct kolo_point){LEFT, y}, 12, KOLO_ANCHOR_START,
                     "Busiest core: core %d of host %d, %.0f %%. Busiest link: %s, %.0f %%.",
                     core % v->cores, core / v->cores, 100 * core_share(v, core),
                     text.chars != NULL ? text.chars : "", 100 * link_share(v, link / 2, link % 2));
    kolo_text_free(&text);
}

static void draw_scale(struct view *v, double y)
{
    kolo_canvas_text(&v->canvas, (struct kolo_point){LEFT, y + 13}, 12, KOLO_ANCHOR_START,
                     "Share of the call's time in use:  0 %%");
    for (int i = 0; i <= 10; i++) {
        draw_cell(v, 260 + CELL * i, y, CELL, i / 10.0);
    }
    kolo_canvas_text(&v->canvas, (struct kolo_point){266 + CELL * 11, y + 13}, 12,
                     KOLO_ANCHOR_START, "100 %%");
}

/* Returns the y below. */
static double draw_head(struct view *v)
{
    const struct sim_row *row = v->row;
    kolo_canvas_text(&v->canvas, (struct kolo_point){LEFT, 30}, 16, KOLO_ANCHOR_START,
                     "%s of %zu bytes by %s, %d ranks: %.2f us", kolo_coll_title(v->sweep->coll),
                     row->size, kolo_algo_word(row->algo), v->sweep->nranks, row->us);
    if (row->result.simulated < v->sweep->nranks) {
        kolo_canvas_text(&v->canvas, (struct kolo_point){LEFT, 50}, 12, KOLO_ANCHOR_START,
                         "All do the same at the same time: the %d ranks below stand for all %d.",
                         row->result.simulated, v->sweep->nranks);
    } else {
        kolo_canvas_text(&v->canvas, (struct kolo_point){LEFT, 50}, 12, KOLO_ANCHOR_START,
                         "A core is in use while it computes or serves messages, a link as long as "
                         "its bytes take at its full rate.");
    }
    say_busiest(v, 68);
    draw_scale(v, 80);
    return 116;
}

/* ---- few hosts ---- */

static double host_height(const struct view *v)
{
    const int rows = (v->cores + CORES_ACROSS - 1) / CORES_ACROSS;
    return 34 + rows * (CELL + 2) + 17 * v->rails;
}

static void draw_host(struct view *v, int host, double x, double y)
{
    const struct kolo_box box = {x, y, HOST_WIDTH, host_height(v), 4, "#fafafa", "#777"};
    const double top = y + 24;
    kolo_canvas_box(&v->canvas, &box);
    kolo_canvas_text(&v->canvas, (struct kolo_point){x + 8, y + 16}, 11, KOLO_ANCHOR_START,
                     "host %d: %s, %s", host, v->cores > 1 ? "cores" : "core",
                     v->rails > 1 ? "NICs" : "NIC");
    for (int i = 0; i < v->cores && host * v->cores + i < v->use->ncores; i++) {
        draw_cell(v, x + 10 + (CELL + 2) * (i % CORES_ACROSS),
                  top + (CELL + 2) * row_of(i, CORES_ACROSS), CELL,
                  core_share(v, host * v->cores + i));
    }
    const double below = y + host_height(v) - 17 * v->rails - 4;
    for (int i = 0; i < v->rails; i++) {
        draw_bar(v, x + 28, below + 17 * i, "out", link_share(v, host * v->rails + i, 0));
        draw_bar(v, x + 142, below + 17 * i, "in", link_share(v, host * v->rails + i, 1));
    }
}

/* Hosts first .. first + count - 1 in rows; returns the y below. */
static double draw_hosts(struct view *v, int first, int count, double x, double y)
{
    const int across = count < 4 ? count : 4;
    for (int i = 0; i < count; i++) {
        draw_host(v, first + i, x + (HOST_WIDTH + 10) * (i % across),
                  y + (host_height(v) + 10) * row_of(i, across));
    }
    return y + (host_height(v) + 10) * row_of(count + across - 1, across);
}

static void draw_leaves(struct view *v, double y)
{
    for (int first = 0; first < v->hosts; first += v->per_leaf) {
        const int rest = v->hosts - first, leaf = first / v->per_leaf;
        const int count = rest < v->per_leaf ? rest : v->per_leaf;
        kolo_canvas_text(&v->canvas, (struct kolo_point){LEFT, y + 12}, TITLE, KOLO_ANCHOR_START,
                         "leaf switch %d, its uplinks:", leaf);
        draw_bar(v, LEFT + 210, y + 2, "up", link_share(v, v->use->nnics + leaf, 0));
        draw_bar(v, LEFT + 370, y + 2, "down", link_share(v, v->use->nnics + leaf, 1));
        y = draw_hosts(v, first, count, LEFT + 16, y + 24) + 12;
    }
}

/* ---- many hosts ---- */

enum map { CORE_MAP, OUT_MAP, IN_MAP, MAPS };

static double host_share(const struct view *v, int host, enum map map)
{
    const int each = map == CORE_MAP ? v->cores : v->rails;
    double most = 0;
    for (int i = host * each; i < (host + 1) * each; i++) {
        const double share = map == CORE_MAP ? core_share(v, i) : link_share(v, i, map == IN_MAP);
        most = fmax(most, share);
    }
    return most;
}

static double group_share(const struct view *v, int first, int group, enum map map)
{
    double most = 0;
    for (int host = first; host < first + group && host < v->hosts; host++) {
        most = fmax(most, host_share(v, host, map));
    }
    return most;
}

static void draw_maps(struct view *v, double y)
{
    static const char *const titles[MAPS] = {"cores", "NICs, out", "NICs, in"};
    const int group = (v->hosts + MOST_CELLS - 1) / MOST_CELLS;
    const int cells = (v->hosts + group - 1) / group;
    const bool by_leaf = group == 1 && v->per_leaf >= 8 && v->per_leaf <= 64;
    const int across = by_leaf ? v->per_leaf : cells > 1024 ? 64 : 32;
    const double size = across > 32 ? 6 : 10, wide = across * size + 40;
    kolo_canvas_text(&v->canvas, (struct kolo_point){LEFT, y}, 12, KOLO_ANCHOR_START,
                     "A cell is the busiest core or NIC of %d host%s, in the order of ranks%s. "
                     "Numbers are those of the first hosts of rows.",
                     group, group > 1 ? "s" : "", by_leaf ? ", a row for each leaf switch" : "");
    for (int map = 0; map < MAPS; map++) {
        const double x = LEFT + 50 + wide * map;
        kolo_canvas_text(&v->canvas, (struct kolo_point){x, y + 26}, TITLE, KOLO_ANCHOR_START, "%s",
                         titles[map]);
        for (int i = 0; i < cells; i++) {
            const double row_y = y + 34 + size * row_of(i, across);
            draw_cell(v, x + size * (i % across), row_y, size,
                      group_share(v, i * group, group, (enum map)map));
            if (map == CORE_MAP && i % (across * (size < 10 ? 4 : 1)) == 0) {
                kolo_canvas_text(&v->canvas, (struct kolo_point){x - 6, row_y + 8}, 9,
                                 KOLO_ANCHOR_END, "%d", i * group);
            }
        }
    }
}

void sim_svg(const struct sim_sweep *sweep, const struct sim_row *row, struct kolo_text *out)
{
    const struct kolo_sim_use *use = &row->result.use;
    const int rails = sweep->values->rails, hosts = use->nnics / rails;
    struct view v = {.sweep = sweep,
                     .row = row,
                     .use = use,
                     .hosts = hosts,
                     .rails = rails,
                     .cores = (use->ncores + hosts - 1) / hosts,
                     .per_leaf = sweep->values->hosts_per_switch};
    const double y = draw_head(&v);
    if (hosts > FEW_HOSTS) {
        draw_maps(&v, y + 4);
    } else if (v.per_leaf > 0) {
        draw_leaves(&v, y);
    } else {
        kolo_canvas_text(&v.canvas, (struct kolo_point){LEFT, y + 12}, TITLE, KOLO_ANCHOR_START,
                         hosts > 1 ? "one switch joins all hosts" : "one host");
        (void)draw_hosts(&v, 0, hosts, LEFT + 16, y + 24);
    }
    kolo_canvas_finish(&v.canvas, out);
}
