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

static void set_filters(hwloc_topology_t hwloc, bool with_x86)
{
    /* Each can only fail for an unknown name or type: then more is discovered than we need. */
    (void)hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_icache_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (!with_x86) {
        (void)hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    }
}

static kolo_status load_file(hwloc_topology_t hwloc, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        return fail_file(path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return fail_file(path, "it is not a regular file");
    }
    set_filters(hwloc, false);
    if (hwloc_topology_set_xml(hwloc, path) != 0 || hwloc_topology_load(hwloc) != 0) {
        return fail_file(path, diagnose_file(path));
    }
    return KOLO_OK;
}

static kolo_status load_live(hwloc_topology_t hwloc, bool with_x86)
{
    set_filters(hwloc, with_x86);
    if (hwloc_topology_load(hwloc) != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "hwloc cannot discover this machine: %s",
                         strerror(errno));
    }
    return KOLO_OK;
}

static void destroy(struct kolo_host *host)
{
    if (host->hwloc != NULL) {
        hwloc_topology_destroy(host->hwloc);
    }
    free(host->file);
    free(host);
}

/* `path` NULL: the live machine. */
static kolo_status create(const char *path, bool with_x86, struct kolo_host **out)
{
    kolo_status status = KOLO_ERR_SYSTEM;
    struct kolo_host *host = calloc(1, sizeof *host);
    if (host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory for the topology");
    }
    host->file = path != NULL ? strdup(path) : NULL;
    if ((path != NULL && host->file == NULL) || hwloc_topology_init(&host->hwloc) != 0) {
        host->hwloc = NULL;
        status = kolo_fail(KOLO_ERR_SYSTEM, "no memory for the topology");
        goto err_destroy;
    }
    status = path != NULL ? load_file(host->hwloc, path) : load_live(host->hwloc, with_x86);
    if (status < 0) {
        goto err_destroy;
    }
    *out = host;
    return KOLO_OK;
err_destroy:
    destroy(host);
    return status;
}

static bool knows_caches(const struct kolo_host *host)
{
    return hwloc_get_nbobjs_by_type(host->hwloc, HWLOC_OBJ_L2CACHE) > 0 ||
           hwloc_get_nbobjs_by_type(host->hwloc, HWLOC_OBJ_L3CACHE) > 0;
}

kolo_status kolo_host_load(const char *path, struct kolo_host **out)
{
    return create(path, false, out);
}

kolo_status kolo_host_discover(struct kolo_host **out)
{
    const char *path = kolo_env("KOLO_TOPO_FILE");
    struct kolo_host *host = NULL;
    if (path != NULL) {
        return kolo_host_load(path, out);
    }
    KOLO_TRY(create(NULL, false, &host));
    if (!knows_caches(host)) {
        /* A sandbox without /sys: CPUID may still tell. */
        kolo_host_destroy(host);
        KOLO_TRY(create(NULL, true, &host));
    }
    *out = host;
    return KOLO_OK;
}

void kolo_host_destroy(struct kolo_host *host)
{
    if (host != NULL) {
        destroy(host);
    }
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
    const hwloc_obj_t obj = hwloc_get_ancestor_obj_by_type(host->hwloc, type, pu);
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
    const hwloc_obj_t pu =
        pu_os_index < 0 ? NULL : hwloc_get_pu_obj_by_os_index(host->hwloc, (unsigned)pu_os_index);
    return pu != NULL ? place_of(host, pu) : kolo_place_unknown();
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
