// SPDX-License-Identifier: Apache-2.0
/* Floats for which the order of additions matters: do all ranks hold the same bits, and those of
 * the expression that deterministic communicators promise? A rank compares with hashes that it
 * gets from the others, so ranks may be threads or processes. */
#ifndef KOLO_TESTS_COLLECTIVES_BITS_H
#define KOLO_TESTS_COLLECTIVES_BITS_H

#include "collectives_case.h"

#include <string>

namespace collectives
{

struct Bits {
    Coll coll; /* kAllReduce, kReduce or kReduceScatter */
    kolo_type type;
    kolo_op op;
    size_t count;
    bool special = false;       /* with negative zeros, subnormals, infinities and NaN */
    bool in_rank_order = false; /* the communicator is deterministic: compare with the expression */
    uint64_t seed = 1;
    size_t calls = 1; /* the data is split into so many calls (all_reduce) */
};
std::string Describe(const Bits &b, int n);

/* Run it as this rank: "" or what is wrong. */
std::string PlayBits(kolo_comm *comm, const Bits &b);

const std::vector<kolo_type> &FloatTypes();

} // namespace collectives

#endif
