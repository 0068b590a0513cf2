// SPDX-License-Identifier: Apache-2.0
/* The cache of shared blocks, and the allocator that makes tensors of them. */
#include "memory.hpp"

#include "comm.hpp"

#include <c10/core/CPUAllocator.h>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

namespace kolo_torch
{

namespace
{

constexpr size_t kPage = 4096;       /* the alignment of kolo_mem_alloc() */
constexpr size_t kKeep = 1ull << 30; /* freed bytes that are always kept */

/* The blocks of this process. */
class SharedBlocks
{
  public:
    /* NULL: no memory. */
    void *take(size_t bytes)
    {
        const size_t whole = (std::max(bytes, size_t(1)) + kPage - 1) / kPage * kPage;
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto kept = free_.lower_bound(whole);
        if (kept != free_.end() && kept->first <= whole + whole / 8) {
            void *block = kept->second;
            used_[block] = kept->first;
            used_bytes_ += kept->first;
            free_bytes_ -= kept->first;
            free_.erase(kept);
            return block;
        }
        void *block = nullptr;
        if (kolo_mem_alloc(whole, &block) != KOLO_OK) {
            return nullptr;
        }
        used_[block] = whole;
        used_bytes_ += whole;
        return block;
    }

    /* False: the block is not one of these. */
    bool give(void *block)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto used = used_.find(block);
        if (used == used_.end()) {
            return false;
        }
        free_.emplace(used->second, block);
        free_bytes_ += used->second;
        used_bytes_ -= used->second;
        used_.erase(used);
        while (free_bytes_ > std::max(kKeep, used_bytes_)) {
            const auto largest = std::prev(free_.end());
            free_bytes_ -= largest->first;
            kolo_mem_free(largest->second);
            free_.erase(largest);
        }
        return true;
    }

  private:
    std::mutex mutex_;
    std::unordered_map<void *, size_t> used_;
    std::multimap<size_t, void *> free_;
    size_t used_bytes_ = 0, free_bytes_ = 0;
};

/* The blocks are never freed: tensors may outlive everything. */
SharedBlocks &blocks()
{
    static SharedBlocks *const all = new SharedBlocks;
    return *all;
}

c10::Allocator *plain()
{
    return c10::GetDefaultCPUAllocator();
}

/* Release memory of both kinds: torch asks an allocator for a single deleter. */
void release(void *block)
{
    if (reinterpret_cast<uintptr_t>(block) % kPage != 0 || !blocks().give(block)) {
        plain()->raw_deallocate(block);
    }
}

class SharedAllocator final : public c10::Allocator
{
  public:
    explicit SharedAllocator(size_t least) : least_(least) {}

    c10::DataPtr allocate(size_t bytes) override
    {
        void *block = bytes > 0 && bytes >= least_ ? blocks().take(bytes) : nullptr;
        block = block != nullptr ? block : plain()->raw_allocate(bytes);
        return {block, block, release, at::Device(at::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return release;
    }
    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        std::memcpy(to, from, bytes);
    }

  private:
    const size_t least_;
};

} // namespace

at::Tensor emptyShared(at::IntArrayRef sizes, at::ScalarType dtype)
{
    const size_t bytes =
        static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
    void *block = blocks().take(bytes);
    if (block == nullptr) {
        check(KOLO_ERR_SYSTEM, "empty_shared");
    }
    return at::from_blob(block, sizes, release, at::TensorOptions().dtype(dtype));
}

c10::Allocator *sharedAllocator()
{
    static auto *const allocator = new SharedAllocator(0);
    return allocator;
}

void useSharedMemory(size_t least)
{
    c10::SetAllocator(at::kCPU, new SharedAllocator(least), 1);
}

} // namespace kolo_torch
