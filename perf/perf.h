// SPDX-License-Identifier: Apache-2.0
/* The sweep programs: one engine, and one small file for each collective.
 *
 *   options.c  the command line      types.c    element types and operations, numbers <-> bytes
 *   values.c   its values            data.c     inputs, expected results, comparison
 *   perf.c     processes, threads    report.c   the table
 *   sweep.c    the loops of a rank   buffer.c   buffers with guard zones
 *   timing.c   the timed calls       stats.c    averages, percentiles, bus bandwidth
 *   verify.c   the checked calls     machine.c  host, processors, memory
 *   json.c     the same as JSON
 *
 * The output has the columns of nccl-tests, so its parsers and its readers can use it. */
#ifndef KOLO_PERF_H
#define KOLO_PERF_H

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operations are kolo's own numbers, and two more. */
enum { PERF_OP_PREMULSUM = KOLO_OPS, PERF_OP_NONE, PERF_OPS };
enum { PERF_ALL_TYPES = (1 << KOLO_TYPES) - 1, PERF_ALL_OPS = (1 << PERF_OP_NONE) - 1 }; /* sets */
enum { PERF_ELEMENT_MAX = 16 };   /* bytes of the largest element */
enum { PERF_GUARD_BYTES = 4096 }; /* before and after every buffer */

/* Exit statuses: those of nccl-tests, if it has one for the case. */
enum {
    PERF_EXIT_OK = 0,
    PERF_EXIT_INTERNAL = 1, /* memory, files */
    PERF_EXIT_OPTION = 2,
    PERF_EXIT_KOLO = 3, /* a call of kolo failed */
    PERF_EXIT_TIMEOUT = 4,
    PERF_EXIT_WRONG = 7 /* wrong data, or slower than KOLO_TESTS_MIN_BW */
};

/* ---- collectives: one const row for each program ---- */

/* The counts and offsets of one call, in elements. For alltoallv, counts has 4 * nranks entries:
 * send counts, send displacements, receive counts, receive displacements. */
struct perf_shape {
    int rank, nranks, root;
    double spread;
    size_t count; /* the call's argument */
    size_t total; /* elements for the size column and the bandwidth */
    size_t send_elems, recv_elems;
    size_t send_at, recv_at; /* in place: offsets in the single buffer */
    size_t *counts;
};

/* recv[first .. first+elems) holds the elements from source_first on of rank `source`, or of the
 * reduction of all ranks if source is PERF_REDUCED. */
#define PERF_REDUCED (-1)
struct perf_block {
    size_t first, elems, source_first;
    int source;
};

struct perf_call {
    const struct perf_shape *shape;
    const void *send;
    void *recv;
    enum kolo_type type;
    kolo_op op;
    struct kolo_comm *comm;
    kolo_stream stream;
};

struct perf_collective {
    const char *name;                        /* "all_reduce_perf" */
    bool reduces;                            /* takes an operation */
    bool rooted;                             /* takes a root */
    bool beside;                             /* in place: the input lies behind the output */
    bool chained;                            /* a call is several messages, one after the other */
    bool moves;                              /* false: no data, a single row without sizes */
    bool per_rank;                           /* the larger buffer has a block for each rank */
    double (*share)(int nranks);             /* the share of the size in algbw; NULL: all */
    double (*factor)(int nranks);            /* bus bandwidth / algorithm bandwidth */
    bool (*runs)(int nranks);                /* NULL: on any number of ranks */
    void (*shape)(struct perf_shape *shape); /* fills all but the first row */
    bool (*block)(const struct perf_shape *shape, size_t k, struct perf_block *out);
    kolo_status (*call)(const struct perf_call *call);
};

extern const struct perf_collective perf_all_gather, perf_all_reduce, perf_alltoall, perf_alltoallv,
    perf_barrier, perf_broadcast, perf_gather, perf_hypercube, perf_reduce, perf_reduce_scatter,
    perf_scatter, perf_sendrecv;

/* An all-gather, also one out of messages (all_gather.c). */
void perf_all_gather_shape(struct perf_shape *shape);
bool perf_all_gather_block(const struct perf_shape *shape, size_t k, struct perf_block *out);
/* Send to one rank and receive from another, in one group, which is also ended after an error. The
 * result is then that error (sendrecv.c). */
kolo_status perf_exchange(const struct perf_call *call, size_t elems, int to, const void *send,
                          int from, void *recv);

/* Run the whole program: parse, run, report. Returns the exit status. */
int perf_main(const struct perf_collective *collective, int argc, char **argv);

/* ---- options ---- */

enum perf_average { PERF_RANK0, PERF_AVERAGE, PERF_MIN, PERF_MAX };
enum perf_blocking { PERF_QUEUED, PERF_IN_STEP, PERF_WAITING, PERF_APART }; /* -z 0 to 3 */
enum perf_registered { PERF_PRIVATE, PERF_REGISTERED, PERF_SYMMETRIC };     /* -R 0 to 2 */

struct perf_options {
    size_t min_bytes, max_bytes, step_bytes;
    long step_factor; /* 1: steps of step_bytes */
    long iters, warmup, agg, checks, cycles, threads, average, blocking, gpus, timeout_s;
    long per_call, skipped; /* statistics of single calls, without the first `skipped` ones */
    long parallel_init, registered, unalign, cpu_time, timestamps, no_stream;
    long neutral;        /* options of nccl-tests for which kolo has one value only */
    long root;           /* -1: each */
    uint32_t types, ops; /* bit sets of enum kolo_type, of operations */
    const char *json;    /* NULL: none */
    double spread;       /* alltoallv: 0 uniform .. 1 by distance */
    bool deterministic, shared, vary, stream;
};

enum perf_parsed { PERF_RUN, PERF_HELP, PERF_BAD };
/* Parse the command line. For PERF_RUN it fills *out. Help goes to `out_text`. An error is one line
 * on `err_text` with the option, the value and the allowed values. */
enum perf_parsed perf_options_parse(const struct perf_collective *collective, int argc, char **argv,
                                    struct perf_options *out, FILE *out_text, FILE *err_text);
/* Read an option's value. False: the text is not one, or the number is not in lo..hi. */
bool perf_whole_of(const char *text, long lo, long hi, long *out);
bool perf_bytes_of(const char *text, size_t *out);
bool perf_real_of(const char *text, long lo, long hi, double *out);
bool perf_types_of(const char *text, uint32_t *out); /* a bit set, as perf_options has it */
bool perf_ops_of(const char *text, uint32_t *out);
bool perf_root_of(const char *text, long *out); /* -1: all */
/* The size after `bytes`; SIZE_MAX: no more. */
size_t perf_next_bytes(const struct perf_options *options, size_t bytes);

/* ---- types and operations ---- */

const char *perf_type_name(enum kolo_type type); /* nccl-tests' name: "float", "half" */
size_t perf_type_bytes(enum kolo_type type);     /* own table: the library is under test */
bool perf_type_find(const char *name, enum kolo_type *out); /* kolo's or nccl-tests' name */
const char *perf_op_name(uint32_t op);
bool perf_op_find(const char *name, uint32_t *out);
bool perf_op_takes(uint32_t op, enum kolo_type type);
bool perf_type_is_float(enum kolo_type type);
bool perf_type_is_signed(enum kolo_type type);
bool perf_type_is_pair(enum kolo_type type);
/* The largest n for which `type` holds every whole number up to n exactly. Signed types also hold
 * the negative ones. */
uint32_t perf_type_exact_max(enum kolo_type type);
/* Encode `value` as an element, rounded to nearest even. For numbers only, not bool or pairs. */
void perf_encode(enum kolo_type type, double value, unsigned char *out);
double perf_decode(enum kolo_type type, const unsigned char *in);
void perf_encode_pair(enum kolo_type type, double value, int32_t index, unsigned char *out);
/* Offsets of a pair's index and of the index's end. FLOAT64_INT32 has 4 unused bytes after it. */
size_t perf_pair_index_at(enum kolo_type type);
size_t perf_pair_used(enum kolo_type type);

/* ---- data ---- */

/* The values that decide an input. An input is a hash of (call, rank, index). Inputs are chosen so
 * that the result is exact in any order of the operations. So equality is the right test. */
struct perf_data {
    enum kolo_type type;
    uint32_t op;
    int nranks;
    uint64_t call;
};
/* A buffer with guard zones before and after it. */
struct perf_buffer {
    unsigned char *bytes; /* page aligned, after the front guard */
    size_t capacity;
    void *base;
    bool shared;      /* from kolo_mem_alloc() */
    void *registered; /* by kolo_mem_register(); NULL: not */
};
struct perf_verdict {
    int64_t wrong;         /* elements */
    int64_t out_of_bounds; /* bytes changed outside the result */
};

void perf_input(const struct perf_data *data, int rank, size_t index, unsigned char *out);
void perf_expected(const struct perf_data *data, int source, size_t index, unsigned char *out);
/* A rank's factor in a premultiplied sum. */
double perf_premul_factor(int rank);
void perf_fill_input(const struct perf_data *data, int rank, void *send, size_t elems);
void perf_poison(const struct perf_buffer *buffer, size_t used_bytes);
/* Number of bytes in the guard zones around the first used_bytes that changed since perf_poison().
 */
int64_t perf_guard_check(const struct perf_buffer *buffer, size_t used_bytes);
/* Compare recv with the expected result, and describe the first few differences on `text`. */
int64_t perf_check(const struct perf_collective *collective, const struct perf_data *data,
                   const struct perf_shape *shape, const void *recv, FILE *text);
/* Number of elements of send that differ from the input. Elements inside recv do not count. */
int64_t perf_check_send(const struct perf_data *data, const struct perf_shape *shape,
                        const void *send, const void *recv);
bool perf_buffer_create(size_t capacity, bool shared, struct perf_buffer *out);
/* Register the buffer, unless no transport could use it. False: an error, which is printed. */
bool perf_buffer_register(struct perf_buffer *buffer);
void perf_buffer_destroy(struct perf_buffer *buffer);

/* ---- statistics ---- */

/* Combine the times of all ranks to one number. The times are `stride` entries apart. */
double perf_average_times(const double *times, int nranks, size_t stride, enum perf_average how);
/* The p-th percentile (0..1) of sorted values, nearest rank. */
double perf_percentile(const double *sorted, size_t count, double p);
/* The times of single calls, in microseconds. */
struct perf_calls {
    double min_us, max_us, avg_us, p50_us, p95_us, p99_us, stdev_us, cv_percent;
};
/* Summarise `count` times, and sort them. */
void perf_calls_summarise(double *times, size_t count, struct perf_calls *out);
double perf_gbps(double bytes, double us);
double perf_factor_one(int nranks);   /* broadcast, reduce, sendrecv */
double perf_factor_part(int nranks);  /* (n-1)/n */
double perf_factor_twice(int nranks); /* 2(n-1)/n */

/* ---- machine ---- */

/* A rank's description of its host and CPUs. Ranks exchange it as bytes. */
struct perf_device {
    int32_t pid, device, runtime_version;
    uint64_t available_bytes;
    char host[64];
    char cpus[64];  /* "0-3,8" */
    char model[96]; /* "AMD EPYC ..." or "cpu" */
};
void perf_device_self(struct perf_device *out);
/* The largest size at which so many `buffers` of each rank fit in 3/4 of every host's memory. */
size_t perf_memory_limit(const struct perf_device *devices, int nranks, unsigned buffers);
/* Set `device` of each rank: the number of smaller ranks on its host. */
void perf_number_devices(struct perf_device *devices, int nranks);
double perf_now_us(void);

/* ---- report ---- */

struct perf_half {
    bool ran;
    bool checked;
    double time_us, algbw, busbw;
    int64_t wrong;
    struct perf_calls calls; /* with -I */
    /* With -I, of `iters` entries: each call's time on its slowest process, then a row for each of
     * nprocesses, with the time of its slowest rank. */
    const double *call_us;
    int nprocesses;
};
struct perf_row {
    size_t bytes, count;
    enum kolo_type type;
    uint32_t op;
    int root; /* -1: none */
    long iters;
    struct perf_half halves[2]; /* out of place, in place */
};
struct perf_summary {
    int64_t wrong, out_of_bounds;
    double busbw_sum;
    long busbw_count;
    double busbw_min; /* KOLO_TESTS_MIN_BW; < 0: none */
};

/* Print `value` in at most `width` characters: with 2, 1 or no decimals, else with an exponent. */
void perf_number_text(double value, int width, char *out, size_t cap);
void perf_print_preamble(FILE *out, const struct perf_collective *collective,
                         const struct perf_options *options, int runtime_version);
void perf_print_devices(FILE *out, const struct perf_device *devices, int nranks);
void perf_print_header(FILE *out, const struct perf_options *options);
void perf_print_row(FILE *out, const struct perf_row *row, const struct perf_options *options);
/* The local time, as nccl-tests writes it. */
void perf_time_text(char *out, size_t cap);
void perf_print_summary(FILE *out, const struct perf_collective *collective,
                        const struct perf_summary *summary);
void perf_summary_add(struct perf_summary *summary, const struct perf_row *row);
double perf_summary_busbw(const struct perf_summary *summary);
bool perf_summary_fast(const struct perf_summary *summary);
int perf_summary_exit(const struct perf_summary *summary);

/* ---- JSON: the schema of nccl-tests 3, without the environment ---- */

struct perf_json {
    FILE *file;
    bool first; /* no member yet in the innermost object or array */
};
/* Open a new file. If `path` exists, try "<path>.0", "<path>.1" and so on. False: no file could be
 * opened, and `err` has a line. */
bool perf_json_open(struct perf_json *json, const char *path, FILE *err);
void perf_json_begin(struct perf_json *json, const struct perf_collective *collective,
                     const struct perf_options *options, int argc, char **argv,
                     const struct perf_device *devices, int nranks);
void perf_json_row(struct perf_json *json, const struct perf_collective *collective,
                   const struct perf_row *row, const struct perf_options *options);
/* Write the end and close the file. `error` NULL: no error. False: writing failed. */
bool perf_json_end(struct perf_json *json, const struct perf_summary *summary, const char *error);

/* ---- running ---- */

/* How a rank that is a thread joins the others, and the threads of each process. */
struct perf_job {
    const struct kolo_id *id; /* NULL: it has joined already */
    int nranks, rank;
    int per_process;
};
/* One rank: a process, or a thread of one. */
struct perf_rank {
    const struct perf_collective *collective;
    struct perf_options options;
    int argc;
    char **argv;
    struct perf_job job;
    struct kolo_comm *comm;    /* for measured calls */
    struct kolo_comm *control; /* for times, counts, barriers: keeps `comm` undisturbed */
    kolo_stream stream;        /* NULL: blocking calls */
    int rank, nranks;
    struct perf_device *devices;
    struct perf_buffer send, recv; /* in-place calls use recv */
    double *times, *all_times;     /* of this rank's calls, and of all ranks' calls */
    double *call_us[2];            /* with -I, of a row's halves: see perf_half */
    size_t *counts;                /* for perf_shape */
    kolo_op premul;                /* the operation of PERF_OP_PREMULSUM for the row's type */
    uint64_t call;                 /* seeds the inputs of each checked call */
    struct perf_summary summary;
    struct perf_json json; /* rank 0 with -J */
    kolo_status status;    /* the error of kolo that ended the sweep */
    int exit_code;
    char error[512];
};
/* The work of one half of a row: out of place, or in place. */
struct perf_task {
    struct perf_shape shape;
    struct perf_data data;
    struct perf_call call;
    void *send; /* call.send, to fill */
    bool in_place;
};

/* Run one rank's sweep over rank->comm, which the caller keeps. Returns rank->exit_code. */
int perf_sweep(struct perf_rank *rank);
/* Whether each call is timed alone, after a barrier. */
bool perf_times_apart(const struct perf_options *options);
/* Time options.iters calls. `half` gets the time, and with -I the percentiles. The caller has
 * filled the inputs. */
kolo_status perf_time(struct perf_rank *rank, const struct perf_task *task, struct perf_half *half);
/* Check options.checks calls, each with new inputs. Sets half->wrong and the summary's
 * out_of_bounds, summed over the ranks. */
kolo_status perf_verify(struct perf_rank *rank, struct perf_task *task, struct perf_half *half);

#ifdef __cplusplus
}
#endif
#endif
