// SPDX-License-Identifier: Apache-2.0
/* The names of NCCL 2.28 over kolo: see kolo-nccl(7).
 *
 * Names, numbers, layouts and signatures follow NVIDIA's documentation of NCCL
 * (docs.nvidia.com/deeplearning/nccl). So a program compiled with either header runs with either
 * library. The comments are kolo's own.
 *
 * Differences from NCCL:
 *  - Several ranks may share a GPU.
 *  - Without a GPU, buffers are host memory. A call then returns when its result is there, and
 *    ignores `stream`.
 *  - There is no device API, and no nccl_device.h. Compile sources that include it from version
 *    2.28 on with -DNCCL_MINOR=27.
 *  - ncclCommAbort() and ncclCommRevoke() reach the other ranks. Their calls fail with
 *    ncclRemoteError.
 *
 * Every failure leaves a text for ncclGetLastError(). Each function also exists with a p before its
 * name, for tools that intercept calls. */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>

#if defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#ifdef __cplusplus
#include <cuda_fp8.h>
#endif
#define KOLO_NCCL_HAS_CUDA 1
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef KOLO_NCCL_HAS_CUDA
typedef struct CUstream_st *cudaStream_t;
#endif

#define NCCL_MAJOR 2
#ifndef NCCL_MINOR
#define NCCL_MINOR 28
#endif
#define NCCL_PATCH  9
#define NCCL_SUFFIX ""
#define NCCL_VERSION(X, Y, Z)                                                                      \
    (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE (NCCL_MAJOR * 10000 + NCCL_MINOR * 100 + NCCL_PATCH)

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* The result of a call. The brackets name the kolo errors (KOLO_ERR_...) that it stands for. */
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1, /* the CUDA driver refused a request of this layer */
    ncclSystemError = 2,        /* [SYSTEM] */
    ncclInternalError = 3,      /* [INTERNAL] */
    ncclInvalidArgument = 4,    /* [INVALID] */
    ncclInvalidUsage = 5,       /* [UNSUPPORTED, MISMATCH, VERSION, FORKED], or not in kolo */
    ncclRemoteError = 6,        /* [PEER, LINK, TIMEOUT, ABORTED] */
    ncclInProgress = 7,         /* a call of a nonblocking communicator is not done */
    ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR    -1
#define NCCL_UNDEF_FLOAT      -1.0f

#define NCCL_WIN_DEFAULT            0x00
#define NCCL_WIN_COLL_SYMMETRIC     0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT    0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO       0x02

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT   0x01 /* first end the calls that run on the parent */
#define NCCL_REVOKE_DEFAULT 0x00

/* Options of a communicator. kolo reads `blocking` and `commName`. The others tune NCCL's kernels
 * and networks, and have no effect here. Shorter or longer structs of other versions are accepted,
 * too. */
typedef struct ncclConfig_v22800 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT,                \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT                                                                  \
    }

typedef struct ncclSimInfo_v22200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER                                                                  \
    {                                                                                              \
        sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT                     \
    }

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5, /* created operations start here */
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
    ncclScalarDevice = 0,       /* read when a collective uses it, in the order of its stream */
    ncclScalarHostImmediate = 1 /* read at once */
} ncclScalarResidence_t;

/* Declares a function under both of its names. */
#define KOLO_NCCL_FUNCTION(result, name, ...)                                                      \
    result name(__VA_ARGS__);                                                                      \
    result p##name(__VA_ARGS__);

/* ---- version and errors ---- */

KOLO_NCCL_FUNCTION(ncclResult_t, ncclGetVersion, int *version)
KOLO_NCCL_FUNCTION(const char *, ncclGetErrorString, ncclResult_t result)
/* The text of the last error: of `comm` if it has failed, else of this process. "": there was none.
 * The text is valid until this thread calls the function again. */
KOLO_NCCL_FUNCTION(const char *, ncclGetLastError, ncclComm_t comm)
/* Does nothing: KOLO_DEBUG is read once. */
KOLO_NCCL_FUNCTION(void, ncclResetDebugInit, void)

/* ---- communicators ---- */

/* The process that makes an id answers the ranks that join with it. */
KOLO_NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, ncclUniqueId *uniqueId)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommInitRank, ncclComm_t *comm, int nranks,
                   ncclUniqueId commId, int rank)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *comm, int nranks,
                   ncclUniqueId commId, int rank, ncclConfig_t *config)
/* The ranks meet at the first id. */
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommInitRankScalable, ncclComm_t *newcomm, int nranks,
                   int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommInitAll, ncclComm_t *comm, int ndev, const int *devlist)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key,
                   ncclComm_t *newcomm, ncclConfig_t *config)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommShrink, ncclComm_t comm, int *excludeRanksList,
                   int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config,
                   int shrinkFlags)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, ncclComm_t comm)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, ncclComm_t comm)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommAbort, ncclComm_t comm)
/* After it, only ncclCommShrink(), ncclCommDestroy() and ncclCommAbort() may follow. */
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *asyncError)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommCount, const ncclComm_t comm, int *count)
/* Without a GPU: the number that ncclCommInitAll() was given for this rank, or 0. */
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int *device)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int *rank)

/* ---- memory ---- */

/* Memory of the current device; without a GPU, host memory that other ranks can map. */
KOLO_NCCL_FUNCTION(ncclResult_t, ncclMemAlloc, void **ptr, size_t size)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclMemFree, void *ptr)
/* Hints: kolo registers host memory if that helps, and never refuses. */
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buff, size_t size,
                   void **handle)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void *handle)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void *buff, size_t size,
                   ncclWindow_t *win, int winFlags)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win)

/* ---- operations ---- */

KOLO_NCCL_FUNCTION(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar,
                   ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm)

/* ---- collectives ---- */

KOLO_NCCL_FUNCTION(ncclResult_t, ncclReduce, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                   cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclBcast, void *buff, size_t count, ncclDataType_t datatype,
                   int root, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclBroadcast, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclAllReduce, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclReduceScatter, const void *sendbuff, void *recvbuff,
                   size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                   cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclAllGather, const void *sendbuff, void *recvbuff,
                   size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclAlltoAll, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclGather, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclScatter, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclSend, const void *sendbuff, size_t count,
                   ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclRecv, void *recvbuff, size_t count, ncclDataType_t datatype,
                   int peer, ncclComm_t comm, cudaStream_t stream)

/* ---- groups ---- */

KOLO_NCCL_FUNCTION(ncclResult_t, ncclGroupStart, void)
KOLO_NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, void)
/* kolo does not have it: it fails, and the group stays open. */
KOLO_NCCL_FUNCTION(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *simInfo)

#undef KOLO_NCCL_FUNCTION

#ifdef __cplusplus
}
#endif

#endif
