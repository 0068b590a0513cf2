// SPDX-License-Identifier: Apache-2.0
// covers: src/util/copy.c
// Copies write the bytes that they are given, and no others.
extern "C" {
#include "util/copy.h"
}

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace
{

constexpr size_t kPage = 4096, kAround = 128;
constexpr uint8_t kGuard = 0xa5;

// Where memory begins that lies `at` bytes behind a page. `memory` has a page more than is needed.
uint8_t *BehindPage(std::vector<uint8_t> &memory, size_t at)
{
    return memory.data() + (at - reinterpret_cast<uintptr_t>(memory.data())) % kPage;
}

// The destination begins `dst_at` bytes behind a page, and lies `behind` bytes behind the source,
// pages left out.
void ExpectCopies(void (*copy)(void *, const void *, size_t), size_t bytes, size_t dst_at,
                  size_t behind)
{
    std::vector<uint8_t> from(bytes + kPage), to(bytes + 2 * kAround + kPage, kGuard);
    uint8_t *src = BehindPage(from, dst_at - behind), *guarded = BehindPage(to, dst_at - kAround);
    std::iota(src, src + bytes, uint8_t{1});
    std::vector<uint8_t> want(to.begin(), to.end());
    std::copy(src, src + bytes, want.data() + (guarded - to.data()) + kAround);
    copy(guarded + kAround, src, bytes);
    EXPECT_EQ(want, to) << bytes << " bytes at " << dst_at << ", " << behind << " behind";
}

void ThroughTheCaches(void *dst, const void *src, size_t bytes)
{
    kolo_copy(dst, src, bytes);
}

void PastThem(void *dst, const void *src, size_t bytes)
{
    kolo_copy_past(dst, src, bytes);
    kolo_copy_fence();
}

TEST(Copy, ExactlyTheGivenBytesArrive)
{
    for (size_t bytes = 0; bytes < 4200; bytes += bytes < 300 ? 1 : 97) {
        for (size_t dst_at : {0, 3, 32}) {
            for (size_t behind : {0, 1, 16, 63, 64, 4095}) {
                ExpectCopies(ThroughTheCaches, bytes, dst_at, behind);
                ExpectCopies(PastThem, bytes, dst_at, behind);
                if (bytes >= 8) {
                    ExpectCopies(kolo_copy_by_words, bytes, dst_at, behind);
                }
            }
        }
    }
}

TEST(Copy, NothingNeedsNoMemory)
{
    ThroughTheCaches(nullptr, nullptr, 0);
    PastThem(nullptr, nullptr, 0);
}

} // namespace
