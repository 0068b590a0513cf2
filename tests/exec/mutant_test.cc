// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/proof
/* Is the proof of lowered programs any good? Every single fault in one rank's program is judged
 * twice: by kolo_verify_programs(), and by running it. Running shares nothing with the proof: the
 * executor on threads with random delays, sums in which every order shows, results from the
 * reference, users who overwrite their buffers the moment a call returns. A fault that gives a
 * wrong result must be refused. The reverse need not hold: a race that did not show is still one.
 *
 * Each run is a process of its own, as a faulty program may crash. What the proof accepts is run
 * with several delays and a long deadline; what it refuses is run for the table alone.
 */
#include "mutants.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "exec/ref.h"
#include "plan/facts.h"
}

namespace
{

using Words = std::vector<uint64_t>;

uint64_t Mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9FB21C651E98DF25) + b * UINT64_C(0xD1342543DE82EF95) + 1;
    x ^= x >> 32;
    return x * UINT64_C(0xD6E8FEB86659FD93);
}

void MixSources(void *dst, const void *const *src, unsigned k, size_t count, unsigned divisor)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t sum = static_cast<const uint64_t *>(src[0])[i];
        for (unsigned s = 1; s < k; s++) {
            sum = Mix(sum, static_cast<const uint64_t *>(src[s])[i]);
        }
        static_cast<uint64_t *>(dst)[i] = divisor > 1 ? Mix(sum, 99) : sum;
    }
}

void MixTwo(void *, void *dst, const void *a, const void *b, size_t bytes, bool last)
{
    for (size_t at = 0; at < bytes; at += 8) { // messages of the reference need not be aligned
        uint64_t left = 0, right = 0;
        std::memcpy(&left, static_cast<const char *>(a) + at, 8);
        std::memcpy(&right, static_cast<const char *>(b) + at, 8);
        const uint64_t sum = Mix(left, right), result = last ? Mix(sum, 99) : sum;
        std::memcpy(static_cast<char *>(dst) + at, &result, 8);
    }
}

/* ---- one call of all ranks, with its data ---- */

struct RankData {
    Words memory, expected;
    uint64_t *in = nullptr, *out = nullptr;
    size_t nin = 0, nout = 0;
    struct CallData *call = nullptr;
    bool wrong = false;
};

struct CallData {
    const kolo_plan *plan = nullptr;
    uint32_t tiles = 1;
    kolo_coll_args args = {};
    size_t chunk = 0; // words
    std::vector<RankData> rank;
    std::atomic<int> entered{0};
};

constexpr uint64_t kGarbage = UINT64_C(0xDEADBEEFDEADBEEF);
constexpr size_t kPad = 64;

/* Before the call: count. After it: look at the result, and make the memory garbage. */
void Hook(void *arg, bool returned)
{
    RankData *r = static_cast<RankData *>(arg);
    if (!returned) {
        r->call->entered++;
        return;
    }
    r->wrong = r->wrong || !std::equal(r->expected.begin(), r->expected.end(), r->out);
    if (r->call->plan->shape.coll == KOLO_COLL_BARRIER) {
        r->wrong = r->wrong || r->call->entered != r->call->plan->shape.nranks;
    }
    std::fill(r->memory.begin(), r->memory.end(), kGarbage);
}

/* Chunk sizes that give just `tiles` tiles; one tile is as small as can be. */
void Size(CallData *c, size_t slot_bytes)
{
    const kolo_plan *plan = c->plan;
    const bool flat = kolo_coll_flat(plan->shape.coll);
    const size_t chunks = static_cast<size_t>(flat ? plan->chunks : plan->shape.nranks);
    const size_t places = static_cast<size_t>(std::max(plan->max_places, 1));
    const size_t limit = std::min(256 * 1024 / chunks, slot_bytes / places) / 64 * 64;
    const bool inlined = c->tiles == 1 && places * 8 <= KOLO_INLINE_BYTES;
    c->chunk = (inlined ? 8 : c->tiles == 1 ? 64 : c->tiles * limit) / 8;
    c->args.count = flat ? c->chunk * chunks : c->chunk;
}

struct Cut { // what binding makes of a call
    uint32_t tiles = 0;
    size_t outbox_bytes = 0; // of a tile; 0: in the lines
};

Cut CutOf(const CallData &c, size_t slot_bytes)
{
    kolo_extents extents;
    Cut cut;
    size_t *arrays = nullptr, piece = 0;
    bool inlined = false;
    EXPECT_EQ(KOLO_OK, kolo_extents_make(c.plan, 0, &c.args, 8, &extents, &arrays));
    kolo_tile(c.plan, &extents, slot_bytes, &piece, &cut.tiles, &inlined);
    std::free(arrays);
    cut.outbox_bytes = inlined ? 0 : piece * static_cast<size_t>(c.plan->max_places);
    return cut;
}

void Fill(CallData *c, const std::vector<const kolo_prog *> &prog, unsigned salt, bool in_place)
{
    const int n = c->plan->shape.nranks;
    c->rank.resize(static_cast<size_t>(n));
    for (int q = 0; q < n; q++) {
        RankData &r = c->rank[static_cast<size_t>(q)];
        r.call = c;
        r.nin = c->chunk * static_cast<size_t>(kolo_plan_buf_chunks(c->plan, q, KOLO_IN));
        r.nout = c->chunk * static_cast<size_t>(kolo_plan_buf_chunks(c->plan, q, KOLO_OUT));
        r.memory.assign(r.nin + r.nout + 3 * kPad, kGarbage);
        r.in = r.memory.data() + kPad;
        r.out = r.in + r.nin + kPad;
        if (in_place && !prog[static_cast<size_t>(q)]->apart && r.nin > 0 && r.nout > 0) {
            const size_t block = static_cast<size_t>(q) * c->chunk;
            r.in = r.nin < r.nout ? r.out + block : r.in;
            r.out = r.nin == r.nout ? r.in : r.nin > r.nout ? r.in + block : r.out;
        }
        r.expected.assign(r.nout, 0);
        for (size_t i = 0; i < r.nin; i++) {
            r.in[i] = Mix(salt * 64 + static_cast<unsigned>(q), i);
        }
    }
}

bool Expect(CallData *c)
{
    std::vector<const void *> in;
    std::vector<void *> out;
    std::vector<Words> copy;
    for (RankData &r : c->rank) {
        copy.emplace_back(r.in, r.in + r.nin);
        copy.back().resize(r.nin + 1);
        r.expected.resize(r.nout + 1);
    }
    for (size_t q = 0; q < c->rank.size(); q++) {
        in.push_back(copy[q].data());
        out.push_back(c->rank[q].expected.data());
    }
    const bool good =
        kolo_ref_run(c->plan, c->chunk * 8, in.data(), out.data(), MixTwo, nullptr) == KOLO_OK;
    for (RankData &r : c->rank) {
        r.expected.resize(r.nout);
    }
    return good;
}

/* ---- running ---- */

enum Outcome { kRight, kWrong, kLate };

struct Setting { // everything but the fault
    crew_links links;
    unsigned seed;
    int n;
    std::vector<const kolo_plan *> plan;              // of each call
    std::vector<std::vector<const kolo_prog *>> prog; // [call][rank]
    std::vector<uint32_t> tiles;
    std::array<bool, 3> in_long = {}; // likewise
    size_t slot_bytes = 64, short_slot_bytes = 0;
    int phases = 1;
};

Outcome RunOnce(const Setting &s, unsigned jitter, double timeout_ms)
{
    std::vector<CallData> data(s.plan.size());
    std::vector<crew_call> calls(s.plan.size() * static_cast<size_t>(s.n));
    for (size_t c = 0; c < data.size(); c++) {
        data[c].plan = s.plan[c];
        data[c].tiles = s.tiles[c];
        Size(&data[c], s.slot_bytes);
        Fill(&data[c], s.prog[c], jitter * 8 + static_cast<unsigned>(c), (jitter + c) % 2 != 0);
        if (!Expect(&data[c])) {
            return kWrong;
        }
        for (size_t r = 0; r < static_cast<size_t>(s.n); r++) {
            crew_call &call = calls[r * data.size() + c];
            RankData &mine = data[c].rank[r];
            call.prog = s.prog[c][r];
            call.args = data[c].args;
            call.elem = 8;
            call.in = mine.in;
            call.out = mine.out;
            call.reduce = MixSources;
            call.divisor = static_cast<unsigned>(s.n);
            call.hook = Hook;
            call.hook_arg = &mine;
        }
    }
    crew *crew = crew_create(s.n, s.links, s.seed, s.slot_bytes, s.short_slot_bytes, s.phases);
    const kolo_status st =
        crew_run(crew, static_cast<int>(data.size()), calls.data(), jitter, timeout_ms);
    bool wrong = st != KOLO_OK && st != KOLO_ERR_TIMEOUT;
    for (const CallData &c : data) {
        for (const RankData &r : c.rank) {
            wrong = wrong || r.wrong;
            for (uint64_t word : r.memory) {
                wrong = wrong || (st == KOLO_OK && word != kGarbage);
            }
        }
    }
    return wrong ? kWrong : st == KOLO_ERR_TIMEOUT ? kLate : kRight;
}

/* Runs in processes of their own, several at a time. */
class Pool
{
  public:
    explicit Pool(size_t most) : most_(most) {}

    void Run(const Setting &s, unsigned seeds, double timeout_ms, size_t tag)
    {
        while (running_.size() >= most_) {
            Reap();
        }
        std::fflush(stdout);
        const pid_t pid = fork();
        if (pid == 0) {
            Child(s, seeds, timeout_ms);
        }
        ASSERT_GT(pid, 0);
        running_[pid] = tag;
    }
    void Finish()
    {
        while (!running_.empty()) {
            Reap();
        }
    }
    std::map<size_t, Outcome> outcome;

  private:
    [[noreturn]] static void Child(const Setting &s, unsigned seeds, double timeout_ms)
    {
        Outcome worst = kRight;
        if (std::freopen("/dev/null", "w", stderr) == nullptr) {
            _exit(kWrong);
        }
        for (unsigned seed = 1; seed <= seeds && worst == kRight; seed++) {
            alarm(static_cast<unsigned>(timeout_ms / 1000) * 2 + 10); // a crew that cannot be ended
            worst = RunOnce(s, seed, timeout_ms);
        }
        _exit(worst);
    }
    void Reap()
    {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, 0);
        const auto found = running_.find(pid);
        if (found != running_.end()) {
            const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
            outcome[found->second] = WIFEXITED(status) && WEXITSTATUS(status) <= kLate
                                         ? static_cast<Outcome>(WEXITSTATUS(status))
                                     : late ? kLate
                                            : kWrong;
            running_.erase(found);
        }
    }

    size_t most_;
    std::map<pid_t, size_t> running_;
};

/* ---- the product ---- */

struct Tally {
    size_t mutants = 0, refused = 0, accepted_run = 0, missed = 0;
    size_t refused_run = 0, refused_wrong = 0, refused_right = 0;
};

struct Judged {
    Fault fault;
    std::string what;
    bool refused;
};

class Product
{
  public:
    void Of(const kolo_algo *algo, const kolo_algo *partner, int n, int root, crew_links links)
    {
        const unsigned seed = static_cast<unsigned>(n) * 3 + 1;
        const Plan plan = BuildPlan(algo, n, root);
        const Plan other = BuildPlan(partner, n, 0);
        if (plan == nullptr || other == nullptr) {
            return;
        }
        const std::vector<Prog> mine = LowerAll(plan.get(), links, seed);
        const std::vector<Prog> next = LowerAll(other.get(), links, seed);
        Setting s;
        s.links = links;
        s.seed = seed;
        s.n = n;
        for (const Plan *p : {&plan, &other, &plan}) {
            s.plan.push_back(p->get());
            s.prog.emplace_back();
            for (const Prog &g : p == &plan ? mine : next) {
                s.prog.back().push_back(g.get());
            }
            Room(p->get(), &s);
        }
        // In turn all outboxes are in long slots, in short ones, those of single tiles alone; and
        // lines are written again, or long slots only.
        s.short_slot_bytes = turn_ % 3 == 0 ? 0 : s.slot_bytes;
        s.slot_bytes *= turn_ % 3 == 2 ? 2 : 1;
        s.tiles = {turn_ % 4 == 0 ? KOLO_DEPTH + 1u : KOLO_LONG_DEPTH + 2u, 2, 1};
        turn_++;
        Tiles(&s);
        ASSERT_EQ(KOLO_OK, Verify(s)) << algo->base.name << ": " << kolo_error_text();
        const std::string where = std::string(algo->base.name) + " over " + crew_links_name(links) +
                                  ", n " + std::to_string(n) + ", " + partner->base.name +
                                  " between, ";
        Faults(s, plan.get(), mine, where);
        WrongFacts(s, plan.get(), where);
    }

    void Report()
    {
        pool_.Finish();
        std::map<Fault, Tally> tally = Count();
        std::printf("%-14s %8s %8s | %s | %s\n", "fault", "mutants", "refused",
                    "accepted: run wrong", "refused: run wrong right");
        for (const auto &[fault, t] : tally) {
            std::printf("%-14s %8zu %8zu | %13zu %5zu | %12zu %5zu %5zu\n", FaultName(fault),
                        t.mutants, t.refused, t.accepted_run, t.missed, t.refused_run,
                        t.refused_wrong, t.refused_right);
        }
    }

  private:
    static void Room(const kolo_plan *plan, Setting *s)
    {
        const size_t places = static_cast<size_t>(std::max(plan->max_places, 1));
        s->slot_bytes = std::max(s->slot_bytes, places * 64);
        for (int r = 0; r < s->n; r++) {
            s->phases = std::max(s->phases, plan->rank[r].phases);
        }
    }
    /* The number of tiles that the counts give, not the number wanted (a barrier has one). */
    static void Tiles(Setting *s)
    {
        for (size_t c = 0; c < s->plan.size(); c++) {
            CallData data;
            data.plan = s->plan[c];
            data.tiles = s->tiles[c];
            Size(&data, s->slot_bytes);
            const Cut cut = CutOf(data, s->slot_bytes);
            EXPECT_TRUE(cut.tiles == s->tiles[c] || data.plan->shape.coll == KOLO_COLL_BARRIER);
            s->tiles[c] = cut.tiles;
            s->in_long[c] = cut.outbox_bytes > s->short_slot_bytes;
        }
    }
    static kolo_status Verify(const Setting &s)
    {
        std::vector<const kolo_prog *> flat;
        for (const auto &ranks : s.prog) {
            flat.insert(flat.end(), ranks.begin(), ranks.end());
        }
        kolo_program_set set = {};
        set.ncalls = static_cast<int>(s.plan.size());
        set.plan = s.plan.data();
        set.prog = flat.data();
        set.tiles = s.tiles.data();
        set.in_long = s.in_long.data();
        set.depth = KOLO_DEPTH;
        set.long_depth = KOLO_LONG_DEPTH;
        return kolo_verify_programs(&set);
    }

    void Faults(Setting &s, const kolo_plan *plan, const std::vector<Prog> &mine,
                const std::string &where)
    {
        for (int r = 0; r < s.n; r++) {
            std::vector<uint8_t> bits(static_cast<size_t>(s.n));
            for (int q = 0; q < s.n; q++) {
                bits[static_cast<size_t>(q)] =
                    q == r ? uint8_t{1} : crew_bits(s.links, s.seed, r, q);
            }
            const size_t me = static_cast<size_t>(r);
            for (const Mutant &m : AllMutants(plan, mine[me].get(), bits)) {
                s.prog[0][me] = s.prog[2][me] = m.prog.get();
                Judge(s, m.fault, where + FaultName(m.fault) + " " + m.what);
            }
            s.prog[0][me] = s.prog[2][me] = mine[me].get();
        }
    }

    /* Each message in turn is taken for STABLE or FRESH, and all ranks lower accordingly. */
    void WrongFacts(Setting &s, kolo_plan *plan, const std::string &where)
    {
        kolo_match *match = kolo_match_make(plan);
        ASSERT_NE(nullptr, match);
        for (int r = 0; r < s.n && plan->lanes == 1; r++) {
            for (int i = 0; i < plan->rank[r].count; i++) {
                kolo_step *mine = &plan->rank[r].step[i];
                if (mine->op != KOLO_SEND) {
                    continue;
                }
                kolo_step *its = &plan->rank[mine->peer].step[match[r].other[i]];
                for (uint8_t fact : {KOLO_STEP_STABLE, KOLO_STEP_FRESH}) {
                    const uint8_t flags[] = {mine->flags, its->flags};
                    if ((mine->flags & fact) != 0) {
                        continue; // it is one
                    }
                    mine->flags |= fact;
                    its->flags |= fact;
                    WrongFact(s, plan,
                              where + "step " + std::to_string(i) + " of rank " +
                                  std::to_string(r) + ", fact " + std::to_string(fact));
                    mine->flags = flags[0];
                    its->flags = flags[1];
                }
            }
        }
        kolo_match_free(match, s.n);
    }
    void WrongFact(Setting &s, const kolo_plan *plan, const std::string &where)
    {
        const std::vector<Prog> all = LowerAll(plan, s.links, s.seed);
        const auto right = s.prog;
        for (size_t r = 0; r < all.size(); r++) {
            s.prog[0][r] = s.prog[2][r] = all[r].get();
        }
        Judge(s, Fault::kWrongFact, where);
        s.prog = right;
    }

    void Judge(const Setting &s, Fault fault, const std::string &what)
    {
        const kolo_status st = Verify(s);
        ASSERT_TRUE(st == KOLO_OK || st == KOLO_ERR_INVALID) << kolo_error_text();
        const size_t tag = all_.size();
        all_.push_back({fault, what, st != KOLO_OK});
        if (!Sampled(st == KOLO_OK)) {
            return;
        }
        if (st == KOLO_OK) {
            pool_.Run(s, WholeRun() ? 6 : 4, 60e3, tag);
        } else {
            pool_.Run(s, 3, 200, tag);
        }
    }

    /* By a hash of the number: the same mutants in each run. A whole run runs all that the proof
     * accepts; of what it refuses, which often hangs, one in 25. */
    bool Sampled(bool accepted)
    {
        const uint64_t draw = Mix(all_.size(), 7) >> 40;
        const uint64_t of_accepted = WholeRun() ? 1 : FullRun() ? kAcceptedRate : 2 * kAcceptedRate;
        const uint64_t of_refused = WholeRun() ? 25 : FullRun() ? kRefusedRate : 2 * kRefusedRate;
        return draw % (accepted ? of_accepted : of_refused) == 0;
    }

    std::map<Fault, Tally> Count()
    {
        std::map<Fault, Tally> tally;
        for (size_t i = 0; i < all_.size(); i++) {
            const Judged &j = all_[i];
            Tally &t = tally[j.fault];
            const auto ran = pool_.outcome.find(i);
            t.mutants++;
            t.refused += j.refused;
            if (ran == pool_.outcome.end()) {
                continue;
            }
            const bool right = ran->second == kRight;
            t.accepted_run += !j.refused;
            t.refused_run += j.refused;
            t.refused_right += j.refused && right;
            t.refused_wrong += j.refused && !right;
            t.missed += !j.refused && !right;
            EXPECT_TRUE(j.refused || right) << j.what << (ran->second == kLate ? " hangs" : "");
        }
        return tally;
    }

#if defined(__SANITIZE_ADDRESS__)
    static constexpr uint64_t kAcceptedRate = 40, kRefusedRate = 1000;
#else
    static constexpr uint64_t kAcceptedRate = 2, kRefusedRate = 100;
#endif
    Pool pool_{WholeRun() ? size_t{12} : size_t{6}}; // most of the refused only sleep
    unsigned turn_ = 0;
    std::vector<Judged> all_;
};

TEST(SingleFaults, AreRefusedWhereverTheyGiveAWrongResult)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the programs race on purpose";
#endif
    Product product;
    unsigned turn = 0;
    for (int i = 0; i < kolo_algos_count; i++) {
        for (int n : {2, 3, 4}) {
            for (int links = 0; links < CREW_LINKS; links++) {
                const kolo_algo *partner =
                    kolo_algos[(i + 1 + static_cast<int>(turn++ * 5)) % kolo_algos_count];
                const int root = kolo_coll_rooted(kolo_algos[i]->coll) ? n - 2 : 0;
                product.Of(kolo_algos[i], partner, n, root, static_cast<crew_links>(links));
            }
        }
    }
    product.Report();
}

} // namespace
