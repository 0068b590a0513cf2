// SPDX-License-Identifier: Apache-2.0
/* The timed loops.
 *
 * - The usual loop is that of nccl-tests: calls one after another, and the clock read at both ends.
 *   Consecutive calls may overlap between ranks, so the figure is the throughput of a queue.
 * - With -z 1 each call is waited for, and a barrier follows it. Both count, as in nccl-tests: the
 *   clock is read at both ends only.
 * - With -z 2 each call is waited for, without a barrier.
 * - With -z 3 each call, or group of -m, is timed alone after a barrier. That is the latency for a
 *   caller with only this one call.
 * - With --vary the inputs are written between the calls. So no call finds them in another core's
 *   cache as the previous call left them. */
#include "perf.h"

#include <string.h>

/* Issue one group of -m calls. The group is also ended after an error. The result is then that
 * error. */
static kolo_status issue(const struct perf_rank *rank, const struct perf_task *task)
{
    const struct perf_collective *collective = rank->collective;
    if (rank->options.agg == 1) {
        return collective->call(&task->call);
    }
    kolo_status status = kolo_group_begin();
    if (status < 0) {
        return status;
    }
    for (long k = 0; k < rank->options.agg && status >= 0; k++) {
        status = collective->call(&task->call);
    }
    const kolo_status ended = kolo_group_end();
    return status < 0 ? status : ended;
}

static kolo_status finish(const struct perf_rank *rank)
{
    return rank->stream != NULL ? kolo_stream_sync(rank->stream) : KOLO_OK;
}

static kolo_status issue_all(const struct perf_rank *rank, const struct perf_task *task, long calls)
{
    kolo_status status = KOLO_OK;
    for (long i = 0; i < calls && status >= 0; i++) {
        status = issue(rank, task);
    }
    return status;
}

static kolo_status repeat(const struct perf_rank *rank, const struct perf_task *task, long calls)
{
    const kolo_status status = issue_all(rank, task, calls);
    return status < 0 ? status : finish(rank);
}

/* -z 1 and 2: each call is waited for by itself, those of -m as well. */
static kolo_status repeat_waiting(const struct perf_rank *rank, const struct perf_task *task)
{
    const struct perf_options *options = &rank->options;
    kolo_status status = KOLO_OK;
    for (long i = 0; i < options->iters * options->agg && status >= 0; i++) {
        status = rank->collective->call(&task->call);
        status = status < 0 ? status : finish(rank);
        if (status >= 0 && options->blocking == PERF_IN_STEP) {
            status = kolo_barrier(rank->control, NULL);
        }
    }
    return status;
}

static kolo_status time_queue(struct perf_rank *rank, const struct perf_task *task, double *us_out)
{
    const struct perf_options *options = &rank->options;
    kolo_status status = kolo_barrier(rank->control, NULL);
    const double start = perf_now_us();
    if (status >= 0) {
        status = options->blocking != PERF_QUEUED ? repeat_waiting(rank, task)
                                                  : issue_all(rank, task, options->iters);
    }
    const double issued = options->cpu_time != 0 ? perf_now_us() : 0;
    if (status >= 0) {
        status = finish(rank);
    }
    const double end = options->cpu_time != 0 ? issued : perf_now_us();
    *us_out = (end - start) / (double)options->iters / (double)options->agg;
    return status;
}

static void rewrite(const struct perf_rank *rank, const struct perf_task *task, long turn)
{
    struct perf_data data = task->data;
    data.call += (uint64_t)turn;
    perf_fill_input(&data, rank->rank, task->send, task->shape.send_elems);
}

/* Time single calls into rank->times. */
static kolo_status time_singles(struct perf_rank *rank, const struct perf_task *task, bool apart)
{
    kolo_status status = kolo_barrier(rank->control, NULL);
    for (long i = 0; i < rank->options.iters && status >= 0; i++) {
        if (rank->options.vary) {
            rewrite(rank, task, i);
        }
        status = apart ? kolo_barrier(rank->control, NULL) : KOLO_OK;
        const double start = perf_now_us();
        if (status >= 0) {
            status = repeat(rank, task, 1);
        }
        rank->times[i] = (perf_now_us() - start) / (double)rank->options.agg;
    }
    return status;
}

static double mean(const double *values, long count)
{
    double sum = 0;
    for (long i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum / (double)count;
}

/* Gather the times of single calls to half->call_us, and summarise those of the slowest process. As
 * in nccl-tests, -a does not count here: the slowest rank decides when a call is done. */
static kolo_status spread_of_calls(struct perf_rank *rank, bool in_place, struct perf_half *half)
{
    const size_t iters = (size_t)rank->options.iters, skipped = (size_t)rank->options.skipped;
    const int nprocesses = rank->nranks / rank->job.per_process;
    double *slowest = rank->call_us[in_place], *rows = slowest + iters;
    const kolo_status status =
        kolo_all_gather(rank->times, rank->all_times, iters, KOLO_FLOAT64, rank->control, NULL);
    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < iters; i++) {
        for (int p = 0; p < nprocesses; p++) {
            const double *first =
                rank->all_times + (size_t)p * (size_t)rank->job.per_process * iters;
            rows[(size_t)p * iters + i] =
                perf_average_times(first + i, rank->job.per_process, iters, PERF_MAX);
        }
        slowest[i] = perf_average_times(rows + i, nprocesses, iters, PERF_MAX);
    }
    memcpy(rank->times, slowest, iters * sizeof(*slowest));
    perf_calls_summarise(rank->times + skipped, iters - skipped, &half->calls);
    half->call_us = slowest;
    half->nprocesses = nprocesses;
    return KOLO_OK;
}

static kolo_status average(struct perf_rank *rank, double us, double *out)
{
    const kolo_status status =
        kolo_all_gather(&us, rank->all_times, 1, KOLO_FLOAT64, rank->control, NULL);
    if (status >= 0) {
        *out = perf_average_times(rank->all_times, rank->nranks, 1,
                                  (enum perf_average)rank->options.average);
    }
    return status;
}

bool perf_times_apart(const struct perf_options *options)
{
    return options->blocking == PERF_APART || options->vary;
}

kolo_status perf_time(struct perf_rank *rank, const struct perf_task *task, struct perf_half *half)
{
    const struct perf_options *options = &rank->options;
    const bool apart = perf_times_apart(options);
    double us = 0;
    /* The first call of a shape also makes its plan. */
    kolo_status status = repeat(rank, task, 1 + options->warmup);
    if (status >= 0 && !apart) {
        status = time_queue(rank, task, &us);
    }
    if (status >= 0 && (apart || options->per_call != 0)) {
        status = time_singles(rank, task, apart);
        us = apart ? mean(rank->times, options->iters) : us;
    }
    if (status >= 0) {
        status = average(rank, us, &half->time_us);
    }
    if (status >= 0 && options->per_call != 0) {
        status = spread_of_calls(rank, task->in_place, half);
    }
    half->ran = status >= 0;
    return status;
}
