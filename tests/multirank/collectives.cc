// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/cpu
/* The collectives' checks with a process for each rank: `kolo run -n N collectives`.
 *
 * Unlike threads, processes cannot load each other's private memory, so buffers are private, of
 * kolo_mem_alloc() at odd offsets, or private on some ranks and shared on others. Rank 0 says in
 * TAP what was done; every rank's complaints go to its standard error and into the result. */
#include "../conformance/collectives_bits.h"
#include "../conformance/collectives_case.h"
#include "../conformance/collectives_forced.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace collectives;

static int tests, failures;
static kolo_comm *world; /* counts complaints; runs no case itself */

/* One line of TAP for all ranks: how many complaints there were, over all of them. */
static void Say(const std::string &name, const std::vector<std::string> &complaints)
{
    uint64_t mine = complaints.size(), all = 0;
    for (size_t i = 0; i < std::min<size_t>(complaints.size(), 5); i++) {
        std::fprintf(stderr, "%s\n", complaints[i].c_str());
    }
    if (kolo_all_reduce(&mine, &all, 1, KOLO_UINT64, KOLO_SUM, world, nullptr) != KOLO_OK) {
        std::fprintf(stderr, "no result: %s\n", kolo_error_text());
        std::exit(2);
    }
    tests++;
    failures += all != 0;
    if (kolo_comm_rank(world) == 0) {
        std::printf("%s %d - %s\n", all == 0 ? "ok" : "not ok", tests, name.c_str());
        std::fflush(stdout);
    }
}

static kolo_comm *Join(const std::string &algo, int deterministic = 0)
{
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.algo = algo.c_str();
    config.deterministic = deterministic;
    config.timeout_ms = 60000;
    if (kolo_comm_create_env(&config, &comm) != KOLO_OK) {
        std::fprintf(stderr, "no communicator: %s\n", kolo_error_text());
        std::exit(2);
    }
    return comm;
}

/* ---- the product ---- */

static std::vector<Case> ProductOf(Coll coll, int n)
{
    std::vector<Case> cases;
    for (const auto &[type, op] : PairsFor(coll)) {
        const size_t large = ((4 << 20) + 3) / kolo_type_bytes(type) + 1;
        for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{1023}, large}) {
            /* of the large ones a few: bytes are bytes */
            if (count == large && (type != KOLO_FLOAT32 || (Reduces(coll) && op != KOLO_SUM))) {
                continue;
            }
            for (int variant = 0; variant < (IsV(coll) ? kVariants : 1); variant++) {
                const int root = IsRooted(coll) ? static_cast<int>(cases.size()) % n : 0;
                cases.push_back({coll, type, op, root, count, false, variant});
                cases.push_back({coll, type, op, root, count, coll != Coll::kAllToAllv, variant});
            }
        }
    }
    return cases;
}

static std::vector<std::string> PlayAll(kolo_comm *comm, const std::vector<Case> &cases,
                                        Memory memory, size_t offset)
{
    std::vector<std::string> complaints;
    Player player(comm, memory, offset);
    for (size_t i = 0; i < cases.size() && !player.Ended(); i++) {
        const std::string wrong = player.Play(cases[i]);
        if (!wrong.empty()) {
            complaints.push_back(wrong);
        }
    }
    return complaints;
}

struct Place {
    const char *name;
    bool even_shared, odd_shared; /* of ranks */
};
static const Place places[] = {
    {"private memory", false, false},
    {"shared memory at odd offsets", true, true},
    {"memory that is shared on every second rank", true, false},
};

/* Where buffers lie in the next test: everywhere for few ranks, else by turns; with KOLO_TEST_SHORT=1
 * in the place where ranks differ. */
static std::vector<Place> NextPlaces(int nranks)
{
    static size_t turn;
    constexpr int kFew = 3;
    if (TestEffort() == Effort::kShort) {
        return {places[2]};
    }
    if (nranks <= kFew || TestEffort() == Effort::kWhole) {
        return {std::begin(places), std::end(places)};
    }
    return {places[turn++ % 3]};
}

static Memory MemoryOf(const Place &place, int rank)
{
    return (rank % 2 == 0 ? place.even_shared : place.odd_shared) ? Memory::kShared
                                                                  : Memory::kPrivate;
}

static void TestProduct()
{
    kolo_comm *comm = Join("");
    const int rank = kolo_comm_rank(comm), n = kolo_comm_size(comm);
    for (int i = 0; i < kColls; i++) {
        const Coll coll = static_cast<Coll>(i);
        for (const Place &place : NextPlaces(n)) {
            Say(std::string(NameOf(coll)) + " equals the reference in " + place.name,
                PlayAll(comm, ProductOf(coll, n), MemoryOf(place, rank), 3));
        }
    }
    kolo_comm_destroy(comm);
}

/* ---- forced algorithms ---- */

/* The large ones first, for they must not need what small ones set up. */
static std::vector<Case> ForcedCases(Coll coll, int n)
{
    std::vector<Case> cases;
    for (const size_t bytes :
         std::vector<size_t>{1000004, 4, 48, 52, 1000, 8188, 8192, 8196, 262144, 262148}) {
        for (int root = 0; root < (IsRooted(coll) ? n : 1); root++) {
            const bool in_place = (bytes / 4 + static_cast<size_t>(root)) % 2 != 0;
            cases.push_back({coll, coll == Coll::kBarrier ? KOLO_INT8 : KOLO_FLOAT32,
                             Reduces(coll) ? static_cast<kolo_op>(KOLO_SUM) : kMove, root,
                             bytes / 4, in_place});
        }
    }
    return cases;
}

static bool IsRefusal(const std::vector<std::string> &complaints)
{
    return !complaints.empty() &&
           std::all_of(complaints.begin(), complaints.end(), [](const std::string &text) {
               return text.find("cannot run with") != std::string::npos;
           });
}

static void TestForced(Coll coll)
{
    const std::string word = RuleWord(coll);
    const std::vector<std::string> names = AlgorithmsOf(coll);
    if (names.empty()) {
        std::exit(2);
    }
    for (const std::string &name : names) {
        for (const Place &place : NextPlaces(kolo_comm_size(world))) {
            const GroupsByHand groups(name);
            kolo_comm *comm = Join(word + ":" + name);
            const int rank = kolo_comm_rank(comm), n = kolo_comm_size(comm);
            std::vector<std::string> complaints =
                PlayAll(comm, ForcedCases(coll, n), MemoryOf(place, rank), 3);
            const bool refused = IsRefusal(complaints) && MayRefuse(coll, name, n);
            if (refused) {
                complaints.clear();
            }
            Say(word + ":" + name + (refused ? " is refused with " : " equals the reference in ") +
                    (refused ? std::to_string(n) + " ranks" : place.name),
                complaints);
            kolo_comm_destroy(comm);
        }
    }
}

/* ---- bits ---- */

static void TestBits(int deterministic)
{
    std::vector<std::string> complaints;
    kolo_comm *comm = Join("", deterministic);
    for (const kolo_type type : FloatTypes()) {
        for (const size_t bytes : std::vector<size_t>{48, 56, 8192, 300000}) {
            for (const bool special : {false, true}) {
                Bits b = {Coll::kAllReduce, type, KOLO_SUM, bytes / kolo_type_bytes(type)};
                b.special = special;
                b.in_rank_order = deterministic != 0;
                b.calls = bytes > 8192 ? 3 : 1;
                const std::string wrong = PlayBits(comm, b);
                if (!wrong.empty()) {
                    complaints.push_back(wrong);
                }
            }
        }
    }
    Say(deterministic != 0 ? "deterministic sums are in rank order"
                           : "all ranks hold the same bits",
        complaints);
    kolo_comm_destroy(comm);
}

int main()
{
    world = Join("");
    TestProduct();
    for (const Coll coll :
         {Coll::kAllReduce, Coll::kReduce, Coll::kBroadcast, Coll::kGather, Coll::kScatter,
          Coll::kAllGather, Coll::kReduceScatter, Coll::kAllToAll, Coll::kBarrier}) {
        TestForced(coll);
    }
    TestBits(0);
    TestBits(1);
    if (kolo_comm_rank(world) == 0) {
        std::printf("1..%d\n", tests);
    }
    kolo_comm_destroy(world);
    return failures != 0;
}
