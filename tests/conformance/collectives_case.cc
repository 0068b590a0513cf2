// SPDX-License-Identifier: Apache-2.0
/* Cases of collective calls; see collectives_case.h. */
#include "collectives_case.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace collectives
{

constexpr int kReduced = -1;
constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xA5, kPoison = 0xC3;

static bool IsSet(const char *name)
{
    const char *value = std::getenv(name);
    return value != nullptr && std::strcmp(value, "1") == 0;
}

Effort TestEffort()
{
    return IsSet("KOLO_TEST_WHOLE")   ? Effort::kWhole
           : IsSet("KOLO_TEST_SHORT") ? Effort::kShort
                                      : Effort::kUsual;
}

/* ---- names and kinds ---- */

const char *NameOf(Coll coll)
{
    static const char *const names[] = {
        "all_reduce", "reduce",         "broadcast",       "gather",     "scatter",
        "all_gather", "reduce_scatter", "all_to_all",      "barrier",    "gatherv",
        "scatterv",   "all_gatherv",    "reduce_scatterv", "all_to_allv"};
    return names[static_cast<int>(coll)];
}

bool Reduces(Coll coll)
{
    return coll == Coll::kAllReduce || coll == Coll::kReduce || coll == Coll::kReduceScatter ||
           coll == Coll::kReduceScatterv;
}

bool IsRooted(Coll coll)
{
    return coll == Coll::kReduce || coll == Coll::kBroadcast || coll == Coll::kGather ||
           coll == Coll::kScatter || coll == Coll::kGatherv || coll == Coll::kScatterv;
}

bool IsV(Coll coll)
{
    return coll >= Coll::kGatherv;
}

std::string Describe(const Case &c, int n)
{
    std::string op = c.op == kPremulsum ? "premulsum" : c.op == kMove ? "" : kolo_op_name(c.op);
    return std::string(NameOf(c.coll)) + " " + op + " of " + std::to_string(c.count) + " " +
           kolo_type_name(c.type) + ", " + std::to_string(n) + " ranks" +
           (IsRooted(c.coll) ? ", root " + std::to_string(c.root) : "") +
           (IsV(c.coll) ? ", counts " + std::to_string(c.variant) : "") +
           (c.in_place ? ", in place" : "");
}

std::vector<std::pair<kolo_type, kolo_op>> PairsFor(Coll coll)
{
    std::vector<std::pair<kolo_type, kolo_op>> pairs;
    for (int t = 0; t < KOLO_TYPES; t++) {
        const kolo_type type = static_cast<kolo_type>(t);
        if (coll == Coll::kBarrier) {
            return {{KOLO_INT8, kMove}};
        }
        if (!Reduces(coll)) {
            pairs.emplace_back(type, kMove);
            continue;
        }
        for (kolo_op op = 0; op <= kPremulsum; op++) {
            if (OpFits(type, op == kPremulsum ? static_cast<kolo_op>(KOLO_SUM) : op)) {
                pairs.emplace_back(type, op);
            }
        }
    }
    return pairs;
}

/* ---- memory ---- */

Buffer::~Buffer()
{
    Free();
}

void Buffer::Free()
{
    if (memory_ == Memory::kShared) {
        kolo_mem_free(base_);
    } else {
        std::free(base_);
    }
    base_ = nullptr;
}

char *Buffer::Take(size_t count, size_t elem)
{
    const size_t before = kGuardBytes + offset_elems_ * elem;
    const size_t needed = before + count * elem + kGuardBytes;
    if (needed > room_) {
        void *fresh = nullptr;
        Free();
        room_ = needed + needed / 4;
        if (memory_ == Memory::kShared) {
            fresh = kolo_mem_alloc(room_, &fresh) == KOLO_OK ? fresh : nullptr;
        } else {
            fresh = std::malloc(room_);
        }
        if (fresh == nullptr) {
            std::abort(); /* a test without memory can say nothing */
        }
        base_ = static_cast<char *>(fresh);
    }
    data_ = base_ + before;
    bytes_ = count * elem;
    std::memset(data_ - kGuardBytes, kGuard, kGuardBytes);
    std::memset(data_, kPoison, bytes_);
    std::memset(data_ + bytes_, kGuard, kGuardBytes);
    return data_;
}

static bool IsAll(const char *at, size_t bytes, unsigned char value)
{
    const char expected = static_cast<char>(value);
    return bytes == 0 || (*at == expected && std::memcmp(at, at + 1, bytes - 1) == 0);
}

bool Buffer::GuardsAreWhole() const
{
    return data_ == nullptr || (IsAll(data_ - kGuardBytes, kGuardBytes, kGuard) &&
                                IsAll(data_ + bytes_, kGuardBytes, kGuard));
}

/* ---- data ---- */

Player::Player(kolo_comm *comm, Memory memory, size_t offset_elems)
    : comm_(comm), rank_(kolo_comm_rank(comm)), n_(kolo_comm_size(comm)),
      first_(memory, offset_elems), second_(memory, offset_elems)
{
}

/* of[r] for the ranks, of[n] for the reduction; two periods, so that any stretch of one period is
 * in one place. */
void Player::MakeTable(kolo_type type, kolo_op op)
{
    const size_t elem = kolo_type_bytes(type), n = static_cast<size_t>(n_);
    if (!table_.of.empty() && table_.type == type && table_.op == op) {
        return;
    }
    table_.type = type;
    table_.op = op;
    table_.of.assign(n + 1, std::vector<char>(2 * kPeriod * elem));
    std::vector<const void *> in(n);
    for (size_t i = 0; i < kPeriod; i++) {
        for (size_t r = 0; r < n; r++) {
            in[r] = &table_.of[r][i * elem];
            MakeElement(type, op, n_, static_cast<int>(r), i, &table_.of[r][i * elem]);
        }
        if (op != kMove) {
            Fold(type, op, in, &table_.of[n][i * elem]);
        }
    }
    for (std::vector<char> &data : table_.of) {
        std::memcpy(&data[kPeriod * elem], data.data(), kPeriod * elem);
    }
}

void Player::FillFrom(char *at, size_t count, int from, size_t first) const
{
    const size_t elem = kolo_type_bytes(table_.type);
    const char *data = &table_.of[static_cast<size_t>(from)][first % kPeriod * elem];
    for (size_t i = 0; i < count; i += kPeriod) {
        std::memcpy(at + i * elem, data, std::min(kPeriod, count - i) * elem);
    }
}

bool Player::IsFrom(char *at, size_t count, int from, size_t first) const
{
    const size_t elem = kolo_type_bytes(table_.type);
    const size_t row = static_cast<size_t>(from == kReduced ? n_ : from);
    const char *data = &table_.of[row][first % kPeriod * elem];
    bool same = true;
    if (table_.op != kMove) {
        ClearUnused(table_.type, at, count);
    }
    for (size_t i = 0; same && i < count; i += kPeriod) {
        same = std::memcmp(at + i * elem, data, std::min(kPeriod, count - i) * elem) == 0;
    }
    return same;
}

/* ---- layouts ---- */

/* Block lengths of the v-forms: all differ; every second is empty; all but one are empty or tiny.
 */
static size_t BlockCount(size_t count, int variant, int n, int r)
{
    const size_t place = static_cast<size_t>(r);
    switch (variant) {
    case 0:
        return count / static_cast<size_t>(n) * (place + 1) + (count > 0 ? place : 0);
    case 1:
        return r % 2 == 0 && n > 1 ? 0 : count;
    default:
        return r == n / 2 ? count : count > 2 ? place % 2 : 0;
    }
}

/* In order and packed; in reversed order with gaps; rotated with growing gaps. */
static std::vector<size_t> Displacements(const std::vector<size_t> &counts, int variant)
{
    const size_t n = counts.size();
    std::vector<size_t> displs(n);
    size_t at = variant == 0 ? 0 : 2;
    for (size_t i = 0; i < n; i++) {
        const size_t r = variant == 0 ? i : variant == 1 ? n - 1 - i : (i + n / 2 + 1) % n;
        displs[r] = at;
        at += counts[r] + (variant == 0 ? 0 : variant == 1 ? 3 : i + 1);
    }
    return displs;
}

static size_t End(const std::vector<size_t> &counts, const std::vector<size_t> &displs)
{
    size_t end = 0;
    for (size_t r = 0; r < counts.size(); r++) {
        end = std::max(end, displs[r] + counts[r] + 1); /* and one element that nobody may touch */
    }
    return end;
}

void Player::LayRegular(const Case &c, Layout *out) const
{
    const bool root = rank_ == c.root;
    switch (c.coll) {
    case Coll::kAllReduce:
        out->send = out->recv = c.count;
        out->pieces = {{0, c.count, kReduced, 0}};
        break;
    case Coll::kReduce:
        out->send = c.count;
        out->recv = root ? c.count : 0;
        out->pieces = {{0, root ? c.count : 0, kReduced, 0}};
        break;
    case Coll::kBroadcast:
        out->send = root ? c.count : 0;
        out->recv = c.count;
        out->pieces = {{0, c.count, c.root, 0}};
        break;
    default:
        break;
    }
}

/* Gather, scatter, all-gather, reduce-scatter and their v-forms: a block for each rank. */
void Player::LayBlocks(const Case &c, Layout *out) const
{
    const size_t n = static_cast<size_t>(n_), me = static_cast<size_t>(rank_);
    const bool root = rank_ == c.root;
    const bool packed = !IsV(c.coll) || c.coll == Coll::kReduceScatterv;
    for (int r = 0; r < n_; r++) {
        out->counts.push_back(IsV(c.coll) ? BlockCount(c.count, c.variant, n_, r) : c.count);
    }
    out->displs = Displacements(out->counts, packed ? 0 : c.variant);
    const size_t all =
        packed ? out->displs[n - 1] + out->counts[n - 1] : End(out->counts, out->displs);
    out->own = out->displs[me];
    switch (c.coll) {
    case Coll::kGather:
    case Coll::kGatherv:
    case Coll::kAllGather:
    case Coll::kAllGatherv: {
        const bool gets = root || c.coll == Coll::kAllGather || c.coll == Coll::kAllGatherv;
        out->send = out->counts[me];
        out->recv = gets ? all : 0;
        for (size_t r = 0; r < n && gets; r++) {
            out->pieces.push_back({out->displs[r], out->counts[r], static_cast<int>(r), 0});
        }
        break;
    }
    case Coll::kScatter:
    case Coll::kScatterv:
        out->send_is_larger = true;
        out->send = root ? all : 0;
        out->recv = out->counts[me];
        out->pieces = {{0, out->counts[me], c.root, out->displs[me]}};
        break;
    default:
        out->send_is_larger = true;
        out->send = all;
        out->recv = out->counts[me];
        out->pieces = {{0, out->counts[me], kReduced, out->displs[me]}};
        break;
    }
}

/* From rank r to rank q; the matrix is not symmetric. */
static size_t EdgeCount(const Case &c, int n, int r, int q)
{
    return IsV(c.coll) ? BlockCount(c.count, c.variant, n, (r + 2 * q) % n) : c.count;
}

static std::vector<size_t> RowOf(const Case &c, int n, int r)
{
    std::vector<size_t> row;
    for (int q = 0; q < n; q++) {
        row.push_back(EdgeCount(c, n, r, q));
    }
    return row;
}

void Player::LayAllToAll(const Case &c, Layout *out) const
{
    const int variant = IsV(c.coll) ? c.variant : 0;
    const bool packed = !IsV(c.coll);
    out->counts = RowOf(c, n_, rank_);
    out->displs = Displacements(out->counts, variant);
    for (int q = 0; q < n_; q++) {
        out->out_counts.push_back(EdgeCount(c, n_, q, rank_));
    }
    out->out_displs = Displacements(out->out_counts, packed ? 0 : (variant + 1) % kVariants);
    out->send = packed ? c.count * static_cast<size_t>(n_) : End(out->counts, out->displs);
    out->recv = packed ? c.count * static_cast<size_t>(n_) : End(out->out_counts, out->out_displs);
    out->can_be_in_place = packed;
    for (int q = 0; q < n_; q++) {
        const std::vector<size_t> theirs = Displacements(RowOf(c, n_, q), variant);
        out->pieces.push_back({out->out_displs[static_cast<size_t>(q)],
                               out->out_counts[static_cast<size_t>(q)], q,
                               theirs[static_cast<size_t>(rank_)]});
    }
}

Player::Layout Player::LayoutOf(const Case &c) const
{
    Layout out;
    switch (c.coll) {
    case Coll::kBarrier:
        out.can_be_in_place = false;
        break;
    case Coll::kAllToAll:
    case Coll::kAllToAllv:
        LayAllToAll(c, &out);
        break;
    case Coll::kAllReduce:
    case Coll::kReduce:
    case Coll::kBroadcast:
        LayRegular(c, &out);
        break;
    default:
        LayBlocks(c, &out);
        break;
    }
    return out;
}

/* ---- the call ---- */

kolo_status Player::Call(const Case &c, const Layout &l, const char *send, char *recv, kolo_op op,
                         kolo_stream stream) const
{
    const bool root = rank_ == c.root;
    const size_t *counts = root ? l.counts.data() : nullptr;
    const size_t *displs = root ? l.displs.data() : nullptr;
    switch (c.coll) {
    case Coll::kAllReduce:
        return kolo_all_reduce(send, recv, c.count, c.type, op, comm_, stream);
    case Coll::kReduce:
        return kolo_reduce(send, recv, c.count, c.type, op, c.root, comm_, stream);
    case Coll::kBroadcast:
        return kolo_broadcast(send, recv, c.count, c.type, c.root, comm_, stream);
    case Coll::kGather:
        return kolo_gather(send, recv, c.count, c.type, c.root, comm_, stream);
    case Coll::kScatter:
        return kolo_scatter(send, recv, c.count, c.type, c.root, comm_, stream);
    case Coll::kAllGather:
        return kolo_all_gather(send, recv, c.count, c.type, comm_, stream);
    case Coll::kReduceScatter:
        return kolo_reduce_scatter(send, recv, c.count, c.type, op, comm_, stream);
    case Coll::kAllToAll:
        return kolo_all_to_all(send, recv, c.count, c.type, comm_, stream);
    case Coll::kBarrier:
        return kolo_barrier(comm_, stream);
    case Coll::kGatherv:
        return kolo_gatherv(send, l.counts[static_cast<size_t>(rank_)], recv, counts, displs,
                            c.type, c.root, comm_, stream);
    case Coll::kScatterv:
        return kolo_scatterv(send, counts, displs, recv, l.counts[static_cast<size_t>(rank_)],
                             c.type, c.root, comm_, stream);
    case Coll::kAllGatherv:
        return kolo_all_gatherv(send, recv, l.counts.data(), l.displs.data(), c.type, comm_,
                                stream);
    case Coll::kReduceScatterv:
        return kolo_reduce_scatterv(send, recv, l.counts.data(), c.type, op, comm_, stream);
    case Coll::kAllToAllv:
        return kolo_all_to_allv(send, l.counts.data(), l.displs.data(), recv, l.out_counts.data(),
                                l.out_displs.data(), c.type, comm_, stream);
    }
    return KOLO_ERR_INTERNAL;
}

std::string Player::Begin(const Case &c, kolo_stream stream)
{
    const size_t elem = kolo_type_bytes(c.type);
    const Case plain = c;
    MakeTable(plain.type, plain.op);
    case_ = c;
    layout_ = LayoutOf(c);
    /* A rank that has one buffer only has nothing to be in place with. */
    case_.in_place = c.in_place && layout_.can_be_in_place && layout_.send > 0 && layout_.recv > 0;
    if (!case_.in_place) {
        send_ = layout_.send > 0 ? first_.Take(layout_.send, elem) : nullptr;
        recv_ = layout_.recv > 0 ? second_.Take(layout_.recv, elem) : nullptr;
    } else {
        char *whole = first_.Take(std::max(layout_.send, layout_.recv), elem);
        send_ = whole + (layout_.send_is_larger ? 0 : layout_.own * elem);
        recv_ = whole + (layout_.send_is_larger ? layout_.own * elem : 0);
    }
    FillFrom(send_, layout_.send, rank_, 0);
    kolo_op op = c.op == kMove ? 0 : c.op;
    if (c.op == kPremulsum) {
        char factor[16] = {};
        MakeFactor(c.type, rank_, factor);
        if (kolo_op_create_premulsum(factor, c.type, comm_, &op) != KOLO_OK) {
            return Describe(c, n_) + ": no operation: " + kolo_error_text();
        }
        made_ = op;
        has_made_ = true;
    }
    const kolo_status st = Call(c, layout_, send_, recv_, op, stream);
    if (st != KOLO_OK) {
        ended_ = kolo_comm_error(comm_) != KOLO_OK;
        return Describe(c, n_) + ": " + kolo_status_name(st) + ": " + kolo_error_text();
    }
    return "";
}

std::string Player::Compare(const Case &c, const Layout &l)
{
    const size_t elem = kolo_type_bytes(c.type);
    std::vector<Piece> pieces = l.pieces;
    size_t at = 0;
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece &a, const Piece &b) { return a.at < b.at; });
    for (const Piece &piece : pieces) {
        if (piece.count == 0) {
            continue;
        }
        /* In place, what lies between the blocks may be the input. */
        if (!c.in_place && !IsAll(recv_ + at * elem, (piece.at - at) * elem, kPoison)) {
            return "something was written before element " + std::to_string(piece.at);
        }
        if (!IsFrom(recv_ + piece.at * elem, piece.count, piece.from, piece.first)) {
            return "wrong data in elements " + std::to_string(piece.at) + " to " +
                   std::to_string(piece.at + piece.count) +
                   (piece.from == kReduced ? "" : " of rank " + std::to_string(piece.from));
        }
        at = piece.at + piece.count;
    }
    if (!c.in_place && !IsAll(recv_ + at * elem, (l.recv - at) * elem, kPoison)) {
        return "something was written after element " + std::to_string(at);
    }
    if (!c.in_place && l.send > 0 && !IsFrom(send_, l.send, rank_, 0)) {
        return "the input was changed";
    }
    if (!first_.GuardsAreWhole() || !second_.GuardsAreWhole()) {
        return "bytes outside of the buffers were changed";
    }
    return "";
}

std::string Player::Finish()
{
    if (has_made_) {
        kolo_op_destroy(made_, comm_);
        has_made_ = false;
    }
    const std::string wrong = Compare(case_, layout_);
    return wrong.empty() ? wrong
                         : Describe(case_, n_) + ": rank " + std::to_string(rank_) + ": " + wrong;
}

std::string Player::Play(const Case &c)
{
    const std::string failed = Begin(c, nullptr);
    return failed.empty() ? Finish() : failed;
}

} // namespace collectives
