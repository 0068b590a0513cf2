// SPDX-License-Identifier: Apache-2.0
/* The collectives of c10d. Each checks its tensors, describes them to kolo as buffers and counts,
 * and hands a kolo call to enqueue(). */
#include "arguments.hpp"
#include "backend.hpp"

#include <ATen/ops/cat.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace kolo_torch
{

using c10d::OpType;

kolo_op KoloBackend::reductionOf(const c10d::ReduceOp &op, const at::Tensor &t, Element *out)
{
    const at::ScalarType dtype = t.scalar_type();
    const auto element = reducible(dtype);
    TORCH_CHECK_VALUE(element, "kolo: tensors of ", dtype, " can be moved, not reduced");
    *out = *element;
    return op == c10d::ReduceOp::PREMUL_SUM
               ? communicatorOf(t.device())->premulsum(op, element->type)
               : operation(op, dtype);
}

WorkPtr KoloBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    const at::Tensor &t = only(tensors, "broadcast");
    const int root = static_cast<int>(opts.rootRank);
    requireRoot(root, size_, "broadcast");
    Staging staging;
    void *buf = root == rank_ ? const_cast<void *>(staging.in(t)) : staging.out(t);
    const Element element = movable(t.scalar_type());
    const size_t count = elements(t, element);
    return enqueue({OpType::BROADCAST, "kolo:broadcast", opts.asyncOp, timeoutOf(opts.timeout)},
                   tensors, listOf(tensors), std::move(staging),
                   [=](kolo_comm *comm, kolo_stream stream) {
                       return kolo_broadcast(buf, buf, count, element.type, root, comm, stream);
                   });
}

WorkPtr KoloBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    const at::Tensor &t = only(tensors, "all_reduce");
    if (t.layout() == at::kSparse) {
        return allreduce_sparse(tensors, opts);
    }
    Element element;
    const kolo_op op = reductionOf(opts.reduceOp, t, &element);
    Staging staging;
    void *buf = staging.inout(t);
    const size_t count = elements(t, element);
    const kolo_codec codec = codecOf(t, element, op);
    return enqueue(
        {OpType::ALLREDUCE, "kolo:all_reduce", opts.asyncOp, timeoutOf(opts.timeout)}, tensors,
        listOf(tensors), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
            return kolo_all_reduce_codec(buf, buf, count, element.type, op, codec, comm, stream);
        });
}

WorkPtr KoloBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    const at::Tensor &t = only(tensors, "reduce");
    const int root = static_cast<int>(opts.rootRank);
    requireRoot(root, size_, "reduce");
    Element element;
    const kolo_op op = reductionOf(opts.reduceOp, t, &element);
    Staging staging;
    void *buf = root == rank_ ? staging.inout(t) : const_cast<void *>(staging.in(t));
    const size_t count = elements(t, element);
    return enqueue({OpType::REDUCE, "kolo:reduce", opts.asyncOp, timeoutOf(opts.timeout)}, tensors,
                   listOf(tensors), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
                       return kolo_reduce(buf, buf, count, element.type, op, root, comm, stream);
                   });
}

WorkPtr KoloBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                     const c10d::AllgatherOptions &opts)
{
    requireBlocks(output, input, size_, "all_gather_into_tensor");
    Staging staging;
    const void *in = staging.in(input);
    void *out = staging.out(output);
    const Element element = movable(input.scalar_type());
    const size_t count = elements(input, element);
    const kolo_codec codec = codecOf(input, element);
    return enqueue(
        {OpType::_ALLGATHER_BASE, "kolo:_all_gather_base", opts.asyncOp, timeoutOf(opts.timeout)},
        {input}, listOf({output}), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
            return kolo_all_gather_codec(in, out, count, element.type, codec, comm, stream);
        });
}

/* Blocks of different sizes are allowed: every rank has the whole list. */
WorkPtr KoloBackend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                               const c10d::AllgatherOptions &opts)
{
    const at::Tensor &input = only(inputs, "all_gather");
    TORCH_CHECK_VALUE(outputs.size() == 1, "kolo: all_gather takes one list of tensors, not ",
                      outputs.size());
    requireList(outputs[0], input, size_, "all_gather");
    const Element element = movable(input.scalar_type());
    const Blocks blocks = blocksOf(outputs[0], element);
    const size_t count = elements(input, element);
    TORCH_CHECK_VALUE(blocks.counts[static_cast<size_t>(rank_)] == count,
                      "kolo: all_gather: the input has shape ", input.sizes(),
                      ", this rank's place in the list ",
                      outputs[0][static_cast<size_t>(rank_)].sizes());
    Staging staging;
    const void *in = staging.in(input);
    void *out = staging.out(outputs[0]);
    const kolo_codec codec = codecOf(input, element);
    return enqueue({OpType::ALLGATHER, "kolo:all_gather", opts.asyncOp, timeoutOf(opts.timeout)},
                   inputs, outputs, std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
                       return blocks.equal ? kolo_all_gather_codec(in, out, count, element.type,
                                                                   codec, comm, stream)
                                           : kolo_all_gatherv(in, out, blocks.counts.data(),
                                                              blocks.displs.data(), element.type,
                                                              comm, stream);
                   });
}

WorkPtr KoloBackend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                            const c10d::GatherOptions &opts)
{
    const at::Tensor &input = only(inputs, "gather");
    const int root = static_cast<int>(opts.rootRank);
    requireRoot(root, size_, "gather");
    const Element element = movable(input.scalar_type());
    const size_t count = elements(input, element);
    Staging staging;
    const void *in = staging.in(input);
    void *out = nullptr;
    if (root == rank_) {
        TORCH_CHECK_VALUE(outputs.size() == 1, "kolo: gather takes one list of tensors, not ",
                          outputs.size());
        requireList(outputs[0], input, size_, "gather");
        for (const at::Tensor &t : outputs[0]) {
            TORCH_CHECK_VALUE(t.numel() == input.numel(), "kolo: gather: an output of shape ",
                              t.sizes(), " for inputs of shape ", input.sizes());
        }
        out = staging.out(outputs[0]);
    } else {
        TORCH_CHECK_VALUE(outputs.empty(), "kolo: gather: only rank ", root,
                          " has outputs, this is rank ", rank_);
    }
    return enqueue({OpType::GATHER, "kolo:gather", opts.asyncOp, timeoutOf(opts.timeout)}, inputs,
                   outputs, std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
                       return kolo_gather(in, out, count, element.type, root, comm, stream);
                   });
}

WorkPtr KoloBackend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                             const c10d::ScatterOptions &opts)
{
    const at::Tensor &output = only(outputs, "scatter");
    const int root = static_cast<int>(opts.rootRank);
    requireRoot(root, size_, "scatter");
    const Element element = movable(output.scalar_type());
    const size_t count = elements(output, element);
    Staging staging;
    const void *in = nullptr;
    void *out = staging.out(output);
    if (root == rank_) {
        TORCH_CHECK_VALUE(inputs.size() == 1, "kolo: scatter takes one list of tensors, not ",
                          inputs.size());
        requireList(inputs[0], output, size_, "scatter");
        for (const at::Tensor &t : inputs[0]) {
            TORCH_CHECK_VALUE(t.numel() == output.numel(), "kolo: scatter: an input of shape ",
                              t.sizes(), " for outputs of shape ", output.sizes());
        }
        in = staging.in(inputs[0]);
    } else {
        TORCH_CHECK_VALUE(inputs.empty(), "kolo: scatter: only rank ", root,
                          " has inputs, this is rank ", rank_);
    }
    return enqueue({OpType::SCATTER, "kolo:scatter", opts.asyncOp, timeoutOf(opts.timeout)},
                   outputs, listOf(outputs), std::move(staging),
                   [=](kolo_comm *comm, kolo_stream stream) {
                       return kolo_scatter(in, out, count, element.type, root, comm, stream);
                   });
}

WorkPtr KoloBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                          const c10d::ReduceScatterOptions &opts)
{
    requireBlocks(input, output, size_, "reduce_scatter_tensor");
    Element element;
    const kolo_op op = reductionOf(opts.reduceOp, input, &element);
    Staging staging;
    const void *in = staging.in(input);
    void *out = staging.out(output);
    const size_t count = elements(output, element);
    const kolo_codec codec = codecOf(output, element, op);
    return enqueue(
        {OpType::_REDUCE_SCATTER_BASE, "kolo:_reduce_scatter_base", opts.asyncOp,
         timeoutOf(opts.timeout)},
        {input}, listOf({output}), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
            return kolo_reduce_scatter_codec(in, out, count, element.type, op, codec, comm, stream);
        });
}

/* Blocks of different sizes are allowed, as in allgather(). */
WorkPtr KoloBackend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                    const c10d::ReduceScatterOptions &opts)
{
    const at::Tensor &output = only(outputs, "reduce_scatter");
    TORCH_CHECK_VALUE(inputs.size() == 1, "kolo: reduce_scatter takes one list of tensors, not ",
                      inputs.size());
    requireList(inputs[0], output, size_, "reduce_scatter");
    Element element;
    const kolo_op op = reductionOf(opts.reduceOp, output, &element);
    const Blocks blocks = blocksOf(inputs[0], element);
    const size_t count = elements(output, element);
    TORCH_CHECK_VALUE(blocks.counts[static_cast<size_t>(rank_)] == count,
                      "kolo: reduce_scatter: the output has shape ", output.sizes(),
                      ", this rank's place in the list ",
                      inputs[0][static_cast<size_t>(rank_)].sizes());
    Staging staging;
    const void *in = staging.in(inputs[0]);
    void *out = staging.out(output);
    const kolo_codec codec = codecOf(output, element, op);
    return enqueue(
        {OpType::REDUCE_SCATTER, "kolo:reduce_scatter", opts.asyncOp, timeoutOf(opts.timeout)},
        inputs[0], listOf(outputs), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
            return blocks.equal ? kolo_reduce_scatter_codec(in, out, count, element.type, op, codec,
                                                            comm, stream)
                                : kolo_reduce_scatterv(in, out, blocks.counts.data(), element.type,
                                                       op, comm, stream);
        });
}

WorkPtr KoloBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                   std::vector<int64_t> &outputSplits,
                                   std::vector<int64_t> &inputSplits,
                                   const c10d::AllToAllOptions &opts)
{
    requireSameType(output, input, "all_to_all_single");
    const Element element = movable(input.scalar_type());
    const Blocks to = blocksOf(input, inputSplits, size_, element, "the input");
    const Blocks from = blocksOf(output, outputSplits, size_, element, "the output");
    const bool regular = inputSplits.empty() && outputSplits.empty();
    TORCH_CHECK_VALUE(!regular || input.numel() == output.numel(),
                      "kolo: all_to_all_single: an input of shape ", input.sizes(),
                      " for an output of shape ", output.sizes());
    Staging staging;
    const void *in = staging.in(input);
    void *out = staging.out(output);
    return enqueue(
        {OpType::ALLTOALL_BASE, "kolo:all_to_all", opts.asyncOp, timeoutOf(opts.timeout)}, {input},
        listOf({output}), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
            return regular ? kolo_all_to_all(in, out, to.counts[0], element.type, comm, stream)
                           : kolo_all_to_allv(in, to.counts.data(), to.displs.data(), out,
                                              from.counts.data(), from.displs.data(), element.type,
                                              comm, stream);
        });
}

WorkPtr KoloBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts)
{
    TORCH_CHECK_VALUE(!inputs.empty() && !outputs.empty(), "kolo: all_to_all: empty lists for ",
                      size_, " ranks");
    requireList(inputs, inputs[0], size_, "all_to_all");
    requireList(outputs, inputs[0], size_, "all_to_all");
    const Element element = movable(inputs[0].scalar_type());
    const Blocks to = blocksOf(inputs, element), from = blocksOf(outputs, element);
    Staging staging;
    const void *in = staging.in(inputs);
    void *out = staging.out(outputs);
    return enqueue(
        {OpType::ALLTOALL, "kolo:all_to_all", opts.asyncOp, timeoutOf(opts.timeout)}, inputs,
        listOf(outputs), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
            return kolo_all_to_allv(in, to.counts.data(), to.displs.data(), out, from.counts.data(),
                                    from.displs.data(), element.type, comm, stream);
        });
}

/* If the group has made calls on a device, or the options name one, the barrier is also ordered
 * after the work of the current streams. */
WorkPtr KoloBackend::barrier(const c10d::BarrierOptions &opts)
{
    Staging staging;
    auto device = lastDevice();
    if (!opts.device_ids.empty() && c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
        device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(opts.device_ids[0]));
    }
    if (device) {
        staging.requireHere(*device);
    }
    /* A barrier on a device always uses the side stream: the default stream's handle means host
     * memory. */
    return enqueue(
        {OpType::BARRIER, "kolo:barrier", opts.asyncOp || device, timeoutOf(opts.timeout)}, {}, {},
        std::move(staging),
        [](kolo_comm *comm, kolo_stream stream) { return kolo_barrier(comm, stream); });
}

/* All ranks gather the indices and values of all ranks, and sum them by coalescing. Ranks may have
 * different numbers of nonzero elements, but equal shapes. The call runs in the caller's thread. */
WorkPtr KoloBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    at::Tensor &t = tensors[0];
    only(tensors, "all_reduce");
    TORCH_CHECK_VALUE(t.layout() == at::kSparse && t.is_cpu(),
                      "kolo: all_reduce of a sparse tensor takes COO layout on the CPU, not ",
                      t.layout(), " on ", t.device());
    TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM,
                      "kolo: all_reduce of a sparse tensor takes ReduceOp.SUM only");
    const at::Tensor mine = t.coalesce();
    const auto sizes = static_cast<size_t>(size_);
    c10d::AllgatherOptions gather;
    gather.timeout = opts.timeout;
    gather.asyncOp = false;
    at::Tensor nnz = at::full({1}, mine._nnz(), at::kLong), counts = at::empty({size_}, at::kLong);
    _allgather_base(counts, nnz, gather);
    std::vector<Tensors> indices(1), values(1);
    const at::Tensor index = mine.indices().t().contiguous(), value = mine.values().contiguous();
    for (size_t r = 0; r < sizes; r++) {
        const int64_t rows = counts[static_cast<int64_t>(r)].item<int64_t>();
        std::vector<int64_t> shape = value.sizes().vec();
        shape[0] = rows;
        indices[0].push_back(at::empty({rows, index.size(1)}, index.options()));
        values[0].push_back(at::empty(shape, value.options()));
    }
    Tensors indexInput{index}, valueInput{value};
    allgather(indices, indexInput, gather);
    const WorkPtr work = allgather(values, valueInput, gather);
    const at::Tensor sum =
        at::sparse_coo_tensor(at::cat(indices[0]).t(), at::cat(values[0]), t.sizes(), t.options())
            .coalesce();
    t.copy_(sum);
    auto done =
        makeWork({OpType::_ALLREDUCE_SPARSE, "kolo:all_reduce", false, timeoutOf(opts.timeout)},
                 tensors, listOf(tensors));
    done->run(false, {}, [](kolo_comm *, kolo_stream) { return KOLO_OK; });
    return done;
}

} // namespace kolo_torch
