// SPDX-License-Identifier: Apache-2.0
/* The machine as text. What repeats is counted, not listed ("8 x 1 MiB shared by 2"); packages,
 * NUMA nodes and L3s, which decide where ranks belong, get a line each with their PUs' OS indices,
 * the ones that taskset and mpirun take. */
#include "host.h"

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

static int count_of(const struct kolo_host *host, hwloc_obj_type_t type)
{
    return hwloc_get_nbobjs_by_type(host->hwloc, type);
}

static int count_inside(const struct kolo_host *host, hwloc_obj_t obj, hwloc_obj_type_t type)
{
    return hwloc_get_nbobjs_inside_cpuset_by_type(host->hwloc, obj->cpuset, type);
}

static void add_cpus(struct kolo_text *out, hwloc_const_bitmap_t cpus)
{
    char *list = NULL;
    if (hwloc_bitmap_list_asprintf(&list, cpus) < 0) {
        return;
    }
    kolo_text_add(out, "%s", list[0] != '\0' ? list : "none");
    free(list);
}

/* Equal neighbours are one entry: "2 x 32 MiB shared by 8 + 1 x 96 MiB shared by 16" (PUs). */
static void add_caches(const struct kolo_host *host, hwloc_obj_type_t type, const char *name,
                       struct kolo_text *out)
{
    hwloc_obj_t obj = hwloc_get_next_obj_by_type(host->hwloc, type, NULL);
    kolo_text_add(out, "%s", name);
    for (bool first = true; obj != NULL; first = false) {
        const uint64_t size = obj->attr->cache.size;
        const int weight = hwloc_bitmap_weight(obj->cpuset);
        int count = 0;
        while (obj != NULL && obj->attr->cache.size == size &&
               hwloc_bitmap_weight(obj->cpuset) == weight) {
            count++;
            obj = hwloc_get_next_obj_by_type(host->hwloc, type, obj);
        }
        kolo_text_add(out, "%s", first ? " " : " + ");
        if (count > 1 || !first || obj != NULL) {
            kolo_text_add(out, "%d x ", count);
        }
        add_bytes(out, size);
        kolo_text_add(out, " shared by %d", weight);
    }
}

static uint64_t memory_bytes(const struct kolo_host *host)
{
    uint64_t bytes = 0;
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(host->hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        bytes += node->attr->numanode.local_memory;
    }
    return bytes;
}

/* "" where hwloc has no name; the kernel pads some with blanks. */
static void add_model(struct kolo_text *out, const char *before, hwloc_obj_t obj)
{
    const char *model = obj != NULL ? hwloc_obj_get_info_by_name(obj, "CPUModel") : NULL;
    size_t len = model != NULL ? strlen(model) : 0;
    while (len > 0 && model[len - 1] == ' ') {
        len--;
    }
    if (len > 0) {
        kolo_text_add(out, "%s%.*s", before, (int)len, model);
    }
}

/* All on one line; the memory, which varies a little from boot to boot, only where asked for. */
static void add_machine(const struct kolo_host *host, bool memory, struct kolo_text *out)
{
    struct hwloc_obj *package = hwloc_get_next_obj_by_type(host->hwloc, HWLOC_OBJ_PACKAGE, NULL);
    add_count(out, count_of(host, HWLOC_OBJ_PACKAGE), "package");
    kolo_text_add(out, ", ");
    add_count(out, count_of(host, HWLOC_OBJ_CORE), "core");
    kolo_text_add(out, ", ");
    add_count(out, count_of(host, HWLOC_OBJ_PU), "PU");
    if (count_of(host, HWLOC_OBJ_L3CACHE) > 0) {
        kolo_text_add(out, ", ");
        add_caches(host, HWLOC_OBJ_L3CACHE, "L3", out);
    }
    kolo_text_add(out, ", ");
    add_count(out, count_of(host, HWLOC_OBJ_NUMANODE), "NUMA node");
    if (memory) {
        kolo_text_add(out, " ");
        add_bytes(out, memory_bytes(host));
    }
    add_model(out, ", ", package != NULL ? package : hwloc_get_root_obj(host->hwloc));
}

static void add_source(const struct kolo_host *host, struct kolo_text *out)
{
    hwloc_bitmap_t bound = kolo_host_bound(host);
    kolo_text_add(out, "  source: %s\n", host->file != NULL ? host->file : "this machine");
    kolo_text_add(out, "  cpus allowed: ");
    add_cpus(out, hwloc_topology_get_allowed_cpuset(host->hwloc));
    if (bound != NULL) {
        kolo_text_add(out, "; this thread is bound to: ");
        add_cpus(out, bound);
    }
    kolo_text_add(out, "\n");
    hwloc_bitmap_free(bound);
}

static void add_packages(const struct kolo_host *host, struct kolo_text *out)
{
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_obj_by_type(host->hwloc, HWLOC_OBJ_PACKAGE, obj)) != NULL) {
        kolo_text_add(out, "  package %u: ", obj->logical_index);
        add_count(out, count_inside(host, obj, HWLOC_OBJ_CORE), "core");
        kolo_text_add(out, ", cpus ");
        add_cpus(out, obj->cpuset);
        add_model(out, ", ", obj);
        kolo_text_add(out, "\n");
    }
}

static void add_numa_nodes(const struct kolo_host *host, struct kolo_text *out)
{
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_obj_by_type(host->hwloc, HWLOC_OBJ_NUMANODE, obj)) != NULL) {
        kolo_text_add(out, "  NUMA node %u: ", obj->logical_index);
        add_bytes(out, obj->attr->numanode.local_memory);
        kolo_text_add(out, ", cpus ");
        add_cpus(out, obj->cpuset);
        kolo_text_add(out, "\n");
    }
}

static void add_l3s(const struct kolo_host *host, struct kolo_text *out)
{
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_obj_by_type(host->hwloc, HWLOC_OBJ_L3CACHE, obj)) != NULL) {
        kolo_text_add(out, "  L3 %u: ", obj->logical_index);
        add_bytes(out, obj->attr->cache.size);
        kolo_text_add(out, ", ");
        add_count(out, count_inside(host, obj, HWLOC_OBJ_CORE), "core");
        kolo_text_add(out, ", cpus ");
        add_cpus(out, obj->cpuset);
        kolo_text_add(out, "\n");
    }
}

static void add_inner_caches(const struct kolo_host *host, struct kolo_text *out)
{
    static const struct {
        hwloc_obj_type_t type;
        const char *name;
    } levels[] = {{HWLOC_OBJ_L2CACHE, "  L2:"}, {HWLOC_OBJ_L1CACHE, "  L1d:"}};
    for (size_t i = 0; i < KOLO_LENGTH(levels); i++) {
        if (count_of(host, levels[i].type) > 0) {
            add_caches(host, levels[i].type, levels[i].name, out);
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
