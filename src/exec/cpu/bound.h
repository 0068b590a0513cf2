// SPDX-License-Identifier: Apache-2.0
/* A bound program is a lowered program with the addresses and byte counts of one call. */
#ifndef KOLO_EXEC_CPU_BOUND_H
#define KOLO_EXEC_CPU_BOUND_H

#include "exec/cpu/stores.h"
#include "exec/lower/extents.h"
#include "exec/lower/program.h"

struct kolo_head;
struct kolo_line;
struct kolo_exec_env;

struct kolo_bound_at {
    uintptr_t at; /* address = at + shift[kind] (+ base of `rank` for user memory of peers) */
    uint32_t kind, rank;
};
enum kolo_past { KOLO_PAST_OUT_OF_PLACE = 1, KOLO_PAST = 2 };
struct kolo_bound_op {
    uint8_t code, last;
    uint8_t odd;  /* moved chunk by chunk, each with a computed length */
    uint8_t past; /* stores to user memory bypass the caches: enum kolo_past */
    uint16_t nsrc, ndst;
    uint32_t first, len, last_len; /* bytes of a full tile and of the last one */
    uint32_t simple_count; /* elements of a move that kolo_exec_once() makes by itself; else 0 */
    bool meets_all;        /* a wait for a line of every peer */
    int32_t peer;
    uint32_t index, uop;
};

/* A call of up to 48 bytes: write my line, read all lines, and reduce them into OUT. */
struct kolo_exchange {
    struct kolo_line *mine; /* this line and the peers' lines are those of parity 0 */
    uintptr_t in_off, out_off;
    uint32_t bytes, count; /* count: elements */
    unsigned npeers, nsrc;
    const int *readers;           /* of the program: the peers */
    struct kolo_head *head;       /* mine */
    const void **src[KOLO_DEPTH]; /* [nsrc] by parity, in order: lines, and my IN */
    unsigned own;                 /* the index of the source that is my IN ... */
    uintptr_t own_off;            /* ... and its offset in IN */
    struct kolo_exchange_peer {
        struct kolo_line *line;
        int rank;
    } peer[];
};

struct kolo_bound {
    const struct kolo_prog *prog;
    struct kolo_bound_op *op;
    struct kolo_bound_at *at;
    size_t piece; /* bytes of a chunk that one tile takes */
    uint32_t tiles;
    bool inlined;                   /* the outbox is in the lines */
    bool once;                      /* kolo_exec_once() can run it: one tile, the full depth */
    bool chooses;                   /* a store kind is chosen for each call, or learnt from it */
    bool at_once;                   /* `once`, and nothing is chosen */
    bool in_long;                   /* its tiles go into long slots */
    uint32_t slot_mask;             /* tile e has slot e & slot_mask ... */
    size_t slot_stride;             /* ... slots are this many bytes apart ... */
    uint32_t turn_shift, turn_mask; /* ... and in it the place e >> turn_shift & turn_mask ... */
    size_t turn_stride;             /* ... of this many bytes */
    struct kolo_exchange *exchange; /* not NULL: the whole program is this exchange */
    struct kolo_store_use stores;
    struct kolo_extents extents; /* the bound program owns its arrays */
    size_t *arrays;
    char *private_mem;    /* scratch and stage; KOLO_TILE_COPIES of them for several tiles */
    struct kolo_req *req; /* requests of messages, with as many copies: calls never overlap */
    size_t private_bytes;
    size_t stage_off;
};

/* Copies the arrays of `extents`. Errors: SYSTEM. */
kolo_status kolo_bind(const struct kolo_prog *prog, const struct kolo_extents *extents,
                      const struct kolo_exec_env *env, struct kolo_bound **out);
void kolo_bound_destroy(struct kolo_bound *bound);
/* Bytes of the op's j-th chunk, found from the user memory that the op names, else from the plan
 * step that it came from. */
size_t kolo_uop_bytes(const struct kolo_prog *prog, const struct kolo_extents *extents,
                      const struct kolo_uop *op, uint32_t j);
/* Bytes of piece `tile` of the op's `j`-th chunk; for tests and odd ops. */
size_t kolo_bound_piece_bytes(const struct kolo_bound *bound, const struct kolo_bound_op *op,
                              uint32_t j, uint32_t tile);

#endif
