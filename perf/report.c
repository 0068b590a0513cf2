// SPDX-License-Identifier: Apache-2.0
/* The table. Its columns are those of nccl-tests, so that scripts can read both. Source: the
 * formats of nccl-tests 2.19 (src/util.cu). */
#include "perf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void perf_number_text(double value, int width, char *out, size_t cap)
{
    for (int decimals = 2; decimals >= 0; decimals--) {
        if (snprintf(out, cap, "%.*f", decimals, value) <= width) {
            return;
        }
    }
    snprintf(out, cap, "%.0e", value);
}

/* The options that change what is timed. */
static void print_modes(FILE *out, const struct perf_options *options)
{
    switch (options->blocking) {
    case PERF_APART:
        fprintf(out,
                "# Blocking: calls are timed alone, each after a barrier that does not count\n");
        break;
    case PERF_IN_STEP:
        fprintf(out, "# Blocking: each call is waited for, and a barrier follows it; both count\n");
        break;
    case PERF_WAITING:
        fprintf(out, "# Blocking: each call is waited for before the next, without a barrier\n");
        break;
    default:
        break;
    }
    if (options->per_call != 0) {
        fprintf(out, "# Single calls: i_* are of each call's time on its slowest process");
        fprintf(out, options->skipped > 0 ? ", without the first %ld calls\n" : "\n",
                options->skipped);
    }
}

void perf_print_preamble(FILE *out, const struct perf_collective *collective,
                         const struct perf_options *options, int runtime_version)
{
    const bool by_factor = options->step_factor > 1;
    fprintf(out, "# kolo-tests version %d.%d.%d kolo-headers=%d kolo-library=%d\n",
            KOLO_VERSION_MAJOR, KOLO_VERSION_MINOR, KOLO_VERSION_PATCH, KOLO_VERSION,
            runtime_version);
    fprintf(out, "# Collective test starting: %s\n", collective->name);
    fprintf(out,
            "# nThread %ld nGpus %ld minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %ld "
            "iters: %ld agg iters: %ld validation: %ld graph: 0 unalign: %ld\n",
            options->threads, options->gpus, options->min_bytes, options->max_bytes,
            by_factor ? (size_t)options->step_factor : options->step_bytes,
            by_factor ? "factor" : "bytes", options->warmup, options->iters, options->agg,
            options->checks, options->unalign);
    print_modes(out, options);
    fprintf(out, "#\n");
}

void perf_print_devices(FILE *out, const struct perf_device *devices, int nranks)
{
    fprintf(out, "# Using devices\n");
    for (int r = 0; r < nranks; r++) {
        const struct perf_device *device = &devices[r];
        fprintf(out, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [cpu %s] %s\n", r, 0,
                (int)device->pid, device->host, (int)device->device, device->cpus, device->model);
    }
    fprintf(out, "#\n");
}

/* One half of one of the header's three lines. */
static void print_title(FILE *out, const char *const title[8], bool per_call)
{
    fprintf(out, "  %7s  %6s  %6s  %6s", title[0], title[1], title[2], title[3]);
    for (int column = 4; per_call && column < 8; column++) {
        fprintf(out, "  %7s", title[column]);
    }
}

void perf_print_header(FILE *out, const struct perf_options *options)
{
    const char *const names[] = {options->cpu_time != 0 ? "cputime" : "time",
                                 "algbw",
                                 "busbw",
                                 "#wrong",
                                 "i_min",
                                 "i_max",
                                 "i_p99",
                                 "i_cv%"};
    static const char *const units[] = {"(us)", "(GB/s)", "(GB/s)", "",
                                        "(us)", "(us)",   "(us)",   "(%)"};
    const bool per_call = options->per_call != 0;
    const int half = per_call ? 69 : 33; /* columns of a half */
    const int out_at = (half - 11) / 2, in_at = (half - 7) / 2;
    const int stamp = options->timestamps != 0 ? 20 : 0;
    fprintf(out, "#%51s%*s%-*s%*s%-*s\n", "", out_at, "", half - out_at, "out-of-place", in_at, "",
            half - in_at - 2, "in-place");
    fprintf(out, "# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    print_title(out, names, per_call);
    print_title(out, names, per_call);
    fprintf(out, " %*s\n# %10s  %12s  %8s  %6s  %6s", stamp, stamp != 0 ? "timestamp" : "", "(B)",
            "(elements)", "", "", "");
    print_title(out, units, per_call);
    print_title(out, units, per_call);
    fprintf(out, " %*s\n", stamp, stamp != 0 ? "(local time)" : "");
}

void perf_time_text(char *out, size_t cap)
{
    const time_t seconds = time(NULL);
    struct tm parts;
    out[0] = '\0';
    if (localtime_r(&seconds, &parts) != NULL) {
        strftime(out, cap, "%Y-%m-%d %H:%M:%S", &parts);
    }
}

static void print_number(FILE *out, bool known, double value, int width)
{
    char text[32] = "N/A";
    if (known) {
        perf_number_text(value, width, text, sizeof(text));
    }
    fprintf(out, "  %*s", width, text);
}

static void print_half(FILE *out, const struct perf_half *half, bool per_call)
{
    print_number(out, half->ran, half->time_us, 7);
    print_number(out, half->ran, half->algbw, 6);
    print_number(out, half->ran, half->busbw, 6);
    if (half->checked) {
        fprintf(out, "  %6g", (double)half->wrong);
    } else {
        fprintf(out, "  %6s", "N/A");
    }
    if (per_call) {
        print_number(out, half->ran, half->calls.min_us, 7);
        print_number(out, half->ran, half->calls.max_us, 7);
        print_number(out, half->ran, half->calls.p99_us, 7);
        print_number(out, half->ran, half->calls.cv_percent, 7);
    }
}

void perf_print_row(FILE *out, const struct perf_row *row, const struct perf_options *options)
{
    fprintf(out, "%12zu  %12zu  %8s  %6s  %6d", row->bytes, row->count, perf_type_name(row->type),
            perf_op_name(row->op), row->root);
    print_half(out, &row->halves[0], options->per_call != 0);
    print_half(out, &row->halves[1], options->per_call != 0);
    if (options->timestamps != 0) {
        char now[32];
        perf_time_text(now, sizeof(now));
        fprintf(out, "%21s", now);
    }
    fprintf(out, "\n");
    /* Users watch a long sweep, often through a pipe. */
    fflush(out);
}

void perf_summary_add(struct perf_summary *summary, const struct perf_row *row)
{
    for (int h = 0; h < 2; h++) {
        const struct perf_half *half = &row->halves[h];
        if (half->ran) {
            summary->busbw_sum += half->busbw;
            summary->busbw_count++;
        }
        summary->wrong += half->checked ? half->wrong : 0;
    }
}

double perf_summary_busbw(const struct perf_summary *summary)
{
    return summary->busbw_count > 0 ? summary->busbw_sum / (double)summary->busbw_count : 0;
}

/* nccl-tests accepts an average of up to a tenth below the requested minimum. */
bool perf_summary_fast(const struct perf_summary *summary)
{
    return summary->busbw_min < 0 || perf_summary_busbw(summary) >= 0.9 * summary->busbw_min;
}

int perf_summary_exit(const struct perf_summary *summary)
{
    const bool right = summary->wrong == 0 && summary->out_of_bounds == 0;
    return right && perf_summary_fast(summary) ? PERF_EXIT_OK : PERF_EXIT_WRONG;
}

void perf_print_summary(FILE *out, const struct perf_collective *collective,
                        const struct perf_summary *summary)
{
    const char *verdict = summary->busbw_min < 0       ? ""
                          : perf_summary_fast(summary) ? "OK"
                                                       : "FAILED";
    fprintf(out, "# %-20s : %" PRId64 " %s\n", "Out of bounds values", summary->out_of_bounds,
            summary->out_of_bounds == 0 ? "OK" : "FAILED");
    fprintf(out, "# %-20s : %g %s\n", "Avg bus bandwidth", perf_summary_busbw(summary), verdict);
    fprintf(out, "#\n# Collective test concluded: %s\n#\n", collective->name);
    fflush(out);
}
