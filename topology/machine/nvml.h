// SPDX-License-Identifier: Apache-2.0
/* NVML, NVIDIA's management library, loaded at run time. kolo declares the few functions and
 * structs that it uses. So no build needs NVML's header, and one build runs on every machine.
 * Names, numbers and layouts follow the NVML API reference (nvml.h of CUDA 12). */
#ifndef KOLO_TOPOLOGY_MACHINE_NVML_H
#define KOLO_TOPOLOGY_MACHINE_NVML_H

#include "util/util.h"

#include <assert.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_NVML_OK = 0, KOLO_NVML_LINKS_MAX = 36 };

typedef struct kolo_nvml_device *kolo_nvml_device;

struct kolo_nvml_pci { /* nvmlPciInfo_t */
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct kolo_nvml_field { /* nvmlFieldValue_t */
    unsigned field, scope;
    long long timestamp_us, latency_us;
    int type, status;
    union {
        double real;
        unsigned int32;
        unsigned long long int64;
    } value;
};
enum { /* values of kolo_nvml_field.type */
       KOLO_NVML_DOUBLE = 0,
       KOLO_NVML_UINT = 1,
       KOLO_NVML_ULONG = 2,
       KOLO_NVML_ULONGLONG = 3
};
enum { /* fields */
       KOLO_NVML_LINK_SPEED_MBPS = 90,
       KOLO_NVML_LINK_STATE = 165
};

enum { /* the device at a link's other end */
       KOLO_NVML_REMOTE_GPU = 0,
       KOLO_NVML_REMOTE_NPU = 1,
       KOLO_NVML_REMOTE_SWITCH = 2
};

enum { KOLO_NVML_P2P_READ = 0, KOLO_NVML_P2P_WRITE = 1 }; /* index of p2p(); status 0 is OK */

struct kolo_nvml_fabric { /* nvmlGpuFabricInfo_v2_t */
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state; /* 3: complete */
    unsigned health;
};
#define KOLO_NVML_FABRIC_VERSION ((unsigned)sizeof(struct kolo_nvml_fabric) | 2u << 24)
static_assert(sizeof(struct kolo_nvml_pci) == 68, "nvmlPciInfo_t");
static_assert(sizeof(struct kolo_nvml_field) == 40, "nvmlFieldValue_t");
static_assert(sizeof(struct kolo_nvml_fabric) == 36, "nvmlGpuFabricInfo_v2_t");

/* NVML's functions. A pointer is NULL if the library lacks the function. Functions that return int
 * return KOLO_NVML_OK or an error. */
struct kolo_nvml {
    int (*init)(void);
    int (*count)(unsigned *out);
    int (*by_index)(unsigned index, kolo_nvml_device *out);
    int (*pci)(kolo_nvml_device device, struct kolo_nvml_pci *out);
    int (*name)(kolo_nvml_device device, char *out, unsigned bytes);
    int (*capability)(kolo_nvml_device device, int *major, int *minor);
    int (*link_state)(kolo_nvml_device device, unsigned link, int *active);
    int (*link_remote)(kolo_nvml_device device, unsigned link, struct kolo_nvml_pci *out);
    int (*link_type)(kolo_nvml_device device, unsigned link, int *out);
    int (*fields)(kolo_nvml_device device, int count, struct kolo_nvml_field *fields);
    int (*p2p)(kolo_nvml_device a, kolo_nvml_device b, int index, int *status);
    int (*fabric)(kolo_nvml_device device, struct kolo_nvml_fabric *out);
    const char *(*error)(int status);
};

/* Load the library once and initialise it: the file that KOLO_NVML_PATH names, else
 * libnvidia-ml.so.1. NULL: there is no library; `why` is the reason (static text). Any thread may
 * call this function. */
const struct kolo_nvml *kolo_nvml_open(const char **why);

struct kolo_graph;
/* Add the GPUs of NVML with their NVLinks and the NVSwitch, and note the pairs without peer access.
 * Devices are matched by bus address. The caller finishes the graph. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_nvml_add(const struct kolo_nvml *nvml, struct kolo_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
