// SPDX-License-Identifier: Apache-2.0
// covers: transports/tcp/greet.c
#include "tcp_greet_ask.h"

#include <cerrno>
#include <gtest/gtest.h>

namespace
{

TEST(Greeting, ARankThatRefusesAndDiesIsKnownToBeGone)
{
    EXPECT_EQ(ECONNREFUSED, greet_one_who_refuses_and_dies());
}

} // namespace
