// MessageBackend: collectives of host memory by point-to-point messages. Algorithms: exchange and short
// all_reduce by Bruck's all-gather; long reductions by direct reduce-scatter and all-gather (Note [Direct
// reduction]); broadcast by a binomial tree, or pipelined along a chain if long. Every member calls the same
// collectives in the same order.
#include "gradus/distributed/transport/message.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <ostream>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"

namespace gradus::dist::internal {
namespace {

// Up to this size a broadcast goes down a tree, which has few steps. Longer data goes along a chain in
// pieces, so that every member sends it only once.
constexpr size_t kShortBroadcast = 64 << 10;
// Up to this many bytes, of all members together, all_reduce sends every member all data, in log2 steps.
constexpr size_t kShortReduction = 64 << 10;
// Long data moves in pieces of this size (a multiple of every dtype's), so that moving and adding overlap.
constexpr size_t kPieceBytes = 1 << 20;
// How many pieces of a broadcast are on their way to a member at once.
constexpr size_t kPiecesAhead = 4;
// How many bytes of a reduction may be on their way to a member before it needs them. With fewer, a slow link
// is idle while members wait for each other.
constexpr size_t kBytesAhead = 32 << 20;
constexpr int kAllMembers = -1;  // in place of a root

// Precedes every message, so that a stray message causes an error and not wrong numbers.
struct Header {
  uint64_t call = 0;   // counted per backend
  uint64_t bytes = 0;  // of the payload
  uint32_t step = 0;   // within the call
  char op[20] = {};
};

std::ostream& operator<<(std::ostream& out, const Header& h) {
  return out << h.op << " (call " << h.call << ", step " << h.step << ", " << h.bytes << " bytes)";
}

// The messages of one call, none of them empty; members are indices in the group. After an error some
// messages may still be under way, so the data of a message is never in a local variable but in the caller's
// buffers or in `owned_`.
class Traffic {
 public:
  // `what` names the messages. Sender and receiver must give the same name.
  Traffic(Transport& transport, const std::vector<int>& members, Tag tag, const Call& call, uint64_t number,
          const char* what)
      : transport_(transport), members_(members), tag_(tag), call_(call), number_(number), what_(what) {}

  // Stores data for as long as this object, and returns it.
  std::string& own(std::string data) { return owned_.emplace_back(std::move(data)); }

  void send(size_t member, uint32_t step, const void* data, size_t bytes) {
    const Header header = make_header(step, bytes);
    sends_.push_back(transport_.send(members_[member], tag_, std::as_bytes(std::span(&header, 1)),
                                     {static_cast<const std::byte*>(data), bytes}));
  }
  Ref<Request> receive(size_t member, uint32_t step, void* data, size_t bytes) {
    const auto accept = [expected = make_header(step, bytes), data](const Header& h) {
      return h.bytes == expected.bytes ? data : nullptr;
    };
    return receive(member, make_header(step, bytes), accept);
  }
  // Receives a message of unknown size, at most `limit` bytes.
  Ref<Request> receive(size_t member, uint32_t step, std::string* data, size_t limit) {
    const auto accept = [data, limit](const Header& h) -> void* {
      if (h.bytes > limit) return nullptr;
      data->resize(h.bytes);
      return data->data();
    };
    return receive(member, make_header(step, limit), accept);
  }
  void wait(const Ref<Request>& request) {
    try {
      transport_.wait(*request, call_.watch, call_.op);
    } catch (const MismatchError& e) {
      // Tells the other ranks. If the job has failed already, that failure counts.
      const Failure failure{Failure::Kind::kMismatch, e.rank(), text_of(e)};
      throw_failure(call_.op, call_.watch.membership->report(failure));
    }
  }
  void wait(const std::vector<Ref<Request>>& requests) {
    for (const Ref<Request>& request : requests) wait(request);
  }
  // Forgets the sends that are done.
  void sweep() {
    std::erase_if(sends_, [](const Ref<Request>& send) { return send->done(); });
  }
  // Waits for all sends. The caller's buffers are then free.
  void finish() {
    wait(sends_);
    sends_.clear();
  }

 private:
  Header make_header(uint32_t step, size_t bytes) const {
    Header header{.call = number_, .bytes = bytes, .step = step};
    std::strncpy(header.op, what_, sizeof header.op - 1);
    return header;
  }

  // place(header) returns the buffer for a message with the expected call, step and op, or null to reject its
  // size.
  template <class Place> Ref<Request> receive(size_t member, const Header& expected, Place place) {
    return transport_.receive(
        members_[member], tag_,
        [expected, place](int source, std::span<const std::byte> bytes, size_t payload) -> void* {
          Header received;
          if (bytes.size() == sizeof received) std::memcpy(&received, bytes.data(), sizeof received);
          received.op[sizeof received.op - 1] = '\0';
          const bool same = bytes.size() == sizeof received && received.bytes == payload &&
                            received.call == expected.call && received.step == expected.step &&
                            std::strcmp(received.op, expected.op) == 0;
          void* const data = same ? place(received) : nullptr;
          if (!data)
            throw MismatchError(expected.op, source, "rank ", source, " sent a message of ", received,
                                ", where ", expected, " was awaited");
          return data;
        });
  }

  Transport& transport_;
  const std::vector<int>& members_;
  const Tag tag_;
  const Call& call_;
  const uint64_t number_;
  const char* const what_;
  std::deque<std::string> owned_;
  std::vector<Ref<Request>> sends_;
};

// Numbers the members of a chain or tree from its root: the root has place 0.
struct Places {
  size_t size, root;
  size_t of(size_t member) const { return (member + size - root) % size; }
  size_t member(size_t place) const { return (root + place) % size; }
};

// Piece number k of `total` bytes. It may be empty.
struct Piece {
  size_t begin, bytes;
  Piece(size_t total, size_t k)
      : begin(std::min(total, k * kPieceBytes)), bytes(std::min(kPieceBytes, total - begin)) {}
};
size_t count_pieces(size_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

std::byte* at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* at(const void* data, size_t offset) { return static_cast<const std::byte*>(data) + offset; }

void copy(void* to, const void* from, size_t bytes) {
  if (bytes && to != from) std::memmove(to, from, bytes);
}

std::vector<const void*> pointers(const std::vector<std::string>& blocks) {
  std::vector<const void*> data;
  for (const std::string& block : blocks) data.push_back(block.data());
  return data;
}

class MessageBackend final : public Backend {
 public:
  MessageBackend(std::shared_ptr<Transport> transport, std::vector<int> members, int index, uint32_t group_id)
      : transport_(std::move(transport)),
        members_(std::move(members)),
        size_(members_.size()),
        index_(index),
        tag_{.group = group_id, .channel = Channel::kCollective} {}

  std::vector<std::string> exchange(const Call& call, std::string_view local) override {
    if (local.size() > kMaxExchangeBytes)
      throw InternalError("exchange: ", local.size(), " bytes, at most ", kMaxExchangeBytes);
    // Every call begins with this exchange, so its messages have one name. The records say what the call is.
    Traffic traffic = start(call, "exchange");
    std::vector<std::string> all = gather_all(traffic, local, kMaxExchangeBytes);
    traffic.finish();
    return all;
  }

  void all_reduce(const Call& call, const void* in, void* out, int64_t n, DType dtype, ReduceOp op) override {
    const size_t bytes = n * size_of(dtype);
    Traffic traffic = start(call);
    if (bytes * size_ <= kShortReduction) {
      const auto all = gather_all(traffic, {static_cast<const char*>(in), bytes}, bytes);
      reduce_all_into(out, pointers(all).data(), int(size_), n, dtype, op);
      traffic.finish();
      return;
    }
    reduce_to(kAllMembers, traffic, in, out, n, dtype, op);
  }

  void reduce(const Call& call, int root, const void* in, void* out, int64_t n, DType dtype,
              ReduceOp op) override {
    Traffic traffic = start(call);
    reduce_to(root, traffic, in, out, n, dtype, op);
  }

  void reduce_scatter(const Call& call, std::span<const ConstBlock> blocks, void* out, DType dtype,
                      ReduceOp op) override {
    Traffic traffic = start(call);
    const auto nothing = [](size_t) {};
    reduce_parts(traffic, blocks, out, dtype, op, nothing, nothing);
    traffic.finish();
  }

  void broadcast(const Call& call, int root, void* data, size_t bytes) override {
    Traffic traffic = start(call);
    const Places places{size_, size_t(root)};
    if (bytes <= kShortBroadcast)
      broadcast_tree(traffic, places, data, bytes);
    else
      broadcast_chain(traffic, places, data, bytes);
    traffic.finish();
  }

  void all_gather(const Call& call, ConstBlock in, std::span<const Block> out) override {
    exchange_blocks(call, std::vector<ConstBlock>(size_, in), out);
  }

  // Empty blocks are not sent.
  void exchange_blocks(const Call& call, std::span<const ConstBlock> in,
                       std::span<const Block> out) override {
    Traffic traffic = start(call);
    std::vector<Ref<Request>> receives;
    for_others([&](size_t j) {
      if (out[j].bytes) receives.push_back(traffic.receive(j, 0, out[j].data, out[j].bytes));
    });
    for_others([&](size_t j) {
      if (in[j].bytes) traffic.send(j, 0, in[j].data, in[j].bytes);
    });
    copy(out[index_].data, in[index_].data, in[index_].bytes);
    traffic.wait(receives);
    traffic.finish();
  }

 private:
  Traffic start(const Call& call, const char* what = nullptr) {
    return Traffic(*transport_, members_, tag_, call, ++calls_, what ? what : call.op);
  }

  // Calls f with every other member, the next one first, so that the members do not all serve the
  // same one at once.
  template <class F> void for_others(F&& f) const {
    for (size_t distance = 1; distance < size_; ++distance) f((index_ + distance) % size_);
  }

  static uint32_t part_step(size_t k) { return uint32_t(2 * k); }
  static uint32_t result_step(size_t k) { return uint32_t(2 * k + 1); }

  // Returns one part of `in` per member. Their sizes differ by one element at most.
  std::vector<ConstBlock> split(const void* in, int64_t n, DType dtype) const {
    std::vector<ConstBlock> parts;
    const size_t item = size_of(dtype);
    for (size_t i = 0, begin = 0; i < size_; ++i) {
      const size_t count = n / size_ + (i < n % size_);
      parts.push_back({at(in, begin * item), count * item});
      begin += count;
    }
    return parts;
  }

  // Returns every member's block, in log2 steps. In each step, a member that has n blocks sends them to the
  // member at distance n.
  std::vector<std::string> gather_all(Traffic& traffic, std::string_view local, size_t limit) {
    std::vector<std::string> have{std::string(local)};  // of this member, the next one, ...
    for (uint32_t step = 0; have.size() < size_; ++step) {
      const size_t distance = have.size(), count = std::min(distance, size_ - distance);
      std::string& remote = traffic.own({});
      const size_t most = sizeof(uint64_t) + count * (sizeof(uint64_t) + limit);
      const Ref<Request> receive = traffic.receive((index_ + distance) % size_, step, &remote, most);
      const std::string& sent =
          traffic.own(to_wire(std::vector<std::string>(have.begin(), have.begin() + count)));
      traffic.send((index_ + size_ - distance) % size_, step, sent.data(), sent.size());
      traffic.wait(receive);
      for (std::string& block : from_wire<std::vector<std::string>>(remote)) have.push_back(std::move(block));
      if (have.size() != distance + count) WireReader::throw_malformed();
    }
    std::ranges::rotate(have, have.begin() + (size_ - index_) % size_);
    return have;
  }

  // Makes room for received contributions. The memory is kept for the next call.
  void make_landing(size_t bytes) {
    if (bytes <= landing_bytes_) return;
    landing_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    landing_bytes_ = bytes;
  }

  // Note [Direct reduction]. Every member owns one part. The others send the owner their contributions
  // directly, in pieces. The owner reduces each piece in the order of members, in one pass. This moves as
  // many bytes as a ring, rounds 16-bit floats once, and has an order that depends only on the members. While
  // piece k is reduced, the next pieces are on their way.
  // expect(k) may post receives for the results of piece k; deliver(k) may send this member's result.
  // Messages between two members are sent and received in one order: the parts of the first pieces, as many
  // as may be ahead; result 0; one more part; result 1; and so on. A result may overwrite this member's
  // contribution to it, since the owner has received that contribution.
  template <class Expect, class Deliver>
  void reduce_parts(Traffic& traffic, std::span<const ConstBlock> parts, void* out, DType dtype, ReduceOp op,
                    Expect&& expect, Deliver&& deliver) {
    size_t longest = 0;
    for (const ConstBlock& part : parts) longest = std::max(longest, part.bytes);
    const size_t pieces = count_pieces(longest), room = Piece(parts[index_].bytes, 0).bytes;
    const size_t ahead =
        std::clamp<size_t>(kBytesAhead / kPieceBytes / size_, 2, std::max<size_t>(pieces, 2));
    make_landing(ahead * size_ * room);
    const auto landing_of = [&](size_t k, size_t j) {
      return at(landing_.get(), ((k % ahead) * size_ + j) * room);
    };
    std::vector<std::vector<Ref<Request>>> receives(ahead);
    for (size_t k = 0; k + 1 < pieces + ahead; ++k) {
      if (k < pieces) {
        if (const Piece piece(parts[index_].bytes, k); piece.bytes)
          for_others([&](size_t j) {
            receives[k % ahead].push_back(traffic.receive(j, part_step(k), landing_of(k, j), piece.bytes));
          });
        for_others([&](size_t j) {
          if (const Piece piece(parts[j].bytes, k); piece.bytes)
            traffic.send(j, part_step(k), at(parts[j].data, piece.begin), piece.bytes);
        });
      }
      if (k + 1 < ahead) continue;
      const size_t ready = k + 1 - ahead;
      if (ready >= pieces) break;
      expect(ready);
      traffic.wait(receives[ready % ahead]);
      receives[ready % ahead].clear();
      if (const Piece piece(parts[index_].bytes, ready); piece.bytes) {
        std::vector<const void*> inputs;
        for (size_t j = 0; j < size_; ++j)
          inputs.push_back(j == index_ ? at(parts[j].data, piece.begin) : landing_of(ready, j));
        reduce_all_into(at(out, piece.begin), inputs.data(), int(size_), piece.bytes / size_of(dtype), dtype,
                        op);
      }
      deliver(ready);
      traffic.sweep();
    }
  }

  // Every member reduces the part that it owns, and sends the result to `root`, or to all others.
  void reduce_to(int root, Traffic& traffic, const void* in, void* out, int64_t n, DType dtype, ReduceOp op) {
    const auto wants_result = [&](size_t member) { return root == kAllMembers || member == size_t(root); };
    const std::vector<ConstBlock> parts = split(in, n, dtype);
    const auto result = [&](size_t member, const Piece& piece) {
      return at(out, at(parts[member].data, piece.begin) - at(in, 0));
    };
    std::byte* const own = wants_result(index_)
                               ? result(index_, Piece(0, 0))
                               : at(traffic.own(std::string(parts[index_].bytes, '\0')).data(), 0);
    std::vector<Ref<Request>> results;
    const auto expect = [&](size_t k) {
      for_others([&](size_t j) {
        if (const Piece piece(parts[j].bytes, k); piece.bytes && wants_result(index_))
          results.push_back(traffic.receive(j, result_step(k), result(j, piece), piece.bytes));
      });
    };
    const auto deliver = [&](size_t k) {
      const Piece piece(parts[index_].bytes, k);
      for_others([&](size_t j) {
        if (piece.bytes && wants_result(j))
          traffic.send(j, result_step(k), at(own, piece.begin), piece.bytes);
      });
    };
    reduce_parts(traffic, parts, own, dtype, op, expect, deliver);
    traffic.wait(results);
    traffic.finish();
  }

  // Binomial tree: the parent of place p is p without its lowest set bit.
  void broadcast_tree(Traffic& traffic, const Places& places, void* data, size_t bytes) {
    if (bytes == 0) return;
    const size_t place = places.of(index_);
    size_t bit = 1;
    while (bit < size_ && !(place & bit)) bit *= 2;
    if (place) traffic.wait(traffic.receive(places.member(place - bit), 0, data, bytes));
    while (bit /= 2)
      if (place + bit < size_) traffic.send(places.member(place + bit), 0, data, bytes);
  }

  // Place p forwards each piece from p - 1 to p + 1. kPiecesAhead receives are posted in advance.
  void broadcast_chain(Traffic& traffic, const Places& places, void* data, size_t bytes) {
    const size_t place = places.of(index_), pieces = count_pieces(bytes);
    std::deque<Ref<Request>> receives;
    size_t awaited = 0;
    for (size_t k = 0; k < pieces; ++k) {
      for (; place > 0 && awaited < std::min(pieces, k + kPiecesAhead); ++awaited) {
        const Piece piece(bytes, awaited);
        receives.push_back(
            traffic.receive(places.member(place - 1), uint32_t(awaited), at(data, piece.begin), piece.bytes));
      }
      if (place > 0) {
        traffic.wait(receives.front());
        receives.pop_front();
      }
      const Piece piece(bytes, k);
      if (place + 1 < size_)
        traffic.send(places.member(place + 1), uint32_t(k), at(data, piece.begin), piece.bytes);
      traffic.sweep();
    }
  }

  const std::shared_ptr<Transport> transport_;
  const std::vector<int> members_;
  const size_t size_, index_;
  const Tag tag_;
  uint64_t calls_ = 0;
  std::unique_ptr<std::byte[]> landing_;
  size_t landing_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_message_backend(std::shared_ptr<Transport> transport, std::vector<int> members,
                                              int index, uint32_t group_id) {
  return std::make_unique<MessageBackend>(std::move(transport), std::move(members), index, group_id);
}

}  // namespace gradus::dist::internal
