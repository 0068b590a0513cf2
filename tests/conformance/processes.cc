// SPDX-License-Identifier: Apache-2.0
#include "processes.h"

#include "util/util.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

bool ReadAll(int fd, void *at, size_t len)
{
    char *to = (char *)at;
    while (len > 0) {
        const ssize_t n = read(fd, to, len);
        if (n <= 0 && errno != EINTR) {
            return false;
        }
        to += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool WriteAll(int fd, const void *at, size_t len)
{
    const char *from = (const char *)at;
    while (len > 0) {
        const ssize_t n = send(fd, from, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        from += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Collect one contribution of every rank and hand all of them to every rank, until one leaves. */
void ServeExchanges(const std::vector<int> &sockets)
{
    for (;;) {
        std::vector<unsigned char> all;
        for (const int socket : sockets) {
            uint32_t len = 0;
            if (!ReadAll(socket, &len, sizeof len)) {
                return;
            }
            const size_t at = all.size();
            all.resize(at + len);
            if (!ReadAll(socket, all.data() + at, len)) {
                return;
            }
        }
        for (const int socket : sockets) {
            if (!WriteAll(socket, all.data(), all.size())) {
                return;
            }
        }
    }
}

/* The child's exit status, or what ended it. */
std::string WaitForEnd(pid_t pid)
{
    int status = 0;
    if (!WaitFor([&] { return waitpid(pid, &status, WNOHANG) == pid; })) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return "did not end";
    }
    if (WIFSIGNALED(status)) {
        return "was ended by signal " + std::to_string(WTERMSIG(status));
    }
    return WEXITSTATUS(status) == 0 ? "" : "saw a failed expectation";
}

} // namespace

std::vector<std::vector<unsigned char>> Process::Exchange(const void *mine, size_t len)
{
    std::vector<std::vector<unsigned char>> all((size_t)nranks);
    const uint32_t size = (uint32_t)len;
    bool ok = WriteAll(socket_, &size, sizeof size) && WriteAll(socket_, mine, len);
    for (auto &blob : all) {
        blob.resize(len);
        ok = ok && ReadAll(socket_, blob.data(), len);
    }
    EXPECT_TRUE(ok) << "another rank has left";
    return all;
}

void Process::Join()
{
    ASSERT_EQ(KOLO_OK, World::Open(transport, rank, index, nranks, 42)) << kolo_error_text();
    struct {
        int pid;
        uint32_t len;
        unsigned char address[256];
    } mine = {(int)getpid(), (uint32_t)rank.address.size(), {0}};
    std::memcpy(mine.address, rank.address.data(), rank.address.size());
    auto all = Exchange(&mine, sizeof mine);
    static std::vector<std::vector<unsigned char>> addresses; /* as long as the process */
    addresses.resize((size_t)nranks);
    for (int i = 0; i < nranks; i++) {
        std::memcpy(&mine, all[(size_t)i].data(), sizeof mine);
        addresses[(size_t)i].assign(mine.address, mine.address + mine.len);
        rank.peers.push_back({sizeof(kolo_peer), i, mine.pid, 1, (uint64_t)mine.pid,
                              addresses[(size_t)i].data(), mine.len});
    }
    ASSERT_EQ(KOLO_OK, World::Connect(transport, rank, true)) << kolo_error_text();
}

bool Process::Finish(const std::vector<kolo_req *> &reqs)
{
    return WaitFor([&] {
        transport->progress(rank.endpoint, 64);
        return AllDone(reqs);
    });
}

void RunProcesses(const kolo_transport *transport, int nranks,
                  const std::function<void(Process &)> &body)
{
    std::vector<int> sockets;
    std::vector<pid_t> children;
    std::fflush(nullptr);
    for (int i = 0; i < nranks; i++) {
        int pair[2];
        ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
        const pid_t pid = fork();
        if (pid == 0) {
            for (const int socket : sockets) {
                close(socket);
            }
            close(pair[0]);
            Process process(transport, i, nranks, pair[1]);
            body(process);
            std::fflush(nullptr);
            _exit(testing::Test::HasFailure() ? 1 : 0);
        }
        close(pair[1]);
        sockets.push_back(pair[0]);
        children.push_back(pid);
    }
    ServeExchanges(sockets);
    for (const int socket : sockets) {
        close(socket);
    }
    for (int i = 0; i < nranks; i++) {
        EXPECT_EQ("", WaitForEnd(children[(size_t)i])) << "rank " << i;
    }
}

bool JoinsProcesses(const kolo_transport *transport)
{
    Rank rank;
    kolo_reach reach{};
    reach.size = sizeof reach;
    if (World::Open(transport, rank, 0, 2, 7) != KOLO_OK) {
        return false;
    }
    kolo_peer peer = rank.self;
    peer.rank = 1;
    peer.pid = 1;
    peer.process = 1;
    const bool joins = transport->probe(rank.endpoint, &peer, &reach) == KOLO_OK && reach.caps != 0;
    World::Disconnect(transport, rank);
    return joins;
}
