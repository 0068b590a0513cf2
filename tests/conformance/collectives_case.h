// SPDX-License-Identifier: Apache-2.0
/* One collective call, as data, and what must be in memory when it returned.
 *
 * A case is turned into a layout for one rank: how many elements it sends, where it receives, and
 * which *pieces* lie there afterwards: a stretch of some rank's data, or of the reduction of all.
 * Data repeat after kPeriod elements, a prime, so that 4 MiB are filled and compared at the speed
 * of memory, and a block that is moved to a wrong place is seen all the same. Ranks are threads or
 * processes: nothing here is shared between them. */
#ifndef KOLO_TESTS_COLLECTIVES_CASE_H
#define KOLO_TESTS_COLLECTIVES_CASE_H

#include "collectives_numbers.h"

#include <string>
#include <vector>

namespace collectives
{

enum class Coll {
    kAllReduce,
    kReduce,
    kBroadcast,
    kGather,
    kScatter,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kBarrier,
    kGatherv,
    kScatterv,
    kAllGatherv,
    kReduceScatterv,
    kAllToAllv
};
constexpr int kColls = 14;
constexpr size_t kPeriod = 1021;
constexpr int kVariants = 3; /* of unequal counts and displacements */

/* How much to run: KOLO_TEST_WHOLE=1 (tests/soak --whole), KOLO_TEST_SHORT=1 (for the sanitizers), or
 * neither. */
enum class Effort { kShort, kUsual, kWhole };
Effort TestEffort();

const char *NameOf(Coll coll);
bool Reduces(Coll coll);
bool IsRooted(Coll coll);
bool IsV(Coll coll);

struct Case {
    Coll coll;
    kolo_type type = KOLO_FLOAT32;
    kolo_op op = kMove;
    int root = 0;
    size_t count = 0;
    bool in_place = false;
    int variant = 0; /* of the v-forms */
};
std::string Describe(const Case &c, int n);

/* All (type, operation) pairs that make sense for this collective. */
std::vector<std::pair<kolo_type, kolo_op>> PairsFor(Coll coll);

/* Where buffers lie. */
enum class Memory { kPrivate, kShared };

/* Memory that grows, with guard bytes on both sides. */
class Buffer
{
  public:
    Buffer(Memory memory, size_t offset_elems) : memory_(memory), offset_elems_(offset_elems) {}
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer();
    /* `count` elements of `elem` bytes, poisoned, between guards. */
    char *Take(size_t count, size_t elem);
    bool GuardsAreWhole() const;

  private:
    void Free();
    Memory memory_;
    size_t offset_elems_;
    char *base_ = nullptr, *data_ = nullptr;
    size_t room_ = 0, bytes_ = 0;
};

/* What one rank needs to run cases, one after the other. */
class Player
{
  public:
    Player(kolo_comm *comm, Memory memory, size_t offset_elems = 0);
    /* Run one call and look at every byte around it: "" or what is wrong. After a status that ends
     * the communicator, Ended() is true and no more cases can be run. */
    std::string Play(const Case &c);
    /* The same on a stream: Begin() queues, Finish() compares after the caller's sync. */
    std::string Begin(const Case &c, kolo_stream stream);
    std::string Finish();
    bool Ended() const
    {
        return ended_;
    }
    int rank() const
    {
        return rank_;
    }
    int nranks() const
    {
        return n_;
    }
    kolo_comm *comm() const
    {
        return comm_;
    }

  private:
    struct Piece { /* recv[at ... at+count] is data of `from`, from its element `first` on */
        size_t at, count;
        int from; /* a rank, or kReduced */
        size_t first;
    };
    struct Layout {
        size_t send = 0, recv = 0;   /* elements; 0: the rank has no such buffer */
        size_t own = 0;              /* in place: the smaller buffer's place in the larger one */
        bool send_is_larger = false; /* then recv lies in send */
        bool can_be_in_place = true;
        std::vector<Piece> pieces;
        std::vector<size_t> counts, displs, out_counts, out_displs;
    };
    struct Table { /* a period of every rank's data, and of the reduction, each stored twice */
        kolo_type type;
        kolo_op op;
        std::vector<std::vector<char>> of;
    };

    void MakeTable(kolo_type type, kolo_op op);
    Layout LayoutOf(const Case &c) const;
    void LayRegular(const Case &c, Layout *out) const;
    void LayBlocks(const Case &c, Layout *out) const;
    void LayAllToAll(const Case &c, Layout *out) const;
    void FillFrom(char *at, size_t count, int from, size_t first) const;
    bool IsFrom(char *at, size_t count, int from, size_t first) const;
    kolo_status Call(const Case &c, const Layout &l, const char *send, char *recv, kolo_op op,
                     kolo_stream stream) const;
    std::string Compare(const Case &c, const Layout &l);

    kolo_comm *comm_;
    int rank_, n_;
    Buffer first_, second_;
    Table table_{};
    bool ended_ = false;
    /* between Begin and Finish */
    Case case_{};
    Layout layout_;
    char *send_ = nullptr, *recv_ = nullptr;
    kolo_op made_ = 0;
    bool has_made_ = false;
};

} // namespace collectives

#endif
