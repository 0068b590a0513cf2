// SPDX-License-Identifier: Apache-2.0
/* Reads flight records of PyTorch's form, version 2: its own, and kolo's, which say more. */
#include "tools/sim/record.h"

#include "tools/json_read.h"
#include "topology/formats/file.h"
#include "util/grow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ---- */

static int find_group(struct sim_records *all, const char *name)
{
    for (int i = 0; i < all->ngroups; i++) {
        if (strcmp(all->group[i].name, name) == 0) {
            return i;
        }
    }
    struct sim_group *grown = kolo_grow(all->group, all->ngroups, &all->cap, sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    all->group = grown;
    struct sim_group *group = &all->group[all->ngroups];
    *group = (struct sim_group){.nranks = 0};
    (void)snprintf(group->name, sizeof group->name, "%s", name);
    return all->ngroups++;
}

struct record_config { /* of a group, while it is read */
    struct sim_records *all;
    int group;
};

static kolo_status count_rank(void *context, struct kolo_json *json, int index)
{
    *(int *)context = index + 1;
    return kolo_json_skip(json);
}

/* PyTorch writes the ranks as a string that holds a list. */
static kolo_status read_ranks(struct kolo_json *json, int *nranks)
{
    if (kolo_json_next(json) == '[') {
        return kolo_json_array(json, count_rank, nranks);
    }
    const char *begin = json->at;
    KOLO_TRY(kolo_json_string(json, NULL, 0));
    const char *digits = "0123456789";
    *nranks = 0;
    for (const char *c = begin; (c = strpbrk(c, digits)) != NULL && c < json->at;) {
        c += strspn(c, digits);
        *nranks += 1;
    }
    return KOLO_OK;
}

static kolo_status config_member(void *context, struct kolo_json *json, const char *name)
{
    const struct record_config *config = context;
    if (strcmp(name, "ranks") != 0) {
        return kolo_json_skip(json);
    }
    return read_ranks(json, &config->all->group[config->group].nranks);
}

static kolo_status group_member(void *context, struct kolo_json *json, const char *name)
{
    struct record_config config = {.all = context, .group = find_group(context, name)};
    if (config.group < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %s", json->path);
    }
    return kolo_json_object(json, config_member, &config);
}

/* ---- an entry ---- */

struct record_entry {
    struct sim_records *all;
    char group[64], name[96], state[24], type[32];
    double in, out; /* elements of the first tensor */
    double bytes, root, number, begin_ns, end_ns, created_ns, waited_ns, duration_ms;
    bool p2p, tells_waits;
};

static kolo_status take_group(void *context, struct kolo_json *json, int index)
{
    struct record_entry *e = context;
    return index == 0 ? kolo_json_string(json, e->group, sizeof e->group) : kolo_json_skip(json);
}

static kolo_status times_size(void *context, struct kolo_json *json, int index)
{
    double size;
    (void)index;
    KOLO_TRY(kolo_json_number(json, &size));
    *(double *)context *= size;
    return KOLO_OK;
}

static kolo_status add_tensor(void *context, struct kolo_json *json, int index)
{
    double elements = 1;
    (void)index;
    KOLO_TRY(kolo_json_array(json, times_size, &elements));
    *(double *)context += elements;
    return KOLO_OK;
}

static kolo_status take_type(void *context, struct kolo_json *json, int index)
{
    struct record_entry *e = context;
    return index == 0 && e->type[0] == '\0' ? kolo_json_string(json, e->type, sizeof e->type)
                                            : kolo_json_skip(json);
}

static kolo_status own_member(void *context, struct kolo_json *json, const char *name)
{
    struct record_entry *e = context;
    if (strcmp(name, "bytes") == 0) {
        return kolo_json_number(json, &e->bytes);
    }
    return strcmp(name, "root") == 0 ? kolo_json_number(json, &e->root) : kolo_json_skip(json);
}

static kolo_status number_member(struct record_entry *e, struct kolo_json *json, const char *name)
{
    const struct {
        const char *name;
        double *to;
    } numbers[] = {{"collective_seq_id", &e->number},
                   {"time_created_ns", &e->created_ns},
                   {"time_discovered_started_ns", &e->begin_ns},
                   {"time_discovered_completed_ns", &e->end_ns},
                   {"time_waited_ns", &e->waited_ns},
                   {"duration_ms", &e->duration_ms}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            e->tells_waits = e->tells_waits || numbers[i].to == &e->waited_ns;
            return kolo_json_number(json, numbers[i].to);
        }
    }
    return kolo_json_skip(json);
}

static kolo_status entry_member(void *context, struct kolo_json *json, const char *name)
{
    struct record_entry *e = context;
    if (strcmp(name, "process_group") == 0) {
        return kolo_json_array(json, take_group, e);
    }
    if (strcmp(name, "profiling_name") == 0) {
        return kolo_json_string(json, e->name, sizeof e->name);
    }
    if (strcmp(name, "state") == 0) {
        return kolo_json_string(json, e->state, sizeof e->state);
    }
    if (strcmp(name, "input_sizes") == 0) {
        return kolo_json_array(json, add_tensor, &e->in);
    }
    if (strcmp(name, "output_sizes") == 0) {
        return kolo_json_array(json, add_tensor, &e->out);
    }
    if (strcmp(name, "input_dtypes") == 0 || strcmp(name, "output_dtypes") == 0) {
        return kolo_json_array(json, take_type, e);
    }
    if (strcmp(name, "is_p2p") == 0) {
        e->p2p = kolo_json_next(json) == 't';
        return kolo_json_skip(json);
    }
    if (strcmp(name, "kolo") == 0) {
        return kolo_json_object(json, own_member, e);
    }
    return number_member(e, json, name);
}

/* ---- an entry as a call ---- */

/* The collective of "nccl:_reduce_scatter_base", "gloo:all_reduce_barrier", ... */
static bool find_coll(const char *name, enum kolo_coll *out)
{
    static const struct {
        const char *begins;
        enum kolo_coll coll;
    } names[] = {{"allreducebarrier", KOLO_COLL_BARRIER},
                 {"allreduce", KOLO_COLL_ALL_REDUCE},
                 {"allgather", KOLO_COLL_ALL_GATHER},
                 {"alltoall", KOLO_COLL_ALL_TO_ALL},
                 {"reducescatter", KOLO_COLL_REDUCE_SCATTER},
                 {"reduce", KOLO_COLL_REDUCE},
                 {"broadcast", KOLO_COLL_BROADCAST},
                 {"gather", KOLO_COLL_GATHER},
                 {"scatter", KOLO_COLL_SCATTER},
                 {"barrier", KOLO_COLL_BARRIER}};
    char plain[sizeof((struct record_entry *)0)->name];
    size_t len = 0;
    const char *colon = strchr(name, ':');
    for (const char *c = colon != NULL ? colon + 1 : name; *c != '\0'; c++) {
        plain[len] = *c;
        len += *c != '_';
    }
    plain[len] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(plain, names[i].begins, strlen(names[i].begins)) == 0) {
            *out = names[i].coll;
            return true;
        }
    }
    return false;
}

/* Bytes of an element, by kolo's name of its type or by PyTorch's; 4 for others. */
static double type_bytes(const char *name)
{
    static const struct {
        const char *name;
        int bytes;
    } torch[] = {{"Double", 8},         {"Long", 8},        {"Half", 2}, {"BFloat16", 2},
                 {"Short", 2},          {"Char", 1},        {"Byte", 1}, {"Bool", 1},
                 {"ComplexDouble", 16}, {"ComplexFloat", 8}};
    for (int t = 0; t < KOLO_TYPES; t++) {
        if (strcmp(name, kolo_type_name((enum kolo_type)t)) == 0) {
            return (double)kolo_type_bytes((enum kolo_type)t);
        }
    }
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++) {
        if (strcmp(name, torch[i].name) == 0) {
            return torch[i].bytes;
        }
    }
    return strncmp(name, "Float8", 6) == 0 ? 1 : 4;
}

/* Bytes of a block, or of the vector of a flat collective. PyTorch's ranks other than the root of a
 * gather or scatter have no blocks on one side. */
static double bytes_of(const struct record_entry *e, enum kolo_coll coll, int nranks)
{
    double elements = e->in;
    if (!isnan(e->bytes)) {
        return e->bytes;
    }
    if (coll == KOLO_COLL_REDUCE_SCATTER || coll == KOLO_COLL_SCATTER) {
        elements = e->out;
    } else if (coll == KOLO_COLL_ALL_TO_ALL && nranks > 0) {
        elements = e->in / nranks;
    }
    return coll == KOLO_COLL_BARRIER ? 0 : elements * type_bytes(e->type);
}

/* A message of "kolo:send 0->1" or "kolo:recv 1<-0" is a call of two ranks. The record must tell
 * when they waited for it: mostly they do not wait at once. */
static bool find_message(const struct record_entry *e, struct sim_call *call)
{
    int rank, peer;
    char group[sizeof e->group + 24];
    const char *colon = strchr(e->name, ':');
    if (!e->p2p || !e->tells_waits || colon == NULL) {
        return false;
    }
    call->sends = sscanf(colon, ":send %d->%d", &rank, &peer) == 2;
    if (!call->sends && sscanf(colon, ":recv %d<-%d", &rank, &peer) != 2) {
        return false;
    }
    (void)snprintf(group, sizeof group, "%s %d->%d", e->group, call->sends ? rank : peer,
                   call->sends ? peer : rank);
    call->coll = KOLO_COLL_SCATTER;
    call->group = find_group(e->all, group);
    if (call->group >= 0) {
        e->all->group[call->group].messages = true;
        e->all->group[call->group].nranks = 2;
    }
    return true;
}

/* Where the record does not say when the rank waited, it waited at once. A message that nobody waits
 * for goes on alone. */
static double waited_us(const struct record_entry *e, double begin_ns)
{
    if (!isnan(e->waited_ns)) {
        return fmax(begin_ns, e->waited_ns) / 1e3;
    }
    return e->p2p ? INFINITY : begin_ns / 1e3;
}

static kolo_status keep_call(struct sim_record *record, const struct sim_call *call)
{
    struct sim_call *grown = kolo_grow(record->call, record->ncalls, &record->cap, sizeof *grown);
    if (grown == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %s", record->path);
    }
    record->call = grown;
    record->call[record->ncalls++] = *call;
    return KOLO_OK;
}

static kolo_status add_call(struct sim_record *record, const struct record_entry *e)
{
    struct sim_call call = {.group = find_group(e->all, e->group)};
    const double begin_ns = !isnan(e->begin_ns) ? e->begin_ns : e->created_ns;
    const double end_ns = !isnan(e->duration_ms) ? begin_ns + e->duration_ms * 1e6 : e->end_ns;
    const bool message = find_message(e, &call);
    if (call.group < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %s", record->path);
    }
    if (!message && (e->p2p || !find_coll(e->name, &call.coll))) {
        record->unknown++;
        return KOLO_OK;
    }
    if (strcmp(e->state, "completed") != 0 || !(end_ns >= begin_ns)) {
        record->unfinished++;
        return KOLO_OK;
    }
    const int nranks = e->all->group[call.group].nranks;
    const double bytes =
        message ? fmax(e->in, e->out) * type_bytes(e->type) : bytes_of(e, call.coll, nranks);
    if (!(bytes >= 0 && bytes <= 0x1p48 && e->number >= 0 && e->number <= 0x1p60)) {
        record->unknown++;
        return KOLO_OK;
    }
    call.bytes = (size_t)bytes;
    call.number = (uint64_t)e->number;
    call.root = e->root > 0 && e->root < INT32_MAX ? (int)e->root : 0;
    call.begin_us = begin_ns / 1e3;
    call.end_us = end_ns / 1e3;
    call.waited_us = waited_us(e, begin_ns);
    return keep_call(record, &call);
}

/* Number the messages of each pair of ranks from the last one on: the record of one rank may begin
 * earlier. */
static void number_messages(const struct sim_records *all, struct sim_record *record)
{
    for (int g = 0; g < all->ngroups; g++) {
        uint64_t number = UINT64_MAX / 2;
        for (int i = record->ncalls - 1; i >= 0 && all->group[g].messages; i--) {
            if (record->call[i].group == g) {
                record->call[i].number = number--;
            }
        }
    }
}

/* ---- a file ---- */

struct record_file {
    struct sim_records *all;
    struct sim_record *record;
    bool calls; /* false: the groups, which may stand behind the calls */
    char host[64];
    double pid;
};

static kolo_status read_entry(void *context, struct kolo_json *json, int index)
{
    const struct record_file *reading = context;
    struct record_entry e = {.all = reading->all,
                             .bytes = NAN,
                             .root = NAN,
                             .number = NAN,
                             .begin_ns = NAN,
                             .end_ns = NAN,
                             .created_ns = NAN,
                             .waited_ns = NAN,
                             .duration_ms = NAN};
    (void)index;
    KOLO_TRY(kolo_json_object(json, entry_member, &e));
    return add_call(reading->record, &e);
}

static kolo_status process_member(void *context, struct kolo_json *json, const char *name)
{
    struct record_file *reading = context;
    if (strcmp(name, "host") == 0) {
        return kolo_json_string(json, reading->host, sizeof reading->host);
    }
    return strcmp(name, "pid") == 0 ? kolo_json_number(json, &reading->pid) : kolo_json_skip(json);
}

static kolo_status file_member(void *context, struct kolo_json *json, const char *name)
{
    struct record_file *reading = context;
    if (!reading->calls && strcmp(name, "pg_config") == 0) {
        return kolo_json_object(json, group_member, reading->all);
    }
    if (!reading->calls && strcmp(name, "kolo") == 0) {
        return kolo_json_object(json, process_member, reading);
    }
    if (reading->calls && strcmp(name, "entries") == 0) {
        return kolo_json_array(json, read_entry, reading);
    }
    return kolo_json_skip(json);
}

static int by_begin(const void *a, const void *b)
{
    const struct sim_call *x = a, *y = b;
    return (x->begin_us > y->begin_us) - (x->begin_us < y->begin_us);
}

static kolo_status read_record(struct sim_records *all, struct sim_record *record)
{
    char *text = NULL;
    size_t len;
    struct record_file reading = {.all = all, .record = record, .pid = NAN};
    KOLO_TRY(kolo_file_read(record->path, &text, &len));
    kolo_status st = KOLO_OK;
    for (int pass = 0; pass < 2 && st == KOLO_OK; pass++) {
        struct kolo_json json = {.path = record->path, .begin = text, .at = text};
        reading.calls = pass == 1;
        st = kolo_json_object(&json, file_member, &reading);
    }
    free(text);
    if (reading.host[0] != '\0' && !isnan(reading.pid)) {
        (void)snprintf(record->process, sizeof record->process, "%s %.0f", reading.host,
                       reading.pid);
    }
    return st;
}

/* Move the calls of the last record to that of the same process, if there is one. */
static kolo_status join_last(struct sim_records *all)
{
    struct sim_record *last = &all->record[all->nrecords - 1], *to = all->record;
    while (to < last && (last->process[0] == '\0' || strcmp(to->process, last->process) != 0)) {
        to++;
    }
    for (int i = 0; i < last->ncalls && to < last; i++) {
        struct sim_call *grown = kolo_grow(to->call, to->ncalls, &to->cap, sizeof *grown);
        if (grown == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %s", to->path);
        }
        to->call = grown;
        to->call[to->ncalls++] = last->call[i];
    }
    if (to < last) {
        to->unfinished += last->unfinished;
        to->unknown += last->unknown;
        free(last->call);
        all->nrecords--;
    }
    return KOLO_OK;
}

kolo_status sim_records_read(char **paths, int npaths, struct sim_records *out)
{
    *out = (struct sim_records){.record = calloc((size_t)npaths, sizeof *out->record)};
    if (out->record == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d records", npaths);
    }
    for (int i = 0; i < npaths; i++) {
        struct sim_record *record = &out->record[out->nrecords++];
        *record = (struct sim_record){.path = paths[i]};
        KOLO_TRY(read_record(out, record));
        KOLO_TRY(join_last(out));
    }
    for (int i = 0; i < out->nrecords; i++) {
        struct sim_record *record = &out->record[i];
        if (record->ncalls == 0) {
            return kolo_fail(KOLO_ERR_INVALID, "%s: no call of it is over", record->path);
        }
        qsort(record->call, (size_t)record->ncalls, sizeof *record->call, by_begin);
        number_messages(out, record);
    }
    return KOLO_OK;
}

void sim_records_free(struct sim_records *records)
{
    for (int i = 0; i < records->nrecords; i++) {
        free(records->record[i].call);
    }
    free(records->record);
    free(records->group);
}
