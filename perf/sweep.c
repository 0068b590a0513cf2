// SPDX-License-Identifier: Apache-2.0
/* One rank's run. It gathers the ranks' descriptions, fits the sizes to the memory, and loops over
 * types, operations, roots and sizes. All ranks decide from the same facts, so they run the same
 * rows. Rank 0 prints. */
#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Stop the run. The first error is reported. The abort lets the other ranks end too. */
static void stop(struct perf_rank *rank, int exit_code, const char *what)
{
    if (rank->exit_code != PERF_EXIT_OK) {
        return;
    }
    rank->exit_code = exit_code;
    snprintf(rank->error, sizeof(rank->error), "rank %d: %s", rank->rank, what);
    fprintf(stderr, " .. pid %d: %s: %s\n", (int)getpid(), rank->collective->name, rank->error);
    kolo_comm_abort(rank->comm);
    if (rank->control != NULL) {
        kolo_comm_abort(rank->control);
    }
}

/* Check a status. True: continue. */
static bool passed(struct perf_rank *rank, kolo_status status, const char *what)
{
    char text[400];
    if (status >= 0) {
        return true;
    }
    rank->status = status;
    snprintf(text, sizeof(text), "%s: %s: %s", what, kolo_status_name(status), kolo_error_text());
    stop(rank, status == KOLO_ERR_TIMEOUT ? PERF_EXIT_TIMEOUT : PERF_EXIT_KOLO, text);
    return false;
}

/* End the run on every rank. Only rank 0 prints the reason. */
static bool refuse(struct perf_rank *rank, int exit_code, const char *why)
{
    rank->exit_code = exit_code;
    if (rank->rank == 0) {
        fprintf(stderr, "%s: %s\n", rank->collective->name, why);
    }
    return false;
}

/* Whether the value is true on every rank. */
static bool agreed(struct perf_rank *rank, bool mine)
{
    int32_t ok = mine, all = 0;
    const kolo_status status =
        kolo_all_reduce(&ok, &all, 1, KOLO_INT32, KOLO_MIN, rank->control, NULL);
    return passed(rank, status, "agreeing to start") && all != 0;
}

static bool gather_devices(struct perf_rank *rank)
{
    struct perf_device self;
    rank->devices = calloc((size_t)rank->nranks, sizeof(*rank->devices));
    if (rank->devices == NULL) {
        stop(rank, PERF_EXIT_INTERNAL, "no memory for the list of ranks");
        return false;
    }
    perf_device_self(&self);
    self.runtime_version = kolo_version();
    const kolo_status status =
        kolo_all_gather(&self, rank->devices, sizeof(self), KOLO_UINT8, rank->control, NULL);
    if (!passed(rank, status, "exchanging who is there")) {
        return false;
    }
    perf_number_devices(rank->devices, rank->nranks);
    return true;
}

/* The bytes of an output, rounded up to the place of an input behind it (perf_collective.beside).
 */
static size_t page_of(size_t bytes)
{
    return (bytes + PERF_GUARD_BYTES - 1) / PERF_GUARD_BYTES * PERF_GUARD_BYTES;
}

static size_t memory_limit(const struct perf_rank *rank)
{
    return perf_memory_limit(rank->devices, rank->nranks, rank->collective->beside ? 3 : 2);
}

/* Check the options that depend on all ranks. */
static bool fit_options(struct perf_rank *rank)
{
    struct perf_options *options = &rank->options;
    char why[200];
    if (rank->collective->rooted && options->root >= rank->nranks) {
        snprintf(why, sizeof(why), "-r/--root: %ld is not allowed; give a rank up to %d, or all",
                 options->root, rank->nranks - 1);
        return refuse(rank, PERF_EXIT_OPTION, why);
    }
    const size_t limit = memory_limit(rank);
    if (rank->collective->moves && options->min_bytes > limit) {
        snprintf(why, sizeof(why), "-b/--minbytes: %zu is more than the %zu that memory allows",
                 options->min_bytes, limit);
        return refuse(rank, PERF_EXIT_INTERNAL, why);
    }
    return true;
}

static bool reserve_times(struct perf_rank *rank)
{
    const size_t nranks = (size_t)rank->nranks, iters = (size_t)rank->options.iters;
    const bool per_call = rank->options.per_call != 0;
    const size_t rows = 1 + nranks / (size_t)rank->job.per_process;
    rank->times = calloc(per_call || perf_times_apart(&rank->options) ? iters : 1, sizeof(double));
    rank->all_times = calloc(nranks * (per_call ? iters : 1), sizeof(double));
    rank->call_us[0] = calloc(per_call ? rows * iters : 1, sizeof(double));
    rank->call_us[1] = calloc(per_call ? rows * iters : 1, sizeof(double));
    return rank->times != NULL && rank->all_times != NULL && rank->call_us[0] != NULL &&
           rank->call_us[1] != NULL;
}

static bool reserve(struct perf_rank *rank)
{
    const struct perf_options *options = &rank->options;
    const size_t nranks = (size_t)rank->nranks;
    /* Ragged blocks may round up by an element a rank. */
    const size_t extra = (nranks + (size_t)options->unalign) * PERF_ELEMENT_MAX;
    const size_t bytes = rank->collective->moves ? options->max_bytes + extra : 0;
    const size_t recv_bytes = rank->collective->beside ? page_of(bytes) + bytes : bytes;
    const bool shared = options->shared || options->registered == PERF_SYMMETRIC;
    rank->counts = calloc(4 * nranks, sizeof(*rank->counts));
    bool ok = rank->counts != NULL && reserve_times(rank);
    ok = ok && perf_buffer_create(bytes, shared, &rank->send);
    ok = ok && perf_buffer_create(recv_bytes, shared, &rank->recv);
    if (options->registered == PERF_REGISTERED) {
        ok = ok && perf_buffer_register(&rank->send) && perf_buffer_register(&rank->recv);
    }
    if (ok && rank->rank == 0 && options->json != NULL) {
        ok = perf_json_open(&rank->json, options->json, stderr);
    }
    if (!agreed(rank, ok)) {
        rank->exit_code = rank->exit_code != PERF_EXIT_OK ? rank->exit_code : PERF_EXIT_INTERNAL;
        return false;
    }
    return true;
}

static bool prepare(struct perf_rank *rank)
{
    rank->rank = kolo_comm_rank(rank->comm);
    rank->nranks = kolo_comm_size(rank->comm);
    if (!passed(rank, kolo_comm_split(rank->comm, 0, rank->rank, NULL, &rank->control),
                "splitting the communicator") ||
        !gather_devices(rank) || !fit_options(rank)) {
        return false;
    }
    const size_t limit = memory_limit(rank);
    const bool reduced = rank->collective->moves && rank->options.max_bytes > limit;
    rank->options.max_bytes = reduced ? limit : rank->options.max_bytes;
    if (!reserve(rank)) {
        return false;
    }
    if (rank->rank == 0) {
        perf_print_preamble(stdout, rank->collective, &rank->options,
                            rank->devices[0].runtime_version);
        perf_print_devices(stdout, rank->devices, rank->nranks);
        if (reduced) {
            printf("# Reducing maxBytes to %zu due to memory limitation\n", limit);
        }
        perf_print_header(stdout, &rank->options);
        fflush(stdout);
    }
    if (rank->json.file != NULL) {
        perf_json_begin(&rank->json, rank->collective, &rank->options, rank->argc, rank->argv,
                        rank->devices, rank->nranks);
    }
    return !rank->options.stream ||
           passed(rank, kolo_stream_create(&rank->stream), "creating a stream");
}

/* ---- rows ---- */

static struct perf_task task_of(struct perf_rank *rank, const struct perf_row *row, bool in_place)
{
    const size_t bytes = perf_type_bytes(row->type);
    struct perf_task task = {
        .shape = {.rank = rank->rank,
                  .nranks = rank->nranks,
                  .root = row->root,
                  .spread = rank->options.spread,
                  .count = row->count,
                  .counts = rank->counts},
        .data = {.type = row->type, .op = row->op, .nranks = rank->nranks, .call = rank->call++},
        .in_place = in_place,
    };
    rank->collective->shape(&task.shape);
    unsigned char *send = rank->send.bytes, *recv = rank->recv.bytes;
    if (in_place) {
        if (rank->collective->beside) {
            task.shape.send_at = page_of(task.shape.recv_elems * bytes) / bytes;
        }
        send = recv + task.shape.send_at * bytes;
        recv += task.shape.recv_at * bytes;
    }
    task.send = send;
    task.call = (struct perf_call){.send = send,
                                   .recv = recv,
                                   .type = row->type,
                                   .op = row->op == PERF_OP_PREMULSUM ? rank->premul : row->op,
                                   .comm = rank->comm,
                                   .stream = rank->stream};
    return task;
}

static kolo_status run_half(struct perf_rank *rank, struct perf_row *row, bool in_place)
{
    struct perf_half *half = &row->halves[in_place];
    struct perf_task task = task_of(rank, row, in_place);
    task.call.shape = &task.shape;
    row->bytes = task.shape.total * perf_type_bytes(row->type);
    perf_fill_input(&task.data, rank->rank, task.send, task.shape.send_elems);
    const kolo_status status = perf_time(rank, &task, half);
    if (status < 0) {
        return status;
    }
    const struct perf_collective *collective = rank->collective;
    half->algbw = perf_gbps((double)row->bytes, half->time_us);
    half->algbw *= collective->share != NULL ? collective->share(rank->nranks) : 1;
    half->busbw = half->algbw * collective->factor(rank->nranks);
    return perf_verify(rank, &task, half);
}

/* -u: move the begin of the buffers by some elements, or back. */
static void move_buffers(struct perf_rank *rank, ptrdiff_t bytes)
{
    if (rank->collective->moves) {
        rank->send.bytes += bytes;
        rank->recv.bytes += bytes;
    }
}

static bool run_row(struct perf_rank *rank, enum kolo_type type, uint32_t op, int root,
                    size_t bytes)
{
    const size_t blocks = rank->collective->per_rank ? (size_t)rank->nranks : 1;
    struct perf_row row = {.count = bytes / perf_type_bytes(type) / blocks,
                           .type = type,
                           .op = op,
                           .root = root,
                           .iters = rank->options.iters};
    move_buffers(rank, rank->options.unalign * (ptrdiff_t)perf_type_bytes(type));
    for (int in_place = 0; in_place <= 1; in_place++) {
        char what[100];
        snprintf(what, sizeof(what), "%zu elements of %s, %s, %s", row.count, perf_type_name(type),
                 perf_op_name(op), in_place != 0 ? "in place" : "out of place");
        if (!passed(rank, run_half(rank, &row, in_place != 0), what)) {
            return false;
        }
    }
    move_buffers(rank, -rank->options.unalign * (ptrdiff_t)perf_type_bytes(type));
    perf_summary_add(&rank->summary, &row);
    if (rank->rank == 0) {
        perf_print_row(stdout, &row, &rank->options);
    }
    if (rank->json.file != NULL) {
        perf_json_row(&rank->json, rank->collective, &row, &rank->options);
    }
    return true;
}

static bool run_sizes(struct perf_rank *rank, enum kolo_type type, uint32_t op, int root)
{
    if (!rank->collective->moves) {
        return run_row(rank, type, op, root, 0);
    }
    for (size_t bytes = rank->options.min_bytes; bytes != SIZE_MAX;
         bytes = perf_next_bytes(&rank->options, bytes)) {
        if (!run_row(rank, type, op, root, bytes)) {
            return false;
        }
    }
    return true;
}

static bool run_roots(struct perf_rank *rank, enum kolo_type type, uint32_t op)
{
    const int asked = (int)rank->options.root;
    if (!rank->collective->rooted) {
        return run_sizes(rank, type, op, -1);
    }
    const int first = asked < 0 ? 0 : asked, last = asked < 0 ? rank->nranks - 1 : asked;
    for (int root = first; root <= last; root++) {
        if (!run_sizes(rank, type, op, root)) {
            return false;
        }
    }
    return true;
}

/* A premultiplied sum exists for one type on one communicator, so it is made here. */
static bool run_op(struct perf_rank *rank, enum kolo_type type, uint32_t op)
{
    unsigned char factor[PERF_ELEMENT_MAX];
    if (op != PERF_OP_PREMULSUM) {
        return run_roots(rank, type, op);
    }
    perf_encode(type, perf_premul_factor(rank->rank), factor);
    const kolo_status status = kolo_op_create_premulsum(factor, type, rank->comm, &rank->premul);
    if (!passed(rank, status, "creating a premultiplied sum")) {
        return false;
    }
    const bool ok = run_roots(rank, type, op);
    kolo_op_destroy(rank->premul, rank->comm);
    return ok;
}

static bool run_type(struct perf_rank *rank, enum kolo_type type)
{
    if (!rank->collective->reduces) {
        return run_op(rank, type, PERF_OP_NONE);
    }
    for (uint32_t op = 0; op < PERF_OP_NONE; op++) {
        if ((rank->options.ops >> op & 1) != 0 && perf_op_takes(op, type) &&
            !run_op(rank, type, op)) {
            return false;
        }
    }
    return true;
}

static bool run_cycle(struct perf_rank *rank)
{
    for (int t = 0; t < KOLO_TYPES; t++) {
        const bool asked = rank->collective->moves ? (rank->options.types >> t & 1) != 0
                                                   : t == KOLO_FLOAT32; /* one type is enough */
        if (asked && !run_type(rank, (enum kolo_type)t)) {
            return false;
        }
    }
    return true;
}

static void tidy(struct perf_rank *rank)
{
    const char *error = rank->exit_code != PERF_EXIT_OK ? rank->error : NULL;
    if (rank->json.file != NULL && !perf_json_end(&rank->json, &rank->summary, error)) {
        fprintf(stderr, "-J/--output_file: %s was not written\n", rank->options.json);
        rank->exit_code = PERF_EXIT_INTERNAL;
    }
    kolo_stream_destroy(rank->stream);
    kolo_comm_destroy(rank->control);
    perf_buffer_destroy(&rank->send);
    perf_buffer_destroy(&rank->recv);
    free(rank->devices);
    free(rank->call_us[0]);
    free(rank->call_us[1]);
    free(rank->counts);
    free(rank->times);
    free(rank->all_times);
}

int perf_sweep(struct perf_rank *rank)
{
    bool going = prepare(rank);
    const bool runs = rank->collective->runs == NULL || rank->collective->runs(rank->nranks);
    if (going && !runs && rank->rank == 0) {
        printf("# %d ranks are not a power of 2, skipping\n", rank->nranks);
    }
    const long cycles = rank->options.cycles;
    for (long cycle = 0; going && runs && (cycles == 0 || cycle < cycles); cycle++) {
        going = run_cycle(rank);
    }
    const bool done = going;
    if (done && rank->rank == 0) {
        perf_print_summary(stdout, rank->collective, &rank->summary);
    }
    tidy(rank);
    if (done && rank->exit_code == PERF_EXIT_OK) {
        rank->exit_code = perf_summary_exit(&rank->summary);
    }
    return rank->exit_code;
}
