// SPDX-License-Identifier: Apache-2.0
/* Whether two GPUs reach each other's memory, by trying. The driver says what the chipset could do;
 * PCI access control (ACS), an IOMMU or a virtual machine makes the same copies arrive wrong, late
 * or never, and no call fails. */
#ifndef KOLO_CUDA_PEER_ACCESS_H
#define KOLO_CUDA_PEER_ACCESS_H

#include "cuda/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Let each GPU of a pair (ordinals) write to the other's memory and read from it, and compare what
 * arrives with what was sent. `bytes`, a multiple of 8, are taken on each GPU and twice on the
 * host; `gbs_out` is the slowest of the four ways, in GB/s (10^9 bytes per second).
 *
 * Errors, all but SYSTEM with the GPUs and the direction in kolo_error_text():
 * UNSUPPORTED (they claim no peer access), LINK (it is refused, fails, or data arrive wrong),
 * TIMEOUT (a copy has not ended `timeout_ms` after the beginning), SYSTEM (memory, contexts).
 *
 * Memory and peer access are as they were, except if a copy may still run: after TIMEOUT, or when a
 * context is lost, its memory stays with the driver. A driver may also block in any call. A caller
 * that must go on calls this in a process of its own. */
KOLO_CHECK kolo_status kolo_peer_access_try(const struct kolo_cuda *cuda, const int pair[2],
                                            size_t bytes, int timeout_ms, double *gbs_out);

#ifdef __cplusplus
}
#endif
#endif
