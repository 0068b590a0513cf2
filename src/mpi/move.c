// SPDX-License-Identifier: Apache-2.0
/* Collectives that move blocks of one size, as bytes. The bytes of a block are equal on all ranks,
 * though ranks may describe them by different types and counts. */
#include "shim.h"

bool kmpi_barrier(MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_BARRIER, comm);
    if (c == NULL || !kmpi_note(c, KMPI_BARRIER, KMPI_SERVED)) {
        return false;
    }
    return kmpi_end(c, true, kolo_barrier(c->kolo, NULL), out);
}

bool kmpi_bcast(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_BCAST, comm);
    const struct kmpi_side side = {.buf = buf, .count = count, .type = type};
    struct kmpi_items items;
    if (c == NULL) {
        return false;
    }
    if (!kmpi_is_rank(c, root) || !kmpi_items_look(&side, 1, &items)) {
        return kmpi_note(c, KMPI_BCAST, KMPI_ARGUMENT);
    }
    if (!kmpi_note(c, KMPI_BCAST, kmpi_choose(c, KMPI_BCAST, kmpi_items_bytes(&items)))) {
        return false;
    }
    const bool is_root = c->rank == root;
    kolo_status st = KOLO_OK;
    bool packed = kmpi_items_open(&items, is_root, comm);
    if (packed) {
        st = kolo_broadcast(items.bytes, items.bytes, kmpi_items_bytes(&items), KOLO_UINT8, root,
                            c->kolo, NULL);
    }
    packed = kmpi_items_close(&items, packed && !is_root && st == KOLO_OK, comm) && packed;
    return kmpi_end(c, packed, st, out);
}

/* Two sides of a call, and the bytes of a block. */
struct both {
    struct kmpi_items send, recv;
    bool sends, receives; /* this rank has that side, apart from the other */
    size_t block;
};

/* Whether the two sides have blocks of different sizes: then one of them would be overrun. */
static bool differ(const struct both *b)
{
    return b->sends && b->receives && b->send.block != b->recv.block;
}

/* Open both sides. A side that is in place is a part of the other. */
static bool open_both(struct both *b, bool recv_filled, MPI_Comm comm)
{
    return (!b->sends || kmpi_items_open(&b->send, true, comm)) &&
           (!b->receives || kmpi_items_open(&b->recv, recv_filled, comm));
}

static bool close_both(struct both *b, bool changed, MPI_Comm comm)
{
    const bool sent = !b->sends || kmpi_items_close(&b->send, false, comm);
    return (!b->receives || kmpi_items_close(&b->recv, changed, comm)) && sent;
}

bool kmpi_allgather(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                    int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_ALLGATHER, comm);
    struct both b = {.sends = send->buf != MPI_IN_PLACE, .receives = true};
    if (c == NULL) {
        return false;
    }
    if ((b.sends && !kmpi_items_look(send, 1, &b.send)) ||
        !kmpi_items_look(recv, c->nranks, &b.recv)) {
        return kmpi_note(c, KMPI_ALLGATHER, KMPI_ARGUMENT);
    }
    if (differ(&b)) {
        return kmpi_truncated(c, out);
    }
    b.block = b.sends ? b.send.block : b.recv.block;
    if (!kmpi_note(c, KMPI_ALLGATHER, kmpi_choose(c, KMPI_ALLGATHER, b.block))) {
        return false;
    }
    bool packed = open_both(&b, !b.sends, comm);
    kolo_status st = KOLO_OK;
    if (packed) {
        const char *from = b.sends ? b.send.bytes : b.recv.bytes + (size_t)c->rank * b.block;
        st = kolo_all_gather(from, b.recv.bytes, b.block, KOLO_UINT8, c->kolo, NULL);
    }
    packed = close_both(&b, packed && st == KOLO_OK, comm) && packed;
    return kmpi_end(c, packed, st, out);
}

bool kmpi_gather(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                 MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_GATHER, comm);
    if (c == NULL) {
        return false;
    }
    struct both b = {.receives = c->rank == root};
    b.sends = !b.receives || send->buf != MPI_IN_PLACE;
    if (!kmpi_is_rank(c, root) || (b.sends && !kmpi_items_look(send, 1, &b.send)) ||
        (b.receives && !kmpi_items_look(recv, c->nranks, &b.recv))) {
        return kmpi_note(c, KMPI_GATHER, KMPI_ARGUMENT);
    }
    if (differ(&b)) {
        return kmpi_truncated(c, out);
    }
    b.block = b.sends ? b.send.block : b.recv.block;
    if (!kmpi_note(c, KMPI_GATHER, kmpi_choose(c, KMPI_GATHER, b.block))) {
        return false;
    }
    bool packed = open_both(&b, !b.sends, comm);
    kolo_status st = KOLO_OK;
    if (packed) {
        const char *from = b.sends ? b.send.bytes : b.recv.bytes + (size_t)c->rank * b.block;
        st = kolo_gather(from, b.recv.bytes, b.block, KOLO_UINT8, root, c->kolo, NULL);
    }
    packed = close_both(&b, packed && st == KOLO_OK, comm) && packed;
    return kmpi_end(c, packed, st, out);
}

bool kmpi_scatter(const struct kmpi_side *send, const struct kmpi_side *recv, int root,
                  MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_SCATTER, comm);
    if (c == NULL) {
        return false;
    }
    struct both b = {.sends = c->rank == root};
    b.receives = !b.sends || recv->buf != MPI_IN_PLACE;
    if (!kmpi_is_rank(c, root) || (b.sends && !kmpi_items_look(send, c->nranks, &b.send)) ||
        (b.receives && !kmpi_items_look(recv, 1, &b.recv))) {
        return kmpi_note(c, KMPI_SCATTER, KMPI_ARGUMENT);
    }
    if (differ(&b)) {
        return kmpi_truncated(c, out);
    }
    b.block = b.receives ? b.recv.block : b.send.block;
    if (!kmpi_note(c, KMPI_SCATTER, kmpi_choose(c, KMPI_SCATTER, b.block))) {
        return false;
    }
    bool packed = open_both(&b, false, comm);
    kolo_status st = KOLO_OK;
    if (packed) {
        char *to = b.receives ? b.recv.bytes : b.send.bytes + (size_t)c->rank * b.block;
        st = kolo_scatter(b.send.bytes, to, b.block, KOLO_UINT8, root, c->kolo, NULL);
    }
    packed = close_both(&b, packed && st == KOLO_OK, comm) && packed;
    return kmpi_end(c, packed, st, out);
}

bool kmpi_alltoall(const struct kmpi_side *send, const struct kmpi_side *recv, MPI_Comm comm,
                   int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_ALLTOALL, comm);
    struct both b = {.sends = send->buf != MPI_IN_PLACE, .receives = true};
    if (c == NULL) {
        return false;
    }
    if ((b.sends && !kmpi_items_look(send, c->nranks, &b.send)) ||
        !kmpi_items_look(recv, c->nranks, &b.recv)) {
        return kmpi_note(c, KMPI_ALLTOALL, KMPI_ARGUMENT);
    }
    if (differ(&b)) {
        return kmpi_truncated(c, out);
    }
    b.block = b.sends ? b.send.block : b.recv.block;
    if (!kmpi_note(c, KMPI_ALLTOALL, kmpi_choose(c, KMPI_ALLTOALL, b.block))) {
        return false;
    }
    bool packed = open_both(&b, !b.sends, comm);
    kolo_status st = KOLO_OK;
    if (packed) {
        st = kolo_all_to_all(b.sends ? b.send.bytes : b.recv.bytes, b.recv.bytes, b.block,
                             KOLO_UINT8, c->kolo, NULL);
    }
    packed = close_both(&b, packed && st == KOLO_OK, comm) && packed;
    return kmpi_end(c, packed, st, out);
}
