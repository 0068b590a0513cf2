// SPDX-License-Identifier: Apache-2.0
/* What reads bytes from outside, for libFuzzer and for the replay of what it found. Each target
 * aborts where something is wrong that is no crash by itself. */
#ifndef KOLO_TESTS_FUZZ_TARGET_H
#define KOLO_TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
