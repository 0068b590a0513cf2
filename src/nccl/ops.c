// SPDX-License-Identifier: Apache-2.0
/* Types, and operations that the user created. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

ncclResult_t shim_type(ncclDataType_t datatype, enum kolo_type *out)
{
    static const enum kolo_type types[ncclNumTypes] = {[ncclInt8] = KOLO_INT8,
                                                       [ncclUint8] = KOLO_UINT8,
                                                       [ncclInt32] = KOLO_INT32,
                                                       [ncclUint32] = KOLO_UINT32,
                                                       [ncclInt64] = KOLO_INT64,
                                                       [ncclUint64] = KOLO_UINT64,
                                                       [ncclFloat16] = KOLO_FLOAT16,
                                                       [ncclFloat32] = KOLO_FLOAT32,
                                                       [ncclFloat64] = KOLO_FLOAT64,
                                                       [ncclBfloat16] = KOLO_BFLOAT16,
                                                       [ncclFloat8e4m3] = KOLO_FLOAT8_E4M3,
                                                       [ncclFloat8e5m2] = KOLO_FLOAT8_E5M2};
    if ((int)datatype < 0 || (int)datatype >= ncclNumTypes) {
        return shim_fail(ncclInvalidArgument, "datatype is %d; it must be 0 to %d", (int)datatype,
                         ncclNumTypes - 1);
    }
    *out = types[datatype];
    return ncclSuccess;
}

/* The place of the pointer to an operation, or of the final NULL. The caller holds the lock. */
static struct shim_op **find(struct ncclComm *comm, int handle)
{
    struct shim_op **at = &comm->ops;
    while (*at != NULL && (*at)->handle != handle) {
        at = &(*at)->next;
    }
    return at;
}

static ncclResult_t make_op(struct ncclComm *comm, const struct shim_op *op, cudaStream_t stream,
                            kolo_op *out)
{
    unsigned char factor[8] = {0};
    const size_t bytes = kolo_type_bytes(op->type);
    if (comm->on_host) {
        memcpy(factor, op->scalar, bytes);
    } else {
        SHIM_TRY(shim_read(op->scalar, bytes, stream, factor));
    }
    return shim_said(kolo_op_create_premulsum(factor, op->type, comm->comm, out));
}

ncclResult_t shim_op(struct ncclComm *comm, ncclRedOp_t op, enum kolo_type type,
                     cudaStream_t stream, kolo_op *out, bool *made_out)
{
    static const kolo_op ops[ncclNumOps] = {[ncclSum] = KOLO_SUM,
                                            [ncclProd] = KOLO_PROD,
                                            [ncclMax] = KOLO_MAX,
                                            [ncclMin] = KOLO_MIN,
                                            [ncclAvg] = KOLO_AVG};
    *made_out = false;
    if ((int)op >= 0 && (int)op < ncclNumOps) {
        *out = ops[op];
        return ncclSuccess;
    }
    pthread_mutex_lock(&comm->lock);
    const struct shim_op *found = *find(comm, (int)op);
    const struct shim_op copy = found != NULL ? *found : (struct shim_op){0};
    pthread_mutex_unlock(&comm->lock);
    if (found == NULL) {
        return shim_fail(ncclInvalidArgument,
                         "op is %d, which is neither 0 to %d nor an operation created on comm",
                         (int)op, ncclNumOps - 1);
    }
    if (copy.type != type) {
        return shim_fail(ncclInvalidArgument, "op was created for %s, the elements are %s",
                         kolo_type_name(copy.type), kolo_type_name(type));
    }
    *made_out = copy.scalar != NULL;
    *out = copy.op;
    return copy.scalar != NULL ? make_op(comm, &copy, stream, out) : ncclSuccess;
}

void shim_ops_free(struct ncclComm *comm)
{
    while (comm->ops != NULL) {
        struct shim_op *op = comm->ops;
        comm->ops = op->next;
        if (op->scalar == NULL) {
            kolo_op_destroy(op->op, comm->comm);
        }
        free(op);
    }
}

static ncclResult_t create_op(struct ncclComm *comm, const void *scalar, ncclDataType_t datatype,
                              ncclScalarResidence_t residence, ncclRedOp_t *out)
{
    struct shim_op made = {0};
    if (scalar == NULL || out == NULL) {
        return shim_fail(ncclInvalidArgument, "%s is NULL", scalar == NULL ? "scalar" : "op");
    }
    SHIM_TRY(shim_type(datatype, &made.type));
    if (residence == ncclScalarHostImmediate) {
        SHIM_TRY(shim_said(kolo_op_create_premulsum(scalar, made.type, comm->comm, &made.op)));
    } else if (residence == ncclScalarDevice) {
        made.scalar = scalar;
    } else {
        return shim_fail(ncclInvalidArgument, "residence is %d; it must be 0 or 1", (int)residence);
    }
    struct shim_op *kept = malloc(sizeof *kept);
    if (kept == NULL) {
        if (made.scalar == NULL) {
            kolo_op_destroy(made.op, comm->comm);
        }
        return shim_fail(ncclSystemError, "out of memory for an operation");
    }
    pthread_mutex_lock(&comm->lock);
    made.handle = comm->next_op++;
    made.next = comm->ops;
    *kept = made;
    comm->ops = kept;
    pthread_mutex_unlock(&comm->lock);
    *out = (ncclRedOp_t)made.handle;
    return ncclSuccess;
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    SHIM_TRY(shim_enter(comm, "ncclRedOpCreatePreMulSum"));
    const ncclResult_t result = create_op(comm, scalar, datatype, residence, op);
    shim_release(comm);
    return result;
}
SHIM_NAME(ncclRedOpCreatePreMulSum)

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    SHIM_TRY(shim_enter(comm, "ncclRedOpDestroy"));
    pthread_mutex_lock(&comm->lock);
    struct shim_op **at = find(comm, (int)op), *found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    pthread_mutex_unlock(&comm->lock);
    ncclResult_t result = ncclSuccess;
    if (found == NULL) {
        result = shim_fail(ncclInvalidArgument, "op is %d, which was not created on comm", (int)op);
    } else if (found->scalar == NULL) {
        shim_group_drop_op(comm, found->op);
    }
    free(found);
    shim_release(comm);
    return result;
}
SHIM_NAME(ncclRedOpDestroy)
