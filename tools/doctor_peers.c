// SPDX-License-Identifier: Apache-2.0
/* `kolo doctor` on peer-to-peer between GPUs. A child process tries pair after pair and tells of
 * each by a pipe; a pair that fails, or does not answer, is the last of its child, since what it
 * leaves of the driver is not to be trusted, and another child goes on behind it; but a driver that
 * stays silent is not asked again. */
#include "device/peer_access.h"
#include "doctor_parts.h"
#include "topology/sysfs.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BYTES = 16 << 20,
    TIMEOUT_MS = 5000,
    /* More: drivers take seconds to start and to make contexts, on machines of many GPUs a minute.
     */
    PATIENCE_MS = 90000
};

struct pair {   /* what a child tells, before it tries and after */
    int number; /* in the order (0, 1), (0, 2), ... */
    int gpu[2];
    char bus[2][24];
    kolo_status status; /* INPROGRESS: about to be tried */
    double gbs;
    char error[160];
};
_Static_assert(sizeof(struct pair) <= PIPE_BUF, "arrives whole");

/* ---- the child ---- */

static bool tell_parent(int fd, const struct pair *pair)
{
    return write(fd, pair, sizeof *pair) == (ssize_t)sizeof *pair;
}

/* False: the child is done. */
static bool try_pair(const struct kolo_cuda *cuda, struct pair *pair, int fd)
{
    for (int i = 0; i < 2; i++) {
        int device = 0;
        char *bus = pair->bus[i];
        if (cuda->device_get(&device, pair->gpu[i]) != KOLO_CUDA_OK ||
            cuda->device_get_pci_bus_id(bus, sizeof pair->bus[i], device) != KOLO_CUDA_OK) {
            bus[0] = '\0';
        }
        for (; *bus != '\0'; bus++) { /* as in /sys */
            *bus = (char)tolower(*bus);
        }
    }
    pair->status = KOLO_INPROGRESS;
    if (!tell_parent(fd, pair)) {
        return false;
    }
    pair->status = kolo_peer_access_try(cuda, pair->gpu, BYTES, TIMEOUT_MS, &pair->gbs);
    if (pair->status != KOLO_OK) {
        (void)snprintf(pair->error, sizeof pair->error, "%s", kolo_error_text());
    }
    return tell_parent(fd, pair) &&
           (pair->status == KOLO_OK || pair->status == KOLO_ERR_UNSUPPORTED);
}

static void try_pairs(int first, int fd)
{
    const struct kolo_cuda *cuda = NULL;
    int count = 0, number = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (kolo_cuda_open(&cuda) != KOLO_OK || cuda->device_get_count(&count) != KOLO_CUDA_OK) {
        return;
    }
    for (int a = 0; a < count; a++) {
        for (int b = a + 1; b < count; b++, number++) {
            struct pair pair = {.number = number, .gpu = {a, b}};
            if (number >= first && !try_pair(cuda, &pair, fd)) {
                return;
            }
        }
    }
}

/* ---- why ---- */

/* A file, or a folder, of a PCI device. */
static const char *device_file(const char *bus, const char *file, char out[128])
{
    (void)snprintf(out, 128, "/sys/bus/pci/devices/%.24s/%.64s", bus, file);
    return out;
}

/* Where a device is in the tree, from the host bridge on: "pci0000:16/0000:16:02.0/0000:17:00.0";
 * "": not known. */
static void device_way(const char *bus, char out[PATH_MAX])
{
    char path[PATH_MAX], full[PATH_MAX];
    const char *root = kolo_env("HWLOC_FSROOT");
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%.24s", root != NULL ? root : "",
                   bus);
    const char *at = bus[0] != '\0' && realpath(path, full) != NULL ? strstr(full, "/pci") : NULL;
    for (const char *next = at; next != NULL; next = strstr(next + 1, "/pci")) {
        at = next; /* the last: the root may have one, too */
    }
    (void)snprintf(out, PATH_MAX, "%s", at != NULL ? at + 1 : "");
}

/* The first bridge on a way, `shared` bytes of which both devices have, that redirects. */
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

/* Whether the IOMMU translates what the device sends. Old kernels do not tell the group's type. */
static bool is_translated(const char *bus)
{
    char path[128], type[32];
    if (kolo_sysfs_read(device_file(bus, "iommu_group/type", path), type, sizeof type)) {
        return strncmp(type, "DMA", 3) == 0;
    }
    return kolo_sysfs_exists(device_file(bus, "iommu_group", path)) &&
           !has_word("/proc/cmdline", "iommu=pt");
}

/* The likely cause, the surest first, and what to do about it. */
static void find_cause(const struct pair *pair, char cause[160], char fix[256])
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

/* ---- the parent ---- */

struct listener {
    void (*tell)(void *arg, kolo_status status, const char *line, const char *fix);
    void *arg;
};

static void report(const struct listener *l, const struct pair *pair)
{
    char line[512], cause[160], fix[256], advice[384], who[96];
    (void)snprintf(who, sizeof who, "P2P of GPU %d (%s) and GPU %d (%s)", pair->gpu[0],
                   pair->bus[0], pair->gpu[1], pair->bus[1]);
    if (pair->status == KOLO_OK) {
        (void)snprintf(line, sizeof line, "%s: verified, %.3g GB/s", who, pair->gbs);
        l->tell(l->arg, pair->status, line, NULL);
    } else if (pair->status == KOLO_ERR_SYSTEM) {
        (void)snprintf(line, sizeof line, "%s could not be tried: %s", who, pair->error);
        l->tell(l->arg, pair->status, line, NULL);
    } else if (pair->status != KOLO_ERR_UNSUPPORTED) {
        find_cause(pair, cause, fix);
        (void)snprintf(line, sizeof line, "%s is claimed and does not work: %s; likely cause: %s",
                       who, pair->error, cause);
        (void)snprintf(advice, sizeof advice,
                       "%s; until then NCCL_P2P_DISABLE=1 (kolo goes through the host)", fix);
        l->tell(l->arg, pair->status, line, advice);
    }
}

/* Not for ever: a process that hangs in the kernel dies when the driver lets it. */
static void reap(pid_t child)
{
    const struct timespec nap = {0, 10000000};
    (void)kill(child, SIGKILL);
    for (int i = 0; i < 200 && waitpid(child, NULL, WNOHANG) == 0; i++) {
        (void)nanosleep(&nap, NULL);
    }
}

/* Returns 1: heard; 0: nothing in PATIENCE_MS; -1: the child has said its last word. */
static int hear(int fd, struct pair *pair)
{
    struct pollfd ready = {fd, POLLIN, 0};
    struct pair heard;
    int polled = 0;
    do {
        polled = poll(&ready, 1, PATIENCE_MS);
    } while (polled < 0 && errno == EINTR);
    if (polled <= 0) {
        return polled;
    }
    if (read(fd, &heard, sizeof heard) != (ssize_t)sizeof heard) {
        return -1;
    }
    *pair = heard;
    return 1;
}

/* Have a child try from a pair on. Returns the pair to go on with; -1: there is none. */
static int listen_from(const struct listener *l, int first)
{
    struct pair pair = {.status = KOLO_OK};
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        try_pairs(first, ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    int heard = child > 0 ? 1 : -1;
    while (heard > 0 && (heard = hear(ends[0], &pair)) > 0) {
        if (pair.status != KOLO_INPROGRESS) {
            report(l, &pair);
        }
    }
    if (pair.status == KOLO_INPROGRESS) {
        (void)snprintf(pair.error, sizeof pair.error, "the driver %s",
                       heard == 0 ? "does not answer, no more pairs are tried"
                                  : "has ended the process");
        pair.status = KOLO_ERR_TIMEOUT;
        report(l, &pair);
    } else if (heard == 0) {
        l->tell(l->arg, KOLO_ERR_SYSTEM, "P2P could not be tried: the CUDA driver does not answer",
                NULL);
    }
    (void)close(ends[0]);
    if (child > 0) {
        reap(child);
    }
    const bool tried_all = pair.status == KOLO_OK || pair.status == KOLO_ERR_UNSUPPORTED;
    return heard == 0 || tried_all ? -1 : pair.number + 1;
}

void kolo_doctor_peers(void (*tell)(void *arg, kolo_status status, const char *line,
                                    const char *fix),
                       void *arg)
{
    const struct listener listener = {tell, arg};
    for (int next = 0; next >= 0;) {
        next = listen_from(&listener, next);
    }
}
