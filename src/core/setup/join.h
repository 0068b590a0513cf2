// SPDX-License-Identifier: Apache-2.0
/* The rounds in which a communicator comes up: each rank makes a blob, all get everybody's. */
#ifndef KOLO_CORE_SETUP_JOIN_H
#define KOLO_CORE_SETUP_JOIN_H

#include "boot/bootstrap.h"
#include "core/agree/links.h"
#include "core/comm.h"
#include "core/health/life.h"
#include "core/link/board_join.h"
#include "core/link/open.h"

struct kolo_hello {
    uint32_t magic, version;
    int32_t rank, pid;
    uint64_t host, process;
    uint64_t cores;                     /* equal where ranks may use the same ones */
    uint64_t pid_space;                 /* the PID namespace of `pid` */
    unsigned char life[KOLO_LIFE_NAME]; /* the socket that ends with the process; zeros: none */
    struct kolo_place place;
    uint32_t deterministic;
    int32_t epoch;                      /* kolo_meet.epoch; the highest one holds */
    uint64_t rules, transports, groups; /* hashes of the texts that all ranks must share */
    uint64_t codec_rule;                /* enum kolo_codec_rule */
    uint64_t gpu;                       /* bus address; KOLO_BUS_NONE: it is on none */
    uint64_t machine; /* of the graph that KOLO_TOPO_FILE describes; 0: none, or no GPUs */
    uint64_t salt;    /* rank 0's makes the communicator's id */
    unsigned char key[KOLO_SECRET_BYTES]; /* rank 0's makes its secret */
};
enum { HELLO_MAGIC = 0x6b6f6c6f };

struct kolo_address {
    struct kolo_link_address links;
    struct kolo_inet reserved; /* where this rank would listen as the first of those that shrink */
    struct kolo_agree_address agree;
};

struct kolo_ready {
    unsigned char region[KOLO_HANDLE_BYTES];
    struct kolo_costs costs;
    int32_t mapper;    /* index of the transport that made the region */
    uint32_t maps_all; /* by that transport this rank maps every other's, of other processes all */
    struct kolo_board_offer board; /* of its host's members */
    /* Rank 0: bytes of the table's text, with its end; or of what is wrong with it. 0: no table. */
    uint32_t table_bytes;
    int32_t table_status;
};

/* core/options.c: what the caller gave, else the environment, else the default; checked. */
kolo_status kolo_comm_configure(struct kolo_comm *c, const struct kolo_config *given);
/* The time-out alone. */
kolo_status kolo_options_timeout(const struct kolo_config *given, int *out);

/* Round 1: who and where; then the order of the ring and the groups are known. */
kolo_status kolo_hello_make(struct kolo_comm *c, struct kolo_hello *out);
kolo_status kolo_hello_take(struct kolo_comm *c, const struct kolo_hello *all);
/* Round 2: transports open; then each peer has the one that reaches it best. */
kolo_status kolo_address_make(struct kolo_comm *c, struct kolo_address *out);
kolo_status kolo_address_take(struct kolo_comm *c, const struct kolo_address *all);
/* Round 3: regions, rank 0's costs and table; then calls can be chosen. */
kolo_status kolo_ready_make(struct kolo_comm *c, struct kolo_ready *out);
kolo_status kolo_ready_take(struct kolo_comm *c, const struct kolo_ready *all);

/* layout_file.c: the machine that KOLO_TOPO_FILE names, if it has GPUs, and its hash, or 0. */
kolo_status kolo_rings_plan(struct kolo_comm *c, uint64_t *hash_out);
/* Where each host has as many ranks as that machine has GPUs: c->order becomes its rings. */
kolo_status kolo_rings_lay(struct kolo_comm *c);

/* layout_live.c: the bus address of the GPU that config.device names; KOLO_BUS_NONE: host memory.
 */
uint64_t kolo_layout_live_gpu(const struct kolo_comm *c);
/* Whether every rank is on a GPU, and some host's ranks are on several; all ranks find the same. */
bool kolo_layout_live_is_wanted(const struct kolo_comm *c);
/* If so: rank 0 plans on the GPUs of its machine that ranks are on, and all get its plan and what
 * joins these GPUs; without a plan, kolo_rings_lay(). Errors: SYSTEM, and those of the meeting. */
kolo_status kolo_layout_live_lay(struct kolo_comm *c, struct kolo_boot *boot);

/* tune_table.c: rank 0 finds and reads the table, of which `out` tells; all take its text. */
void kolo_table_make(struct kolo_comm *c, const struct kolo_host *host, struct kolo_ready *out);
kolo_status kolo_table_take(struct kolo_comm *c, const struct kolo_ready *first, const char *text);

/* log.c: lines in NCCL's form; at[]: times of start, meeting, addresses, regions, end (us). */
void kolo_log_start(const struct kolo_comm *c);
void kolo_log_done(const struct kolo_comm *c, const double at[5]);

#endif
