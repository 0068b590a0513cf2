// SPDX-License-Identifier: Apache-2.0
/* A kolo communicator whose ranks meet through a c10d Store, and the streams that its asynchronous
 * calls run on.
 *
 * - Host memory: each call under way has a kolo stream of its own. So it has its own end, its own
 *   status and its own time-out.
 * - Device memory: the asynchronous calls share one stream of the device. */
#pragma once

#include <kolo/kolo.h>

#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace kolo_torch
{

/* The options of init_process_group(pg_options=...). Unset members take kolo's defaults. */
struct KoloOptions : c10d::Backend::Options {
    explicit KoloOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options("kolo", timeout)
    {
    }
    bool deterministic = false;
    std::string algo, transport; /* "": kolo's choice, or KOLO_ALGO and KOLO_TRANSPORT */
    std::string codec;           /* of float32 in host memory; "": none */
};

/* Throw the Python exception for a status: ValueError, NotImplementedError or DistBackendError. Its
 * text is `said`, or else kolo's sentence for this thread's last failure. Does nothing for KOLO_OK.
 */
void check(kolo_status status, const std::string &where, const char *said = nullptr);
/* What config.timeout_ms takes. */
/* A warning of kolo, in c10d's log, which is standard error unless TORCH_CPP_LOG_LEVEL excludes it. */
void warn(const char *text);

int milliseconds(std::chrono::milliseconds timeout);
/* The exception for a status; null for KOLO_OK. */
std::exception_ptr failure(kolo_status status, const std::string &where,
                           const char *said = nullptr);

class Communicator
{
  public:
    /* Returns when all ranks have joined. `meeting` is the name of this communicator in the store.
     * `device`: its calls take memory of this device; none: host memory. Errors: as check(). */
    Communicator(const c10::intrusive_ptr<c10d::Store> &store, const std::string &meeting, int rank,
                 int size, const KoloOptions &options,
                 const std::optional<c10::Device> &device = std::nullopt);
    /* Make a communicator of some ranks of `parent`. Only they call it, in the same order as others
     * of the same group_name. Null: the ranks of `parent` are on several hosts. */
    static std::shared_ptr<Communicator>
    among(Communicator &parent, const std::vector<int> &members, const KoloOptions &options);
    /* Make a new communicator of the survivors. Only survivors call it. */
    Communicator(Communicator &old, const std::vector<int> &exclude, const KoloOptions &options);
    /* Make a new communicator of members of `old` and new ranks: kolo_comm_reconfigure(). */
    Communicator(Communicator &old, const kolo_id &id, const std::vector<int> &members,
                 const KoloOptions &options);
    /* Enter one that others make so, as a new rank. */
    Communicator(const kolo_id &id, int size, int rank, const KoloOptions &options);
    ~Communicator();
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;

    /* Errors: RuntimeError after close(). */
    kolo_comm *get() const;
    bool closed() const
    {
        return comm_ == nullptr || forked();
    }
    std::chrono::milliseconds timeout() const
    {
        return timeout_;
    }

    /* The stream of asynchronous calls on device memory. */
    const c10::Stream &side() const
    {
        return *side_;
    }
    /* The failure that ended the communicator; KOLO_OK: none. Any thread may call it. */
    kolo_status error();
    /* The failure that ended the communicator, as an exception; null: none. */
    std::exception_ptr failure(const std::string &where);

    /* A stream whose calls have this time-out, and back. */
    kolo_stream takeStream(std::chrono::milliseconds timeout);
    void giveStream(kolo_stream stream, std::chrono::milliseconds timeout);

    /* A premultiplied sum. It is kept, because the next call will need the same one. */
    kolo_op premulsum(const c10d::ReduceOp &op, kolo_type type);

    void abort();
    void close();

  private:
    Communicator(kolo_comm *comm, std::chrono::milliseconds timeout);
    bool forked() const;

    kolo_comm *comm_ = nullptr;
    const std::chrono::milliseconds timeout_;
    const int pid_;
    std::optional<c10::Stream> side_;
    std::mutex mutex_; /* of the members below */
    std::vector<kolo_stream> idle_;
    std::map<std::pair<int, uint64_t>, kolo_op> premulsums_;
    std::map<std::string, unsigned> groups_; /* made of this one, by name */
};

} // namespace kolo_torch
