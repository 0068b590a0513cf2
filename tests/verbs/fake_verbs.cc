// SPDX-License-Identifier: Apache-2.0
/* A libibverbs in memory. See fake_verbs.h.
 *
 * What it keeps to, as the InfiniBand Architecture Specification says for reliable connections: the
 * work requests of a queue pair are carried out and complete in the order posted; a queue pair in
 * error completes all it has with an error, of receives too; a completion without error says that
 * the bytes are there, one with an error says nothing of them; keys, bounds and rights of memory
 * are checked at both ends; queues have ends, and a completion queue that overflows is an error of
 * the program, which it ends. */
#include "fake_verbs.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <infiniband/verbs.h>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#undef ibv_query_port
#undef ibv_reg_mr

namespace
{

constexpr int kTries = 60; /* of a work request that nobody answers */
constexpr int kMaxDevices = 8;
constexpr int kStepsMost = 8;

struct Context {
    ibv_context base{};
    int device = 0, subnet = 0;
    std::deque<ibv_async_event> events;
};

struct Memory {
    ibv_mr base{};
    int access = 0;
    bool dma_buf = false;
};

struct Queue {
    ibv_cq base{};
    std::deque<ibv_wc> entries;
    int size = 0;
    bool armed = false;
    int polls_before = -1; /* it gives nothing more for late_ms; -1: it goes on */
    std::chrono::steady_clock::time_point deaf_until;
};

struct Request {
    uint64_t id = 0;
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    bool signaled = false;
    uint32_t imm = 0;
    uint64_t remote = 0;
    uint32_t rkey = 0;
    const char *from = nullptr;
    std::vector<char> kept; /* what was inline */
    size_t len = 0, done = 0;
    uint32_t lkey = 0;
    bool inlined = false;
    int tries = 0;
};

struct Pair {
    ibv_qp base{};
    Queue *send_queue = nullptr, *recv_queue = nullptr;
    int device = 0, subnet = 0;
    uint32_t peer = 0, max_sends = 0, max_recvs = 0, max_inline = 0;
    uint8_t port = 0;
    uint32_t access = 0;
    std::deque<Request> sends; /* not carried out */
    std::deque<Request> acks;  /* carried out; the sender does not know */
    std::deque<uint64_t> recvs;
};

struct World {
    std::mutex lock;
    fake_verbs_rules rules{};
    fake_verbs_counts counts{};
    std::mt19937_64 chance{1};
    bool down[kMaxDevices] = {};
    std::map<uint32_t, Pair *> pairs; /* by number */
    std::map<uint32_t, Memory *> memories;
    std::vector<Context *> contexts;
    uint32_t last_number = 16, last_key = 1000;
    unsigned lists = 0; /* of devices, that were asked for */
};

World &TheWorld()
{
    static auto *world = new World; /* it stays: threads may end after main() */
    return *world;
}

fake_verbs_rules Defaults()
{
    fake_verbs_rules rules{};
    rules.seed = 1;
    rules.devices = 2;
    rules.inline_bytes = 220;
    rules.message_bytes = 1u << 30;
    rules.entries = 1 << 16;
    return rules;
}

struct Setup {
    Setup()
    {
        TheWorld().rules = Defaults();
    }
} setup;

bool Happens(World &w, uint32_t in_a_million)
{
    return in_a_million > 0 && w.chance() % 1000000 < in_a_million;
}

/* ---- completions ---- */

void Push(Queue *queue, const ibv_wc &wc)
{
    if ((int)queue->entries.size() >= queue->size) {
        std::fprintf(stderr, "fake_verbs: a completion queue of %d has overflowed\n", queue->size);
        std::abort();
    }
    queue->entries.push_back(wc);
    TheWorld().counts.unseen++;
    if (queue->armed && queue->base.channel != nullptr) {
        const uint64_t one = 1;
        queue->armed = false;
        (void)!write(queue->base.channel->fd, &one, sizeof one);
    }
}

void CompleteSend(Pair *pair, const Request &request, ibv_wc_status status)
{
    if (status == IBV_WC_SUCCESS && !request.signaled) {
        return;
    }
    ibv_wc wc{};
    wc.wr_id = request.id;
    wc.status = status;
    wc.qp_num = pair->base.qp_num;
    wc.opcode = IBV_WC_RDMA_WRITE;
    if (status != IBV_WC_SUCCESS) { /* but for id, status and number they mean nothing */
        wc.opcode = (ibv_wc_opcode)0x7f;
        wc.byte_len = 0xdeadbeef;
    }
    Push(pair->send_queue, wc);
}

void Flush(Pair *pair)
{
    for (const Request &request : pair->acks) {
        CompleteSend(pair, request, IBV_WC_WR_FLUSH_ERR);
    }
    for (const Request &request : pair->sends) {
        CompleteSend(pair, request, IBV_WC_WR_FLUSH_ERR);
    }
    for (const uint64_t id : pair->recvs) {
        ibv_wc wc{};
        wc.wr_id = id;
        wc.status = IBV_WC_WR_FLUSH_ERR;
        wc.opcode = (ibv_wc_opcode)0x7f;
        wc.qp_num = pair->base.qp_num;
        Push(pair->recv_queue, wc);
    }
    pair->acks.clear();
    pair->sends.clear();
    pair->recvs.clear();
}

void Tell(Context *context, const ibv_async_event &event)
{
    const uint64_t one = 1;
    context->events.push_back(event);
    (void)!write(context->base.async_fd, &one, sizeof one);
}

/* Its first request ends with `status`, all others are flushed. */
void Fail(Pair *pair, ibv_wc_status status)
{
    if (pair->base.state == IBV_QPS_ERR) {
        return;
    }
    pair->base.state = IBV_QPS_ERR;
    std::deque<Request> &first = !pair->acks.empty() ? pair->acks : pair->sends;
    if (status != IBV_WC_WR_FLUSH_ERR && !first.empty()) {
        CompleteSend(pair, first.front(), status);
        first.pop_front();
    }
    Flush(pair);
}

/* ---- carrying out ---- */

Memory *Find(World &w, uint32_t key, uint64_t at, size_t len, int access)
{
    const auto found = w.memories.find(key);
    if (found == w.memories.end()) {
        return nullptr;
    }
    Memory *memory = found->second;
    const auto begin = (uint64_t)(uintptr_t)memory->base.addr;
    const bool inside = at >= begin && at - begin <= memory->base.length &&
                        len <= memory->base.length - (at - begin);
    return inside && (memory->access & access) == access ? memory : nullptr;
}

Pair *Peer(World &w, const Pair *pair)
{
    const auto found = w.pairs.find(pair->peer);
    Pair *peer = found != w.pairs.end() ? found->second : nullptr;
    const bool up = !w.down[pair->device] && peer != nullptr && !w.down[peer->device];
    const bool takes = up && peer->subnet == pair->subnet &&
                       (peer->base.state == IBV_QPS_RTR || peer->base.state == IBV_QPS_RTS) &&
                       peer->peer == pair->base.qp_num;
    return takes ? peer : nullptr;
}

void Deliver(Pair *peer, const Request &request)
{
    ibv_wc wc{};
    wc.wr_id = peer->recvs.front();
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = request.imm;
    wc.byte_len = (uint32_t)request.len;
    wc.qp_num = peer->base.qp_num;
    peer->recvs.pop_front();
    Push(peer->recv_queue, wc);
}

void CarryOut(World &w, Pair *pair)
{
    Request &request = pair->sends.front();
    Pair *peer = Peer(w, pair);
    const bool notifies = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (peer == nullptr) {
        if (++request.tries > kTries) {
            Fail(pair, IBV_WC_RETRY_EXC_ERR);
        }
        return;
    }
    if (!request.inlined && request.len > 0 &&
        Find(w, request.lkey, (uintptr_t)request.from, request.len, 0) == nullptr) {
        Fail(pair, IBV_WC_LOC_PROT_ERR);
        return;
    }
    if (request.len > 0 &&
        Find(w, request.rkey, request.remote, request.len, IBV_ACCESS_REMOTE_WRITE) == nullptr) {
        Fail(pair, IBV_WC_REM_ACCESS_ERR);
        Fail(peer, IBV_WC_WR_FLUSH_ERR);
        return;
    }
    const char *from = request.inlined ? request.kept.data() : request.from;
    const auto is_dma_buf = [&](uint32_t key, bool used) {
        const auto found = w.memories.find(key);
        return used && found != w.memories.end() && found->second->dma_buf;
    };
    if (request.done < request.len) {
        const size_t left = request.len - request.done;
        const size_t now = left > 1 && Happens(w, w.rules.part) ? w.chance() % left : left;
        w.counts.parts += now < left;
        std::memcpy((char *)(uintptr_t)request.remote + request.done, from + request.done, now);
        request.done += now;
        w.counts.direct += is_dma_buf(request.lkey, !request.inlined) ? now : 0;
        w.counts.direct += is_dma_buf(request.rkey, true) ? now : 0;
        if (now < left) {
            return;
        }
    }
    if (notifies && (peer->recvs.empty() || Happens(w, w.rules.not_ready))) {
        w.counts.not_ready++;
        if (++request.tries > kTries) {
            Fail(pair, IBV_WC_RNR_RETRY_EXC_ERR);
        }
        return;
    }
    if (notifies) {
        Deliver(peer, request);
        if (!peer->recvs.empty() && Happens(w, w.rules.twice)) {
            w.counts.twice++;
            Deliver(peer, request);
        }
    }
    w.counts.writes++;
    pair->acks.push_back(std::move(request));
    pair->sends.pop_front();
    if (Happens(w, w.rules.lost)) {
        w.counts.lost++;
        Fail(pair, IBV_WC_RETRY_EXC_ERR);
    }
}

void SetPort(World &w, int device, bool up)
{
    if (w.down[device] == !up) {
        return;
    }
    w.down[device] = !up;
    w.counts.flaps++;
    for (Context *context : w.contexts) {
        if (context->device == device) {
            ibv_async_event event{};
            event.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
            event.element.port_num = 1;
            Tell(context, event);
        }
    }
}

void Step(World &w)
{
    if (w.rules.flap > 0) { /* a port is down for a short time, seen from far */
        const int device = (int)(w.chance() % (unsigned)w.rules.devices);
        if (Happens(w, w.down[device] ? 20 * w.rules.flap : w.rules.flap)) {
            SetPort(w, device, w.down[device]);
        }
    }
    if (w.pairs.empty()) {
        return;
    }
    auto at = w.pairs.begin();
    std::advance(at, (long)(w.chance() % w.pairs.size()));
    Pair *pair = at->second;
    if (pair->base.state != IBV_QPS_RTS || pair->device + 1 == w.rules.stuck) {
        return;
    }
    if (Happens(w, w.rules.broken)) {
        w.counts.broken++;
        Fail(pair, w.chance() % 2 == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_FATAL_ERR);
        return;
    }
    const bool acks = !pair->acks.empty() && (pair->sends.empty() || w.chance() % 2 == 0);
    if (acks) {
        const Request request = std::move(pair->acks.front());
        pair->acks.pop_front();
        CompleteSend(pair, request, IBV_WC_SUCCESS);
    } else if (!pair->sends.empty()) {
        CarryOut(w, pair);
    }
}

/* ---- the calls that go through a context ---- */

int PollQueue(ibv_cq *cq, int count, ibv_wc *out)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *queue = (Queue *)cq;
    const int steps = 1 + (int)(w.chance() % kStepsMost);
    for (int i = 0; i < steps; i++) {
        Step(w);
    }
    const auto now = std::chrono::steady_clock::now();
    if (queue->polls_before >= 0 && queue->polls_before-- == 0) {
        queue->deaf_until = now + std::chrono::milliseconds(w.rules.late_ms);
    }
    int n = 0;
    while (now >= queue->deaf_until && n < count && !queue->entries.empty()) {
        out[n++] = queue->entries.front();
        queue->entries.pop_front();
    }
    w.counts.unseen -= n;
    return n;
}

int Arm(ibv_cq *cq, int solicited)
{
    const std::lock_guard<std::mutex> guard(TheWorld().lock);
    (void)solicited;
    ((Queue *)cq)->armed = true;
    return 0;
}

int PostSend(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *pair = (Pair *)qp;
    for (; wr != nullptr; wr = wr->next) {
        const size_t len = wr->num_sge > 0 ? wr->sg_list[0].length : 0;
        *bad = wr;
        if (wr->num_sge > 1 || len > w.rules.message_bytes ||
            (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) ||
            ((wr->send_flags & IBV_SEND_INLINE) != 0 && len > pair->max_inline) ||
            (pair->base.state != IBV_QPS_RTS && pair->base.state != IBV_QPS_ERR)) {
            return EINVAL;
        }
        if (pair->sends.size() + pair->acks.size() >= pair->max_sends) {
            return ENOMEM;
        }
        Request request;
        request.id = wr->wr_id;
        request.opcode = wr->opcode;
        request.signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0;
        request.imm = wr->imm_data;
        request.remote = wr->wr.rdma.remote_addr;
        request.rkey = wr->wr.rdma.rkey;
        request.len = len;
        request.inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
        if (len > 0) {
            request.from = (const char *)(uintptr_t)wr->sg_list[0].addr;
            request.lkey = wr->sg_list[0].lkey;
        }
        if (request.inlined) {
            request.kept.assign(request.from, request.from + len);
        }
        pair->sends.push_back(std::move(request));
    }
    if (pair->base.state == IBV_QPS_ERR) {
        Flush(pair);
    }
    return 0;
}

int PostRecv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
    const std::lock_guard<std::mutex> guard(TheWorld().lock);
    auto *pair = (Pair *)qp;
    for (; wr != nullptr; wr = wr->next) {
        *bad = wr;
        if (pair->base.state == IBV_QPS_RESET) {
            return EINVAL;
        }
        if (pair->recvs.size() >= pair->max_recvs) {
            return ENOMEM;
        }
        pair->recvs.push_back(wr->wr_id);
    }
    if (pair->base.state == IBV_QPS_ERR) {
        Flush(pair);
    }
    return 0;
}

ibv_device *DeviceAt(int i)
{
    static ibv_device *const devices = [] { /* once, whichever thread comes first */
                                            auto *all = new ibv_device[kMaxDevices]{};
                                            for (int k = 0; k < kMaxDevices; k++) {
                                                std::snprintf(all[k].name, sizeof all[k].name,
                                                              "fake%d", k);
                                            }
                                            return all;
    }();
    return &devices[i];
}

} // namespace

/* ---- for the tests ---- */

extern "C" {

void fake_verbs_reset(void)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    w.rules = Defaults();
    w.lists = 0;
    w.chance.seed(1);
    const fake_verbs_counts now = w.counts;
    w.counts = {};
    w.counts.contexts = now.contexts;
    w.counts.pds = now.pds;
    w.counts.cqs = now.cqs;
    w.counts.qps = now.qps;
    w.counts.mrs = now.mrs;
    w.counts.channels = now.channels;
    w.counts.registered = now.registered;
    w.counts.unseen = now.unseen;
    std::fill(std::begin(w.down), std::end(w.down), false);
}

void fake_verbs_rule(const struct fake_verbs_rules *rules)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    if (rules->seed != w.rules.seed) {
        w.chance.seed(rules->seed);
    }
    w.rules = *rules;
}

struct fake_verbs_rules fake_verbs_rules_of(void)
{
    const std::lock_guard<std::mutex> guard(TheWorld().lock);
    return TheWorld().rules;
}

struct fake_verbs_counts fake_verbs_count(void)
{
    const std::lock_guard<std::mutex> guard(TheWorld().lock);
    return TheWorld().counts;
}

void fake_verbs_port(int device, int up)
{
    const std::lock_guard<std::mutex> guard(TheWorld().lock);
    SetPort(TheWorld(), device, up != 0);
}

void fake_verbs_break(int device)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    for (auto &[number, pair] : w.pairs) {
        if ((device < 0 || pair->device == device) && pair->base.state == IBV_QPS_RTS) {
            Fail(pair, IBV_WC_RETRY_EXC_ERR);
            if (w.rules.late_ms > 0) {
                pair->recv_queue->polls_before = w.chance() % 2 == 0 ? 0 : -1;
            }
        }
    }
}

/* ---- libibverbs ---- */

struct ibv_device **ibv_get_device_list(int *count)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    const int n = w.rules.devices;
    w.lists++;
    auto **list = (ibv_device **)std::calloc((size_t)n + 1, sizeof(ibv_device *));
    for (int i = 0; i < n; i++) {
        list[i] = DeviceAt(i);
    }
    *count = n;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    std::free((void *)list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *context = new Context;
    context->base.device = device;
    context->base.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    context->base.cmd_fd = -1;
    context->base.ops.poll_cq = PollQueue;
    context->base.ops.req_notify_cq = Arm;
    context->base.ops.post_send = PostSend;
    context->base.ops.post_recv = PostRecv;
    context->device = std::atoi(device->name + 4);
    const bool reversed = w.rules.crossed != 0 && w.lists % 2 == 0;
    const int place = reversed ? w.rules.devices - 1 - context->device : context->device;
    context->subnet = w.rules.apart != 0 ? place + 1 : 0;
    w.contexts.push_back(context);
    w.counts.contexts++;
    return &context->base;
}

int ibv_close_device(struct ibv_context *base)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *context = (Context *)base;
    w.contexts.erase(std::find(w.contexts.begin(), w.contexts.end(), context));
    close(base->async_fd);
    delete context;
    w.counts.contexts--;
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *out)
{
    (void)context;
    *out = ibv_device_attr{};
    out->phys_port_cnt = 1;
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *out = (ibv_port_attr *)(void *)compat;
    if (port != 1) {
        return EINVAL;
    }
    out->state = w.down[((Context *)context)->device] ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    out->active_mtu = IBV_MTU_4096;
    out->max_msg_sz = w.rules.message_bytes;
    out->gid_tbl_len = 1;
    out->pkey_tbl_len = 1;
    out->lid = 7;
    out->active_width = 2;
    out->active_speed = 32;
    out->link_layer = IBV_LINK_LAYER_INFINIBAND;
    return 0;
}

/* The prefix of the subnet names this process: another has memory of its own. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *out)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    const int device = ((Context *)context)->device;
    if (port != 1 || index != 0) {
        return -1;
    }
    std::memset(out, 0, sizeof *out);
    const uint32_t pid = (uint32_t)getpid();
    std::memcpy(out->raw, &pid, sizeof pid);
    out->raw[7] = (uint8_t)((Context *)context)->subnet;
    out->raw[15] = (uint8_t)(device + 1);
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *out)
{
    (void)context;
    *out = 0xffff;
    return port == 1 && index == 0 ? 0 : -1;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *pd = new ibv_pd{};
    pd->context = context;
    w.counts.pds++;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    w.counts.pds--;
    delete pd;
    return 0;
}

static Memory *Register(World &w, struct ibv_pd *pd, void *at, size_t len, int access)
{
    if (w.rules.locked > 0 && w.counts.registered + len > w.rules.locked) {
        errno = ENOMEM;
        return nullptr;
    }
    auto *memory = new Memory;
    memory->base.context = pd->context;
    memory->base.pd = pd;
    memory->base.addr = at;
    memory->base.length = len;
    memory->access = access;
    memory->base.lkey = memory->base.rkey = ++w.last_key;
    w.memories[w.last_key] = memory;
    w.counts.mrs++;
    w.counts.registered += len;
    return memory;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t len, int access)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    if (w.rules.refuse_host != 0) {
        errno = w.rules.refuse_host;
        return nullptr;
    }
    Memory *memory = Register(w, pd, at, len, access);
    return memory != nullptr ? &memory->base : nullptr;
}

#ifndef FAKE_VERBS_OLD
/* A dma-buf of fake_cuda.cc: a file whose first word is the address of its first byte, which the
 * registration must name, and whose length is how much it is of. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                 int fd, int access)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    uint64_t begin = 0;
    struct stat file {
    };
    errno = EINVAL;
    if (w.rules.refuse_dma_buf != 0) {
        errno = w.rules.refuse_dma_buf;
        return nullptr;
    }
    if (fstat(fd, &file) != 0 || pread(fd, &begin, sizeof begin, 0) != (ssize_t)sizeof begin ||
        begin + offset != iova || offset + len > (uint64_t)file.st_size) {
        return nullptr;
    }
    Memory *memory = Register(w, pd, (void *)(uintptr_t)iova, len, access);
    if (memory == nullptr) {
        return nullptr;
    }
    memory->dma_buf = true;
    w.counts.dma_bufs++;
    return &memory->base;
}
#endif

int ibv_dereg_mr(struct ibv_mr *mr)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    w.counts.mrs--;
    w.counts.registered -= mr->length;
    w.memories.erase(mr->lkey);
    delete (Memory *)mr;
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *channel = new ibv_comp_channel{};
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC);
    w.counts.channels++;
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    w.counts.channels--;
    close(channel->fd);
    delete channel;
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    uint64_t count = 0;
    if (read(channel->fd, &count, sizeof count) != (ssize_t)sizeof count) {
        return -1;
    }
    *cq = nullptr;
    *context = nullptr;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    (void)cq;
    (void)count;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *own,
                             struct ibv_comp_channel *channel, int vector)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    (void)vector;
    if (entries > w.rules.entries) {
        errno = EINVAL;
        return nullptr;
    }
    auto *queue = new Queue;
    queue->base.context = context;
    queue->base.channel = channel;
    queue->base.cq_context = own;
    queue->size = entries;
    w.counts.cqs++;
    return &queue->base;
}

int ibv_resize_cq(struct ibv_cq *cq, int entries)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *queue = (Queue *)cq;
    if (entries > w.rules.entries || entries < (int)queue->entries.size()) {
        return EINVAL;
    }
    queue->size = entries;
    return 0;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    for (const auto &[number, pair] : w.pairs) {
        if (&pair->send_queue->base == cq || &pair->recv_queue->base == cq) {
            return EBUSY;
        }
    }
    w.counts.cqs--;
    w.counts.unseen -= (int)((Queue *)cq)->entries.size();
    delete (Queue *)cq;
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    if (attr->cap.max_inline_data > w.rules.inline_bytes || attr->qp_type != IBV_QPT_RC) {
        errno = EINVAL;
        return nullptr;
    }
    auto *pair = new Pair;
    pair->base.context = pd->context;
    pair->base.pd = pd;
    pair->base.qp_num = ++w.last_number;
    pair->base.state = IBV_QPS_RESET;
    pair->device = ((Context *)pd->context)->device;
    pair->subnet = ((Context *)pd->context)->subnet;
    pair->send_queue = (Queue *)attr->send_cq;
    pair->recv_queue = (Queue *)attr->recv_cq;
    pair->max_sends = attr->cap.max_send_wr;
    pair->max_recvs = attr->cap.max_recv_wr;
    pair->max_inline = attr->cap.max_inline_data;
    w.pairs[pair->base.qp_num] = pair;
    w.counts.qps++;
    return &pair->base;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    auto *pair = (Pair *)qp;
    if ((mask & IBV_QP_STATE) == 0) {
        return EINVAL;
    }
    switch (attr->qp_state) {
    case IBV_QPS_INIT:
        pair->port = attr->port_num;
        pair->access = attr->qp_access_flags;
        break;
    case IBV_QPS_RTR:
        if (qp->state != IBV_QPS_INIT || (mask & IBV_QP_DEST_QPN) == 0 || pair->port != 1) {
            return EINVAL;
        }
        pair->peer = attr->dest_qp_num;
        break;
    case IBV_QPS_RTS:
        if (qp->state != IBV_QPS_RTR || attr->rnr_retry == 7 || attr->timeout == 0) {
            return EINVAL; /* for ever is too long */
        }
        break;
    case IBV_QPS_ERR:
        Fail(pair, IBV_WC_WR_FLUSH_ERR);
        break;
    default:
        return EINVAL;
    }
    qp->state = attr->qp_state;
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    World &w = TheWorld();
    const std::lock_guard<std::mutex> guard(w.lock);
    w.pairs.erase(qp->qp_num);
    w.counts.qps--;
    delete (Pair *)qp; /* its completions stay in their queue, as some devices leave them */
    return 0;
}

int ibv_get_async_event(struct ibv_context *base, struct ibv_async_event *out)
{
    uint64_t one = 0;
    auto *context = (Context *)base;
    if (read(base->async_fd, &one, sizeof one) != (ssize_t)sizeof one) {
        return -1;
    }
    const std::lock_guard<std::mutex> guard(TheWorld().lock);
    *out = context->events.front();
    context->events.pop_front();
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR       ? "transport retry counter exceeded"
           : status == IBV_WC_RNR_RETRY_EXC_ERR ? "RNR retry counter exceeded"
           : status == IBV_WC_WR_FLUSH_ERR      ? "Work Request Flushed Error"
           : status == IBV_WC_REM_ACCESS_ERR    ? "remote access error"
           : status == IBV_WC_LOC_PROT_ERR      ? "local protection error"
                                                : "fatal error";
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
    return type == IBV_EVENT_PORT_ACTIVE ? "port active" : "port error";
}

} /* extern "C" */
