// SPDX-License-Identifier: Apache-2.0
/* Communicators: how one is made through the store, its pool of kolo streams, and how kolo's errors
 * become exceptions of Python. */
#include "comm.hpp"

#include "types.hpp"

#include <algorithm>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <climits>
#include <cstring>
#include <unistd.h>

namespace kolo_torch
{

namespace
{

constexpr size_t kPremulsums = 64;                        /* factors that are kept */
constexpr std::chrono::milliseconds kJoinPatience{10000}; /* with a rank that does not join */

kolo_config configuration(const KoloOptions &options)
{
    kolo_config config = KOLO_CONFIG_INIT;
    if (options.deterministic) {
        config.deterministic = 1;
    }
    config.timeout_ms = milliseconds(options.timeout);
    config.name = options.group_name.empty() ? "torch" : options.group_name.c_str();
    config.algo = options.algo.empty() ? nullptr : options.algo.c_str();
    config.transport = options.transport.empty() ? nullptr : options.transport.c_str();
    return config;
}

/* Ranks wait for rank 0, whose id they need, as kolo waits for the others: with a warning. */
void awaitId(c10d::Store &store, const std::string &key, const KoloOptions &options)
{
    const auto first = std::min(kJoinPatience, options.timeout);
    try {
        store.wait({key}, first);
    } catch (const std::exception &) {
        if (first == options.timeout) {
            throw;
        }
        const auto &global = options.global_ranks_in_group;
        warn(c10::str("group ", options.group_name, " has waited ", first.count() / 1000,
                      " s for rank ", global.empty() ? 0 : global[0], " to join")
                 .c_str());
        store.wait({key}, options.timeout - first);
    }
}

/* What is in the store for sure. get() would wait for it first, in a round trip of its own. An
 * exchange for a value that no id has only reads; not every store has it. */
std::vector<uint8_t> readId(c10d::Store &store, const std::string &key)
{
    const std::vector<uint8_t> no_id{0};
    try {
        std::vector<uint8_t> bytes = store.compareSet(key, no_id, no_id);
        if (bytes.size() == sizeof(kolo_id)) {
            return bytes;
        }
    } catch (const std::exception &) {
    }
    return store.get(key);
}

} // namespace

void warn(const char *text)
{
    LOG(WARNING) << "[c10d] kolo: " << text;
}

int milliseconds(std::chrono::milliseconds timeout)
{
    return static_cast<int>(std::clamp<int64_t>(timeout.count(), 1, INT_MAX));
}

void check(kolo_status status, const std::string &where, const char *said)
{
    if (C10_UNLIKELY(status < 0)) {
        /* The words of other backends, for which programs and tools search. */
        const char *words = status == KOLO_ERR_TIMEOUT ? "Timed out - "
                            : status == KOLO_ERR_PEER  ? "Connection closed by peer - "
                                                       : "";
        const std::string text =
            c10::str("kolo: ", where, ": ", words, said != nullptr ? said : kolo_error_text(), " (",
                     kolo_status_name(status), ")");
        switch (status) {
        case KOLO_ERR_INVALID:
            C10_THROW_ERROR(ValueError, text);
        case KOLO_ERR_UNSUPPORTED:
            C10_THROW_ERROR(NotImplementedError, text);
        default:
            C10_THROW_ERROR(DistBackendError, text);
        }
    }
}

std::exception_ptr failure(kolo_status status, const std::string &where, const char *said)
{
    try {
        check(status, where, said);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

Communicator::Communicator(const c10::intrusive_ptr<c10d::Store> &store, const std::string &meeting,
                           int rank, int size, const KoloOptions &options,
                           const std::optional<c10::Device> &device)
    : timeout_(options.timeout), pid_(getpid())
{
    kolo_id id;
    kolo_config config = configuration(options);
    if (device) {
        config.device = device->index();
        const c10::impl::VirtualGuardImpl guard(device->type());
        /* Of high priority: a call that waits for other ranks is then in no hardware queue that
         * the streams of the model use. */
        side_ = guard.getStreamFromGlobalPool(*device, true);
    }
    /* split_group() makes a group for each kind of device over one store. The k-th group of each
     * rank meets the k-th group of the others. */
    const std::string key = c10::str(meeting, store->add(c10::str(meeting, "_of_", rank), 1));
    if (rank == 0) {
        check(kolo_id_create(&id), "init_process_group");
        store->set(key, std::vector<uint8_t>(id.bytes, id.bytes + sizeof id.bytes));
    } else {
        awaitId(*store, key, options);
        const std::vector<uint8_t> bytes = readId(*store, key);
        TORCH_CHECK(bytes.size() == sizeof id.bytes, "kolo: the store's ", key, " has ",
                    bytes.size(), " bytes, not ", sizeof id.bytes);
        std::memcpy(id.bytes, bytes.data(), sizeof id.bytes);
    }
    check(kolo_comm_create(&id, size, rank, &config, &comm_), "init_process_group");
}

Communicator::Communicator(kolo_comm *comm, std::chrono::milliseconds timeout)
    : comm_(comm), timeout_(timeout), pid_(getpid())
{
}

std::shared_ptr<Communicator> Communicator::among(Communicator &parent,
                                                  const std::vector<int> &members,
                                                  const KoloOptions &options)
{
    const kolo_config config = configuration(options);
    kolo_comm *made = nullptr;
    std::string tag;
    { /* The k-th group of a name meets the k-th group of the other members. */
        const std::lock_guard<std::mutex> lock(parent.mutex_);
        tag = c10::str(options.group_name, "/", parent.groups_[options.group_name]++);
    }
    const kolo_status status =
        kolo_comm_create_group(parent.get(), members.data(), static_cast<int>(members.size()),
                               tag.c_str(), &config, &made);
    if (status == KOLO_ERR_UNSUPPORTED) {
        return nullptr;
    }
    check(status, "new_group");
    return std::shared_ptr<Communicator>(new Communicator(made, options.timeout));
}

Communicator::Communicator(Communicator &old, const std::vector<int> &exclude,
                           const KoloOptions &options)
    : timeout_(options.timeout), pid_(getpid())
{
    const kolo_config config = configuration(options);
    check(kolo_comm_shrink(old.get(), exclude.data(), static_cast<int>(exclude.size()), &config,
                           &comm_),
          "shrink_group");
}

Communicator::Communicator(Communicator &old, const kolo_id &id, const std::vector<int> &members,
                           const KoloOptions &options)
    : timeout_(options.timeout), pid_(getpid())
{
    const kolo_config config = configuration(options);
    check(kolo_comm_reconfigure(old.get(), &id, members.data(), static_cast<int>(members.size()),
                                &config, &comm_),
          "reconfigure");
}

Communicator::Communicator(const kolo_id &id, int size, int rank, const KoloOptions &options)
    : timeout_(options.timeout), pid_(getpid())
{
    const kolo_config config = configuration(options);
    check(kolo_comm_enter(&id, size, rank, &config, &comm_), "enter");
}

/* In a forked child, all of this belongs to the parent, and is not touched. */
bool Communicator::forked() const
{
    return getpid() != pid_;
}

Communicator::~Communicator()
{
    close();
}

kolo_comm *Communicator::get() const
{
    TORCH_CHECK(comm_ != nullptr, "kolo: the process group was destroyed");
    return comm_;
}

kolo_status Communicator::error()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return closed() ? KOLO_OK : kolo_comm_error(comm_);
}

std::exception_ptr Communicator::failure(const std::string &where)
{
    kolo_failure what{};
    what.size = sizeof what;
    const std::lock_guard<std::mutex> lock(mutex_);
    const kolo_status status = closed() ? KOLO_OK : kolo_comm_error(comm_);
    if (status == KOLO_OK) {
        return nullptr;
    }
    const bool known = kolo_comm_failure(comm_, &what) == KOLO_OK;
    return kolo_torch::failure(status, where, known ? what.text : nullptr);
}

kolo_stream Communicator::takeStream(std::chrono::milliseconds timeout)
{
    kolo_stream stream = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!idle_.empty()) {
            stream = idle_.back();
            idle_.pop_back();
        }
    }
    if (stream == nullptr) {
        check(kolo_stream_create(&stream), "stream");
    }
    if (timeout != timeout_) {
        check(kolo_stream_set_timeout(stream, milliseconds(timeout)), "timeout");
    }
    return stream;
}

void Communicator::giveStream(kolo_stream stream, std::chrono::milliseconds timeout)
{
    if (timeout != timeout_) {
        check(kolo_stream_set_timeout(stream, 0), "timeout");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comm_ != nullptr) {
        idle_.push_back(stream);
        return;
    }
    kolo_stream_destroy(stream);
}

kolo_op Communicator::premulsum(const c10d::ReduceOp &op, kolo_type type)
{
    uint64_t factor = 0;
    premultiplier(op, type, &factor);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto key = std::make_pair(static_cast<int>(type), factor);
    const auto known = premulsums_.find(key);
    if (known != premulsums_.end()) {
        return known->second;
    }
    kolo_op made = 0;
    check(kolo_op_create_premulsum(&factor, type, get(), &made), "ReduceOp.PREMUL_SUM");
    if (premulsums_.size() < kPremulsums) { /* the others live as long as the communicator */
        premulsums_[key] = made;
    }
    return made;
}

void Communicator::abort()
{
    if (!closed()) {
        kolo_comm_abort(comm_);
    }
}

void Communicator::close()
{
    if (closed()) {
        return;
    }
    std::vector<kolo_stream> idle;
    kolo_comm *comm = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::swap(comm, comm_);
        idle.swap(idle_);
    }
    kolo_comm_destroy(comm);
    for (const kolo_stream stream : idle) {
        kolo_stream_destroy(stream);
    }
}

} // namespace kolo_torch
