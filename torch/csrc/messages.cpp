// SPDX-License-Identifier: Apache-2.0
/* Point to point. They progress independently of collectives and of each other. */
#include "backend.hpp"

namespace kolo_torch
{

namespace
{

const at::Tensor &only(const Tensors &tensors, const char *what)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "kolo: ", what, " takes one tensor, not ",
                      tensors.size());
    return tensors[0];
}

} // namespace

/* Outside of coalescing, messages of a device's memory stand in the order of those between the two
 * ranks alone, which have a communicator for them. */
int KoloBackend::pairWith(const at::Tensor &t, int peer) const
{
    if (t.is_cpu() || coalesced_ != nullptr) {
        return kNoPeer;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(peer != KOLO_ANY_SOURCE,
                                "kolo: a receive from any rank takes a tensor of the CPU, not of ",
                                t.device());
    TORCH_CHECK_VALUE(peer >= 0 && peer < size_ && peer != rank_,
                      "kolo: a message to or from rank ", peer, " of ", t.device(),
                      "; it must be another one of ", size_);
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
    const size_t count = static_cast<size_t>(t.numel()) * element.per;
    return run({c10d::OpType::SEND, "kolo:send", true, options_->timeout, pair}, tensors, {tensors},
               std::move(staging), [=](kolo_comm *comm, kolo_stream stream) {
                   return kolo_send_tag(buf, count, element.type, to, tag, comm, stream);
               });
}

WorkPtr KoloBackend::receive(Tensors &tensors, int peer, int tag, const How &how)
{
    const at::Tensor &t = only(tensors, "recv");
    const int pair = pairWith(t, peer);
    const int from = pair == kNoPeer ? peer : peer > rank_ ? 1 : 0;
    Staging staging;
    void *buf = staging.out(t);
    const Element element = movable(t.scalar_type());
    const size_t count = static_cast<size_t>(t.numel()) * element.per;
    const auto launch = [=](kolo_recv_info *info, kolo_comm *comm, kolo_stream stream) {
        return kolo_recv_tag(buf, count, element.type, from, tag, info, comm, stream);
    };
    if (coalesced_ != nullptr || staging.device()) {
        How here = how;
        here.peer = pair;
        return run(here, {}, {tensors}, std::move(staging),
                   [launch](kolo_comm *comm, kolo_stream stream) {
                       return launch(nullptr, comm, stream);
                   });
    }
    auto work = begin(how, tensors, {tensors});
    kolo_recv_info *info = work->expect(t.nbytes());
    work->run(true, std::move(staging),
              [&](kolo_comm *comm, kolo_stream stream) { return launch(info, comm, stream); });
    fly(work);
    return work;
}

WorkPtr KoloBackend::recv(Tensors &tensors, int peer, int tag)
{
    return receive(tensors, peer, tag, {c10d::OpType::RECV, "kolo:recv", true, options_->timeout});
}

WorkPtr KoloBackend::recvAnysource(Tensors &tensors, int tag)
{
    return receive(tensors, KOLO_ANY_SOURCE, tag,
                   {c10d::OpType::RECVANYSOURCE, "kolo:recvAnySource", true, options_->timeout});
}

} // namespace kolo_torch
