// SPDX-License-Identifier: Apache-2.0
/* Discovery of the machine by hwloc, and questions about it. Only processors, caches and memory are
 * asked for, and devices where they are wanted: no misc objects, no instruction caches. hwloc's x86
 * backend is left out as long as the kernel tells of caches itself, for it runs CPUID bound to
 * every PU in turn, which waits for each PU that a polling rank holds. A file of hwloc's XML format
 * 2 takes the machine's place. */
#include "topology/machine/host.h"

#include "topology/machine/graph.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- hwloc ---- */

static void leave_out(hwloc_topology_t t, const char *component)
{
    (void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
}

/* Filters before loading. Each can only fail for an unknown name or type: then more is discovered
 * than we need. Components that start GPU drivers or ask an X server tell nothing that sysfs and
 * NVML do not, and have no place in an application. */
static kolo_status begin(bool devices, bool with_x86, hwloc_topology_t *out)
{
    static const char *const drivers[] = {"cuda", "opencl", "gl", "rsmi", "levelzero"};
    if (hwloc_topology_init(out) != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory for the topology");
    }
    (void)hwloc_topology_set_io_types_filter(*out, devices ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                           : HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_type_filter(*out, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_icache_types_filter(*out, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (!with_x86) {
        leave_out(*out, "x86");
    }
    for (size_t i = 0; i < KOLO_LENGTH(drivers) && devices; i++) {
        leave_out(*out, drivers[i]);
    }
    return KOLO_OK;
}

static kolo_status load(bool devices, bool with_x86, hwloc_topology_t *out)
{
    KOLO_TRY(begin(devices, with_x86, out));
    if (hwloc_topology_load(*out) != 0) {
        const int error = errno;
        hwloc_topology_destroy(*out);
        return kolo_fail(KOLO_ERR_SYSTEM, "hwloc cannot discover this machine: %s",
                         strerror(error));
    }
    return KOLO_OK;
}

static kolo_status load_best(bool devices, hwloc_topology_t *out)
{
    KOLO_TRY(load(devices, false, out));
    if (hwloc_get_nbobjs_by_type(*out, HWLOC_OBJ_L2CACHE) > 0 ||
        hwloc_get_nbobjs_by_type(*out, HWLOC_OBJ_L3CACHE) > 0) {
        return KOLO_OK;
    }
    /* A sandbox without /sys: CPUID may still tell. */
    hwloc_topology_destroy(*out);
    return load(devices, true, out);
}

static enum kolo_part_kind kind_of(hwloc_obj_type_t type)
{
    switch ((int)type) {
    case HWLOC_OBJ_MACHINE:
        return KOLO_PART_MACHINE;
    case HWLOC_OBJ_PACKAGE:
        return KOLO_PART_PACKAGE;
    case HWLOC_OBJ_NUMANODE:
        return KOLO_PART_NUMA;
    case HWLOC_OBJ_L3CACHE:
        return KOLO_PART_L3;
    case HWLOC_OBJ_L2CACHE:
        return KOLO_PART_L2;
    case HWLOC_OBJ_L1CACHE:
        return KOLO_PART_L1;
    case HWLOC_OBJ_CORE:
        return KOLO_PART_CORE;
    case HWLOC_OBJ_PU:
        return KOLO_PART_PU;
    case HWLOC_OBJ_BRIDGE:
        return KOLO_PART_BRIDGE;
    case HWLOC_OBJ_PCI_DEVICE:
        return KOLO_PART_PCI;
    case HWLOC_OBJ_OS_DEVICE:
        return KOLO_PART_OS;
    default:
        return KOLO_PART_OTHER;
    }
}

static void take_pci(const struct hwloc_pcidev_attr_s *pci, struct kolo_part *part)
{
    part->bus =
        (uint64_t)pci->domain << 16 | (uint64_t)pci->bus << 8 | (uint64_t)pci->dev << 3 | pci->func;
    part->class_id = pci->class_id;
    part->vendor_id = pci->vendor_id;
    part->device_id = pci->device_id;
    part->wire_gbs = pci->linkspeed;
}

static int info_int(hwloc_obj_t object, const char *name)
{
    const char *text = hwloc_obj_get_info_by_name(object, name);
    return text != NULL ? (int)strtol(text, NULL, 10) : 0;
}

static bool take_cpu(struct kolo_host *host, hwloc_obj_t object, struct kolo_part *part)
{
    part->arch =
        info_int(object, "CPUFamilyNumber") << 8 | (info_int(object, "CPUModelNumber") & 0xff);
    return kolo_parts_text(host, &part->model, hwloc_obj_get_info_by_name(object, "CPUModel")) &&
           kolo_parts_text(host, &part->vendor, hwloc_obj_get_info_by_name(object, "CPUVendor"));
}

static bool take_object(struct kolo_host *host, hwloc_obj_t object, struct kolo_part *part)
{
    part->id = object->gp_index;
    switch ((int)part->kind) {
    case KOLO_PART_MACHINE:
        return take_cpu(host, object, part) &&
               kolo_parts_text(host, &part->name,
                               hwloc_obj_get_info_by_name(object, "Architecture"));
    case KOLO_PART_PACKAGE:
        return take_cpu(host, object, part);
    case KOLO_PART_PU:
        part->number = (int)object->os_index;
        return true;
    case KOLO_PART_NUMA:
        part->number = (int)object->os_index;
        part->bytes = object->attr->numanode.local_memory;
        part->cpus = hwloc_bitmap_dup(object->cpuset);
        return part->cpus != NULL;
    case KOLO_PART_L3:
    case KOLO_PART_L2:
    case KOLO_PART_L1:
        part->bytes = object->attr->cache.size;
        return true;
    case KOLO_PART_BRIDGE:
        part->pci = object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
        if (part->pci) {
            take_pci(&object->attr->bridge.upstream.pci, part);
        }
        return true;
    case KOLO_PART_PCI:
        take_pci(&object->attr->pcidev, part);
        part->class_id = object->subtype != NULL && strcmp(object->subtype, "NVSwitch") == 0
                             ? KOLO_NVSWITCH_CLASS
                             : part->class_id;
        return true;
    case KOLO_PART_OS:
        part->number = (int)object->attr->osdev.type;
        return kolo_parts_text(host, &part->name, object->name) &&
               kolo_parts_text(host, &part->model, hwloc_obj_get_info_by_name(object, "GPUModel"));
    default:
        return true;
    }
}

/* As deep as hwloc's tree, some ten levels. */
/* NOLINTNEXTLINE(misc-no-recursion) */
static bool take_tree(struct kolo_host *host, hwloc_obj_t object, int parent)
{
    hwloc_obj_t const first[] = {object->memory_first_child, object->first_child,
                                 object->io_first_child};
    const int part = kolo_parts_open(host, kind_of(object->type), parent);
    bool fits = part >= 0 && take_object(host, object, &host->part[part]);
    for (size_t i = 0; i < KOLO_LENGTH(first); i++) {
        for (hwloc_obj_t child = first[i]; child != NULL && fits; child = child->next_sibling) {
            fits = take_tree(host, child, part);
        }
    }
    if (part >= 0) {
        kolo_parts_close(host, part);
    }
    return fits;
}

static int part_of(const struct kolo_host *host, const struct hwloc_obj *object)
{
    for (int i = 0; i < host->nparts && object != NULL; i++) {
        if (host->part[i].id == object->gp_index) {
            return i;
        }
    }
    return -1;
}

static bool take_rates(struct kolo_host *host, hwloc_topology_t t)
{
    struct hwloc_distances_s *matrix = NULL;
    unsigned count = 1;
    bool fits = true;
    if (hwloc_distances_get_by_name(t, "NVLinkBandwidth", &count, &matrix, 0) != 0 || count == 0 ||
        matrix == NULL) {
        return true;
    }
    for (unsigned i = 0; i < matrix->nbobjs * matrix->nbobjs && fits; i++) {
        const unsigned row = i / matrix->nbobjs, column = i % matrix->nbobjs;
        const int from = part_of(host, matrix->objs[row]), to = part_of(host, matrix->objs[column]);
        fits = row == column || matrix->values[i] == 0 || from < 0 || to < 0 ||
               kolo_parts_rate(host, from, to, matrix->values[i]);
    }
    hwloc_distances_release(t, matrix);
    return fits;
}

/* What nobody holds; NULL: nothing. */
static void release(struct kolo_host *host)
{
    if (host == NULL) {
        return;
    }
    for (int i = 0; i < host->nparts; i++) {
        hwloc_bitmap_free(host->part[i].cpus);
        free(host->part[i].name);
        free(host->part[i].model);
        free(host->part[i].vendor);
    }
    hwloc_bitmap_free(host->cpus);
    free(host->part);
    free(host->pu);
    free(host->rate);
    free(host->file);
    free(host);
}

static kolo_status discover(bool devices, struct kolo_host **out)
{
    hwloc_topology_t t;
    KOLO_TRY(load_best(devices, &t));
    struct kolo_host *host = kolo_parts_begin(NULL, 0);
    kolo_status st =
        host != NULL && take_tree(host, hwloc_get_root_obj(t), -1) && take_rates(host, t)
            ? kolo_parts_end(host)
            : kolo_fail(KOLO_ERR_SYSTEM, "no memory for the topology");
    hwloc_topology_destroy(t);
    if (st < 0) {
        release(host);
        return st;
    }
    *out = host;
    return KOLO_OK;
}

/* ---- a host ---- */

kolo_status kolo_host_open(const char *path, bool devices, struct kolo_host **out)
{
    char *bytes = NULL;
    size_t len = 0;
    if (path == NULL) {
        return discover(devices, out);
    }
    KOLO_TRY(kolo_file_read(path, &bytes, &len));
    const kolo_status st = kolo_host_read(path, bytes, len, out);
    free(bytes);
    return st;
}

kolo_status kolo_host_load(const char *path, struct kolo_host **out)
{
    return kolo_host_open(path, false, out);
}

/* This machine as long as anybody holds it: ranks that are threads look at it once, all together.
 */
static struct {
    pthread_mutex_t lock;
    struct kolo_host *host;
} shared = {PTHREAD_MUTEX_INITIALIZER, NULL};

static kolo_status hold_shared(struct kolo_host **out)
{
    kolo_status status = KOLO_OK;
    pthread_mutex_lock(&shared.lock);
    if (shared.host == NULL) {
        status = kolo_host_open(NULL, false, &shared.host);
    }
    if (shared.host != NULL) {
        shared.host->holds++;
        *out = shared.host;
    }
    pthread_mutex_unlock(&shared.lock);
    return status;
}

/* True: others hold it still. */
static bool let_go(struct kolo_host *host)
{
    pthread_mutex_lock(&shared.lock);
    const bool held = host == shared.host && --host->holds > 0;
    if (host == shared.host && !held) {
        shared.host = NULL;
    }
    pthread_mutex_unlock(&shared.lock);
    return held;
}

kolo_status kolo_host_discover(struct kolo_host **out)
{
    const char *file = kolo_env("KOLO_TOPO_FILE");
    return file != NULL && kolo_file_is_hwloc(file) ? kolo_host_open(file, false, out)
                                                    : hold_shared(out);
}

void kolo_host_destroy(struct kolo_host *host)
{
    if (host == NULL || let_go(host)) {
        return;
    }
    release(host);
}

/* ---- questions ---- */

int kolo_host_pus(const struct kolo_host *host)
{
    return host->count[KOLO_PART_PU];
}

int kolo_host_pu_os(const struct kolo_host *host, int i)
{
    return i >= 0 && i < kolo_host_pus(host) ? host->pu[i].os : -1;
}

static size_t smallest_cache(const struct kolo_host *host, enum kolo_part_kind kind)
{
    size_t bytes = 0;
    for (int i = -1; (i = kolo_parts_next(host, kind, i)) >= 0;) {
        const size_t size = (size_t)host->part[i].bytes;
        bytes = bytes == 0 || (size != 0 && size < bytes) ? size : bytes;
    }
    return bytes;
}

size_t kolo_host_l3_bytes(const struct kolo_host *host)
{
    return smallest_cache(host, KOLO_PART_L3);
}

size_t kolo_host_l2_bytes(const struct kolo_host *host)
{
    return smallest_cache(host, KOLO_PART_L2);
}

static int index_above(const struct kolo_host *host, int pu, enum kolo_part_kind kind)
{
    const int up = kolo_parts_above(host, pu, kind);
    return up >= 0 ? host->part[up].index : -1;
}

/* A PU may be local to several nodes (DRAM and HBM): the first one names the place. */
static int numa_of(const struct kolo_host *host, int pu)
{
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_NUMA, i)) >= 0;) {
        if (hwloc_bitmap_isset(host->part[i].cpus, (unsigned)host->part[pu].number)) {
            return host->part[i].index;
        }
    }
    return -1;
}

struct kolo_place kolo_host_place(const struct kolo_host *host, int pu_os_index)
{
    const int pu = kolo_parts_pu(host, pu_os_index);
    if (pu < 0) {
        return kolo_place_unknown();
    }
    return (struct kolo_place){
        .pu = host->part[pu].index,
        .core = index_above(host, pu, KOLO_PART_CORE),
        .l3 = index_above(host, pu, KOLO_PART_L3),
        .numa = numa_of(host, pu),
        .package = index_above(host, pu, KOLO_PART_PACKAGE),
    };
}

bool kolo_host_pair(const struct kolo_host *host, enum kolo_near near, int cpu[2])
{
    const int first = kolo_host_pu_os(host, 0);
    const struct kolo_place here = kolo_host_place(host, first);
    for (int i = 1; i < kolo_host_pus(host); i++) {
        const int other = kolo_host_pu_os(host, i);
        const struct kolo_place there = kolo_host_place(host, other);
        if (kolo_near_of(&here, &there) == near) {
            cpu[0] = first;
            cpu[1] = other;
            return true;
        }
    }
    return false;
}

static int common(int a, int b)
{
    return a == b ? a : -1;
}

/* The kernel wants room for every CPU that it could have, and says EINVAL to less. */
static cpu_set_t *affinity(int *cpus)
{
    for (*cpus = 1024; *cpus <= 1 << 20; *cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)*cpus);
        if (set == NULL || sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)*cpus), set) == 0) {
            return set;
        }
        CPU_FREE(set);
    }
    return NULL;
}

hwloc_bitmap_t kolo_host_bound(const struct kolo_host *host)
{
    int cpus = 0;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    cpu_set_t *set = bound != NULL ? affinity(&cpus) : NULL;
    for (int i = 0; i < kolo_host_pus(host) && set != NULL; i++) {
        const int cpu = host->pu[i].os;
        if (cpu < cpus && CPU_ISSET_S((size_t)cpu, CPU_ALLOC_SIZE((size_t)cpus), set)) {
            (void)hwloc_bitmap_set(bound, (unsigned)cpu);
        }
    }
    if (set != NULL) {
        CPU_FREE(set);
    }
    return bound;
}

struct kolo_place kolo_host_here(const struct kolo_host *host)
{
    struct kolo_place here = kolo_place_unknown();
    hwloc_bitmap_t bound = kolo_host_bound(host);
    const int first = bound != NULL ? hwloc_bitmap_first(bound) : -1;
    if (first >= 0) {
        here = kolo_host_place(host, first);
    }
    for (int cpu = first; cpu >= 0; cpu = hwloc_bitmap_next(bound, cpu)) {
        const struct kolo_place place = kolo_host_place(host, cpu);
        here = (struct kolo_place){common(here.pu, place.pu), common(here.core, place.core),
                                   common(here.l3, place.l3), common(here.numa, place.numa),
                                   common(here.package, place.package)};
    }
    hwloc_bitmap_free(bound);
    return here;
}
