// SPDX-License-Identifier: Apache-2.0
/* Machine files, and ranks that are placed on a machine. */
#include "sim/machine.h"

#include "topology/layout/layout.h"
#include "topology/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The processor time of a line, at most. kolo's costs take it as a part of the latency, which fits
 * near cores; between far cores the core works no longer, it waits. Fitted on one
 * machine: perf/RESULTS.md. */
static const double STEP_US = 0.05;

/* Also fitted. It holds what a benchmark adds to a lone call. */
static const double CALL_US = 0.12;

/* GBS: 1e9 bytes a second, kept as us a byte */
enum value_kind { TEXT, WHOLE, BYTES, REAL, GBS };

#define AT(member) offsetof(struct kolo_sim_machine, member)

static const struct name {
    const char *name;
    size_t offset;
    enum value_kind kind;
    const char *what;
} names[] = {
    {"ranks_per_host", AT(ranks_per_host), WHOLE, "ranks go to hosts in blocks of so many"},
    {"topo", AT(topo), TEXT, "hwloc XML file of a host; rank i of a host is on its CPU i"},
    {"local_gbs", AT(local_us_per_byte), GBS, "speed of a core that copies in its own caches"},
    {"call_us", AT(call_us), REAL, "from the call to its first op (0.12)"},
    {"net_core_share", AT(net_core_share), REAL,
     "part of a core that a busy NIC takes from computation beside it (--replay)"},
    {"net_gap_us", AT(net_gap_us), REAL, "least time between two messages of a NIC"},
    {"net_ramp_us", AT(net_ramp_us), REAL, "more latency of a message of net_ramp_bytes or more"},
    {"net_ramp_bytes", AT(net_ramp_bytes), BYTES, "a shorter one has its part of net_ramp_us"},
    {"rails", AT(rails), WHOLE, "NICs of a host (1); rank i of a host uses its NIC i mod rails"},
    {"lost_rail", AT(lost_rail), WHOLE, "a rail that no host has; its ranks use the next one"},
    {"slow_nic", AT(slow_nic), WHOLE, "a NIC that is slower; NICs are numbered host by host"},
    {"slow_nic_factor", AT(slow_nic_factor), REAL, "by this factor (2)"},
    {"hosts_per_switch", AT(hosts_per_switch), WHOLE, "hosts of a leaf switch"},
    {"uplink_gbs", AT(uplink_us_per_byte), GBS, "a leaf's uplinks together, each way"},
    {"switch_latency_us", AT(switch_latency_us), REAL, "more latency between two leaves"},
    {"tile_bytes", AT(tile_bytes), BYTES, "most bytes of a tile; calls go in tiles (1M)"},
    {"noise", AT(noise), REAL, "standard deviation of the logarithm of processor times"},
    {"slow_rank", AT(slow_rank), WHOLE, "a rank that computes more slowly"},
    {"slow_factor", AT(slow_factor), REAL, "by this factor"},
    {"start_process_us", AT(start_process_us), REAL, "start: to launch a process (--bootstrap)"},
    {"start_rank_us", AT(start_rank_us), REAL, "start: of a rank, for its communicator"},
    {"start_peer_us", AT(start_peer_us), REAL, "start: more for each other rank"},
    {"start_message_us", AT(start_message_us), REAL, "start: of rank 0's hub, for a message"},
    {"start_gbs", AT(start_us_per_byte), GBS, "start: of the hub, its bytes"},
    {"start_call_us", AT(start_call_us), REAL, "start: of a rank, for its first call"},
    {"start_call_peer_us", AT(start_call_peer_us), REAL, "start: more for each other rank"},
    {"error", AT(error), REAL, "percent, how far measured times were from predicted ones"},
    {"error_95", AT(error_95), REAL, "percent, what 95 of 100 of them did not exceed"},
    {"error_ranks", AT(error_ranks), WHOLE, "most ranks of these measurements"},
};

/* Processor times of a start: perf/sim_start.py gives them; perf/RESULTS.md has its table. */
static void init_start(struct kolo_sim_machine *out)
{
    out->start_process_us = 65370;
    out->start_rank_us = 905;
    out->start_peer_us = 115;
    out->start_message_us = 5;
    out->start_us_per_byte = 1e-3 / 0.5;
    out->start_call_us = 1;
    out->start_call_peer_us = 138;
}

void kolo_sim_machine_init(struct kolo_sim_machine *out)
{
    *out = (struct kolo_sim_machine){.call_us = CALL_US,
                                     .rails = 1,
                                     .lost_rail = -1,
                                     .slow_nic = -1,
                                     .slow_nic_factor = 2,
                                     .slow_rank = -1,
                                     .slow_factor = 1};
    (void)kolo_costs_parse("cores=65536", &out->costs);
    init_start(out);
    kolo_sim_machine_local(out);
}

void kolo_sim_machine_local(struct kolo_sim_machine *machine)
{
    machine->local_us_per_byte = kolo_local_us_per_byte(&machine->costs);
}

void kolo_sim_machine_names(struct kolo_text *out)
{
    for (size_t i = 0; i < KOLO_LENGTH(names); i++) {
        kolo_text_add(out, "  %-18s %s\n", names[i].name, names[i].what);
    }
}

kolo_status kolo_sim_machine_live(struct kolo_sim_machine *out)
{
    struct kolo_host *host = NULL;
    KOLO_TRY(kolo_host_hold(&host));
    kolo_sim_machine_init(out);
    kolo_costs_measure(kolo_host_pus(host), host, &out->costs);
    kolo_host_destroy(host);
    out->costs.step_us = out->costs.step_us < STEP_US ? out->costs.step_us : STEP_US;
    kolo_sim_machine_local(out);
    return KOLO_OK;
}

/* ---- the file ---- */

static bool take_value(const struct name *name, const char *value, struct kolo_sim_machine *m)
{
    char *at = (char *)m + name->offset;
    char *end = NULL;
    long whole = 0;
    if (name->kind == TEXT) {
        const int len = snprintf(at, sizeof m->topo, "%s", value);
        return len > 0 && (size_t)len < sizeof m->topo;
    }
    if (name->kind == WHOLE) {
        const bool ok = kolo_parse_int(value, 0, 1 << 24, &whole);
        const int number = (int)whole;
        memcpy(at, &number, sizeof number);
        return ok;
    }
    if (name->kind == BYTES) {
        size_t bytes = 0;
        const bool ok = kolo_parse_bytes(value, &bytes);
        memcpy(at, &bytes, sizeof bytes);
        return ok;
    }
    double real = strtod(value, &end);
    const bool ok = end != value && *end == '\0' && real >= 0 && real < 1e12;
    real = name->kind == GBS && real > 0 ? 1e-3 / real : real;
    memcpy(at, &real, sizeof real);
    return ok;
}

static const struct name *find_name(const char *word)
{
    for (size_t i = 0; i < KOLO_LENGTH(names); i++) {
        if (strcmp(names[i].name, word) == 0) {
            return &names[i];
        }
    }
    return NULL;
}

/* Take one line: a name of the table, else one of KOLO_COSTS, which goes into `costs`. */
static bool take_line(char *line, struct kolo_text *costs, struct kolo_sim_machine *m)
{
    char *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    const char *word = strtok_r(line, " \t\r", &rest);
    const char *value = strtok_r(NULL, " \t\r", &rest);
    if (word == NULL) {
        return true;
    }
    if (value == NULL || strtok_r(NULL, " \t\r", &rest) != NULL) {
        return false;
    }
    const struct name *name = find_name(word);
    if (name != NULL) {
        return take_value(name, value, m);
    }
    struct kolo_text one = {0};
    struct kolo_costs known;
    kolo_text_add(&one, "%s=%s", word, value);
    const bool ok = one.chars != NULL && kolo_costs_parse(one.chars, &known);
    kolo_text_add(costs, "%s%s", costs->len > 0 ? "," : "", one.chars != NULL ? one.chars : "");
    kolo_text_free(&one);
    return ok;
}

static bool take_costs(const struct kolo_text *costs, struct kolo_sim_machine *m)
{
    const char *given = costs->len > 0 ? costs->chars : "cores=65536";
    struct kolo_text all = {0};
    kolo_text_add(&all, "%s%s", strstr(given, "cores=") == NULL ? "cores=65536," : "", given);
    const bool ok = all.chars != NULL && kolo_costs_parse(all.chars, &m->costs);
    kolo_text_free(&all);
    return ok;
}

kolo_status kolo_sim_machine_parse(const char *name, const char *text, struct kolo_sim_machine *out)
{
    struct kolo_sim_machine m;
    struct kolo_text costs = {0};
    char line[512];
    int number = 0;
    kolo_status st = KOLO_OK;
    kolo_sim_machine_init(&m);
    m.local_us_per_byte = 0;
    for (const char *at = text; *at != '\0' && st == KOLO_OK; number++) {
        const size_t len = strcspn(at, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)len, at);
        if (len >= sizeof line || !take_line(line, &costs, &m)) {
            st = kolo_fail(KOLO_ERR_INVALID, "%s, line %d: \"%.*s\" is no name and value", name,
                           number + 1, (int)kolo_min(len, 60), at);
        }
        at += len + (at[len] == '\n');
    }
    if (st == KOLO_OK && !take_costs(&costs, &m)) {
        st =
            kolo_fail(KOLO_ERR_INVALID, "%s: a name stands twice, or a cost is out of range", name);
    }
    kolo_text_free(&costs);
    if (st == KOLO_OK && (m.rails < 1 || m.lost_rail >= m.rails || m.lost_rail + m.rails == 1)) {
        st = kolo_fail(KOLO_ERR_INVALID, "%s: of %d rails, rail %d cannot be lost", name, m.rails,
                       m.lost_rail);
    }
    if (st == KOLO_OK) {
        if (m.local_us_per_byte == 0) {
            kolo_sim_machine_local(&m);
        }
        *out = m;
    }
    return st;
}

kolo_status kolo_sim_machine_read(const char *path, struct kolo_sim_machine *out)
{
    enum { MOST = 1 << 16 };
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(MOST) : NULL;
    if (text == NULL) {
        const int why = errno;
        if (file != NULL) {
            (void)fclose(file);
        }
        return kolo_fail(KOLO_ERR_INVALID, "cannot read %s: %s", path, strerror(why));
    }
    const size_t len = fread(text, 1, MOST - 1, file);
    text[len] = '\0';
    const bool all = len < MOST - 1 && strlen(text) == len;
    (void)fclose(file);
    const kolo_status st = all ? kolo_sim_machine_parse(path, text, out)
                               : kolo_fail(KOLO_ERR_INVALID, "%s is no machine file", path);
    free(text);
    return st;
}

/* ---- ranks on the machine ---- */

static kolo_status find_places(struct kolo_sim_place *p)
{
    struct kolo_host *host = NULL;
    if (p->machine->topo[0] == '\0') {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_host_load(p->machine->topo, &host));
    p->place = calloc((size_t)p->nranks, sizeof *p->place);
    p->order = calloc((size_t)p->nranks, sizeof *p->order);
    const int pus = kolo_host_pus(host);
    for (int r = 0; p->place != NULL && r < p->nranks; r++) {
        p->place[r] = kolo_host_place(host, kolo_host_pu_os(host, r % p->per_host % pus));
    }
    kolo_host_destroy(host);
    return p->place != NULL && p->order != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", p->nranks);
}

/* The groups of hosts in blocks. kolo_groups_make() would give the same, in n times the hosts. */
static kolo_status group_hosts(struct kolo_sim_place *p)
{
    if (p->nhosts == 1 || p->per_host == 1) {
        return KOLO_OK;
    }
    p->groups.nlevels = 1;
    p->groups.name[0] = "host";
    p->groups.group = malloc((size_t)p->nranks * sizeof *p->groups.group);
    for (int r = 0; p->groups.group != NULL && r < p->nranks; r++) {
        p->groups.group[r] = r / p->per_host * p->per_host;
    }
    return p->groups.group != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", p->nranks);
}

static kolo_status group_places(struct kolo_sim_place *p)
{
    int *host = malloc((size_t)p->nranks * sizeof *host);
    if (host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", p->nranks);
    }
    for (int r = 0; r < p->nranks; r++) {
        host[r] = kolo_sim_host_of(p, r);
    }
    kolo_order_ranks(p->nranks, host, p->place, p->order);
    const kolo_status st = kolo_groups_make(p->nranks, host, p->place, &p->groups);
    free(host);
    return st;
}

kolo_status kolo_sim_place_open(const struct kolo_sim_machine *machine, int nranks,
                                struct kolo_sim_place *out)
{
    struct kolo_sim_place *p = out;
    const int given = machine->ranks_per_host;
    *p = (struct kolo_sim_place){.machine = machine, .nranks = nranks};
    p->per_host = given > 0 && given < nranks ? given : nranks;
    p->nhosts = (nranks + p->per_host - 1) / p->per_host;
    p->cores = machine->costs.cores < p->per_host ? machine->costs.cores : 0;
    kolo_status st = find_places(p);
    if (st == KOLO_OK) {
        st = p->place != NULL ? group_places(p) : group_hosts(p);
    }
    if (st != KOLO_OK) {
        kolo_sim_place_close(p);
        return st;
    }
    kolo_model_init(&p->model, &machine->costs, p->per_host, 1, 1, p->place);
    kolo_model_machine(&p->model, p->per_host, NULL, &p->host);
    return KOLO_OK;
}

void kolo_sim_place_close(struct kolo_sim_place *place)
{
    free(place->place);
    free(place->order);
    kolo_groups_free(&place->groups);
    *place = (struct kolo_sim_place){0};
}

int kolo_sim_nic_of(const struct kolo_sim_place *place, int rank)
{
    const int rails = place->machine->rails;
    const int rail = rank % place->per_host % rails;
    const int taken = rail == place->machine->lost_rail ? (rail + 1) % rails : rail;
    return kolo_sim_host_of(place, rank) * rails + taken;
}

void kolo_sim_near_link(const struct kolo_sim_place *place, int from, int to,
                        struct kolo_link_price *out)
{
    const struct kolo_machine *m = &place->host.machine;
    *out = m->link;
    if (m->link_of != NULL) {
        m->link_of(m->ctx, from % place->per_host, to % place->per_host, out);
    }
}

struct kolo_shape kolo_sim_shape(const struct kolo_sim_place *place, enum kolo_coll coll, int root)
{
    return (struct kolo_shape){.size = sizeof(struct kolo_shape),
                               .coll = coll,
                               .nranks = place->nranks,
                               .root = root,
                               .order = place->order,
                               .nlevels = place->groups.nlevels,
                               .group = place->groups.group};
}
