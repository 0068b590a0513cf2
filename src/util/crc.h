// SPDX-License-Identifier: Apache-2.0
/* CRC-32C (Castagnoli), which iSCSI and SCTP use: RFC 3720 appendix B.4. A processor with an
 * instruction for it (SSE4.2, ARMv8) sums about 8 bytes in 3 cycles. Others use tables. */
#ifndef KOLO_CRC_H
#define KOLO_CRC_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stddef.h>
#include <stdint.h>

/* Extend `crc`, the sum of some bytes, by the bytes that follow them. Start with 0. */
uint32_t kolo_crc32c(uint32_t crc, const void *bytes, size_t len);
/* The same without the instruction. */
uint32_t kolo_crc32c_table(uint32_t crc, const void *bytes, size_t len);

#ifdef __cplusplus
}
#endif
#endif
