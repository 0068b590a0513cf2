// SPDX-License-Identifier: Apache-2.0
/* The part of `kolo doctor` for peer-to-peer between GPUs: the result of each pair, and the likely
 * cause of a failure. */
#include "tools/doctor_parts.h"
#include "tools/topo/peers.h"
#include "topology/machine/sysfs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- causes ---- */

/* The path of a file or folder of a PCI device. */
static const char *device_file(const char *bus, const char *file, char out[128])
{
    (void)snprintf(out, 128, "/sys/bus/pci/devices/%.24s/%.64s", bus, file);
    return out;
}

/* A device's path in the PCI tree, from the host bridge on, such as
 * "pci0000:16/0000:16:02.0/0000:17:00.0"; "": unknown. */
static void device_way(const char *bus, char out[PATH_MAX])
{
    char path[PATH_MAX], full[PATH_MAX];
    const char *root = kolo_env("HWLOC_FSROOT");
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%.24s", root != NULL ? root : "",
                   bus);
    const char *at = bus[0] != '\0' && realpath(path, full) != NULL ? strstr(full, "/pci") : NULL;
    for (const char *next = at; next != NULL; next = strstr(next + 1, "/pci")) {
        at = next; /* the last match: the root may have one, too */
    }
    (void)snprintf(out, PATH_MAX, "%s", at != NULL ? at + 1 : "");
}

/* Find the first bridge that redirects on a device's path, behind the first `shared` bytes, which
 * the paths of both devices have in common. */
static bool find_redirect(const char *way, size_t shared, char out[24])
{
    for (const char *at = way + shared; *at != '\0';) {
        const size_t len = strcspn(at, "/");
        if (at[len] == '\0') {
            return false; /* the GPU itself */
        }
        (void)snprintf(out, 24, "%.*s", (int)(len < 23 ? len : 23), at);
        if (kolo_doctor_redirects(out) == 1) {
            return true;
        }
        at += len + 1;
    }
    return false;
}

static bool has_word(const char *path, const char *word)
{
    char full[256], line[4096];
    bool found = false;
    const char *root = kolo_env("HWLOC_FSROOT");
    (void)snprintf(full, sizeof full, "%.200s%.50s", root != NULL ? root : "", path);
    FILE *file = fopen(full, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = strstr(line, word) != NULL;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* Whether the IOMMU translates the device's traffic. Old kernels do not tell the group's type. */
static bool is_translated(const char *bus)
{
    char path[128], type[32];
    if (kolo_sysfs_read(device_file(bus, "iommu_group/type", path), type, sizeof type)) {
        return strncmp(type, "DMA", 3) == 0;
    }
    return kolo_sysfs_exists(device_file(bus, "iommu_group", path)) &&
           !has_word("/proc/cmdline", "iommu=pt");
}

/* Find the likely cause and its fix. The surest cause is tried first. */
static void find_cause(const struct kolo_probed *pair, char cause[160], char fix[256])
{
    char way[2][PATH_MAX], bridge[24];
    size_t shared = 0;
    device_way(pair->bus[0], way[0]);
    device_way(pair->bus[1], way[1]);
    for (size_t i = 0; way[0][i] != '\0' && way[0][i] == way[1][i]; i++) {
        shared = way[0][i] == '/' ? i + 1 : shared;
    }
    if (find_redirect(way[0], shared, bridge) || find_redirect(way[1], shared, bridge)) {
        (void)snprintf(cause, 160, "access control (ACS) redirects on bridge %s between them",
                       bridge);
        (void)snprintf(fix, 256, "setpci -s %s ECAP_ACS+6.w=0000, or switch ACS off in the BIOS",
                       bridge);
    } else if (is_translated(pair->bus[0]) || is_translated(pair->bus[1])) {
        (void)snprintf(cause, 160, "the IOMMU translates what they send");
        (void)snprintf(fix, 256, "boot with iommu=pt, or switch the IOMMU off in the BIOS");
    } else if (has_word("/proc/cpuinfo", " hypervisor")) {
        (void)snprintf(cause, 160, "this is a virtual machine, whose host does not let it through");
        (void)snprintf(fix, 256, "on the host, see to ACS and the IOMMU of the GPUs' bridges");
    } else if (way[0][0] != '\0' && way[1][0] != '\0' && shared == 0) {
        (void)snprintf(cause, 160, "they are under different host bridges (%.*s, %.*s)",
                       (int)strcspn(way[0], "/"), way[0], (int)strcspn(way[1], "/"), way[1]);
        (void)snprintf(fix, 256, "slots under one host bridge or PCI switch");
    } else {
        (void)snprintf(cause, 160, "not known; bridges' access control (ACS) shows to root only");
        (void)snprintf(fix, 256, "run as root, and look for Xid and IOMMU faults in dmesg");
    }
}

/* ---- report ---- */

struct peers_report {
    void (*tell)(void *arg, kolo_status status, const char *line, const char *fix);
    void *arg;
};

static void report_pair(void *arg, const struct kolo_probed *pair)
{
    const struct peers_report *l = arg;
    char line[512], cause[160], fix[256], advice[384], who[96];
    (void)snprintf(who, sizeof who, "P2P of GPU %d (%s) and GPU %d (%s)", pair->gpu[0],
                   pair->bus[0], pair->gpu[1], pair->bus[1]);
    if (pair->status == KOLO_OK) {
        (void)snprintf(line, sizeof line, "%s: verified, %.3g GB/s", who, pair->gbs);
        l->tell(l->arg, pair->status, line, NULL);
    } else if (pair->status == KOLO_ERR_SYSTEM) {
        (void)snprintf(line, sizeof line, "%s could not be tried: %s", who, pair->error);
        l->tell(l->arg, pair->status, line, NULL);
    } else if (kolo_probed_fails(pair)) {
        find_cause(pair, cause, fix);
        (void)snprintf(line, sizeof line, "%s is claimed and does not work: %s; likely cause: %s",
                       who, pair->error, cause);
        (void)snprintf(advice, sizeof advice,
                       "%s; until then NCCL_P2P_DISABLE=1 (kolo goes through the host)", fix);
        l->tell(l->arg, pair->status, line, advice);
    }
}

void kolo_doctor_peers(void (*tell)(void *arg, kolo_status status, const char *line,
                                    const char *fix),
                       void *arg)
{
    struct peers_report listener = {tell, arg};
    if (!kolo_probe_pairs(report_pair, &listener)) {
        tell(arg, KOLO_ERR_SYSTEM, "P2P could not be tried: the CUDA driver does not answer", NULL);
    }
}
