// SPDX-License-Identifier: Apache-2.0
// covers: src/boot/launch.c src/boot/launch_hosts.c src/boot/pmi.c
/* Environments as launchers leave them, whole, half and wrong. */
extern "C" {
#include "boot/launch.h"
}

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace
{

using Environment = std::map<std::string, std::string>;

constexpr int kTimeoutMs = 50;

/* The environment is the given one and nothing else while this lives. */
class OnlyThese
{
  public:
    explicit OnlyThese(const Environment &environment)
    {
        for (char **entry = environ; *entry != nullptr; entry++) {
            const std::string text = *entry;
            before_[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
        }
        Set(environment);
    }
    ~OnlyThese()
    {
        Set(before_);
    }
    OnlyThese(const OnlyThese &) = delete;
    OnlyThese &operator=(const OnlyThese &) = delete;

  private:
    static void Set(const Environment &environment)
    {
        clearenv();
        for (const auto &[name, value] : environment) {
            setenv(name.c_str(), value.c_str(), 1);
        }
    }
    Environment before_;
};

kolo_launch Detect(const Environment &environment)
{
    const OnlyThese these(environment);
    kolo_launch launch = {};
    EXPECT_EQ(KOLO_OK, kolo_launch_detect(&launch)) << kolo_error_text();
    return launch;
}

void ExpectRefused(const Environment &environment, kolo_status status, const std::string &text)
{
    const OnlyThese these(environment);
    kolo_launch launch = {};
    EXPECT_STREQ(kolo_status_name(status), kolo_status_name(kolo_launch_detect(&launch)));
    EXPECT_EQ(text, kolo_error_text());
    EXPECT_EQ(nullptr, launch.launcher); /* written only on success */
}

void ExpectRanks(const kolo_launch &launch, const char *launcher, int rank, int nranks)
{
    EXPECT_STREQ(launcher, launch.launcher);
    EXPECT_EQ(rank, launch.rank);
    EXPECT_EQ(nranks, launch.nranks);
    EXPECT_EQ(rank, launch.local_rank);
    EXPECT_EQ(nranks, launch.local_size);
}

/* The ranks of one job meet, those of another do not meet them. */
void ExpectSameMeeting(const Environment &rank0, const Environment &rank1, const Environment &other)
{
    EXPECT_STREQ(Detect(rank0).meet.name, Detect(rank1).meet.name);
    EXPECT_STRNE(Detect(rank0).meet.name, Detect(other).meet.name);
}

Environment With(Environment environment, const Environment &changes)
{
    for (const auto &[name, value] : changes) {
        environment[name] = value;
    }
    return environment;
}

const Environment kKolo = {{"KOLO_RANK", "2"},
                           {"KOLO_NRANKS", "4"},
                           {"KOLO_LOCAL_RANK", "2"},
                           {"KOLO_LOCAL_SIZE", "4"},
                           {"KOLO_JOB", "f00d"}};
const Environment kTorch = {{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"MASTER_ADDR", "localhost"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"OMPI_MCA_ess_base_jobid", "1931214849"},
                              {"PMIX_NAMESPACE", "1931214849"}};
const Environment kHydra = {{"PMI_RANK", "1"},        {"PMI_SIZE", "2"},
                            {"PMI_FD", "8"},          {"MPI_LOCALRANKID", "1"},
                            {"MPI_LOCALNRANKS", "2"}, {"HYDI_CONTROL_FD", "-1"}};
const Environment kSrun = {{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},
                           {"SLURM_LOCALID", "1"},        {"SLURM_JOB_ID", "77"},
                           {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_ID", "0"}};

TEST(Launch, WithoutALauncherThereIsOneRankAndEachProcessMeetsItself)
{
    const kolo_launch launch = Detect({});
    ExpectRanks(launch, "no launcher", 0, 1);
    EXPECT_EQ(0u, std::string(launch.meet.name).find("alone-"));
}

TEST(Launch, EachLauncherIsRecognised)
{
    ExpectRanks(Detect(kKolo), "kolo run", 2, 4);
    ExpectRanks(Detect(kTorch), "torchrun", 1, 2);
    ExpectRanks(Detect(kOpenMpi), "mpirun (Open MPI)", 1, 2);
    ExpectRanks(Detect(With(kHydra, {{"PMI_JOBID", "9"}})), "mpiexec (hydra)", 1, 2);
    ExpectRanks(Detect(kSrun), "srun", 1, 2);
    ExpectRanks(Detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "9"}}),
                "a PMI launcher", 1, 2);
}

TEST(Launch, KoloRunWinsOverTheLauncherAroundIt)
{
    ExpectRanks(Detect(With(kOpenMpi, kKolo)), "kolo run", 2, 4);
    ExpectRanks(Detect(With(kSrun, kOpenMpi)), "mpirun (Open MPI)", 1, 2);
}

TEST(Launch, RanksOfOneJobMeetAndThoseOfAnotherDoNot)
{
    ExpectSameMeeting(kKolo, With(kKolo, {{"KOLO_RANK", "3"}}), With(kKolo, {{"KOLO_JOB", "f00"}}));
    ExpectSameMeeting(kTorch, With(kTorch, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}),
                      With(kTorch, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
    ExpectSameMeeting(kTorch, kTorch, With(kTorch, {{"MASTER_PORT", "29501"}}));
    ExpectSameMeeting(kOpenMpi, With(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}),
                      With(kOpenMpi, {{"PMIX_NAMESPACE", "1931214850"}}));
    ExpectSameMeeting(kSrun, With(kSrun, {{"SLURM_PROCID", "0"}}),
                      With(kSrun, {{"SLURM_STEP_ID", "1"}}));
}

TEST(Launch, HydrasRanksMeetByTheSocketTheyInherit)
{
    int first[2];
    int second[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, first));
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, second));
    const int copy = dup(first[0]);
    ExpectSameMeeting(With(kHydra, {{"HYDI_CONTROL_FD", std::to_string(first[0])}}),
                      With(kHydra, {{"HYDI_CONTROL_FD", std::to_string(copy)}}),
                      With(kHydra, {{"HYDI_CONTROL_FD", std::to_string(second[0])}}));
    for (const int fd : {first[0], first[1], second[0], second[1], copy}) {
        close(fd);
    }
}

TEST(Launch, LongJobNamesThatDifferAtTheEndDiffer)
{
    const std::string text(500, 'x');
    const Environment job = With(kKolo, {{"KOLO_JOB", text + "a"}});
    ExpectSameMeeting(job, job, With(kKolo, {{"KOLO_JOB", text + "b"}}));
}

TEST(Launch, SlurmsBatchScriptIsOneProcess)
{
    ExpectRanks(Detect(With(kSrun, {{"SLURM_STEP_ID", "4294967291"}, {"SLURM_PROCID", "0"}})),
                "no launcher", 0, 1);
}

TEST(Launch, EachCallMeetsAtAPlaceOfItsOwn)
{
    const OnlyThese these(kKolo);
    kolo_launch first = {};
    kolo_launch second = {};
    ASSERT_EQ(KOLO_OK, kolo_launch_next(kTimeoutMs, &first));
    ASSERT_EQ(KOLO_OK, kolo_launch_next(kTimeoutMs, &second));
    EXPECT_STRNE(first.meet.name, second.meet.name);
}

TEST(Launch, HalfAnEnvironmentIsRefused)
{
    ExpectRefused({{"KOLO_RANK", "2"}}, KOLO_ERR_INVALID,
                  "KOLO_RANK is \"2\" but KOLO_NRANKS is not set: set both or neither");
    ExpectRefused({{"WORLD_SIZE", "8"}}, KOLO_ERR_INVALID,
                  "WORLD_SIZE is \"8\" but RANK is not set: set both or neither");
    ExpectRefused(With(kKolo, {{"KOLO_JOB", ""}}), KOLO_ERR_INVALID,
                  "KOLO_RANK is set but KOLO_JOB is not: nothing tells this job from another "
                  "(KOLO_RANK, KOLO_NRANKS and KOLO_JOB would)");
    ExpectRefused(kHydra, KOLO_ERR_INVALID,
                  "PMI_RANK is set but PMI_JOBID is not: nothing tells this job from another "
                  "(KOLO_RANK, KOLO_NRANKS and KOLO_JOB would)");
}

TEST(Launch, NonsenseIsRefusedNamingVariableAndValue)
{
    ExpectRefused(With(kKolo, {{"KOLO_RANK", "4"}}), KOLO_ERR_INVALID,
                  "KOLO_RANK is \"4\"; it must be 0 to 3");
    ExpectRefused(With(kKolo, {{"KOLO_RANK", "-1"}}), KOLO_ERR_INVALID,
                  "KOLO_RANK is \"-1\"; it must be 0 to 3");
    ExpectRefused(With(kTorch, {{"WORLD_SIZE", "two"}}), KOLO_ERR_INVALID,
                  "WORLD_SIZE is \"two\"; it must be 1 to 65536");
    ExpectRefused(With(kTorch, {{"LOCAL_RANK", "2"}}), KOLO_ERR_INVALID,
                  "LOCAL_RANK is \"2\"; it must be 0 to 1");
    ExpectRefused(With(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "0"}}), KOLO_ERR_INVALID,
                  "OMPI_COMM_WORLD_SIZE is \"0\"; it must be 1 to 65536");
}

/* What kolo_launch_next() makes of ranks on several hosts. */
kolo_launch Next(const Environment &environment, kolo_status status)
{
    const OnlyThese these(environment);
    kolo_launch launch = {};
    EXPECT_STREQ(kolo_status_name(status), kolo_status_name(kolo_launch_next(kTimeoutMs, &launch)))
        << kolo_error_text();
    return launch;
}

const Environment kTwoHosts = {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};

TEST(Launch, RanksOfSeveralHostsAreKnownByTheirLauncher)
{
    EXPECT_FALSE(Detect(kTorch).several);
    EXPECT_TRUE(Detect(With(kTorch, kTwoHosts)).several);
    EXPECT_FALSE(Detect(kSrun).several);
    EXPECT_TRUE(Detect(With(kSrun, {{"SLURM_STEP_NUM_NODES", "2"}})).several);
    EXPECT_TRUE(Detect(With(kKolo, {{"KOLO_ROOT", "127.0.0.1:29600"}})).several);
}

TEST(Launch, RanksOfSeveralHostsAreToldHowTheyCouldMeet)
{
    (void)Next(With(kTorch, kTwoHosts), KOLO_ERR_INVALID);
    const std::string text = kolo_error_text();
    for (const char *name :
         {"torchrun", "KOLO_ROOT=host:port", "KOLO_PORT", "KOLO_SECRET", "KOLO_ID_FILE"}) {
        EXPECT_NE(std::string::npos, text.find(name)) << text;
    }
}

TEST(Launch, RanksOfSeveralHostsMeetAtTheRootThatTheyWereGiven)
{
    const kolo_launch four =
        Next(With(kTorch, With(kTwoHosts, {{"KOLO_ROOT", "10.1.2.3:29600"}})), KOLO_OK);
    EXPECT_EQ(AF_INET, four.meet.place.family);
    EXPECT_EQ(29600, four.meet.place.port);
    EXPECT_EQ(0, memcmp("\x0a\x01\x02\x03", four.meet.place.ip, 4));
    const kolo_launch six =
        Next(With(kTorch, With(kTwoHosts, {{"KOLO_ROOT", "[::1]:7"}})), KOLO_OK);
    EXPECT_EQ(AF_INET6, six.meet.place.family);
    EXPECT_EQ(7, six.meet.place.port);
    const kolo_launch torch =
        Next(With(kTorch, With(kTwoHosts, {{"MASTER_ADDR", "127.0.0.1"}, {"KOLO_PORT", "29600"}})),
             KOLO_OK);
    EXPECT_EQ(29600, torch.meet.place.port);
    for (const char *root : {"10.1.2.3", ":29600", "10.1.2.3:", "10.1.2.3:0", "10.1.2.3:65536"}) {
        (void)Next(With(kTorch, With(kTwoHosts, {{"KOLO_ROOT", root}})), KOLO_ERR_INVALID);
    }
}

TEST(Launch, AFileThatDoesNotComeIsWaitedForAsLongAsTheCallerSays)
{
    (void)Next(With(kTorch, With(kTwoHosts, {{"RANK", "1"},
                                             {"KOLO_ID_FILE", "/nonexistent/id"},
                                             {"KOLO_TIMEOUT_MS", "1000000"}})),
               KOLO_ERR_TIMEOUT);
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "did not come in 50 ms")) << kolo_error_text();
}

TEST(Launch, ASecretIsSixtyFourHexadecimalDigits)
{
    std::string text(64, '0');
    text[1] = 'A';
    text[62] = 'f';
    const kolo_launch launch = Detect(With(kKolo, {{"KOLO_SECRET", text}}));
    EXPECT_EQ(0x0a, launch.meet.secret[0]);
    EXPECT_EQ(0xf0, launch.meet.secret[31]);
    ExpectRefused(With(kKolo, {{"KOLO_SECRET", "0123"}}), KOLO_ERR_INVALID,
                  "KOLO_SECRET has 4 characters, not 64");
    text[63] = 'g';
    ExpectRefused(With(kKolo, {{"KOLO_SECRET", text}}), KOLO_ERR_INVALID,
                  "KOLO_SECRET is not hexadecimal at character 63");
}

} // namespace
