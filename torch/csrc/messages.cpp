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

WorkPtr KoloBackend::send(Tensors &tensors, int peer, int tag)
{
    const at::Tensor &t = only(tensors, "send");
    Staging staging;
    const void *buf = staging.in(t);
    const Element element = movable(t.scalar_type());
    const size_t count = static_cast<size_t>(t.numel()) * element.per;
    kolo_comm *comm = comm_->get();
    return run({c10d::OpType::SEND, "kolo:send", true, options_->timeout}, tensors, {tensors},
               std::move(staging), [=](kolo_stream stream) {
                   return kolo_send_tag(buf, count, element.type, peer, tag, comm, stream);
               });
}

WorkPtr KoloBackend::receive(Tensors &tensors, int peer, int tag, c10d::OpType type)
{
    const at::Tensor &t = only(tensors, "recv");
    Staging staging;
    void *buf = staging.out(t);
    const Element element = movable(t.scalar_type());
    const size_t count = static_cast<size_t>(t.numel()) * element.per;
    kolo_comm *comm = comm_->get();
    if (coalesced_ != nullptr) {
        return run({}, {}, {tensors}, std::move(staging), [=](kolo_stream stream) {
            return kolo_recv_tag(buf, count, element.type, peer, tag, nullptr, comm, stream);
        });
    }
    const char *title = type == c10d::OpType::RECV ? "kolo:recv" : "kolo:recvAnySource";
    auto work = begin({type, title, true, options_->timeout}, tensors, {tensors});
    kolo_recv_info *info = work->expect(t.nbytes());
    work->run(true, std::move(staging), [=](kolo_stream stream) {
        return kolo_recv_tag(buf, count, element.type, peer, tag, info, comm, stream);
    });
    fly(work);
    return work;
}

WorkPtr KoloBackend::recv(Tensors &tensors, int peer, int tag)
{
    return receive(tensors, peer, tag, c10d::OpType::RECV);
}

WorkPtr KoloBackend::recvAnysource(Tensors &tensors, int tag)
{
    return receive(tensors, KOLO_ANY_SOURCE, tag, c10d::OpType::RECVANYSOURCE);
}

} // namespace kolo_torch
