// SPDX-License-Identifier: Apache-2.0
// covers: src/tune/choose.c algos
/* Bytes between hosts: what is chosen for long buffers sends no more of them than the collective
 * must. The busiest interface counts, because it takes the time. Only where bytes between hosts cost
 * little more than copies within one, a ring of all ranks may be the faster way, with more bytes. */
extern "C" {
#include "plan/plan.h"
#include "topology/layout/groups.h"
#include "topology/layout/layout.h"
#include "topology/machine/host.h"
#include "tune/tune.h"
}

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace
{

constexpr size_t kLong = static_cast<size_t>(64) << 20;

int AlgoCount()
{
    return kolo_algos_count;
}

const kolo_algo *AlgoAt(int index)
{
    return kolo_algos[index];
}

/* `nhosts` hosts of `local` ranks each, in blocks. */
class Hosts
{
  public:
    Hosts(int nhosts, int local, const char *costs)
        : nhosts_(nhosts), n_(nhosts * local), order_(static_cast<size_t>(n_)),
          host_(static_cast<size_t>(n_)), place_(static_cast<size_t>(n_), kolo_place_unknown())
    {
        for (int r = 0; r < n_; r++) {
            host_[static_cast<size_t>(r)] = r / local;
        }
        kolo_order_ranks(n_, host_.data(), place_.data(), order_.data());
        EXPECT_EQ(KOLO_OK, kolo_groups_make(n_, host_.data(), place_.data(), &groups_));
        kolo_chooser_options options = {};
        options.nranks = n_;
        options.nhosts = nhosts;
        options.order = order_.data();
        options.nrings = 1;
        options.host = host_.data();
        options.place = place_.data();
        options.nlevels = groups_.nlevels;
        options.group = groups_.group;
        options.algo_count = AlgoCount;
        options.algo_at = AlgoAt;
        options.max_phases = 2 * n_ + 62;
        EXPECT_TRUE(kolo_costs_parse(costs, &options.costs));
        EXPECT_EQ(KOLO_OK, kolo_chooser_create(&options, &chooser_)) << kolo_error_text();
    }
    ~Hosts()
    {
        kolo_chooser_destroy(chooser_);
        kolo_groups_free(&groups_);
    }
    Hosts(const Hosts &) = delete;
    Hosts &operator=(const Hosts &) = delete;

    const kolo_algo *Choice(kolo_coll coll) const
    {
        kolo_pick pick = {};
        const size_t bytes = kolo_coll_flat(coll) ? kLong : kLong / static_cast<size_t>(n_);
        EXPECT_EQ(KOLO_OK, kolo_choose(chooser_, coll, 0, bytes, KOLO_FLOAT32, &pick))
            << kolo_error_text();
        return pick.algo;
    }

    /* The most that a host sends or receives, in buffers: the larger of a rank's input and output. */
    double Busiest(const kolo_algo *algo) const
    {
        kolo_shape shape = {};
        kolo_plan *plan = nullptr;
        shape.size = sizeof shape;
        shape.coll = algo->coll;
        shape.nranks = n_;
        shape.order = order_.data();
        shape.nrings = 1;
        shape.nlevels = groups_.nlevels;
        shape.group = groups_.group;
        EXPECT_EQ(KOLO_OK, kolo_plan_build(algo, &shape, -1, &plan)) << kolo_error_text();
        std::vector<long> sent(static_cast<size_t>(nhosts_)), received(sent);
        for (int r = 0; r < n_; r++) {
            for (int i = 0; i < plan->rank[r].count; i++) {
                const kolo_step &step = plan->rank[r].step[i];
                const int from = HostOf(r), to = step.peer >= 0 ? HostOf(step.peer) : from;
                if (step.op == KOLO_SEND && from != to) {
                    sent[static_cast<size_t>(from)] += step.src.count;
                    received[static_cast<size_t>(to)] += step.src.count;
                }
            }
        }
        const long most = std::max(*std::max_element(sent.begin(), sent.end()),
                                   *std::max_element(received.begin(), received.end()));
        const int chunks = kolo_coll_flat(algo->coll) ? plan->chunks : n_;
        kolo_plan_destroy(plan);
        return static_cast<double>(most) / chunks;
    }

    /* The least for the busiest host, by the collective's definition; roots are on the first host. */
    double Least(kolo_coll coll) const
    {
        const double others = static_cast<double>(nhosts_ - 1) / nhosts_;
        switch (coll) {
        case KOLO_COLL_ALL_REDUCE:
            return 2 * others;
        case KOLO_COLL_REDUCE:
        case KOLO_COLL_BROADCAST:
            return 1;
        case KOLO_COLL_ALL_TO_ALL:
            return others * n_ / nhosts_;
        default:
            return others;
        }
    }

  private:
    int HostOf(int rank) const
    {
        return host_[static_cast<size_t>(rank)];
    }

    int nhosts_, n_;
    std::vector<int> order_, host_;
    std::vector<kolo_place> place_;
    kolo_groups groups_ = {};
    kolo_chooser *chooser_ = nullptr;
};

constexpr kolo_coll kLongColls[] = {
    KOLO_COLL_ALL_REDUCE,     KOLO_COLL_REDUCE,     KOLO_COLL_BROADCAST, KOLO_COLL_ALL_GATHER,
    KOLO_COLL_REDUCE_SCATTER, KOLO_COLL_ALL_TO_ALL, KOLO_COLL_GATHER,    KOLO_COLL_SCATTER};

struct Network {
    const char *name, *costs;
    double most; /* bytes over the least ones */
};

class WireBytes : public testing::TestWithParam<Network>
{
};

} // namespace

TEST_P(WireBytes, OfTheBusiestHostAreTheLeast)
{
    printf("buffers that the busiest host sends or receives: least, chosen; %s\n",
           GetParam().costs);
    for (const int nhosts : {2, 3, 4}) {
        for (const int local : {1, 2, 4}) {
            const Hosts hosts(nhosts, local, GetParam().costs);
            printf("%d x %d", nhosts, local);
            for (const kolo_coll coll : kLongColls) {
                const kolo_algo *algo = hosts.Choice(coll);
                const double least = hosts.Least(coll), most = hosts.Busiest(algo);
                printf("  %s %.3g %.3g", algo->base.name, least, most);
                EXPECT_LE(least, most + 1e-9) << algo->base.name;
                EXPECT_LE(most, GetParam().most * least + 1e-9)
                    << algo->base.name << ", " << nhosts << " hosts of " << local << " ranks";
            }
            printf("\n");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Of, WireBytes,
    testing::Values(Network{"1_Gbit", "cores=4,net_latency_us=50,net_gbs=0.118", 1},
                    Network{"10_Gbit", "cores=4,net_latency_us=50,net_gbs=1.18", 1.25}),
    [](const auto &info) { return std::string(info.param.name); });
