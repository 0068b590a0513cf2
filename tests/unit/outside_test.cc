// SPDX-License-Identifier: Apache-2.0
// covers: src/util/log.c src/util/library.c src/util/escape.c src/cuda/driver.c
/* Files and names that may come from somebody else: a file for the log, a library, a name with
 * characters that begin a line. Each case is a process of its own, because the log and
 * the libraries are opened once in a process. */
extern "C" {
#include "util/library.h"
#include "util/util.h"

/* Of two headers that C++ does not take. */
struct kolo_cuda;
struct kolo_nvml;
kolo_status kolo_cuda_open(const kolo_cuda **out);
const kolo_nvml *kolo_nvml_open(const char **why);
}

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <link.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{

constexpr uid_t kOther = 12345;
constexpr unsigned kLimitS = 20;

std::string Content(const std::string &path)
{
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

/* A folder of its own. */
class Outside : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_NE(nullptr, mkdtemp(folder_.data()));
    }
    void TearDown() override
    {
        const std::string command = "rm -r " + folder_;
        EXPECT_EQ(0, system(command.c_str()));
    }
    std::string In(const std::string &name) const
    {
        return folder_ + "/" + name;
    }
    std::string Write(const std::string &name, const std::string &content) const
    {
        std::ofstream(In(name)) << content;
        return In(name);
    }
    /* Standard output of a process that does `what`, and its standard error. It must end well. */
    std::string Run(const std::function<void()> &what, std::string *err = nullptr) const
    {
        const pid_t child = fork();
        if (child == 0) {
            alarm(kLimitS); /* it hung */
            dup2(creat(In("out").c_str(), 0600), 1);
            dup2(creat(In("err").c_str(), 0600), 2);
            what();
            _exit(0);
        }
        int status = -1;
        EXPECT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status) << Content(In("err"));
        if (err != nullptr) {
            *err = Content(In("err"));
        }
        return Content(In("out"));
    }
    /* A process that logs one line to that file. */
    std::string Log(const std::string &file, std::string *err) const
    {
        return Run(
            [&] {
                setenv("KOLO_DEBUG", "INFO", 1);
                setenv("KOLO_DEBUG_FILE", file.c_str(), 1);
                KOLO_LOG(INFO, INIT, "one line");
            },
            err);
    }
    void ExpectRefused(const std::string &file, const std::string &why) const
    {
        std::string err;
        const std::string out = Log(file, &err);
        EXPECT_NE(std::string::npos, out.find("KOLO INFO one line")) << out;
        EXPECT_NE(std::string::npos, err.find("KOLO_DEBUG_FILE: \"" + file + "\"")) << err;
        EXPECT_NE(std::string::npos, err.find(why)) << err;
        EXPECT_EQ(err.size(), err.find('\n') + 1) << "more than once: " << err;
    }

  private:
    std::string folder_ = testing::TempDir() + "kolo-outside-" + std::string(6, 'X');
};

/* ---- the file of the log ---- */

TEST_F(Outside, ANewFileGetsTheLogAndIsForItsUserOnly)
{
    std::string err;
    struct stat info = {};
    EXPECT_EQ("", Log(In("log"), &err));
    EXPECT_EQ("", err);
    EXPECT_NE(std::string::npos, Content(In("log")).find("KOLO INFO one line"));
    ASSERT_EQ(0, stat(In("log").c_str(), &info));
    EXPECT_EQ(0600u, info.st_mode & 07777);
}

TEST_F(Outside, AnOwnLinkIsFollowed)
{
    std::string err;
    const std::string target = Write("target", "before\n");
    ASSERT_EQ(0, symlink(target.c_str(), In("link").c_str()));
    EXPECT_EQ("", Log(In("link"), &err));
    EXPECT_EQ(0u, Content(target).find("before\n"));
    EXPECT_NE(std::string::npos, Content(target).find("one line"));
}

TEST_F(Outside, ALinkOfAnotherUserIsNotFollowed)
{
    const std::string target = Write("target", "before\n");
    ASSERT_EQ(0, symlink(target.c_str(), In("link").c_str()));
    if (lchown(In("link").c_str(), kOther, gid_t(-1)) != 0) {
        GTEST_SKIP() << "only root can give a link away";
    }
    ExpectRefused(In("link"), "symbolic link of another user");
    EXPECT_EQ("before\n", Content(target));
}

TEST_F(Outside, AFileOfAnotherUserIsNotWritten)
{
    const std::string file = Write("file", "his\n");
    if (chown(file.c_str(), kOther, gid_t(-1)) != 0) {
        GTEST_SKIP() << "only root can give a file away";
    }
    ExpectRefused(file, "belongs to another user");
    EXPECT_EQ("his\n", Content(file));
}

TEST_F(Outside, ASecondNameOfAFileIsNotWritten)
{
    const std::string file = Write("file", "first\n");
    ASSERT_EQ(0, link(file.c_str(), In("second").c_str()));
    ExpectRefused(In("second"), "another name");
    EXPECT_EQ("first\n", Content(file));
}

TEST_F(Outside, APipeDoesNotHoldTheProcess)
{
    ASSERT_EQ(0, mkfifo(In("pipe").c_str(), 0600));
    ExpectRefused(In("pipe"), "nobody reads");
    const int reader = open(In("pipe").c_str(), O_RDONLY | O_NONBLOCK);
    ExpectRefused(In("pipe"), "not a file");
    close(reader);
}

TEST_F(Outside, AFolderThatIsNotThereIsTold)
{
    ExpectRefused(In("none/log"), "No such file");
}

TEST_F(Outside, StandardErrorIsNamedAsADevice)
{
    std::string err;
    EXPECT_EQ("", Log("/dev/stderr", &err));
    EXPECT_NE(std::string::npos, err.find("KOLO INFO one line")) << err;
}

TEST_F(Outside, AMachineIsNotDumpedThroughALinkOfAnotherUser)
{
    const std::string target = Write("target", "before\n");
    ASSERT_EQ(0, symlink(target.c_str(), In("link").c_str()));
    if (lchown(In("link").c_str(), kOther, gid_t(-1)) != 0) {
        GTEST_SKIP() << "only root can give a link away";
    }
    const std::string out = Run([&] {
        kolo_comm *comm[2] = {};
        setenv("KOLO_TOPO_DUMP_FILE", In("link").c_str(), 1);
        const kolo_status status = kolo_comm_create_local(2, nullptr, comm);
        printf("%d %s\n", status, kolo_error_text());
        fflush(stdout);
    });
    EXPECT_NE(std::string::npos, out.find("symbolic link of another user")) << out;
    EXPECT_EQ("before\n", Content(target));
}

/* ---- names that begin a line ---- */

const char kForged[] = "job\nhost:1:1 [-1] KOLO INFO forged\r\x1b[2J\xc2\x9b"
                       "2J\x7f";

TEST_F(Outside, ANameBeginsNoLineOfTheLog)
{
    const std::string out = Run([] {
        kolo_comm *comm[2] = {};
        kolo_config config = KOLO_CONFIG_INIT;
        setenv("KOLO_DEBUG", "INFO", 1);
        config.name = kForged;
        if (kolo_comm_create_local(2, &config, comm) != KOLO_OK) {
            _exit(1);
        }
        KOLO_LOG(WARN, INIT, "%s", kForged);
        kolo_comm_destroy(comm[0]);
        kolo_comm_destroy(comm[1]);
    });
    EXPECT_NE(std::string::npos, out.find("job\\nhost:1:1 [-1] KOLO INFO forged\\r\\x1b[2J"))
        << out;
    EXPECT_EQ(std::string::npos, out.find("\nhost:1:1")) << out;
    EXPECT_EQ(std::string::npos, out.find_first_of("\r\x1b\x7f")) << out;
    EXPECT_EQ(std::string::npos, out.find("\xc2\x9b")) << out;
}

TEST_F(Outside, AnErrorIsOneLine)
{
    const std::string out = Run([] {
        kolo_comm *comm[2] = {};
        kolo_config config = KOLO_CONFIG_INIT;
        config.algo = "allreduce:\nhost:1:1 [-1] KOLO INFO forged";
        (void)!kolo_comm_create_local(2, &config, comm);
        printf("%s\n", kolo_error_text());
        kolo_error_set("what a\npeer says");
        printf("%s\n", kolo_error_text());
        fflush(stdout);
    });
    EXPECT_EQ(std::string::npos, out.find("\nhost:1:1")) << out;
    EXPECT_NE(std::string::npos, out.find("\\nhost:1:1")) << out;
    EXPECT_NE(std::string::npos, out.find("\nwhat a\\npeer says\n")) << out;
}

TEST_F(Outside, AWordThatIsNotKnownIsToldOnOneLine)
{
    std::string err;
    Run(
        [] {
            setenv("KOLO_DEBUG", "INFO\nkolo: forged", 1);
            KOLO_LOG(INFO, INIT, "one line");
        },
        &err);
    EXPECT_NE(std::string::npos, err.find("\"INFO\\nkolo: forged\"")) << err;
}

TEST_F(Outside, OtherCharactersStayAsTheyAre)
{
    const std::string out = Run([] {
        setenv("KOLO_DEBUG", "INFO", 1);
        KOLO_LOG(INFO, INIT, "%s", "blank \\ \xc3\xa9 \xe2\x82\xac ~");
    });
    EXPECT_NE(std::string::npos, out.find("blank \\ \xc3\xa9 \xe2\x82\xac ~\n")) << out;
}

/* ---- libraries that a variable names ---- */

/* A library that does nothing: a copy of one of the system's. */
std::string CopyLibrary(const std::string &to)
{
    void *found = dlopen("libm.so.6", RTLD_NOW);
    link_map *map = nullptr;
    EXPECT_EQ(0, dlinfo(found, RTLD_DI_LINKMAP, static_cast<void *>(&map)));
    std::ofstream(to, std::ios::binary) << std::ifstream(map->l_name, std::ios::binary).rdbuf();
    EXPECT_EQ(0, chmod(to.c_str(), 0755));
    return to;
}

struct Variable {
    const char *name;
    std::function<void()> open;
};

const std::vector<Variable> kVariables = {
#if __has_include(<infiniband/verbs.h>)
    {"KOLO_IB_LIBRARY",
     [] {
         kolo_comm *comm[2] = {};
         kolo_config config = KOLO_CONFIG_INIT;
         config.transport = "verbs";
         (void)!kolo_comm_create_local(2, &config, comm);
     }},
#endif
    {"KOLO_CUDA_PATH",
     [] {
         const kolo_cuda *cuda = nullptr;
         (void)!kolo_cuda_open(&cuda);
     }},
    {"KOLO_NVML_PATH",
     [] {
         const char *why = nullptr;
         (void)kolo_nvml_open(&why);
     }},
};

class OutsideLibrary : public Outside
{
  protected:
    /* Whether a process takes the library of `path`, which is in the file `real`. */
    bool IsLoaded(const Variable &variable, const std::string &path, const std::string &real) const
    {
        const std::string out = Run([&] {
            setenv(variable.name, path.c_str(), 1);
            variable.open();
            printf("%s", Content("/proc/self/maps").c_str());
            fflush(stdout);
        });
        return out.find(real) != std::string::npos;
    }
    /* The same for each variable. */
    void ExpectLoaded(bool loaded, const std::string &path, const std::string &real) const
    {
        for (const Variable &variable : kVariables) {
            EXPECT_EQ(loaded, IsLoaded(variable, path, real)) << variable.name << "=" << path;
        }
    }
};

TEST_F(OutsideLibrary, ThatIsOwnIsLoaded)
{
    const std::string library = CopyLibrary(In("library.so"));
    ASSERT_EQ(0, symlink("library.so", In("link.so").c_str()));
    ExpectLoaded(true, library, library);
    ExpectLoaded(true, In("link.so"), library);
}

TEST_F(OutsideLibrary, ThatOthersMayWriteIsNotLoaded)
{
    const std::string library = CopyLibrary(In("library.so"));
    chmod(library.c_str(), 0757);
    ExpectLoaded(false, library, library);
}

TEST_F(OutsideLibrary, InAFolderThatOthersMayWriteIsNotLoaded)
{
    ASSERT_EQ(0, mkdir(In("open").c_str(), 0700));
    const std::string library = CopyLibrary(In("open/library.so"));
    ASSERT_EQ(0, symlink("open/library.so", In("link.so").c_str()));
    chmod(In("open").c_str(), 0777);
    ExpectLoaded(false, library, library);
    ExpectLoaded(false, In("link.so"), library);
}

TEST_F(OutsideLibrary, OfAnotherUserIsNotLoaded)
{
    const std::string library = CopyLibrary(In("library.so"));
    const std::string own = CopyLibrary(In("own.so"));
    ASSERT_EQ(0, symlink("own.so", In("link.so").c_str()));
    if (chown(library.c_str(), kOther, gid_t(-1)) != 0 ||
        lchown(In("link.so").c_str(), kOther, gid_t(-1)) != 0) {
        GTEST_SKIP() << "only root can give a file away";
    }
    ExpectLoaded(false, library, library);
    ExpectLoaded(false, In("link.so"), own);
}

TEST_F(OutsideLibrary, OfARelativePathIsNotLoaded)
{
    const std::string library = CopyLibrary(In("library.so"));
    for (const Variable &variable : kVariables) {
        SCOPED_TRACE(variable.name);
        const Variable moved = {variable.name, [&] {
                                    if (chdir(In("").c_str()) == 0) {
                                        variable.open();
                                    }
                                }};
        EXPECT_FALSE(IsLoaded(moved, "./library.so", library));
    }
}

TEST_F(OutsideLibrary, ThatIsRefusedIsNamedWithTheReason)
{
    char why[KOLO_WHY_BYTES] = "";
    setenv("KOLO_SOME_LIBRARY", "library.so", 1);
    EXPECT_EQ(nullptr, kolo_library_open("KOLO_SOME_LIBRARY", "libm.so.6", why));
    EXPECT_STREQ("KOLO_SOME_LIBRARY refused: library.so is not an absolute path", why);
    unsetenv("KOLO_SOME_LIBRARY");
    EXPECT_NE(nullptr, kolo_library_open("KOLO_SOME_LIBRARY", "libm.so.6", why));
}

} // namespace
