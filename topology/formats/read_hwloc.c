// SPDX-License-Identifier: Apache-2.0
/* hwloc's XML formats 2 and 3: the parts of a machine, and the matrix of NVLinks. hwloc trusts such a
 * file, and a damaged file may end the process by a signal. So hwloc never sees a file here.
 *
 * Objects of unknown types still contain their children. Of the sets, only those of NUMA nodes and
 * the set of allowed PUs are read; the others follow from the places of the PUs.
 *
 * Format 3 names an object by id="obj12" instead of gp_index="12", an OS device has several types,
 * as bits, and the properties of the whole machine stand behind its object.
 * Form: hwloc 2.9 and 3.0 hwloc/topology-xml.c. */
#include "topology/formats/file.h"
#include "topology/formats/read.h"
#include "topology/machine/cpus.h"
#include "topology/machine/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 256, MATRIX_MAX = 256, TOKEN_MAX = 40 };

struct hwloc_reading {
    struct kolo_host *host;
    int open[DEPTH]; /* the parts of the open objects */
    int depth, numas, major;
    hwloc_bitmap_t allowed; /* NULL: all PUs */
    /* The matrix. */
    bool in_matrix, in_values, in_indexes;
    int n, nids;
    size_t nvalues;
    uint64_t id[MATRIX_MAX];
    char token[TOKEN_MAX]; /* text comes in pieces */
    size_t token_len;
};

/* ---- attributes ---- */

/* Read a set. NULL: the attribute is absent, or invalid; *st then has the error. */
static hwloc_bitmap_t read_set(const struct kolo_xml_element *e, const char *name, kolo_status *st)
{
    const char *text = kolo_xml_get(e, name);
    hwloc_bitmap_t set = text != NULL ? hwloc_bitmap_alloc() : NULL;
    if (set != NULL && !kolo_mask_parse(text, set)) {
        *st = kolo_xml_fail(e, "%s is \"%.40s\", not words of 32 bits for at most %d PUs", name,
                            text, KOLO_HOST_PUS_MAX);
        hwloc_bitmap_free(set);
        set = NULL;
    }
    return set;
}

static kolo_status read_u64(const struct kolo_xml_element *e, const char *name, uint64_t *out)
{
    const char *text = kolo_xml_get(e, name);
    char *end = NULL;
    errno = 0;
    *out = text != NULL ? strtoull(text, &end, 10) : 0;
    return text == NULL || (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0)
               ? KOLO_OK
               : kolo_xml_fail(e, "%s is \"%.40s\", not a whole number", name, text);
}

static kolo_status read_id(const struct kolo_xml_element *e, uint64_t *out)
{
    const char *text = kolo_xml_get(e, "id");
    char *end = NULL;
    if (text == NULL) {
        return read_u64(e, "gp_index", out);
    }
    *out = strncmp(text, "obj", 3) == 0 ? strtoull(text + 3, &end, 10) : 0;
    return end != NULL && end != text + 3 && *end == '\0'
               ? KOLO_OK
               : kolo_xml_fail(e, "id is \"%.40s\", not a name such as obj12", text);
}

/* ---- objects ---- */

static const char *const kinds[KOLO_PART_KINDS] = {
    [KOLO_PART_MACHINE] = "Machine", [KOLO_PART_PACKAGE] = "Package", [KOLO_PART_NUMA] = "NUMANode",
    [KOLO_PART_L3] = "L3Cache",      [KOLO_PART_L2] = "L2Cache",      [KOLO_PART_L1] = "L1Cache",
    [KOLO_PART_CORE] = "Core",       [KOLO_PART_PU] = "PU",           [KOLO_PART_OTHER] = NULL,
    [KOLO_PART_BRIDGE] = "Bridge",   [KOLO_PART_PCI] = "PCIDev",      [KOLO_PART_OS] = "OSDev"};

static enum kolo_part_kind kind_of(const char *type)
{
    for (int k = 0; k < KOLO_PART_KINDS; k++) {
        if (kinds[k] != NULL && strcmp(type, kinds[k]) == 0) {
            return (enum kolo_part_kind)k;
        }
    }
    return KOLO_PART_OTHER;
}

/* A PU that is not allowed counts as absent. */
static kolo_status read_pu(struct hwloc_reading *r, const struct kolo_xml_element *e,
                           struct kolo_part *part)
{
    KOLO_TRY(kolo_xml_int(e, "os_index", 0, KOLO_HOST_PUS_MAX - 1, -1, &part->number));
    if (part->number < 0) {
        return kolo_xml_fail(e, "a PU without os_index");
    }
    if (r->allowed != NULL && !hwloc_bitmap_isset(r->allowed, (unsigned)part->number)) {
        part->kind = KOLO_PART_OTHER;
    }
    return KOLO_OK;
}

static kolo_status read_numa(struct hwloc_reading *r, const struct kolo_xml_element *e,
                             struct kolo_part *part)
{
    const char *text = kolo_xml_get(e, "cpuset");
    kolo_status st = KOLO_OK;
    if (text != NULL && !kolo_parts_take(r->host, 8 * strlen(text))) { /* 32 bits a comma, twice */
        return kolo_parts_full(r->host);
    }
    if (r->numas++ == KOLO_HOST_NUMAS_MAX) {
        return kolo_xml_fail(e, "more than %d NUMA nodes", KOLO_HOST_NUMAS_MAX);
    }
    KOLO_TRY(kolo_xml_int(e, "os_index", 0, KOLO_HOST_PUS_MAX - 1, -1, &part->number));
    KOLO_TRY(read_u64(e, "local_memory", &part->bytes));
    part->cpus = read_set(e, "cpuset", &st);
    KOLO_TRY(st);
    return part->number >= 0 && part->cpus != NULL
               ? KOLO_OK
               : kolo_xml_fail(e, "a NUMA node without %s",
                               part->number < 0 ? "os_index" : "cpuset");
}

/* The types of an OS device, as bits. */
static kolo_status read_os(const struct hwloc_reading *r, const struct kolo_xml_element *e,
                           struct kolo_part *part)
{
    static const int v2[] = {0, KOLO_OS_GPU,   KOLO_OS_NETWORK, KOLO_OS_OPENFABRICS,
                             0, KOLO_OS_COPROC};
    static const struct {
        int from, to;
    } v3[] = {{1 << 2, KOLO_OS_GPU},
              {1 << 3, KOLO_OS_COPROC},
              {1 << 4, KOLO_OS_NETWORK},
              {1 << 5, KOLO_OS_OPENFABRICS}};
    int type = 0;
    KOLO_TRY(kolo_xml_int(e, "osdev_type", 0, 1 << 20, 0, &type));
    part->number = r->major == 2 && type < (int)KOLO_LENGTH(v2) ? v2[type] : 0;
    for (size_t i = 0; i < KOLO_LENGTH(v3) && r->major == 3; i++) {
        part->number |= (type & v3[i].from) != 0 ? v3[i].to : 0;
    }
    return KOLO_OK;
}

/* pci_type is "0302 [10de:1db8] [10de:12ab] a1": class, vendor, device, and unused fields. */
static kolo_status read_pci(const struct kolo_xml_element *e, struct kolo_part *part)
{
    const char *bus = kolo_xml_get(e, "pci_busid"), *type = kolo_xml_get(e, "pci_type");
    const char *subtype = kolo_xml_get(e, "subtype");
    double wire_gbs = 0;
    if (bus == NULL || !kolo_bus_parse(bus, &part->bus)) {
        return kolo_xml_fail(e, "pci_busid is \"%.40s\", no address on PCI",
                             bus != NULL ? bus : "");
    }
    if (type != NULL &&
        sscanf(type, "%4x [%4x:%4x]", &part->class_id, &part->vendor_id, &part->device_id) != 3) {
        return kolo_xml_fail(e, "pci_type is \"%.40s\", not class, vendor and device", type);
    }
    if (subtype != NULL && strcmp(subtype, "NVSwitch") == 0) {
        part->class_id = KOLO_NVSWITCH_CLASS;
    }
    KOLO_TRY(kolo_xml_number(e, "pci_link_speed", 0, &wire_gbs));
    part->wire_gbs = wire_gbs < 1e6 ? (float)wire_gbs : 0;
    return KOLO_OK;
}

static kolo_status read_kind(struct hwloc_reading *r, const struct kolo_xml_element *e,
                             struct kolo_part *part)
{
    const char *bridge = kolo_xml_get(e, "bridge_type");
    switch (part->kind) {
    case KOLO_PART_PU:
        return read_pu(r, e, part);
    case KOLO_PART_NUMA:
        return read_numa(r, e, part);
    case KOLO_PART_L3:
    case KOLO_PART_L2:
    case KOLO_PART_L1:
        return read_u64(e, "cache_size", &part->bytes);
    case KOLO_PART_BRIDGE:
        part->pci = bridge != NULL && bridge[0] == '1';
        return part->pci ? read_pci(e, part) : KOLO_OK;
    case KOLO_PART_PCI:
        return read_pci(e, part);
    case KOLO_PART_OS:
        KOLO_TRY(read_os(r, e, part));
        return kolo_parts_text(r->host, &part->name, kolo_xml_get(e, "name"))
                   ? KOLO_OK
                   : kolo_parts_full(r->host);
    default:
        return KOLO_OK;
    }
}

static kolo_status read_object(struct hwloc_reading *r, const struct kolo_xml_element *e)
{
    const char *type = kolo_xml_get(e, "type");
    kolo_status st = KOLO_OK;
    if (type == NULL) {
        return kolo_xml_fail(e, "an object without type");
    }
    if (e->depth != r->depth + 1 || (r->depth == 0 && r->host->nparts > 0)) {
        return kolo_xml_fail(e, "an object stands in what is none");
    }
    const enum kolo_part_kind kind = kind_of(type);
    if ((r->depth == 0) != (kind == KOLO_PART_MACHINE)) {
        return kolo_xml_fail(e, "of type \"%.40s\", where %s", type,
                             r->depth == 0 ? "the Machine stands" : "no Machine stands");
    }
    const int part = kolo_parts_open(r->host, kind, r->depth > 0 ? r->open[r->depth - 1] : -1);
    if (part < 0) {
        return kolo_parts_full(r->host);
    }
    r->open[r->depth++] = part;
    KOLO_TRY(read_id(e, &r->host->part[part].id));
    if (r->depth == 1) {
        r->allowed = read_set(e, "allowed_cpuset", &st);
        KOLO_TRY(st);
    }
    return read_kind(r, e, &r->host->part[part]);
}

static kolo_status read_info(struct hwloc_reading *r, const struct kolo_xml_element *e)
{
    const char *name = kolo_xml_get(e, "name"), *value = kolo_xml_get(e, "value");
    if (r->major == 3 && r->depth == 0 && e->depth == 1 && name != NULL && r->host->nparts > 0 &&
        strcmp(name, "Architecture") == 0) {
        return kolo_parts_text(r->host, &r->host->part[0].name, value) ? KOLO_OK
                                                                       : kolo_parts_full(r->host);
    }
    if (r->depth == 0 || e->depth != r->depth + 1 || name == NULL || value == NULL) {
        return KOLO_OK; /* not a property of an object */
    }
    struct kolo_part *part = &r->host->part[r->open[r->depth - 1]];
    const bool is_cpu = part->kind == KOLO_PART_MACHINE || part->kind == KOLO_PART_PACKAGE;
    const int number = (int)strtol(value, NULL, 10);
    char **where = NULL;
    if (strcmp(name, is_cpu ? "CPUModel" : "GPUModel") == 0 &&
        (is_cpu || part->kind == KOLO_PART_OS)) {
        where = &part->model;
    } else if (is_cpu && strcmp(name, "CPUVendor") == 0) {
        where = &part->vendor;
    } else if (r->depth == 1 && strcmp(name, "Architecture") == 0) {
        where = &part->name;
    } else if (is_cpu && strcmp(name, "CPUFamilyNumber") == 0) {
        part->arch |= (number & 0xffff) << 8;
    } else if (is_cpu && strcmp(name, "CPUModelNumber") == 0) {
        part->arch |= number & 0xff;
    }
    return where == NULL || kolo_parts_text(r->host, where, value) ? KOLO_OK
                                                                   : kolo_parts_full(r->host);
}

/* ---- the matrix ---- */

static int part_of(const struct kolo_host *host, uint64_t id)
{
    for (int i = 0; i < host->nparts; i++) {
        if (host->part[i].id == id) {
            return i;
        }
    }
    return -1;
}

static kolo_status begin_matrix(struct hwloc_reading *r, const struct kolo_xml_element *e)
{
    const char *name = kolo_xml_get(e, "name"), *indexing = kolo_xml_get(e, "indexing");
    if (name == NULL || strcmp(name, "NVLinkBandwidth") != 0 || r->n > 0 || /* the first counts */
        (indexing != NULL && strcmp(indexing, "gp") != 0)) {
        return KOLO_OK;
    }
    r->in_matrix = true;
    KOLO_TRY(kolo_xml_int(e, "nbobjs", 1, MATRIX_MAX, 0, &r->n));
    return r->n > 0 ? KOLO_OK : kolo_xml_fail(e, "a matrix without nbobjs");
}

/* Turn an index into the number of its part. The text is "OSDev:802", or "802" if all indices have
 * one type. */
static kolo_status take_index(struct hwloc_reading *r, const struct kolo_xml_element *e)
{
    const char *colon = strchr(r->token, ':');
    char *end = NULL;
    const char *text = colon != NULL ? colon + 1 : r->token;
    const uint64_t id = strtoull(text, &end, 10);
    const int part = end != text && *end == '\0' ? part_of(r->host, id) : -1;
    if (part < 0 || r->nids == r->n) {
        return kolo_xml_fail(e, "\"%s\" is no object of the matrix's %d", r->token, r->n);
    }
    r->id[r->nids++] = (uint64_t)part;
    return KOLO_OK;
}

static kolo_status take_value(struct hwloc_reading *r, const struct kolo_xml_element *e)
{
    const size_t n = (size_t)r->n, row = r->nvalues / n, column = r->nvalues % n;
    char *end = NULL;
    const uint64_t mbs = strtoull(r->token, &end, 10);
    if (*end != '\0' || row >= n || r->nids != r->n) {
        return kolo_xml_fail(e, "\"%s\" is no value of a matrix of %d objects", r->token, r->n);
    }
    r->nvalues++;
    return mbs == 0 || row == column ||
                   kolo_parts_rate(r->host, (int)r->id[row], (int)r->id[column], mbs)
               ? KOLO_OK
               : kolo_parts_full(r->host);
}

static kolo_status end_token(struct hwloc_reading *r, const struct kolo_xml_element *e)
{
    if (r->token_len == 0) {
        return KOLO_OK;
    }
    r->token[r->token_len] = '\0';
    r->token_len = 0;
    return r->in_indexes ? take_index(r, e) : take_value(r, e);
}

static kolo_status on_text(void *context, const struct kolo_xml_element *e, const char *text,
                           size_t len)
{
    struct hwloc_reading *r = context;
    for (size_t i = 0; i < len && (r->in_values || r->in_indexes); i++) {
        if (strchr(" \t\r\n", text[i]) != NULL) {
            KOLO_TRY(end_token(r, e));
        } else if (r->token_len + 1 < sizeof r->token) {
            r->token[r->token_len++] = text[i];
        } else {
            return kolo_xml_fail(e, "a number of more than %d digits", TOKEN_MAX - 1);
        }
    }
    return KOLO_OK;
}

/* ---- elements ---- */

static kolo_status check_root(struct hwloc_reading *r, const struct kolo_xml_element *e)
{
    const char *version = kolo_xml_get(e, "version");
    const long major = version != NULL ? strtol(version, NULL, 10) : 1;
    if (strcmp(e->name, "topology") != 0) {
        return kolo_xml_fail(e, "%s",
                             strcmp(e->name, "system") == 0
                                 ? "it is a topology file of NCCL, not of hwloc"
                                 : "it is not an hwloc XML file, whose root is <topology>");
    }
    r->major = (int)major;
    return major == 2 || major == 3
               ? KOLO_OK
               : kolo_xml_fail(e, "its format is %s: export it with lstopo%s",
                               major > 3 ? "newer than 3" : "older than 2",
                               major > 3 ? " --export-xml-flags v2" : " of hwloc 2");
}

static kolo_status on_start(void *context, const struct kolo_xml_element *e)
{
    struct hwloc_reading *r = context;
    if (e->depth == 0) {
        return check_root(r, e);
    }
    if (strcmp(e->name, "object") == 0) {
        return read_object(r, e);
    }
    if (strcmp(e->name, "info") == 0) {
        return read_info(r, e);
    }
    if (e->depth == 1 &&
        (strcmp(e->name, "distances2hetero") == 0 || strcmp(e->name, "distances2") == 0)) {
        return begin_matrix(r, e);
    }
    r->in_indexes = r->in_matrix && strcmp(e->name, "indexes") == 0;
    r->in_values = r->in_matrix && strcmp(e->name, "u64values") == 0;
    return KOLO_OK;
}

static kolo_status on_end(void *context, const struct kolo_xml_element *e)
{
    struct hwloc_reading *r = context;
    if (strcmp(e->name, "object") == 0) {
        kolo_parts_close(r->host, r->open[--r->depth]);
    } else if (r->in_matrix && e->depth == 1) {
        const size_t n = (size_t)r->n;
        r->in_matrix = false;
        if (r->nvalues != n * n) {
            return kolo_xml_fail(e, "%zu values, not those of a matrix of %zu objects", r->nvalues,
                                 n);
        }
    }
    const kolo_status st = r->in_indexes || r->in_values ? end_token(r, e) : KOLO_OK;
    r->in_indexes = r->in_values = false;
    return st;
}

kolo_status kolo_host_read(const char *path, const char *bytes, size_t len, struct kolo_host **out)
{
    struct hwloc_reading r = {.host = kolo_parts_begin(path, kolo_xml_limit(len))};
    const struct kolo_xml_source source = {path, bytes, len};
    const struct kolo_xml_reader reader = {
        .start = on_start, .end = on_end, .text = on_text, .context = &r};
    if (r.host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the topology");
    }
    kolo_status st = kolo_xml_read(&source, &reader);
    if (st == KOLO_OK) {
        st = kolo_parts_end(r.host);
    }
    hwloc_bitmap_free(r.allowed);
    if (st < 0) {
        kolo_host_destroy(r.host);
        return st;
    }
    *out = r.host;
    return KOLO_OK;
}
