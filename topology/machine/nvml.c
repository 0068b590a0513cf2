// SPDX-License-Identifier: Apache-2.0
/* Loads NVML. The versioned file name is the driver's library; the plain name is a stub from the
 * development package. NVML is never unloaded, because other libraries of the process use it too.
 */
#include "topology/machine/nvml.h"

#include "util/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct nvml_symbol {
    size_t offset;
    const char *name, *older; /* an older version of the same layout; NULL */
};

static const struct nvml_symbol symbols[] = {
    {offsetof(struct kolo_nvml, init), "nvmlInit_v2", "nvmlInit"},
    {offsetof(struct kolo_nvml, count), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
    {offsetof(struct kolo_nvml, by_index), "nvmlDeviceGetHandleByIndex_v2",
     "nvmlDeviceGetHandleByIndex"},
    {offsetof(struct kolo_nvml, pci), "nvmlDeviceGetPciInfo_v3", NULL},
    {offsetof(struct kolo_nvml, name), "nvmlDeviceGetName", NULL},
    {offsetof(struct kolo_nvml, capability), "nvmlDeviceGetCudaComputeCapability", NULL},
    {offsetof(struct kolo_nvml, link_state), "nvmlDeviceGetNvLinkState", NULL},
    {offsetof(struct kolo_nvml, link_remote), "nvmlDeviceGetNvLinkRemotePciInfo_v2", NULL},
    {offsetof(struct kolo_nvml, link_type), "nvmlDeviceGetNvLinkRemoteDeviceType", NULL},
    {offsetof(struct kolo_nvml, fields), "nvmlDeviceGetFieldValues", NULL},
    {offsetof(struct kolo_nvml, p2p), "nvmlDeviceGetP2PStatus", NULL},
    {offsetof(struct kolo_nvml, fabric), "nvmlDeviceGetGpuFabricInfoV", NULL},
    {offsetof(struct kolo_nvml, error), "nvmlErrorString", NULL},
};

static struct kolo_nvml nvml;
static const char *reason;
static bool usable;

static void load_library(void)
{
    static char why[KOLO_WHY_BYTES + 64];
    char detail[KOLO_WHY_BYTES];
    void *library = kolo_library_open("KOLO_NVML_PATH", "libnvidia-ml.so.1", detail);
    if (library == NULL && kolo_code_variable("KOLO_NVML_PATH") != NULL) {
        (void)snprintf(why, sizeof why, "the library of KOLO_NVML_PATH cannot be loaded: %s",
                       detail);
    }
    if (library == NULL) {
        reason = why[0] != '\0' ? why : "there is no libnvidia-ml.so.1";
        return;
    }
    for (size_t i = 0; i < KOLO_LENGTH(symbols); i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && symbols[i].older != NULL) {
            address = dlsym(library, symbols[i].older);
        }
        memcpy((char *)&nvml + symbols[i].offset, &address, sizeof address);
    }
    if (nvml.init == NULL || nvml.count == NULL || nvml.by_index == NULL || nvml.pci == NULL) {
        reason = "libnvidia-ml is too old or not NVML";
        return;
    }
    const int status = nvml.init();
    usable = status == KOLO_NVML_OK;
    reason = usable ? NULL : nvml.error != NULL ? nvml.error(status) : "NVML does not initialise";
}

const struct kolo_nvml *kolo_nvml_open(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_library);
    *why = reason;
    return usable ? &nvml : NULL;
}
