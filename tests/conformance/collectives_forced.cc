// SPDX-License-Identifier: Apache-2.0
/* Algorithms that a rule forces; see collectives_forced.h. */
#include "collectives_forced.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace collectives
{

std::string RuleWord(Coll coll)
{
    std::string word = NameOf(coll);
    word.erase(std::remove(word.begin(), word.end(), '_'), word.end());
    return word;
}

/* The text ends in "; there are ring, tree, ...". */
std::vector<std::string> AlgorithmsOf(Coll coll)
{
    std::vector<std::string> names;
    const std::string rule = RuleWord(coll) + ":no-such-algorithm", marker = "there are ";
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *none = nullptr;
    config.algo = rule.c_str();
    if (kolo_comm_create_local(1, &config, &none) == KOLO_OK) {
        kolo_comm_destroy(none);
        return names;
    }
    const std::string why = kolo_error_text();
    const size_t at = why.find(marker);
    if (at != std::string::npos) {
        std::istringstream words(why.substr(at + marker.size()));
        for (std::string word; std::getline(words, word, ',');) {
            names.push_back(word.substr(word.find_first_not_of(' ')));
        }
    }
    return names;
}

bool Climbs(const std::string &algo)
{
    return algo.find("hier") == 0;
}

GroupsByHand::GroupsByHand(const std::string &algo)
{
    if (Climbs(algo)) {
        setenv("KOLO_GROUPS", "0,1,1;0,0,0,0,0,1,1,1", 1);
    }
}

GroupsByHand::~GroupsByHand()
{
    unsetenv("KOLO_GROUPS");
}

bool MayRefuse(Coll coll, const std::string &algo, int n)
{
    const bool is_power_of_two = (n & (n - 1)) == 0;
    return algo == "rings" || (algo == "tree" && coll != Coll::kAllReduce) ||
           (Climbs(algo) ? n <= 2 : !is_power_of_two);
}

} // namespace collectives
