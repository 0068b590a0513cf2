// SPDX-License-Identifier: Apache-2.0
/* A worker: one rank of one method of `compare`, the program that measures kolo beside its peers.
 *
 *   worker.c  the conversation with the driver, the clock     team.c  what the ranks share
 *   point.c   counts, inputs, expected results                sum.h   loops that add
 *   kolo.c mpi.c gloo.py floor.c                              one file a method
 *
 * The driver (compare.py) listens on a UNIX socket. A worker connects, gets a descriptor of memory
 * that the ranks of its method share, joins its ranks, and then sleeps in a read. One method at a
 * time is told what to do, a line a command:
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

struct compare_page { /* shared by the ranks; one writer a field */
    struct compare_flag arrived[COMPARE_RANKS_MAX];
    _Alignas(COMPARE_LINE_BYTES) uint64_t decision; /* rank 0's, read after a barrier */
};

struct compare_team {
    int rank, nranks, cores;
    int memory; /* descriptor of what the ranks share */
    uint32_t barriers;
    struct compare_page *page;
};

/* Maps the page of `memory`. False with a line on stderr. */
bool compare_team_join(struct compare_team *team, int memory);
/* Spins, then yields, then naps: ranks come from a sleep at about the same time. */
void compare_team_barrier(struct compare_team *team);
/* Rank 0's value on every rank. Collective. */
uint64_t compare_team_decide(struct compare_team *team, uint64_t value);
/* bytes of zeroes at `at` bytes behind the page, the same on all ranks. Collective; NULL if none.
 */
void *compare_team_map(struct compare_team *team, size_t at, size_t bytes);
/* Gives back what lies `at` bytes behind the page and beyond. Collective. */
void compare_team_unmap(struct compare_team *team, void *base, size_t at, size_t bytes);

/* ---- what is called (point.c) ---- */

struct compare_point {
    enum compare_collective collective;
    enum compare_type type;
    int rank, nranks, root;
    size_t count; /* elements the call is given */
    size_t elem_bytes;
    size_t send_elems, recv_elems; /* of this rank */
    bool shared;                   /* buffers that peers can map, where the method has such */
    bool rewritten;                /* inputs are stored anew before each call */
    /* Broadcast is in place, send == recv, as it is in MPI and in PyTorch. */
    void *send, *recv;
};

/* Counts of a call that moves `bytes`, the larger of what a rank sends and receives, and at least
 * an element a block. False for names that are unknown. */
bool compare_point_parse(const char *collective, const char *type, size_t bytes,
                         struct compare_point *point);
bool compare_reduces(enum compare_collective collective);
/* Inputs in send, and in recv what no result is. */
void compare_point_fill(const struct compare_point *point);
/* Elements of recv that are not what they must be. */
uint64_t compare_point_wrong(const struct compare_point *point);

/* One store a cache line of the input, of the value that is there: the lines leave other cores'
 * caches. Elements at the start of a line hold the same value, so that nothing need be loaded. */
void compare_point_rewrite(const struct compare_point *point);

/* ---- a method ---- */

struct compare_method {
    /* Join the ranks; `version` gets a name and a number. False with a line on stderr. */
    bool (*start)(struct compare_team *team, char *version, size_t cap);
    /* A point begins, and nothing runs on any rank. NULL: it can be run. Else why not, the same on
     * every rank. */
    const char *(*prepare)(const struct compare_point *point);
    /* Memory of a point that peers can map; NULL: the method has none. Collective. */
    bool (*share)(struct compare_point *point);
    void (*unshare)(struct compare_point *point);
    bool (*call)(const struct compare_point *point);
    /* After the last call, so that no rank sleeps while another needs it. NULL: none needed. */
    bool (*settle)(void);
    void (*stop)(void);
};

/* Connects, answers until told to quit, and returns the exit status. */
int compare_worker(const struct compare_method *method);

#endif
