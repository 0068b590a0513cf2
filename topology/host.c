// SPDX-License-Identifier: Apache-2.0
/* Discovery of the machine by hwloc, and questions about it. Only processors, caches and memory are
 * asked for: no I/O devices, no misc objects, no instruction caches. hwloc's x86 backend is left
 * out as long as the kernel tells of caches itself, for it runs CPUID bound to every PU in turn,
 * which waits for each PU that a polling rank holds. A file of hwloc's XML format 2 takes the
 * machine's place; since hwloc only says EINVAL about a bad one, we look at the head of the file to
 * say what it is instead. */
#include "host.h"

#include <errno.h>
#include <hwloc/linux.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What the file called `path` seems to be, from its first bytes; static text. */
static const char *diagnose_file(const char *path)
{
    char head[512] = "";
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return strerror(errno);
    }
    const size_t len = fread(head, 1, sizeof head - 1, file);
    (void)fclose(file);
    if (len == 0) {
        return "it is empty";
    }
    const char *root = strstr(head, "<topology");
    if (strstr(head, "<system") != NULL) {
        return "it is a topology file of NCCL, not of hwloc";
    }
    if (root == NULL) {
        return "it is not an hwloc XML file (no <topology> in its head)";
    }
    const char *version = strstr(root, "version=\"");
    if (version != NULL && strtol(version + strlen("version=\""), NULL, 10) > 2) {
        return "its format is newer than 2: export it with lstopo --export-xml-flags v2";
    }
    return "its XML is damaged";
}

static kolo_status fail_file(const char *path, const char *what)
{
    return kolo_fail(KOLO_ERR_INVALID, "topology file %s: %s", path, what);
}

/* Filters before loading. Each can only fail for an unknown name or type: then more is discovered
 * than we need. */
static kolo_status begin(struct kolo_host *host, bool with_x86)
{
    if (hwloc_topology_init(&host->hwloc) != 0) {
        host->hwloc = NULL;
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory for the topology");
    }
    (void)hwloc_topology_set_io_types_filter(host->hwloc, host->devices
                                                              ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                              : HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_type_filter(host->hwloc, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_icache_types_filter(host->hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (!with_x86) {
        (void)hwloc_topology_set_components(host->hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            "x86");
    }
    return KOLO_OK;
}

static kolo_status load_file(struct kolo_host *host)
{
    struct stat status;
    if (stat(host->file, &status) != 0) {
        return fail_file(host->file, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return fail_file(host->file, "it is not a regular file");
    }
    KOLO_TRY(begin(host, false));
    if (hwloc_topology_set_xml(host->hwloc, host->file) != 0 ||
        hwloc_topology_load(host->hwloc) != 0) {
        return fail_file(host->file, diagnose_file(host->file));
    }
    return KOLO_OK;
}

static bool knows_caches(const struct kolo_host *host)
{
    return hwloc_get_nbobjs_by_type(host->hwloc, HWLOC_OBJ_L2CACHE) > 0 ||
           hwloc_get_nbobjs_by_type(host->hwloc, HWLOC_OBJ_L3CACHE) > 0;
}

static kolo_status load_live(struct kolo_host *host, bool with_x86)
{
    KOLO_TRY(begin(host, with_x86));
    if (hwloc_topology_load(host->hwloc) != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "hwloc cannot discover this machine: %s",
                         strerror(errno));
    }
    return KOLO_OK;
}

static kolo_status load_best(struct kolo_host *host)
{
    KOLO_TRY(load_live(host, false));
    if (knows_caches(host)) {
        return KOLO_OK;
    }
    /* A sandbox without /sys: CPUID may still tell. */
    hwloc_topology_destroy(host->hwloc);
    return load_live(host, true);
}

kolo_status kolo_host_open(const char *path, bool devices, struct kolo_host **out)
{
    struct kolo_host *host = calloc(1, sizeof *host);
    char *file = path != NULL ? strdup(path) : NULL;
    if (host == NULL || (path != NULL && file == NULL)) {
        free(file);
        free(host);
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory for the topology");
    }
    host->file = file;
    host->devices = devices;
    const kolo_status status = path != NULL ? load_file(host) : load_best(host);
    if (status < 0) {
        kolo_host_destroy(host);
        return status;
    }
    *out = host;
    return KOLO_OK;
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
    if (host->hwloc != NULL) {
        hwloc_topology_destroy(host->hwloc);
    }
    free(host->file);
    free(host);
}

int kolo_host_pus(const struct kolo_host *host)
{
    return hwloc_get_nbobjs_by_type(host->hwloc, HWLOC_OBJ_PU);
}

int kolo_host_pu_os(const struct kolo_host *host, int i)
{
    const hwloc_const_bitmap_t cpus = hwloc_topology_get_topology_cpuset(host->hwloc);
    int cpu = i >= 0 ? hwloc_bitmap_first(cpus) : -1;
    for (int k = 0; k < i && cpu >= 0; k++) {
        cpu = hwloc_bitmap_next(cpus, cpu);
    }
    return cpu;
}

static size_t smallest_cache(const struct kolo_host *host, hwloc_obj_type_t type)
{
    size_t bytes = 0;
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_obj_by_type(host->hwloc, type, obj)) != NULL) {
        const size_t size = (size_t)obj->attr->cache.size;
        bytes = bytes == 0 || (size != 0 && size < bytes) ? size : bytes;
    }
    return bytes;
}

size_t kolo_host_l3_bytes(const struct kolo_host *host)
{
    return smallest_cache(host, HWLOC_OBJ_L3CACHE);
}

size_t kolo_host_l2_bytes(const struct kolo_host *host)
{
    return smallest_cache(host, HWLOC_OBJ_L2CACHE);
}

static int index_above(const struct kolo_host *host, hwloc_obj_t pu, hwloc_obj_type_t type)
{
    struct hwloc_obj *obj = hwloc_get_ancestor_obj_by_type(host->hwloc, type, pu);
    return obj != NULL ? (int)obj->logical_index : -1;
}

/* A PU may be local to several nodes (DRAM and HBM): the first one names the place. */
static int numa_of(const struct kolo_host *host, hwloc_obj_t pu)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(host->hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (hwloc_bitmap_isset(node->cpuset, pu->os_index)) {
            return (int)node->logical_index;
        }
    }
    return -1;
}

static struct kolo_place place_of(const struct kolo_host *host, hwloc_obj_t pu)
{
    return (struct kolo_place){
        .pu = (int)pu->logical_index,
        .core = index_above(host, pu, HWLOC_OBJ_CORE),
        .l3 = index_above(host, pu, HWLOC_OBJ_L3CACHE),
        .numa = numa_of(host, pu),
        .package = index_above(host, pu, HWLOC_OBJ_PACKAGE),
    };
}

struct kolo_place kolo_host_place(const struct kolo_host *host, int pu_os_index)
{
    struct hwloc_obj *pu =
        pu_os_index < 0 ? NULL : hwloc_get_pu_obj_by_os_index(host->hwloc, (unsigned)pu_os_index);
    return pu != NULL ? place_of(host, pu) : kolo_place_unknown();
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

hwloc_bitmap_t kolo_host_bound(const struct kolo_host *host)
{
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (bound == NULL) {
        return NULL;
    }
    /* Asked of the kernel even when a file stands in for the machine: hwloc_get_cpubind() would
     * then answer "everywhere". */
    if (hwloc_linux_get_tid_cpubind(host->hwloc, 0, bound) != 0) {
        hwloc_bitmap_zero(bound);
    }
    (void)hwloc_bitmap_and(bound, bound, hwloc_topology_get_topology_cpuset(host->hwloc));
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
