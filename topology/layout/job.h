// SPDX-License-Identifier: Apache-2.0
/* The channels of a job: rings, trees and what carries each edge. The planner makes one of a
 * machine, the log reader one of a log; text, JSON and pictures are made of it. What is unknown (a
 * log may tell of one rank alone) is not there: every list holds only what was said. */
#ifndef KOLO_TOPOLOGY_LAYOUT_JOB_H
#define KOLO_TOPOLOGY_LAYOUT_JOB_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_ring_from {
    KOLO_RING_WHOLE,   /* as it was said */
    KOLO_RING_REBUILT, /* its line was cut; the rest is from the edges */
    KOLO_RING_CUT      /* its line was cut, and nothing tells the rest */
};

struct kolo_job_ring {
    int channel;
    enum kolo_ring_from from;
    int count; /* ranks; the first follows the last */
    int *rank;
};

struct kolo_job_branch { /* a rank's place in a channel's tree */
    int channel, rank;
    int up;      /* -1: it is the root */
    int down[3]; /* -1: none; those there are stand first */
};

struct kolo_job_member {
    int rank, host; /* host: index into host[]; -1 unknown */
};

enum kolo_job_carrier { /* what a via says, in classes */
                        KOLO_CARRIER_NVLINK,
                        KOLO_CARRIER_P2P, /* PCI or NVLink: a log does not say which */
                        KOLO_CARRIER_SHM,
                        KOLO_CARRIER_NET_DIRECT, /* GPUDirect RDMA */
                        KOLO_CARRIER_NET,
                        KOLO_CARRIER_TCP,
                        KOLO_CARRIER_OTHER,
                        KOLO_CARRIERS
};

struct kolo_job_edge {
    int channel, from, to;
    int via;         /* index into via[] */
    int net;         /* NIC; -1 none or unknown */
    char way;        /* 's' the sender says it, 'r' the receiver, ' ' either */
    bool collective; /* not of send and receive */
};

struct kolo_job {
    int nranks;    /* 0: unknown */
    int nchannels; /* of rings; trees may have as many more */
    struct kolo_job_ring *ring;
    int nrings, ring_room;
    struct kolo_job_branch *branch; /* by channel, then rank */
    int nbranches, branch_room;
    struct kolo_job_member *member; /* by rank */
    int nmembers, member_room;
    struct kolo_job_edge *edge;
    int nedges, edge_room;
    char **host;
    int nhosts, host_room;
    char **via;
    int nvias, via_room;
    size_t bytes, limit; /* of memory, as in struct kolo_graph */
};

void kolo_job_free(struct kolo_job *job);

/* Each false: no memory, or beyond the limit. */
bool kolo_job_add_ring(struct kolo_job *job, int channel, const int *rank, int count);
bool kolo_job_add_branch(struct kolo_job *job, const struct kolo_job_branch *branch);
bool kolo_job_add_member(struct kolo_job *job, int rank, int host);
bool kolo_job_add_edge(struct kolo_job *job, const struct kolo_job_edge *edge);
/* The index of a host's or a carrier's name, added where it is new; -1: no memory. */
int kolo_job_host(struct kolo_job *job, const char *name);
int kolo_job_via(struct kolo_job *job, const char *name);

/* Sort branches, members and edges, and drop what was said twice. Before any question below. */
void kolo_job_sort(struct kolo_job *job);
/* NULL: nothing was said. */
const struct kolo_job_branch *kolo_job_find_branch(const struct kolo_job *job, int channel,
                                                   int rank);
const struct kolo_job_ring *kolo_job_find_ring(const struct kolo_job *job, int channel);
/* Index into host[]; -1 unknown. */
int kolo_job_host_of(const struct kolo_job *job, int rank);
enum kolo_job_carrier kolo_carrier_of(const char *via);
/* What carries an edge, of any channel if `channel` is -1; -1: nothing was said. */
int kolo_job_via_of(const struct kolo_job *job, int channel, int from, int to);
/* Channels that trees were told of. */
int kolo_job_trees(const struct kolo_job *job);
/* Longest way from the root of a channel's tree; -1: no root, or a cycle. */
int kolo_job_depth(const struct kolo_job *job, int channel);

#ifdef __cplusplus
}
#endif
#endif
