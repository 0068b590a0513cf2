// SPDX-License-Identifier: Apache-2.0
// covers: src/plugin examples/plugins
/* The plug-in loader: what it takes, what it refuses, and that it says why. The plug-ins are copied
 * to a folder of the test's own, so that its permissions are known. */
#include "plugin/catalogue.h"

extern "C" {
#include "plan/plan.h"
#include "plan/verify/verify.h"
}

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

/* A folder under /tmp with copies of the plug-ins, removed at the end. */
class Folder
{
  public:
    Folder()
    {
        char path[] = "/tmp/kolo-plugins-XXXXXX";
        EXPECT_NE(nullptr, mkdtemp(path));
        path_ = path;
    }
    ~Folder()
    {
        chmod(path_.c_str(), 0700);
        for (const std::string &file : files_) {
            unlink(file.c_str());
        }
        rmdir(path_.c_str());
    }
    /* Copy plug-in `name`, here named `as`. */
    std::string Copy(const std::string &name, const std::string &as)
    {
        const std::string to = path_ + "/" + as;
        std::ifstream from(std::string(PLUGIN_DIR) + "/libkolo_" + name + ".so", std::ios::binary);
        EXPECT_TRUE(from.good()) << name;
        std::ofstream(to, std::ios::binary) << from.rdbuf();
        chmod(to.c_str(), 0644);
        files_.push_back(to);
        return to;
    }
    std::string Copy(const std::string &name)
    {
        return Copy(name, "libkolo_" + name + ".so");
    }
    std::string Link(const std::string &to, const std::string &as)
    {
        const std::string path = path_ + "/" + as;
        EXPECT_EQ(0, symlink(to.c_str(), path.c_str()));
        files_.push_back(path);
        return path;
    }
    const std::string &Path() const
    {
        return path_;
    }

  private:
    std::string path_;
    std::vector<std::string> files_;
};

/* Run `check` in a child, so that what it loads does not stay; its exit status says the outcome. */
void InChild(const std::function<void()> &check)
{
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        check();
        std::fflush(nullptr);
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(0, status);
}

void ExpectRefused(const std::string &path, kolo_status status, const std::string &reason)
{
    const int algos = kolo_algo_count_all();
    const int transports = kolo_transport_count_all();
    const int tuners = kolo_tuner_count_all();
    EXPECT_EQ(status, kolo_plugin_load_file(path.c_str())) << path;
    EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find(reason)) << kolo_error_text();
    EXPECT_EQ(algos, kolo_algo_count_all());
    EXPECT_EQ(transports, kolo_transport_count_all());
    EXPECT_EQ(tuners, kolo_tuner_count_all());
}

/* ---- what is there ---- */

TEST(Catalogue, HoldsTheBuiltInTransportsWithNoSlotEmpty)
{
    ASSERT_NE(nullptr, kolo_transport_find("shm"));
    ASSERT_NE(nullptr, kolo_transport_find("loop"));
    for (int i = 0; i < kolo_transport_count_all(); i++) {
        const kolo_transport *t = kolo_transport_at(i);
        EXPECT_TRUE(t->open && t->close && t->probe && t->address && t->connect && t->disconnect &&
                    t->map && t->unmap && t->send && t->recv && t->progress && t->abort &&
                    t->attach && t->wake && t->wait_fd && t->notify && t->bell && t->ring)
            << t->base.name;
    }
}

TEST(Catalogue, HoldsTheBuiltInAlgorithms)
{
    EXPECT_GE(kolo_algo_count_all(), kolo_algos_count);
    EXPECT_EQ(kolo_algos[0], kolo_algo_at(0));
    EXPECT_EQ(kolo_algos[0], kolo_algo_find(kolo_algos[0]->base.name));
}

TEST(Catalogue, HasNothingOutsideItsRange)
{
    EXPECT_EQ(nullptr, kolo_algo_at(-1));
    EXPECT_EQ(nullptr, kolo_algo_at(kolo_algo_count_all()));
    EXPECT_EQ(nullptr, kolo_transport_at(-1));
    EXPECT_EQ(nullptr, kolo_transport_at(kolo_transport_count_all()));
    EXPECT_EQ(nullptr, kolo_tuner_at(kolo_tuner_count_all()));
    EXPECT_EQ(nullptr, kolo_algo_find("no_such_algorithm"));
}

/* ---- what is taken ---- */

TEST(Plugin, OfAnAlgorithmIsProvedLikeABuiltInOne)
{
    InChild([] {
        Folder folder;
        ASSERT_EQ(nullptr, kolo_algo_find("allreduce_star"));
        ASSERT_EQ(KOLO_OK, kolo_plugin_load_file(folder.Copy("algo_allreduce_star").c_str()))
            << kolo_error_text();
        const kolo_algo *algo = kolo_algo_find("allreduce_star");
        ASSERT_NE(nullptr, algo);
        EXPECT_EQ(algo, kolo_algo_at(kolo_algo_count_all() - 1)) << "after the built-in ones";
        for (int n = 1; n <= 9; n++) {
            SCOPED_TRACE(n);
            kolo_shape shape{};
            kolo_plan *plan = nullptr;
            bool rank_order = false;
            shape.size = sizeof shape;
            shape.coll = KOLO_COLL_ALL_REDUCE;
            shape.nranks = n;
            EXPECT_TRUE(algo->supports(&shape)) << "the default of an empty slot";
            ASSERT_EQ(KOLO_OK, kolo_plan_build(algo, &shape, -1, &plan)) << kolo_error_text();
            EXPECT_EQ(KOLO_OK, kolo_verify_plan(plan)) << kolo_error_text();
            EXPECT_EQ(KOLO_OK, kolo_verify_expression(plan, &rank_order)) << kolo_error_text();
            EXPECT_TRUE(rank_order);
            kolo_plan_destroy(plan);
        }
    });
}

TEST(Plugin, OfATunerChooses)
{
    InChild([] {
        Folder folder;
        ASSERT_EQ(KOLO_OK, kolo_plugin_load_file(folder.Copy("tuner_least").c_str()))
            << kolo_error_text();
        const kolo_tuner *tuner = kolo_tuner_find("least");
        ASSERT_NE(nullptr, tuner);
        const char *const names[] = {"a", "b", "c"};
        const double us[] = {3, 1, 2};
        kolo_query query{};
        kolo_choice choice{};
        query.size = sizeof query;
        query.bytes = 100;
        query.ncandidates = 3;
        query.candidate = names;
        query.predicted_us = us;
        void *self = nullptr;
        ASSERT_EQ(KOLO_OK, tuner->open(nullptr, &self));
        EXPECT_EQ(KOLO_OK, tuner->choose(self, &query, &choice));
        EXPECT_EQ(1, choice.index);
        query.bytes = 1;
        EXPECT_EQ(KOLO_OK, tuner->choose(self, &query, &choice));
        EXPECT_EQ(-1, choice.index);
        tuner->close(self);
    });
}

TEST(Plugin, OfATransportJoinsTheOthers)
{
    InChild([] {
        Folder folder;
        ASSERT_EQ(KOLO_OK, kolo_plugin_load_file(folder.Copy("transport_dgram").c_str()))
            << kolo_error_text();
        const kolo_transport *dgram = kolo_transport_find("dgram");
        ASSERT_NE(nullptr, dgram);
        kolo_mem mem{};
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, dgram->map(nullptr, nullptr, 8, &mem)) << "the default";
        EXPECT_EQ(-1, dgram->wait_fd(nullptr));
    });
}

TEST(Plugin, OlderThanTheLastSlotsGetsDefaultsForThem)
{
    InChild([] {
        Folder folder;
        ASSERT_EQ(KOLO_OK, kolo_plugin_load_file(folder.Copy("transport_short").c_str()))
            << kolo_error_text();
        const kolo_transport *old = kolo_transport_find("short");
        ASSERT_NE(nullptr, old);
        void *there = nullptr;
        size_t len = 0;
        EXPECT_EQ(17, old->progress(nullptr, 1001)) << "its own slots stay";
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, old->attach(nullptr, nullptr, &there, &len));
        EXPECT_EQ(-1, old->wait_fd(nullptr));
        EXPECT_EQ(nullptr, old->bell(nullptr));
        old->ring(nullptr);
        EXPECT_EQ(sizeof(kolo_transport), old->base.size);
    });
}

TEST(Plugin, IsLoadedOnce)
{
    InChild([] {
        Folder folder;
        const std::string path = folder.Copy("tuner_plain");
        ASSERT_EQ(KOLO_OK, kolo_plugin_load_file(path.c_str()));
        ASSERT_EQ(KOLO_OK, kolo_plugin_load_file(path.c_str()));
        EXPECT_EQ(1, kolo_tuner_count_all());
    });
}

TEST(Plugin, ThatTheEnvironmentListsIsLoaded)
{
    InChild([] {
        Folder folder;
        const std::string list =
            folder.Copy("tuner_plain") + ":" + folder.Copy("algo_allreduce_star");
        setenv("KOLO_PLUGIN", list.c_str(), 1);
        EXPECT_EQ(KOLO_OK, kolo_plugins_load()) << kolo_error_text();
        EXPECT_NE(nullptr, kolo_tuner_find("plain"));
        EXPECT_NE(nullptr, kolo_algo_find("allreduce_star"));
        setenv("KOLO_PLUGIN", "/nowhere/libkolo_tuner_x.so", 1);
        EXPECT_EQ(KOLO_OK, kolo_plugins_load()) << "read once";
    });
}

TEST(Plugin, ThatTheEnvironmentListsWronglyIsAnErrorEachTime)
{
    InChild([] {
        setenv("KOLO_PLUGIN", "libkolo_tuner_plain.so", 1);
        for (int i = 0; i < 2; i++) {
            kolo_error_set("");
            EXPECT_EQ(KOLO_ERR_INVALID, kolo_plugins_load());
            EXPECT_NE(nullptr, strstr(kolo_error_text(), "absolute")) << kolo_error_text();
        }
    });
}

/* ---- what is refused: the file ---- */

TEST(PluginFile, WithARelativePathIsRefused)
{
    ExpectRefused("./libkolo_tuner_plain.so", KOLO_ERR_INVALID, "absolute path");
}

TEST(PluginFile, ThatIsNotThereIsRefused)
{
    ExpectRefused("/tmp/kolo-no-such-file/libkolo_tuner_plain.so", KOLO_ERR_SYSTEM, "No such file");
}

TEST(PluginFile, WritableByOthersIsRefused)
{
    Folder folder;
    const std::string path = folder.Copy("tuner_plain");
    for (mode_t mode : {0664, 0646}) {
        chmod(path.c_str(), mode);
        ExpectRefused(path, KOLO_ERR_INVALID, "can be written by others (mode 06");
    }
}

TEST(PluginFile, InAFolderWritableByOthersIsRefused)
{
    Folder folder;
    const std::string path = folder.Copy("tuner_plain");
    chmod(folder.Path().c_str(), 0777);
    ExpectRefused(path, KOLO_ERR_INVALID, folder.Path() + "/ can be written by others");
}

TEST(PluginFile, OfAnotherUserIsRefused)
{
    Folder folder;
    const std::string path = folder.Copy("tuner_plain");
    if (geteuid() != 0 || chown(path.c_str(), 12345, (gid_t)-1) != 0) {
        GTEST_SKIP() << "only root can give a file away";
    }
    ExpectRefused(path, KOLO_ERR_INVALID, "belongs to user 12345");
}

TEST(PluginFile, ThatIsASymbolicLinkIsRefused)
{
    Folder folder;
    const std::string path =
        folder.Link(folder.Copy("tuner_plain", "real.so"), "libkolo_tuner_plain.so");
    ExpectRefused(path, KOLO_ERR_INVALID, "symbolic link");
}

TEST(PluginFile, ThatIsAFolderIsRefused)
{
    ExpectRefused("/tmp", KOLO_ERR_INVALID, "not a regular file");
}

TEST(PluginFile, ThatIsNoLibraryIsRefused)
{
    Folder folder;
    const std::string path = folder.Copy("tuner_plain");
    std::ofstream(path) << "hello";
    ExpectRefused(path, KOLO_ERR_SYSTEM, "libkolo_tuner_plain.so");
}

/* ---- what is refused: what is in it ---- */

struct Odd {
    const char *plugin;
    kolo_status status;
    const char *reason;
};

class OddPlugin : public testing::TestWithParam<Odd>
{
};

TEST_P(OddPlugin, IsRefusedWithTheReason)
{
    Folder folder;
    const std::string path = folder.Copy(GetParam().plugin);
    ExpectRefused(path, GetParam().status, GetParam().reason);
    EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find(path)) << "names the file";
}

INSTANTIATE_TEST_SUITE_P(
    All, OddPlugin,
    testing::Values(
        Odd{"tuner_abi", KOLO_ERR_VERSION, "has plug-in ABI 77, this is 1: it is to be built"},
        Odd{"tuner_large", KOLO_ERR_VERSION, "its struct has 48 bytes, here it has 16 to 40"},
        Odd{"tuner_stub", KOLO_ERR_INVALID, "says that it has 40 bytes, and has 16"},
        Odd{"tuner_tiny", KOLO_ERR_INVALID, "kolo_tuner_v1 has 4 bytes"},
        Odd{"tuner_hole", KOLO_ERR_INVALID, "choose is missing"},
        Odd{"tuner_alias", KOLO_ERR_INVALID, "so its file is libkolo_tuner_another.so"},
        Odd{"tuner_Case", KOLO_ERR_INVALID, "a name has a-z"},
        Odd{"tuner_both", KOLO_ERR_INVALID, "exports none or several"},
        Odd{"tuner_none", KOLO_ERR_INVALID, "exports none or several"},
        Odd{"algo_sum", KOLO_ERR_INVALID, "the name begins with allreduce_"},
        Odd{"algo_allreduce_nosource", KOLO_ERR_INVALID, "source is missing"},
        Odd{"algo_allreduce_ring", KOLO_ERR_INVALID, "the algo \"allreduce_ring\" exists"},
        Odd{"transport_shm", KOLO_ERR_INVALID, "the transport \"shm\" exists"},
        Odd{"transport_liar", KOLO_ERR_INVALID, "map (it has KOLO_CAP_MAP) is missing"},
        Odd{"transport_idle", KOLO_ERR_INVALID, "KOLO_CAP_MAP or KOLO_CAP_MESSAGE is missing"}),
    [](const auto &info) { return std::string(info.param.plugin); });

} // namespace
