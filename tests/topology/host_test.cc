// SPDX-License-Identifier: Apache-2.0
// covers: topology/machine
/* What discovery of this machine does not do. It is a program of its own, because other tests may
 * leave threads. */
extern "C" {
#include "topology/machine/host.h"
}

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#else
static const bool __libc_single_threaded = false;
#endif

namespace
{

TEST(Discovery, OpensNoPlugInOfHwlocWhereNoDeviceIsWanted)
{
    if (!__libc_single_threaded || getenv("HWLOC_PLUGINS_PATH") != nullptr) {
        GTEST_SKIP()
            << "a thread is here that may read the environment, or the plug-ins are chosen";
    }
    struct kolo_host *host = nullptr;
    setenv("HWLOC_PLUGINS_VERBOSE", "1", 1);
    testing::internal::CaptureStderr();
    const kolo_status status = kolo_host_live(false, &host);
    const std::string said = testing::internal::GetCapturedStderr();
    kolo_host_destroy(host);
    EXPECT_EQ(status, KOLO_OK);
    EXPECT_EQ(said.find("dlforeach found"), std::string::npos) << said;
    EXPECT_EQ(getenv("HWLOC_PLUGINS_PATH"), nullptr) << "the environment is as it was";
}

} // namespace
