// SPDX-License-Identifier: Apache-2.0
/* Collectives over a list of tensors: c10d gives one call for the whole list. The calls of the list
 * start together as one kolo group, and one Work stands for all of them. */
#include "arguments.hpp"
#include "backend.hpp"

namespace kolo_torch
{

using c10d::OpType;

namespace
{

/* One call of the list. */
struct ListCall {
    const void *in;
    void *out;
    size_t count;
    Element element;
    kolo_op op = KOLO_SUM; /* if the call reduces */
};

/* Make all calls of a list in one kolo group. */
template <typename Enqueue>
kolo_status enqueueTogether(const std::vector<ListCall> &all, Enqueue enqueue)
{
    kolo_status status = kolo_group_begin();
    for (size_t i = 0; i < all.size() && status == KOLO_OK; i++) {
        status = enqueue(all[i]);
    }
    const kolo_status ended = kolo_group_end();
    return status == KOLO_OK ? ended : status;
}

void requirePairs(const Tensors &outputs, const Tensors &inputs, const char *call)
{
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "kolo: ", call, ": ", outputs.size(),
                      " outputs for ", inputs.size(), " inputs");
}

/* The function of a Work for a list of all-gathers. */
auto gatherTogether(std::vector<ListCall> all)
{
    return [all = std::move(all)](kolo_comm *comm, kolo_stream stream) {
        return enqueueTogether(all, [&](const ListCall &x) {
            return kolo_all_gather(x.in, x.out, x.count, x.element.type, comm, stream);
        });
    };
}

} // namespace

WorkPtr KoloBackend::allreduce_coalesced(Tensors &tensors,
                                         const c10d::AllreduceCoalescedOptions &opts)
{
    Staging staging;
    std::vector<ListCall> all;
    for (const at::Tensor &t : tensors) {
        Element element;
        const kolo_op op = reductionOf(opts.reduceOp, t, &element);
        void *buf = staging.inout(t);
        all.push_back({buf, buf, elements(t, element), element, op});
    }
    return enqueue(
        {OpType::ALLREDUCE_COALESCED, "kolo:all_reduce", opts.asyncOp, timeoutOf(opts.timeout)},
        tensors, listOf(tensors), std::move(staging), [all](kolo_comm *comm, kolo_stream stream) {
            return enqueueTogether(all, [&](const ListCall &x) {
                return kolo_all_reduce(x.in, x.out, x.count, x.element.type, x.op, comm, stream);
            });
        });
}

/* outputs[r][i] receives inputs[i] of rank r. */
WorkPtr KoloBackend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                         const c10d::AllgatherOptions &opts)
{
    TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_),
                      "kolo: all_gather_coalesced: ", outputs.size(), " lists for ", size_,
                      " ranks");
    Staging staging;
    std::vector<ListCall> all;
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors blocks;
        for (const Tensors &list : outputs) {
            TORCH_CHECK_VALUE(list.size() == inputs.size(),
                              "kolo: all_gather_coalesced: a list of ", list.size(),
                              " tensors for ", inputs.size(), " inputs");
            TORCH_CHECK_VALUE(list[i].numel() == inputs[i].numel(),
                              "kolo: all_gather_coalesced: an output of shape ", list[i].sizes(),
                              " for an input of shape ", inputs[i].sizes());
            blocks.push_back(list[i]);
        }
        requireList(blocks, inputs[i], size_, "all_gather_coalesced");
        const Element element = movable(inputs[i].scalar_type());
        all.push_back(
            {staging.in(inputs[i]), staging.out(blocks), elements(inputs[i], element), element});
    }
    return enqueue(
        {OpType::ALLGATHER_COALESCED, "kolo:all_gather", opts.asyncOp, timeoutOf(opts.timeout)},
        inputs, outputs, std::move(staging), gatherTogether(std::move(all)));
}

WorkPtr KoloBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                     const c10d::AllgatherOptions &opts)
{
    requirePairs(outputs, inputs, "all_gather_into_tensor_coalesced");
    Staging staging;
    std::vector<ListCall> all;
    for (size_t i = 0; i < inputs.size(); i++) {
        requireBlocks(outputs[i], inputs[i], size_, "all_gather_into_tensor_coalesced");
        const Element element = movable(inputs[i].scalar_type());
        all.push_back({staging.in(inputs[i]), staging.out(outputs[i]), elements(inputs[i], element),
                       element});
    }
    return enqueue({OpType::COALESCED, "kolo:all_gather_into_tensor_coalesced", opts.asyncOp,
                    timeoutOf(opts.timeout)},
                   inputs, listOf(outputs), std::move(staging), gatherTogether(std::move(all)));
}

WorkPtr KoloBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                     const c10d::ReduceScatterOptions &opts)
{
    requirePairs(outputs, inputs, "reduce_scatter_tensor_coalesced");
    Staging staging;
    std::vector<ListCall> all;
    for (size_t i = 0; i < inputs.size(); i++) {
        requireBlocks(inputs[i], outputs[i], size_, "reduce_scatter_tensor_coalesced");
        Element element;
        const kolo_op op = reductionOf(opts.reduceOp, inputs[i], &element);
        all.push_back({staging.in(inputs[i]), staging.out(outputs[i]),
                       elements(outputs[i], element), element, op});
    }
    return enqueue({OpType::COALESCED, "kolo:reduce_scatter_tensor_coalesced", opts.asyncOp,
                    timeoutOf(opts.timeout)},
                   inputs, listOf(outputs), std::move(staging),
                   [all](kolo_comm *comm, kolo_stream stream) {
                       return enqueueTogether(all, [&](const ListCall &x) {
                           return kolo_reduce_scatter(x.in, x.out, x.count, x.element.type, x.op,
                                                      comm, stream);
                       });
                   });
}

} // namespace kolo_torch
