// SPDX-License-Identifier: Apache-2.0
/* Places ranks on a machine that a file or the user describes, and asks kolo's choice there. */
#include "tools/layout.h"

#include "plugin/catalogue.h"
#include "topology/layout/layout.h"
#include "topology/source.h"

#include <stdlib.h>

/* Round numbers of a recent server, for a flag within an L3, and with a core for each rank. */
static const char costs_text[] = "cores=65536,latency_us=0.04,step_us=0.024,copy_gbs=20";

static kolo_status place_on_host(const char *topo, int nranks, struct kolo_place *place)
{
    struct kolo_host *host = NULL;
    KOLO_TRY(kolo_host_load(topo, &host));
    for (int r = 0; r < nranks; r++) {
        place[r] = kolo_host_place(host, kolo_host_pu_os(host, r % kolo_host_pus(host)));
    }
    kolo_host_destroy(host);
    return KOLO_OK;
}

static kolo_status place_by_hand(const char *groups, int nranks, struct kolo_place *place)
{
    return kolo_places_parse(groups, nranks, place)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID,
                           "--groups is \"%s\"; it is the number of each rank's L3, such as "
                           "0,0,1,1, and after a ';' of its NUMA node, then of its package",
                           groups);
}

static kolo_status find_costs(struct kolo_costs *out)
{
    const char *given = kolo_env("KOLO_COSTS");
    const char *text = given != NULL ? given : costs_text;
    return kolo_costs_parse(text, out) ? KOLO_OK
                                       : kolo_fail(KOLO_ERR_INVALID, "KOLO_COSTS is \"%s\"", text);
}

kolo_status kolo_tool_layout_open(const char *topo, const char *groups, int nranks,
                                  struct kolo_tool_layout *out)
{
    struct kolo_tool_layout l = {.nranks = nranks};
    struct kolo_costs costs;
    kolo_status st = KOLO_OK;
    if (topo == NULL && groups == NULL) {
        *out = l;
        return KOLO_OK;
    }
    l.place = calloc((size_t)nranks, sizeof *l.place);
    l.order = calloc((size_t)nranks, sizeof *l.order);
    if (l.place == NULL || l.order == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
        goto err;
    }
    KOLO_TRY_GOTO(st, find_costs(&costs), err);
    KOLO_TRY_GOTO(st,
                  groups != NULL ? place_by_hand(groups, nranks, l.place)
                                 : place_on_host(topo, nranks, l.place),
                  err);
    KOLO_TRY_GOTO(st, kolo_groups_make(nranks, NULL, l.place, &l.groups), err);
    kolo_order_ranks(nranks, NULL, l.place, l.order);
    kolo_model_init(&l.model, &costs, nranks, 1, 1, l.place);
    *out = l;
    return KOLO_OK;
err:
    kolo_tool_layout_close(&l);
    return st;
}

void kolo_tool_layout_close(struct kolo_tool_layout *layout)
{
    free(layout->place);
    free(layout->order);
    kolo_groups_free(&layout->groups);
}

struct kolo_shape kolo_tool_layout_shape(const struct kolo_tool_layout *layout, enum kolo_coll coll)
{
    return (struct kolo_shape){.size = sizeof(struct kolo_shape),
                               .coll = coll,
                               .nranks = layout->nranks,
                               .order = layout->order,
                               .nlevels = layout->groups.nlevels,
                               .group = layout->groups.group};
}

kolo_status kolo_tool_layout_choose(const struct kolo_tool_layout *layout, enum kolo_coll coll,
                                    size_t bytes, struct kolo_text *out)
{
    struct kolo_chooser *chooser = NULL;
    struct kolo_pick pick;
    const struct kolo_chooser_options options = {.nranks = layout->nranks,
                                                 .nhosts = 1,
                                                 .order = layout->order,
                                                 .place = layout->place,
                                                 .nlevels = layout->groups.nlevels,
                                                 .group = layout->groups.group,
                                                 .costs = layout->model.costs,
                                                 .algo_count = kolo_algo_count_all,
                                                 .algo_at = kolo_algo_at,
                                                 .max_phases = 65535};
    KOLO_TRY(kolo_chooser_create(&options, &chooser));
    const kolo_status st = kolo_choose(chooser, coll, 0, bytes, KOLO_FLOAT32, &pick);
    if (st == KOLO_OK) {
        kolo_choice_line(chooser, coll, 0, bytes, out);
    }
    kolo_chooser_destroy(chooser);
    return st;
}
