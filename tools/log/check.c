// SPDX-License-Identifier: Apache-2.0
/* Finds issues of a job's channels, one a line: facts that the log lacks, and causes of slow calls.
 */
#include "tools/log/take.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kolo_log_issue(struct kolo_log *log, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    kolo_text_add(&log->issues, "%s\n", line);
}

static void check_rings(struct kolo_log *log, const struct kolo_log_comm *comm)
{
    int rebuilt = 0, cut = 0;
    const struct kolo_job *job = &comm->job;
    for (int i = 0; i < job->nrings; i++) {
        rebuilt += job->ring[i].from == KOLO_RING_REBUILT;
        cut += job->ring[i].from == KOLO_RING_CUT;
    }
    if (rebuilt > 0) {
        kolo_log_issue(log, "%d ring line%s cut or missing: rebuilt from %s", rebuilt,
                       rebuilt == 1 ? " was" : "s were",
                       comm->nnext > 0 ? "the lines of the ranks" : "the connections");
    }
    if (cut > 0) {
        kolo_log_issue(log,
                       "%d ring line%s cut, and the connections do not tell the rest: log with "
                       "NCCL_DEBUG_SUBSYS=INIT,GRAPH on every rank",
                       cut, cut == 1 ? " is" : "s are");
    }
    if (job->nchannels > job->nrings && job->nrings > 0) {
        kolo_log_issue(log, "rings of %d of %d channels are in the log", job->nrings,
                       job->nchannels);
    }
}

/* ---- ranks ---- */

enum { NAMED = 12 }; /* ranks that a note names */

static int members_in(const struct kolo_log *log, int comm, bool complete)
{
    int count = 0;
    for (int i = 0; i < log->nmembers; i++) {
        const struct kolo_log_member *m = &log->member[i];
        count += m->set == comm && (!complete || m->complete);
    }
    return count;
}

/* " of communicator 3", if the log has several. */
static const char *name_of(const struct kolo_log *log, int comm, char out[40])
{
    out[0] = '\0';
    if (log->ncomms > 1) {
        (void)snprintf(out, 40, " of communicator %d", comm + 1);
    }
    return out;
}

/* The ranks that began and did not end the start, while others did; and those without any line. */
static void check_complete(struct kolo_log *log, int index)
{
    const struct kolo_log_comm *comm = &log->comm[index];
    struct kolo_text ranks = {0};
    char of[40];
    int missing = 0;
    for (int i = 0; i < log->nmembers; i++) {
        const struct kolo_log_member *m = &log->member[i];
        if (m->set != index || m->complete || m->rank < 0 || m->ended) {
            continue;
        }
        if (missing++ < NAMED) {
            kolo_text_add(&ranks, " %d (%s:%d)", m->rank, log->all.host[m->host], m->pid);
        }
    }
    if (missing > 0 && ranks.chars != NULL && comm->complete >= missing) {
        kolo_log_issue(log, "rank%s%s%s%s did not say Init COMPLETE: %s in the start",
                       missing == 1 ? "" : "s", ranks.chars, missing > NAMED ? " ..." : "",
                       name_of(log, index, of),
                       missing == 1 ? "it died or waits" : "they died or wait");
    } else if (comm->began > 0 && comm->complete == 0) {
        kolo_log_issue(log, "no rank%s said Init COMPLETE: the log ends, or all wait in the start",
                       name_of(log, index, of));
    } else if (missing > 0 && comm->complete > 0) {
        kolo_log_issue(log, "only %d of %d ranks%s said Init COMPLETE", comm->complete,
                       comm->job.nranks, name_of(log, index, of));
    }
    kolo_text_free(&ranks);
}

/* Ranks without a line, if they are few; then they may be what the others wait for. */
static void check_absent(struct kolo_log *log, int index)
{
    const struct kolo_log_comm *comm = &log->comm[index];
    const int n = comm->job.nranks, there = members_in(log, index, false);
    struct kolo_text ranks = {0};
    char of[40];
    int absent = 0;
    unsigned char *seen = comm->nranks_exact && there < n && there >= n - n / 4 - 1 && there > 1
                              ? calloc((size_t)n, 1)
                              : NULL;
    for (int i = 0; i < log->nmembers && seen != NULL; i++) {
        const struct kolo_log_member *m = &log->member[i];
        if (m->set == index && m->rank >= 0 && m->rank < n) {
            seen[m->rank] = 1;
        }
    }
    for (int r = 0; r < n && seen != NULL; r++) {
        if (seen[r] == 0 && absent++ < NAMED) {
            kolo_text_add(&ranks, " %d", r);
        }
    }
    if (absent > 0 && ranks.chars != NULL) {
        kolo_log_issue(
            log, "rank%s%s%s%s %s no line in the log%s", absent == 1 ? "" : "s", ranks.chars,
            absent > NAMED ? " ..." : "", name_of(log, index, of), absent == 1 ? "has" : "have",
            comm->complete == 0 && comm->began > 0 ? ": the others may wait for it" : "");
    }
    free(seen);
    kolo_text_free(&ranks);
}

static void check_ranks(struct kolo_log *log, const struct kolo_log_comm *comm)
{
    int speak = 0;
    for (int i = 0; i < log->nmembers; i++) {
        speak += &log->comm[log->member[i].set] == comm;
    }
    if (comm->nranks_exact && speak < comm->job.nranks) {
        kolo_log_issue(log,
                       "only %d of %d ranks %s in the log: trees and transports of the others "
                       "are not known",
                       speak, comm->job.nranks, speak == 1 ? "is" : "are");
    } else if (!comm->nranks_exact && comm->job.nranks > 0) {
        kolo_log_issue(log, "the number of ranks is not in the log: rank %d is the highest named",
                       comm->job.nranks - 1);
    }
}

/* ---- trees ---- */

static bool names_child(const struct kolo_job_branch *up, int rank)
{
    return up->down[0] == rank || up->down[1] == rank || up->down[2] == rank;
}

int kolo_log_tree_faults(const struct kolo_job *job)
{
    int faults = 0;
    for (int i = 0; i < job->nbranches; i++) {
        const struct kolo_job_branch *b = &job->branch[i];
        const struct kolo_job_branch *up =
            b->up >= 0 ? kolo_job_find_branch(job, b->channel, b->up) : NULL;
        faults += up != NULL && !names_child(up, b->rank);
        for (int d = 0; d < 3 && b->down[d] >= 0; d++) {
            const struct kolo_job_branch *down = kolo_job_find_branch(job, b->channel, b->down[d]);
            faults += down != NULL && down->up != b->rank;
        }
    }
    return faults;
}

static void check_trees(struct kolo_log *log, const struct kolo_log_comm *comm)
{
    const int faults = kolo_log_tree_faults(&comm->job);
    if (faults > 0) {
        kolo_log_issue(log,
                       "%d place%s in trees where parent and child disagree: the log mixes "
                       "communicators",
                       faults, faults == 1 ? "" : "s");
    }
}

/* ---- carriers ---- */

struct carriers {
    int lines[KOLO_CARRIERS];
    const struct kolo_job_edge *first[KOLO_CARRIERS];
    int within, shm_within, net_within; /* connections within a host */
    const struct kolo_job_edge *shm, *net;
};

static void count_carriers(const struct kolo_job *job, struct carriers *out)
{
    for (int i = 0; i < job->nedges; i++) {
        const struct kolo_job_edge *e = &job->edge[i];
        const enum kolo_job_carrier c = kolo_carrier_of(job->via[e->via]);
        const int host = kolo_job_host_of(job, e->from);
        out->lines[c]++;
        out->first[c] = out->first[c] == NULL ? e : out->first[c];
        if (c == KOLO_CARRIER_SHM) {
            out->shm_within++;
            out->shm = out->shm == NULL ? e : out->shm;
        }
        if (host >= 0 && host == kolo_job_host_of(job, e->to)) {
            const bool net =
                c == KOLO_CARRIER_NET || c == KOLO_CARRIER_NET_DIRECT || c == KOLO_CARRIER_TCP;
            out->within++;
            out->net_within += net;
            out->net = net && out->net == NULL ? e : out->net;
        }
    }
}

static void check_within(struct kolo_log *log, const struct kolo_job *job, const struct carriers *c)
{
    const int p2p = c->lines[KOLO_CARRIER_P2P];
    if (c->shm != NULL && p2p > 0) {
        kolo_log_issue(log,
                       "%d connection%s within a host through shared memory, such as %d -> %d, "
                       "beside %d by P2P: those GPUs cannot reach each other (other socket, ACS "
                       "or IOMMU on, or another container)",
                       c->shm_within, c->shm_within == 1 ? "" : "s", c->shm->from, c->shm->to, p2p);
    } else if (c->shm != NULL) {
        kolo_log_issue(log,
                       "all connections within a host go through shared memory, such as %d -> %d: "
                       "no GPU reaches another by P2P (NCCL_P2P_DISABLE or NCCL_P2P_LEVEL, no "
                       "NVLink, ACS or IOMMU on)",
                       c->shm->from, c->shm->to);
    }
    if (c->net != NULL) {
        kolo_log_issue(log,
                       "%s connections within a host go over the network, such as %d -> %d via "
                       "%s: neither P2P nor shared memory joins those GPUs (NCCL_P2P_DISABLE, "
                       "NCCL_SHM_DISABLE, containers with their own /dev/shm)",
                       c->net_within == c->within ? "all" : "some", c->net->from, c->net->to,
                       job->via[c->net->via]);
    }
}

static void check_carriers(struct kolo_log *log, const struct kolo_log_comm *comm)
{
    const struct kolo_job *job = &comm->job;
    struct carriers c = {0};
    count_carriers(job, &c);
    const struct kolo_job_edge *plain = c.first[KOLO_CARRIER_NET];
    if (plain != NULL) {
        kolo_log_issue(log,
                       "%d network connection%s without GPUDirect RDMA, such as %d -> %d via "
                       "%s: data is copied through host memory (is nvidia-peermem or dma-buf "
                       "there, and the NIC under the GPU's switch?)",
                       c.lines[KOLO_CARRIER_NET], c.lines[KOLO_CARRIER_NET] == 1 ? "" : "s",
                       plain->from, plain->to, job->via[plain->via]);
    }
    if (strcmp(log->library, "KOLO") == 0) {
        return; /* its ranks are on CPUs */
    }
    if (c.lines[KOLO_CARRIER_TCP] > 0 &&
        c.lines[KOLO_CARRIER_NET] + c.lines[KOLO_CARRIER_NET_DIRECT] == 0) {
        kolo_log_issue(log, "all of the network is plain sockets: no RDMA device was used");
    }
    check_within(log, job, &c);
}

/* Count the edges of each NIC number. Hosts are assumed to be alike. */
static void check_nics(struct kolo_log *log, const struct kolo_log_comm *comm)
{
    enum { NICS = 64 };
    const struct kolo_job *job = &comm->job;
    int count[NICS] = {0}, used = 0, least = -1, most = -1;
    struct kolo_text list = {0};
    for (int i = 0; i < job->nedges; i++) {
        if (job->edge[i].net >= 0 && job->edge[i].net < NICS && job->edge[i].way == 's') {
            count[job->edge[i].net]++;
        }
    }
    for (int i = 0; i < NICS; i++) {
        if (count[i] > 0) {
            used++;
            least = least < 0 || count[i] < count[least] ? i : least;
            most = most < 0 || count[i] > count[most] ? i : most;
            kolo_text_add(&list, " %d:%d", i, count[i]);
        }
    }
    if (used > 1 && count[most] != count[least] && list.chars != NULL) {
        kolo_log_issue(log, "NICs are used unequally (NIC:connections that send)%.200s",
                       list.chars);
    }
    kolo_text_free(&list);
}

static void check_kinds(struct kolo_log *log)
{
    for (const char *at = log->kinds.chars; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        kolo_log_issue(log, "%.*s", (int)len, at);
        at += len + 1;
    }
}

void kolo_log_check(struct kolo_log *log)
{
    const struct kolo_log_comm *comm = kolo_log_shown(log);
    check_kinds(log);
    if (log->own_lines == 0) {
        kolo_log_issue(log,
                       "no line of NCCL, RCCL or kolo is in the log: run with NCCL_DEBUG=INFO");
        return;
    }
    kolo_log_check_faults(log);
    if (comm == NULL) {
        kolo_log_issue(log, "no communicator is in the log: it ends before, or was filtered");
        return;
    }
    for (int i = 0; i < log->ncomms && i < 64; i++) {
        check_complete(log, i);
        check_absent(log, i);
    }
    check_rings(log, comm);
    check_ranks(log, comm);
    check_trees(log, comm);
    check_carriers(log, comm);
    check_nics(log, comm);
}
