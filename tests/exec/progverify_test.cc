// SPDX-License-Identifier: Apache-2.0
/* All ranks' lowered programs, proved: every algorithm over every kind of link. */
#include "programs.h"

namespace
{

struct Links {
    crew_links kind;
    unsigned seed;
};

const Links kLinks[] = {{CREW_MAPPED, 1}, {CREW_ARENA, 1}, {CREW_MESSAGE, 1},
                        {CREW_MIXED, 1},  {CREW_MIXED, 2}, {CREW_MIXED, 3}};

int MostRanks()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return FullRun() ? 16 : 6;
#else
    return 16;
#endif
}

std::string Name(const kolo_algo *algo, int n, int root, const Links &links)
{
    return std::string(algo->base.name) + " over " + crew_links_name(links.kind) + " " +
           std::to_string(links.seed) + ", n " + std::to_string(n) + ", root " +
           std::to_string(root);
}

// Another algorithm for the second call: a different one for each case.
const kolo_algo *Partner(int index, int n, unsigned turn)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        const kolo_algo *algo =
            kolo_algos[(index + 1 + static_cast<int>(turn) * 7 + i) % kolo_algos_count];
        if (BuildPlan(algo, n, 0) != nullptr) {
            return algo;
        }
    }
    return nullptr;
}

class Programs : public ::testing::TestWithParam<int>
{
};

TEST_P(Programs, KeepThePlanOverEveryKindOfLinkWhateverCallFollows)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    unsigned turn = 0;
    for (int n = 1; n <= MostRanks(); n++) {
        for (int root : {0, n - 1}) {
            const Plan plan = BuildPlan(algo, n, root);
            if (plan == nullptr || (root > 0 && !kolo_coll_rooted(algo->coll))) {
                continue;
            }
            for (const Links &links : kLinks) {
                SCOPED_TRACE(Name(algo, n, root, links));
                const kolo_algo *partner = Partner(GetParam(), n, turn++);
                const Plan other = BuildPlan(partner, n, root * (turn % 2 == 0 ? 1 : 0));
                const std::vector<Prog> first = LowerAll(plan.get(), links.kind, links.seed);
                const std::vector<Prog> second =
                    LowerAll(other != nullptr ? other.get() : plan.get(), links.kind, links.seed);
                Calls calls;
                calls.Add(plan.get(), first, 3);
                calls.Add(other != nullptr ? other.get() : plan.get(), second, 3);
                EXPECT_EQ(KOLO_OK, calls.Verify()) << partner->base.name << " follows\n"
                                                   << kolo_error_text();
                if (HasFailure()) {
                    return;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Catalogue, Programs, ::testing::Range(0, kolo_algos_count),
                         [](const ::testing::TestParamInfo<int> &param) {
                             return std::string(kolo_algos[param.param]->base.name);
                         });

} // namespace
