// SPDX-License-Identifier: Apache-2.0
#include "mutants.h"

#include <cstring>
#include <functional>
#include <utility>

namespace
{

template <class T> T *CopyOf(const T *from, size_t count)
{
    T *copy = static_cast<T *>(std::calloc(count + 1, sizeof(T)));
    if (count > 0) {
        std::memcpy(copy, from, count * sizeof(T));
    }
    return copy;
}

Prog Clone(const kolo_prog *from)
{
    kolo_prog *copy = CopyOf(from, 1);
    copy->op = CopyOf(from->op, from->nops);
    copy->at = CopyOf(from->at, from->nats);
    copy->readers = CopyOf(from->readers, static_cast<size_t>(from->nreaders));
    copy->sources = CopyOf(from->sources, static_cast<size_t>(from->nsources));
    copy->entries = CopyOf(from->entries, static_cast<size_t>(from->nentries));
    return Prog(copy);
}

void RemoveOp(kolo_prog *p, uint32_t i)
{
    std::memmove(&p->op[i], &p->op[i + 1], (p->nops - i - 1) * sizeof *p->op);
    p->nops--;
    for (int l = 0; l < p->nlanes; l++) {
        kolo_lane_ops *lane = &p->lane[l];
        lane->begin -= lane->begin > i;
        lane->end -= lane->end > i;
        for (int s = 0; s <= lane->nstages; s++) {
            lane->stage[s] -= lane->stage[s] > i;
        }
    }
    for (uint32_t k = 0; k < p->nops; k++) {
        p->op[k].index -= p->op[k].code == KOLO_DO_AFTER && p->op[k].index > i;
    }
}

void RemoveOperand(kolo_prog *p, uint32_t i, uint32_t k)
{
    kolo_uop *op = &p->op[i];
    kolo_at *at = &p->at[op->first];
    const uint32_t all = static_cast<uint32_t>(op->nsrc) + op->ndst;
    std::memmove(at + k, at + k + 1, (all - k - 1) * sizeof *at);
    (k < op->nsrc ? op->nsrc : op->ndst)--;
}

class Maker
{
  public:
    Maker(const kolo_plan *plan, const kolo_prog *prog, const std::vector<uint8_t> &bits)
        : plan_(plan), prog_(prog), bits_(bits)
    {
    }

    std::vector<Mutant> All()
    {
        for (uint32_t i = 0; i < prog_->nops; i++) {
            OfOp(i);
            OfOperands(i);
        }
        OfWhole();
        return std::move(all_);
    }

  private:
    void Add(Fault fault, const std::string &what, const std::function<void(kolo_prog *)> &change)
    {
        Prog copy = Clone(prog_);
        change(copy.get());
        all_.push_back({fault, "rank " + std::to_string(prog_->me) + ", " + what, std::move(copy)});
    }
    void AddOp(Fault fault, uint32_t i, const std::string &what,
               const std::function<void(kolo_uop *, kolo_at *)> &change)
    {
        Add(fault, "op " + std::to_string(i) + ": " + what,
            [&](kolo_prog *p) { change(&p->op[i], &p->at[p->op[i].first]); });
    }

    void OfOp(uint32_t i)
    {
        const kolo_uop &op = prog_->op[i];
        Add(Fault::kDropOp, "op " + std::to_string(i), [&](kolo_prog *p) { RemoveOp(p, i); });
        if (i + 1 < prog_->nops && LaneOf(i) == LaneOf(i + 1)) {
            Add(Fault::kSwapNext, "op " + std::to_string(i),
                [&](kolo_prog *p) { std::swap(p->op[i], p->op[i + 1]); });
        }
        if (op.code == KOLO_DO_MOVE) {
            OfMove(i);
        }
        if (op.code == KOLO_DO_SEND || op.code == KOLO_DO_RECV) {
            OfMessage(i);
        }
        if (op.code == KOLO_DO_AFTER && op.index > prog_->lane[op.peer].begin) {
            AddOp(Fault::kWrongIndex, i, "an op earlier",
                  [](kolo_uop *u, kolo_at *) { u->index--; });
        }
    }

    void OfMove(uint32_t i)
    {
        const kolo_uop &op = prog_->op[i];
        for (uint32_t k = 0; k + 1 < op.nsrc; k++) {
            AddOp(Fault::kSwapSources, i, "sources " + std::to_string(k),
                  [k](kolo_uop *, kolo_at *at) { std::swap(at[k], at[k + 1]); });
        }
        if (op.ndst > 0) {
            AddOp(Fault::kSwapMeaning, i, "source for destination",
                  [](kolo_uop *u, kolo_at *at) { std::swap(at[0], at[u->nsrc]); });
        }
        if (kolo_coll_reduces(plan_->shape.coll)) {
            AddOp(Fault::kFlipLast, i, "last", [](kolo_uop *u, kolo_at *) { u->last ^= 1; });
        }
    }

    void OfMessage(uint32_t i)
    {
        const kolo_uop &op = prog_->op[i];
        AddOp(Fault::kSwapMeaning, i, "send for receive", [](kolo_uop *u, kolo_at *) {
            u->code = u->code == KOLO_DO_SEND ? KOLO_DO_RECV : KOLO_DO_SEND;
            std::swap(u->nsrc, u->ndst);
        });
        AddOp(Fault::kWrongIndex, i, "the next channel",
              [](kolo_uop *u, kolo_at *) { u->channel = (u->channel + 1) % KOLO_PLAN_CHANNELS; });
        if (op.code == KOLO_DO_RECV && !op.lent) {
            AddOp(Fault::kWrongFact, i, "lent", [](kolo_uop *u, kolo_at *) { u->lent = 1; });
        }
        if (op.index + 1 < prog_->nreqs) {
            AddOp(Fault::kWrongRequest, i, "the next request",
                  [](kolo_uop *u, kolo_at *) { u->index++; });
        }
        for (int q = 0; q < plan_->shape.nranks; q++) {
            if (q != prog_->me && q != op.peer && bits_[static_cast<size_t>(q)] == 0) {
                AddOp(Fault::kWrongPeer, i, "rank " + std::to_string(q),
                      [q](kolo_uop *u, kolo_at *) { u->peer = q; });
            }
        }
    }

    void OfOperands(uint32_t i)
    {
        const kolo_uop &op = prog_->op[i];
        const uint32_t all = static_cast<uint32_t>(op.nsrc) + op.ndst;
        const bool data =
            op.code == KOLO_DO_MOVE || op.code == KOLO_DO_SEND || op.code == KOLO_DO_RECV;
        for (uint32_t k = 0; k < all; k++) {
            const std::string name = "operand " + std::to_string(k);
            const kolo_at &at = prog_->at[op.first + k];
            if (all > 1 && (k >= op.nsrc || op.nsrc > 1)) {
                Add(Fault::kDropOperand, "op " + std::to_string(i) + ": " + name,
                    [&](kolo_prog *p) { RemoveOperand(p, i, k); });
            }
            if (op.code == KOLO_DO_TAKEN && at.index + 1 < prog_->nreqs) {
                AddOp(Fault::kWrongRequest, i, name, [k](kolo_uop *, kolo_at *a) { a[k].index++; });
            }
            if (data && op.count > 0 && at.index + op.count < Room(at)) {
                AddOp(Fault::kWrongIndex, i, name, [k](kolo_uop *, kolo_at *a) { a[k].index++; });
            }
            if (data && op.count > 0 && at.index > 0) {
                AddOp(Fault::kWrongIndex, i, name + " back",
                      [k](kolo_uop *, kolo_at *a) { a[k].index--; });
            }
            OfLine(i, k, data);
        }
    }

    /* Operands that name a line: another line of the rank, the same line of another rank. */
    void OfLine(uint32_t i, uint32_t k, bool data)
    {
        const kolo_uop &op = prog_->op[i];
        const kolo_at &at = prog_->at[op.first + k];
        const std::string name = "operand " + std::to_string(k);
        const bool line = op.code == KOLO_DO_WAIT || op.code == KOLO_DO_SIGNAL ||
                          (data && at.space == KOLO_AT_OUTBOX);
        if (line) {
            for (int step : {-1, 1}) {
                const int64_t phase = static_cast<int64_t>(at.phase) + step;
                if (phase >= 0 && phase < plan_->rank[at.rank].phases) {
                    AddOp(
                        Fault::kWrongPhase, i, name + (step < 0 ? " before" : " after"),
                        [&](kolo_uop *, kolo_at *a) { a[k].phase = static_cast<uint32_t>(phase); });
                }
            }
        }
        const bool names = op.code == KOLO_DO_WAIT || op.code == KOLO_DO_LEFT ||
                           (data && at.space >= KOLO_AT_PEER_IN);
        for (int q = 0; names && q < plan_->shape.nranks; q++) {
            if (q != at.rank && Exists(at, q, op, data)) {
                AddOp(Fault::kWrongPeer, i, name + " of rank " + std::to_string(q),
                      [k, q](kolo_uop *, kolo_at *a) { a[k].rank = q; });
            }
        }
    }

    /* Rank q has what operand `at` names. */
    bool Exists(const kolo_at &at, int q, const kolo_uop &op, bool data) const
    {
        if (op.code == KOLO_DO_LEFT) {
            return true;
        }
        kolo_at other = at;
        other.rank = q;
        const bool mine = q == prog_->me;
        if (data && at.space != KOLO_AT_OUTBOX) {
            return !mine && at.index + op.count <= Room(other);
        }
        return at.phase < static_cast<uint32_t>(plan_->rank[q].phases) &&
               (!data || at.index + op.count <= Room(other));
    }

    void OfWhole()
    {
        for (int depth : {1, 2}) {
            Add(Fault::kDepth, std::to_string(depth), [&](kolo_prog *p) { p->depth = depth; });
            Add(Fault::kDepth, std::to_string(depth) + " long slots",
                [&](kolo_prog *p) { p->long_depth = depth; });
        }
        Lists(Fault::kFewerReaders, prog_->nreaders, &kolo_prog::readers, &kolo_prog::nreaders);
        Lists(Fault::kFewerSources, prog_->nsources, &kolo_prog::sources, &kolo_prog::nsources);
        Lists(Fault::kFewerEntries, prog_->nentries, &kolo_prog::entries, &kolo_prog::nentries);
        for (int l = 0; l < prog_->nlanes; l++) {
            for (int s = 1; s < prog_->lane[l].nstages; s++) {
                Bound(l, s);
            }
        }
    }

    void Lists(Fault fault, int count, int *kolo_prog::*list, int kolo_prog::*length)
    {
        for (int i = 0; i < count; i++) {
            Add(fault, std::to_string(i), [&](kolo_prog *p) {
                (p->*list)[i] = (p->*list)[count - 1];
                (p->*length)--;
            });
        }
    }

    void Bound(int l, int s)
    {
        const uint32_t *stage = prog_->lane[l].stage;
        const std::string name = "stage " + std::to_string(s);
        if (stage[s] > stage[s - 1]) {
            Add(Fault::kMoveStage, name + " earlier", [&](kolo_prog *p) { p->lane[l].stage[s]--; });
        }
        if (stage[s] < stage[s + 1]) {
            Add(Fault::kMoveStage, name + " later", [&](kolo_prog *p) { p->lane[l].stage[s]++; });
        }
    }

    uint32_t Room(const kolo_at &at) const
    {
        const int me = prog_->me;
        switch (at.space) {
        case KOLO_AT_IN:
            return static_cast<uint32_t>(kolo_plan_buf_chunks(plan_, me, KOLO_IN));
        case KOLO_AT_OUT:
            return static_cast<uint32_t>(kolo_plan_buf_chunks(plan_, me, KOLO_OUT));
        case KOLO_AT_SCRATCH:
            return static_cast<uint32_t>(plan_->scratch_chunks);
        case KOLO_AT_STAGE:
            return prog_->stage_chunks;
        case KOLO_AT_PEER_IN:
            return static_cast<uint32_t>(kolo_plan_buf_chunks(plan_, at.rank, KOLO_IN));
        case KOLO_AT_PEER_OUT:
            return static_cast<uint32_t>(kolo_plan_buf_chunks(plan_, at.rank, KOLO_OUT));
        default:
            return static_cast<uint32_t>(plan_->rank[at.rank].places);
        }
    }

    int LaneOf(uint32_t i) const
    {
        int lane = 0;
        while (lane + 1 < prog_->nlanes && i >= prog_->lane[lane].end) {
            lane++;
        }
        return lane;
    }

    const kolo_plan *plan_;
    const kolo_prog *prog_;
    const std::vector<uint8_t> &bits_;
    std::vector<Mutant> all_;
};

} // namespace

const char *FaultName(Fault fault)
{
    static const char *const names[] = {
        "drop op",       "drop operand",  "wrong peer",    "wrong phase",
        "wrong index",   "wrong request", "swap sources",  "swap next",
        "swap meaning",  "depth",         "fewer readers", "fewer sources",
        "fewer entries", "flip last",     "move stage",    "wrong fact"};
    return names[static_cast<size_t>(fault)];
}

std::vector<Mutant> AllMutants(const kolo_plan *plan, const kolo_prog *prog,
                               const std::vector<uint8_t> &bits)
{
    return Maker(plan, prog, bits).All();
}
