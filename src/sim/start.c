// SPDX-License-Identifier: Apache-2.0
/* The steps of a start, as src/core/setup/create.c and boot/wire.h have them. */
#include "sim/start.h"

struct round {
    const char *name;
    int in, out;  /* messages of a rank to the hub, and back */
    int trips;    /* one after the other */
    double bytes; /* that each rank tells all others */
};

static const struct round rounds[] = {
    {"join", 2, 3, 2, 0},
    {"hello", 1, 1, 0, KOLO_SIM_HELLO_BYTES}, /* goes with the proof of the secret */
    {"addresses", 1, 1, 1, KOLO_SIM_ADDRESS_BYTES},
    {"regions and costs", 1, 1, 1, KOLO_SIM_READY_BYTES},
    {"barrier and leave", 2, 2, 2, 0},
};

struct job {
    const struct kolo_sim_machine *machine;
    double ranks, per_host, cores, far; /* far: ranks of other hosts than the hub's */
};

/* The time of a host's cores for `us` of each of its ranks. */
static double shared_us(const struct job *j, double us)
{
    return j->per_host * us / (j->cores < j->per_host ? j->cores : j->per_host);
}

static void add_step(struct kolo_sim_start *out, struct kolo_sim_start_step step)
{
    out->step[out->nsteps++] = step;
    out->total_us += step.us;
}

static struct kolo_sim_start_step hub_step(const struct job *j, const struct round *r)
{
    const struct kolo_sim_machine *m = j->machine;
    const double told = r->bytes * j->ranks; /* in one answer */
    const double messages = j->ranks * (r->in + r->out);
    const double answers = j->far + (told < KOLO_SIM_SHARE_BYTES ? j->ranks - j->far : 1);
    const double sent =
        KOLO_SIM_HEADER_BYTES * messages + j->ranks * r->bytes; /* but for answers */
    const double bytes = sent + answers * told;
    const double wire_us =
        (j->far / j->ranks * sent + j->far * told) * m->costs.net.copy_us_per_byte;
    const double latency_us = j->far > 0 ? 2 * r->trips * m->costs.net.latency_us : 0;
    return (struct kolo_sim_start_step){.name = r->name,
                                        .trips = r->trips,
                                        .messages = messages,
                                        .bytes = bytes,
                                        .us = messages * m->start_message_us +
                                              bytes * m->start_us_per_byte + wire_us + latency_us};
}

void kolo_sim_start(const struct kolo_sim_machine *machine, int nranks, struct kolo_sim_start *out)
{
    const struct kolo_sim_machine *m = machine;
    const int given = m->ranks_per_host;
    const double per_host = given > 0 && given < nranks ? given : nranks;
    const struct job j = {m, nranks, per_host, m->costs.cores, nranks - per_host};
    const double others = nranks - 1;
    *out = (struct kolo_sim_start){0};
    add_step(out, (struct kolo_sim_start_step){.name = "launch",
                                               .us = shared_us(&j, m->start_process_us)});
    const double launch_us = out->total_us;
    for (size_t i = 0; i < KOLO_LENGTH(rounds); i++) {
        add_step(out, hub_step(&j, &rounds[i]));
    }
    const double rank_us = m->start_rank_us + others * m->start_peer_us;
    add_step(out, (struct kolo_sim_start_step){.name = "work of the ranks",
                                               .us = shared_us(&j, rank_us)});
    out->create_us = out->total_us - launch_us;
    const double call_us = m->start_call_us + others * m->start_call_peer_us;
    add_step(out, (struct kolo_sim_start_step){.name = "first call", .us = shared_us(&j, call_us)});
}
