// SPDX-License-Identifier: Apache-2.0
// Groups of ranks for the tests of hierarchical algorithms: even and uneven, nested, of one, apart.
#ifndef KOLO_TESTS_GROUPINGS_H
#define KOLO_TESTS_GROUPINGS_H

#include <kolo/plugin.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

struct Grouping {
    std::string name;
    int nlevels = 0;
    std::vector<int> group;

    void Apply(kolo_shape *shape) const
    {
        shape->nlevels = nlevels;
        shape->group = nlevels > 0 ? group.data() : nullptr;
    }
};

// From a key for each rank and level, the nearest level first; groups are cut by the levels above.
inline Grouping GroupsBy(const std::string &name, int n,
                         const std::vector<std::function<int(int)>> &keys)
{
    Grouping made;
    made.name = name;
    made.nlevels = static_cast<int>(keys.size());
    for (size_t level = 0; level < keys.size(); level++) {
        std::map<std::vector<int>, int> first;
        for (int r = 0; r < n; r++) {
            std::vector<int> key;
            for (size_t above = level; above < keys.size(); above++) {
                key.push_back(keys[above](r));
            }
            made.group.push_back(first.insert({key, r}).first->second);
        }
    }
    return made;
}

inline std::vector<Grouping> Groupings(int n)
{
    const auto by = [n](const char *name, const std::vector<std::function<int(int)>> &keys) {
        return GroupsBy(name, n, keys);
    };
    return {
        by("halves", {[n](int r) { return 2 * r / n; }}),
        by("pairs", {[](int r) { return r / 2; }}),
        by("quads", {[](int r) { return r / 4; }}),
        by("three_and_the_rest", {[](int r) { return r < 3; }}),
        by("one_and_the_rest", {[](int r) { return r == 0; }}),
        by("the_rest_and_one", {[n](int r) { return r == n - 1; }}),
        by("odd_and_even", {[](int r) { return r % 2; }}),
        by("three_levels",
           {[](int r) { return r / 2; }, [](int r) { return r / 4; }, [](int r) { return r / 8; }}),
        by("four_levels_apart", {[](int r) { return r % 12; }, [](int r) { return r % 6; },
                                 [](int r) { return r % 3; }, [](int r) { return r % 3 == 0; }}),
        by("uneven_levels", {[](int r) { return r < 5 ? r / 2 : r / 3; },
                             [](int r) { return r < 5 ? 0 : 1 + r / 9; }}),
        by("groups_of_one", {[](int r) { return r; }}),
        by("ones_in_halves", {[](int r) { return r; }, [n](int r) { return 2 * r / n; }}),
        by("all_together", {[](int) { return 0; }}),
    };
}

// What tests take that are not about groups: pairs in quads.
inline const Grouping &UsualGroups(int n)
{
    static std::map<int, Grouping> made;
    const auto found = made.find(n);
    return found != made.end()
               ? found->second
               : made.emplace(n,
                              GroupsBy("pairs_in_quads", n,
                                       {[](int r) { return r / 2; }, [](int r) { return r / 4; }}))
                     .first->second;
}

#endif
