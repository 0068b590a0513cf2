// SPDX-License-Identifier: Apache-2.0
/* A worker: one rank of one method of `compare`, the program that measures kolo beside its peers.
 *
 *   worker.c  the conversation with the driver, the clock     team.c  the ranks' shared memory
 *   point.c   counts, inputs, expected results                sum.h   loops that add
 *   kolo.c mpi.c torch_ops.py floor.c                         one file a method
 *
 * The driver (compare.py) listens on a UNIX socket. A worker connects, gets a descriptor of memory
 * that the ranks of its method share, joins its ranks, and then sleeps in a read. The driver sends
 * commands to one method at a time, one a line:
 *
 *   open COLLECTIVE BYTES TYPE SHARED REWRITTEN   allocate, call once and check, find the speed;
 *                                                 answer: opened WRONG NS_A_CALL | unsupported WHY
 *   run CALLS      two calls, then CALLS timed ones; answer: time BEGIN_NS END_NS KEPT_WAITING_NS
 *   close          free the buffers; answer: closed
 *   quit           leave */
#ifndef KOLO_COMPARE_WORKER_H
#define KOLO_COMPARE_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COMPARE_RANKS_MAX = 64, COMPARE_LINE_BYTES = 128 };

enum compare_collective {
    COMPARE_ALL_REDUCE,
    COMPARE_REDUCE,
    COMPARE_BROADCAST,
    COMPARE_ALL_GATHER,
    COMPARE_REDUCE_SCATTER,
    COMPARE_ALL_TO_ALL,
    COMPARE_GATHER,
    COMPARE_SCATTER,
    COMPARE_BARRIER,
    COMPARE_HANDOVER, /* no collective: ranks of one core wake each other in turn; floor.c */
    COMPARE_COLLECTIVES
};

enum compare_type {
    COMPARE_FLOAT32,
    COMPARE_FLOAT64,
    COMPARE_FLOAT16,
    COMPARE_BFLOAT16,
    COMPARE_INT8,
    COMPARE_INT32,
    COMPARE_INT64,
    COMPARE_TYPES
};

/* ---- the ranks of one method (team.c) ---- */

struct compare_flag {
    _Alignas(COMPARE_LINE_BYTES) _Atomic uint32_t word;
};

struct compare_page { /* shared by the ranks; one writer per field */
    struct compare_flag arrived[COMPARE_RANKS_MAX];
    _Alignas(COMPARE_LINE_BYTES) uint64_t decision; /* rank 0's, read after a barrier */
};

struct compare_team {
    int rank, nranks, cores;
    int memory; /* descriptor of the shared memory */
    uint32_t barriers;
    struct compare_page *page;
};

/* Map the page of `memory`. False with a line on stderr. */
bool compare_team_join(struct compare_team *team, int memory);
/* Spin, then yield, then nap: the ranks come from a sleep at about the same time. */
void compare_team_barrier(struct compare_team *team);
/* Give rank 0's value to every rank. Collective. */
uint64_t compare_team_decide(struct compare_team *team, uint64_t value);
/* Map zeroed memory that starts `at` bytes behind the page, the same on all ranks. NULL: no memory.
 * Collective. */
void *compare_team_map(struct compare_team *team, size_t at, size_t bytes);
/* Give back the memory from `at` bytes behind the page on. Collective. */
void compare_team_unmap(struct compare_team *team, void *base, size_t at, size_t bytes);

/* ---- the call under test (point.c) ---- */

struct compare_point {
    enum compare_collective collective;
    enum compare_type type;
    int rank, nranks, root;
    size_t count; /* the call's argument, in elements */
    size_t elem_bytes;
    size_t send_elems, recv_elems; /* of this rank */
    bool shared;                   /* buffers that peers can map, if the method has them */
    bool rewritten;                /* inputs are stored again before each call */
    /* Broadcast is in place, send == recv, as in MPI and PyTorch. */
    void *send, *recv;
};

/* Compute the counts of a call of `bytes`, the larger of a rank's sent and received bytes. Each
 * block has at least one element. False: a name is unknown. */
bool compare_point_parse(const char *collective, const char *type, size_t bytes,
                         struct compare_point *point);
bool compare_reduces(enum compare_collective collective);
/* Fill send with inputs, and recv with values that no result has. */
void compare_point_fill(const struct compare_point *point);
/* Number of wrong elements in recv. */
uint64_t compare_point_wrong(const struct compare_point *point);

/* Store once into each cache line of the input, so that the lines leave other cores' caches. The
 * stored value is the present one. Elements at the start of all lines hold the same value, so
 * nothing is loaded. */
void compare_point_rewrite(const struct compare_point *point);

/* ---- a method ---- */

struct compare_method {
    /* Join the ranks; `version` gets a name and a number. False with a line on stderr. */
    bool (*start)(struct compare_team *team, char *version, size_t cap);
    /* Prepare a point; nothing runs on any rank. Returns NULL, or the reason why the point cannot
     * be run, the same on every rank. */
    const char *(*prepare)(const struct compare_point *point);
    /* Give a point memory that peers can map. NULL: the method has no such memory. Collective. */
    bool (*share)(struct compare_point *point);
    void (*unshare)(struct compare_point *point);
    bool (*call)(const struct compare_point *point);
    /* Runs after the last call, so that no rank sleeps while another needs it. NULL: not needed. */
    bool (*settle)(void);
    void (*stop)(void);
};

/* Connect, answer the driver until it says quit, and return the exit status. */
int compare_worker(const struct compare_method *method);

#endif
