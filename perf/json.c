// SPDX-License-Identifier: Apache-2.0
/* The results as JSON. The members are those of nccl-tests' schema 3, whose booleans are strings.
 * "env" is empty, because the environment holds secrets, and "nccl_version" null.
 *
 * The file is written row by row: begin() and end() enclose the rows. end() is also called after an
 * error, so that the file is complete. A name with bytes that are not UTF-8 is written byte by byte
 * as Latin-1. Source: RFC 8259. */
#include "perf.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SCHEMA = 3, SUFFIXES = 1000 };

/* Length of the UTF-8 sequence that begins with this byte; 0: no sequence begins with it. */
static int announced_length(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xC2 || first >= 0xF5) {
        return 0;
    }
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Length of the UTF-8 sequence at `s`; 0: it is invalid. Surrogates and overlong forms are invalid.
 */
static int utf8_length(const unsigned char *s)
{
    const int length = announced_length(s[0]);
    for (int b = 1; b < length; b++) {
        if ((s[b] & 0xC0) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
    const bool beyond = (s[0] == 0xED && s[1] >= 0xA0) || (s[0] == 0xF4 && s[1] >= 0x90);
    return overlong || beyond ? 0 : length;
}

static void put_string(FILE *file, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', file);
    while (*s != '\0') {
        const int length = utf8_length(s);
        if (*s == '"' || *s == '\\') {
            fprintf(file, "\\%c", *s);
        } else if (*s < 0x20 || *s == 0x7F || length == 0) {
            fprintf(file, "\\u%04x", *s);
        } else {
            fwrite(s, 1, (size_t)length, file);
        }
        s += length > 0 ? length : 1;
    }
    fputc('"', file);
}

/* Put a comma before every member but the first, and the member's name (NULL in an array). */
static void put_name(struct perf_json *json, const char *name)
{
    if (!json->first) {
        fputc(',', json->file);
    }
    json->first = false;
    if (name != NULL) {
        put_string(json->file, name);
        fputc(':', json->file);
    }
}

static void open_scope(struct perf_json *json, const char *name, char bracket)
{
    put_name(json, name);
    fputc(bracket, json->file);
    json->first = true;
}

static void close_scope(struct perf_json *json, char bracket)
{
    fputc(bracket, json->file);
    json->first = false;
}

static void text(struct perf_json *json, const char *name, const char *value)
{
    put_name(json, name);
    put_string(json->file, value);
}

static void whole(struct perf_json *json, const char *name, int64_t value)
{
    put_name(json, name);
    fprintf(json->file, "%" PRId64, value);
}

static void real(struct perf_json *json, const char *name, double value)
{
    put_name(json, name);
    fprintf(json->file, isfinite(value) ? "%.9g" : "null", value);
}

static void truth(struct perf_json *json, const char *name, bool value)
{
    text(json, name, value ? "true" : "false");
}

static void nothing(struct perf_json *json, const char *name)
{
    put_name(json, name);
    fputs("null", json->file);
}

static void now(struct perf_json *json, const char *name)
{
    char stamp[32];
    perf_time_text(stamp, sizeof(stamp));
    text(json, name, stamp);
}

static void reals(struct perf_json *json, const char *name, const double *values, long count)
{
    open_scope(json, name, '[');
    for (long i = 0; i < count; i++) {
        real(json, NULL, values[i]);
    }
    close_scope(json, ']');
}

bool perf_json_open(struct perf_json *json, const char *path, FILE *err)
{
    char numbered[4096];
    FILE *file = fopen(path, "wxe");
    for (int k = 0; file == NULL && errno == EEXIST && k < SUFFIXES; k++) {
        if (snprintf(numbered, sizeof(numbered), "%s.%d", path, k) >= (int)sizeof(numbered)) {
            errno = ENAMETOOLONG;
            break;
        }
        file = fopen(numbered, "wxe");
    }
    if (file == NULL) {
        fprintf(err, "-J/--output_file: cannot create %s: %s\n", path, strerror(errno));
        return false;
    }
    *json = (struct perf_json){.file = file, .first = true};
    return true;
}

static void put_devices(struct perf_json *json, const struct perf_device *devices, int nranks)
{
    open_scope(json, "devices", '[');
    for (int r = 0; r < nranks; r++) {
        const struct perf_device *device = &devices[r];
        open_scope(json, NULL, '{');
        char hex[16];
        snprintf(hex, sizeof(hex), "0x%x", (unsigned)device->device);
        whole(json, "rank", r);
        whole(json, "group", 0);
        whole(json, "pid", device->pid);
        text(json, "hostname", device->host);
        whole(json, "device", device->device);
        text(json, "device_hex", hex);
        text(json, "device_info", device->model);
        text(json, "cpus", device->cpus);
        close_scope(json, '}');
    }
    close_scope(json, ']');
}

static void put_config(struct perf_json *json, const struct perf_options *options)
{
    whole(json, "nthreads", options->threads);
    whole(json, "ngpus", options->gpus);
    whole(json, "minimum_bytes", (int64_t)options->min_bytes);
    whole(json, "maximum_bytes", (int64_t)options->max_bytes);
    if (options->step_factor > 1) {
        whole(json, "step_factor", options->step_factor);
    } else {
        whole(json, "step_bytes", (int64_t)options->step_bytes);
    }
    whole(json, "warmup_iters", options->warmup);
    whole(json, "iterations", options->iters);
    whole(json, "aggregated_iterations", options->agg);
    whole(json, "validation", options->checks);
    whole(json, "graph", 0);
    truth(json, "blocking_collectives", options->blocking != 0);
    truth(json, "per_iter_timing", options->per_call != 0);
    whole(json, "per_iter_skip", options->skipped);
    truth(json, "parallel_init", options->parallel_init != 0);
    whole(json, "blocking", options->blocking);
    whole(json, "unalign", options->unalign);
    whole(json, "local_register", options->registered);
    truth(json, "deterministic", options->deterministic);
    truth(json, "shared", options->shared);
    truth(json, "vary", options->vary);
    truth(json, "stream", options->stream);
}

static void put_args(struct perf_json *json, int argc, char **argv)
{
    open_scope(json, "args", '[');
    for (int a = 0; a < argc; a++) {
        text(json, NULL, argv[a]);
    }
    close_scope(json, ']');
}

void perf_json_begin(struct perf_json *json, const struct perf_collective *collective,
                     const struct perf_options *options, int argc, char **argv,
                     const struct perf_device *devices, int nranks)
{
    open_scope(json, NULL, '{');
    whole(json, "version", SCHEMA);
    now(json, "start_time");
    text(json, "test", collective->name);
    put_args(json, argc, argv);
    reals(json, "env", NULL, 0);
    nothing(json, "nccl_version");
    whole(json, "kolo_version", devices[0].runtime_version);
    open_scope(json, "config", '{');
    put_config(json, options);
    put_devices(json, devices, nranks);
    close_scope(json, '}');
    open_scope(json, "results", '[');
}

static void put_half(struct perf_json *json, const char *name, const struct perf_half *half,
                     bool cpu_time)
{
    if (!half->ran) {
        nothing(json, name);
        return;
    }
    open_scope(json, name, '{');
    real(json, cpu_time ? "cpu_time" : "time", half->time_us);
    real(json, "alg_bw", half->algbw);
    real(json, "bus_bw", half->busbw);
    if (half->checked) {
        whole(json, "nwrong", half->wrong);
    } else {
        nothing(json, "nwrong");
    }
    close_scope(json, '}');
}

/* Rows of processes are left out if there is one process: its row is that of times_us. */
static void put_calls(struct perf_json *json, const char *name, const struct perf_half *half,
                      const struct perf_options *options)
{
    const struct perf_calls *calls = &half->calls;
    if (!half->ran || options->per_call == 0) {
        return;
    }
    open_scope(json, name, '{');
    whole(json, "skipped_iterations", options->skipped);
    real(json, "min_us", calls->min_us);
    real(json, "max_us", calls->max_us);
    real(json, "avg_us", calls->avg_us);
    real(json, "p50_us", calls->p50_us);
    real(json, "p95_us", calls->p95_us);
    real(json, "p99_us", calls->p99_us);
    real(json, "stdev_us", calls->stdev_us);
    real(json, "cv_pct", calls->cv_percent);
    reals(json, "times_us", half->call_us, options->iters);
    if (half->nprocesses > 1) {
        open_scope(json, "per_process_max_times_us", '[');
        for (int p = 0; p < half->nprocesses; p++) {
            reals(json, NULL, half->call_us + (p + 1) * options->iters, options->iters);
        }
        close_scope(json, ']');
    }
    close_scope(json, '}');
}

void perf_json_row(struct perf_json *json, const struct perf_collective *collective,
                   const struct perf_row *row, const struct perf_options *options)
{
    char root[16];
    snprintf(root, sizeof(root), "%d", row->root);
    open_scope(json, NULL, '{');
    whole(json, "size", (int64_t)row->bytes);
    whole(json, "count", (int64_t)row->count);
    text(json, "type", perf_type_name(row->type));
    text(json, "redop", perf_op_name(row->op));
    text(json, "root", root);
    put_half(json, "out_of_place", &row->halves[0], options->cpu_time != 0);
    put_calls(json, "out_of_place_per_iter", &row->halves[0], options);
    put_half(json, "in_place", &row->halves[1], options->cpu_time != 0);
    put_calls(json, "in_place_per_iter", &row->halves[1], options);
    whole(json, "actual_iterations", row->iters);
    text(json, "experiment_name", collective->name);
    close_scope(json, '}');
}

bool perf_json_end(struct perf_json *json, const struct perf_summary *summary, const char *error)
{
    close_scope(json, ']');
    open_scope(json, "out_of_bounds", '{');
    whole(json, "count", summary->out_of_bounds);
    truth(json, "okay", summary->out_of_bounds == 0);
    close_scope(json, '}');
    open_scope(json, "average_bus_bandwidth", '{');
    real(json, "bandwidth", perf_summary_busbw(summary));
    if (summary->busbw_min < 0) {
        text(json, "okay", "unchecked");
    } else {
        truth(json, "okay", perf_summary_fast(summary));
    }
    close_scope(json, '}');
    open_scope(json, "errors", '[');
    if (error != NULL) {
        text(json, NULL, error);
    }
    close_scope(json, ']');
    now(json, "end_time");
    close_scope(json, '}');
    fputc('\n', json->file);
    const bool written = ferror(json->file) == 0;
    const bool closed = fclose(json->file) == 0;
    json->file = NULL;
    return written && closed;
}
