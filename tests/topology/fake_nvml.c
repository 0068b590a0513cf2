// SPDX-License-Identifier: Apache-2.0
/* A library with NVML's names that describes the machine KOLO_FAKE_NVML names: dgx1v, dgxa100,
 * dgxh100, h200nvl, pcie, vm (a DGX whose NVSwitches are hidden), p2p (a pair that may not reach
 * each other), pair (one that can, at the addresses of the tests' CUDA driver), broken (the driver
 * does not answer). KOLO_FAKE_NVML_LOG names a file that gets a line for each process that opens
 * it. For KOLO_NVML_PATH, in tests. */
#include "topology/machine/nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct machine {
    const char *name, *model;
    int gpus, major, minor, links; /* links of a GPU */
    unsigned mbps;                 /* of a link */
    bool switched;
};

static const struct machine machines[] = {
    {"dgx1v", "Tesla V100-SXM2-16GB", 8, 7, 0, 6, 25781, false},
    {"dgxa100", "NVIDIA A100-SXM4-40GB", 8, 8, 0, 12, 25781, true},
    {"dgxh100", "NVIDIA H100 80GB HBM3", 8, 9, 0, 18, 26562, true},
    {"vm", "NVIDIA H100 80GB HBM3", 8, 9, 0, 18, 26562, true},
    {"h200nvl", "NVIDIA H200 NVL", 4, 9, 0, 18, 26562, false},
    {"pcie", "NVIDIA L40S", 4, 8, 9, 0, 0, false},
    {"p2p", "NVIDIA L40S", 2, 8, 9, 0, 0, false},
    {"pair", "NVIDIA A40", 2, 8, 6, 4, 14062, false},
};

/* Where each of a DGX-1V's six links leads. */
static const int cube_mesh[8][6] = {{1, 2, 3, 3, 4, 4}, {0, 2, 2, 3, 5, 5}, {0, 1, 1, 3, 3, 6},
                                    {0, 0, 1, 2, 2, 7}, {0, 0, 5, 6, 7, 7}, {1, 1, 4, 6, 6, 7},
                                    {2, 4, 5, 5, 7, 7}, {3, 4, 4, 5, 6, 6}};

static const struct machine *find(void)
{
    const char *name = getenv("KOLO_FAKE_NVML");
    for (size_t i = 0; name != NULL && i < sizeof machines / sizeof machines[0]; i++) {
        if (strcmp(machines[i].name, name) == 0) {
            return &machines[i];
        }
    }
    return NULL;
}

static int index_of(kolo_nvml_device device)
{
    return (int)(intptr_t)device - 1;
}

static void set_bus(struct kolo_nvml_pci *out, int gpu)
{
    const bool pair = strcmp(find()->name, "pair") == 0;
    memset(out, 0, sizeof *out);
    out->bus = (unsigned)(pair ? 0x1b + 0x10 * gpu : 0x10 + gpu);
    (void)snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    (void)snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", out->bus);
}

/* The GPU that a link leads to; -1: a switch. */
static int peer_of(const struct machine *m, int gpu, unsigned link)
{
    return strcmp(m->name, "dgx1v") == 0 ? cube_mesh[gpu][link] : m->switched ? -1 : gpu ^ 1;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    const char *path = getenv("KOLO_FAKE_NVML_LOG");
    FILE *log = path != NULL ? fopen(path, "ae") : NULL;
    if (log != NULL) {
        (void)fprintf(log, "opened\n");
        (void)fclose(log);
    }
    return find() != NULL ? 0 : 18; /* NVML_ERROR_LIB_RM_VERSION_MISMATCH */
}

const char *nvmlErrorString(int status);
const char *nvmlErrorString(int status)
{
    return status == 18 ? "Driver/library version mismatch" : "some error";
}

int nvmlDeviceGetCount_v2(unsigned *out);
int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = (unsigned)find()->gpus;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, kolo_nvml_device *out);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, kolo_nvml_device *out)
{
    *out = (kolo_nvml_device)(intptr_t)(index + 1); /* a handle is no pointer */
    return 0;
}

int nvmlDeviceGetPciInfo_v3(kolo_nvml_device device, struct kolo_nvml_pci *out);
int nvmlDeviceGetPciInfo_v3(kolo_nvml_device device, struct kolo_nvml_pci *out)
{
    set_bus(out, index_of(device));
    return 0;
}

int nvmlDeviceGetName(kolo_nvml_device device, char *out, unsigned bytes);
int nvmlDeviceGetName(kolo_nvml_device device, char *out, unsigned bytes)
{
    (void)device;
    (void)snprintf(out, bytes, "%s", find()->model);
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(kolo_nvml_device device, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(kolo_nvml_device device, int *major, int *minor)
{
    (void)device;
    *major = find()->major;
    *minor = find()->minor;
    return 0;
}

/* From Hopper on by the field only, as drivers of new GPUs may answer. */
int nvmlDeviceGetNvLinkState(kolo_nvml_device device, unsigned link, int *active);
int nvmlDeviceGetNvLinkState(kolo_nvml_device device, unsigned link, int *active)
{
    (void)device;
    *active = find()->major < 9 && (int)link < find()->links;
    return (int)link < find()->links && find()->major < 9 ? 0 : 3; /* not supported */
}

int nvmlDeviceGetFieldValues(kolo_nvml_device device, int count, struct kolo_nvml_field *fields);
int nvmlDeviceGetFieldValues(kolo_nvml_device device, int count, struct kolo_nvml_field *fields)
{
    (void)device;
    for (int i = 0; i < count; i++) {
        const bool there = (int)fields[i].scope < find()->links;
        fields[i].status = there ? 0 : 3;
        fields[i].type = KOLO_NVML_UINT;
        fields[i].value.int32 = fields[i].field == KOLO_NVML_LINK_STATE ? 1 : find()->mbps;
        if (fields[i].field == KOLO_NVML_LINK_STATE && find()->major < 9) {
            fields[i].status = 3;
        }
    }
    return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(kolo_nvml_device device, unsigned link, int *out);
int nvmlDeviceGetNvLinkRemoteDeviceType(kolo_nvml_device device, unsigned link, int *out)
{
    if (strcmp(find()->name, "vm") == 0) {
        return 3;
    }
    *out = peer_of(find(), index_of(device), link) < 0 ? KOLO_NVML_REMOTE_SWITCH
                                                       : KOLO_NVML_REMOTE_GPU;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(kolo_nvml_device device, unsigned link,
                                        struct kolo_nvml_pci *out);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(kolo_nvml_device device, unsigned link,
                                        struct kolo_nvml_pci *out)
{
    const int peer = peer_of(find(), index_of(device), link);
    memset(out, 0, sizeof *out); /* a hidden NVSwitch has an empty address */
    if (peer >= 0) {
        set_bus(out, peer);
    }
    return 0;
}

int nvmlDeviceGetP2PStatus(kolo_nvml_device a, kolo_nvml_device b, int index, int *status);
int nvmlDeviceGetP2PStatus(kolo_nvml_device a, kolo_nvml_device b, int index, int *status)
{
    (void)a;
    (void)b;
    *status = strcmp(find()->name, "p2p") == 0 && index == KOLO_NVML_P2P_WRITE ? 1 : 0;
    return 0;
}
