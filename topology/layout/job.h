// SPDX-License-Identifier: Apache-2.0
/* The channels of a job: its rings, its trees and the carrier of each edge. The planner makes a job
 * from a machine, the log reader from a log. Text, JSON and pictures are made from a job. A log may
 * cover one rank only, so every list holds only the facts that its source states. */
#ifndef KOLO_TOPOLOGY_LAYOUT_JOB_H
#define KOLO_TOPOLOGY_LAYOUT_JOB_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_ring_from {
    KOLO_RING_WHOLE,   /* complete in the source */
    KOLO_RING_REBUILT, /* its line was cut; the edges gave the rest */
    KOLO_RING_CUT      /* its line was cut, and the rest is unknown */
};

struct kolo_job_ring {
    int channel;
    enum kolo_ring_from from;
    int count; /* of ranks; the first rank follows the last */
    int *rank;
};

struct kolo_job_branch { /* a rank's place in a channel's tree */
    int channel, rank;
    int up;      /* -1: it is the root */
    int down[3]; /* -1: none; present children come first */
};

struct kolo_job_member {
    int rank, host; /* host: index into host[]; -1 unknown */
};

enum kolo_job_carrier { /* the class of an edge's via */
                        KOLO_CARRIER_NVLINK,
                        KOLO_CARRIER_P2P, /* PCI or NVLink: a log does not tell */
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
    char way;        /* source: 's' the sender, 'r' the receiver, ' ' either */
    bool collective; /* for collectives, not for send and receive */
};

struct kolo_job {
    int nranks;    /* 0: unknown */
    int nchannels; /* channels with rings; trees may have as many again */
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
    size_t bytes, limit; /* memory, as in struct kolo_graph */
};

void kolo_job_free(struct kolo_job *job);

/* Add to a list. False: no memory, or beyond the limit. */
bool kolo_job_add_ring(struct kolo_job *job, int channel, const int *rank, int count);
bool kolo_job_add_branch(struct kolo_job *job, const struct kolo_job_branch *branch);
bool kolo_job_add_member(struct kolo_job *job, int rank, int host);
bool kolo_job_add_edge(struct kolo_job *job, const struct kolo_job_edge *edge);
/* The index of a host's or a via's name; a new name is added. -1: no memory. */
int kolo_job_host(struct kolo_job *job, const char *name);
int kolo_job_via(struct kolo_job *job, const char *name);

/* Sort the lists, hosts by their lowest rank, and drop duplicates. Call it before any function
 * below. */
void kolo_job_sort(struct kolo_job *job);
/* NULL: the source has no such branch, or no such ring. */
const struct kolo_job_branch *kolo_job_find_branch(const struct kolo_job *job, int channel,
                                                   int rank);
const struct kolo_job_ring *kolo_job_find_ring(const struct kolo_job *job, int channel);
/* Whether two rings are the same cycle, wherever their lists begin. */
bool kolo_ring_same(const struct kolo_job_ring *a, const struct kolo_job_ring *b);
/* A rank's index into host[]; -1 unknown. */
int kolo_job_host_of(const struct kolo_job *job, int rank);
enum kolo_job_carrier kolo_carrier_of(const char *via);
/* The via of an edge in this channel (-1: any channel), as an index into via[]; -1 unknown. */
int kolo_job_via_of(const struct kolo_job *job, int channel, int from, int to);
/* Number of channels with known trees. */
int kolo_job_trees(const struct kolo_job *job);
/* Depth of a channel's tree; -1: no root, or a cycle. */
int kolo_job_depth(const struct kolo_job *job, int channel);

#ifdef __cplusplus
}
#endif
#endif
