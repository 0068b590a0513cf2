// SPDX-License-Identifier: Apache-2.0
/* MPI's collectives over kolo: what the files of this folder share.
 *
 * The library overrides MPI_Allreduce() and its like by their weak names, and calls MPI itself by the
 * strong ones, PMPI_*(). The same source is compiled against the header of each binary interface:
 * Open MPI's, MPICH's (which Intel MPI has too), and the standard one of MPI 5.
 *
 * A call goes to kolo, or to PMPI. All ranks of a communicator must decide alike, so the decision
 * may depend only on values that MPI wants equal on all ranks: the communicator, the root, the
 * operation and its type, the bytes of a block, and the number of equal calls before; and on times that
 * the ranks have added up (choice.c). It never depends on an address, on the layout of
 * a type (ranks may lay out the same bytes differently), or on memory that one rank lacks. A rank
 * whose type is not one run of bytes packs it.
 *
 * Source: MPI: A Message-Passing Interface Standard, versions 3.1 to 5.0, chapters "Collective
 * Communication" and "Profiling Interface". */
#ifndef KOLO_MPI_SHIM_H
#define KOLO_MPI_SHIM_H

#include KOLO_MPI_HEADER

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Forms with MPI_Count are of MPI 4. */
#define KMPI_HAS_WIDE (MPI_VERSION >= 4)

enum kmpi_coll {
    KMPI_BARRIER,
    KMPI_BCAST,
    KMPI_REDUCE,
    KMPI_ALLREDUCE,
    KMPI_REDUCE_SCATTER,
    KMPI_REDUCE_SCATTER_BLOCK,
    KMPI_ALLGATHER,
    KMPI_ALLGATHERV,
    KMPI_GATHER,
    KMPI_GATHERV,
    KMPI_SCATTER,
    KMPI_SCATTERV,
    KMPI_ALLTOALL,
    KMPI_ALLTOALLV,
    KMPI_COLLS
};

/* Where a call goes, and why. */
enum kmpi_why {
    KMPI_SERVED,
    KMPI_OFF,
    KMPI_ONE_RANK,
    KMPI_INTERCOMM,
    KMPI_NO_COMM,  /* kolo could not make a communicator */
    KMPI_ARGUMENT, /* MPI will refuse an argument */
    KMPI_EMPTY,    /* no bytes */
    KMPI_OPERATION,
    KMPI_SLOWER, /* kolo would take longer */
    KMPI_TRIAL,  /* to learn whether it would */
    KMPI_WHYS
};

enum { KMPI_PARTS = 5 }; /* of a trial, by kolo and by MPI each; an odd number */

/* Where calls of one size go. */
struct kmpi_choice {
    uint32_t calls; /* of this trial, and after it */
    bool is_mpi;
    uint64_t ns[2][KMPI_PARTS]; /* of kolo's parts, and of MPI's */
};
enum { KMPI_MOVES = 6, KMPI_SIZES = 32 }; /* names that have a choice; powers of two of bytes */

/* What a communicator carries as an attribute. */
struct kmpi_comm {
    MPI_Comm comm;
    struct kolo_comm *kolo; /* NULL: all calls go to PMPI */
    enum kmpi_why why;      /* if kolo is NULL */
    bool serves_all;        /* also calls that MPI makes faster */
    int rank, nranks;
    char name[64];
    unsigned calls;            /* that kolo has served */
    unsigned said[KMPI_COLLS]; /* bits of enum kmpi_why that the log has told */
    struct kmpi_choice choices[KMPI_MOVES][KMPI_SIZES];
    struct kmpi_comm *next; /* of all communicators that are alive */
};

/* ---- communicators (comm.c) ---- */

/* The state of a communicator if kolo serves it. NULL: the call goes to PMPI. The first call on a
 * communicator makes its state, so all ranks call this for the same calls. */
struct kmpi_comm *kmpi_enter(enum kmpi_coll coll, MPI_Comm comm);
/* The result of a served call: MPI_SUCCESS, or what the communicator's error handler leaves. Now and
 * then it lets messages move: a program may call nothing but collectives until one has come. */
int kmpi_result(struct kmpi_comm *c, kolo_status st);
int64_t kmpi_now_ns(void);
/* Let MPI's messages move. */
void kmpi_progress(void *unused);
/* The same, if collectives have been served since messages last moved. */
void kmpi_catch_up(void);

/* ---- whether kolo or MPI is faster (choice.c) ---- */

/* Where a call that moves blocks of `bytes` goes; all ranks give the same bytes. */
enum kmpi_why kmpi_choose(struct kmpi_comm *c, enum kmpi_coll coll, size_t bytes);
/* The call that this thread times. */
extern __attribute__((tls_model("initial-exec"))) _Thread_local struct kmpi_comm *kmpi_timed;
void kmpi_end_timed(void);
/* A call has ended, wherever it went. Returns `rc`. */
static inline int kmpi_ended(int rc)
{
    if (__builtin_expect(kmpi_timed != NULL, 0)) {
        kmpi_end_timed();
    }
    return rc;
}

/* ---- the log (report.c) ---- */

/* Note where a call goes. Returns whether kolo serves it. */
bool kmpi_note(struct kmpi_comm *c, enum kmpi_coll coll, enum kmpi_why why);
const char *kmpi_coll_name(enum kmpi_coll coll);
void kmpi_log(const struct kmpi_comm *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Tell how many calls went where. */
void kmpi_log_totals(void);

/* ---- types (types.c) ---- */

struct kmpi_type {
    size_t bytes;     /* of one item, without gaps */
    ptrdiff_t extent; /* from one item to the next */
    bool is_run;      /* the bytes of items follow one another, in order */
    MPI_Datatype handle;
};

/* Look at the predefined types, and make the keys of attributes. False: MPI refused. */
bool kmpi_types_open(void);
void kmpi_types_close(void);
/* How a type lies in memory. False: it is no type. */
bool kmpi_type_of(MPI_Datatype type, struct kmpi_type *out);
/* Kolo's names of a reduction; an item has `per_item` of kolo's elements. False: kolo has none. */
struct kmpi_reduction {
    enum kolo_type type;
    kolo_op op;
    size_t per_item;
    size_t elem; /* bytes of kolo's element */
};
bool kmpi_reduction_of(MPI_Datatype type, MPI_Op op, struct kmpi_reduction *out);

/* ---- buffers (buffer.c) ---- */

/* Items of an MPI call, as bytes without gaps. */
struct kmpi_items {
    char *user;
    MPI_Count count;
    size_t block; /* bytes of each of the blocks that the items make */
    struct kmpi_type type;
    char *bytes; /* what kolo gets: `user`, or `own` */
    char *own;
};

bool kmpi_items_pack(struct kmpi_items *items, bool filled, MPI_Comm comm);
bool kmpi_items_unpack(struct kmpi_items *items, bool changed, MPI_Comm comm);
/* `filled`: the bytes are wanted, not only the room. False: out of memory, or MPI failed. */
static inline bool kmpi_items_open(struct kmpi_items *items, bool filled, MPI_Comm comm)
{
    items->own = NULL;
    items->bytes = items->user;
    return items->type.is_run || kmpi_items_pack(items, filled, comm);
}
/* `changed`: the bytes go back to the user's items. Returns false if MPI failed. */
static inline bool kmpi_items_close(struct kmpi_items *items, bool changed, MPI_Comm comm)
{
    return items->own == NULL || kmpi_items_unpack(items, changed, comm);
}

/* Counts or displacements of a call: int, or the wide type. */
struct kmpi_list {
    const void *at;
    bool is_wide;
};
static inline MPI_Count kmpi_count_at(struct kmpi_list list, int i)
{
    return list.is_wide ? ((const MPI_Count *)list.at)[i] : ((const int *)list.at)[i];
}
static inline ptrdiff_t kmpi_displ_at(struct kmpi_list list, int i)
{
    return list.is_wide ? (ptrdiff_t)((const MPI_Aint *)list.at)[i] : ((const int *)list.at)[i];
}

/* Blocks of a v-form. Counts and displacements are in bytes. */
struct kmpi_blocks {
    char *user;
    struct kmpi_type type;
    struct kmpi_list counts, displs; /* the user's, in items */
    int n;
    bool is_plain;         /* of an all-gather: equal runs, one after another */
    size_t *count, *displ; /* kolo's */
    char *bytes, *own;
};
/* How blocks are given to kolo. */
enum kmpi_form {
    KMPI_AS_THEY_LIE,
    KMPI_DENSE, /* one after another, in the order of ranks: all ranks give the same displacements */
    KMPI_COPIED /* dense, in memory of their own */
};
/* False: out of memory, or MPI failed. */
bool kmpi_blocks_open(struct kmpi_blocks *b, enum kmpi_form form, bool filled, MPI_Comm comm);
/* Whether the memory between the first and the last block, as kolo gets them, meets other memory. Kolo
 * refuses that, though MPI allows a buffer in a gap. */
bool kmpi_blocks_meet(const struct kmpi_blocks *b, const void *other, size_t bytes);
/* `changed`: the bytes go back to the blocks of the user. Returns false if MPI failed. */
bool kmpi_blocks_close(struct kmpi_blocks *b, bool changed, MPI_Comm comm);

/* ---- calls (reduce.c, move.c, move_v.c) ---- */

/* Each call returns false if PMPI is to make it. Else *out is its result. */
bool kmpi_barrier(MPI_Comm comm, int *out);
bool kmpi_bcast(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, int *out);
bool kmpi_reduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                 int root, MPI_Comm comm, int *out);
bool kmpi_allreduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm, int *out);
bool kmpi_reduce_scatter(const void *send, void *recv, struct kmpi_list counts, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm, int *out);
bool kmpi_reduce_scatter_block(const void *send, void *recv, MPI_Count count, MPI_Datatype type,
                               MPI_Op op, MPI_Comm comm, int *out);

/* One side of a call that moves data. Of v-forms `counts` and `displs`, else `count`. */
struct kmpi_side {
    const void *buf;
    MPI_Count count;
    MPI_Datatype type;
    struct kmpi_list counts, displs;
};
bool kmpi_allgather(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                    int *out);
bool kmpi_gather(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                 MPI_Comm comm, int *out);
bool kmpi_scatter(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                  MPI_Comm comm, int *out);
bool kmpi_alltoall(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                   int *out);
bool kmpi_allgatherv(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                     int *out);
bool kmpi_gatherv(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                  MPI_Comm comm, int *out);
bool kmpi_scatterv(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                   MPI_Comm comm, int *out);
bool kmpi_alltoallv(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                    int *out);

/* ---- the end of a call that moves data (end.c) ---- */

/* A served call of this rank lacks memory. Ends the kolo communicator. Returns true. */
bool kmpi_no_memory(struct kmpi_comm *c, int *out);
/* Returns true. *out is the result: PMPI could not pack (`packed` false), or kolo's status. */
bool kmpi_end(struct kmpi_comm *c, bool packed, kolo_status st, int *out);
/* The same for a call whose own blocks differ in size at its two ends. */
bool kmpi_truncated(struct kmpi_comm *c, int *out);
/* Look at one side of a call that has `blocks` blocks of side->count items. */
bool kmpi_items_look(const struct kmpi_side *side, int blocks, struct kmpi_items *out);
static inline size_t kmpi_items_bytes(const struct kmpi_items *items)
{
    return (size_t)items->count * items->type.bytes;
}

static inline bool kmpi_is_rank(const struct kmpi_comm *c, int rank)
{
    return rank >= 0 && rank < c->nranks;
}

#endif
