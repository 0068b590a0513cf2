// SPDX-License-Identifier: Apache-2.0
/* The search for rings: ring after ring, GPU after GPU, depth first. It keeps the capacity that is
 * left on every link. Two rules cut most of the search tree:
 * - A GPU must keep enough direct capacity, out and in, for the rings still to come.
 * - Each GPU that the ring has not visited must be reachable from another unvisited GPU, and lead
 *   to one. The ends of the ring count as such GPUs.
 *
 * Cycles begin at GPU 0, and their second GPUs are in order. So the search meets no set of rings
 * twice. */
#include "topology/layout/pack.h"

#include <stdlib.h>
#include <string.h>

static const double slack = 1e-6;

struct pack_state {
    struct kolo_pack *p;
    int n, rings;        /* rings to find: half of them if mirrored */
    double *left;        /* [arcs] */
    int *path;           /* [rings * n] */
    int *choice;         /* [rings * n * n] candidates of each place */
    int *count, *next;   /* [rings * n] */
    unsigned char *seen; /* [n] visited by the ring under construction */
    unsigned random;
};

static const struct kolo_route *route_of(const struct pack_state *s, int i, int j)
{
    return &s->p->fabric->route[i * s->n + j];
}

static bool route_fits(const struct pack_state *s, int i, int j)
{
    const struct kolo_route *r = route_of(s, i, j);
    if (r->count == 0 || (s->p->direct && r->path != KOLO_PATH_NVL)) {
        return false;
    }
    for (int k = 0; k < r->count; k++) {
        const int arc = s->p->fabric->arc[r->first + k];
        const double need = s->p->rate_gbs * (1 - slack);
        if (s->left[arc] < need || (s->p->mirrored && s->left[arc ^ 1] < need)) {
            return false;
        }
    }
    return true;
}

static void use_route(struct pack_state *s, int i, int j, double sign)
{
    const struct kolo_route *r = route_of(s, i, j);
    for (int k = 0; k < r->count; k++) {
        const int arc = s->p->fabric->arc[r->first + k];
        s->left[arc] -= sign * s->p->rate_gbs;
        if (s->p->mirrored) {
            s->left[arc ^ 1] -= sign * s->p->rate_gbs;
        }
    }
}

/* Number of rings that could still leave (`out`) or enter GPU i over direct links. */
static int lanes_left(const struct pack_state *s, int i, bool out)
{
    int lanes = 0;
    for (int j = 0; j < s->n; j++) {
        const struct kolo_route *r = out ? route_of(s, i, j) : route_of(s, j, i);
        if (i != j && r->path == KOLO_PATH_NVL && r->count == 1) {
            const double left = s->left[s->p->fabric->arc[r->first]];
            lanes += (int)(left / s->p->rate_gbs + slack);
        }
    }
    return lanes;
}

/* Whether GPU i (just left) and GPU j (just entered) keep enough capacity for the rings to come. */
static bool keeps_enough(const struct pack_state *s, int ring, int i, int j)
{
    const int each = s->p->mirrored ? 2 : 1;
    const int more = each * (s->rings - 1 - ring);
    if (!s->p->direct || s->p->fabric->switched || s->p->entry != NULL) {
        return true;
    }
    if (!s->p->mirrored) {
        return lanes_left(s, i, true) >= more && lanes_left(s, j, false) >= more;
    }
    /* the ring still has to leave j, by a lane in each direction */
    return lanes_left(s, i, true) >= more && lanes_left(s, j, true) >= more + 1;
}

static int end_of(const struct pack_state *s, int ring)
{
    return s->p->exit != NULL ? s->p->exit[ring] : s->path[ring * s->n];
}

static bool is_open(const struct pack_state *s, int ring, int at)
{
    const int end = end_of(s, ring);
    for (int v = 0; v < s->n && s->p->direct; v++) {
        bool in = false, out = false;
        if (s->seen[v] != 0) {
            continue;
        }
        for (int w = 0; w < s->n && !(in && out); w++) {
            in = in || (w != v && (w == at || s->seen[w] == 0) && route_fits(s, w, v));
            out = out || (w != v && (w == end || s->seen[w] == 0) && route_fits(s, v, w));
        }
        if (!in || (!out && v != end)) {
            return false;
        }
    }
    return true;
}

static unsigned next_random(struct pack_state *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 17;
    s->random ^= s->random << 5;
    return s->random;
}

/* The rank of a candidate; the smallest is tried first. Near comes before far, then the direct link
 * with most capacity left, then chance (with a seed), then the order of GPUs. */
static double rank_of(struct pack_state *s, int i, int j)
{
    const struct kolo_route *r = route_of(s, i, j);
    const double left = r->count == 1 ? s->left[s->p->fabric->arc[r->first]] / s->p->rate_gbs : 0;
    const double noise = s->p->seed != 0 ? (double)(next_random(s) % 1024) / 256 : 0;
    const int away = (j - i + s->n) % s->n;
    return 1e6 * (double)r->path + 1e4 * (double)r->count - 10 * (left < 100 ? left : 100) +
           10 * noise + 1e-3 * away;
}

static void list_choices(struct pack_state *s, int place)
{
    const int ring = place / s->n, at = s->path[place];
    const int end = s->p->exit != NULL ? s->p->exit[ring] : -1;
    const bool last = place % s->n == s->n - 2;
    int *choice = s->choice + (size_t)place * (size_t)s->n;
    double key[KOLO_FABRIC_GPUS_MAX];
    int count = 0;
    for (int j = 0; j < s->n; j++) {
        if (s->seen[j] != 0 || (j == end) != (last && end >= 0) || !route_fits(s, at, j)) {
            continue;
        }
        const double k = rank_of(s, at, j);
        int i = count++;
        for (; i > 0 && key[i - 1] > k; i--) {
            key[i] = key[i - 1];
            choice[i] = choice[i - 1];
        }
        key[i] = k;
        choice[i] = j;
    }
    s->count[place] = count;
    s->next[place] = 0;
}

static void begin_ring(struct pack_state *s, int ring)
{
    const int first = s->p->entry != NULL ? s->p->entry[ring] : 0;
    memset(s->seen, 0, (size_t)s->n);
    s->path[ring * s->n] = first;
    s->seen[first] = 1;
    list_choices(s, ring * s->n);
}

/* Whether the ring that ends at `place` can close, or leave the host there. */
static bool ring_closes(struct pack_state *s, int place)
{
    const int ring = place / s->n, first = s->path[ring * s->n], last = s->path[place];
    if (s->p->entry != NULL || s->n == 1) {
        return true;
    }
    if (!route_fits(s, last, first)) {
        return false;
    }
    use_route(s, last, first, 1);
    if (s->p->mirrored || keeps_enough(s, ring, last, first)) {
        return true;
    }
    use_route(s, last, first, -1);
    return false;
}

/* Undo the step to `place`. */
static void undo_step(struct pack_state *s, int place)
{
    s->seen[s->path[place]] = 0;
    use_route(s, s->path[place - 1], s->path[place], -1);
}

/* Return to the previous ring: undo its closing and its last GPU. */
static void reopen_ring(struct pack_state *s, int ring)
{
    const int last = ring * s->n + s->n - 1;
    memset(s->seen, 1, (size_t)s->n);
    if (s->p->entry == NULL && s->n > 1) {
        use_route(s, s->path[last], s->path[ring * s->n], -1);
    }
    if (s->n > 1) {
        undo_step(s, last);
    }
}

/* The second GPUs of cycles must not decrease from ring to ring. */
static bool in_order(const struct pack_state *s, int place, int to)
{
    const int ring = place / s->n;
    return s->p->entry != NULL || place % s->n != 0 || ring == 0 ||
           to >= s->path[(ring - 1) * s->n + 1] || s->p->seed != 0;
}

/* Take the next step from `place`. Returns the place reached; -1: no candidate is left. */
static int next_step(struct pack_state *s, int place)
{
    while (s->next[place] < s->count[place]) {
        const int at = s->path[place];
        const int to = s->choice[(size_t)place * (size_t)s->n + (size_t)s->next[place]++];
        s->p->steps--;
        if (!in_order(s, place, to)) {
            continue;
        }
        use_route(s, at, to, 1);
        s->seen[to] = 1;
        s->path[place + 1] = to;
        if (keeps_enough(s, place / s->n, at, to) && is_open(s, place / s->n, to)) {
            return place + 1;
        }
        undo_step(s, place + 1);
    }
    return -1;
}

static enum kolo_packed search_rings(struct pack_state *s)
{
    const int total = s->rings * s->n;
    int place = 0;
    begin_ring(s, 0);
    while (s->p->steps > 0) {
        const bool ends = place % s->n == s->n - 1;
        int to = -1;
        if (ends && ring_closes(s, place)) {
            if (place == total - 1) {
                return KOLO_PACKED;
            }
            begin_ring(s, place / s->n + 1);
            place++;
            continue;
        }
        if (!ends) {
            to = next_step(s, place);
        }
        if (to >= 0) {
            place = to;
            if (place % s->n != s->n - 1) {
                list_choices(s, place);
            }
        } else if (place % s->n != 0) {
            undo_step(s, place);
            place--;
        } else if (place == 0) {
            return KOLO_PACK_IMPOSSIBLE;
        } else {
            reopen_ring(s, place / s->n - 1);
            place -= 2;
            if (s->n == 1) {
                return KOLO_PACK_IMPOSSIBLE;
            }
        }
    }
    return KOLO_PACK_UNKNOWN;
}

static void copy_out(const struct pack_state *s)
{
    const size_t n = (size_t)s->n;
    for (int r = 0; r < s->p->nrings; r++) {
        const bool back = s->p->mirrored && r % 2 == 1;
        const int *path = s->path + (size_t)(s->p->mirrored ? r / 2 : r) * n;
        for (size_t i = 0; i < n; i++) {
            s->p->out[(size_t)r * n + i] = back ? path[(n - i) % n] : path[i];
        }
    }
}

enum kolo_packed kolo_pack_rings(struct kolo_pack *pack)
{
    const int n = pack->fabric->n;
    const int rings = pack->mirrored ? pack->nrings / 2 : pack->nrings;
    const int arcs = 2 * pack->fabric->graph->nlinks;
    const size_t places = (size_t)rings * (size_t)n;
    struct pack_state s = {.p = pack, .n = n, .rings = rings, .random = pack->seed};
    enum kolo_packed result = KOLO_PACK_UNKNOWN;
    s.left = malloc(((size_t)arcs + 1) * sizeof *s.left);
    s.path = malloc((3 * places + places * (size_t)n) * sizeof *s.path);
    s.seen = malloc((size_t)n);
    if (s.left != NULL && s.path != NULL && s.seen != NULL) {
        s.count = s.path + places;
        s.next = s.count + places;
        s.choice = s.next + places;
        for (int i = 0; i < arcs; i++) {
            s.left[i] =
                pack->fabric->graph->link[i / 2].gbs - (pack->used != NULL ? pack->used[i] : 0);
        }
        result = search_rings(&s);
    }
    if (result == KOLO_PACKED) {
        copy_out(&s);
    }
    free(s.left);
    free(s.path);
    free(s.seen);
    return result;
}
