// SPDX-License-Identifier: Apache-2.0
/* `kolo sim --bootstrap`: the start of a job, step by step. */
#include "tools/sim/start.h"

#include "sim/start.h"
#include "tools/output.h"

#include <stdio.h>
#include <string.h>

static void print_start(const struct kolo_sim_start *start)
{
    (void)printf("#%-19s  %5s  %12s  %14s  %12s\n#%-19s  %5s  %12s  %14s  %12s\n", " step", "trips",
                 "messages", "bytes", "time", "", "", "", "(B)", "(ms)");
    for (int i = 0; i < start->nsteps; i++) {
        const struct kolo_sim_start_step *s = &start->step[i];
        (void)printf("  %-18s  %5d  %12.0f  %14.0f  %12.2f\n", s->name, s->trips, s->messages,
                     s->bytes, 1e-3 * s->us);
    }
    (void)printf("# a communicator takes %.2f ms; with launch and first call %.2f ms\n",
                 1e-3 * start->create_us, 1e-3 * start->total_us);
}

static void add_json(const struct kolo_sim_start *start, int nranks, struct kolo_text *out)
{
    kolo_text_add(out, "{\"ranks\": %d, \"create_us\": %.9g, \"total_us\": %.9g, \"steps\": [",
                  nranks, start->create_us, start->total_us);
    for (int i = 0; i < start->nsteps; i++) {
        const struct kolo_sim_start_step *s = &start->step[i];
        kolo_text_add(out,
                      "%s\n {\"step\": \"%s\", \"trips\": %d, \"messages\": %.0f, \"bytes\": %.0f, "
                      "\"us\": %.9g}",
                      i > 0 ? "," : "", s->name, s->trips, s->messages, s->bytes, s->us);
    }
    kolo_text_add(out, "\n]}\n");
}

int sim_bootstrap(const struct kolo_sim_machine *machine, const char *name, int nranks,
                  const char *json)
{
    struct kolo_sim_start start;
    struct kolo_text text = {0};
    int status = 0;
    kolo_sim_start(machine, nranks, &start);
    if (json == NULL || strcmp(json, "-") != 0) {
        const int per = machine->ranks_per_host;
        const int hosts = per > 0 ? (nranks + per - 1) / per : 1;
        (void)printf("# kolo sim: start of %d ranks on %d host%s, machine: %s\n", nranks, hosts,
                     hosts > 1 ? "s" : "", name);
        print_start(&start);
    }
    if (json != NULL) {
        add_json(&start, nranks, &text);
        status = kolo_output_write("kolo sim", json, &text);
        kolo_text_free(&text);
    }
    return status;
}
