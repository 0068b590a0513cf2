// SPDX-License-Identifier: Apache-2.0
/* The machine that `kolo sim` is asked about, and what kolo would choose on it. */
#include "plugin/catalogue.h"
#include "tools/sim/sim.h"
#include "tune/tune.h"

#include <stdlib.h>
#include <string.h>

kolo_status sim_machine_open(const char *name, int per_host, struct kolo_sim_machine *out)
{
    const char *given = kolo_env("KOLO_COSTS");
    kolo_status st = KOLO_OK;
    kolo_sim_machine_init(out);
    if (name != NULL && strcmp(name, "live") == 0) {
        st = kolo_sim_machine_live(out);
    } else if (name != NULL) {
        st = kolo_sim_machine_read(name, out);
    } else if (given != NULL) {
        st = kolo_costs_parse(given, &out->costs)
                 ? KOLO_OK
                 : kolo_fail(KOLO_ERR_INVALID, "KOLO_COSTS is \"%s\"", given);
        kolo_sim_machine_local(out);
    }
    out->ranks_per_host = per_host > 0 ? per_host : out->ranks_per_host;
    return st;
}

kolo_status sim_chooser_open(const struct kolo_sim_place *place, int **host,
                             struct kolo_chooser **out)
{
    *host = malloc((size_t)place->nranks * sizeof **host);
    if (*host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", place->nranks);
    }
    for (int r = 0; r < place->nranks; r++) {
        (*host)[r] = kolo_sim_host_of(place, r);
    }
    const struct kolo_sim_machine *machine = place->machine;
    struct kolo_costs costs = machine->costs;
    /* A price knows one NIC of a host. */
    costs.net.copy_us_per_byte /= machine->rails - (machine->lost_rail >= 0 ? 1 : 0);
    const struct kolo_chooser_options options = {.nranks = place->nranks,
                                                 .nhosts = place->nhosts,
                                                 .order = place->order,
                                                 .host = *host,
                                                 .place = place->place,
                                                 .nlevels = place->groups.nlevels,
                                                 .group = place->groups.group,
                                                 .costs = costs,
                                                 .algo_count = kolo_algo_count_all,
                                                 .algo_at = kolo_algo_at,
                                                 .max_phases = UINT16_MAX};
    return kolo_chooser_create(&options, out);
}
