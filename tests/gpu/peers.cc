// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu/p2p
// The peer kernels on one GPU: several ranks of one call, each in a stream, with slabs in the GPU's
// own memory. What they compute and how they wait is that of several GPUs; the links are not.
#include "../device/peer_calls.h"
extern "C" {
#include "gpu/context/gpu.h"
}

namespace
{

using namespace calls;
using peer_calls::Algorithm;

class OneGpu : public testing::Test
{
  protected:
    void SetUp() override
    {
        gpu_.stores = true;
        ASSERT_EQ(KOLO_OK, kolo_gpu_open(0, &gpu_)) << kolo_error_text();
        ASSERT_EQ(KOLO_OK, kolo_gpu_enter(&gpu_)) << kolo_error_text();
        ASSERT_EQ(KOLO_OK, kolo_gpu_load(&gpu_)) << kolo_error_text();
    }
    void TearDown() override
    {
        kolo_gpu_leave(&gpu_);
        kolo_gpu_close(&gpu_);
    }
    kolo_gpu gpu_ = {};
};

// Few enough blocks that all of them are resident on any GPU of these kernels.
class Ranks
{
  public:
    Ranks(const kolo_gpu &gpu, int n) : gpu_(gpu), n_(n)
    {
        const std::vector<uint8_t> zeros(kolo_program_slab_bytes(&room_));
        for (int r = 0; r < n; r++) {
            slabs_.emplace_back(zeros.size());
            slabs_.back().Put(zeros.data(), zeros.size());
            streams_.push_back(std::make_unique<Stream>());
        }
        const size_t controls = sizeof(kolo_program_control) * static_cast<size_t>(n);
        Do("cuMemHostAlloc", &pinned_, controls + kWords * sizeof(uint64_t),
           3u /* portable, mapped */);
        memset(pinned_, 0, controls);
        Do("cuMemHostGetDevicePointer_v2", &pinned_at_, pinned_, 0u);
    }
    ~Ranks()
    {
        Do("cuMemFreeHost", pinned_);
    }
    // Programs lie behind the controls; those of a call may lie where the last call's did.
    bool Bind(const peer_calls::Call &c, std::vector<kolo_program_launch> *out)
    {
        size_t used = 0;
        const size_t controls = sizeof(kolo_program_control) * static_cast<size_t>(n_);
        return peer_calls::Bind(c, n_, room_, out, [&](const uint64_t *words, size_t count) {
            const size_t at = controls + used * sizeof *words;
            used += count;
            if (used > kWords) {
                abort();
            }
            memcpy(static_cast<char *>(pinned_) + at, words, count * sizeof *words);
            return uint64_t{pinned_at_ + at};
        });
    }
    void Check(const peer_calls::Call &c)
    {
        const calls::Call what = {peer_calls::CollOf(c.algo->coll), c.type, c.op, c.count, c.root};
        const Data data(what, static_cast<size_t>(n_), c.count);
        std::vector<kolo_program_launch> launches;
        ASSERT_TRUE(Bind(c, &launches)) << c.algo->base.name << ": " << kolo_error_text();
        const kolo_gpu_call call = Described(c.algo->coll, c.type, c.op);
        for (int r = 0; r < n_; r++) {
            kolo_program_launch *launch = &launches[static_cast<size_t>(r)];
            SetEnds(data, r, &launch->ends);
            Launch(kolo_gpu_kernel(&gpu_, &call), launch->lanes * launch->slices,
                   KOLO_PROGRAM_THREADS, r, launch);
        }
        Finish(what, data);
    }
    void CheckLow(kolo_coll coll, const calls::Call &what)
    {
        const Data data(what, static_cast<size_t>(n_), what.count);
        const kolo_gpu_call call = Described(coll, what.type, what.op);
        for (int r = 0; r < n_; r++) {
            kolo_coll_args args = call.args;
            args.root = what.root;
            args.count = what.count;
            kolo_ll_launch launch;
            kolo_ll_grid grid;
            ASSERT_TRUE(kolo_ll_bind(&args, r, &room_, room_.slices, &launch, &grid));
            SetEnds(data, r, &launch.ends);
            Launch(kolo_gpu_ll_kernel(&gpu_, &call), grid.blocks, grid.threads, r, &launch);
        }
        Finish(what, data);
    }

  private:
    static constexpr size_t kWords = 1 << 15;
    static kolo_gpu_call Described(kolo_coll coll, kolo_type type, kolo_op op)
    {
        kolo_gpu_call call = {};
        call.args.coll = coll;
        call.args.type = type;
        call.args.op = op;
        return call;
    }
    void SetEnds(const Data &data, int r, kolo_program_ends *ends)
    {
        const auto at = static_cast<size_t>(r);
        ends->signature = 77;
        ends->timeout_ns = 10000000000u;
        ends->control = pinned_at_ + at * sizeof(kolo_program_control);
        ends->in = reinterpret_cast<uintptr_t>(data.in[at].Get());
        ends->out = reinterpret_cast<uintptr_t>(data.out[at].Get());
        for (size_t q = 0; q < slabs_.size(); q++) {
            ends->slab[q] = reinterpret_cast<uintptr_t>(slabs_[q].Get());
        }
    }
    void Launch(kolo_cuda_function kernel, unsigned blocks, unsigned threads, int r, void *argument)
    {
        void *arguments[] = {argument};
        ASSERT_EQ(KOLO_CUDA_OK,
                  gpu_.cuda->launch_kernel(
                      kernel, blocks, 1, 1, threads, 1, 1, 0,
                      static_cast<kolo_cuda_stream>(streams_[static_cast<size_t>(r)]->Get()),
                      arguments, nullptr));
    }
    // What all ranks have launched.
    void Finish(const calls::Call &what, const Data &data)
    {
        for (const auto &stream : streams_) {
            stream->Sync();
        }
        for (int r = 0; r < n_; r++) {
            const kolo_program_record &record =
                static_cast<kolo_program_control *>(pinned_)[r].record[0];
            ASSERT_EQ(uint32_t{KOLO_PROGRAM_FINE}, record.status)
                << "rank " << r << " waited for rank " << record.rank << " in step " << record.step;
            data.Check(what, r);
        }
    }
    const kolo_gpu &gpu_;
    int n_;
    kolo_program_room room_ = {static_cast<uint32_t>(n_), 8, 65536, 16384};
    std::vector<Memory> slabs_;
    std::vector<std::unique_ptr<Stream>> streams_;
    void *pinned_ = nullptr;
    unsigned long long pinned_at_ = 0;
};

TEST_F(OneGpu, RunsTheKernelsOfAllRanksWhichGiveTheReferencesBits)
{
    for (const int n : {2, 4}) {
        Ranks ranks(gpu_, n);
        for (int type = 0; type < KOLO_TYPES; type++) {
            const auto t = static_cast<kolo_type>(type);
            for (kolo_op op = 0; op < KOLO_OPS; op++) {
                if (kolo_op_valid(t, op)) {
                    ranks.Check({Algorithm("allreduce_direct"), t, op, 1003, 0, 2});
                    ranks.Check({Algorithm("allreduce_oneshot"), t, op, 77});
                }
            }
            for (const char *name : {"broadcast_direct", "gather_direct", "scatter_direct",
                                     "allgather_direct", "alltoall_direct"}) {
                ranks.Check({Algorithm(name), t, KOLO_SUM, 1003, n - 1, 3});
            }
        }
    }
}

TEST_F(OneGpu, RunsTheLowLatencyKernelsOfAllRanksWhichGiveTheReferencesBits)
{
    for (const int n : {2, 4}) {
        Ranks ranks(gpu_, n);
        for (int type = 0; type < KOLO_TYPES; type++) {
            const auto t = static_cast<kolo_type>(type);
            for (kolo_op op = 0; op < KOLO_OPS; op++) {
                if (kolo_op_valid(t, op)) {
                    ranks.CheckLow(KOLO_COLL_ALL_REDUCE, {kAllReduce, t, op, 1003, 0});
                    ranks.CheckLow(KOLO_COLL_REDUCE_SCATTER, {kReduceScatter, t, op, 77, 0});
                }
            }
            ranks.CheckLow(KOLO_COLL_ALL_GATHER, {kAllGather, t, KOLO_SUM, 1003, 0});
            ranks.CheckLow(KOLO_COLL_BROADCAST, {kBroadcast, t, KOLO_SUM, 77, n - 1});
        }
    }
}

TEST_F(OneGpu, RunsTheKernelsFromBufferToBufferWhichGiveTheReferencesBits)
{
    for (const int n : {2, 4}) {
        Ranks ranks(gpu_, n);
        for (int type = 0; type < KOLO_TYPES; type++) {
            const auto t = static_cast<kolo_type>(type);
            for (const char *name :
                 {"allreduce_direct", "reducescatter_direct", "allgather_direct"}) {
                for (kolo_op op = 0; op < KOLO_OPS; op++) {
                    const bool reduces = strcmp(name, "allgather_direct") != 0;
                    peer_calls::Call call = {Algorithm(name), t, op, 20011, 0, 3};
                    call.direct = true;
                    if (reduces ? kolo_op_valid(t, op) : op == 0) {
                        ranks.Check(call);
                    }
                }
            }
        }
    }
}

// Of one lane and of several, which are up to 8 blocks a rank.
TEST_F(OneGpu, RunsEveryAlgorithmOverSeveralRingsAndTrees)
{
    Ranks ranks(gpu_, 4);
    for (int i = 0; i < kolo_algos_count; i++) {
        for (const int rings : {1, 2, 4}) {
            std::vector<kolo_program_launch> launches;
            peer_calls::Call call = {kolo_algos[i], KOLO_INT32, KOLO_SUM, 20011, 1, 2};
            call.rings = rings;
            call.pinned = rings == 2;
            if (kolo_algos[i]->coll != KOLO_COLL_BARRIER &&
                peer_calls::PlanOf(call, 4) != nullptr) {
                ranks.Check(call);
            }
        }
    }
}

} // namespace
