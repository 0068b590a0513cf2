// SPDX-License-Identifier: Apache-2.0
/* Averages over ranks, percentiles over calls, and bus bandwidth. Bus bandwidth is the algorithm
 * bandwidth times the share of the data that must cross the busiest link. So figures of different
 * collectives and rank counts compare with the hardware's number. Source: nccl-tests,
 * doc/PERFORMANCE.md. */
#include "perf.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

double perf_average_times(const double *times, int nranks, size_t stride, enum perf_average how)
{
    double sum = 0, least = times[0], most = times[0];
    for (int r = 0; r < nranks; r++) {
        const double time = times[(size_t)r * stride];
        sum += time;
        least = fmin(least, time);
        most = fmax(most, time);
    }
    switch (how) {
    case PERF_RANK0:
        return times[0];
    case PERF_MIN:
        return least;
    case PERF_MAX:
        return most;
    default:
        return sum / nranks;
    }
}

double perf_percentile(const double *sorted, size_t count, double p)
{
    assert(count > 0 && p >= 0 && p <= 1);
    const size_t rank = (size_t)ceil(p * (double)count);
    return sorted[rank == 0 ? 0 : rank - 1];
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void perf_calls_summarise(double *times, size_t count, struct perf_calls *out)
{
    double sum = 0, squares = 0;
    qsort(times, count, sizeof(*times), compare);
    for (size_t i = 0; i < count; i++) {
        sum += times[i];
    }
    const double mean = sum / (double)count;
    for (size_t i = 0; i < count; i++) {
        squares += (times[i] - mean) * (times[i] - mean);
    }
    const double stdev = sqrt(squares / (double)count);
    *out = (struct perf_calls){.min_us = times[0],
                               .max_us = times[count - 1],
                               .avg_us = mean,
                               .p50_us = perf_percentile(times, count, 0.5),
                               .p95_us = perf_percentile(times, count, 0.95),
                               .p99_us = perf_percentile(times, count, 0.99),
                               .stdev_us = stdev,
                               .cv_percent = mean > 0 ? 100 * stdev / mean : 0};
}

double perf_gbps(double bytes, double us)
{
    return us > 0 ? bytes / us / 1e3 : 0;
}

double perf_factor_one(int nranks)
{
    (void)nranks;
    return 1;
}

double perf_factor_part(int nranks)
{
    return (double)(nranks - 1) / nranks;
}

double perf_factor_twice(int nranks)
{
    return 2.0 * (nranks - 1) / nranks;
}
