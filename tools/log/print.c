// SPDX-License-Identifier: Apache-2.0
/* Prints a parsed log for people. Equal things share a line; what the log does not tell is unknown,
 * or "at least". */
#include "tools/log/log.h"
#include "topology/machine/graph.h"

#include <stdio.h>
#include <string.h>

/* ---- numbers ---- */

/* "2 hosts", "at least 1 host", "hosts unknown" */
static void add_count(struct kolo_text *out, const char *before, int count, bool exact,
                      const char *word)
{
    if (count > 0) {
        kolo_text_add(out, "%s%s%d %s%s", before, exact ? "" : "at least ", count, word,
                      count == 1 ? "" : "s");
    } else {
        kolo_text_add(out, "%s%ss unknown", before, word);
    }
}

static void add_size(const struct kolo_log_comm *c, struct kolo_text *out)
{
    add_count(out, "", c->job.nranks, c->nranks_exact, "rank");
    add_count(out, c->nhosts > 0 ? " on " : ", ", c->nhosts, c->hosts_exact, "host");
    add_count(out, ", ", c->job.nchannels, c->channels_exact, "channel");
}

/* A list as it grows: "0-3,7". Numbers rise. */
struct list {
    int first, last, count;
};

static void add_run(const struct list *l, bool more, struct kolo_text *out)
{
    if (l->count == 0) {
        return;
    }
    kolo_text_add(out,
                  l->last == l->first       ? "%d"
                  : l->last == l->first + 1 ? "%d,%d"
                                            : "%d-%d",
                  l->first, l->last);
    kolo_text_add(out, "%s", more ? "," : "");
}

static void add_number(struct list *l, int number, struct kolo_text *out)
{
    if (l->count == 0 || number != l->last + 1) {
        add_run(l, true, out);
        l->first = number;
    }
    l->last = number;
    l->count++;
}

/* ---- communicators ---- */

static bool same_size(const struct kolo_log_comm *a, const struct kolo_log_comm *b)
{
    return a->job.nranks == b->job.nranks && a->nranks_exact == b->nranks_exact &&
           a->nhosts == b->nhosts && a->hosts_exact == b->hosts_exact &&
           a->job.nchannels == b->job.nchannels && a->channels_exact == b->channels_exact;
}

enum { SINGLE = 8 }; /* up to this many communicators have a line each */

static void add_comms(const struct kolo_log *log, struct kolo_text *out)
{
    if (log->ncomms < 2) {
        return;
    }
    kolo_text_add(out, "  shown is communicator %d of %d (--comm N shows another):\n",
                  log->shown + 1, log->ncomms);
    for (int i = 0; i < log->ncomms;) {
        int end = i + 1;
        while (log->ncomms > SINGLE && end < log->ncomms &&
               same_size(&log->comm[i], &log->comm[end])) {
            end++;
        }
        kolo_text_add(out, end > i + 1 ? "    %d-%d: " : "    %d: ", i + 1, end);
        add_size(&log->comm[i], out);
        kolo_text_add(out, "%s", end > i + 1 ? " each" : "");
        if (end == i + 1 && log->comm[i].id != 0) {
            kolo_text_add(out, ", commId 0x%llx", (unsigned long long)log->comm[i].id);
        }
        kolo_text_add(out, "\n");
        i = end;
    }
}

static void add_uses(const struct kolo_log_comm *c, struct kolo_text *out)
{
    const char *between = "  uses ";
    for (size_t i = 0; i < KOLO_LOG_USES; i++) {
        if ((c->uses & 1u << i) != 0) {
            kolo_text_add(out, "%s%s", between, kolo_log_uses[i]);
            between = ", ";
        }
    }
    kolo_text_add(out, "%s", c->uses != 0 ? "\n" : "");
    for (int i = 0; i < c->heads.count; i++) {
        const bool begins = i == 0 || c->heads.value[i - 1][0] != c->heads.value[i][0];
        kolo_text_add(out,
                      i == 0   ? "  NVLS heads %d"
                      : begins ? "; %d"
                               : " %d",
                      c->heads.value[i][1]);
    }
    kolo_text_add(out, "%s", c->heads.count > 0 ? "\n" : "");
}

static void add_hosts(const struct kolo_job *job, struct kolo_text *out)
{
    for (int h = 0; h < job->nhosts; h++) {
        kolo_text_add(out, "  host %s:", job->host[h]);
        int ranks = 0;
        for (int i = 0; i < job->nmembers; i++) {
            if (job->member[i].host == h) {
                kolo_text_add(out, " %d", job->member[i].rank);
                ranks++;
            }
        }
        kolo_text_add(out, "%s\n", ranks == 0 ? " ranks unknown" : "");
    }
}

/* ---- rings ---- */

static void add_ring(const struct kolo_job_ring *ring, struct kolo_text *out)
{
    static const char *const from[] = {"", "  (rebuilt)", "  (cut)"};
    int low = 0;
    for (int i = 1; i < ring->count && ring->from != KOLO_RING_CUT; i++) {
        low = ring->rank[i] < ring->rank[low] ? i : low;
    }
    for (int i = 0; i < ring->count; i++) {
        kolo_text_add(out, "%s%d", i > 0 ? " " : "", ring->rank[(low + i) % ring->count]);
    }
    kolo_text_add(out, "%s\n", from[ring->from]);
}

/* Channels with the same ring share a line, wherever the ring begins. */
static void add_rings(const struct kolo_job *job, struct kolo_text *out)
{
    for (int i = 0; i < job->nrings; i++) {
        struct list channels = {0};
        int same = 0;
        bool first = true;
        for (int j = 0; j < i && first; j++) {
            first = !kolo_ring_same(&job->ring[j], &job->ring[i]);
        }
        if (!first) {
            continue;
        }
        for (int j = i; j < job->nrings; j++) {
            same += kolo_ring_same(&job->ring[i], &job->ring[j]);
        }
        kolo_text_add(out, "  ring of channel%s ", same == 1 ? "" : "s");
        for (int j = i; j < job->nrings; j++) {
            if (kolo_ring_same(&job->ring[i], &job->ring[j])) {
                add_number(&channels, job->ring[j].channel, out);
            }
        }
        add_run(&channels, false, out);
        kolo_text_add(out, ": ");
        add_ring(&job->ring[i], out);
    }
}

/* ---- trees ---- */

struct shape {
    int channel, ranks, depth, leaves, forks, roots, root;
};

/* The shape of the tree whose branches begin at `first`. Returns the begin of the next tree. */
static int find_shape(const struct kolo_job *job, int first, struct shape *out)
{
    int i = first;
    *out = (struct shape){.channel = job->branch[first].channel, .root = -1};
    for (; i < job->nbranches && job->branch[i].channel == out->channel; i++) {
        const struct kolo_job_branch *b = &job->branch[i];
        out->ranks++;
        out->leaves += b->down[0] < 0;
        out->forks += b->down[1] >= 0;
        if (b->up < 0) {
            out->root = out->roots++ == 0 ? b->rank : out->root;
        }
    }
    out->depth = kolo_job_depth(job, out->channel);
    return i;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->ranks == b->ranks && a->depth == b->depth && a->leaves == b->leaves &&
           a->forks == b->forks && a->roots == b->roots;
}

enum { TREES = 64 };

static void add_shape(const struct kolo_log_comm *c, const struct shape *all, int count, int which,
                      struct kolo_text *out)
{
    const struct shape *s = &all[which];
    struct list channels = {0};
    int same = 0;
    bool one_root = true;
    for (int i = which; i < count; i++) {
        if (same_shape(&all[i], s)) {
            same++;
            one_root = one_root && all[i].root == s->root;
        }
    }
    kolo_text_add(out, same == 1 ? "  tree of channel " : "  trees of channels ");
    for (int i = which; i < count; i++) {
        if (same_shape(&all[i], s)) {
            add_number(&channels, all[i].channel, out);
        }
    }
    add_run(&channels, false, out);
    kolo_text_add(out, s->roots == 0 ? ": root not in the log" : one_root ? ": root" : ": roots");
    for (int i = which; i < count && s->roots > 0; i++) {
        if (i == which || (!one_root && same_shape(&all[i], s))) {
            kolo_text_add(out, " %d", all[i].root);
        }
    }
    if (s->ranks == c->job.nranks && s->depth >= 0) {
        kolo_text_add(out, ", depth %d", s->depth);
        add_count(out, ", ", s->ranks, true, "rank");
    } else {
        kolo_text_add(out, ", %d of %s%d rank%s in the log", s->ranks,
                      c->nranks_exact ? "" : "at least ", c->job.nranks,
                      c->job.nranks == 1 ? "" : "s");
    }
    kolo_text_add(out, "\n");
}

static void add_trees(const struct kolo_log_comm *c, struct kolo_text *out)
{
    struct shape all[TREES];
    int count = 0;
    for (int i = 0; i < c->job.nbranches && count < TREES;) {
        i = find_shape(&c->job, i, &all[count]);
        count++;
    }
    for (int i = 0; i < count; i++) {
        bool first = true;
        for (int j = 0; j < i && first; j++) {
            first = !same_shape(&all[j], &all[i]);
        }
        if (first) {
            add_shape(c, all, count, i, out);
        }
    }
}

/* ---- all ---- */

static void add_vias(const struct kolo_job *job, struct kolo_text *out)
{
    for (int v = 0; v < job->nvias; v++) {
        int lines = 0;
        for (int i = 0; i < job->nedges; i++) {
            lines += job->edge[i].via == v;
        }
        kolo_text_add(out, "  via %s: %d line%s\n", job->via[v], lines, lines == 1 ? "" : "s");
    }
}

static void add_lines(const char *title, const char *lines, bool apart, struct kolo_text *out)
{
    const char *between = title;
    for (const char *at = lines; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        kolo_text_add(out, "%s%.*s%s", between, (int)len, at, apart ? "\n" : "");
        between = apart ? title : " ";
        at += len + 1;
    }
    kolo_text_add(out, "%s", !apart && between != title ? "\n" : "");
}

void kolo_log_print_text(const struct kolo_log *log, struct kolo_text *out)
{
    const struct kolo_log_comm *c = kolo_log_shown(log);
    kolo_text_add(out, "%s %s: ", log->library[0] != '\0' ? log->library : "no library",
                  log->version[0] != '\0' ? log->version : "(version not in the log)");
    if (c == NULL) {
        kolo_text_add(out, "ranks unknown, hosts unknown, channels unknown\n");
    } else {
        add_size(c, out);
        kolo_text_add(out, "\n");
        add_comms(log, out);
        add_uses(c, out);
        add_hosts(&c->job, out);
        add_rings(&c->job, out);
        add_trees(c, out);
        add_vias(&c->job, out);
    }
    add_lines("  environment: ", log->settings.chars, false, out);
    add_lines("  note: ", log->issues.chars, true, out);
}
