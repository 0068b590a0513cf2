// SPDX-License-Identifier: Apache-2.0
/* kolo: collective communication. This is all that an application needs.
 *
 * A communicator joins `nranks` ranks. A rank is a process or a thread. Every rank calls the same
 * collectives on the communicator in the same order. The order of arguments is NCCL's.
 *
 * Conventions of every call below, unless the call's own text says otherwise:
 *  - Counts are elements, not bytes. Buffers are aligned to their element.
 *  - `stream` NULL: the call returns when this rank's result is complete and its buffers are free
 *    again. A stream of kolo_stream_create(): the call is enqueued and returns, and the buffers are
 *    borrowed until kolo_stream_sync(). Between kolo_group_begin() and kolo_group_end() nothing
 *    runs before the end.
 *  - Out-arguments are written only on success.
 *  - Every failure leaves a sentence for kolo_error_text(): the argument, its value and the values
 *    that are allowed.
 *  - INVALID and UNSUPPORTED change nothing, and the communicator stays usable. Any other error
 *    ends the communicator: only kolo_comm_error(), kolo_comm_failure(), kolo_comm_failed_ranks(),
 *    kolo_comm_agree(), kolo_comm_shrink(), kolo_comm_reconfigure(), kolo_comm_abort() and
 *    kolo_comm_destroy() may follow.
 *  - All ranks make the same calls in the same order. Two calls are the same if they have the same
 *    collective, root, codec and bytes; in a reduction also type and operation; in a v-form also counts.
 *    Otherwise every rank gets MISMATCH within a second, and the text names both calls. A call that
 *    waits for nobody may return OK before that. Calls that only move bytes compare no types.
 *  - Every rank gets the same bits. With config.deterministic the result is ((x0+x1)+x2)+... in
 *    rank order, summed in the accumulator type and rounded once, for every algorithm.
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

/* How a call ended. 0: success. > 0: not complete yet. < 0: an error. Errors from -16 on end the
 * communicator. Values are never renumbered. */
typedef enum kolo_status {
    KOLO_OK = 0,
    KOLO_INPROGRESS = 1,
    KOLO_ERR_INVALID = -1,     /* an argument is wrong; nothing happened */
    KOLO_ERR_UNSUPPORTED = -2, /* not possible on this system; nothing happened */
    KOLO_ERR_MISMATCH = -16,   /* ranks called different collectives */
    KOLO_ERR_PEER = -17,       /* a rank died, or left */
    KOLO_ERR_TIMEOUT = -18,    /* no progress for config.timeout_ms */
    KOLO_ERR_LINK = -19,       /* a connection broke */
    KOLO_ERR_ABORTED = -20,    /* kolo_comm_abort() was called */
    KOLO_ERR_SYSTEM = -21,     /* the system refused: memory, descriptors, ... */
    KOLO_ERR_FORKED = -22,     /* called in a child of the process that owns the communicator */
    KOLO_ERR_VERSION = -23,    /* ranks or plug-ins of another version */
    KOLO_ERR_INTERNAL = -24    /* a bug in kolo */
} kolo_status;

/* Types of elements. Every type can be moved; kolo_op says which types an operation reduces.
 *
 * A pair is {value, index}: two members of equal size. FLOAT64_INT32 is the exception: {double,
 * int32_t, 4 unused bytes}. Elements follow one another. Values are never renumbered. */
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
    KOLO_BOOL = 14,        /* one byte; any value but 0 is true, results are 0 or 1 */
    KOLO_INT32_INT32 = 15,
    KOLO_INT64_INT64 = 16,
    KOLO_FLOAT32_INT32 = 17,
    KOLO_FLOAT64_INT32 = 18,
    KOLO_TYPES = 19
};

/* The operation of a reduction. kolo_op_create_premulsum() creates further operations, with values
 * from KOLO_OPS on.
 *
 *   SUM PROD MIN MAX AVG PREMULSUM   every integer and float; not bool, not pairs
 *   LAND LOR LXOR                    every integer and bool; the result is 0 or 1
 *   BAND BOR BXOR                    every integer and bool
 *   MINLOC MAXLOC                    pairs; of equal values the one with the smaller index
 *
 * SUM, PROD and PREMULSUM on integers wrap around. AVG on integers divides the wrapped sum, and
 * rounds toward zero (two int8 of 100: -28). float16, bfloat16 and float8 accumulate in float32.
 * MIN and MAX return NaN if any input is NaN. */
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

/* A host stream of kolo_stream_create(), or a cudaStream_t on a communicator of a CUDA device. */
typedef void *kolo_stream;

/* An address and a secret, by which ranks join. Copy it to every rank over a safe channel. */
struct kolo_id {
    unsigned char bytes[128];
};

#define KOLO_UNSET (-2147483647 - 1) /* the value of an int member that is not set */
#define KOLO_HOST  (-1)              /* config.device: buffers are host memory */

/* Options of a communicator. Start from KOLO_CONFIG_INIT. An unset member takes the value of its
 * environment variable, or else the default (both in parentheses). New members come last. */
struct kolo_config {
    uint32_t size;         /* sizeof(struct kolo_config) as the caller knows it */
    int deterministic;     /* 0 or 1 (0; KOLO_DETERMINISTIC): sums in rank order */
    int timeout_ms;        /* > 0 (600000; KOLO_TIMEOUT_MS): longest wait without progress */
    int device;            /* KOLO_HOST (default) or a CUDA ordinal, see below */
    const char *name;      /* "comm": shown in the log */
    const char *algo;      /* KOLO_ALGO: "allreduce:0-4k:direct,4k-:ring;broadcast:chain" */
    const char *transport; /* KOLO_TRANSPORT: "shm,loop", in order of preference */
    /* NULL: none. While a call blocks, its thread calls this about every 50 us, after some 20 us.
     * It moves messages of another library, and calls nothing of kolo. */
    void (*progress)(void *arg);
    void *progress_arg;
};
#define KOLO_CONFIG_INIT                                                                           \
    {                                                                                              \
        sizeof(struct kolo_config), KOLO_UNSET, KOLO_UNSET, KOLO_UNSET, NULL, NULL, NULL, NULL,    \
            NULL                                                                                   \
    }

/* Rules for a communicator of a CUDA device:
 *
 *  - Buffers. A buffer is in memory of that GPU, in managed memory or in host memory; kolo finds
 *    out from the pointer. All buffers of one call are of one kind.
 *  - Streams. With GPU memory `stream` is a cudaStream_t. The call is enqueued on it and returns.
 *    It may be captured in a CUDA graph, by all ranks or by none. Calls of a rank on different
 *    streams take effect in the order of the calls. With host memory a call returns when its
 *    result is complete, and `stream` is NULL.
 *  - Threads. A call of ranks that are threads on one GPU returns when each of them has made it.
 *    In a communicator of several GPUs it may wait for the ranks of the caller's GPU. One thread
 *    makes the calls of several ranks in a group. In graphs, and for messages, such ranks need
 *    streams of their own, not the default stream, unless both ends are in one group.
 *  - Messages. Sends and receives of GPU memory take effect in the order of the communicator's
 *    calls, so that exchanges need a group. The messages of a group are on one stream. Both ends
 *    of a message are in GPU memory. A message that is longer than a receive that was enqueued
 *    before ends the communicator.
 *  - A call that is not possible with GPU memory returns UNSUPPORTED, with the reason. */

#define KOLO_ANY_SOURCE (-1)
#define KOLO_ANY_TAG    (-1)
#define KOLO_NO_COLOR   (-1) /* kolo_comm_split: this rank joins no new communicator */

/* A received message, as kolo_recv_tag() reports it. */
struct kolo_recv_info {
    uint32_t size; /* set to sizeof(struct kolo_recv_info) by the caller */
    int source;    /* rank it came from */
    int tag;
    size_t bytes; /* at most count * type bytes */
};

/* The failure that ended a communicator. */
struct kolo_failure {
    uint32_t size; /* set to sizeof(struct kolo_failure) by the caller */
    kolo_status status;
    int rank;      /* the rank at fault: dead, stopped, late, or in another call; -1: not known. If
                    * two live ranks lost their connection: the higher one */
    int seen_by;   /* the rank that detected the failure; -1: none */
    uint64_t call; /* collectives that the detecting rank had begun */
    char text[512];
};

/* ---- version, errors, types ---- */

/* The version of the loaded library, in the form of KOLO_VERSION. */
KOLO_EXPORT
int kolo_version(void);
/* The name of a status: "KOLO_ERR_INVALID" and so on; never NULL. */
KOLO_EXPORT
const char *kolo_status_name(kolo_status status);
/* A sentence about this thread's last failed call. It names the argument, its value and the allowed
 * values, or the rank at fault. "" if no call has failed. Valid until the thread's next failure. */
KOLO_EXPORT
const char *kolo_error_text(void);
/* Write a line to kolo's log, if KOLO_DEBUG asks for INFO. For libraries that use kolo: their lines go
 * where kolo's go, also with KOLO_DEBUG_FILE. Signs that a terminal would obey are escaped. */
KOLO_EXPORT
void kolo_log_line(const char *text);
/* Give every later warning of this process to `fn`, whatever KOLO_DEBUG says. For example a rank waits
 * for a stopped rank, which the text names. Any thread calls fn, at any time. fn must not call kolo,
 * and `text` is valid until it returns. NULL: to none any more. The log stays as it is. */
KOLO_EXPORT
void kolo_warn_with(void (*fn)(const char *text));
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

/* Create an id for ranks to join with. The calling process answers the ranks, so it must live until
 * all of them have joined. Errors: SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_id_create(struct kolo_id *out);

/* Join ranks to a communicator: the caller as `rank` of `nranks` (1 <= nranks, 0 <= rank < nranks,
 * each rank once). Returns when all ranks have joined. `config` may be NULL. Errors: INVALID,
 * UNSUPPORTED (config.device; an id that another host cannot use), MISMATCH (the ranks differ in an
 * option that all must share), TIMEOUT (some rank did not join), PEER (a rank failed while it
 * joined), SYSTEM, VERSION. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create(const struct kolo_id *id, int nranks, int rank,
                                        const struct kolo_config *config, struct kolo_comm **out);

/* Join the ranks that a launcher started. Rank, size and rendezvous come from the environment that
 * the launcher sets: `kolo run`, mpirun, torchrun, srun, or KOLO_RANK, KOLO_NRANKS and KOLO_JOB.
 * Without a launcher the communicator has 1 rank. The k-th call of a process joins the k-th calls
 * of the others. Errors: as kolo_comm_create(). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create_env(const struct kolo_config *config,
                                            struct kolo_comm **out);

/* Create all ranks of a communicator in this process. out[nranks] gets one handle for each rank.
 * Each is used by a thread of its own, or all by one thread in groups. Errors: INVALID, UNSUPPORTED
 * (config.device), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create_local(int nranks, const struct kolo_config *config,
                                              struct kolo_comm *out[]);

/* Make every pending and later call return ABORTED. It acts on this rank and on the ranks that this
 * rank reaches. Any thread may call it at any time; it never blocks. Other ranks see the abort when
 * it reaches them. A call that has all its data may still return OK, with a correct result. */
KOLO_EXPORT
void kolo_comm_abort(struct kolo_comm *comm);
/* Leave a communicator and free it. Unless the communicator has failed, this waits until the peers
 * have taken what this rank sent. The others count a rank that ends without this call as dead. In a
 * group it takes effect at kolo_group_end(), after the group's calls. NULL is allowed. */
KOLO_EXPORT
void kolo_comm_destroy(struct kolo_comm *comm);
/* The number of this rank, 0 to size - 1; -1 for NULL. */
KOLO_EXPORT
int kolo_comm_rank(const struct kolo_comm *comm);
/* The number of ranks of a communicator; -1 for NULL. */
KOLO_EXPORT
int kolo_comm_size(const struct kolo_comm *comm);
/* The error that ended this communicator, or KOLO_OK; INVALID for NULL. Any thread may call it. */
KOLO_EXPORT
kolo_status kolo_comm_error(const struct kolo_comm *comm);
/* The failure that ended this communicator. The caller sets out->size. While there is none,
 * out->status is KOLO_OK. On one host all ranks give the same answer: that of the first rank that
 * detected a failure. Any thread may call it. Errors: INVALID. */
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

/* Reduce elements over all ranks to rank `root`. send[count]; recv[count] on root. recv is ignored
 * on other ranks (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce(const void *send, void *recv, size_t count, enum kolo_type type,
                                   kolo_op op, int root, struct kolo_comm *comm,
                                   kolo_stream stream);

/* Copy elements of rank `root` to every rank: root's send[count] to each recv[count]. send is
 * ignored on other ranks (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_broadcast(const void *send, void *recv, size_t count,
                                      enum kolo_type type, int root, struct kolo_comm *comm,
                                      kolo_stream stream);

/* Gather a block of each rank at rank `root`: recv[r*count ...] on root is rank r's send[count].
 * recv[nranks*count] is ignored on other ranks (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_gather(const void *send, void *recv, size_t count, enum kolo_type type,
                                   int root, struct kolo_comm *comm, kolo_stream stream);

/* Scatter the blocks of rank `root`: recv[count] on rank r is root's send[r*count ...].
 * send[nranks*count] is ignored on other ranks (may be NULL). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_scatter(const void *send, void *recv, size_t count, enum kolo_type type,
                                    int root, struct kolo_comm *comm, kolo_stream stream);

/* Gather a block of each rank at every rank: recv[r*count ...] is rank r's send[count].
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

/* Wait until every rank has called this. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_barrier(struct kolo_comm *comm, kolo_stream stream);

/* In the v-forms block r has counts[r] elements, and begins at element displs[r] of its buffer.
 * Blocks may be in any order; received blocks must not overlap. The arrays have nranks entries, and
 * are read before the call returns. */

/* Gather blocks of different sizes at rank `root`. This rank sends `count` elements. On root block
 * r of recv comes from rank r: it has counts[r] elements and begins at element displs[r]. Both
 * arrays have nranks entries, are read before the call returns, and are NULL on other ranks.
 * Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_gatherv(const void *send, size_t count, void *recv,
                                    const size_t *counts, const size_t *displs, enum kolo_type type,
                                    int root, struct kolo_comm *comm, kolo_stream stream);
/* Scatter blocks of different sizes of rank `root`. Block r of root's send goes to recv[count] of
 * rank r: it has counts[r] elements and begins at element displs[r]. Both arrays have nranks
 * entries, are read before the call returns, and are NULL on other ranks. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_scatterv(const void *send, const size_t *counts, const size_t *displs,
                                     void *recv, size_t count, enum kolo_type type, int root,
                                     struct kolo_comm *comm, kolo_stream stream);
/* Gather blocks of different sizes at every rank. Block r of recv is rank r's send: it has
 * counts[r] elements and begins at element displs[r]. Both arrays have nranks entries, are the same
 * on every rank, and are read before the call returns. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_gatherv(const void *send, void *recv, const size_t *counts,
                                        const size_t *displs, enum kolo_type type,
                                        struct kolo_comm *comm, kolo_stream stream);
/* Reduce elements over all ranks and give each rank a block of its own size. Rank r gets counts[r]
 * elements in recv. The blocks of send follow one another. counts has nranks entries, is the same
 * on every rank, and is read before the call returns. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                            enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                            kolo_stream stream);
/* Give each rank a block of every rank, in different sizes. send_counts[q] elements from element
 * send_displs[q] of send on go to rank q. recv_counts[q] elements come from rank q, to element
 * recv_displs[q] of recv. The arrays have nranks entries, and are read before the call returns. A
 * block has the same count at its sender and at its receiver. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_to_allv(const void *send, const size_t *send_counts,
                                        const size_t *send_displs, void *recv,
                                        const size_t *recv_counts, const size_t *recv_displs,
                                        enum kolo_type type, struct kolo_comm *comm,
                                        kolo_stream stream);

/* ---- point to point ---- */

/* Send elements to rank `peer`. Sends match the peer's kolo_recv() calls in the order of the calls,
 * on any streams; a stream that has earlier calls to complete delays its own. Sends and receives
 * progress independently of collectives and of each other. In a group, sends and receives never
 * wait for one another. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_send(const void *buf, size_t count, enum kolo_type type, int peer,
                                 struct kolo_comm *comm, kolo_stream stream);
/* Receive elements from rank `peer`. The message has at most `count` elements; see kolo_send().
 * Errors: INVALID, also if the message is longer. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_recv(void *buf, size_t count, enum kolo_type type, int peer,
                                 struct kolo_comm *comm, kolo_stream stream);
/* Send elements with a tag (>= 0). kolo_recv_tag() receives them. Tagged messages are matched
 * separately from those of kolo_send(). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_send_tag(const void *buf, size_t count, enum kolo_type type, int peer,
                                     int tag, struct kolo_comm *comm, kolo_stream stream);
/* Receive elements with a tag. `peer` may be KOLO_ANY_SOURCE, and `tag` KOLO_ANY_TAG. `out` may be
 * NULL; otherwise it is written on completion. Errors: INVALID, also if the message is longer than
 * `count`. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_recv_tag(void *buf, size_t count, enum kolo_type type, int peer,
                                     int tag, struct kolo_recv_info *out, struct kolo_comm *comm,
                                     kolo_stream stream);

/* ---- groups and streams ---- */

/* Start calls together: this thread's calls between begin and end start at the end, which returns
 * the first error. Groups nest; the outermost end counts. A group is needed where one thread drives
 * several ranks, and for exchanges by kolo_send() and kolo_recv(). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_group_begin(void);
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_group_end(void);

/* Create a host stream. Operations enqueued on it run in order, on kolo's progress thread, on a
 * thread that waits, or, if they are short, in the call that enqueues them. Errors: SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_create(kolo_stream *out);
/* Limit how long operations on a stream may take. The limit holds for operations enqueued from now
 * on. An operation that takes longer than `timeout_ms` ends with TIMEOUT, and its communicator with
 * it. 0: the limit is config.timeout_ms. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_set_timeout(kolo_stream stream, int timeout_ms);
/* Call a function after all operations enqueued before. It is called whether they succeeded or
 * failed, by any thread. fn must neither block nor call kolo. Errors: INVALID (NULL; inside a
 * group), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_host_func(kolo_stream stream, void (*fn)(void *arg), void *arg);
/* Wait until all enqueued operations are complete. Returns the first error since the last sync. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_sync(kolo_stream stream);
/* Whether a stream is idle: KOLO_OK if it is, KOLO_INPROGRESS if not, or else the first error. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_stream_query(kolo_stream stream);
/* Wait for a stream, then free it. NULL is allowed. */
KOLO_EXPORT
void kolo_stream_destroy(kolo_stream stream);

/* ---- memory and operations ---- */

/* Allocate host memory that other ranks can map. Large collectives on it copy less. It is aligned
 * to at least 4096 bytes. Errors: INVALID (0 bytes), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_alloc(size_t bytes, void **out);
/* Allocate memory of a device (a CUDA ordinal). Other processes on that GPU can open it. KOLO_HOST:
 * as kolo_mem_alloc(). Errors: INVALID (no such device, 0 bytes), UNSUPPORTED (no driver), SYSTEM.
 */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_alloc_on(int device, size_t bytes, void **out);
/* Free memory of kolo_mem_alloc() or kolo_mem_alloc_on(). No operation may use it any more. NULL is
 * allowed. */
KOLO_EXPORT
void kolo_mem_free(void *ptr);

/* Register memory for repeated use, or unregister it. Transports may then keep what they know of
 * [ptr, ptr+bytes): RDMA devices register it once, not for each message. The memory must stay
 * mapped until it is unregistered. Of private memory, only ranks that are threads of this process
 * and RDMA devices make use. Errors: INVALID; UNSUPPORTED, with the reason. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_register(void *ptr, size_t bytes);
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_mem_unregister(void *ptr);

/* Create a sum whose inputs are multiplied first. Each rank's inputs are multiplied by its *factor,
 * one element of `type` (a float or an integer type). The operation is valid for that type, on
 * `comm`, until it is destroyed; earlier calls keep the factor. Errors: INVALID, SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_op_create_premulsum(const void *factor, enum kolo_type type,
                                                struct kolo_comm *comm, kolo_op *out);
KOLO_EXPORT
void kolo_op_destroy(kolo_op op, struct kolo_comm *comm);

#ifdef __cplusplus
}
#endif

#include "codec.h"
#include "members.h"
#endif
