// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <deque>
#include <map>
#include <random>
#include <tuple>

namespace
{

uint64_t Mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x7fb5d329728ea185);
    x ^= x >> 27;
    x *= UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

struct Value {
    uint64_t sum, hash;
    bool operator==(const Value &other) const
    {
        return sum == other.sum && hash == other.hash;
    }
};

Value Leaf(int rank, int chunk)
{
    const uint64_t name =
        Mix(static_cast<uint64_t>(rank) * 4099 + static_cast<uint64_t>(chunk) + 1);
    return {name, Mix(name + 7)};
}

Value Add(const Value &left, const Value &right)
{
    return {left.sum + right.sum, Mix(left.hash * 3 + Mix(right.hash) * 5 + 11)};
}

struct Rank {
    std::vector<Value> memory[KOLO_BUFS];
    bool in_place = false;
    std::vector<bool> done;
    std::vector<std::vector<int>> lane; // step indices
    std::vector<size_t> next;
};

class Machine
{
  public:
    Machine(const kolo_plan *plan, unsigned seed) : plan_(plan), random_(seed)
    {
        ranks_.resize(static_cast<size_t>(plan->shape.nranks));
        for (int r = 0; r < plan->shape.nranks; r++) {
            Prepare(r, seed);
        }
    }

    // Run until nothing moves; rank `held` (or none, -1) does nothing.
    void Run(int held)
    {
        std::vector<std::pair<int, int>> idle, active;
        for (int r = 0; r < plan_->shape.nranks; r++) {
            for (int lane = 0; r != held && lane < plan_->lanes; lane++) {
                active.push_back({r, lane});
            }
        }
        while (!active.empty() && error_.empty()) {
            const size_t pick = random_() % active.size();
            if (Step(active[pick].first, active[pick].second)) {
                active.insert(active.end(), idle.begin(), idle.end()); // they may go on now
                idle.clear();
            } else {
                idle.push_back(active[pick]);
                active.erase(active.begin() + static_cast<long>(pick));
            }
        }
    }

    bool Finished(int r) const
    {
        const Rank &rank = ranks_[static_cast<size_t>(r)];
        for (size_t lane = 0; lane < rank.lane.size(); lane++) {
            if (rank.next[lane] < rank.lane[lane].size()) {
                return false;
            }
        }
        return true;
    }

    std::string Judge()
    {
        for (int r = 0; error_.empty() && r < plan_->shape.nranks; r++) {
            if (!Finished(r)) {
                return "rank " + std::to_string(r) + " is stuck";
            }
            JudgeRank(r);
        }
        for (const auto &entry : queues_) {
            if (!entry.second.empty()) {
                return "a message was never received";
            }
        }
        return error_;
    }

  private:
    int Chunks(int r, int buf) const
    {
        return kolo_plan_buf_chunks(plan_, r, static_cast<kolo_buf>(buf));
    }

    void Prepare(int r, unsigned seed)
    {
        Rank &rank = ranks_[static_cast<size_t>(r)];
        rank.in_place = seed == 1 || (seed > 1 && random_() % 2 == 0);
        for (int buf = 0; buf < KOLO_BUFS; buf++) {
            for (int c = 0; c < Chunks(r, buf); c++) {
                rank.memory[buf].push_back({Mix(random_()), Mix(random_())});
            }
        }
        for (int c = 0; c < Chunks(r, KOLO_IN); c++) {
            *Cell(r, KOLO_IN, c) = Leaf(r, c);
        }
        rank.done.assign(static_cast<size_t>(plan_->rank[r].count), false);
        rank.lane.resize(static_cast<size_t>(plan_->lanes));
        rank.next.assign(rank.lane.size(), 0);
        for (int i = 0; i < plan_->rank[r].count; i++) {
            rank.lane[plan_->rank[r].step[i].lane].push_back(i);
        }
    }

    Value *Cell(int r, unsigned buf, int chunk)
    {
        Rank &rank = ranks_[static_cast<size_t>(r)];
        if (chunk < 0 || chunk >= Chunks(r, static_cast<int>(buf))) {
            error_ = "rank " + std::to_string(r) + " is out of bounds";
            return nullptr;
        }
        if (buf == KOLO_IN && rank.in_place) {
            const int alias = kolo_alias_out_chunk(plan_, r, chunk);
            if (alias >= 0) {
                return &rank.memory[KOLO_OUT][static_cast<size_t>(alias)];
            }
        }
        return &rank.memory[buf][static_cast<size_t>(chunk)];
    }

    std::vector<Value> Load(int r, const kolo_slice &slice)
    {
        std::vector<Value> values;
        for (int i = 0; i < slice.count; i++) {
            const Value *cell = Cell(r, slice.buf, static_cast<int>(slice.first) + i);
            if (cell != nullptr) {
                values.push_back(*cell);
            }
        }
        return values;
    }

    void Store(int r, const kolo_step &step, const std::vector<Value> &values)
    {
        const bool adds = step.op == KOLO_RECV_REDUCE || step.op == KOLO_REDUCE;
        for (size_t i = 0; i < values.size(); i++) {
            Value *cell = Cell(r, step.dst.buf, static_cast<int>(step.dst.first + i));
            if (cell == nullptr) {
                return;
            }
            Value result = values[i];
            if (adds) {
                result =
                    step.flags & KOLO_STEP_LEFT ? Add(values[i], *cell) : Add(*cell, values[i]);
            }
            if (adds && (step.flags & KOLO_STEP_LAST) != 0) {
                result.sum = Mix(result.sum + 1);
            }
            *cell = result;
        }
    }

    // Whether this lane could do its next step, and did.
    bool Step(int r, int lane)
    {
        Rank &rank = ranks_[static_cast<size_t>(r)];
        size_t &next = rank.next[static_cast<size_t>(lane)];
        const std::vector<int> &order = rank.lane[static_cast<size_t>(lane)];
        if (next == order.size()) {
            return false;
        }
        const int index = order[next];
        const kolo_step &step = plan_->rank[r].step[index];
        if (step.dep >= 0 && !rank.done[static_cast<size_t>(step.dep)]) {
            return false;
        }
        if (step.op == KOLO_SEND) {
            queues_[{r, step.peer, lane}].push_back(Load(r, step.src));
        } else if (step.op == KOLO_COPY || step.op == KOLO_REDUCE) {
            Store(r, step, Load(r, step.src));
        } else {
            auto &queue = queues_[{step.peer, r, lane}];
            if (queue.empty()) {
                return false;
            }
            if (queue.front().size() != step.dst.count) {
                error_ = "a message of another size";
            }
            Store(r, step, queue.front());
            queue.pop_front();
        }
        rank.done[static_cast<size_t>(index)] = true;
        next++;
        return true;
    }

    void JudgeRank(int r)
    {
        for (int c = 0; !ranks_[static_cast<size_t>(r)].in_place && c < Chunks(r, KOLO_IN); c++) {
            if (!(*Cell(r, KOLO_IN, c) == Leaf(r, c))) {
                error_ = "rank " + std::to_string(r) + " wrote its input";
            }
        }
        for (int c = 0; c < Chunks(r, KOLO_OUT); c++) {
            const Value found = *Cell(r, KOLO_OUT, c);
            const bool right =
                kolo_coll_reduces(plan_->shape.coll) ? Reduced(r, c, found) : found == Moved(r, c);
            if (!right) {
                error_ = "rank " + std::to_string(r) + " has a wrong chunk " + std::to_string(c);
            }
        }
    }

    Value Moved(int r, int c) const
    {
        const int root = plan_->shape.root;
        switch (plan_->shape.coll) {
        case KOLO_COLL_BROADCAST:
            return Leaf(root, c);
        case KOLO_COLL_SCATTER:
            return Leaf(root, r);
        case KOLO_COLL_ALL_TO_ALL:
            return Leaf(c, r);
        default:
            return Leaf(c, 0);
        }
    }

    // The sum is right; the expression is that of the first rank that holds this chunk.
    bool Reduced(int r, int c, const Value &found)
    {
        const int n = plan_->shape.nranks;
        const int of = plan_->shape.coll == KOLO_COLL_REDUCE_SCATTER ? r : c;
        uint64_t sum = 0;
        for (int q = 0; q < n; q++) {
            sum += Leaf(q, of).sum;
        }
        const auto first = expression_.insert({of, found.hash}).first;
        return found.sum == (n > 1 ? Mix(sum + 1) : sum) && first->second == found.hash;
    }

    const kolo_plan *plan_;
    std::mt19937 random_;
    std::vector<Rank> ranks_;
    std::map<std::tuple<int, int, int>, std::deque<std::vector<Value>>> queues_;
    std::map<int, uint64_t> expression_;
    std::string error_;
};

} // namespace

std::string RunOnNumbers(const kolo_plan *plan, unsigned seed)
{
    Machine machine(plan, seed);
    machine.Run(-1);
    return machine.Judge();
}

std::string RunBarrier(const kolo_plan *plan)
{
    for (int late = 0; late < plan->shape.nranks; late++) {
        Machine machine(plan, 0);
        machine.Run(late);
        for (int r = 0; r < plan->shape.nranks; r++) {
            if (r != late && machine.Finished(r)) {
                return "rank " + std::to_string(r) + " leaves without rank " + std::to_string(late);
            }
        }
    }
    return "";
}
