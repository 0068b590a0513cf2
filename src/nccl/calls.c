// SPDX-License-Identifier: Apache-2.0
/* Collectives and messages. Each is kolo's call with the same arguments, between begin_call() and
 * end_call(). */
#include "shim.h"

struct call {
    struct ncclComm *comm;
    struct kolo_comm *on;
    enum kolo_type type;
    kolo_op op;
    kolo_stream stream;
    bool made_op;
};

/* On host memory calls return with the complete result: kolo takes no stream then. */
static ncclResult_t fill_call(struct call *call, struct ncclComm *comm, ncclDataType_t datatype,
                              cudaStream_t stream)
{
    *call = (struct call){.comm = comm, .on = comm->comm, .stream = comm->on_host ? NULL : stream};
    SHIM_TRY(shim_type(datatype, &call->type));
    return shim_group_hold(comm);
}

static ncclResult_t begin_call(struct call *call, const char *name, ncclDataType_t datatype,
                               ncclComm_t comm, cudaStream_t stream)
{
    SHIM_TRY(shim_group_note(shim_enter(comm, name)));
    const ncclResult_t result = fill_call(call, comm, datatype, stream);
    if (result != ncclSuccess) {
        shim_release(comm);
    }
    return shim_group_note(result);
}

static ncclResult_t begin_op(struct call *call, const char *name, ncclDataType_t datatype,
                             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    SHIM_TRY(begin_call(call, name, datatype, comm, stream));
    const ncclResult_t result = shim_op(comm, op, call->type, stream, &call->op, &call->made_op);
    if (result != ncclSuccess) {
        shim_release(comm);
    }
    return shim_group_note(result);
}

static ncclResult_t end_call(struct call *call, kolo_status st)
{
    const ncclResult_t result = shim_said(st);
    if (call->made_op) {
        shim_group_drop_op(call->comm, call->op);
    }
    shim_release(call->comm);
    return shim_group_note(result);
}

ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                            ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_op(&c, "ncclAllReduce", datatype, op, comm, stream));
    return end_call(&c, kolo_all_reduce(sendbuff, recvbuff, count, c.type, c.op, c.on, c.stream));
}
SHIM_NAME(ncclAllReduce)

ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_op(&c, "ncclReduce", datatype, op, comm, stream));
    return end_call(&c, kolo_reduce(sendbuff, recvbuff, count, c.type, c.op, root, c.on, c.stream));
}
SHIM_NAME(ncclReduce)

ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                            ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_call(&c, "ncclBroadcast", datatype, comm, stream));
    return end_call(&c, kolo_broadcast(sendbuff, recvbuff, count, c.type, root, c.on, c.stream));
}
SHIM_NAME(ncclBroadcast)

ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return pncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}
SHIM_NAME(ncclBcast)

ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_op(&c, "ncclReduceScatter", datatype, op, comm, stream));
    return end_call(
        &c, kolo_reduce_scatter(sendbuff, recvbuff, recvcount, c.type, c.op, c.on, c.stream));
}
SHIM_NAME(ncclReduceScatter)

ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_call(&c, "ncclAllGather", datatype, comm, stream));
    return end_call(&c, kolo_all_gather(sendbuff, recvbuff, sendcount, c.type, c.on, c.stream));
}
SHIM_NAME(ncclAllGather)

ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_call(&c, "ncclAlltoAll", datatype, comm, stream));
    return end_call(&c, kolo_all_to_all(sendbuff, recvbuff, count, c.type, c.on, c.stream));
}
SHIM_NAME(ncclAlltoAll)

ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_call(&c, "ncclGather", datatype, comm, stream));
    return end_call(&c, kolo_gather(sendbuff, recvbuff, count, c.type, root, c.on, c.stream));
}
SHIM_NAME(ncclGather)

ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_call(&c, "ncclScatter", datatype, comm, stream));
    return end_call(&c, kolo_scatter(sendbuff, recvbuff, count, c.type, root, c.on, c.stream));
}
SHIM_NAME(ncclScatter)

ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_call(&c, "ncclSend", datatype, comm, stream));
    return end_call(&c, kolo_send(sendbuff, count, c.type, peer, c.on, c.stream));
}
SHIM_NAME(ncclSend)

ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    struct call c;
    SHIM_TRY(begin_call(&c, "ncclRecv", datatype, comm, stream));
    return end_call(&c, kolo_recv(recvbuff, count, c.type, peer, c.on, c.stream));
}
SHIM_NAME(ncclRecv)
