// SPDX-License-Identifier: Apache-2.0
// Memory of several GPUs, which is the host's, for kernels of peers on the host.
#ifndef KOLO_TESTS_PEER_SLABS_H
#define KOLO_TESTS_PEER_SLABS_H

#include "emulator.h"
#include "peer_calls.h"

namespace peer_calls
{

using reduce_reference::Bytes;

// Memory that begins `shift` bytes after a boundary of 16, with a margin that must stay as it is.
class Buffer
{
  public:
    explicit Buffer(size_t bytes, size_t shift = 0) : store_(bytes + shift + 64, 0xa5)
    {
        at_ = store_.data() + (16 - reinterpret_cast<uintptr_t>(store_.data()) % 16) % 16 + shift;
    }
    uint8_t *At() const
    {
        return at_;
    }

  private:
    Bytes store_;
    uint8_t *at_;
};

// That the emulator has a kernel of that argument for every type and operation that make sense.
inline void ExpectKernels(decltype(kolo_program_name) *name_of, size_t argument)
{
    char name[KOLO_PROGRAM_NAME];
    for (int type = 0; type < KOLO_TYPES; type++) {
        const auto t = static_cast<kolo_type>(type);
        for (kolo_op op = 0; op <= KOLO_OPS; op++) {
            if (kolo_op_valid(t, op == KOLO_OPS ? kolo_op{KOLO_AVG} : op)) {
                name_of(KOLO_COLL_REDUCE, t, op, name);
                EXPECT_EQ(argument, emulator::ArgumentBytes(name)) << name;
            }
        }
        name_of(KOLO_COLL_ALL_TO_ALL, t, KOLO_SUM, name);
        EXPECT_EQ(argument, emulator::ArgumentBytes(name)) << name;
    }
}

// The slabs of all ranks, which go from call to call.
class Slabs
{
  public:
    // An inbox has so many bytes for each rank.
    explicit Slabs(int n, uint32_t inbox_bytes = 4096, uint32_t slices = 3)
        : n_(n), room_{static_cast<uint32_t>(n), slices, inbox_bytes * static_cast<uint32_t>(n),
                       2048}
    {
        const size_t bytes = kolo_program_slab_bytes(&room_);
        for (int r = 0; r < n; r++) {
            slabs_.emplace_back(
                static_cast<uint64_t *>(aligned_alloc(256, (bytes + 255) / 256 * 256)), free);
            memset(slabs_.back().get(), 0, bytes);
            controls_.push_back(std::make_unique<kolo_program_control>());
        }
    }
    int Count() const
    {
        return n_;
    }
    // As if so many tiles, or calls of the low-latency kernels, had run.
    void Begin(uint32_t epoch)
    {
        for (int r = 0; r < n_; r++) {
            for (uint32_t s = 0; s < room_.slices; s++) {
                Slice(r, s)->epoch = Slice(r, s)->ll_calls = Slice(r, s)->met = epoch;
                for (auto &writer : Slice(r, s)->word) {
                    std::fill(std::begin(writer), std::end(writer), epoch);
                }
            }
        }
    }
    // But for the buffers and the factor.
    void SetEnds(int r, kolo_program_ends *ends)
    {
        ends->signature = 77;
        ends->timeout_ns = 60000000000u;
        ends->control = reinterpret_cast<uintptr_t>(Control(r));
        for (size_t q = 0; q < slabs_.size(); q++) {
            ends->slab[q] = reinterpret_cast<uintptr_t>(slabs_[q].get());
        }
    }
    kolo_program_slice *Slice(int r, uint32_t s)
    {
        return reinterpret_cast<kolo_program_slice *>(Slab(r)) + s;
    }
    uint64_t *Slab(int r)
    {
        return slabs_[static_cast<size_t>(r)].get();
    }
    kolo_program_control *Control(int r)
    {
        return controls_[static_cast<size_t>(r)].get();
    }

  protected:
    int n_;
    kolo_program_room room_;

  private:
    std::vector<std::unique_ptr<uint64_t, void (*)(void *)>> slabs_;
    std::vector<std::unique_ptr<kolo_program_control>> controls_;
};

inline std::vector<int> RankCounts()
{
    return getenv("KOLO_TEST_SHORT") != nullptr ? std::vector<int>{2, 3}
                                                : std::vector<int>{2, 3, 4, 8};
}

} // namespace peer_calls

#endif
