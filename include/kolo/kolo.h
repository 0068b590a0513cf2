// SPDX-License-Identifier: Apache-2.0
/* kolo: collective communication. This is all that an application needs.
 *
 * A *communicator* joins `nranks` ranks; a rank is a process or a thread. Every rank calls the same
 * collectives on it in the same order. Argument order is that of NCCL, so a port is a rename.
 *
 * Conventions that hold for every call below unless its own contract says otherwise:
 *  - Counts are elements, not bytes. Buffers are aligned to their element.
 *  - `stream` NULL: the call returns when this rank's result is there and its buffers are free
 *    again. A stream of kolo_stream_create(): the call queues and returns; the buffers are borrowed
 *    until kolo_stream_sync(). Between kolo_group_begin() and kolo_group_end() nothing runs before
 *    the end.
 *  - Out-arguments are written only on success.
 *  - Every failure leaves a sentence for kolo_error_text(): the argument, its value, what is
 *    allowed.
 *  - INVALID and UNSUPPORTED change nothing and leave the communicator usable. The other errors do
 *    not: only kolo_comm_error(), kolo_comm_shrink(), kolo_comm_abort() and kolo_comm_destroy() may
 *    follow.
 *  - Every rank gets the same bits. With config.deterministic the result is ((x0+x1)+x2)+... in
 *    rank order, summed in the accumulator type and rounded once, whatever the algorithm.
 *  - In place: send == recv (all_reduce, reduce, broadcast, all_to_all), or the rank's own block of
 *    the larger buffer (all_gather and gather: send == recv + rank*count; reduce_scatter and
 *    scatter: recv == send + rank*count). Any other overlap is INVALID.
 */
#ifndef KOLO_KOLO_H
#define KOLO_KOLO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KOLO_VERSION_MAJOR 0
#define KOLO_VERSION_MINOR 1
#define KOLO_VERSION_PATCH 0
#define KOLO_VERSION       (KOLO_VERSION_MAJOR * 10000 + KOLO_VERSION_MINOR * 100 + KOLO_VERSION_PATCH)

#if defined(__GNUC__)
#define KOLO_EXPORT __attribute__((visibility("default")))
#define KOLO_CHECK  __attribute__((warn_unused_result))
#else
#define KOLO_EXPORT
#define KOLO_CHECK
#endif

/* How a call ended. 0: done. > 0: not yet. < 0: error, grouped by what it costs. Never
 * renumbered. */
typedef enum kolo_status {
    KOLO_OK = 0,
    KOLO_INPROGRESS = 1,
    KOLO_ERR_INVALID = -1,     /* the request makes no sense; nothing happened */
    KOLO_ERR_UNSUPPORTED = -2, /* it makes sense, but not here; nothing happened */
    KOLO_ERR_MISMATCH = -16,   /* ranks called different collectives */
    KOLO_ERR_PEER = -17,       /* a rank died */
    KOLO_ERR_TIMEOUT = -18,    /* no progress for config.timeout_ms */
    KOLO_ERR_LINK = -19,       /* a connection broke */
    KOLO_ERR_ABORTED = -20,    /* kolo_comm_abort() was called */
    KOLO_ERR_SYSTEM = -21,     /* the system refused: memory, descriptors, ... */
    KOLO_ERR_FORKED = -22,     /* called in a child of the process that owns the communicator */
    KOLO_ERR_VERSION = -23,    /* ranks or plugins of another version */
    KOLO_ERR_INTERNAL = -24    /* a bug in kolo */
} kolo_status;

/* Types of elements. Movement takes all of them; see kolo_op for which reductions make sense.
 * A pair is {value, index} without padding between ranks' elements: two members of equal size, but
 * FLOAT64_INT32 which is {double, int32_t, 4 bytes unused}. Never renumbered. */
enum kolo_type {
    KOLO_INT8 = 0,
    KOLO_UINT8 = 1,
    KOLO_INT16 = 2,
    KOLO_UINT16 = 3,
    KOLO_INT32 = 4,
    KOLO_UINT32 = 5,
    KOLO_INT64 = 6,
    KOLO_UINT64 = 7,
    KOLO_FLOAT16 = 8,
    KOLO_BFLOAT16 = 9,
    KOLO_FLOAT32 = 10,
    KOLO_FLOAT64 = 11,
    KOLO_FLOAT8_E4M3 = 12, /* OCP "fn": no infinity, max 448 */
    KOLO_FLOAT8_E5M2 = 13, /* OCP: IEEE-like, max 57344 */
    KOLO_BOOL = 14,        /* one byte; anything but 0 is true, results are 0 or 1 */
    KOLO_INT32_INT32 = 15,
    KOLO_INT64_INT64 = 16,
    KOLO_FLOAT32_INT32 = 17,
    KOLO_FLOAT64_INT32 = 18,
    KOLO_TYPES = 19
};

/* Operations of reductions. A handle, because kolo_op_create_premulsum() makes new ones, of values
 * >= KOLO_OPS.
 *
 *   SUM PROD MIN MAX AVG PREMULSUM   every integer and float; not bool, not pairs
 *   LAND LOR LXOR                    every integer and bool; the result is 0 or 1
 *   BAND BOR BXOR                    every integer and bool
 *   MINLOC MAXLOC                    pairs; equal values take the smaller index
 *
 * AVG on integers divides the sum, rounding toward zero. float16, bfloat16 and float8 accumulate in
 * float32. MIN and MAX return NaN if any input is NaN. */
typedef uint32_t kolo_op;
enum {
    KOLO_SUM = 0,
    KOLO_PROD = 1,
    KOLO_MIN = 2,
    KOLO_MAX = 3,
    KOLO_AVG = 4,
    KOLO_LAND = 5,
    KOLO_LOR = 6,
    KOLO_LXOR = 7,
    KOLO_BAND = 8,
    KOLO_BOR = 9,
    KOLO_BXOR = 10,
    KOLO_MINLOC = 11,
    KOLO_MAXLOC = 12,
    KOLO_OPS = 13
};

struct kolo_comm; /* a communicator, as one rank sees it */

/* A host stream of kolo_stream_create(); on a communicator of a CUDA device, a cudaStream_t. */
typedef void *kolo_stream;

/* What joins ranks: rank 0's address and a secret. Copy it to every rank by any safe means. */
struct kolo_id {
    unsigned char bytes[128];
};

#define KOLO_UNSET (-2147483647 - 1) /* an int member that was not set */
#define KOLO_HOST  (-1)              /* config.device: buffers are host memory */

/* Options of a communicator. Start from KOLO_CONFIG_INIT; unset members take the environment's
 * value, else the default (both in parentheses below). Grows at the tail only. */
struct kolo_config {
    uint32_t size;         /* sizeof(struct kolo_config) as the caller knows it */
    int deterministic;     /* 0 or 1 (0; KOLO_DETERMINISTIC): sums in rank order */
    int timeout_ms;        /* > 0 (600000; KOLO_TIMEOUT_MS): longest wait without progress */
    int device;            /* KOLO_HOST (default) or a CUDA ordinal, see below */
    const char *name;      /* "comm": shown in the log */
    const char *algo;      /* KOLO_ALGO: "allreduce:0-4k:direct,4k-:ring;broadcast:chain" */
    const char *transport; /* KOLO_TRANSPORT: "shm,loop", the preferred first */
};
#define KOLO_CONFIG_INIT                                                                           \
    {                                                                                              \
        sizeof(struct kolo_config), KOLO_UNSET, KOLO_UNSET, KOLO_UNSET, NULL, NULL, NULL           \
    }

/* On a communicator of a CUDA device a buffer is memory of that GPU (or managed), or host memory;
 * which, kolo finds from the pointer; a call's buffers are of one kind. With GPU memory `stream` is
 * a cudaStream_t: a call is enqueued on it and returns, and may be captured in a graph, by all
 * ranks or none. Calls of a rank on different streams take effect in their order. Ranks that are
 * threads need streams of their own, not the default stream, unless one thread brings the calls of
 * all of them, or both ends of a message, in a group. With host memory calls return when the result
 * is there, and `stream` is NULL. Sends and receives of GPU memory stand in the order of the
 * communicator's calls, so exchanges need a group, whose messages are on one stream; both ends of a
 * message are GPU memory, and one that is longer than a receive that was enqueued before ends the
 * communicator. What GPU memory does not serve is UNSUPPORTED, with the reason. */

#define KOLO_ANY_SOURCE (-1)
#define KOLO_ANY_TAG    (-1)
#define KOLO_NO_COLOR   (-1) /* kolo_comm_split: this rank joins no part */

/* What a message brought, as kolo_recv_tag() tells it. */
struct kolo_recv_info {
    uint32_t size; /* set to sizeof(struct kolo_recv_info) by the caller */
    int source;    /* rank it came from */
    int tag;
    size_t bytes; /* at most count * type bytes */
};

/* What ended a communicator. */
struct kolo_failure {
    uint32_t size; /* set to sizeof(struct kolo_failure) by the caller */
    kolo_status status;
    int rank;      /* the rank at fault: dead, stopped, late, or in another call; -1: not known */
    int seen_by;   /* the rank that found it; -1: none did */
    uint64_t call; /* how many collectives that one had begun */
    char text[512];
};

/* ---- version, errors, types ---- */

/* The version of the library that runs, as KOLO_VERSION. */
KOLO_EXPORT
int kolo_version(void);
/* The name of a status: "KOLO_ERR_INVALID" and so on; never NULL. */
KOLO_EXPORT
const char *kolo_status_name(kolo_status status);
/* What went wrong in this thread's last failed call, as a sentence that names the argument, its
 * value and what is allowed, or the rank at fault; "" if none failed. Valid until its next failure.
 */
KOLO_EXPORT
const char *kolo_error_text(void);
/* The bytes of one element; 0 for an unknown type. */
KOLO_EXPORT
size_t kolo_type_bytes(enum kolo_type type);
/* The name of a type: "float32" and so on; "unknown" for an unknown type. */
KOLO_EXPORT
const char *kolo_type_name(enum kolo_type type);
/* The name of an operation: "sum" and so on; "premulsum" for a created one, "unknown" for none. */
KOLO_EXPORT
const char *kolo_op_name(kolo_op op);

/* ---- communicators ---- */

/* Make an id for ranks to join with. The calling process answers them, so it must live until all
 * have joined. Errors: SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_id_create(struct kolo_id *out);

/* Join ranks to a communicator: this one as `rank` of `nranks` (1 <= nranks, 0 <= rank < nranks,
 * each rank once). Returns when all have joined. `config` may be NULL. Errors: INVALID, TIMEOUT
 * (not all came), PEER (a rank could not come up), SYSTEM, VERSION. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create(const struct kolo_id *id, int nranks, int rank,
                                        const struct kolo_config *config, struct kolo_comm **out);

/* Join the ranks that a launcher started. Rank, size and meeting point come from its environment:
 * `kolo run`, mpirun, torchrun, srun, or KOLO_RANK, KOLO_NRANKS and KOLO_JOB; alone (1 rank) where
 * there is none. The k-th call of a process joins the k-th of the others. Errors: as
 * kolo_comm_create(). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create_env(const struct kolo_config *config,
                                            struct kolo_comm **out);

/* Make all ranks of a communicator in this process. out[nranks] gets one for each rank, to be used
 * by a thread of its own, or all by one thread with kolo_group_begin(). Errors: INVALID, SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create_local(int nranks, const struct kolo_config *config,
                                              struct kolo_comm *out[]);

/* Split a communicator into parts. All ranks call it: those of equal `color` (>= 0) form a new
 * communicator, ordered by `key`, then by rank; KOLO_NO_COLOR gives NULL. `config` NULL: as the
 * parent. Errors: INVALID, TIMEOUT, PEER, SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_split(struct kolo_comm *comm, int color, int key,
                                       const struct kolo_config *config, struct kolo_comm **out);

/* Go on without the ranks that failed. Called by the survivors only: a new communicator without
 * exclude[nexclude] (ranks of `comm`), in the old order. `comm` may have failed and must still be
 * destroyed. `config` NULL: as the old one. Errors: INVALID, TIMEOUT. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_shrink(struct kolo_comm *comm, const int *exclude, int nexclude,
                                        const struct kolo_config *config, struct kolo_comm **out);

/* Make every pending and later call return ABORTED, on this rank of `comm` and those it reaches.
 * From any thread, at any time; never blocks. Elsewhere from when the news is there: a call whose
 * data came before it returns OK, and its result is right. */
KOLO_EXPORT
void kolo_comm_abort(struct kolo_comm *comm);
/* Leave a communicator: wait until what was sent is taken (not after an error), then free it. A
 * rank that ends without this is dead to the others. NULL is allowed. */
KOLO_EXPORT
void kolo_comm_destroy(struct kolo_comm *comm);
/* The number of this rank, 0 to the size less 1; -1 for NULL. */
KOLO_EXPORT
int kolo_comm_rank(const struct kolo_comm *comm);
/* The number of ranks of a communicator; -1 for NULL. */
KOLO_EXPORT
int kolo_comm_size(const struct kolo_comm *comm);
/* The error that ended this communicator, or KOLO_OK. From any thread. */
KOLO_EXPORT
kolo_status kolo_comm_error(const struct kolo_comm *comm);
/* What is known of the error that ended this communicator. out->size is set by the caller. On one
 * host all members give the same answer: that of the first who found something wrong. From any
 * thread. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_failure(struct kolo_comm *comm, struct kolo_failure *out);

/* ---- collectives ---- */

/* Reduce elements over all ranks and give every rank the result. send[count], recv[count].
 * Cost: ring 2(n-1)(alpha + S/(n*beta)), direct 2 alpha + 2(n-1)/n S/beta; S bytes,
 * alpha the latency of a message, beta the bandwidth of a link.
 * Errors: INVALID. Source: Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002 (ring). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_reduce(const void *send, void *recv, size_t count,
                                       enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                       kolo_stream stream);

/* Reduce elements over all ranks to rank `root`. send[count]; recv[count] on root, ignored
 * elsewhere (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce(const void *send, void *recv, size_t count, enum kolo_type type,
                                   kolo_op op, int root, struct kolo_comm *comm,
                                   kolo_stream stream);

/* Copy elements of rank `root` to every rank: its send[count] to each recv[count]. send is ignored
 * elsewhere (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_broadcast(const void *send, void *recv, size_t count,
                                      enum kolo_type type, int root, struct kolo_comm *comm,
                                      kolo_stream stream);

/* Bring a block of each rank to rank `root`: recv[r*count ...] there is rank r's send[count].
 * recv[nranks*count] is ignored elsewhere (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_gather(const void *send, void *recv, size_t count, enum kolo_type type,
                                   int root, struct kolo_comm *comm, kolo_stream stream);

/* Give each rank a block of rank `root`: recv[count] on rank r is root's send[r*count ...].
 * send[nranks*count] is ignored elsewhere (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_scatter(const void *send, void *recv, size_t count, enum kolo_type type,
                                    int root, struct kolo_comm *comm, kolo_stream stream);

/* Bring a block of each rank to every rank: recv[r*count ...] is rank r's send[count].
 * recv[nranks*count]. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_gather(const void *send, void *recv, size_t count,
                                       enum kolo_type type, struct kolo_comm *comm,
                                       kolo_stream stream);

/* Reduce elements over all ranks and give each rank a block: recv[count] on rank r is block r of
 * the reduction of send[nranks*count]. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce_scatter(const void *send, void *recv, size_t count,
                                           enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                           kolo_stream stream);

/* Give each rank a block of every rank: recv[q*count ...] on rank r is rank q's send[r*count ...].
 * Both are [nranks*count]. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_to_all(const void *send, void *recv, size_t count,
                                       enum kolo_type type, struct kolo_comm *comm,
                                       kolo_stream stream);

/* Wait until every rank has come here. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_barrier(struct kolo_comm *comm, kolo_stream stream);

/* In the v-forms block r has counts[r] elements and begins at displs[r] elements (any order;
 * received blocks must not overlap). The arrays have nranks entries and are read before the call
 * returns. */

/* Bring blocks of any size to rank `root`: `count` elements of this rank to where block `rank` of
 * recv lies on root. Block r has counts[r] elements and begins at displs[r] elements; both arrays
 * have nranks entries, are read before the call returns, and are NULL elsewhere than on root.
 * Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_gatherv(const void *send, size_t count, void *recv,
                                    const size_t *counts, const size_t *displs, enum kolo_type type,
                                    int root, struct kolo_comm *comm, kolo_stream stream);
/* Give blocks of any size of rank `root`: block `rank` of its send to recv[count] of this rank.
 * Block r has counts[r] elements and begins at displs[r] elements; both arrays have nranks entries,
 * are read before the call returns, and are NULL elsewhere than on root. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_scatterv(const void *send, const size_t *counts, const size_t *displs,
                                     void *recv, size_t count, enum kolo_type type, int root,
                                     struct kolo_comm *comm, kolo_stream stream);
/* Bring blocks of any size to every rank: block r of recv is rank r's send, which has counts[r]
 * elements. It begins at displs[r] elements; both arrays have nranks entries, the same on every
 * rank, and are read before the call returns. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_gatherv(const void *send, void *recv, const size_t *counts,
                                        const size_t *displs, enum kolo_type type,
                                        struct kolo_comm *comm, kolo_stream stream);
/* Reduce elements over all ranks and give each a block of any size: counts[r] elements to recv of
 * rank r. The blocks of send lie one after the other; counts has nranks entries, the same on every
 * rank, and is read before the call returns. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                            enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                            kolo_stream stream);
/* Give each rank a block of any size of every rank: send_counts[q] elements from send_displs[q] of
 * send go to rank q, recv_counts[q] elements come from it to recv_displs[q] of recv. The arrays
 * have nranks entries and are read before the call returns; what one rank sends is what the other
 * receives. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_to_allv(const void *send, const size_t *send_counts,
                                        const size_t *send_displs, void *recv,
                                        const size_t *recv_counts, const size_t *recv_displs,
                                        enum kolo_type type, struct kolo_comm *comm,
                                        kolo_stream stream);

/* ---- point to point ---- */

/* Send elements to rank `peer`. It matches that rank's kolo_recv() in the order of the calls,
 * whatever their streams, unless a stream has earlier calls to end. Sends and receives progress
 * independently of collectives and of each other; in a group, sends and receives never wait for one
 * another. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_send(const void *buf, size_t count, enum kolo_type type, int peer,
                                 struct kolo_comm *comm, kolo_stream stream);
/* Receive elements from rank `peer`, at most `count`: see kolo_send(). Errors: INVALID, also if the
 * message is longer. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_recv(void *buf, size_t count, enum kolo_type type, int peer,
                                 struct kolo_comm *comm, kolo_stream stream);
/* Send elements with a tag (>= 0), which kolo_recv_tag() takes: tagged messages are matched apart
 * from those of kolo_send(). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_send_tag(const void *buf, size_t count, enum kolo_type type, int peer,
                                     int tag, struct kolo_comm *comm, kolo_stream stream);
/* Receive elements with a tag. `peer` may be KOLO_ANY_SOURCE, `tag` KOLO_ANY_TAG; `out` may be
 * NULL, else it is written on completion. Errors: INVALID, also if the message is longer than
 * `count`. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_recv_tag(void *buf, size_t count, enum kolo_type type, int peer,
                                     int tag, struct kolo_recv_info *out, struct kolo_comm *comm,
                                     kolo_stream stream);

/* ---- groups and streams ---- */

/* Start calls together: those between begin and end (of this thread; they nest) start at the
 * outermost end, which returns the first error. Needed for several ranks driven by one thread, and
 * for exchanges by kolo_send() and kolo_recv(). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_group_begin(void);
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_group_end(void);

/* Make a host stream. Operations queued on it run in order, on kolo's progress thread.
 * Errors: SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_create(kolo_stream *out);
/* Limit how long operations on a stream may take. Those queued from now on end with TIMEOUT, and
 * with them their communicator, when they took longer than so many milliseconds; 0:
 * config.timeout_ms. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_set_timeout(kolo_stream stream, int timeout_ms);
/* Call a function once all that was queued before has ended, well or not, in whichever thread sees
 * it. fn must neither block nor call kolo. Errors: INVALID (NULL; inside a group), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_host_func(kolo_stream stream, void (*fn)(void *arg), void *arg);
/* Wait until all that was queued is done. Returns the first error since the last sync. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_sync(kolo_stream stream);
/* Whether a stream is idle: KOLO_OK when it is, KOLO_INPROGRESS when not, else the first error. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_query(kolo_stream stream);
/* Wait for a stream, then free it. NULL is allowed. */
KOLO_EXPORT
void kolo_stream_destroy(kolo_stream stream);

/* ---- memory and operations ---- */

/* Take host memory that other ranks can map, so that large collectives on it copy less. Aligned to
 * 4096 bytes at least. Errors: INVALID (0 bytes), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_alloc(size_t bytes, void **out);
/* Take memory of a device (a CUDA ordinal), which other processes on that GPU can open; KOLO_HOST:
 * as kolo_mem_alloc(). Errors: INVALID (no such device, 0 bytes), UNSUPPORTED (no driver), SYSTEM.
 */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_alloc_on(int device, size_t bytes, void **out);
/* Free memory, that of kolo_mem_alloc() or kolo_mem_alloc_on(); no operation may use it any more.
 * NULL is allowed. */
KOLO_EXPORT
void kolo_mem_free(void *ptr);

/* Declare memory for repeated use, and take that back. It is [ptr, ptr+bytes). Private memory
 * serves ranks that are threads of this process, and where a communicator uses RDMA devices, these:
 * it stays registered with them, and must stay mapped until it is taken back. Errors: INVALID;
 * UNSUPPORTED, with the reason. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_register(void *ptr, size_t bytes);
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_unregister(void *ptr);

/* Make a sum of inputs that are multiplied first, each by its rank's *factor (one element of
 * `type`, a float or an integer type). Valid for that type, on `comm`, until destroyed; calls that
 * were made before then keep the factor. Errors: INVALID, SYSTEM.
 */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_op_create_premulsum(const void *factor, enum kolo_type type,
                                                struct kolo_comm *comm, kolo_op *out);
KOLO_EXPORT
void kolo_op_destroy(kolo_op op, struct kolo_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
