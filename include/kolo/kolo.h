// SPDX-License-Identifier: Apache-2.0
/* kolo: collective communication. This is all that an application needs.
 *
 * A *communicator* joins `nranks` ranks; a rank is a process or a thread. Every rank calls the same
 * collectives on it in the same order. Argument order is that of NCCL, so a port is a rename.
 *
 * Conventions that hold for every call below unless its own contract says otherwise:
 *  - Counts are elements, not bytes. Buffers are aligned to their element.
 *  - `stream` NULL: the call returns when this rank's result is there and its buffers are free
 * again. A stream of kolo_stream_create(): the call queues and returns; the buffers are borrowed
 * until kolo_stream_sync(). Between kolo_group_begin() and kolo_group_end() nothing runs before the
 * end.
 *  - Out-arguments are written only on success.
 *  - Every failure leaves a sentence for kolo_error_text(): the argument, its value, what is
 * allowed.
 *  - INVALID and UNSUPPORTED change nothing and leave the communicator usable. The other errors do
 *    not: only kolo_comm_error(), kolo_comm_shrink(), kolo_comm_abort() and kolo_comm_destroy() may
 * follow.
 *  - Every rank gets the same bits. With config.deterministic the result is ((x0+x1)+x2)+... in
 * rank order, summed in the accumulator type and rounded once, whatever the algorithm.
 *  - In place: send == recv (all_reduce, reduce, broadcast, all_to_all), or the rank's own block of
 * the larger buffer (all_gather and gather: send == recv + rank*count; reduce_scatter and scatter:
 *    recv == send + rank*count). Any other overlap is INVALID.
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

/* 0: done. > 0: not yet. < 0: error, grouped by what it costs. Never renumbered. */
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

/* Element types. Movement takes all of them; see kolo_op for which reductions make sense.
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

/* Reductions. A handle, because kolo_op_create_premulsum() makes new ones (values >= KOLO_OPS).
 *   SUM PROD MIN MAX AVG PREMULSUM   every integer and float (AVG on integers divides the sum,
 *                                    rounding toward zero); not bool, not pairs
 *   LAND LOR LXOR                    every integer and bool; result 0 or 1
 *   BAND BOR BXOR                    every integer and bool
 *   MINLOC MAXLOC                    pairs; equal values take the smaller index
 * float16, bfloat16 and float8 accumulate in float32. MIN and MAX return NaN if any input is NaN.
 */
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
 * value, else the default. Grows at the tail only. */
struct kolo_config {
    uint32_t size;     /* sizeof(struct kolo_config) as the caller knows it */
    int deterministic; /* 0 or 1 (default 0; KOLO_DETERMINISTIC): one expression per element, rank
                          order */
    int timeout_ms;    /* > 0 (default 600000; KOLO_TIMEOUT_MS): longest wait without progress */
    int device;        /* KOLO_HOST (default) or a CUDA ordinal, see below */
    const char *name;  /* default "comm": shown in the log */
    const char *algo;  /* default KOLO_ALGO: "allreduce:0-4k:direct,4k-:ring;broadcast:chain" */
    const char
        *transport; /* default KOLO_TRANSPORT: comma list in order of preference, "shm,loop" */
};
#define KOLO_CONFIG_INIT                                                                           \
    {                                                                                              \
        sizeof(struct kolo_config), KOLO_UNSET, KOLO_UNSET, KOLO_UNSET, NULL, NULL, NULL           \
    }

/* On a communicator of a CUDA device a buffer is memory of that GPU (or managed), or host memory;
 * which, kolo finds from the pointer; a call's buffers are of one kind. With GPU memory `stream` is
 * a cudaStream_t: a collective is enqueued on it and returns, and may be captured in a graph, by
 * all ranks or none. Calls of a rank on different streams take effect in their order. Ranks that
 * are threads need streams of their own, not the default stream, unless one thread brings the calls
 * of all of them in a group. With host memory calls return when the result is there, and `stream`
 * is NULL. Sends and receives of GPU memory stand in the order of the communicator's calls, so
 * exchanges need a group, whose messages are on one stream; both ends of a message are GPU memory.
 * What GPU memory does not serve is UNSUPPORTED, with the reason. */

#define KOLO_ANY_SOURCE (-1)
#define KOLO_ANY_TAG    (-1)
#define KOLO_NO_COLOR   (-1) /* kolo_comm_split: this rank joins no part */

/* What kolo_recv_tag() received. */
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

/* ---- version, errors, types ---------------------------------------------------------------- */

/* KOLO_VERSION of the library that runs. */
KOLO_EXPORT
int kolo_version(void);
/* "KOLO_ERR_INVALID" and so on; never NULL. */
KOLO_EXPORT
const char *kolo_status_name(kolo_status status);
/* What went wrong in this thread's last failed call; "" if none. Valid until its next failure. */
KOLO_EXPORT
const char *kolo_error_text(void);
/* Bytes of one element; 0 for an unknown type. */
KOLO_EXPORT
size_t kolo_type_bytes(enum kolo_type type);
/* "float32" and so on; "unknown" for an unknown type. */
KOLO_EXPORT
const char *kolo_type_name(enum kolo_type type);
/* "sum" and so on; "premulsum" for a created one, "unknown" for no operation. */
KOLO_EXPORT
const char *kolo_op_name(kolo_op op);

/* ---- communicators ------------------------------------------------------------------------- */

/* A fresh id. The calling process answers the ranks that join with it, so it must live until they
 * have. Errors: SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_id_create(struct kolo_id *out);

/* Join as `rank` of `nranks` (1 <= nranks, 0 <= rank < nranks, each rank once). Returns when all
 * have joined. `config` may be NULL. Errors: INVALID, TIMEOUT (not all came), SYSTEM, VERSION. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create(const struct kolo_id *id, int nranks, int rank,
                                        const struct kolo_config *config, struct kolo_comm **out);

/* The same with rank, size and meeting point from the launcher's environment: `kolo run`, mpirun,
 * torchrun, srun, or KOLO_RANK, KOLO_NRANKS and KOLO_JOB; alone (1 rank) where there is none. The
 * k-th call of a process joins the k-th of the others. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create_env(const struct kolo_config *config,
                                            struct kolo_comm **out);

/* `nranks` communicators of one process, out[nranks]; each is to be used by one thread, or all by
 * one thread with kolo_group_begin(). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create_local(int nranks, const struct kolo_config *config,
                                              struct kolo_comm *out[]);

/* Collective. Ranks of equal `color` (>= 0) form a new communicator, ordered by `key`, then by
 * rank; KOLO_NO_COLOR gives NULL. `config` NULL: as the parent. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_split(struct kolo_comm *comm, int color, int key,
                                       const struct kolo_config *config, struct kolo_comm **out);

/* Called by the survivors only: a new communicator without exclude[nexclude] (ranks of `comm`), in
 * the old order. `comm` may have failed and must still be destroyed. Errors: INVALID, TIMEOUT. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_shrink(struct kolo_comm *comm, const int *exclude, int nexclude,
                                        const struct kolo_config *config, struct kolo_comm **out);

/* Make every pending and later call on `comm` return ABORTED, here and on the ranks it reaches.
 * From any thread, at any time; never blocks. Elsewhere from when the news is there: a call whose
 * data came before it returns OK, and its result is right. */
KOLO_EXPORT
void kolo_comm_abort(struct kolo_comm *comm);
/* Wait until what was sent is taken (not after an error), then free. NULL is allowed. */
KOLO_EXPORT
void kolo_comm_destroy(struct kolo_comm *comm);
KOLO_EXPORT
int kolo_comm_rank(const struct kolo_comm *comm); /* -1 for NULL */
KOLO_EXPORT
int kolo_comm_size(const struct kolo_comm *comm); /* -1 for NULL */
/* The error that ended this communicator, or KOLO_OK. From any thread. */
KOLO_EXPORT
kolo_status kolo_comm_error(const struct kolo_comm *comm);
/* The same with what is known of it; out->size is set by the caller. On one host all members give
 * the same answer: that of the first who found something wrong. From any thread. Errors: INVALID.
 */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_failure(struct kolo_comm *comm, struct kolo_failure *out);

/* ---- collectives ---------------------------------------------------------------------------- */

/* Reduce `count` elements over all ranks; every rank gets the result. send[count], recv[count].
 * Cost: ring 2(n-1)(alpha + S/(n*beta)), direct 2 alpha + 2(n-1)/n S/beta; S bytes.
 * Errors: INVALID. Source: Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002 (ring). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_reduce(const void *send, void *recv, size_t count,
                                       enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                       kolo_stream stream);

/* Reduce to rank `root`. send[count]; recv[count] on root, ignored elsewhere (may be NULL). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce(const void *send, void *recv, size_t count, enum kolo_type type,
                                   kolo_op op, int root, struct kolo_comm *comm,
                                   kolo_stream stream);

/* Copy root's send[count] to every rank's recv[count]. send is ignored elsewhere (may be NULL). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_broadcast(const void *send, void *recv, size_t count,
                                      enum kolo_type type, int root, struct kolo_comm *comm,
                                      kolo_stream stream);

/* recv[r*count ...] on root = rank r's send[count]. recv[nranks*count] is ignored elsewhere. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_gather(const void *send, void *recv, size_t count, enum kolo_type type,
                                   int root, struct kolo_comm *comm, kolo_stream stream);

/* recv[count] on rank r = root's send[r*count ...]. send[nranks*count] is ignored elsewhere. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_scatter(const void *send, void *recv, size_t count, enum kolo_type type,
                                    int root, struct kolo_comm *comm, kolo_stream stream);

/* recv[r*count ...] = rank r's send[count], on every rank. recv[nranks*count]. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_gather(const void *send, void *recv, size_t count,
                                       enum kolo_type type, struct kolo_comm *comm,
                                       kolo_stream stream);

/* recv[count] on rank r = block r of the reduction of send[nranks*count]. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce_scatter(const void *send, void *recv, size_t count,
                                           enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                           kolo_stream stream);

/* recv[q*count ...] on rank r = rank q's send[r*count ...]. Both are [nranks*count]. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_to_all(const void *send, void *recv, size_t count,
                                       enum kolo_type type, struct kolo_comm *comm,
                                       kolo_stream stream);

/* Returns after every rank has entered. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_barrier(struct kolo_comm *comm, kolo_stream stream);

/* v-forms: block r has counts[r] elements and begins at displs[r] elements (any order; received
 * blocks must not overlap). The arrays have nranks entries and are read before the call returns. */

/* counts and displs on root only, NULL elsewhere; `count` is this rank's own. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_gatherv(const void *send, size_t count, void *recv,
                                    const size_t *counts, const size_t *displs, enum kolo_type type,
                                    int root, struct kolo_comm *comm, kolo_stream stream);
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_scatterv(const void *send, const size_t *counts, const size_t *displs,
                                     void *recv, size_t count, enum kolo_type type, int root,
                                     struct kolo_comm *comm, kolo_stream stream);
/* counts and displs the same on every rank; send has counts[rank] elements. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_gatherv(const void *send, void *recv, const size_t *counts,
                                        const size_t *displs, enum kolo_type type,
                                        struct kolo_comm *comm, kolo_stream stream);
/* counts the same on every rank; blocks of send lie one after the other; recv has counts[rank]. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                            enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                            kolo_stream stream);
/* send_counts[q] elements go to rank q, recv_counts[q] come from it. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_to_allv(const void *send, const size_t *send_counts,
                                        const size_t *send_displs, void *recv,
                                        const size_t *recv_counts, const size_t *recv_displs,
                                        enum kolo_type type, struct kolo_comm *comm,
                                        kolo_stream stream);

/* ---- point to point -------------------------------------------------------------------------- */

/* Send count elements to rank `peer`; matches its kolo_recv() in the order of the calls, whatever
 * their streams, unless a stream has earlier calls to end. They progress independently of
 * collectives and of each other; in a group, sends and receives never wait for one another. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_send(const void *buf, size_t count, enum kolo_type type, int peer,
                                 struct kolo_comm *comm, kolo_stream stream);
/* Errors: INVALID if the message is longer than count. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_recv(void *buf, size_t count, enum kolo_type type, int peer,
                                 struct kolo_comm *comm, kolo_stream stream);
/* The same with a tag (>= 0), matched apart from untagged messages. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_send_tag(const void *buf, size_t count, enum kolo_type type, int peer,
                                     int tag, struct kolo_comm *comm, kolo_stream stream);
/* peer may be KOLO_ANY_SOURCE, tag KOLO_ANY_TAG; `out` may be NULL, else it is written on
 * completion. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_recv_tag(void *buf, size_t count, enum kolo_type type, int peer,
                                     int tag, struct kolo_recv_info *out, struct kolo_comm *comm,
                                     kolo_stream stream);

/* ---- groups and streams ------------------------------------------------------------------------
 */

/* Calls between begin and end (of this thread; they nest) start together at the outermost end,
 * which returns the first error. Needed for several ranks driven by one thread, and for exchanges
 * by kolo_send and kolo_recv. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_group_begin(void);
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_group_end(void);

/* A host stream: operations queued on it run in order, on kolo's progress thread. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_create(kolo_stream *out);
/* Operations queued on it from now on end with TIMEOUT, and with them their communicator, when they
 * took longer than so many milliseconds; 0: config.timeout_ms. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_set_timeout(kolo_stream stream, int timeout_ms);
/* Call fn(arg) once all that was queued before has ended, well or not, in whichever thread sees it.
 * fn must neither block nor call kolo. Errors: INVALID (NULL; inside a group), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_host_func(kolo_stream stream, void (*fn)(void *arg), void *arg);
/* Wait until all that was queued is done; returns the first error since the last sync. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_sync(kolo_stream stream);
/* KOLO_OK when idle, KOLO_INPROGRESS when not, else the first error. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_query(kolo_stream stream);
/* Waits, then frees. NULL is allowed. */
KOLO_EXPORT
void kolo_stream_destroy(kolo_stream stream);

/* ---- memory and operations ---------------------------------------------------------------------
 */

/* Host memory that ranks on this host can map, so that large collectives on it copy less. Aligned
 * to 4096 bytes at least. Errors: INVALID (0 bytes), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_alloc(size_t bytes, void **out);
/* Memory of a CUDA device (its ordinal), which other processes on that GPU can open; KOLO_HOST: as
 * kolo_mem_alloc(). Errors: INVALID (no such device, 0 bytes), UNSUPPORTED (no driver), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_alloc_on(int device, size_t bytes, void **out);
/* Free memory of either; no operation may use it any more. NULL is allowed. */
KOLO_EXPORT
void kolo_mem_free(void *ptr);
/* Declare [ptr, ptr+bytes) for repeated use. Private memory serves ranks that are threads of this
 * process only. Errors: INVALID; UNSUPPORTED, with the reason. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_register(void *ptr, size_t bytes);
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_unregister(void *ptr);

/* A sum whose inputs are each multiplied by this rank's *factor (one element of `type`, a float or
 * an integer type) first. Valid for that type, on `comm`, until destroyed. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_op_create_premulsum(const void *factor, enum kolo_type type,
                                                struct kolo_comm *comm, kolo_op *out);
KOLO_EXPORT
void kolo_op_destroy(kolo_op op, struct kolo_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
