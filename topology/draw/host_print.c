// SPDX-License-Identifier: Apache-2.0
/* The machine as text. Equal parts are counted, not listed ("8 x 1 MiB shared by 2"). Packages,
 * NUMA nodes and L3s decide the placement of ranks, so each gets a line with its PUs' OS indices.
 * taskset and mpirun take the same indices. */
#include "topology/draw/draw.h"
#include "topology/machine/parts.h"

#include <stdlib.h>
#include <string.h>

static void add_bytes(struct kolo_text *out, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit + 1 < KOLO_LENGTH(units)) {
        value /= 1024;
        unit++;
    }
    const double tenths = (double)(uint64_t)(value * 10 + 0.5) / 10;
    kolo_text_add(out, "%.*f %s", tenths == (double)(uint64_t)tenths ? 0 : 1, tenths, units[unit]);
}

static void add_count(struct kolo_text *out, int count, const char *noun)
{
    kolo_text_add(out, "%d %s%s", count, noun, count == 1 ? "" : "s");
}

static void add_cpus(struct kolo_text *out, hwloc_const_bitmap_t cpus)
{
    char *list = NULL;
    if (cpus == NULL || hwloc_bitmap_list_asprintf(&list, cpus) < 0) {
        return;
    }
    kolo_text_add(out, "%s", list[0] != '\0' ? list : "none");
    free(list);
}

static void add_cpus_of(const struct kolo_host *host, int part, struct kolo_text *out)
{
    hwloc_bitmap_t cpus = kolo_parts_cpus(host, part);
    add_cpus(out, cpus);
    hwloc_bitmap_free(cpus);
}

/* Equal neighbours are one entry: "2 x 32 MiB shared by 8 + 1 x 96 MiB shared by 16" (PUs). */
static void add_caches(const struct kolo_host *host, enum kolo_part_kind kind, const char *name,
                       struct kolo_text *out)
{
    int at = kolo_parts_next(host, kind, -1);
    kolo_text_add(out, "%s", name);
    for (bool first = true; at >= 0; first = false) {
        const uint64_t size = host->part[at].bytes;
        const int pus = host->part[at].pus;
        int count = 0;
        while (at >= 0 && host->part[at].bytes == size && host->part[at].pus == pus) {
            count++;
            at = kolo_parts_next(host, kind, at);
        }
        kolo_text_add(out, "%s", first ? " " : " + ");
        if (count > 1 || !first || at >= 0) {
            kolo_text_add(out, "%d x ", count);
        }
        add_bytes(out, size);
        kolo_text_add(out, " shared by %d", pus);
    }
}

static uint64_t memory_bytes(const struct kolo_host *host)
{
    uint64_t bytes = 0;
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_NUMA, i)) >= 0;) {
        bytes += host->part[i].bytes;
    }
    return bytes;
}

/* Add the model; nothing if it is unknown. The kernel pads some models with blanks. */
static void add_model(struct kolo_text *out, const char *before, const struct kolo_part *part)
{
    const char *model = part->model;
    size_t len = model != NULL ? strlen(model) : 0;
    while (len > 0 && model[len - 1] == ' ') {
        len--;
    }
    if (len > 0) {
        kolo_text_add(out, "%s%.*s", before, (int)len, model);
    }
}

/* Add the whole machine on one line. The memory size is optional: it varies a little from boot to
 * boot. */
static void add_machine(const struct kolo_host *host, bool memory, struct kolo_text *out)
{
    const int package = kolo_parts_next(host, KOLO_PART_PACKAGE, -1);
    add_count(out, host->count[KOLO_PART_PACKAGE], "package");
    kolo_text_add(out, ", ");
    add_count(out, host->count[KOLO_PART_CORE], "core");
    kolo_text_add(out, ", ");
    add_count(out, host->count[KOLO_PART_PU], "PU");
    if (host->count[KOLO_PART_L3] > 0) {
        kolo_text_add(out, ", ");
        add_caches(host, KOLO_PART_L3, "L3", out);
    }
    kolo_text_add(out, ", ");
    add_count(out, host->count[KOLO_PART_NUMA], "NUMA node");
    if (memory) {
        kolo_text_add(out, " ");
        add_bytes(out, memory_bytes(host));
    }
    add_model(out, ", ", &host->part[package >= 0 ? package : 0]);
}

static void add_source(const struct kolo_host *host, struct kolo_text *out)
{
    hwloc_bitmap_t bound = host->file == NULL ? kolo_host_bound(host) : NULL;
    kolo_text_add(out, "  source: %s\n", host->file != NULL ? host->file : "this machine");
    kolo_text_add(out, "  cpus allowed: ");
    add_cpus(out, host->cpus);
    if (bound != NULL) {
        kolo_text_add(out, "; this thread is bound to: ");
        add_cpus(out, bound);
    }
    kolo_text_add(out, "\n");
    hwloc_bitmap_free(bound);
}

static void add_packages(const struct kolo_host *host, struct kolo_text *out)
{
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_PACKAGE, i)) >= 0;) {
        kolo_text_add(out, "  package %d: ", host->part[i].index);
        add_count(out, kolo_parts_inside(host, i, KOLO_PART_CORE), "core");
        kolo_text_add(out, ", cpus ");
        add_cpus_of(host, i, out);
        add_model(out, ", ", &host->part[i]);
        kolo_text_add(out, "\n");
    }
}

static void add_numa_nodes(const struct kolo_host *host, struct kolo_text *out)
{
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_NUMA, i)) >= 0;) {
        kolo_text_add(out, "  NUMA node %d: ", host->part[i].index);
        add_bytes(out, host->part[i].bytes);
        kolo_text_add(out, ", cpus ");
        add_cpus(out, host->part[i].cpus);
        kolo_text_add(out, "\n");
    }
}

static void add_l3s(const struct kolo_host *host, struct kolo_text *out)
{
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_L3, i)) >= 0;) {
        kolo_text_add(out, "  L3 %d: ", host->part[i].index);
        add_bytes(out, host->part[i].bytes);
        kolo_text_add(out, ", ");
        add_count(out, kolo_parts_inside(host, i, KOLO_PART_CORE), "core");
        kolo_text_add(out, ", cpus ");
        add_cpus_of(host, i, out);
        kolo_text_add(out, "\n");
    }
}

static void add_inner_caches(const struct kolo_host *host, struct kolo_text *out)
{
    static const struct {
        enum kolo_part_kind kind;
        const char *name;
    } levels[] = {{KOLO_PART_L2, "  L2:"}, {KOLO_PART_L1, "  L1d:"}};
    for (size_t i = 0; i < KOLO_LENGTH(levels); i++) {
        if (host->count[levels[i].kind] > 0) {
            add_caches(host, levels[i].kind, levels[i].name, out);
            kolo_text_add(out, "\n");
        }
    }
}

void kolo_host_print(const struct kolo_host *host, struct kolo_text *out)
{
    add_machine(host, true, out);
    kolo_text_add(out, "\n");
    add_source(host, out);
    add_packages(host, out);
    add_numa_nodes(host, out);
    add_l3s(host, out);
    add_inner_caches(host, out);
}

void kolo_host_fingerprint(const struct kolo_host *host, struct kolo_text *out)
{
    struct kolo_text words = {0};
    add_machine(host, false, &words);
    if (words.chars != NULL) {
        const uint64_t hash = kolo_hash(0, words.chars, words.len);
        kolo_text_add(out, "%016llx %s", (unsigned long long)hash, words.chars);
    }
    kolo_text_free(&words);
}
