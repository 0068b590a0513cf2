// SPDX-License-Identifier: Apache-2.0
/* Compiled as C with every warning on, as a program is that knows NCCL's header only: the layouts
 * and numbers that a program compiled against NVIDIA's header has in it. */
#include <nccl.h>
#include <stdio.h>

_Static_assert(NCCL_VERSION_CODE == 22809 && NCCL_VERSION(2, 8, 3) == 2803, "versions");
_Static_assert(sizeof(ncclUniqueId) == 128 && sizeof(ncclRedOp_t) == 4, "sizes");
_Static_assert(sizeof(ncclConfig_t) == 80 && offsetof(ncclConfig_t, blocking) == 16 &&
                   offsetof(ncclConfig_t, netName) == 32 &&
                   offsetof(ncclConfig_t, commName) == 48 &&
                   offsetof(ncclConfig_t, nvlinkCentricSched) == 76,
               "a configuration");
_Static_assert(sizeof(ncclSimInfo_t) == 24 && offsetof(ncclSimInfo_t, estimatedTime) == 16,
               "an estimate");
_Static_assert(ncclInProgress == 7 && ncclFloat8e5m2 == 11 && ncclMin == 3 && ncclNumOps == 5,
               "numbers");

int main(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    float value = 3;
    if (ncclGetUniqueId(&id) != ncclSuccess ||
        ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclSuccess ||
        ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, NULL) != ncclSuccess ||
        ncclCommDestroy(comm) != ncclSuccess || value != 3) {
        fprintf(stderr, "%s\n", ncclGetLastError(NULL));
        return 1;
    }
    return 0;
}
