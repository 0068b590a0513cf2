// SPDX-License-Identifier: Apache-2.0
/* CRC-32C by the processor's instruction, or else by eight tables, which take eight bytes at once.
 * Source of the tables: Kounavis and Berry, "A systematic approach to building high performance
 * software-based CRC generators", 2005. */
#include "util/crc.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL UINT32_C(0x82f63b78) /* with its bits reversed */

/* ---- by tables ---- */

static uint32_t table[8][256]; /* table[k][b]: byte b with k zero bytes behind it */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
        }
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (int b = 0; b < 256; b++) {
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xff];
        }
    }
}

uint32_t kolo_crc32c_table(uint32_t crc, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    pthread_once(&once, fill_tables);
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint32_t next = 0;
        for (int i = 0; i < 4; i++) {
            next ^= table[7 - i][p[i] ^ (crc >> (8 * i) & 0xff)] ^ table[3 - i][p[4 + i]];
        }
        crc = next;
    }
    for (; len > 0; p++, len--) {
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
    }
    return ~crc;
}

/* ---- by the instruction ---- */

#if defined(__x86_64__)
static bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const void *bytes,
                                                                 size_t len)
{
    const unsigned char *p = bytes;
    uint64_t sum = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    for (; len > 0; p++, len--) {
        sum = __builtin_ia32_crc32qi((uint32_t)sum, *p);
    }
    return ~(uint32_t)sum;
}
#elif defined(__aarch64__)
enum { HAS_CRC32 = 1 << 7 }; /* a bit of AT_HWCAP, Linux asm/hwcap.h */

static bool has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
}

__attribute__((target("+crc"))) static uint32_t by_instruction(uint32_t crc, const void *bytes,
                                                               size_t len)
{
    const unsigned char *p = bytes;
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        crc = __crc32cd(crc, word);
    }
    for (; len > 0; p++, len--) {
        crc = __crc32cb(crc, *p);
    }
    return ~crc;
}
#else
static bool has_instruction(void)
{
    return false;
}

static uint32_t by_instruction(uint32_t crc, const void *bytes, size_t len)
{
    return kolo_crc32c_table(crc, bytes, len);
}
#endif

uint32_t kolo_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    return has_instruction() ? by_instruction(crc, bytes, len) : kolo_crc32c_table(crc, bytes, len);
}
