// SPDX-License-Identifier: Apache-2.0
/* Discovery of this machine by hwloc.
 *
 * Discovery asks for processors, caches and memory only, and for devices where they are wanted. It
 * leaves out misc objects and instruction caches. It leaves out hwloc's x86 backend too, as long as
 * the kernel describes the caches itself: that backend runs CPUID bound to every PU in turn, and so
 * waits for each PU that a polling rank occupies. */
#include "topology/machine/parts.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

/* ---- hwloc ---- */

static void blacklist_component(hwloc_topology_t t, const char *component)
{
    (void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
}

/* Whether no other thread can read the environment while it changes. */
static bool is_single_threaded(void)
{
#if __has_include(<sys/single_threaded.h>)
    return __libc_single_threaded;
#else
    return false;
#endif
}

/* hwloc opens all its plug-ins here, with libraries of XML, X11 and PCI behind them. That takes three
 * quarters of a discovery, and without devices none of them finds anything. Only the environment
 * says so to hwloc. */
static int init_topology(bool devices, hwloc_topology_t *out)
{
    static const char path[] = "HWLOC_PLUGINS_PATH";
    const bool without =
        !devices && getenv(path) == NULL && is_single_threaded() && setenv(path, "", 1) == 0;
    const int failed = hwloc_topology_init(out);
    if (without) {
        (void)unsetenv(path);
    }
    return failed;
}

/* Set filters before loading. A filter fails only for an unknown name or type; discovery then finds
 * more than kolo needs. Components that start GPU drivers or ask an X server are left out. They add
 * nothing to sysfs and NVML, and an application should not start them. */
static kolo_status begin_load(bool devices, bool with_x86, hwloc_topology_t *out)
{
    static const char *const drivers[] = {"cuda", "opencl", "gl", "rsmi", "levelzero"};
    if (init_topology(devices, out) != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the topology");
    }
    (void)hwloc_topology_set_io_types_filter(*out, devices ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                           : HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_type_filter(*out, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_icache_types_filter(*out, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (!with_x86) {
        blacklist_component(*out, "x86");
    }
    for (size_t i = 0; i < KOLO_LENGTH(drivers) && devices; i++) {
        blacklist_component(*out, drivers[i]);
    }
    return KOLO_OK;
}

static kolo_status load_topology(bool devices, bool with_x86, hwloc_topology_t *out)
{
    KOLO_TRY(begin_load(devices, with_x86, out));
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
    KOLO_TRY(load_topology(devices, false, out));
    if (hwloc_get_nbobjs_by_type(*out, HWLOC_OBJ_L2CACHE) > 0 ||
        hwloc_get_nbobjs_by_type(*out, HWLOC_OBJ_L3CACHE) > 0) {
        return KOLO_OK;
    }
    /* In a sandbox without /sys, CPUID may still describe the caches. */
    hwloc_topology_destroy(*out);
    return load_topology(devices, true, out);
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

static int os_types(hwloc_obj_osdev_type_t type)
{
    switch (type) {
    case HWLOC_OBJ_OSDEV_GPU:
        return KOLO_OS_GPU;
    case HWLOC_OBJ_OSDEV_COPROC:
        return KOLO_OS_COPROC;
    case HWLOC_OBJ_OSDEV_NETWORK:
        return KOLO_OS_NETWORK;
    case HWLOC_OBJ_OSDEV_OPENFABRICS:
        return KOLO_OS_OPENFABRICS;
    default:
        return 0;
    }
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
        part->number = os_types(object->attr->osdev.type);
        return kolo_parts_text(host, &part->name, object->name) &&
               kolo_parts_text(host, &part->model, hwloc_obj_get_info_by_name(object, "GPUModel"));
    default:
        return true;
    }
}

/* The recursion is as deep as hwloc's tree, about ten levels. */
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

/* NULL is allowed. */
static void free_host(struct kolo_host *host)
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

kolo_status kolo_host_live(bool devices, struct kolo_host **out)
{
    hwloc_topology_t t;
    KOLO_TRY(load_best(devices, &t));
    struct kolo_host *host = kolo_parts_begin(NULL, 0);
    kolo_status st =
        host != NULL && take_tree(host, hwloc_get_root_obj(t), -1) && take_rates(host, t)
            ? kolo_parts_end(host)
            : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the topology");
    hwloc_topology_destroy(t);
    if (st < 0) {
        free_host(host);
        return st;
    }
    *out = host;
    return KOLO_OK;
}

/* ---- a host ---- */

/* This machine, until the process ends: discovery takes 1 ms, or with hwloc's plug-ins 3 to 6 ms, and
 * a program may create many communicators. */
static struct {
    pthread_mutex_t lock;
    struct kolo_host *host;
} shared = {PTHREAD_MUTEX_INITIALIZER, NULL};

kolo_status kolo_host_hold(struct kolo_host **out)
{
    kolo_status status = KOLO_OK;
    pthread_mutex_lock(&shared.lock);
    if (shared.host == NULL) {
        status = kolo_host_live(false, &shared.host);
    }
    if (shared.host != NULL) {
        *out = shared.host;
    }
    pthread_mutex_unlock(&shared.lock);
    return status;
}

void kolo_host_destroy(struct kolo_host *host)
{
    pthread_mutex_lock(&shared.lock);
    const bool is_shared = host == shared.host;
    pthread_mutex_unlock(&shared.lock);
    if (!is_shared) {
        free_host(host);
    }
}
