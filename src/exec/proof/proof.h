// SPDX-License-Identifier: Apache-2.0
/* State of the proof that progverify.c makes: clocks of all lanes of all ranks, and cells.
 *
 * A cell is one chunk of one tile in one place: user memory of a call, private memory or an outbox
 * slot. It holds a symbol, its writer, and its readers since the write, each as {component, time}.
 * A component is a lane of a rank. Its time counts its ops.
 *
 * An access is ordered after another if the accessing lane's clock has reached the other's time. A
 * clock holds only the orderings that the program makes certain, so the proof does not accept an
 * ordering that needs luck.
 */
#ifndef KOLO_EXEC_PROOF_PROOF_H
#define KOLO_EXEC_PROOF_PROOF_H

#include "exec/lower/program.h"
#include "exec/proof/progverify.h"

struct kolo_value {
    uint64_t symbol;
    uint32_t epoch; /* 1 + epoch of the tile it belongs to; 0: nothing */
    int32_t length; /* number of the chunk or block whose length it has */
};

struct kolo_cell {
    struct kolo_value value;
    uint32_t writer, written; /* component and its time */
    int32_t arriving;         /* message that arrives here, or -1 */
    int32_t leaving;          /* list of messages that leave from here, or -1 */
    uint32_t phase;           /* outbox: the line that announces it */
    uint32_t moved;           /* place within the move that read it last */
};

struct kolo_moment { /* component and time; 0: has not come */
    uint32_t component, time;
};

struct kolo_proof_fifo {
    int32_t first, last;
};

struct kolo_home { /* user memory of a rank in a call: OUT chunks, then IN chunks, by tile */
    uint32_t cell, nin, nout;
    bool over;               /* the call has returned */
    uint32_t entered;        /* snapshot of the entry line, 0: not there */
    uint32_t *touched;       /* [components] last access by others */
    const uint64_t *promise; /* [nout] symbols */
};

struct kolo_wait { /* for the text of a deadlock */
    const char *what;
    int peer;
    uint32_t number;
};

struct kolo_runner_lane {
    uint32_t iter, slot, pc, tile;
    bool begun, finished;
    struct kolo_wait wait;
};

struct kolo_slot_use {                          /* use of a long slot, or of lines and short slot */
    const struct kolo_prog *prog, *prog_before; /* NULL: no program's */
    uint32_t epoch, epoch_before;
};

struct kolo_runner { /* one rank */
    int call;
    enum { KOLO_RUN_PUBLISH, KOLO_RUN_ENTER, KOLO_RUN_LANES, KOLO_RUN_OVER } at;
    uint32_t epoch; /* of the call's first tile */
    uint32_t done;
    struct kolo_runner_lane lane[KOLO_LANES];
    struct kolo_slot_use use[KOLO_DEPTH], long_use[KOLO_LONG_DEPTH]; /* by tile */
    int32_t *request; /* [KOLO_TILE_COPIES][max_reqs]: message, -1: none */
    bool *entered;    /* [n] entry lines read in this call */
};

struct kolo_list_node {
    int32_t message, next;
};

struct kolo_array { /* grows */
    void *at;
    uint32_t count, cap;
};

struct kolo_proof {
    const struct kolo_program_set *set;
    bool in_place;
    int n, lanes;
    uint32_t components, epochs;
    uint32_t max_places, max_phases, max_reqs, max_private, max_count;
    struct kolo_runner *runner; /* [n] */
    uint32_t *clock;            /* [n * lanes][components] */
    struct kolo_cell *cell;
    uint32_t *reader; /* [cells][components] time of the last read since the write */
    uint32_t ncells, private_cell, outbox_cell;
    struct kolo_home *home; /* [calls * n] */
    uint32_t *signalled;    /* [n][max_phases][epochs]: snapshot */
    uint8_t *signal_slot;   /* [n][max_phases][epochs]: slot of the signal */
    uint32_t *done_at;      /* [n][epochs + 1]: snapshot of when `done` reached it */
    uint32_t *lane_done;    /* [n * lanes][epochs] */
    uint32_t *passed;       /* [n * lanes][KOLO_TILE_COPIES][max_ops + 1] for AFTER, or NULL */
    uint32_t max_ops;
    uint32_t *slot_touched;        /* [n][epochs][components] when others read lines and slots */
    uint8_t *slot_of;              /* [n][epochs] the slot that the rank wrote */
    struct kolo_proof_fifo *sends; /* [n * n * KOLO_PLAN_CHANNELS] without a receive */
    struct kolo_proof_fifo *recvs; /* without a send */
    struct kolo_array messages;    /* struct kolo_proof_message */
    struct kolo_array values;      /* struct kolo_value */
    struct kolo_array nodes;       /* struct kolo_list_node */
    struct kolo_array clocks;      /* snapshots, [components] each; number 0 is none */
    struct kolo_value *moving;     /* [max_count] */
    uint32_t *joined;              /* [components] clock of a message's arrival */
    uint32_t *touched;             /* behind all homes */
    uint64_t work;                 /* counts the ranks' progress */
    void *room[24];                /* all fixed arrays */
    int nrooms;
    bool failed;
};

struct kolo_turn { /* the acting lane, and its place in the run */
    struct kolo_proof *proof;
    const struct kolo_prog *prog;
    const struct kolo_plan *plan; /* whole */
    int rank, lane, call;
    uint32_t tile, epoch;
    int op; /* or -1 */
    uint32_t component;
    uint32_t *clock;
};

struct kolo_proof_message {
    int from, to;
    uint32_t count;
    int32_t length;
    bool sent;                           /* posted */
    bool lent;                           /* the receiver's cells were claimed at the post */
    uint32_t received;                   /* 1 + epoch of the tile that posted the receive, or 0 */
    struct kolo_moment done, taken;      /* when sender, receiver know that it is complete */
    uint32_t sent_clock, received_clock; /* snapshots */
    struct kolo_turn receiver;
    uint32_t value;  /* first of `count` in proof->values */
    uint32_t target; /* the receiver's first cell */
    int32_t next;    /* the next message with only one end */
};

/* Fail with INVALID. The text begins with algorithm, rank, op, tile and call. */
kolo_status kolo_proof_fail(const struct kolo_turn *t, const char *format, ...) KOLO_PRINTF(2, 3);
/* Append an element of `each` bytes; NULL when out of memory. */
void *kolo_proof_append(struct kolo_array *array, size_t each);

static inline const struct kolo_at *kolo_proof_operand(const struct kolo_turn *t, uint32_t i)
{
    return &t->prog->at[t->prog->op[t->op].first + i];
}
static inline kolo_status kolo_proof_must_wait(const struct kolo_turn *t, const char *what,
                                               int peer, uint32_t number)
{
    t->proof->runner[t->rank].lane[t->lane].wait = (struct kolo_wait){what, peer, number};
    return KOLO_INPROGRESS;
}
static inline kolo_status kolo_proof_no_memory(void)
{
    return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a proof");
}

/* Open a proof. promise[call] has the symbols of the outputs. False: out of memory. */
bool kolo_proof_open(struct kolo_proof *p, uint64_t *const *promise);
void kolo_proof_close(struct kolo_proof *p);

/* ---- clocks ---- */

static inline uint32_t *kolo_proof_clock(const struct kolo_proof *p, int rank, int lane)
{
    return p->clock + (size_t)(rank * p->lanes + lane) * p->components;
}
static inline uint32_t kolo_proof_now(const struct kolo_turn *t)
{
    return t->clock[t->component];
}
static inline struct kolo_moment kolo_proof_moment(const struct kolo_turn *t)
{
    return (struct kolo_moment){t->component, kolo_proof_now(t)};
}
/* Copy the clock. Returns the copy's number; 0 when out of memory. */
uint32_t kolo_proof_snapshot(struct kolo_proof *p, const uint32_t *clock);
void kolo_proof_join(struct kolo_proof *p, uint32_t *clock, uint32_t snapshot);

/* Whether a rank's request `i` (-1: none) is posted, and the rank does not know yet that it is
 * complete. */
static inline bool kolo_proof_request_open(const struct kolo_proof *p, int rank, int32_t i)
{
    if (i < 0) {
        return false;
    }
    const struct kolo_proof_message *m = (const struct kolo_proof_message *)p->messages.at + i;
    return (m->from == rank ? m->done : m->taken).time == 0;
}

/* ---- memory (proof_memory.c) ---- */

static inline struct kolo_home *kolo_proof_home(const struct kolo_proof *p, int call, int rank)
{
    return &p->home[call * p->n + rank];
}
/* Find the cell of an operand's j-th chunk. If another rank owns the memory, note the access. */
kolo_status kolo_proof_resolve(const struct kolo_turn *t, const struct kolo_at *at, uint32_t j,
                               bool write, uint32_t *out);
kolo_status kolo_proof_load(const struct kolo_turn *t, uint32_t cell, struct kolo_value *out);
/* Check that the cell may be written now, and forget its readers. */
kolo_status kolo_proof_claim(const struct kolo_turn *t, uint32_t cell);
void kolo_proof_store(const struct kolo_turn *t, uint32_t cell, struct kolo_value value);
static inline void kolo_proof_touch_slot(const struct kolo_turn *t, int owner)
{
    const struct kolo_proof *p = t->proof;
    p->slot_touched[((size_t)owner * p->epochs + t->epoch) * p->components + t->component] =
        kolo_proof_now(t);
}
/* Check that copy `slot` of lines and short slots may be written for tile `epoch`, because the
 * readers of earlier tiles in it have finished. */
kolo_status kolo_proof_claim_slot(const struct kolo_turn *t, uint32_t epoch, uint32_t slot);
/* The same for a long slot of the rank, after its last tile. */
kolo_status kolo_proof_claim_long_slot(const struct kolo_turn *t, uint32_t slot);
/* Check that data of chunk length `have` may be moved with length `moved`. */
kolo_status kolo_proof_fits(const struct kolo_turn *t, int32_t have, int32_t moved);

/* ---- calls (proof_call.c) ---- */

/* Enter a call with the rank's inputs. Leave it, and check the outputs that the rank must have. */
void kolo_proof_enter(const struct kolo_turn *t);
kolo_status kolo_proof_leave(const struct kolo_turn *t);
/* The number of the length of an op's j-th chunk (kolo_bind has the same rule); -1: any. */
int32_t kolo_proof_length(const struct kolo_turn *t, const struct kolo_uop *op, uint32_t j);

/* ---- well-formed programs (proof_form.c) ---- */

/* Check that indices, bounds and lists are valid, and that every rank that may sleep is woken. */
kolo_status kolo_programs_check(const struct kolo_program_set *set);

/* ---- messages (proof_message.c) ---- */

kolo_status kolo_proof_send(const struct kolo_turn *t, const struct kolo_uop *op);
kolo_status kolo_proof_receive(const struct kolo_turn *t, const struct kolo_uop *op);
kolo_status kolo_proof_taken(const struct kolo_turn *t, const struct kolo_uop *op);
/* Whether all that the lane sent in this tile is complete; `note`: the rank knows it now. */
kolo_status kolo_proof_sent(const struct kolo_turn *t, bool note);

/* ---- ops (proof_ops.c) ---- */

uint64_t kolo_proof_leaf(int rank, int chunk);
uint64_t kolo_proof_add(uint64_t a, uint64_t b);
uint64_t kolo_proof_last(uint64_t sum);
/* Do one op. INPROGRESS: the lane must wait, and its `wait` names the reason. */
kolo_status kolo_proof_op(const struct kolo_turn *t);

#endif
