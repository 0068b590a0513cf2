// SPDX-License-Identifier: Apache-2.0
/* Prints a parsed log as JSON. */
#include "tools/log/log.h"
#include "topology/machine/graph.h"
#include "util/escape.h"

#include <string.h>

static void json_values(const char *name, const struct kolo_log_values *values, bool pairs,
                        struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"%s\": [", name);
    for (int i = 0; i < values->count; i++) {
        const int *v = values->value[i];
        kolo_text_add(out, pairs ? "%s[%d, %d]" : "%s%d", i > 0 ? ", " : "", v[0], v[1]);
    }
    kolo_text_add(out, "]");
}

static void json_rings(const struct kolo_job *job, struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"rings\": {");
    for (int i = 0; i < job->nrings; i++) {
        kolo_text_add(out, "%s\"%d\": [", i > 0 ? ",\n  " : "", job->ring[i].channel);
        for (int r = 0; r < job->ring[i].count; r++) {
            kolo_text_add(out, "%s%d", r > 0 ? ", " : "", job->ring[i].rank[r]);
        }
        kolo_text_add(out, "]");
    }
    kolo_text_add(out, "}");
}

/* The roots of the tree whose branches begin at `first`. */
static void json_roots_of(const struct kolo_job *job, int first, struct kolo_text *out)
{
    const char *between = "";
    for (int i = first; i < job->nbranches; i++) {
        const struct kolo_job_branch *b = &job->branch[i];
        if (b->channel != job->branch[first].channel) {
            return;
        }
        if (b->up < 0) {
            kolo_text_add(out, "%s%d", between, b->rank);
            between = ", ";
        }
    }
}

static void json_roots(const struct kolo_job *job, struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"tree_roots\": {");
    const char *comma = "";
    for (int i = 0; i < job->nbranches; i++) {
        const struct kolo_job_branch *b = &job->branch[i];
        const bool begins = i == 0 || job->branch[i - 1].channel != b->channel;
        if (begins) {
            kolo_text_add(out, "%s\"%d\": [", comma, b->channel);
            json_roots_of(job, i, out);
            kolo_text_add(out, "]");
            comma = ", ";
        }
    }
    kolo_text_add(out, "}");
}

static void json_trees(const struct kolo_job *job, struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"trees\": {");
    for (int i = 0; i < job->nbranches; i++) {
        const struct kolo_job_branch *b = &job->branch[i];
        const bool begins = i == 0 || job->branch[i - 1].channel != b->channel;
        const bool ends = i + 1 == job->nbranches || job->branch[i + 1].channel != b->channel;
        if (begins) {
            kolo_text_add(out, "%s\"%d\": {", i > 0 ? ",\n  " : "", b->channel);
        }
        kolo_text_add(out, "%s\"%d\": {\"parent\": %d, \"children\": [", begins ? "" : ", ",
                      b->rank, b->up);
        for (int d = 0; d < 3 && b->down[d] >= 0; d++) {
            kolo_text_add(out, "%s%d", d > 0 ? ", " : "", b->down[d]);
        }
        kolo_text_add(out, ends ? "]}}" : "]}");
    }
    kolo_text_add(out, "}");
}

static void json_heads(const struct kolo_log_values *heads, struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"nvls_heads\": {");
    for (int i = 0; i < heads->count; i++) {
        const bool begins = i == 0 || heads->value[i - 1][0] != heads->value[i][0];
        const bool ends = i + 1 == heads->count || heads->value[i + 1][0] != heads->value[i][0];
        if (begins) {
            kolo_text_add(out, "%s\"%d\": [", i > 0 ? ", " : "", heads->value[i][0]);
        }
        kolo_text_add(out, "%s%d%s", begins ? "" : ", ", heads->value[i][1], ends ? "]" : "");
    }
    kolo_text_add(out, "}");
}

static void json_text(const char *before, const char *text, const char *after,
                      struct kolo_text *out)
{
    kolo_text_add(out, "%s\"", before);
    kolo_text_json(out, text);
    kolo_text_add(out, "\"%s", after);
}

static void json_hosts(const struct kolo_job *job, struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"hosts\": {");
    for (int h = 0; h < job->nhosts; h++) {
        json_text(h > 0 ? ", " : "", job->host[h], ": [", out);
        const char *comma = "";
        for (int i = 0; i < job->nmembers; i++) {
            if (job->member[i].host == h) {
                kolo_text_add(out, "%s%d", comma, job->member[i].rank);
                comma = ", ";
            }
        }
        kolo_text_add(out, "]");
    }
    kolo_text_add(out, "}");
}

static void json_issues(const struct kolo_log *log, struct kolo_text *out)
{
    const char *comma = "";
    kolo_text_add(out, ",\n \"issues\": [");
    for (const char *at = log->issues.chars; at != NULL && *at != '\0';) {
        char line[512];
        const size_t len = strcspn(at, "\n");
        memcpy(line, at, len);
        line[len] = '\0';
        json_text(comma, line, "", out);
        comma = ", ";
        at += len + 1;
    }
    kolo_text_add(out, "]");
}

static void json_number(const char *name, int value, struct kolo_text *out)
{
    kolo_text_add(out, value > 0 ? ",\n \"%s\": %d" : ",\n \"%s\": null", name, value);
}

static void json_bool(const char *name, bool value, struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"%s\": %s", name, value ? "true" : "false");
}

static void json_comms(const struct kolo_log *log, struct kolo_text *out)
{
    kolo_text_add(out, ",\n \"communicators\": [");
    for (int i = 0; i < log->ncomms; i++) {
        const struct kolo_log_comm *c = &log->comm[i];
        kolo_text_add(out, "%s{\"nranks\": %d, \"nranks_exact\": %s, \"hosts\": %d, ",
                      i > 0 ? ",\n  " : "", c->job.nranks, c->nranks_exact ? "true" : "false",
                      c->nhosts);
        kolo_text_add(out, "\"channels\": %d, \"ranks_in_log\": %d, \"complete\": %d, ",
                      c->job.nchannels, c->nmembers, c->complete);
        kolo_text_add(out, c->id != 0 ? "\"id\": \"0x%llx\"}" : "\"id\": null}",
                      (unsigned long long)c->id);
    }
    kolo_text_add(out, "]");
}

static void json_uses(unsigned uses, struct kolo_text *out)
{
    const char *comma = "";
    kolo_text_add(out, ",\n \"uses\": [");
    for (size_t i = 0; i < KOLO_LOG_USES; i++) {
        if ((uses & 1u << i) != 0) {
            json_text(comma, kolo_log_uses[i], "", out);
            comma = ", ";
        }
    }
    kolo_text_add(out, "]");
}

static void json_job(const struct kolo_log_comm *c, struct kolo_text *out)
{
    const struct kolo_job *job = &c->job;
    int ranks = 0;
    for (int i = 0; i < job->nbranches; i++) {
        ranks += job->branch[i].channel == job->branch[0].channel;
    }
    json_number("nranks", job->nranks, out);
    json_bool("nranks_exact", c->nranks_exact, out);
    json_number("host_count", c->nhosts, out);
    json_bool("host_count_exact", c->hosts_exact, out);
    json_number("channels", job->nchannels, out);
    json_bool("channels_exact", c->channels_exact, out);
    json_uses(c->uses, out);
    json_values("nnodes_localranks", &c->nodes, true, out);
    json_values("nchannels", &c->channels, false, out);
    json_values("coll_channels", &c->coll_channels, false, out);
    kolo_text_add(out, ",\n \"ranks_with_trees\": %d", ranks);
    json_hosts(job, out);
    json_rings(job, out);
    json_roots(job, out);
    json_trees(job, out);
    json_heads(&c->heads, out);
    kolo_text_add(out, ",\n \"transports\": {");
    for (int v = 0; v < job->nvias; v++) {
        int lines = 0;
        for (int i = 0; i < job->nedges; i++) {
            lines += job->edge[i].via == v;
        }
        json_text(v > 0 ? ", " : "", job->via[v], ": ", out);
        kolo_text_add(out, "%d", lines);
    }
    kolo_text_add(out, "},\n \"tree_inconsistencies\": %d", kolo_log_tree_faults(job));
}

void kolo_log_print_json(const struct kolo_log *log, struct kolo_text *out)
{
    static const struct kolo_log_comm none;
    const struct kolo_log_comm *comm = kolo_log_shown(log);
    json_text("{\"library\": ", log->library, "", out);
    if (log->version[0] != '\0') {
        json_text(",\n \"version\": ", log->version, "", out);
    } else {
        kolo_text_add(out, ",\n \"version\": null");
    }
    json_job(comm != NULL ? comm : &none, out);
    json_comms(log, out);
    json_number("shown", log->shown + 1, out);
    json_issues(log, out);
    kolo_text_add(out, "}\n");
}
