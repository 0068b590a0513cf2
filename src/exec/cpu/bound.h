// SPDX-License-Identifier: Apache-2.0
/* A bound program: a lowered program with the addresses and byte counts of one call. */
#ifndef KOLO_EXEC_CPU_BOUND_H
#define KOLO_EXEC_CPU_BOUND_H

#include "exec/lower/extents.h"
#include "exec/lower/program.h"

struct kolo_head;
struct kolo_line;
struct kolo_wires;

struct kolo_bound_at {
    uintptr_t at; /* address = at + shift[kind] (+ base of `rank` for user memory of peers) */
    uint32_t kind, rank;
};
enum kolo_past { KOLO_PAST_OUT_OF_PLACE = 1, KOLO_PAST = 2 };
struct kolo_bound_op {
    uint8_t code, last;
    uint8_t odd;  /* chunk by chunk, lengths computed */
    uint8_t past; /* user memory is stored past the caches: enum kolo_past */
    uint16_t nsrc, ndst;
    uint32_t first, len, last_len; /* bytes of a full tile and of the last one */
    int32_t peer;
    uint32_t index, uop;
};

/* A call of up to 48 bytes: write my line, read all lines, reduce them into OUT. */
struct kolo_exchange {
    struct kolo_line *mine; /* these lines are of parity 0 */
    uintptr_t in_off, out_off;
    uint32_t bytes, count; /* count: elements */
    unsigned npeers, nsrc;
    const int *readers;           /* of the program: the peers */
    struct kolo_head *head;       /* mine */
    const void **src[KOLO_DEPTH]; /* [nsrc] by parity, in order: lines, and my IN */
    unsigned own;                 /* which is my IN ... */
    uintptr_t own_off;            /* ... and where in it */
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
    bool once;                      /* one tile, and the copies that the executor has */
    bool in_long;                   /* its tiles go into long slots */
    uint32_t slot_mask;             /* tile e has slot e & slot_mask ... */
    size_t slot_stride;             /* ... so many bytes apart */
    struct kolo_exchange *exchange; /* not NULL: all of it is that */
    struct kolo_extents extents;    /* its arrays are owned */
    size_t *arrays;
    char *private_mem;    /* scratch and stage, KOLO_TILE_COPIES times where there are tiles ... */
    struct kolo_req *req; /* ... and so are the requests of messages: no two calls run at once */
    size_t private_bytes;
    size_t stage_off;
};

/* Copies the arrays of `extents`. Errors: SYSTEM. */
kolo_status kolo_bind(const struct kolo_prog *prog, const struct kolo_extents *extents,
                      const struct kolo_wires *wires, struct kolo_bound **out);
void kolo_bound_destroy(struct kolo_bound *bound);
/* Bytes of the op's j-th chunk: by user memory it names, else by the plan step it came from. */
size_t kolo_uop_bytes(const struct kolo_prog *prog, const struct kolo_extents *extents,
                      const struct kolo_uop *op, uint32_t j);
/* Offset and length of piece `tile` of the op's `j`-th chunk of operand `i`; for tests and odd ops.
 */
size_t kolo_bound_piece_bytes(const struct kolo_bound *bound, const struct kolo_bound_op *op,
                              uint32_t j, uint32_t tile);

#endif
