// SPDX-License-Identifier: Apache-2.0
/* The variables for GPUs, but for those that name code: the driver's and the kernels' own files
 * read these. */
#include "gpu/options.h"

static kolo_status read_switch(const char *name, bool *out)
{
    long on = 1;
    KOLO_TRY(kolo_env_int(name, 0, 1, 1, &on));
    *out = on != 0;
    return KOLO_OK;
}

static kolo_status read_bytes(const char *name, uint64_t otherwise, uint64_t *out)
{
    const char *text = kolo_env(name);
    size_t bytes = 0;
    if (text != NULL && !kolo_parse_bytes(text, &bytes)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is \"%.40s\"; it must be bytes, such as 64k", name,
                         text);
    }
    *out = text != NULL ? bytes : otherwise;
    return KOLO_OK;
}

kolo_status kolo_gpu_options_read(struct kolo_gpu_options *out)
{
    /* The smallest call that takes less time in two layers than in one. An estimate, not measured:
     * two low-latency kernels take 9 us (the model of NCCL 2.30, src/sym_kernels.cc there, for 8
     * H100). A host core that adds or copies 10 GB/s saves this time from about 64 KiB on. */
    enum { HIER_BYTES = 64 << 10 };
    struct kolo_gpu_options o = {.ipc = true};
    KOLO_TRY(read_switch("KOLO_CUDA_IPC", &o.ipc));
    KOLO_TRY(read_switch("KOLO_CUDA_P2P", &o.p2p));
    KOLO_TRY(read_switch("KOLO_CUDA_DIRECT", &o.direct));
    KOLO_TRY(read_switch("KOLO_CUDA_HIER", &o.hier));
    KOLO_TRY(read_switch("KOLO_DMABUF_ENABLE", &o.gdr));
    KOLO_TRY(read_bytes("KOLO_CUDA_HIER_BYTES", HIER_BYTES, &o.hier_bytes));
    KOLO_TRY(read_bytes("KOLO_CUDA_LL_BYTES", UINT64_MAX, &o.ll_bytes));
    *out = o;
    return KOLO_OK;
}
