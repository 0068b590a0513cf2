// SPDX-License-Identifier: Apache-2.0
/* Reductions. MPI wants count, type and operation equal on all ranks, so they decide. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

/* A call's buffers, aligned to the element. A buffer that is not, is copied. */
struct aligned {
    const void *send;
    void *recv;
    void *own_send, *own_recv;
};

static bool is_aligned(const void *ptr, size_t bytes)
{
    return ((uintptr_t)ptr & (bytes - 1)) == 0;
}

/* `copies_send`: the call must not read the user's send buffer. */
static __attribute__((noinline)) bool copy(struct aligned *a, size_t send_bytes, size_t recv_bytes,
                                           size_t to, bool copies_send)
{
    const bool same = a->send == a->recv && !copies_send;
    if (a->send != NULL && (copies_send || !is_aligned(a->send, to))) {
        a->own_send = malloc(send_bytes);
        if (a->own_send == NULL) {
            return false;
        }
        memcpy(a->own_send, a->send, send_bytes);
        a->send = a->own_send;
    }
    if (a->recv != NULL && !is_aligned(a->recv, to)) {
        a->own_recv = same ? a->own_send : malloc(recv_bytes);
    }
    return a->own_recv != NULL || a->recv == NULL || is_aligned(a->recv, to);
}

/* As copy(), if something has to be copied. `elem`: bytes of an element. */
static bool align(struct aligned *a, size_t send_bytes, size_t recv_bytes, size_t elem,
                  bool copies_send)
{
    const size_t to = elem > 8 ? 8 : elem;
    if (!copies_send && is_aligned(a->send, to) && is_aligned(a->recv, to)) {
        return true;
    }
    return copy(a, send_bytes, recv_bytes, to, copies_send);
}

static void *recv_of(const struct aligned *a)
{
    return a->own_recv != NULL ? a->own_recv : a->recv;
}

static void end_aligned(struct aligned *a, size_t recv_bytes, bool done)
{
    if (a->own_recv == NULL && a->own_send == NULL) {
        return;
    }
    if (a->own_recv != NULL && done) {
        memcpy(a->recv, a->own_recv, recv_bytes);
    }
    if (a->own_recv != a->own_send) {
        free(a->own_recv);
    }
    free(a->own_send);
}

/* Whether kolo serves a reduction of `count` items; notes it. */
static bool serves(struct kmpi_comm *c, enum kmpi_coll coll, MPI_Count count, MPI_Datatype type,
                   MPI_Op op, struct kmpi_reduction *how)
{
    const enum kmpi_why why = count < 0                           ? KMPI_ARGUMENT
                              : !kmpi_reduction_of(type, op, how) ? KMPI_OPERATION
                              : count == 0                        ? KMPI_EMPTY
                                                                  : KMPI_SERVED;
    return kmpi_note(c, coll, why);
}

static bool no_memory(struct kmpi_comm *c, struct aligned *a, int *out)
{
    end_aligned(a, 0, false);
    return kmpi_no_memory(c, out);
}

bool kmpi_allreduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_ALLREDUCE, comm);
    struct kmpi_reduction how;
    if (c == NULL || !serves(c, KMPI_ALLREDUCE, count, type, op, &how)) {
        return false;
    }
    struct aligned a = {.send = send == MPI_IN_PLACE ? recv : send, .recv = recv};
    const size_t n = (size_t)count * how.per_item, bytes = n * how.elem;
    if (!align(&a, bytes, bytes, how.elem, false)) {
        return no_memory(c, &a, out);
    }
    const kolo_status st = kolo_all_reduce(a.send, recv_of(&a), n, how.type, how.op, c->kolo, NULL);
    end_aligned(&a, bytes, st == KOLO_OK);
    *out = kmpi_result(c, st);
    return true;
}

bool kmpi_reduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                 int root, MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_REDUCE, comm);
    struct kmpi_reduction how;
    if (c == NULL || (!kmpi_is_rank(c, root) && !kmpi_note(c, KMPI_REDUCE, KMPI_ARGUMENT)) ||
        !serves(c, KMPI_REDUCE, count, type, op, &how)) {
        return false;
    }
    const bool is_root = c->rank == root;
    struct aligned a = {.send = is_root && send == MPI_IN_PLACE ? recv : send,
                        .recv = is_root ? recv : NULL};
    const size_t n = (size_t)count * how.per_item, bytes = n * how.elem;
    if (!align(&a, bytes, bytes, how.elem, false)) {
        return no_memory(c, &a, out);
    }
    const kolo_status st =
        kolo_reduce(a.send, recv_of(&a), n, how.type, how.op, root, c->kolo, NULL);
    end_aligned(&a, bytes, st == KOLO_OK);
    *out = kmpi_result(c, st);
    return true;
}

bool kmpi_reduce_scatter_block(const void *send, void *recv, MPI_Count count, MPI_Datatype type,
                               MPI_Op op, MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_REDUCE_SCATTER_BLOCK, comm);
    struct kmpi_reduction how;
    if (c == NULL || !serves(c, KMPI_REDUCE_SCATTER_BLOCK, count, type, op, &how)) {
        return false;
    }
    /* In place, MPI wants the result at the begin of the input; kolo would put it into the rank's
     * block. */
    const bool in_place = send == MPI_IN_PLACE;
    struct aligned a = {.send = in_place ? recv : send, .recv = recv};
    const size_t n = (size_t)count * how.per_item, bytes = n * how.elem;
    if (!align(&a, bytes * (size_t)c->nranks, bytes, how.elem, in_place)) {
        return no_memory(c, &a, out);
    }
    const kolo_status st =
        kolo_reduce_scatter(a.send, recv_of(&a), n, how.type, how.op, c->kolo, NULL);
    end_aligned(&a, bytes, st == KOLO_OK);
    *out = kmpi_result(c, st);
    return true;
}

/* The items of all blocks; -1: a count is negative. */
static MPI_Count sum_of(const struct kmpi_comm *c, struct kmpi_list counts)
{
    MPI_Count sum = 0;
    for (int i = 0; i < c->nranks; i++) {
        const MPI_Count count = kmpi_count_at(counts, i);
        if (count < 0) {
            return -1;
        }
        sum += count;
    }
    return sum;
}

static bool are_equal(const size_t *elements, int n)
{
    for (int i = 1; i < n; i++) {
        if (elements[i] != elements[0]) {
            return false;
        }
    }
    return true;
}

bool kmpi_reduce_scatter(const void *send, void *recv, struct kmpi_list counts, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm, int *out)
{
    struct kmpi_comm *c = kmpi_enter(KMPI_REDUCE_SCATTER, comm);
    struct kmpi_reduction how;
    if (c == NULL) {
        return false;
    }
    const MPI_Count sum = sum_of(c, counts);
    if (!serves(c, KMPI_REDUCE_SCATTER, sum, type, op, &how)) {
        return false;
    }
    size_t *elements = calloc((size_t)c->nranks, sizeof *elements);
    struct aligned a = {0};
    if (elements == NULL) {
        return no_memory(c, &a, out);
    }
    for (int i = 0; i < c->nranks; i++) {
        elements[i] = (size_t)kmpi_count_at(counts, i) * how.per_item;
    }
    const bool in_place = send == MPI_IN_PLACE;
    const size_t bytes = elements[c->rank] * how.elem;
    a = (struct aligned){.send = in_place ? recv : send, .recv = bytes > 0 ? recv : NULL};
    if (!align(&a, (size_t)sum * how.per_item * how.elem, bytes, how.elem, in_place)) {
        free(elements);
        return no_memory(c, &a, out);
    }
    /* All ranks know all counts. Where they are equal, the shorter call serves. */
    const kolo_status st =
        are_equal(elements, c->nranks)
            ? kolo_reduce_scatter(a.send, recv_of(&a), elements[0], how.type, how.op, c->kolo, NULL)
            : kolo_reduce_scatterv(a.send, recv_of(&a), elements, how.type, how.op, c->kolo, NULL);
    end_aligned(&a, bytes, st == KOLO_OK);
    free(elements);
    *out = kmpi_result(c, st);
    return true;
}
