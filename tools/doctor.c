// SPDX-License-Identifier: Apache-2.0
/* `kolo doctor` finds settings of this machine and container that make collectives slow or fail. It
 * prints a line for each check, and a fix if one is needed. It changes nothing; only the copies
 * between GPUs do more than read. It checks:
 * - locked memory and huge pages, for pinned buffers;
 * - /dev/shm (other libraries need it, kolo does not);
 * - reading other processes' memory (CMA);
 * - the CPUs and memory of the control group;
 * - RDMA devices that cannot be used, and NICs that run below their link;
 * - modules for GPUDirect;
 * - access control (ACS) on PCI bridges, which sends peer-to-peer traffic through the host;
 * - whether data arrive that GPUs send to each other (doctor_peers.c).
 *
 * HWLOC_FSROOT is put before every path, as in discovery. */
#include "tools/doctor.h"

#include "tools/doctor_parts.h"
#include "tools/output.h"
#include "topology/machine/graph.h"
#include "topology/machine/sysfs.h"
#include "topology/source.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

// clang-format off
static const char usage[] =
    "Usage: kolo doctor [-n RANKS]\n"
    "Check whether this machine, or container, is set up for fast collectives: locked memory, /dev/shm,\n"
    "CMA, huge pages, CPU and memory limits, NICs, GPUDirect modules and PCI access control. Copies test\n"
    "whether GPUs reach each other (P2P).\n"
    "  -n, --ranks N   number of ranks that will run here (default: one a cpu)\n"
    "  -h, --help      print this help\n"
    "Exit status: 1 if something needs a fix.\n";
// clang-format on

enum verdict { GOOD, NOTE, BAD };

struct doctor {
    struct kolo_text out;
    int ranks; /* 0: as many as CPUs */
    int bad;
};

/* `fix` NULL: no fix is known or needed. */
static void add_finding(struct doctor *d, enum verdict verdict, const char *fix, const char *format,
                        ...) KOLO_PRINTF(4, 5);

static void add_finding(struct doctor *d, enum verdict verdict, const char *fix, const char *format,
                        ...)
{
    static const char *const words[] = {"ok  ", "note", "FIX "};
    char line[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    d->bad += verdict == BAD;
    kolo_text_add(&d->out, "%s  %s\n", words[verdict], line);
    if (fix != NULL && verdict != GOOD) {
        kolo_text_add(&d->out, "      -> %s\n", fix);
    }
}

static double gib(double bytes)
{
    return bytes / (1 << 30);
}

/* ---- memory ---- */

static void check_memlock(struct doctor *d, bool has_rdma)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        return;
    }
    if (limit.rlim_cur == RLIM_INFINITY) {
        add_finding(d, GOOD, NULL, "locked memory is not limited");
        return;
    }
    const double mib = (double)limit.rlim_cur / (1 << 20);
    add_finding(
        d, has_rdma && limit.rlim_cur < (rlim_t)1 << 30 ? BAD : NOTE,
        "ulimit -l unlimited (limits.conf: * - memlock unlimited; docker: --ulimit memlock=-1); "
        "RDMA "
        "pins its buffers",
        "locked memory is limited to %.*g MiB", kolo_digits(mib, 3), mib);
}

static void check_shm(struct doctor *d)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) {
        add_finding(d, NOTE, "mount -t tmpfs tmpfs /dev/shm",
                    "/dev/shm is not there; kolo does without");
        return;
    }
    const double bytes = (double)fs.f_blocks * (double)fs.f_frsize;
    add_finding(
        d, bytes < 1 << 30 ? NOTE : GOOD,
        "docker run --shm-size=8g (NCCL and data loaders need it; kolo uses memfd and does not)",
        "/dev/shm has %.*g GiB", kolo_digits(gib(bytes), 3), gib(bytes));
}

/* Read a word of a child's memory, as a peer reads a rank's memory. */
static void check_cma(struct doctor *d)
{
    int word = 1, seen = 0, hold[2];
    char byte = 0;
    if (pipe(hold) != 0) {
        return;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)close(hold[1]);
        (void)!read(hold[0], &byte, 1); /* until the parent is done */
        _exit(0);
    }
    (void)close(hold[0]);
    const struct iovec here = {&seen, sizeof seen}, there = {&word, sizeof word};
    const bool works = child > 0 && process_vm_readv(child, &here, 1, &there, 1, 0) == sizeof seen;
    const int why = errno;
    (void)close(hold[1]);
    if (child > 0) {
        (void)waitpid(child, NULL, 0);
    }
    char scope[16] = "0";
    (void)kolo_sysfs_read("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
    if (works && scope[0] == '0') {
        add_finding(d, GOOD, NULL, "processes may read each other's memory (CMA)");
    } else {
        add_finding(
            d, NOTE,
            works
                ? "sysctl kernel.yama.ptrace_scope=0 (MPI libraries use CMA; kolo does not need it)"
                : "docker: --cap-add=SYS_PTRACE, or a seccomp profile with process_vm_readv",
            works ? "reading memory of processes that are no children is denied: ptrace_scope %s"
                  : "reading another process's memory (CMA) is denied: %s",
            works ? scope : strerror(why));
    }
}

static void check_hugepages(struct doctor *d)
{
    char mode[64] = "";
    if (!kolo_sysfs_read("/sys/kernel/mm/transparent_hugepage/enabled", mode, sizeof mode)) {
        add_finding(d, NOTE, NULL, "transparent huge pages: not known");
        return;
    }
    add_finding(d, strstr(mode, "[never]") != NULL ? BAD : GOOD,
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                "transparent huge pages: %s", mode);
}

/* ---- CPUs and the control group ---- */

static int allowed_cpus(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                       : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* The quota of cgroup 2, from "max 100000" or "50000 100000"; 0: no quota. */
static double quota_cpus(void)
{
    char text[64];
    double quota = 0, period = 0;
    if (kolo_sysfs_read("/sys/fs/cgroup/cpu.max", text, sizeof text) &&
        sscanf(text, "%lf %lf", &quota, &period) == 2) {
        return quota / period;
    }
    if (kolo_sysfs_read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text) &&
        strtod(text, NULL) > 0) {
        quota = strtod(text, NULL);
        return kolo_sysfs_read("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text)
                   ? quota / strtod(text, NULL)
                   : 0;
    }
    return 0;
}

static void check_cpus(struct doctor *d)
{
    const int cpus = allowed_cpus();
    const double quota = quota_cpus();
    const int ranks = d->ranks > 0 ? d->ranks : cpus;
    if (ranks > cpus) {
        add_finding(
            d, NOTE, "fewer ranks, or more CPUs (taskset, docker --cpuset-cpus)",
            "%d ranks share %d CPUs: they give way to each other, which costs a switch a message",
            ranks, cpus);
    } else {
        add_finding(d, GOOD, NULL, "%d CPUs for %d ranks", cpus, ranks);
    }
    if (quota > 0 && quota < ranks) {
        add_finding(
            d, BAD, "docker --cpus, or Kubernetes' limits.cpu, of at least the number of ranks",
            "the control group's quota is %.3g CPUs for %d ranks: they are stopped for whole "
            "periods",
            quota, ranks);
    }
}

static void check_memory_limit(struct doctor *d)
{
    char text[64];
    if (kolo_sysfs_read("/sys/fs/cgroup/memory.max", text, sizeof text) &&
        strcmp(text, "max") != 0) {
        const double bytes = strtod(text, NULL);
        add_finding(d, bytes < 1 << 30 ? BAD : NOTE,
                    "docker --memory, or Kubernetes' limits.memory",
                    "the control group may take %.*g GiB of memory, shared segments included",
                    kolo_digits(gib(bytes), 3), gib(bytes));
    }
}

/* ---- devices ---- */

/* The text of a file of an RDMA device's port; "": no file. */
static const char *port_file(const struct kolo_node *n, const char *file, char out[64])
{
    char path[320];
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%.64s/ports/%d/%.64s", n->name,
                   n->port > 0 ? n->port : 1, file);
    if (!kolo_sysfs_read(path, out, 64)) {
        out[0] = '\0';
    }
    return out;
}

/* RDMA over Ethernet is routed like IP. So a port needs an IPv4 address, or an IPv6 address beyond
 * the link. The port's GIDs show these addresses. */
static bool has_address(const struct kolo_node *n)
{
    enum { GIDS = 16 };
    char file[64], gid[64];
    for (int i = 0; i < GIDS; i++) {
        (void)snprintf(file, sizeof file, "gids/%d", i);
        if (port_file(n, file, gid)[0] != '\0' && strncmp(gid, "fe80:", 5) != 0 &&
            strspn(gid, "0:") != strlen(gid)) {
            return true;
        }
    }
    return false;
}

/* Report the problem that keeps an RDMA device from being used. False: no problem. */
static bool check_rdma(struct doctor *d, const struct kolo_node *n)
{
    char state[64], layer[64];
    if (!kolo_sysfs_rdma_node(n->name)) {
        add_finding(d, BAD, "docker: --device=/dev/infiniband; else modprobe ib_uverbs",
                    "%s has no node in /dev/infiniband: nothing here can use it", n->name);
    } else if (port_file(n, "state", state)[0] != '\0' && strstr(state, "ACTIVE") == NULL) {
        add_finding(d, BAD, "check cable, switch port and, for InfiniBand, the subnet manager",
                    "%s port %d is %s", n->name, n->port > 0 ? n->port : 1,
                    state + strspn(state, "0123456789: "));
    } else if (strcmp(port_file(n, "link_layer", layer), "Ethernet") == 0 && !has_address(n)) {
        add_finding(
            d, BAD, "ip address add ADDRESS/BITS dev INTERFACE",
            "%s has no address (GID) that another host reaches: its interface has no IP address",
            n->name);
    } else {
        return false;
    }
    return true;
}

static void check_nics(struct doctor *d, const struct kolo_graph *g)
{
    for (int i = 0; i < g->nnics; i++) {
        const struct kolo_node *n = &g->node[g->nic[i]];
        const struct kolo_graph_edge *pci =
            n->parent >= 0 ? kolo_graph_link(g, g->nic[i], n->parent, KOLO_LINK_PCI) : NULL;
        const char *name = n->name != NULL ? n->name : "?";
        if (n->rdma == 1 && check_rdma(d, n)) {
            continue;
        }
        if (n->gbs > 0 && pci != NULL && !pci->assumed && pci->gbs < 0.8 * n->gbs) {
            add_finding(d, BAD, "move it to a slot with more lanes, or a newer PCI generation",
                        "%s has a port of %.3g GB/s on a PCI link of %.3g GB/s", name, n->gbs,
                        pci->gbs);
        } else if (n->gbs > 0) {
            add_finding(d, GOOD, NULL, "%s: %.3g GB/s%s", name, n->gbs,
                        n->rdma == 1 ? ", RDMA" : "");
        } else {
            add_finding(d, NOTE, NULL, "%s: its rate is not known", name);
        }
    }
}

/* The transport opens the verbs library only when needed, so this check shows a missing one first.
 */
static void check_verbs(struct doctor *d, bool has_rdma)
{
    if (!has_rdma) {
        return;
    }
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    add_finding(d, library != NULL ? GOOD : BAD, "apt install libibverbs1 ibverbs-providers",
                library != NULL ? "libibverbs is there for RDMA"
                                : "libibverbs is not there, RDMA needs it");
    if (library != NULL) {
        (void)dlclose(library);
    }
}

static void check_gpudirect(struct doctor *d, const struct kolo_graph *g, bool has_rdma)
{
    if (g->ngpus == 0 || !has_rdma) {
        return;
    }
    const bool module = kolo_sysfs_exists("/sys/module/nvidia_peermem") ||
                        kolo_sysfs_exists("/sys/module/nv_peer_mem") ||
                        kolo_sysfs_exists("/sys/module/amdgpu");
    add_finding(d, module ? GOOD : NOTE,
                "modprobe nvidia-peermem (or a driver and kernel with dma-buf)",
                module ? "a module for GPUDirect RDMA is loaded"
                       : "no module for GPUDirect RDMA is loaded");
}

/* The ACS control register of a bridge; 0: it has none; -1: not readable. The extended capability
 * 0x000d is behind byte 0x100 of the configuration space, which only root may read (PCI Express
 * base specification, 7.7.11). */
static int acs_of(const char *bus)
{
    unsigned char config[4096];
    char path[320];
    const char *root = kolo_env("HWLOC_FSROOT");
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%.32s/config",
                   root != NULL ? root : "", bus);
    FILE *file = fopen(path, "re");
    const size_t len = file != NULL ? fread(config, 1, sizeof config, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    for (size_t at = 0x100, hops = 0; at + 8 <= len && at >= 0x100 && hops < 96; hops++) {
        const unsigned head = config[at] | (unsigned)config[at + 1] << 8;
        if (head == 0x000d) {
            return config[at + 6] | config[at + 7] << 8;
        }
        at = (config[at + 2] >> 4 | (size_t)config[at + 3] << 4) & ~(size_t)3;
    }
    return len > 64 ? 0 : -1;
}

int kolo_doctor_redirects(const char *bus)
{
    enum { REDIRECT = 0x4 | 0x8 | 0x10 }; /* requests, completions, upstream forwarding */
    const int acs = acs_of(bus);
    return acs < 0 ? -1 : (acs & REDIRECT) != 0;
}

static void check_acs(struct doctor *d, const struct kolo_graph *g)
{
    int seen = 0, on = 0;
    char path[256], first[64] = "";
    const char *root = kolo_env("HWLOC_FSROOT");
    if (g->ngpus + g->nnics < 2) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root != NULL ? root : "");
    DIR *folder = opendir(path);
    for (const struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        const int redirects = e->d_name[0] != '.' ? kolo_doctor_redirects(e->d_name) : -1;
        seen += redirects >= 0;
        if (redirects == 1) {
            (void)snprintf(first, sizeof first, "%.60s", e->d_name);
            on++;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    if (on > 0) {
        add_finding(
            d, g->ngpus > 0 ? BAD : NOTE,
            "setpci -s BRIDGE ECAP_ACS+6.w=0000 for each, or switch ACS off in the BIOS",
            "PCI access control (ACS) redirects on %d bridges, such as %s: peer-to-peer goes "
            "through "
            "the host, or fails",
            on, first);
    } else {
        add_finding(d, seen > 0 ? GOOD : NOTE, "run as root to look",
                    seen > 0 ? "no PCI bridge redirects peer-to-peer traffic (ACS)"
                             : "PCI access control (ACS) cannot be seen");
    }
}

static void tell_peers(void *doctor, kolo_status status, const char *line, const char *fix)
{
    add_finding(doctor,
                status == KOLO_OK           ? GOOD
                : status == KOLO_ERR_SYSTEM ? NOTE
                                            : BAD,
                fix, "%s", line);
}

static void check_devices(struct doctor *d, const struct kolo_graph *g)
{
    bool has_rdma = false;
    for (int i = 0; i < g->nnics; i++) {
        has_rdma = has_rdma || g->node[g->nic[i]].rdma == 1;
    }
    check_memlock(d, has_rdma);
    check_verbs(d, has_rdma);
    check_nics(d, g);
    if (g->ngpus > 0) {
        add_finding(d, GOOD, NULL, "%d GPUs", g->ngpus);
    }
    check_gpudirect(d, g, has_rdma);
    check_acs(d, g);
    for (const char *at = g->notes.chars; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        add_finding(d, NOTE, NULL, "%.*s", (int)len, at);
        at += len + 1;
    }
}

static bool parse_options(int argc, char **argv, struct doctor *d, bool *help)
{
    static const struct option longs[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option = 0;
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":n:h", longs, NULL)) != -1) {
        long value = 0;
        if (option == 'h') {
            *help = true;
        } else if (option != 'n') {
            return kolo_option_refuse("kolo doctor", argc, argv, option);
        } else if (!kolo_parse_int(optarg, 1, 1 << 20, &value)) {
            (void)fprintf(stderr, "kolo doctor: option -n: \"%s\" is no number of ranks\n", optarg);
            return false;
        } else {
            d->ranks = (int)value;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "kolo doctor: unexpected argument \"%s\"\n", argv[optind]);
        return false;
    }
    return true;
}

int kolo_tool_doctor(int argc, char **argv)
{
    struct doctor d = {0};
    struct kolo_graph *graph = NULL;
    bool help = false;
    if (!parse_options(argc, argv, &d, &help)) {
        return 2;
    }
    if (help) {
        return fputs(usage, stdout) < 0;
    }
    check_shm(&d);
    check_cma(&d);
    check_hugepages(&d);
    check_cpus(&d);
    check_memory_limit(&d);
    if (kolo_graph_discover(&graph) == KOLO_OK) {
        check_devices(&d, graph);
    } else {
        add_finding(&d, BAD, NULL, "devices cannot be discovered: %s", kolo_error_text());
    }
    kolo_doctor_peers(tell_peers, &d);
    const int status = kolo_output_write("kolo doctor", "-", &d.out);
    kolo_text_free(&d.out);
    kolo_graph_destroy(graph);
    return status != 0 || d.bad > 0;
}
