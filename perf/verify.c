// SPDX-License-Identifier: Apache-2.0
/* The checked calls of a row. Each has new inputs in poisoned memory. After the call, every element
 * of the result, every input and the guard zones are checked. A barrier has no data. There one rank
 * (another one each time) comes late, and no rank may leave before it came. */
#include "perf.h"

#include <string.h>

enum { LATE_US = 100 };

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Bytes of the receive buffer that the call may use. */
static size_t recv_span(const struct perf_task *task)
{
    const struct perf_shape *shape = &task->shape;
    size_t elems = shape->recv_elems;
    if (task->in_place) {
        elems = larger(shape->recv_at + shape->recv_elems, shape->send_at + shape->send_elems);
    }
    return elems * perf_type_bytes(task->data.type);
}

static kolo_status check_once(struct perf_rank *rank, struct perf_task *task,
                              struct perf_verdict *verdict)
{
    const struct perf_shape *shape = &task->shape;
    const size_t send_bytes = shape->send_elems * perf_type_bytes(task->data.type);
    task->data.call = rank->call++;
    perf_poison(&rank->send, send_bytes);
    perf_poison(&rank->recv, recv_span(task));
    perf_fill_input(&task->data, rank->rank, task->send, shape->send_elems);
    kolo_status status = rank->collective->call(&task->call);
    if (status >= 0 && rank->stream != NULL) {
        status = kolo_stream_sync(rank->stream);
    }
    if (status < 0) {
        return status;
    }
    verdict->wrong += perf_check(rank->collective, &task->data, shape, task->call.recv, stderr);
    verdict->out_of_bounds += perf_check_send(&task->data, shape, task->send, task->call.recv);
    verdict->out_of_bounds += perf_guard_check(&rank->send, send_bytes);
    verdict->out_of_bounds += perf_guard_check(&rank->recv, recv_span(task));
    return KOLO_OK;
}

static bool one_host(const struct perf_rank *rank)
{
    for (int r = 1; r < rank->nranks; r++) {
        if (strcmp(rank->devices[r].host, rank->devices[0].host) != 0) {
            return false;
        }
    }
    return true;
}

/* All ranks' times are from one host's clock, so they can be compared. */
static kolo_status check_barrier(struct perf_rank *rank, struct perf_task *task,
                                 struct perf_verdict *verdict)
{
    const uint64_t late = rank->call++ % (uint64_t)rank->nranks;
    kolo_status status = kolo_barrier(rank->control, NULL);
    const double before = perf_now_us();
    while ((uint64_t)rank->rank == late && perf_now_us() - before < LATE_US) {
    }
    const double entered = perf_now_us();
    if (status >= 0) {
        status = rank->collective->call(&task->call);
    }
    if (status >= 0 && rank->stream != NULL) {
        status = kolo_stream_sync(rank->stream);
    }
    const double left = perf_now_us();
    if (status >= 0) {
        status = kolo_all_gather(&entered, rank->all_times, 1, KOLO_FLOAT64, rank->control, NULL);
    }
    if (status < 0) {
        return status;
    }
    const double last = perf_average_times(rank->all_times, rank->nranks, 1, PERF_MAX);
    if (left < last) {
        verdict->wrong++;
        fprintf(stderr, "%s: rank %d of %d left %.2f us before the last rank entered\n",
                rank->collective->name, rank->rank, rank->nranks, last - left);
    }
    return KOLO_OK;
}

kolo_status perf_verify(struct perf_rank *rank, struct perf_task *task, struct perf_half *half)
{
    const bool moves = rank->collective->moves;
    struct perf_verdict verdict = {0, 0};
    kolo_status status = KOLO_OK;
    if (rank->options.checks == 0 || (!moves && !one_host(rank))) {
        return KOLO_OK;
    }
    for (long c = 0; c < rank->options.checks && status >= 0; c++) {
        status = moves ? check_once(rank, task, &verdict) : check_barrier(rank, task, &verdict);
    }
    if (status < 0) {
        return status;
    }
    const int64_t mine[2] = {verdict.wrong, verdict.out_of_bounds};
    int64_t all[2] = {0, 0};
    status = kolo_all_reduce(mine, all, 2, KOLO_INT64, KOLO_SUM, rank->control, NULL);
    if (status >= 0) {
        half->checked = true;
        half->wrong = all[0];
        rank->summary.out_of_bounds += all[1];
    }
    return status;
}
