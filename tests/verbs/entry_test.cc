// SPDX-License-Identifier: Apache-2.0
// covers: transports/verbs/entry.c
// Entries of verbs come out of a slot as they were put into it, and damaged ones not at all.
extern "C" {
#include "transports/verbs/entry.h"
}

#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace
{

using Slot = std::array<char, KOLO_VERBS_SLOT>;

kolo_verbs_entry Data(uint16_t len, uint64_t offset, uint64_t total, uint32_t call)
{
    kolo_verbs_entry e{};
    e.kind = KOLO_VERBS_DATA;
    e.channel = 3;
    e.len = len;
    e.taken_blocks = 0xfedc;
    e.number = 0x12345678;
    e.taken = 0x9abcdef0;
    e.offset = offset;
    e.total = total;
    e.call.number = call;
    e.call.key = call * UINT64_C(0x123456789);
    return e;
}

// The bytes of the entry on the wire. Its payload counts from 1.
size_t Put(Slot &slot, const kolo_verbs_entry &e)
{
    const size_t heads = kolo_verbs_entry_heads(&e);
    for (size_t i = 0; i < e.len; i++) {
        slot[heads + i] = static_cast<char>(i + 1);
    }
    const size_t bytes = kolo_verbs_entry_write(slot.data(), &e);
    EXPECT_EQ(heads + e.len, bytes);
    EXPECT_EQ(bytes, kolo_verbs_entry_bytes(slot.data()));
    return bytes;
}

void ExpectComesBack(const kolo_verbs_entry &e, size_t heads)
{
    Slot slot{};
    kolo_verbs_entry got{};
    const size_t bytes = Put(slot, e);
    ASSERT_LE(bytes, slot.size());
    EXPECT_EQ(heads + e.len, bytes);
    const char *payload = kolo_verbs_entry_read(slot.data(), bytes, &got);
    ASSERT_NE(nullptr, payload);
    EXPECT_EQ(slot.data() + heads, payload);
    EXPECT_EQ(e.kind, got.kind);
    EXPECT_EQ(e.channel, got.channel);
    EXPECT_EQ(e.len, got.len);
    EXPECT_EQ(e.zeros, got.zeros);
    EXPECT_EQ(e.taken_blocks, got.taken_blocks);
    EXPECT_EQ(e.number, got.number);
    EXPECT_EQ(e.taken, got.taken);
    EXPECT_EQ(e.offset, got.offset);
    EXPECT_EQ(e.total, got.total);
    EXPECT_EQ(0, std::memcmp(&e.call, &got.call, sizeof e.call));
}

TEST(Entry, HasTheHeadsThatItNeedsAndComesBackAsItWas)
{
    ExpectComesBack(Data(0, 0, 0, 0), 16);
    ExpectComesBack(Data(8, 0, 8, 0), 16);
    ExpectComesBack(Data(8, 0, 8, 7), 16 + 40);
    ExpectComesBack(Data(100, 8120, 8220, 0), 16 + 16);
    ExpectComesBack(Data(100, 0, 8220, 7), 16 + 16 + 40);
    ExpectComesBack(Data(0, 0, 1 << 20, 7), 16 + 16 + 40);
    ExpectComesBack(Data(KOLO_VERBS_PIECE, 0, UINT64_C(1) << 40, 7), KOLO_VERBS_HEADS);
    kolo_verbs_entry taken{};
    taken.kind = KOLO_VERBS_TAKEN;
    ExpectComesBack(taken, 16);
}

TEST(Entry, TheLastZerosOfAShortMessageAreNotSent)
{
    for (uint16_t len = 0; len <= KOLO_VERBS_BRIEF; len++) {
        for (uint16_t used = 0; used <= len; used++) {
            Slot slot{};
            std::string payload(len, '\0');
            if (used > 0) {
                payload[used - 1] = 1;
            }
            kolo_verbs_entry e = Data(len, 0, len, 0), got{};
            std::memcpy(slot.data() + kolo_verbs_entry_heads(&e), payload.data(), len);
            kolo_verbs_entry_trim(&e, payload.data());
            ASSERT_EQ(len, e.len + e.zeros);
            ASSERT_GE(e.len, used);
            ASSERT_LT(e.len, used + 8);
            const size_t bytes = kolo_verbs_entry_write(slot.data(), &e);
            const char *come = kolo_verbs_entry_read(slot.data(), bytes, &got);
            ASSERT_NE(nullptr, come);
            ASSERT_EQ(len, got.total);
            ASSERT_EQ(payload, std::string(come, got.len) + std::string(got.zeros, '\0'));
        }
    }
}

// Whatever the heads say, a payload that is given lies in the slot, and a short message has room.
TEST(Entry, DamagedHeadsNeverGiveBytesOutsideTheSlot)
{
    std::mt19937 random{1}; // NOLINT: the same bytes each time
    int given = 0;
    for (int i = 0; i < 200000; i++) {
        Slot slot{};
        kolo_verbs_entry got{};
        size_t bytes = Put(slot, Data(static_cast<uint16_t>(random() % 300), 0, 200, random() % 2));
        for (unsigned flips = random() % 3; flips > 0; flips--) {
            slot[random() % KOLO_VERBS_HEADS] ^= static_cast<char>(1U << random() % 8);
        }
        bytes += random() % 8 == 0 ? random() % 64 : 0;
        const char *payload = kolo_verbs_entry_read(slot.data(), bytes, &got);
        if (payload == nullptr) {
            continue;
        }
        given++;
        ASSERT_GE(payload, slot.data() + sizeof(kolo_verbs_head));
        ASSERT_LE(payload + got.len, slot.data() + bytes);
        ASSERT_LE(got.len, KOLO_VERBS_PIECE);
        ASSERT_TRUE(got.zeros == 0 || got.len + got.zeros <= KOLO_VERBS_BRIEF);
    }
    EXPECT_GT(given, 1000);
}

TEST(Entry, ImpossibleOnesAreRefused)
{
    Slot slot{};
    kolo_verbs_entry got{}, zeros = Data(8, 0, 8 + KOLO_VERBS_BRIEF, 0);
    size_t bytes = Put(slot, Data(8, 0, 8, 0));
    EXPECT_EQ(nullptr, kolo_verbs_entry_read(slot.data(), bytes - 1, &got));
    EXPECT_EQ(nullptr, kolo_verbs_entry_read(slot.data(), bytes + 1, &got));
    EXPECT_EQ(nullptr, kolo_verbs_entry_read(slot.data(), 0, &got));
    slot[offsetof(kolo_verbs_head, kind)] = static_cast<char>(0x80 | KOLO_VERBS_DATA);
    EXPECT_EQ(nullptr, kolo_verbs_entry_read(slot.data(), bytes, &got)) << "an unknown flag";
    zeros.zeros = KOLO_VERBS_BRIEF;
    bytes = Put(slot, zeros);
    EXPECT_EQ(nullptr, kolo_verbs_entry_read(slot.data(), bytes, &got)) << "a long message's zeros";
    zeros = Data(8, 0, 16, 0);
    zeros.zeros = 8;
    zeros.kind = KOLO_VERBS_READY;
    bytes = Put(slot, zeros);
    EXPECT_EQ(nullptr, kolo_verbs_entry_read(slot.data(), bytes, &got)) << "zeros of no message";
}

} // namespace
