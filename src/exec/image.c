// SPDX-License-Identifier: Apache-2.0
/* Kernels for GPUs are in this library: see image.S. */
#include "exec/fused.h"
#include "exec/peer.h"

extern const unsigned char kolo_fused_fatbin[], kolo_peer_fatbin[];

const void *kolo_fused_image(void)
{
    return kolo_fused_fatbin;
}

const void *kolo_peer_image(void)
{
    return kolo_peer_fatbin;
}
