// SPDX-License-Identifier: Apache-2.0
/* Bus addresses, and the speed of links. The capacities are those that NCCL and RCCL plan with:
 * - NVLink: about 80 % of the line rate.
 * - PCI: lanes * rate / 80. The rate is in units of 100 Mb/s after coding and protocol: 15 30 60
 *   120 240 480 for generations 1 to 6.
 *
 * Sources: NCCL 2.30 src/graph/topo.h and topo.cc, RCCL src/graph/topo.h. */
#include "topology/machine/graph.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parse one hexadecimal field that ends with `stop`, and move past it. */
static bool parse_hex(const char **at, char stop, unsigned long long most, unsigned long long *out)
{
    char *end = NULL;
    if (!isxdigit((unsigned char)**at)) {
        return false;
    }
    *out = strtoull(*at, &end, 16);
    if (*end != stop || *out > most || end - *at > 8) {
        return false;
    }
    *at = stop != '\0' ? end + 1 : end;
    return true;
}

bool kolo_bus_parse(const char *text, uint64_t *out)
{
    unsigned long long domain = 0, bus = 0, device = 0, function = 0;
    const char *at = text;
    const char *first = strchr(text, ':');
    const bool has_domain = first != NULL && strchr(first + 1, ':') != NULL;
    if ((has_domain && !parse_hex(&at, ':', UINT32_MAX, &domain)) ||
        !parse_hex(&at, ':', 0xff, &bus)) {
        return false;
    }
    if (strchr(at, '.') == NULL) {
        if (!parse_hex(&at, '\0', 0x1f, &device)) {
            return false;
        }
    } else if (!parse_hex(&at, '.', 0x1f, &device) || !parse_hex(&at, '\0', 7, &function)) {
        return false;
    }
    *out = domain << 16 | bus << 8 | device << 3 | function;
    return true;
}

void kolo_bus_print(uint64_t bus, char out[24])
{
    if (bus == KOLO_BUS_NONE) {
        (void)snprintf(out, 24, "-");
        return;
    }
    (void)snprintf(out, 24, "%04llx:%02x:%02x.%x", (unsigned long long)(bus >> 16),
                   (unsigned)(bus >> 8 & 0xff), (unsigned)(bus >> 3 & 0x1f), (unsigned)(bus & 7));
}

double kolo_pci_gbs(const char *speed, int width)
{
    static const struct {
        double gts, lane;
    } rates[] = {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
    const double gts = speed != NULL ? strtod(speed, NULL) : 0;
    const int lanes = width > 0 ? width : 16;
    if (!(gts > 0) || gts > 1e4 || width > 1024) {
        return 0;
    }
    for (size_t i = 0; i < KOLO_LENGTH(rates); i++) {
        if (fabs(gts - rates[i].gts) < 0.1) {
            return lanes * rates[i].lane / 80;
        }
    }
    return lanes * gts * 7.5 / 80; /* a rate of no known generation */
}

/* For 16 lanes of generation 3, hwloc reports 15.75 GB/s; the link carries 12. */
double kolo_pci_gbs_of_wire(double wire_gbs)
{
    return wire_gbs > 0 && wire_gbs < 1e4 ? wire_gbs * 12 / 15.753846 : 0;
}

/* Generation 5 came with Hopper, generation 4 with Ampere. */
double kolo_pci_gbs_usual(int arch)
{
    return arch >= 90 && arch < 300 ? 48 : arch >= 80 && arch < 300 ? 24 : 12;
}

double kolo_nvlink_gbs(int arch)
{
    if (arch >= 90) {
        return arch >= 100 ? 40.1 : 20.6;
    }
    if (arch == 86) {
        return 12;
    }
    return arch / 10 == 6 ? 18 : 20;
}

double kolo_xgmi_gbs(int arch)
{
    return arch >= 942 ? 48 : arch >= 910 ? 36 : 24;
}

double kolo_smp_gbs(const char *vendor, const char *arch_text, int family_model)
{
    const int model = family_model & 0xff;
    if (arch_text != NULL && strncmp(arch_text, "ppc64", 5) == 0) {
        return 32;
    }
    if (arch_text != NULL && strncmp(arch_text, "arm", 3) == 0) {
        return 6;
    }
    if (vendor != NULL && strstr(vendor, "AMD") != NULL) {
        return 16;
    }
    if (vendor != NULL && strstr(vendor, "Intel") == NULL) {
        return 6;
    }
    return model >= 0xcf ? 40 : model >= 0x8f ? 22 : model >= 0x55 || model == 0 ? 10 : 6;
}

enum kolo_node_kind kolo_pci_kind(uint32_t class_id, uint32_t vendor)
{
    const uint32_t sub = class_id >> 8;
    enum { NVIDIA = 0x10de };
    if (sub == 0x0302 || sub == 0x0380 || class_id >> 16 == 0x12 ||
        (sub == 0x0300 && vendor == NVIDIA)) {
        return KOLO_NODE_GPU;
    }
    if (class_id >> 16 == 0x02 || sub == 0x0c06) { /* old class of InfiniBand */
        return KOLO_NODE_NIC;
    }
    if (sub == 0x0604 || sub == 0x0801) {
        return KOLO_NODE_SWITCH;
    }
    return class_id == 0x068000 && vendor == NVIDIA ? KOLO_NODE_NVSWITCH : KOLO_NODE_DEVICE;
}
