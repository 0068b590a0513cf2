// SPDX-License-Identifier: Apache-2.0
/* Algorithms that a rule forces: their names, the ranks that they need, and their refusals. */
#ifndef KOLO_TESTS_COLLECTIVES_FORCED_H
#define KOLO_TESTS_COLLECTIVES_FORCED_H

#include "collectives_case.h"

namespace collectives
{

/* Words of kolo's rules: "allreduce" and so on, and the algorithms of each, as the library names
 * them when it is asked for one that does not exist. */
std::string RuleWord(Coll coll);
std::vector<std::string> AlgorithmsOf(Coll coll);

/* Whether an algorithm needs ranks in groups. */
bool Climbs(const std::string &algo);
/* While it lives, new communicators are grouped by hand where the algorithm needs it: in each three the
 * second and the third, and of eight the first five. */
class GroupsByHand
{
  public:
    explicit GroupsByHand(const std::string &algo);
    ~GroupsByHand();
    GroupsByHand(const GroupsByHand &) = delete;
    GroupsByHand &operator=(const GroupsByHand &) = delete;
};

/* Whether an algorithm may refuse n ranks. Two ranks make no groups. Some algorithms need a power of
 * two. "rings", and "tree" where it has no trees of its own, need those of a planned machine, which
 * the tests of topology/ give. */
bool MayRefuse(Coll coll, const std::string &algo, int n);

} // namespace collectives

#endif
