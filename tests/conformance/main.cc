// SPDX-License-Identifier: Apache-2.0
/* conformance [--plugin=FILE] [GoogleTest's options]: the suite over the built-in transports and
 * that of the plug-in. The plug-in is loaded from a copy, since a build folder may be writable by
 * others, which the loader refuses. */
#include "plugin/catalogue.h"
#include "util/util.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

bool LoadCopy(const std::string &path)
{
    char folder[] = "/tmp/kolo-conformance-XXXXXX";
    if (mkdtemp(folder) == nullptr) {
        return false;
    }
    const std::string copy = std::string(folder) + path.substr(path.rfind('/'));
    std::ofstream(copy, std::ios::binary) << std::ifstream(path, std::ios::binary).rdbuf();
    chmod(copy.c_str(), 0644);
    const kolo_status status = kolo_plugin_load_file(copy.c_str());
    unlink(copy.c_str());
    rmdir(folder);
    if (status != KOLO_OK) {
        std::fprintf(stderr, "%s: %s\n", path.c_str(), kolo_error_text());
    }
    return status == KOLO_OK;
}

} // namespace

int main(int argc, char **argv)
{
    static const std::string option = "--plugin=/";
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        if (argument.compare(0, option.size(), option) == 0 &&
            !LoadCopy(argument.substr(option.size() - 1))) {
            return 1;
        }
    }
    testing::InitGoogleTest(&argc, argv); /* after this the list of transports is fixed */
    return RUN_ALL_TESTS();
}
