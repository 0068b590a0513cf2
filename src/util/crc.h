// SPDX-License-Identifier: Apache-2.0
/* CRC-32C (Castagnoli): RFC 3720 appendix B.4, as iSCSI and SCTP use it. By the processor's
 * instruction where it has one (SSE4.2, ARMv8), some 8 bytes in 3 cycles, else by tables. */
#ifndef KOLO_CRC_H
#define KOLO_CRC_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stddef.h>
#include <stdint.h>

/* The sum of what `crc` is the sum of, and these bytes behind it; 0: of nothing. */
uint32_t kolo_crc32c(uint32_t crc, const void *bytes, size_t len);
/* The same without the instruction. */
uint32_t kolo_crc32c_table(uint32_t crc, const void *bytes, size_t len);

#ifdef __cplusplus
}
#endif
#endif
