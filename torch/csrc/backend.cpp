// SPDX-License-Identifier: Apache-2.0
/* The process group around its calls: works in flight, communicators of devices, coalescing, split
 * and shrink, the monitored barrier, and shutdown. */
#include "backend.hpp"

#include "device.hpp"
#include "memory.hpp"
#include "recorder.hpp"

#include <algorithm>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace kolo_torch
{

namespace
{

kolo_codec codecNamed(const std::string &name)
{
    std::string allowed;
    for (int i = KOLO_CODEC_NONE; i < KOLO_CODECS; i++) {
        const auto codec = static_cast<kolo_codec>(i);
        if (name == kolo_codec_name(codec) || (name.empty() && codec == KOLO_CODEC_NONE)) {
            return codec;
        }
        allowed += c10::str(i > 0 ? ", " : "", kolo_codec_name(codec));
    }
    TORCH_CHECK_VALUE(false, "kolo: codec is \"", name, "\"; it must be one of ", allowed);
}

} // namespace

KoloBackend::KoloBackend(const Group &group)
    : KoloBackend(std::make_shared<Communicator>(group.store, "kolo_id", group.rank, group.size,
                                                 *group.options),
                  group)
{
}

KoloBackend::KoloBackend(std::shared_ptr<Communicator> comm, const Group &group)
    : c10d::Backend(group.rank, group.size), store_(group.store), options_(group.options),
      shown_options_(group.options), comm_(std::move(comm)), codec_(codecNamed(options_->codec))
{
    init();
}

kolo_codec KoloBackend::codecOf(const at::Tensor &t, const Element &element, kolo_op op) const
{
    const bool sums = op == KOLO_SUM || op == KOLO_AVG;
    return t.device().is_cpu() && element.type == KOLO_FLOAT32 && sums ? codec_ : KOLO_CODEC_NONE;
}

/* Python may drop the last reference with its lock held. The lock is released here, because
 * shutdown waits for other ranks. */
KoloBackend::~KoloBackend()
{
    if (!comm_->closed() && Py_IsInitialized() && PyGILState_Check()) {
        const pybind11::gil_scoped_release released;
        shutdown();
        return;
    }
    shutdown();
}

std::chrono::milliseconds KoloBackend::timeoutOf(std::chrono::milliseconds given) const
{
    return given == c10d::kUnsetTimeout || given == kNoTimeout ? options_->timeout : given;
}

Call KoloBackend::describe(const CallOptions &call_options, const Tensors &inputs,
                           const std::vector<Tensors> &outputs)
{
    const bool message = c10d::isP2POp(call_options.type);
    const uint64_t number = message ? ++messages_ : ++sequence_;
    Call call{call_options.type, titleOf(call_options.title), number, call_options.timeout};
    call.record =
        Recorder::get().enabled() ? recordCall(call, call_options.partner, inputs, outputs) : 0;
    return call;
}

c10::intrusive_ptr<Work> KoloBackend::makeWork(const CallOptions &call_options,
                                               const Tensors &inputs, std::vector<Tensors> outputs)
{
    const Call call = describe(call_options, inputs, outputs);
    return c10::make_intrusive<Work>(WorkOptions{comm_, rank_, call, inputs, std::move(outputs)});
}

uint64_t KoloBackend::recordCall(const Call &call, int partner, const Tensors &inputs,
                                 const std::vector<Tensors> &outputs) const
{
    const auto set = [](std::vector<Recorder::Shape> &shapes, size_t from, const Tensors &tensors) {
        shapes.resize(from + tensors.size());
        for (const at::Tensor &t : tensors) {
            Recorder::Shape &shape = shapes[from++];
            shape.sizes.assign(t.sizes().begin(), t.sizes().end());
            shape.dtype = t.scalar_type();
        }
    };
    return Recorder::get().begin(call.began, [&](Recorder::Entry &entry) {
        entry.group = pg_uid_;
        entry.description = pg_desc_;
        entry.name = call.title;
        entry.rank = rank_;
        entry.partner = partner;
        entry.sends = call.type == c10d::OpType::SEND;
        entry.collective = sequence_;
        entry.message = messages_;
        entry.timeout_ms = call.timeout.count();
        set(entry.inputs, 0, inputs);
        size_t count = 0;
        for (const Tensors &list : outputs) {
            set(entry.outputs, count, list);
            count += list.size();
        }
        entry.outputs.resize(count);
    });
}

/* Keep a work that runs, and drop works that ended: their user may have forgotten them. */
void KoloBackend::keepInFlight(const c10::intrusive_ptr<Work> &work)
{
    std::unique_lock<std::mutex> lock(in_flight_mutex_);
    if (!work->isDone()) {
        in_flight_.push_back(work);
    }
    while (!in_flight_.empty() && in_flight_.front() != work) {
        const c10::intrusive_ptr<Work> oldest = in_flight_.front();
        lock.unlock(); /* a callback of its future may come back here */
        if (!oldest->isCompleted()) {
            return;
        }
        lock.lock();
        if (!in_flight_.empty() && in_flight_.front() == oldest) {
            in_flight_.pop_front();
        }
    }
}

/* ---- devices ---- */

std::shared_ptr<Communicator> KoloBackend::communicatorOf(c10::Device device, int peer)
{
    if (device.is_cpu()) {
        return comm_;
    }
    TORCH_CHECK_VALUE(device.is_cuda(), "kolo: a tensor on ", device,
                      "; it must be on the CPU or on a CUDA device");
    const c10::impl::VirtualGuardImpl guard(device.type());
    device = device.has_index() ? device : guard.getDevice();
    const auto find = [&] {
        const std::lock_guard<std::mutex> lock(devices_mutex_);
        last_device_ = peer == kNoPeer ? device : last_device_;
        const auto found = devices_.find({device.index(), peer});
        return found != devices_.end() ? found->second : nullptr;
    };
    if (auto comm = find()) {
        return comm;
    }
    const std::lock_guard<std::mutex> one(connecting_mutex_); /* abort() does not wait for it */
    if (auto comm = find()) {
        return comm;
    }
    TORCH_CHECK(!comm_->closed(), "kolo: the process group was destroyed");
    TORCH_CHECK(!isCapturing(guard.getStream(device)), "kolo: a group's first call on ", device,
                " makes its communicator, which cannot be captured in a graph: make one call "
                "before the capture");
    const auto made = makeCommunicator(device, peer);
    const std::lock_guard<std::mutex> lock(devices_mutex_);
    devices_[{device.index(), peer}] = made;
    return made;
}

std::shared_ptr<Communicator> KoloBackend::makeCommunicator(c10::Device device, int peer) const
{
    if (peer == kNoPeer) {
        return std::make_shared<Communicator>(store_, "kolo_device", rank_, size_, *options_,
                                              device);
    }
    const std::string meeting =
        c10::str("kolo_device_", std::min(rank_, peer), "_", std::max(rank_, peer));
    return std::make_shared<Communicator>(store_, meeting, rank_ > peer ? 1 : 0, 2, *options_,
                                          device);
}

std::optional<c10::Device> KoloBackend::lastDevice()
{
    const std::lock_guard<std::mutex> lock(devices_mutex_);
    return last_device_;
}

/* The communicators of all devices, then that of host memory. */
std::vector<std::shared_ptr<Communicator>> KoloBackend::communicators()
{
    const std::lock_guard<std::mutex> lock(devices_mutex_);
    std::vector<std::shared_ptr<Communicator>> all;
    for (const auto &[key, comm] : devices_) {
        all.push_back(comm);
    }
    all.push_back(comm_);
    return all;
}

WorkPtr KoloBackend::enqueueOnDevice(const CallOptions &call_options, const Tensors &inputs,
                                     std::vector<Tensors> outputs, Staging &&staging,
                                     const KoloCall &kolo_call)
{
    const c10::Device device = *staging.device();
    const c10::DeviceGuard guard(device);
    const auto comm = communicatorOf(device, call_options.peer);
    const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    const Call call = describe(call_options, inputs, outputs);
    const auto work = c10::make_intrusive<DeviceWork>(
        WorkOptions{comm, rank_, call, inputs, std::move(outputs)}, current,
        call_options.asynchronous ? comm->side() : current);
    work->start(std::move(staging), kolo_call);
    if (call_options.asynchronous && !work->captured()) {
        const std::lock_guard<std::mutex> lock(in_flight_mutex_);
        device_in_flight_.push_back(work);
        while (device_in_flight_.front()->isOver()) {
            device_in_flight_.pop_front();
            if (device_in_flight_.empty()) {
                break;
            }
        }
    }
    return work;
}

/* ---- coalescing ---- */

void KoloBackend::startCoalescing()
{
    TORCH_CHECK(coalesced_ == nullptr, "kolo: coalescing does not nest");
    coalesced_ = std::make_unique<Coalesced>();
}

/* All coalesced calls start together: sends and receives do not wait for one another. */
WorkPtr KoloBackend::endCoalescing()
{
    TORCH_CHECK(coalesced_ != nullptr, "kolo: endCoalescing() without startCoalescing()");
    const std::unique_ptr<Coalesced> all = std::move(coalesced_);
    const CallOptions call_options{c10d::OpType::COALESCED, "kolo:coalesced", true,
                                   options_->timeout};
    const auto kolo_call = [&calls = all->calls](kolo_comm *comm, kolo_stream stream) {
        kolo_status status = kolo_group_begin();
        for (const KoloCall &one : calls) {
            status = status == KOLO_OK ? one(comm, stream) : status;
        }
        const kolo_status ended = kolo_group_end();
        return status == KOLO_OK ? ended : status;
    };
    return enqueue(call_options, all->inputs, listOf(all->outputs), std::move(all->staging),
                   kolo_call);
}

/* ---- other groups ---- */

c10::intrusive_ptr<c10d::Backend> KoloBackend::another(std::shared_ptr<Communicator> comm,
                                                       const Group &group) const
{
    return comm == nullptr ? c10::make_intrusive<KoloBackend>(group)
                           : c10::make_intrusive<KoloBackend>(std::move(comm), group);
}

c10::intrusive_ptr<KoloOptions>
KoloBackend::optionsFrom(const c10::intrusive_ptr<c10d::Backend::Options> &given) const
{
    const auto kolos = c10::dynamic_intrusive_pointer_cast<KoloOptions>(given);
    auto options = c10::make_intrusive<KoloOptions>(kolos == nullptr ? *options_ : *kolos);
    if (given != nullptr) {
        options->timeout = given->timeout;
        options->group_name = given->group_name;
        options->group_desc = given->group_desc;
    }
    return options;
}

c10::intrusive_ptr<c10d::Backend>
KoloBackend::split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                   const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
    const auto me = std::find(ranks.begin(), ranks.end(), rank_);
    if (me == ranks.end()) {
        return nullptr;
    }
    const auto options = optionsFrom(opts);
    options->global_ranks_in_group.clear();
    for (const int rank : ranks) {
        const auto &parents = options_->global_ranks_in_group;
        options->global_ranks_in_group.push_back(
            parents.empty() ? static_cast<uint64_t>(rank) : parents.at(static_cast<size_t>(rank)));
    }
    return another(nullptr, Group{store, static_cast<int>(me - ranks.begin()),
                                  static_cast<int>(ranks.size()), options});
}

/* The new group may have ranks that this one does not know, so it has no global ranks. */
c10::intrusive_ptr<c10d::Backend>
KoloBackend::merge(const c10::intrusive_ptr<c10d::Store> &store,
                   const c10::intrusive_ptr<c10d::Backend::Options> &opts, const int &rank,
                   const int &size)
{
    const auto options = optionsFrom(opts);
    options->global_ranks_in_group.clear();
    return another(nullptr, Group{store, rank, size, options});
}

c10::intrusive_ptr<c10d::Backend>
KoloBackend::shrink(const std::vector<int64_t> &exclude, int flags,
                    const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
    constexpr int kAbort = 1; /* torch.distributed.SHRINK_ABORT */
    const std::vector<int> excluded(exclude.begin(), exclude.end());
    if ((flags & kAbort) != 0) {
        abort();
    }
    const auto given = c10::dynamic_intrusive_pointer_cast<KoloOptions>(opts);
    auto options = c10::make_intrusive<KoloOptions>(given == nullptr ? *options_ : *given);
    int rank = 0;
    options->global_ranks_in_group.clear();
    for (int old = 0; old < size_; old++) {
        if (std::find(excluded.begin(), excluded.end(), old) != excluded.end()) {
            continue;
        }
        rank += old < rank_ ? 1 : 0;
        if (!options_->global_ranks_in_group.empty()) {
            options->global_ranks_in_group.push_back(
                options_->global_ranks_in_group[static_cast<size_t>(old)]);
        }
    }
    auto comm = std::make_shared<Communicator>(*comm_, excluded, *options);
    auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("shrunk", ++shrinks_), store_);
    const int size = size_ - static_cast<int>(excluded.size());
    return another(std::move(comm), Group{store, rank, size, options});
}

std::pair<uint64_t, std::vector<int>> KoloBackend::agree(uint64_t word)
{
    std::vector<int> failed(static_cast<size_t>(size_));
    int count = 0;
    check(kolo_comm_agree(comm_->get(), &word, failed.data(), size_, &count), "agree");
    failed.resize(static_cast<size_t>(count));
    return {word, failed};
}

c10::intrusive_ptr<c10d::Backend>
KoloBackend::reconfigured(const c10::intrusive_ptr<c10d::Store> &store, const kolo_id &id,
                          const std::vector<int> &members)
{
    auto options = c10::make_intrusive<KoloOptions>(*options_);
    options->global_ranks_in_group.clear(); /* new ranks have no numbers in an older group */
    auto comm = std::make_shared<Communicator>(*comm_, id, members, *options);
    const int rank = kolo_comm_rank(comm->get());
    const int size = kolo_comm_size(comm->get());
    return another(std::move(comm), Group{store, rank, size, options});
}

/* The barrier goes through the store, so it can name the missing ranks without ending the group.
 * Rank 0 waits for the others in rank order. It then publishes "passed", or the missing ranks. */
void KoloBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool waitAllRanks)
{
    const std::string prefix = c10::str("monitored_barrier/", barriers_++, "/");
    const std::chrono::milliseconds timeout =
        opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
    const auto end = std::chrono::steady_clock::now() + timeout;
    const auto left = [end] {
        return std::max(std::chrono::milliseconds(1),
                        std::chrono::duration_cast<std::chrono::milliseconds>(
                            end - std::chrono::steady_clock::now()));
    };
    if (rank_ != 0) {
        store_->set(c10::str(prefix, rank_), std::vector<uint8_t>{1});
        std::string verdict = "no answer";
        try {
            store_->wait({prefix + "verdict"}, timeout + left());
            const std::vector<uint8_t> bytes = store_->get(prefix + "verdict");
            verdict.assign(bytes.begin(), bytes.end());
        } catch (const std::exception &) { /* it stays "no answer" */
        }
        if (verdict != "passed") { /* gloo's text, which tools search for */
            C10_THROW_ERROR(DistBackendError,
                            c10::str("Rank ", rank_,
                                     " successfully reached monitoredBarrier, but "
                                     "received errors while waiting for send/recv "
                                     "from rank 0: ",
                                     verdict));
        }
        return;
    }
    if (timeout.count() <= 0) {
        C10_THROW_ERROR(DistBackendError, c10::str("Rank 0 timed out in monitoredBarrier after ",
                                                   timeout.count(), " ms"));
    }
    std::string missing;
    for (int rank = 1; rank < size_; rank++) {
        try {
            store_->wait({c10::str(prefix, rank)}, left());
        } catch (const std::exception &) {
            missing += c10::str(missing.empty() ? "" : ", ", rank);
            if (!waitAllRanks) {
                break;
            }
        }
    }
    if (missing.empty()) {
        const std::string passed = "passed";
        store_->set(prefix + "verdict", std::vector<uint8_t>(passed.begin(), passed.end()));
        return;
    }
    const std::string text =
        c10::str(waitAllRanks ? "Ranks " : "Rank ", missing, " failed to pass monitoredBarrier in ",
                 timeout.count(), " ms");
    store_->set(prefix + "verdict", std::vector<uint8_t>(text.begin(), text.end()));
    C10_THROW_ERROR(DistBackendError, c10::str("[Rank 0]: ", text));
}

/* ---- memory ---- */

at::Tensor KoloBackend::allocateTensor(long size, at::TensorOptions options)
{
    if (options.device().is_cpu()) {
        return emptyShared({size}, c10::typeMetaToScalarType(options.dtype()));
    }
    return at::empty({size}, options);
}

std::shared_ptr<c10::Allocator> KoloBackend::getMemAllocator()
{
    return {sharedAllocator(), [](c10::Allocator *) {}};
}

/* ---- the end ---- */

c10d::ErrorType KoloBackend::getError()
{
    for (const auto &comm : communicators()) {
        switch (comm->error()) {
        case KOLO_OK:
            break;
        case KOLO_ERR_TIMEOUT:
            return c10d::ErrorType::TIMEOUT;
        case KOLO_ERR_PEER:
        case KOLO_ERR_LINK:
            return c10d::ErrorType::REMOTE_ERROR;
        default:
            return c10d::ErrorType::COMM_ERROR;
        }
    }
    return c10d::ErrorType::SUCCESS;
}

void KoloBackend::raiseFailure()
{
    for (const auto &comm : communicators()) {
        if (const std::exception_ptr failed = comm->failure("group")) {
            std::rethrow_exception(failed);
        }
    }
}

void KoloBackend::abort()
{
    for (const auto &comm : communicators()) {
        comm->abort();
    }
}

void KoloBackend::waitForPendingWorks()
{
    std::deque<c10::intrusive_ptr<Work>> in_flight;
    std::deque<c10::intrusive_ptr<DeviceWork>> device_in_flight;
    {
        const std::lock_guard<std::mutex> lock(in_flight_mutex_);
        in_flight.swap(in_flight_);
        device_in_flight.swap(device_in_flight_);
    }
    for (const auto &work : in_flight) {
        work->settleNow();
    }
    for (const auto &work : device_in_flight) {
        work->settleNow();
    }
}

void KoloBackend::shutdown()
{
    if (!comm_->closed()) {
        waitForPendingWorks();
        for (const auto &comm : communicators()) {
            comm->close();
        }
    }
}

} // namespace kolo_torch
