// SPDX-License-Identifier: Apache-2.0
/* Collectives that move blocks of different sizes, as bytes.
 *
 * Where only the root, or two ranks, know a count, kolo's calls need no more than MPI's. But MPI
 * libraries make these calls faster, so kolo serves them only if it is told to. Displacements are a
 * matter of each rank in MPI. kolo_all_gatherv() wants them equal on all ranks, so there a layout
 * other than the dense one is copied. */
#include "shim.h"

/* Look at the side of a call that has a block for each rank. */
static bool look(const struct kmpi_comm *c, const struct kmpi_side *side, struct kmpi_blocks *out)
{
    *out = (struct kmpi_blocks){.user = (char *)(uintptr_t)side->buf,
                                .counts = side->counts,
                                .displs = side->displs,
                                .n = c->nranks};
    if (side->counts.at == NULL || side->displs.at == NULL) {
        return false;
    }
    for (int i = 0; i < c->nranks; i++) {
        if (kmpi_count_at(side->counts, i) < 0) {
            return false;
        }
    }
    return kmpi_type_of(side->type, &out->type);
}

/* The same for an all-gather. *bytes: of all blocks. */
static bool look_dense(const struct kmpi_comm *c, const struct kmpi_side *side,
                       struct kmpi_blocks *out, size_t *bytes)
{
    *out = (struct kmpi_blocks){.user = (char *)(uintptr_t)side->buf,
                                .counts = side->counts,
                                .displs = side->displs,
                                .n = c->nranks};
    if (side->counts.at == NULL || side->displs.at == NULL ||
        !kmpi_type_of(side->type, &out->type)) {
        return false;
    }
    const MPI_Count count = kmpi_count_at(side->counts, 0);
    bool is_plain = out->type.is_run;
    size_t items = 0;
    for (int i = 0; i < c->nranks; i++) {
        const MPI_Count each = kmpi_count_at(side->counts, i);
        if (each < 0) {
            return false;
        }
        is_plain &= each == count && kmpi_displ_at(side->displs, i) == (ptrdiff_t)items;
        items += (size_t)each;
    }
    out->is_plain = is_plain;
    *bytes = items * out->type.bytes;
    return true;
}

static size_t block_bytes(const struct kmpi_blocks *b, int i)
{
    return (size_t)kmpi_count_at(b->counts, i) * b->type.bytes;
}

/* Whether all blocks have the same bytes: then the shorter call serves. All ranks know all counts. */
static bool are_equal(const struct kmpi_blocks *b)
{
    for (int i = 1; i < b->n; i++) {
        if (b->count[i] != b->count[0]) {
            return false;
        }
    }
    return true;
}

bool kmpi_allgatherv(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                     int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_ALLGATHERV, comm);
    const bool in_place = send->buf == MPI_IN_PLACE;
    struct kmpi_items mine = {0};
    struct kmpi_blocks b;
    size_t bytes = 0;
    if (c == NULL) {
        return false;
    }
    if (!look_dense(c, recv, &b, &bytes) || (!in_place && !kmpi_items_look(send, 1, &mine))) {
        return kmpi_note(c, KMPI_ALLGATHERV, KMPI_ARGUMENT);
    }
    if (!in_place && kmpi_items_bytes(&mine) != block_bytes(&b, c->rank)) {
        return kmpi_truncated(c, out);
    }
    if (!kmpi_note(c, KMPI_ALLGATHERV, kmpi_choose(c, KMPI_ALLGATHERV, bytes))) {
        return false;
    }
    bool packed = in_place || kmpi_items_open(&mine, true, comm);
    kolo_status st = KOLO_OK;
    if (packed && b.is_plain) { /* most calls: no lists for kolo are made */
        const size_t block = block_bytes(&b, 0);
        const char *from = in_place ? b.user + (size_t)c->rank * block : mine.bytes;
        st = kolo_all_gather(from, b.user, block, KOLO_UINT8, c->kolo, NULL);
        return kmpi_end(c, kmpi_items_close(&mine, false, comm), st, out);
    }
    packed = packed && kmpi_blocks_open(&b, KMPI_DENSE, in_place, comm);
    if (packed) {
        const char *from = in_place ? b.bytes + b.displ[c->rank] : mine.bytes;
        st = are_equal(&b)
                 ? kolo_all_gather(from, b.bytes, b.count[0], KOLO_UINT8, c->kolo, NULL)
                 : kolo_all_gatherv(from, b.bytes, b.count, b.displ, KOLO_UINT8, c->kolo, NULL);
    }
    packed = kmpi_blocks_close(&b, packed && st == KOLO_OK, comm) && packed;
    packed = kmpi_items_close(&mine, false, comm) && packed;
    return kmpi_end(c, packed, st, out);
}

/* Open blocks, and copy them if they surround `other`. */
static bool open_apart(struct kmpi_blocks *b, const void *other, size_t bytes, bool filled,
                       MPI_Comm comm)
{
    if (!kmpi_blocks_open(b, KMPI_AS_THEY_LIE, filled, comm)) {
        return false;
    }
    if (!kmpi_blocks_meet(b, other, bytes)) {
        return true;
    }
    (void)kmpi_blocks_close(b, false, comm);
    return kmpi_blocks_open(b, KMPI_COPIED, filled, comm);
}

/* A gather or a scatter: the blocks of the root, and this rank's own items. */
struct rooted {
    struct kmpi_comm *c;
    struct kmpi_items mine;
    struct kmpi_blocks all;
    bool is_root, in_place; /* in place: the items are one of the blocks */
};

/* False: the call is not served, or `*out` is its result if *ended. */
static bool begin_rooted(struct rooted *r, enum kmpi_coll coll, const struct kmpi_side *own,
                         const struct kmpi_side *all, int root, bool *ended, int *out)
{
    r->is_root = r->c->rank == root;
    r->in_place = r->is_root && own->buf == MPI_IN_PLACE;
    *ended = false;
    if (!r->c->serves_all) {
        return kmpi_note(r->c, coll, KMPI_SLOWER);
    }
    if (!kmpi_is_rank(r->c, root) || (!r->in_place && !kmpi_items_look(own, 1, &r->mine)) ||
        (r->is_root && !look(r->c, all, &r->all))) {
        return kmpi_note(r->c, coll, KMPI_ARGUMENT);
    }
    if (r->is_root && !r->in_place &&
        kmpi_items_bytes(&r->mine) != block_bytes(&r->all, r->c->rank)) {
        *ended = kmpi_truncated(r->c, out);
        return false;
    }
    return kmpi_note(r->c, coll, KMPI_SERVED);
}

static bool open_rooted(struct rooted *r, bool gathers)
{
    const MPI_Comm comm = r->c->comm;
    if (!r->in_place && !kmpi_items_open(&r->mine, gathers, comm)) {
        return false;
    }
    if (!r->is_root) {
        return true;
    }
    return r->in_place
               ? kmpi_blocks_open(&r->all, KMPI_AS_THEY_LIE, true, comm)
               : open_apart(&r->all, r->mine.bytes, kmpi_items_bytes(&r->mine), !gathers, comm);
}

static size_t own_bytes(const struct rooted *r)
{
    return r->in_place ? block_bytes(&r->all, r->c->rank) : kmpi_items_bytes(&r->mine);
}

static char *own_place(const struct rooted *r)
{
    return r->in_place ? r->all.bytes + r->all.displ[r->c->rank] : r->mine.bytes;
}

static bool close_rooted(struct rooted *r, bool all_changed, bool mine_changed)
{
    const MPI_Comm comm = r->c->comm;
    const bool done = r->in_place || kmpi_items_close(&r->mine, mine_changed, comm);
    return (!r->is_root || kmpi_blocks_close(&r->all, all_changed, comm)) && done;
}

bool kmpi_gatherv(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                  MPI_Comm comm, int *out)
{
    struct rooted r = {.c = kmpi_enter(KMPI_GATHERV, comm)};
    bool ended = false;
    if (r.c == NULL || !begin_rooted(&r, KMPI_GATHERV, send, recv, root, &ended, out)) {
        return ended;
    }
    bool packed = open_rooted(&r, true);
    kolo_status st = KOLO_OK;
    if (packed) {
        st = kolo_gatherv(own_place(&r), own_bytes(&r), r.all.bytes, r.all.count, r.all.displ,
                          KOLO_UINT8, root, r.c->kolo, NULL);
    }
    packed = close_rooted(&r, packed && st == KOLO_OK, false) && packed;
    return kmpi_end(r.c, packed, st, out);
}

bool kmpi_scatterv(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                   MPI_Comm comm, int *out)
{
    struct rooted r = {.c = kmpi_enter(KMPI_SCATTERV, comm)};
    bool ended = false;
    if (r.c == NULL || !begin_rooted(&r, KMPI_SCATTERV, recv, send, root, &ended, out)) {
        return ended;
    }
    bool packed = open_rooted(&r, false);
    kolo_status st = KOLO_OK;
    if (packed) {
        st = kolo_scatterv(r.all.bytes, r.all.count, r.all.displ, own_place(&r), own_bytes(&r),
                           KOLO_UINT8, root, r.c->kolo, NULL);
    }
    packed = close_rooted(&r, false, packed && st == KOLO_OK) && packed;
    return kmpi_end(r.c, packed, st, out);
}

/* The memory between the first and the last block. */
static bool blocks_meet(const struct kmpi_blocks *a, const struct kmpi_blocks *b)
{
    for (int i = 0; i < b->n; i++) {
        if (kmpi_blocks_meet(a, b->bytes + b->displ[i], b->count[i])) {
            return true;
        }
    }
    return false;
}

bool kmpi_alltoallv(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                    int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_ALLTOALLV, comm);
    const bool in_place = send->buf == MPI_IN_PLACE;
    struct kmpi_blocks from, to;
    if (c == NULL) {
        return false;
    }
    if (!c->serves_all) {
        return kmpi_note(c, KMPI_ALLTOALLV, KMPI_SLOWER);
    }
    if (!look(c, recv, &to) || !look(c, in_place ? recv : send, &from)) {
        return kmpi_note(c, KMPI_ALLTOALLV, KMPI_ARGUMENT);
    }
    if (block_bytes(&from, c->rank) != block_bytes(&to, c->rank)) {
        return kmpi_truncated(c, out);
    }
    (void)kmpi_note(c, KMPI_ALLTOALLV, KMPI_SERVED);
    bool packed = kmpi_blocks_open(&to, KMPI_AS_THEY_LIE, false, comm) &&
                  kmpi_blocks_open(&from, in_place ? KMPI_COPIED : KMPI_AS_THEY_LIE, true, comm);
    if (packed && !in_place && (blocks_meet(&to, &from) || blocks_meet(&from, &to))) {
        (void)kmpi_blocks_close(&from, false, comm);
        packed = kmpi_blocks_open(&from, KMPI_COPIED, true, comm);
    }
    kolo_status st = KOLO_OK;
    if (packed) {
        st = kolo_all_to_allv(from.bytes, from.count, from.displ, to.bytes, to.count, to.displ,
                              KOLO_UINT8, c->kolo, NULL);
    }
    packed = kmpi_blocks_close(&to, packed && st == KOLO_OK, comm) && packed;
    packed = kmpi_blocks_close(&from, false, comm) && packed;
    return kmpi_end(c, packed, st, out);
}
