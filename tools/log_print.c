// SPDX-License-Identifier: Apache-2.0
/* Prints a parsed log for people and as JSON. */
#include "log.h"
#include "topology/machine/graph.h"
#include "util/escape.h"

#include <string.h>

/* ---- text ---- */

static void add_ring(const struct kolo_job_ring *ring, struct kolo_text *out)
{
    static const char *const from[] = {"", "  (rebuilt)", "  (cut)"};
    for (int i = 0; i < ring->count; i++) {
        kolo_text_add(out, "%s%d", i > 0 ? " " : "", ring->rank[i]);
    }
    kolo_text_add(out, "%s\n", from[ring->from]);
}

static bool same_ring(const struct kolo_job_ring *a, const struct kolo_job_ring *b)
{
    return a->count == b->count &&
           memcmp(a->rank, b->rank, (size_t)a->count * sizeof a->rank[0]) == 0;
}

/* Channels with the same ring share a line. */
static void add_rings(const struct kolo_job *job, struct kolo_text *out)
{
    for (int i = 0; i < job->nrings; i++) {
        bool first = true;
        for (int j = 0; j < i; j++) {
            first = first && !same_ring(&job->ring[j], &job->ring[i]);
        }
        if (!first) {
            continue;
        }
        kolo_text_add(out, "  ring of channel %d", job->ring[i].channel);
        for (int j = i + 1; j < job->nrings; j++) {
            if (same_ring(&job->ring[i], &job->ring[j])) {
                kolo_text_add(out, ",%d", job->ring[j].channel);
            }
        }
        kolo_text_add(out, ": ");
        add_ring(&job->ring[i], out);
    }
}

static void add_trees(const struct kolo_job *job, struct kolo_text *out)
{
    for (int c = 0; c < kolo_job_trees(job); c++) {
        int members = 0;
        kolo_text_add(out, "  tree of channel %d: root", c);
        for (int i = 0; i < job->nbranches; i++) {
            const struct kolo_job_branch *b = &job->branch[i];
            members += b->channel == c;
            if (b->channel == c && b->up < 0) {
                kolo_text_add(out, " %d", b->rank);
            }
        }
        const int depth = kolo_job_depth(job, c);
        kolo_text_add(out, depth >= 0 ? ", depth %d" : " not in the log", depth);
        kolo_text_add(out, ", %d ranks\n", members);
    }
}

static int lines_of(const struct kolo_job *job, int via)
{
    int lines = 0;
    for (int i = 0; i < job->nedges; i++) {
        lines += job->edge[i].via == via;
    }
    return lines;
}

void kolo_log_print_text(const struct kolo_log *log, struct kolo_text *out)
{
    const struct kolo_job *job = &log->job;
    kolo_text_add(out, "%s %s: %d ranks", log->library[0] != '\0' ? log->library : "no library",
                  log->version[0] != '\0' ? log->version : "(version not in the log)", job->nranks);
    kolo_text_add(out, " on %d host%s, %d channels\n", job->nhosts, job->nhosts == 1 ? "" : "s",
                  job->nchannels);
    for (int h = 0; h < job->nhosts; h++) {
        kolo_text_add(out, "  host %s:", job->host[h]);
        for (int i = 0; i < job->nmembers; i++) {
            if (job->member[i].host == h) {
                kolo_text_add(out, " %d", job->member[i].rank);
            }
        }
        kolo_text_add(out, "\n");
    }
    add_rings(job, out);
    add_trees(job, out);
    for (int v = 0; v < job->nvias; v++) {
        kolo_text_add(out, "  via %s: %d lines\n", job->via[v], lines_of(job, v));
    }
    for (const char *at = log->issues.chars; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        kolo_text_add(out, "  note: %.*s\n", (int)len, at);
        at += len + 1;
    }
}

/* ---- JSON ---- */

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

void kolo_log_print_json(const struct kolo_log *log, struct kolo_text *out)
{
    const struct kolo_job *job = &log->job;
    int ranks = 0;
    for (int i = 0; i < job->nbranches; i++) {
        ranks += job->branch[i].channel == job->branch[0].channel;
    }
    json_text("{\"library\": ", log->library, "", out);
    if (log->version[0] != '\0') {
        json_text(",\n \"version\": ", log->version, "", out);
    } else {
        kolo_text_add(out, ",\n \"version\": null");
    }
    kolo_text_add(out, ",\n \"nranks\": %d", job->nranks);
    json_values("nnodes_localranks", &log->nodes, true, out);
    json_values("nchannels", &log->channels, false, out);
    json_values("coll_channels", &log->coll_channels, false, out);
    kolo_text_add(out, ",\n \"ranks_with_trees\": %d", ranks);
    json_hosts(job, out);
    json_rings(job, out);
    json_roots(job, out);
    json_trees(job, out);
    json_heads(&log->heads, out);
    kolo_text_add(out, ",\n \"transports\": {");
    for (int v = 0; v < job->nvias; v++) {
        json_text(v > 0 ? ", " : "", job->via[v], ": ", out);
        kolo_text_add(out, "%d", lines_of(job, v));
    }
    kolo_text_add(out, "},\n \"tree_inconsistencies\": %d", kolo_log_tree_faults(job));
    json_issues(log, out);
    kolo_text_add(out, "}\n");
}
