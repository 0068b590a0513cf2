// SPDX-License-Identifier: Apache-2.0
/* A rank's description of its machine, and the memory that a sweep may take there. That is three
 * quarters of the kernel's available memory, or less if the process's cgroup has a limit. Source:
 * proc(5); the kernel's cgroup-v2.rst. */
#include "perf.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double perf_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* The processors that this thread may run on, such as "0-3,8"; "?": the mask is larger than
 * cpu_set_t. */
static void cpu_text(char *out, size_t cap)
{
    cpu_set_t set;
    size_t len = 0;
    snprintf(out, cap, "?");
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return;
    }
    for (size_t first = 0; first < CPU_SETSIZE && len < cap; first++) {
        if (!CPU_ISSET(first, &set)) {
            continue;
        }
        size_t last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) {
            last++;
        }
        const char *comma = len > 0 ? "," : "";
        const int added = last > first
                              ? snprintf(out + len, cap - len, "%s%zu-%zu", comma, first, last)
                              : snprintf(out + len, cap - len, "%s%zu", comma, first);
        len += (size_t)added;
        first = last;
    }
}

/* Read the text after `key` and a colon from a file of such lines. False: no such line. */
static bool file_value(const char *path, const char *key, char *out, size_t cap)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        char *value = strncmp(line, key, strlen(key)) == 0 ? strchr(line, ':') : NULL;
        if (value != NULL) {
            value += 1 + strspn(value + 1, " \t");
            value[strcspn(value, "\n")] = '\0';
            snprintf(out, cap, "%s", value);
            found = true;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool number_in(const char *folder, const char *name, uint64_t *out)
{
    char path[1024];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path)) {
        return false;
    }
    FILE *file = fopen(path, "re");
    const bool read = file != NULL && fscanf(file, "%" SCNu64, out) == 1;
    if (file != NULL) {
        fclose(file);
    }
    return read;
}

/* Bytes of cached pages that the kernel gives up first: they count as used but can be taken. */
static uint64_t reclaimable(const char *folder)
{
    char path[1024], name[64];
    uint64_t value = 0, found = 0;
    if (snprintf(path, sizeof(path), "%s/memory.stat", folder) >= (int)sizeof(path)) {
        return 0;
    }
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%63s %" SCNu64, name, &value) == 2) {
        found = strcmp(name, "inactive_file") == 0 ? value : found;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* Bytes that this cgroup may still take; UINT64_MAX: no limit ("max" is not a number). */
static uint64_t cgroup_bytes(void)
{
    char group[512], folder[600];
    uint64_t limit = 0, used = 0;
    if (!file_value("/proc/self/cgroup", "0:", group, sizeof(group))) {
        return UINT64_MAX;
    }
    /* The line is "0::/path"; file_value() stopped at the first colon. */
    snprintf(folder, sizeof(folder), "/sys/fs/cgroup%s", group + (group[0] == ':'));
    if (!number_in(folder, "memory.max", &limit) || !number_in(folder, "memory.current", &used)) {
        return UINT64_MAX;
    }
    const uint64_t cached = reclaimable(folder);
    used -= cached < used ? cached : used;
    return limit > used ? limit - used : 0;
}

static uint64_t available_bytes(void)
{
    char value[64];
    uint64_t available = UINT64_MAX;
    if (file_value("/proc/meminfo", "MemAvailable", value, sizeof(value))) {
        available = strtoull(value, NULL, 10) * 1024;
    }
    const uint64_t group = cgroup_bytes();
    return available < group ? available : group;
}

void perf_device_self(struct perf_device *out)
{
    *out = (struct perf_device){.pid = (int32_t)getpid(), .available_bytes = available_bytes()};
    if (gethostname(out->host, sizeof(out->host) - 1) != 0) {
        snprintf(out->host, sizeof(out->host), "?");
    }
    out->host[strcspn(out->host, ".")] = '\0';
    cpu_text(out->cpus, sizeof(out->cpus));
    if (!file_value("/proc/cpuinfo", "model name", out->model, sizeof(out->model))) {
        snprintf(out->model, sizeof(out->model), "cpu");
    }
}

void perf_number_devices(struct perf_device *devices, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        devices[r].device = 0;
        for (int before = 0; before < r; before++) {
            devices[r].device += strcmp(devices[before].host, devices[r].host) == 0;
        }
    }
}

size_t perf_memory_limit(const struct perf_device *devices, int nranks, unsigned buffers)
{
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < nranks; r++) {
        uint64_t sharing = 0;
        for (int other = 0; other < nranks; other++) {
            sharing += strcmp(devices[other].host, devices[r].host) == 0;
        }
        const uint64_t each = devices[r].available_bytes / 4 * 3 / (buffers * sharing);
        least = each < least ? each : least;
    }
    return (size_t)least;
}
