// SPDX-License-Identifier: Apache-2.0
// Inputs whose sums are exact in any order, for calls that are made in layers.
#ifndef KOLO_TESTS_LAYER_CALLS_H
#define KOLO_TESTS_LAYER_CALLS_H

#include "calls.h"

#include <string>

namespace layer_calls
{

using namespace calls;

// -1, 0 or 1 in small floats, so that sums, products and averages of up to eight of them are exact,
// -2 to 2 in others; any integers.
inline Bytes Exact(kolo_type type, size_t count, uint64_t seed)
{
    Bytes data = Fill(type, count, seed);
    if (type < KOLO_FLOAT16 || type > KOLO_FLOAT8_E5M2) {
        return data;
    }
    reduce_reference::Random random(seed + 1);
    const bool tiny = kBytes[type] == 1;
    for (size_t i = 0; i < count; i++) {
        uint8_t *at = &data[i * kBytes[type]];
        const int x = static_cast<int>(random.Next() % (tiny ? 3 : 5)) - (tiny ? 1 : 2);
        if (type == KOLO_FLOAT64) {
            reduce_reference::Put(at, static_cast<double>(x));
        } else if (type == KOLO_FLOAT32) {
            reduce_reference::Put(at, static_cast<float>(x));
        } else if (tiny) {
            *at = static_cast<uint8_t>(reduce_reference::Encode(type, static_cast<float>(x)));
        } else {
            reduce_reference::Put(
                at, static_cast<uint16_t>(reduce_reference::Encode(type, static_cast<float>(x))));
        }
    }
    return data;
}

// Of `count` elements, in the longer of a call's buffers.
inline size_t Blocks(Coll coll, int ranks)
{
    const bool flat = coll == kAllReduce || coll == kReduce || coll == kBroadcast;
    return flat ? 1 : static_cast<size_t>(ranks);
}

inline bool CanBeInPlace(Coll coll)
{
    return coll != kGather && coll != kScatter;
}

struct Shift { // of a call's buffers in one, or in two
    size_t in = 0, out = 0;
};

inline Shift InPlaceShift(const Call &c, int rank)
{
    const size_t own = static_cast<size_t>(rank) * c.count * kBytes[c.type];
    return {c.coll == kAllGather ? own : 0, c.coll == kReduceScatter ? own : 0};
}

inline std::string Name(const Call &c)
{
    return "collective " + std::to_string(c.coll) + " of " + std::to_string(c.count) + " " +
           kolo_type_name(c.type) + ", " + kolo_op_name(c.op);
}

} // namespace layer_calls

#endif
