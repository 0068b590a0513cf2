// SPDX-License-Identifier: Apache-2.0
/* Collectives. A complex number is two floats for a sum. A product of complex numbers has no operation
 * in kolo: each rank gets the factors of all, and multiplies them in the order of ranks. */
#include "trampoline.h"

#include <complex.h>
#include <stdlib.h>
#include <string.h>

/* XLA's types. */
static const struct row {
    tramp_handle handle;
    enum kolo_type type;
    int per_item; /* elements of kolo */
} types[] = {
    {TRAMP_BYTE, KOLO_UINT8, 1},
    {TRAMP_INT8_T, KOLO_INT8, 1},
    {TRAMP_UINT8_T, KOLO_UINT8, 1},
    {TRAMP_INT16_T, KOLO_INT16, 1},
    {TRAMP_UINT16_T, KOLO_UINT16, 1},
    {TRAMP_INT32_T, KOLO_INT32, 1},
    {TRAMP_UINT32_T, KOLO_UINT32, 1},
    {TRAMP_INT64_T, KOLO_INT64, 1},
    {TRAMP_UINT64_T, KOLO_UINT64, 1},
    {TRAMP_FLOAT, KOLO_FLOAT32, 1},
    {TRAMP_DOUBLE, KOLO_FLOAT64, 1},
    {TRAMP_C_COMPLEX, KOLO_FLOAT32, 2},
    {TRAMP_C_DOUBLE_COMPLEX, KOLO_FLOAT64, 2},
};

static const struct row *find_type(tramp_handle type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].handle == type) {
            return &types[i];
        }
    }
    (void)tramp_fail("kolo: type %ju of MPI is not one that JAX gives to MPI", (uintmax_t)type);
    return NULL;
}

bool tramp_bytes(tramp_handle type, int count, size_t *out)
{
    const struct row *row = find_type(type);
    if (row == NULL) {
        return false;
    }
    if (count < 0) {
        (void)tramp_fail("kolo: a count of %d; XLA gives MPI at most 2147483647 elements", count);
        return false;
    }
    *out = (size_t)count * (size_t)row->per_item * kolo_type_bytes(row->type);
    return true;
}

static bool find_op(tramp_handle handle, kolo_op *out)
{
    static const struct {
        tramp_handle handle;
        kolo_op op;
    } ops[] = {{TRAMP_SUM, KOLO_SUM},
               {TRAMP_PROD, KOLO_PROD},
               {TRAMP_MIN, KOLO_MIN},
               {TRAMP_MAX, KOLO_MAX}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (ops[i].handle == handle) {
            *out = ops[i].op;
            return true;
        }
    }
    (void)tramp_fail("kolo: operation %ju of MPI is not one that JAX gives to MPI",
                     (uintmax_t)handle);
    return false;
}

/* A reduction, checked. */
struct reduction {
    struct tramp_comm *comm;
    const struct row *type;
    kolo_op op;
    bool multiplies_complex;
};

static bool look(tramp_handle type, tramp_handle op, tramp_handle comm, struct reduction *out)
{
    out->comm = tramp_enter(comm);
    out->type = out->comm == NULL ? NULL : find_type(type);
    if (out->type == NULL || !find_op(op, &out->op)) {
        return false;
    }
    out->multiplies_complex = out->type->per_item == 2 && out->op == KOLO_PROD;
    if (out->type->per_item == 2 && out->op != KOLO_SUM && out->op != KOLO_PROD) {
        (void)tramp_fail("kolo: complex numbers have no order");
        return false;
    }
    return true;
}

/* The product of n blocks that lie one after another. out[count]. */
static void multiply(enum kolo_type type, const void *blocks, int n, size_t count, void *out)
{
    const float complex *small = blocks;
    const double complex *large = blocks;
    memcpy(out, blocks, count * 2 * kolo_type_bytes(type));
    for (size_t i = count; i < (size_t)n * count; i++) {
        if (type == KOLO_FLOAT32) {
            ((float complex *)out)[i % count] *= small[i];
        } else {
            ((double complex *)out)[i % count] *= large[i];
        }
    }
}

/* The product of a block of every rank, which `exchange` brings: kolo_all_gather(), of count numbers of
 * each rank, or kolo_all_to_all(), of one of its blocks. */
static kolo_status
multiply_complex(const struct reduction *how, const void *send, void *recv, size_t count,
                 kolo_status (*exchange)(const void *, void *, size_t, enum kolo_type,
                                         struct kolo_comm *, kolo_stream))
{
    const struct tramp_comm *c = how->comm;
    const enum kolo_type type = how->type->type;
    void *all = malloc((size_t)c->size * count * 2 * kolo_type_bytes(type) + 1);
    if (all == NULL) {
        kolo_comm_abort(c->kolo); /* the others wait for this rank */
    }
    const kolo_status st = exchange(send, all, count * 2, type, c->kolo, NULL);
    if (st == KOLO_OK) {
        multiply(type, all, c->size, count, recv);
    }
    free(all);
    return st;
}

int MPIABI_Allreduce(const void *send, void *recv, int count, tramp_handle type, tramp_handle op,
                     tramp_handle comm)
{
    struct reduction how;
    size_t bytes;
    if (!look(type, op, comm, &how) || !tramp_bytes(type, count, &bytes)) {
        return TRAMP_ERR_OTHER;
    }
    const void *from = tramp_is_in_place(send) ? recv : send;
    if (how.multiplies_complex) {
        return tramp_result(multiply_complex(&how, from, recv, (size_t)count, kolo_all_gather));
    }
    return tramp_result(kolo_all_reduce(from, recv, (size_t)count * (size_t)how.type->per_item,
                                        how.type->type, how.op, how.comm->kolo, NULL));
}

int MPIABI_Reduce_scatter(const void *send, void *recv, const int *counts, tramp_handle type,
                          tramp_handle op, tramp_handle comm)
{
    struct reduction how;
    size_t bytes;
    if (!look(type, op, comm, &how) || !tramp_bytes(type, counts[0], &bytes)) {
        return TRAMP_ERR_OTHER;
    }
    for (int rank = 1; rank < how.comm->size; rank++) {
        if (counts[rank] != counts[0]) {
            return tramp_fail(
                "kolo: MPI_Reduce_scatter to blocks of %d and %d elements; JAX has equal ones",
                counts[0], counts[rank]);
        }
    }
    const size_t count = (size_t)counts[0];
    const void *from = tramp_is_in_place(send) ? recv : send;
    if (how.multiplies_complex) {
        return tramp_result(multiply_complex(&how, from, recv, count, kolo_all_to_all));
    }
    return tramp_result(kolo_reduce_scatter(from, recv, count * (size_t)how.type->per_item,
                                            how.type->type, how.op, how.comm->kolo, NULL));
}

int MPIABI_Allgather(const void *send, int send_count, tramp_handle send_type, void *recv,
                     int recv_count, tramp_handle recv_type, tramp_handle comm)
{
    (void)send_count; /* as many as each block of recv, but in place */
    (void)send_type;
    const struct tramp_comm *c = tramp_enter(comm);
    size_t bytes;
    if (c == NULL || !tramp_bytes(recv_type, recv_count, &bytes)) {
        return TRAMP_ERR_OTHER;
    }
    const void *from = tramp_is_in_place(send) ? (char *)recv + (size_t)c->rank * bytes : send;
    return tramp_result(kolo_all_gather(from, recv, bytes, KOLO_UINT8, c->kolo, NULL));
}
