// SPDX-License-Identifier: Apache-2.0
/* Send and receive. Messages progress independently of collectives and of each other. */
#include "arguments.hpp"
#include "backend.hpp"

namespace kolo_torch
{

/* Outside coalescing, two ranks have a communicator of their own for messages on a device. Messages
 * are then ordered between these two ranks only. */
int KoloBackend::pairWith(const at::Tensor &t, int peer) const
{
    if (t.is_cpu() || coalesced_ != nullptr) {
        return kNoPeer;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(peer != KOLO_ANY_SOURCE,
                                "kolo: a receive from any rank takes a tensor on the CPU, not on ",
                                t.device());
    TORCH_CHECK_VALUE(peer >= 0 && peer < size_ && peer != rank_, "kolo: a message on ", t.device(),
                      " to or from rank ", peer, "; it must be another rank of 0 to ", size_ - 1);
    return peer;
}

WorkPtr KoloBackend::send(Tensors &tensors, int peer, int tag)
{
    const at::Tensor &t = only(tensors, "send");
    const int pair = pairWith(t, peer);
    const int to = pair == kNoPeer ? peer : peer > rank_ ? 1 : 0;
    Staging staging;
    const void *buf = staging.in(t);
    const Element element = movable(t.scalar_type());
    const size_t count = elements(t, element);
    return enqueue({c10d::OpType::SEND, "kolo:send", true, options_->timeout, pair, peer}, tensors,
                   listOf(tensors), std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
                       return kolo_send_tag(buf, count, element.type, to, tag, comm, stream);
                   });
}

WorkPtr KoloBackend::enqueueReceive(Tensors &tensors, int peer, int tag,
                                    const CallOptions &call_options)
{
    const at::Tensor &t = only(tensors, "recv");
    const int pair = pairWith(t, peer);
    const int from = pair == kNoPeer ? peer : peer > rank_ ? 1 : 0;
    Staging staging;
    void *buf = staging.out(t);
    const Element element = movable(t.scalar_type());
    const size_t count = elements(t, element);
    const auto kolo_call = [=](kolo_recv_info *info, kolo_comm *comm, kolo_stream stream) {
        return kolo_recv_tag(buf, count, element.type, from, tag, info, comm, stream);
    };
    if (coalesced_ != nullptr || staging.device()) {
        CallOptions here = call_options;
        here.peer = pair;
        return enqueue(here, {}, listOf(tensors), std::move(staging),
                       [kolo_call](kolo_comm *comm, kolo_stream stream) {
                           return kolo_call(nullptr, comm, stream);
                       });
    }
    auto work = makeWork(call_options, tensors, listOf(tensors));
    kolo_recv_info *info = work->expect(t.nbytes());
    work->run(true, std::move(staging),
              [&](kolo_comm *comm, kolo_stream stream) { return kolo_call(info, comm, stream); });
    keepInFlight(work);
    return work;
}

WorkPtr KoloBackend::recv(Tensors &tensors, int peer, int tag)
{
    return enqueueReceive(
        tensors, peer, tag,
        {c10d::OpType::RECV, "kolo:recv", true, options_->timeout, kNoPeer, peer});
}

WorkPtr KoloBackend::recvAnysource(Tensors &tensors, int tag)
{
    return enqueueReceive(
        tensors, KOLO_ANY_SOURCE, tag,
        {c10d::OpType::RECVANYSOURCE, "kolo:recvAnySource", true, options_->timeout});
}

} // namespace kolo_torch
