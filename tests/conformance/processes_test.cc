// SPDX-License-Identifier: Apache-2.0
// covers: transports/shm transports/tcp src/memory/serve.c src/util/descriptor.c
/* The same promises between processes, and what only processes can get wrong: descriptors, forks,
 * strangers, and peers that die. */
#include "memory/segment.h"
#include "memory/serve.h"
#include "processes.h"
#include "util/util.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

class Processes : public testing::TestWithParam<const kolo_transport *>
{
  protected:
    void SetUp() override
    {
        if (!JoinsProcesses(GetParam())) {
            GTEST_SKIP() << GetParam()->base.name << " joins no processes";
        }
    }
    bool Maps() const
    {
        return (GetParam()->caps & KOLO_CAP_MAP) != 0;
    }
    bool CarriesMessages() const
    {
        return (GetParam()->caps & KOLO_CAP_MESSAGE) != 0;
    }
};

/* Map `ptr` (or fresh memory), tell all, attach what rank `whose` mapped. */
unsigned char *AttachOf(Process &p, int whose, void *ptr, size_t bytes, kolo_mem *mem)
{
    void *there = nullptr;
    size_t len = 0;
    EXPECT_EQ(KOLO_OK, p.transport->map(p.rank.endpoint, ptr, bytes, mem)) << kolo_error_text();
    const auto handles = p.Exchange(mem->handle, sizeof mem->handle);
    EXPECT_EQ(KOLO_OK,
              p.transport->attach(p.Link(whose), handles[(size_t)whose].data(), &there, &len))
        << kolo_error_text();
    EXPECT_EQ(bytes, len);
    return (unsigned char *)there;
}

TEST_P(Processes, ShareMemoryBothWays)
{
    if (!Maps()) {
        GTEST_SKIP() << "maps no memory";
    }
    RunProcesses(GetParam(), 2, [](Process &p) {
        kolo_mem mem{};
        p.Join();
        unsigned char *there = AttachOf(p, 1 - p.index, nullptr, 50000, &mem);
        ASSERT_NE(nullptr, there);
        ((unsigned char *)mem.ptr)[49999] = (unsigned char)(p.index + 1);
        p.Barrier();
        EXPECT_EQ(2 - p.index, there[49999]);
        there[0] = (unsigned char)(10 + p.index);
        p.Barrier();
        EXPECT_EQ(11 - p.index, ((unsigned char *)mem.ptr)[0]);
        p.Barrier();
        p.transport->unmap(p.rank.endpoint, &mem);
        p.Leave();
    });
}

TEST_P(Processes, ShareBuffersOfTheAllocator)
{
    if (!Maps()) {
        GTEST_SKIP() << "maps no memory";
    }
    RunProcesses(GetParam(), 3, [](Process &p) {
        p.Join();
        for (size_t bytes : {size_t{100}, size_t{300000}, size_t{5} << 20}) {
            void *mine = nullptr;
            kolo_mem mem{};
            ASSERT_EQ(KOLO_OK, kolo_segment_alloc(bytes, &mine));
            unsigned char *there = AttachOf(p, (p.index + 1) % 3, mine, bytes, &mem);
            ASSERT_NE(nullptr, there);
            std::memset(mine, p.index + 1, bytes);
            p.Barrier();
            EXPECT_EQ((p.index + 1) % 3 + 1, there[0]);
            EXPECT_EQ((p.index + 1) % 3 + 1, there[bytes - 1]);
            p.Barrier();
            kolo_segment_free(mine);
        }
        p.Leave();
    });
}

TEST_P(Processes, CarryMessagesOfAnySize)
{
    if (!CarriesMessages()) {
        GTEST_SKIP() << "carries no messages";
    }
    RunProcesses(GetParam(), 2, [](Process &p) {
        p.Join();
        for (size_t bytes : {size_t{0}, size_t{1}, size_t{16385}, size_t{(1 << 20) + 3}}) {
            const int peer = 1 - p.index;
            auto sent = Pattern(bytes, (unsigned)p.index + 1);
            std::vector<unsigned char> came(bytes);
            const kolo_bytes src = Flat(sent.data(), bytes);
            const kolo_bytes dst = Flat(came.data(), bytes);
            kolo_req send{};
            kolo_req recv{};
            ASSERT_EQ(KOLO_OK, p.transport->send(p.Link(peer), &src, &send));
            ASSERT_EQ(KOLO_OK, p.transport->recv(p.Link(peer), &dst, &recv));
            ASSERT_TRUE(p.Finish({&send, &recv}));
            EXPECT_EQ(Pattern(bytes, (unsigned)peer + 1), came);
        }
        p.Barrier();
        p.Leave();
    });
}

TEST_P(Processes, KeepTheOrderOfManySmallMessages)
{
    if (!CarriesMessages()) {
        GTEST_SKIP() << "carries no messages";
    }
    RunProcesses(GetParam(), 2, [](Process &p) {
        constexpr int kCount = 20000;
        std::vector<int> values(kCount, -1);
        std::vector<kolo_req> reqs(kCount);
        std::vector<kolo_req *> all;
        p.Join();
        for (int i = 0; i < kCount; i++) {
            values[(size_t)i] = p.index == 0 ? i : -1;
            const kolo_bytes data = Flat(&values[(size_t)i], sizeof(int));
            ASSERT_EQ(KOLO_OK, p.index == 0
                                   ? p.transport->send(p.Link(1), &data, &reqs[(size_t)i])
                                   : p.transport->recv(p.Link(0), &data, &reqs[(size_t)i]));
            all.push_back(&reqs[(size_t)i]);
        }
        ASSERT_TRUE(p.Finish(all));
        for (int i = 0; i < kCount; i++) {
            ASSERT_EQ(i, values[(size_t)i]);
        }
        p.Barrier();
        p.Leave();
    });
}

TEST_P(Processes, LeaveNoMappingDescriptorOrThread)
{
    RunProcesses(GetParam(), 2, [](Process &p) {
        const Holdings before = Count();
        for (int round = 0; round < 2; round++) {
            kolo_mem mem{};
            p.rank.peers.clear();
            p.Join();
            if ((p.transport->caps & KOLO_CAP_MAP) != 0) {
                AttachOf(p, 1 - p.index, nullptr, 1 << 20, &mem);
                p.Barrier();
                p.transport->unmap(p.rank.endpoint, &mem);
            }
            p.Barrier();
            p.Leave();
            p.Barrier();
        }
        const Holdings after = Count();
        EXPECT_EQ(before.descriptors, after.descriptors);
        EXPECT_EQ(before.mappings, after.mappings);
        EXPECT_EQ(before.threads, after.threads);
    });
}

TEST_P(Processes, LeaveAForkedChildAlone)
{
    RunProcesses(GetParam(), 2, [](Process &p) {
        p.Join();
        const pid_t child = fork();
        if (child == 0) { /* it must neither hang nor disturb, whatever it closes */
            p.Leave();
            _exit(0);
        }
        int status = -1;
        EXPECT_TRUE(WaitFor([&] { return waitpid(child, &status, WNOHANG) == child; }));
        EXPECT_EQ(0, status);
        int sent = 40 + p.index;
        int came = 0;
        const kolo_bytes src = Flat(&sent, sizeof sent);
        const kolo_bytes dst = Flat(&came, sizeof came);
        kolo_req reqs[2] = {};
        ASSERT_EQ(KOLO_OK, p.transport->send(p.Link(1 - p.index), &src, &reqs[0]));
        ASSERT_EQ(KOLO_OK, p.transport->recv(p.Link(1 - p.index), &dst, &reqs[1]));
        ASSERT_TRUE(p.Finish({&reqs[0], &reqs[1]}));
        EXPECT_EQ(41 - p.index, came);
        p.Barrier();
        p.Leave();
    });
}

TEST_P(Processes, HearOfADeathThatCameTogetherWithTheLastWord)
{
    if ((GetParam()->caps & KOLO_CAP_NOTIFY) == 0) {
        GTEST_SKIP() << GetParam()->base.name << " says no words";
    }
    RunProcesses(GetParam(), 2, [](Process &p) {
        const auto turn = [&p] { p.transport->progress(p.rank.endpoint, 64); };
        p.Join();
        p.transport->notify(p.Link(1 - p.index), 1);
        ASSERT_TRUE(WaitFor([&] {
            turn();
            return !p.rank.notified.empty();
        }));
        for (int i = 0; i < 200; i++) { /* until nothing is left to do */
            turn();
            usleep(100);
        }
        p.Barrier();
        if (p.index == 1) {
            p.transport->notify(p.Link(0), 2);
            for (int i = 0; i < 10; i++) {
                turn();
            }
            _exit(0);
        }
        const int pid = p.rank.peers[1].pid; /* rank 0 looks when both are there, and not before */
        ASSERT_TRUE(WaitFor([&] {
            const char state = kolo_process_state(pid);
            return state == 'Z' || state == 'X' || state == 0;
        }));
        ASSERT_TRUE(WaitFor([&] {
            turn();
            return !p.rank.lost.empty();
        })) << "it was not told";
        EXPECT_EQ(2u, p.rank.notified.back().second);
        EXPECT_EQ(1, p.rank.lost.front());
        p.Leave();
    });
}

INSTANTIATE_TEST_SUITE_P(Transport, Processes, testing::ValuesIn(HostTransports()),
                         [](const auto &info) { return std::string(info.param->base.name); });

/* ---- the service of shm ---- */

/* Who may ask this process for memory: itself, seen as another process. */
kolo_shm_owner Owner()
{
    static const int kNotAborted = 0;
    kolo_shm_owner owner{};
    EXPECT_EQ(KOLO_OK, kolo_service_identity(&owner.identity));
    owner.rank = 5;
    owner.pid = (int)getpid();
    owner.aborted = &kNotAborted;
    return owner;
}

class ShmService : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(KOLO_OK, kolo_service_start());
    }
    void TearDown() override
    {
        kolo_service_stop();
    }
};

TEST_F(ShmService, HandsOutASegmentToWhoKnowsTheToken)
{
    void *memory = nullptr;
    uint32_t id = 0;
    uint64_t offset = 0;
    int fd = -1;
    uint64_t len = 0;
    ASSERT_EQ(KOLO_OK, kolo_segment_alloc(2 << 20, &memory));
    ASSERT_TRUE(kolo_segment_find(memory, 2 << 20, &id, &offset));
    const kolo_shm_owner owner = Owner();
    ASSERT_EQ(KOLO_OK, kolo_service_fetch(&owner, id, &fd, &len)) << kolo_error_text();
    EXPECT_EQ(2u << 20, len);
    std::memset(memory, 6, 10);
    void *view = mmap(nullptr, len, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(MAP_FAILED, view);
    EXPECT_EQ(6, ((unsigned char *)view)[9]);
    munmap(view, len);
    close(fd);
    kolo_segment_free(memory);
}

TEST_F(ShmService, IsNotNeededForAFileThatTheOwnerTells)
{
    kolo_segment *segment = nullptr;
    int fd = -1;
    uint64_t len = 0;
    ASSERT_EQ(KOLO_OK, kolo_segment_create_whole(3 << 12, &segment));
    const kolo_shm_owner owner = Owner();
    struct kolo_own_fd file = *kolo_segment_file(segment);
    ASSERT_TRUE(kolo_service_open(&owner, &file, &fd, &len));
    EXPECT_EQ(3u << 12, len);
    std::memset(kolo_segment_base(segment), 6, 10);
    unsigned char byte = 0;
    EXPECT_EQ(1, pread(fd, &byte, 1, 9));
    EXPECT_EQ(6, byte);
    close(fd);

    file.inode++;
    EXPECT_FALSE(kolo_service_open(&owner, &file, &fd, &len)) << "another file has the number";
    file.inode = 0;
    EXPECT_FALSE(kolo_service_open(&owner, &file, &fd, &len)) << "no file was told";
    file = *kolo_segment_file(segment);
    kolo_segment_drop(segment);
    EXPECT_FALSE(kolo_service_open(&owner, &file, &fd, &len)) << "it has been closed";
}

TEST_F(ShmService, GivesNothingForAWrongToken)
{
    kolo_shm_owner owner = Owner();
    int fd = -1;
    uint64_t len = 0;
    owner.identity.token[15] ^= 1;
    EXPECT_EQ(KOLO_ERR_LINK, kolo_service_fetch(&owner, 1, &fd, &len));
    EXPECT_EQ(-1, fd);
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 5")) << kolo_error_text();
}

TEST_F(ShmService, SaysThatASegmentIsNotThere)
{
    const kolo_shm_owner owner = Owner();
    int fd = -1;
    uint64_t len = 0;
    EXPECT_EQ(KOLO_ERR_PEER, kolo_service_fetch(&owner, 0xffffffff, &fd, &len));
    EXPECT_EQ(-1, fd);
}

TEST_F(ShmService, AnswersWhileStrangersHoldManyConnections)
{
    const kolo_shm_owner owner = Owner();
    std::vector<int> strangers;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string name = "kolo-shm-";
    for (unsigned char byte : owner.identity.name) {
        char hex[3];
        std::snprintf(hex, sizeof hex, "%02x", byte);
        name += hex;
    }
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    for (int i = 0; i < 100; i++) {
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ASSERT_EQ(0, connect(fd, (const sockaddr *)&address,
                             (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + name.size())));
        strangers.push_back(fd);
    }
    const double begun = kolo_now_us();
    int fd = -1;
    uint64_t len = 0;
    EXPECT_EQ(KOLO_ERR_PEER, kolo_service_fetch(&owner, 0xffffffff, &fd, &len))
        << kolo_error_text();
    EXPECT_LT(kolo_now_us() - begun, 4e6) << "before the strangers' time is up";
    for (const int stranger : strangers) {
        close(stranger);
    }
}

TEST_F(ShmService, SaysThatItHasNoDescriptorToHearAClientByAndHearsItLater)
{
    const kolo_shm_owner owner = Owner();
    rlimit enough{};
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &enough));
    const rlimit none{2, enough.rlim_max}; // poll() takes no more than that many
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
    const pid_t client = fork();
    if (client == 0) {
        int fd = -1;
        uint64_t len = 0;
        setrlimit(RLIMIT_NOFILE, &enough);
        _exit(kolo_service_fetch(&owner, 0xffffffff, &fd, &len) == KOLO_ERR_PEER ? 0 : 1);
    }
    const double begun = kolo_now_us();
    while (!kolo_service_starved() && kolo_now_us() - begun < 4e6) {
        usleep(1000);
    }
    EXPECT_TRUE(kolo_service_starved());
    setrlimit(RLIMIT_NOFILE, &enough);
    int status = -1;
    ASSERT_EQ(client, waitpid(client, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_FALSE(kolo_service_starved());
}

TEST(ShmServiceClient, NamesAPeerThatIsGone)
{
    kolo_shm_owner owner = Owner();
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    owner.pid = child;
    owner.identity.name[0] ^= 1;
    int fd = -1;
    uint64_t len = 0;
    EXPECT_EQ(KOLO_ERR_PEER, kolo_service_fetch(&owner, 1, &fd, &len));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 5 (pid")) << kolo_error_text();
}

TEST(ShmServiceClient, StopsWaitingWhenTheCommunicatorIsAborted)
{
    kolo_shm_owner owner = Owner();
    const int aborted = KOLO_ERR_ABORTED;
    owner.aborted = &aborted;
    owner.identity.name[0] ^= 1; /* nobody listens there */
    int fd = -1;
    uint64_t len = 0;
    EXPECT_EQ(KOLO_ERR_ABORTED, kolo_service_fetch(&owner, 1, &fd, &len));
}

} // namespace
