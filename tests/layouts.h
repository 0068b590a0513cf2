// SPDX-License-Identifier: Apache-2.0
// What a planner may lay, for the tests of algorithms that take it: rings, and trees of several
// forms. Kept for good, as shapes only point to them.
#ifndef KOLO_TESTS_LAYOUTS_H
#define KOLO_TESTS_LAYOUTS_H

#include <kolo/plugin.h>

#include <set>
#include <vector>

inline const int *KeptForGood(const std::vector<int> &numbers)
{
    static std::set<std::vector<int>> kept;
    return kept.insert(numbers).first->data();
}

// Two rings, the given order and its reverse.
inline void ApplyRings(kolo_shape *shape, const int *order)
{
    const int n = shape->nranks;
    std::vector<int> both;
    for (int i = 0; i < n; i++) {
        both.push_back(order != nullptr ? order[i] : i);
    }
    for (int i = 0; i < n; i++) {
        both.push_back(both[static_cast<size_t>((n - i) % n)]);
    }
    shape->order = KeptForGood(both);
    shape->nrings = 2;
}

// A chain, two arms from the middle, and a star.
inline void ApplyTrees(kolo_shape *shape)
{
    const int n = shape->nranks, middle = n / 2;
    std::vector<int> up;
    for (int r = 0; r < n; r++) {
        up.push_back(r - 1);
    }
    for (int r = 0; r < n; r++) {
        up.push_back(r == middle ? -1 : r < middle ? r + 1 : r - 1);
    }
    for (int r = 0; r < n; r++) {
        up.push_back(r == n - 1 ? -1 : n - 1);
    }
    shape->tree = KeptForGood(up);
    shape->ntrees = 3;
}

// Rings for all; trees for those that run on planned ones alone, as others have their own.
inline void ApplyLayout(kolo_shape *shape, const int *order)
{
    ApplyRings(shape, order);
    if (shape->coll == KOLO_COLL_BROADCAST || shape->coll == KOLO_COLL_REDUCE) {
        ApplyTrees(shape);
    }
}

#endif
