// SPDX-License-Identifier: Apache-2.0
// covers: src/plan/verify/verify.c src/plan/verify/symbol.c
// Every small mistake in every algorithm: what goes wrong on numbers (oracle.h) must be refused by
// the prover. The other way round it may refuse a little more, for it promises one slot a link
// only.
#include "oracle.h"

#include <cstdio>
#include <functional>
#include <map>

namespace
{

// Races show in some orders only, so plans of several lanes are run more often.
unsigned Seeds(const kolo_plan *plan)
{
    return plan->lanes > 1 ? 60 : 6;
}

Plan Copy(const kolo_plan *plan)
{
    const size_t n = static_cast<size_t>(plan->shape.nranks);
    auto *copy = static_cast<kolo_plan *>(malloc(sizeof(kolo_plan)));
    *copy = *plan;
    copy->order = copy->group = copy->tree = nullptr; // no step depends on them any more
    copy->shape.order = copy->shape.group = copy->shape.tree = nullptr;
    copy->shape.nlevels = copy->shape.ntrees = 0;
    copy->rank = static_cast<kolo_rank_plan *>(calloc(n, sizeof(kolo_rank_plan)));
    for (size_t r = 0; r < n; r++) {
        copy->rank[r] = plan->rank[r];
        copy->rank[r].cap = plan->rank[r].count + 1;
        const size_t bytes = static_cast<size_t>(copy->rank[r].cap) * sizeof(kolo_step);
        copy->rank[r].step = static_cast<kolo_step *>(malloc(bytes));
        for (int i = 0; i < plan->rank[r].count; i++) {
            copy->rank[r].step[i] = plan->rank[r].step[i];
        }
    }
    return Plan(copy);
}

// A mutant need not keep what its messages claim; without the claims it is judged by what it does.
void DropClaims(kolo_plan *plan)
{
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            kolo_step *step = &plan->rank[r].step[i];
            step->flags &= KOLO_STEP_LEFT | KOLO_STEP_LAST;
        }
    }
}

bool IsMessage(const kolo_step &step)
{
    return step.op != KOLO_COPY && step.op != KOLO_REDUCE;
}

bool Adds(const kolo_step &step)
{
    return step.op == KOLO_RECV_REDUCE || step.op == KOLO_REDUCE;
}

void Remove(kolo_plan *plan, int rank, int index)
{
    kolo_rank_plan *mine = &plan->rank[rank];
    for (int i = index; i + 1 < mine->count; i++) {
        mine->step[i] = mine->step[i + 1];
    }
    mine->count--;
    for (int i = 0; i < mine->count; i++) {
        if (mine->step[i].dep == index) {
            mine->step[i].dep = -1;
        } else if (mine->step[i].dep > index) {
            mine->step[i].dep--;
        }
    }
}

// The other end of a message: the k-th of its (from, to, lane).
int OtherEnd(const kolo_plan *plan, int rank, int index)
{
    const kolo_step &step = plan->rank[rank].step[index];
    const bool send = step.op == KOLO_SEND;
    int before = 0;
    for (int i = 0; i < index; i++) {
        const kolo_step &s = plan->rank[rank].step[i];
        before += IsMessage(s) && (s.op == KOLO_SEND) == send && s.peer == step.peer &&
                  s.lane == step.lane;
    }
    for (int i = 0; i < plan->rank[step.peer].count; i++) {
        const kolo_step &s = plan->rank[step.peer].step[i];
        if (IsMessage(s) && (s.op == KOLO_SEND) != send && s.peer == rank && s.lane == step.lane &&
            before-- == 0) {
            return i;
        }
    }
    return -1;
}

struct Mutation {
    const char *name;
    // Change step `index` of `rank`; false if this does not apply.
    std::function<bool(kolo_plan *, int rank, int index)> apply;
};

// Move a slice by one chunk, round within its buffer where there is room, at both ends of a
// message.
bool Shift(kolo_plan *plan, int rank, int index, bool src)
{
    kolo_step *step = &plan->rank[rank].step[index];
    const bool message = IsMessage(*step);
    if (message && step->op != KOLO_SEND) {
        return false; // it is done from the other end
    }
    const int owner = message && !src ? step->peer : rank;
    kolo_slice *slice = src ? &step->src : &step->dst;
    if (slice->count == 0) {
        return false;
    }
    const int chunks = kolo_plan_buf_chunks(plan, owner, static_cast<kolo_buf>(slice->buf));
    const int room = chunks - slice->count + 1;
    slice->first = room > 1 ? (slice->first + 1) % static_cast<unsigned>(room) : slice->first + 1;
    if (message) {
        kolo_step *other = &plan->rank[step->peer].step[OtherEnd(plan, rank, index)];
        *(src ? &other->src : &other->dst) = *slice;
    }
    return true;
}

bool Flip(kolo_plan *plan, int rank, int index, uint8_t flag)
{
    kolo_step *step = &plan->rank[rank].step[index];
    if (!Adds(*step)) {
        return false;
    }
    step->flags ^= flag;
    return true;
}

bool OtherMeaning(kolo_plan *plan, int rank, int index)
{
    kolo_step *step = &plan->rank[rank].step[index];
    static const std::map<int, int> other = {{KOLO_RECV, KOLO_RECV_REDUCE},
                                             {KOLO_RECV_REDUCE, KOLO_RECV},
                                             {KOLO_COPY, KOLO_REDUCE},
                                             {KOLO_REDUCE, KOLO_COPY}};
    const auto found = other.find(step->op);
    if (found == other.end()) {
        return false;
    }
    step->op = static_cast<uint8_t>(found->second);
    return true;
}

bool NextPeer(kolo_plan *plan, int rank, int index)
{
    kolo_step *step = &plan->rank[rank].step[index];
    if (!IsMessage(*step) || plan->shape.nranks < 3) {
        return false;
    }
    do {
        step->peer = (step->peer + 1) % plan->shape.nranks;
    } while (step->peer == rank);
    return true;
}

bool SwapWithNext(kolo_plan *plan, int rank, int index)
{
    kolo_rank_plan *mine = &plan->rank[rank];
    int next = index + 1;
    while (next < mine->count && mine->step[next].lane != mine->step[index].lane) {
        next++;
    }
    if (next == mine->count) {
        return false;
    }
    std::swap(mine->step[index], mine->step[next]);
    for (int i = 0; i < mine->count; i++) {
        int32_t *dep = &mine->step[i].dep;
        *dep = *dep == index ? next : *dep == next ? index : *dep;
    }
    return mine->step[index].dep < index; // else it waits for a later one, which is no plan
}

bool DropMessage(kolo_plan *plan, int rank, int index)
{
    const kolo_step step = plan->rank[rank].step[index];
    if (step.op != KOLO_SEND) {
        return false;
    }
    Remove(plan, step.peer, OtherEnd(plan, rank, index));
    Remove(plan, rank, index);
    return true;
}

bool ForgetDependency(kolo_plan *plan, int rank, int index)
{
    kolo_step *step = &plan->rank[rank].step[index];
    const bool had = step->dep >= 0;
    step->dep = -1;
    return had;
}

bool OtherLane(kolo_plan *plan, int rank, int index)
{
    kolo_step *step = &plan->rank[rank].step[index];
    if (plan->lanes == 1 || IsMessage(*step)) {
        return false;
    }
    step->lane = static_cast<uint8_t>((step->lane + 1) % plan->lanes);
    return true;
}

std::vector<Mutation> Mutations()
{
    return {
        {"drop a step",
         [](kolo_plan *p, int r, int i) {
             Remove(p, r, i);
             return true;
         }},
        {"drop a message", DropMessage},
        {"next peer", NextPeer},
        {"next source chunk", [](kolo_plan *p, int r, int i) { return Shift(p, r, i, true); }},
        {"next destination chunk",
         [](kolo_plan *p, int r, int i) { return Shift(p, r, i, false); }},
        {"move for add, add for move", OtherMeaning},
        {"flip LEFT", [](kolo_plan *p, int r, int i) { return Flip(p, r, i, KOLO_STEP_LEFT); }},
        {"flip LAST", [](kolo_plan *p, int r, int i) { return Flip(p, r, i, KOLO_STEP_LAST); }},
        {"swap with the next step", SwapWithNext},
        {"forget a dependency", ForgetDependency},
        {"into another lane", OtherLane},
    };
}

// "" if all runs on numbers agree that the plan is right.
std::string Oracle(const kolo_plan *plan)
{
    std::string why = plan->shape.coll == KOLO_COLL_BARRIER ? RunBarrier(plan) : "";
    for (unsigned seed = 0; why.empty() && seed < Seeds(plan); seed++) {
        why = RunOnNumbers(plan, seed);
    }
    return why;
}

struct Tally {
    int made = 0, wrong = 0, refused = 0, missed = 0, strict = 0;
};

void Judge(const kolo_plan *mutant, const std::string &what, Tally *tally)
{
    const std::string why = Oracle(mutant);
    const bool refused = kolo_verify_plan(mutant) != KOLO_OK;
    tally->made++;
    tally->wrong += !why.empty();
    tally->refused += refused;
    if (!why.empty() && !refused) {
        tally->missed++;
        ADD_FAILURE() << what << " is accepted, but " << why;
    }
    if (why.empty() && refused) {
        tally->strict++;
        EXPECT_GT(mutant->lanes, 1) << what << " is refused: " << kolo_error_text();
        if (getenv("KOLO_TEST_STRICT") != nullptr) {
            printf("strict: %s: %s\n", what.c_str(), kolo_error_text());
        }
    }
}

std::map<std::string, Tally> totals; // by mutation

void JudgeMutants(const kolo_plan *plan)
{
    for (const Mutation &mutation : Mutations()) {
        for (int r = 0; r < plan->shape.nranks; r++) {
            for (int i = 0; i < plan->rank[r].count; i++) {
                const Plan mutant = Copy(plan);
                DropClaims(mutant.get());
                if (mutation.apply(mutant.get(), r, i)) {
                    const std::string what = std::string(plan->algo->base.name) + " " +
                                             std::to_string(plan->shape.nranks) + " ranks, rank " +
                                             std::to_string(r) + " step " + std::to_string(i) +
                                             ": " + mutation.name;
                    Judge(mutant.get(), what, &totals[mutation.name]);
                }
            }
        }
    }
}

class Mutants : public testing::TestWithParam<const kolo_algo *>
{
  public:
    static void TearDownTestSuite()
    {
        Tally all;
        printf("%-28s %8s %8s %8s %8s %8s\n", "mutation", "made", "wrong", "refused", "missed",
               "strict");
        for (const auto &entry : totals) {
            const Tally &t = entry.second;
            printf("%-28s %8d %8d %8d %8d %8d\n", entry.first.c_str(), t.made, t.wrong, t.refused,
                   t.missed, t.strict);
            all.made += t.made;
            all.wrong += t.wrong;
            all.refused += t.refused;
            all.missed += t.missed;
            all.strict += t.strict;
        }
        printf("%-28s %8d %8d %8d %8d %8d\n", "all", all.made, all.wrong, all.refused, all.missed,
               all.strict);
    }
};

// The catalogue joins no lanes; these do. The sum is made in lane 0 and handed out in lane 1.
const kolo_algo kJoined =
    Algo("test_joined", KOLO_COLL_ALL_REDUCE, [](const kolo_shape *s, kolo_builder *b) {
        for (int r = 1; r < s->nranks; r++) {
            const unsigned last = r == s->nranks - 1 ? KOLO_LAST : 0;
            if (r == 1) {
                kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            }
            kolo_transfer(b, r, kolo_in(0), 0, kolo_out(0), KOLO_ADD | last);
        }
        kolo_round(b);
        kolo_lane(b, 1);
        for (int r = 0; r < s->nranks; r++) {
            kolo_join(b, r, 0); // in place a rank's vector is sent before the sum comes
        }
        kolo_round(b);
        for (int r = 1; r < s->nranks; r++) {
            kolo_transfer(b, 0, kolo_out(0), r, kolo_out(0), KOLO_MOVE);
        }
    });

// Two chains, each with its own chunk and lane, and a third lane that waits for both to pass on.
const kolo_algo kBraided =
    Algo("test_braided", KOLO_COLL_BROADCAST, [](const kolo_shape *s, kolo_builder *b) {
        kolo_chunks(b, 2);
        for (int lane = 0; lane < 2; lane++) {
            kolo_lane(b, lane);
            kolo_local(b, s->root, kolo_in(lane), kolo_out(lane), KOLO_MOVE);
            for (int i = 0; i + 2 < s->nranks; i++) {
                const int from = (s->root + i) % s->nranks, to = (s->root + i + 1) % s->nranks;
                kolo_transfer(b, from, i == 0 ? kolo_in(lane) : kolo_out(lane), to, kolo_out(lane),
                              KOLO_MOVE);
                kolo_round(b);
            }
        }
        const int before = (s->root + s->nranks - 2) % s->nranks;
        kolo_lane(b, 2);
        kolo_join(b, before, 0);
        kolo_join(b, before, 1);
        kolo_round(b);
        const kolo_buf buf = before == s->root ? KOLO_IN : KOLO_OUT;
        kolo_transfer(b, before, kolo_slice_make(buf, 0, 2), (before + 1) % s->nranks,
                      kolo_slice_make(KOLO_OUT, 0, 2), KOLO_MOVE);
    });

std::vector<const kolo_algo *> AllAndLaned()
{
    std::vector<const kolo_algo *> all = AllAlgos();
    all.push_back(&kJoined);
    all.push_back(&kBraided);
    return all;
}

} // namespace

TEST_P(Mutants, ThatGoWrongOnNumbersAreRefused)
{
    const kolo_algo *algo = GetParam();
    int plans = 0;
    for (int n = 2; n <= 5; n++) {
        for (int root : Roots(algo->coll, n)) {
            const Plan plan = Build(algo, Shape(algo->coll, n, root));
            if (plan != nullptr) {
                ASSERT_EQ("", Oracle(plan.get()));
                ASSERT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
                JudgeMutants(plan.get());
                plans++;
            }
        }
    }
    EXPECT_GT(plans, 0);
}

INSTANTIATE_TEST_SUITE_P(Catalogue, Mutants, testing::ValuesIn(AllAndLaned()), AlgoName);
