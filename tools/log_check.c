// SPDX-License-Identifier: Apache-2.0
/* Finds issues of a job's channels, one a line: facts that the log lacks, and causes of slow calls.
 */
#include "log.h"

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
    log->nissues++;
    kolo_text_add(&log->issues, "%s\n", line);
}

static void check_rings(struct kolo_log *log)
{
    int rebuilt = 0, cut = 0, wrong = 0;
    const struct kolo_job *job = &log->job;
    for (int i = 0; i < job->nrings; i++) {
        rebuilt += job->ring[i].from == KOLO_RING_REBUILT;
        cut += job->ring[i].from == KOLO_RING_CUT;
        wrong += job->ring[i].count > job->nranks;
    }
    if (rebuilt > 0) {
        kolo_log_issue(log, "%d ring line%s cut or missing: rebuilt from the connections", rebuilt,
                       rebuilt == 1 ? " was" : "s were");
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
    if (wrong > 0 || log->nranks.count > 1) {
        kolo_log_issue(log,
                       "the log holds communicators of several sizes; shown is the largest, of "
                       "%d ranks",
                       job->nranks);
    }
}

/* Report that the log lacks ranks, by their trees or by their end of initialisation. */
static void check_ranks(struct kolo_log *log)
{
    const struct kolo_job *job = &log->job;
    int spoke = 0;
    for (int i = 0; i < job->nbranches; i++) {
        spoke += i == 0 || job->branch[i].channel == job->branch[0].channel;
    }
    if (spoke > 0 && spoke < job->nranks) {
        kolo_log_issue(log,
                       "only %d of %d ranks are in the log: trees and transports of the others "
                       "are not known",
                       spoke, job->nranks);
    }
    if (log->init_complete > 0 && log->init_complete < job->nranks && spoke == job->nranks &&
        log->nranks.count == 1) {
        kolo_log_issue(log, "only %d of %d ranks said Init COMPLETE", log->init_complete,
                       job->nranks);
    }
}

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

static void check_trees(struct kolo_log *log)
{
    const int faults = kolo_log_tree_faults(&log->job);
    if (faults > 0) {
        kolo_log_issue(log,
                       "%d places in trees where parent and child disagree: the log mixes "
                       "communicators",
                       faults);
    }
}

static void check_carriers(struct kolo_log *log)
{
    const struct kolo_job *job = &log->job;
    int lines[KOLO_CARRIERS] = {0};
    const struct kolo_job_edge *shm = NULL, *plain = NULL;
    for (int i = 0; i < job->nedges; i++) {
        const enum kolo_job_carrier c = kolo_carrier_of(job->via[job->edge[i].via]);
        lines[c]++;
        shm = c == KOLO_CARRIER_SHM && shm == NULL ? &job->edge[i] : shm;
        plain = c == KOLO_CARRIER_NET && plain == NULL ? &job->edge[i] : plain;
    }
    if (plain != NULL) {
        kolo_log_issue(log,
                       "%d network connections without GPUDirect RDMA, such as %d -> %d via "
                       "%s: data is copied through host memory (is nvidia-peermem or dma-buf "
                       "there, and the NIC under the GPU's switch?)",
                       lines[KOLO_CARRIER_NET], plain->from, plain->to, job->via[plain->via]);
    }
    if (lines[KOLO_CARRIER_TCP] > 0 &&
        lines[KOLO_CARRIER_NET] + lines[KOLO_CARRIER_NET_DIRECT] == 0 &&
        strcmp(log->library, "KOLO") != 0) {
        kolo_log_issue(log, "all of the network is plain sockets: no RDMA device was used");
    }
    if (shm != NULL && lines[KOLO_CARRIER_P2P] > 0) {
        kolo_log_issue(log,
                       "%d connections within a host through shared memory, such as %d -> %d, "
                       "beside %d by P2P: those GPUs cannot reach each other (other socket, ACS "
                       "or IOMMU on, or another container)",
                       lines[KOLO_CARRIER_SHM], shm->from, shm->to, lines[KOLO_CARRIER_P2P]);
    }
}

/* Count the edges of each NIC number. Hosts are assumed to be alike. */
static void check_nics(struct kolo_log *log)
{
    enum { NICS = 64 };
    const struct kolo_job *job = &log->job;
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

void kolo_log_check(struct kolo_log *log)
{
    if (log->own_lines == 0) {
        kolo_log_issue(log,
                       "no line of NCCL, RCCL or kolo is in the log: run with NCCL_DEBUG=INFO");
        return;
    }
    check_rings(log);
    check_ranks(log);
    check_trees(log);
    check_carriers(log);
    check_nics(log);
    if (log->warn_lines > 0) {
        kolo_log_issue(log, "%d line%s a warning", log->warn_lines,
                       log->warn_lines == 1 ? " is" : "s are");
    }
}
