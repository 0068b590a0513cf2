// SPDX-License-Identifier: Apache-2.0
// covers: transports/tcp/seal.c
// The records of an encrypted stream, with somebody in between who changes them.
extern "C" {
#include "transports/tcp/seal.h"
}

#include <cerrno>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace
{

const unsigned char kSecret[KOLO_SECRET_BYTES] = {7, 1, 4};
constexpr int kTrials = 2000; // for each of the five attacks

// A sender, a receiver, and the bytes between them in the hands of the test.
class Wire
{
  public:
    explicit Wire(const std::string &text = "two nonces", const std::string &text_in = "two nonces")
    {
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, left_), 0);
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, right_), 0);
        maker = kolo_seal_open(kSecret, text.data(), text.size(), true);
        listener = kolo_seal_open(kSecret, text_in.data(), text_in.size(), false);
        EXPECT_NE(maker, nullptr);
        EXPECT_NE(listener, nullptr);
    }
    ~Wire()
    {
        kolo_seal_close(maker);
        kolo_seal_close(listener);
        close(left_[0]);
        close(left_[1]);
        close(right_[0]);
        close(right_[1]);
    }
    Wire(const Wire &) = delete;
    Wire &operator=(const Wire &) = delete;

    // The record of one message, taken off the wire.
    std::string Seal(const std::string &plain)
    {
        iovec part = {const_cast<char *>(plain.data()), plain.size()};
        EXPECT_EQ(kolo_seal_send(maker, left_[0], &part, 1), static_cast<ssize_t>(plain.size()));
        std::string bytes(KOLO_SEAL_BATCH * KOLO_SEAL_RECORD, '\0');
        const ssize_t n = recv(left_[1], bytes.data(), bytes.size(), MSG_DONTWAIT);
        bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
        return bytes;
    }
    void Put(const std::string &bytes)
    {
        EXPECT_EQ(send(right_[0], bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
    }
    void End()
    {
        shutdown(right_[0], SHUT_WR);
    }
    ssize_t Recv(char *into, size_t room)
    {
        return kolo_seal_recv(listener, right_[1], into, room);
    }
    // All bytes that open, and errno of the call after them; 0: the end.
    std::string Open(int *error)
    {
        std::string all;
        char some[1000];
        ssize_t n = 0;
        while ((n = Recv(some, sizeof some)) > 0) {
            all.append(some, static_cast<size_t>(n));
        }
        *error = n == 0 ? 0 : errno;
        return all;
    }

    kolo_seal *maker = nullptr;
    kolo_seal *listener = nullptr;

  private:
    int left_[2] = {-1, -1}, right_[2] = {-1, -1};
};

std::string Message(std::mt19937 &random)
{
    std::string out(1 + random() % 300, '\0');
    for (char &c : out) {
        c = static_cast<char>(random());
    }
    return out;
}

TEST(Seal, BytesArriveInOrder)
{
    Wire wire;
    std::mt19937 random(1);
    std::string sent, came;
    for (int i = 0; i < 500; i++) {
        int error = 0;
        const std::string message = Message(random);
        sent += message;
        wire.Put(wire.Seal(message));
        came += wire.Open(&error);
        ASSERT_EQ(error, EAGAIN);
    }
    EXPECT_EQ(sent, came);
}

TEST(Seal, LongSendsAreSeveralRecords)
{
    Wire wire;
    int error = 0;
    const std::string message(3 * KOLO_SEAL_PLAIN + 5, 'x');
    const std::string sealed = wire.Seal(message);
    EXPECT_EQ(sealed.size(), message.size() + 4 * (KOLO_SEAL_HEAD + KOLO_SEAL_TAG));
    wire.Put(sealed);
    EXPECT_EQ(wire.Open(&error), message);
}

// Records come in any pieces, several at once, and open into any room.
TEST(Seal, AnyPiecesAndAnyRoomGiveTheSameBytes)
{
    Wire wire;
    std::mt19937 random(12);
    std::string sent, sealed, came;
    for (int i = 0; i < 40; i++) {
        const std::string message(1 + random() % 100000, static_cast<char>('a' + i % 26));
        sent += message;
        sealed += wire.Seal(message);
    }
    std::string room(2 * KOLO_SEAL_PLAIN, '\0');
    for (size_t at = 0; at < sealed.size();) {
        const std::string piece = sealed.substr(at, 1 + random() % 60000);
        at += piece.size();
        wire.Put(piece);
        ssize_t n = 0;
        while ((n = wire.Recv(room.data(), 1 + random() % room.size())) > 0) {
            came.append(room.data(), static_cast<size_t>(n));
        }
        ASSERT_EQ(errno, EAGAIN);
    }
    EXPECT_TRUE(sent == came);
}

TEST(Seal, PlainBytesAreNotOnTheWire)
{
    Wire wire;
    const std::string message(1000, 'x');
    EXPECT_EQ(wire.Seal(message).find("xxxx"), std::string::npos);
    EXPECT_NE(wire.Seal(message), wire.Seal(message));
}

TEST(Seal, FlippedBitsAreRefused)
{
    std::mt19937 random(2);
    for (int i = 0; i < kTrials; i++) {
        Wire wire;
        int error = 0;
        std::string sealed = wire.Seal(Message(random));
        const size_t at = random() % sealed.size();
        sealed[at] ^= static_cast<char>(1u << (random() % 8));
        wire.Put(sealed);
        wire.End();
        ASSERT_EQ(wire.Open(&error), "");
        // A record that claims to be longer than all that comes looks like one that was cut.
        ASSERT_TRUE(error == EBADMSG || (error == ECONNRESET && at < KOLO_SEAL_HEAD)) << error;
    }
}

TEST(Seal, DroppedRecordsAreRefused)
{
    std::mt19937 random(3);
    for (int i = 0; i < kTrials; i++) {
        Wire wire;
        int error = 0;
        (void)wire.Seal(Message(random));
        wire.Put(wire.Seal(Message(random)));
        ASSERT_EQ(wire.Open(&error), "");
        ASSERT_EQ(error, EBADMSG);
    }
}

TEST(Seal, ReplayedRecordsAreRefused)
{
    std::mt19937 random(4);
    for (int i = 0; i < kTrials; i++) {
        Wire wire;
        int error = 0;
        const std::string message = Message(random);
        const std::string sealed = wire.Seal(message);
        wire.Put(sealed + sealed);
        ASSERT_EQ(wire.Open(&error), message);
        ASSERT_EQ(error, EBADMSG);
    }
}

TEST(Seal, ReorderedRecordsAreRefused)
{
    std::mt19937 random(5);
    for (int i = 0; i < kTrials; i++) {
        Wire wire;
        int error = 0;
        const std::string first = wire.Seal(Message(random));
        wire.Put(wire.Seal(Message(random)) + first);
        ASSERT_EQ(wire.Open(&error), "");
        ASSERT_EQ(wire.Open(&error), "");
        ASSERT_EQ(error, EBADMSG);
    }
}

TEST(Seal, NothingOpensBehindARefusedRecord)
{
    Wire wire;
    int error = 0;
    std::string changed = wire.Seal("one");
    changed.back() ^= 1;
    wire.Put(changed + wire.Seal("two"));
    EXPECT_EQ(wire.Open(&error), "");
    EXPECT_EQ(wire.Open(&error), "");
    EXPECT_EQ(error, EBADMSG);
}

TEST(Seal, AnEndWithinARecordIsALostConnection)
{
    std::mt19937 random(6);
    for (int i = 0; i < kTrials; i++) {
        Wire wire;
        int error = 0;
        const std::string sealed = wire.Seal(Message(random));
        wire.Put(sealed.substr(0, 1 + random() % (sealed.size() - 1)));
        wire.End();
        ASSERT_EQ(wire.Open(&error), "");
        ASSERT_EQ(error, ECONNRESET);
        ASSERT_EQ(wire.Open(&error), "");
        ASSERT_EQ(error, ECONNRESET);
    }
}

TEST(Seal, ChangedBytesBeforeAnEndAreRefused)
{
    std::mt19937 random(7);
    for (int i = 0; i < kTrials; i++) {
        Wire wire;
        int error = 0;
        std::string changed = wire.Seal(Message(random));
        const std::string next = wire.Seal(Message(random));
        changed[KOLO_SEAL_HEAD + random() % (changed.size() - KOLO_SEAL_HEAD)] ^= 1;
        wire.Put(changed + next.substr(0, 1 + random() % (next.size() - 1)));
        wire.End();
        ASSERT_EQ(wire.Open(&error), "");
        ASSERT_EQ(error, EBADMSG);
    }
}

TEST(Seal, RecordsOfAnotherConnectionAreRefused)
{
    Wire wire("two nonces", "other nonces");
    int error = 0;
    wire.Put(wire.Seal("hello"));
    EXPECT_EQ(wire.Open(&error), "");
    EXPECT_EQ(error, EBADMSG);
}

TEST(Seal, RecordsDoNotOpenAtTheirSender)
{
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    Wire wire;
    const std::string sealed = wire.Seal("hello");
    ASSERT_EQ(send(pair[0], sealed.data(), sealed.size(), 0), static_cast<ssize_t>(sealed.size()));
    char back[16];
    EXPECT_EQ(kolo_seal_recv(wire.maker, pair[1], back, sizeof back), -1);
    EXPECT_EQ(errno, EBADMSG);
    close(pair[0]);
    close(pair[1]);
}

TEST(Seal, KeysTurnAtBothEnds)
{
    Wire wire;
    wire.maker->out.period = wire.listener->in.period = 3;
    for (int i = 0; i < 10; i++) {
        int error = 0;
        wire.Put(wire.Seal("hello"));
        ASSERT_EQ(wire.Open(&error), "hello") << i;
    }
    EXPECT_EQ(wire.maker->out.number, 1u); // of the fourth key
}

// After EAGAIN the bytes that were sealed go exactly once.
TEST(Seal, FullSocketsLoseNothing)
{
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    Wire wire;
    std::mt19937 random(8);
    std::string message(4 << 20, '\0'), came;
    for (char &c : message) {
        c = static_cast<char>(random());
    }
    size_t at = 0;
    bool was_full = false;
    char some[5000];
    while (came.size() < message.size()) {
        iovec part = {message.data() + at, message.size() - at};
        ssize_t n = 0;
        while (at < message.size() && (n = kolo_seal_send(wire.maker, pair[0], &part, 1)) > 0) {
            at += static_cast<size_t>(n);
            part = {message.data() + at, message.size() - at};
        }
        was_full = was_full || n < 0;
        while ((n = kolo_seal_recv(wire.listener, pair[1], some, sizeof some)) > 0) {
            came.append(some, static_cast<size_t>(n));
        }
        ASSERT_EQ(errno, EAGAIN);
    }
    EXPECT_TRUE(was_full);
    EXPECT_TRUE(came == message);
    iovec rest = {message.data() + at, message.size() - at};
    EXPECT_EQ(kolo_seal_send(wire.maker, pair[0], &rest, 1), static_cast<ssize_t>(rest.iov_len));
    EXPECT_FALSE(kolo_seal_holds(wire.maker)) << "all is reported";
    close(pair[0]);
    close(pair[1]);
}

} // namespace
