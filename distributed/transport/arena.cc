// ArenaBackend: collectives of ranks that share a memory segment. The segment has a head (a futex and one
// slot per member), then two buffers per member. A member writes only its own slot and buffers; data larger
// than a buffer goes through it in chunks, one round per chunk. All members make the same calls in the same
// order. The segment starts as zeros, and the members' processes may die at any time (Membership reports it).
#include "gradus/distributed/transport/arena.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "gradus/distributed/health/waiting.h"

namespace gradus::dist::internal {
namespace {

// Note [Rounds]
// Each member has two buffers and a number: the last round that it has published. In round r a member writes
// to its buffer r % 2, publishes r, and waits until all members have published r. Then it reads what it needs
// from the others' buffers of round r. A member that publishes r + 1 has finished these reads. So when all
// have published r + 1, the buffers of round r are free for round r + 2. One wait per round is enough, and
// one member's writing overlaps with another's reading.
//
// All members must take part in the same number of rounds. The number follows from sizes that all members
// have, or from the number of bytes that each member publishes as left to send. No member accesses memory of
// another member outside of the segment, so a call may give up at any point.

// Two of these buffers, and the data that is copied to them, fit into the L2 cache.
constexpr size_t kBufferBytes = size_t(256) << 10;
static_assert(kBufferBytes >= sizeof(uint64_t) + kMaxExchangeBytes);
// Up to this size, of all members' data together, every member reduces everything, which takes one round.
// Beyond, every member reduces a part and passes it on (reduce-scatter, then all-gather).
constexpr size_t kDirectBytes = size_t(64) << 10;
constexpr size_t kLine = 64;

struct alignas(kLine) Slot {
  std::atomic<uint64_t> round{0};
  uint64_t left[2] = {};  // bytes that the member will still send after this round; per buffer
};
// The futex on which the members wait for the end of a round.
struct alignas(kLine) Arrival {
  Futex signal;
};

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
size_t head_bytes(size_t members) { return round_up(sizeof(Arrival) + members * sizeof(Slot), 4096); }

// Returns how much of `bytes` is left to be moved after the first `done`.
size_t rest(size_t bytes, size_t done) { return done < bytes ? bytes - done : 0; }
// Returns at most `most` bytes of the block, after its first `done`.
std::span<std::byte> piece(const Block& block, size_t done, size_t most) {
  const size_t n = std::min(rest(block.bytes, done), most);
  if (n == 0) return {};
  return {static_cast<std::byte*>(block.data) + done, n};
}
std::span<const std::byte> piece(const ConstBlock& block, size_t done, size_t most) {
  return piece(Block{const_cast<void*>(block.data), block.bytes}, done, most);
}
void copy(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}
void copy(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}
void copy(const Block& to, const ConstBlock& from) {
  if (to.data != from.data && from.bytes != 0)
    std::memcpy(to.data, from.data, std::min(to.bytes, from.bytes));
}

class ArenaBackend : public Backend {
 public:
  ArenaBackend(std::shared_ptr<Segment> segment, std::vector<int> members, int index)
      : segment_(std::move(segment)),
        members_(std::move(members)),
        index_(index),
        arrival_(*reinterpret_cast<Arrival*>(segment_->data())),
        slots_(reinterpret_cast<Slot*>(segment_->data() + sizeof(Arrival))),
        buffers_(segment_->data() + head_bytes(size())) {
    if (segment_->bytes() < arena_bytes(int(size())))
      throw InternalError("arena of ", size(), " members in ", segment_->bytes(), " bytes");
  }

  std::vector<std::string> exchange(const Call& call, std::string_view local) override {
    const uint64_t bytes = local.size();
    if (bytes > kMaxExchangeBytes) throw InternalError("exchange of ", bytes, " bytes");
    std::memcpy(next(), &bytes, sizeof bytes);
    if (bytes) std::memcpy(next() + sizeof bytes, local.data(), bytes);
    meet(call);
    std::vector<std::string> all(size());
    for (size_t i = 0; i < size(); ++i) {
      uint64_t remote_bytes;
      std::memcpy(&remote_bytes, read(i), sizeof remote_bytes);
      if (remote_bytes > kMaxExchangeBytes) throw_corrupt(call, i);
      all[i].assign(reinterpret_cast<const char*>(read(i)) + sizeof remote_bytes, remote_bytes);
    }
    return all;
  }

  void all_reduce(const Call& call, const void* in, void* out, int64_t n, DType dtype, ReduceOp op) override {
    reduce_to(call, true, in, out, n, dtype, op);
  }

  void reduce(const Call& call, int root, const void* in, void* out, int64_t n, DType dtype,
              ReduceOp op) override {
    reduce_to(call, index_ == size_t(root), in, out, n, dtype, op);
  }

  void reduce_scatter(const Call& call, std::span<const ConstBlock> blocks, void* out, DType dtype,
                      ReduceOp op) override {
    size_t longest = 0;
    for (const ConstBlock& block : blocks) longest = std::max(longest, block.bytes);
    for (size_t done = 0; done < longest; done += share()) {
      for (size_t i = 0; i < size(); ++i)
        if (i != index_) copy(next() + i * share(), piece(blocks[i], done, share()));
      meet(call);
      const std::span<const std::byte> local = piece(blocks[index_], done, share());
      reduce_piece(local, index_ * share(), static_cast<std::byte*>(out) + (local.empty() ? 0 : done), dtype,
                   op);
    }
  }

  void broadcast(const Call& call, int root, void* data, size_t bytes) override {
    const Block block{data, bytes};
    for (size_t done = 0; done < bytes; done += kBufferBytes) {
      if (index_ == size_t(root)) copy(next(), piece(block, done, kBufferBytes));
      meet(call);
      if (index_ != size_t(root)) copy(piece(block, done, kBufferBytes), read(root));
    }
  }

  void all_gather(const Call& call, ConstBlock in, std::span<const Block> out) override {
    size_t longest = 0;
    for (const Block& block : out) longest = std::max(longest, block.bytes);
    for (size_t done = 0; done < longest; done += kBufferBytes) {
      copy(next(), piece(in, done, kBufferBytes));
      meet(call);
      for (size_t i = 0; i < size(); ++i)
        if (i != index_) copy(piece(out[i], done, kBufferBytes), read(i));
    }
    copy(out[index_], in);
  }

  void exchange_blocks(const Call& call, std::span<const ConstBlock> in,
                       std::span<const Block> out) override {
    size_t longest = 0;
    for (size_t i = 0; i < size(); ++i)
      if (i != index_) longest = std::max(longest, in[i].bytes);
    for (size_t done = 0; done == 0 || more(); done += share()) {
      for (size_t i = 0; i < size(); ++i)
        if (i != index_) copy(next() + i * share(), piece(in[i], done, share()));
      meet(call, rest(longest, done + share()));
      for (size_t i = 0; i < size(); ++i)
        if (i != index_) copy(piece(out[i], done, share()), read(i) + index_ * share());
    }
    copy(out[index_], in[index_]);
  }

 private:
  size_t size() const { return members_.size(); }
  // Returns the size of one member's part, in a buffer that has a part for each member.
  size_t share() const { return kBufferBytes / size() / kLine * kLine; }
  std::byte* buffer(size_t member, uint64_t round) const {
    return buffers_ + (2 * member + round % 2) * kBufferBytes;
  }
  // This member's buffer of the coming round.
  std::byte* next() const { return buffer(index_, round_ + 1); }
  // A member's buffer of the round that was met last.
  const std::byte* read(size_t member) const { return buffer(member, round_); }
  // Returns whether any member had more to send in the round that was met last.
  bool more() const {
    for (size_t i = 0; i < size(); ++i)
      if (slots_[i].left[round_ % 2] != 0) return true;
    return false;
  }

  bool has_arrived(size_t member) const {
    return slots_[member].round.load(std::memory_order_seq_cst) >= round_;
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (size_t i = 0; i < size(); ++i)
      if (!has_arrived(i)) ranks.push_back(members_[i]);
    return ranks;
  }

  // Publishes this member's buffer, and waits until all others have published theirs.
  void meet(const Call& call, uint64_t left = 0) {
    if (Simulation* simulation = Simulation::current()) simulation->step("arena round");
    ++round_;
    slots_[index_].left[round_ % 2] = left;
    slots_[index_].round.store(round_, std::memory_order_seq_cst);
    // If two members arrive last at the same time, at least one sees that all are here, and wakes the others.
    const auto all_arrived = [this] {
      for (size_t i = 0; i < size(); ++i)
        if (!has_arrived(i)) return false;
      return true;
    };
    if (all_arrived()) return arrival_.signal.notify();
    const auto someone_left = [&] {
      for (size_t i = 0; i < size(); ++i)
        if (call.watch.membership->has_left(members_[i]) && !has_arrived(i)) return true;
      return false;
    };
    std::optional<WaitScope> waiting;
    const WaitResult outcome = arrival_.signal.wait(
        call.watch, [&] { return all_arrived() || someone_left(); }, call.op, Futex::spin_limit(),
        [&] { waiting.emplace(*call.watch.membership, Wait::for_ranks([this] { return missing(); })); });
    if (outcome != WaitResult::kReady) throw_wait(call.op, outcome, call.watch, missing());
    for (size_t i = 0; i < size(); ++i)
      check_left(call.op, call.watch, members_[i], [&] { return !has_arrived(i); });
  }

  // Returns the size of the parts that the chunk from `start` is cut into. Parts are whole cache lines; the
  // last one may be shorter.
  size_t part_bytes(size_t bytes, size_t start) const {
    const size_t length = std::min(rest(bytes, start), share() * size());
    return round_up((length + size() - 1) / size(), kLine);
  }
  template <class AnyBlock>
  auto part_of(const AnyBlock& block, size_t start, size_t part, size_t member) const {
    return piece(block, start + member * part, part);
  }

  // Reduces all members' `in` of n elements. Writes the result to `out` if `wanted` (reduce: on the root).
  void reduce_to(const Call& call, bool wanted, const void* in, void* out, int64_t n, DType dtype,
                 ReduceOp op) {
    const ConstBlock local{in, size_t(n * size_of(dtype))};
    const Block result{wanted ? out : nullptr, wanted ? local.bytes : 0};
    if (size() == 2 || local.bytes * size() <= kDirectBytes)
      reduce_directly(call, local, result, dtype, op);
    else
      reduce_in_parts(call, local, result, dtype, op);
  }

  // Every member reads everything. With two members this is no more traffic than passing on halves.
  void reduce_directly(const Call& call, const ConstBlock& in, const Block& out, DType dtype, ReduceOp op) {
    for (size_t done = 0; done < in.bytes; done += kBufferBytes) {
      const std::span<const std::byte> local = piece(in, done, kBufferBytes);
      copy(next(), local);
      meet(call);
      const std::span<std::byte> result = piece(out, done, kBufferBytes);
      if (!result.empty()) reduce_piece(local, 0, result.data(), dtype, op);
    }
  }

  // Pipelines chunks: a round carries the parts of chunk c for the other members, part i at offset
  // i * share(), and at this member's own offset, whose input is not copied, this member's reduced part of
  // chunk c - 1. An extra round carries the last reduced parts.
  void reduce_in_parts(const Call& call, const ConstBlock& in, const Block& out, DType dtype, ReduceOp op) {
    const size_t chunk = share() * size();
    const size_t end = round_up(in.bytes, chunk);
    for (size_t start = 0; start <= end; start += chunk) {
      if (start > 0) {
        const size_t part = part_bytes(in.bytes, start - chunk);
        const std::span<const std::byte> local = part_of(in, start - chunk, part, index_);
        reduce_piece(local, index_ * share(), next() + index_ * share(), dtype, op);
      }
      for (size_t i = 0; i < size(); ++i)
        if (i != index_) copy(next() + i * share(), part_of(in, start, part_bytes(in.bytes, start), i));
      meet(call);
      for (size_t i = 0; start > 0 && i < size(); ++i)
        copy(part_of(out, start - chunk, part_bytes(in.bytes, start - chunk), i), read(i) + i * share());
    }
  }
  // Sets out to the reduction of `local` and of the others' data at `offset` in the last round's buffers.
  void reduce_piece(std::span<const std::byte> local, size_t offset, std::byte* out, DType dtype,
                    ReduceOp op) {
    if (local.empty()) return;
    inputs_.resize(size());
    for (size_t i = 0; i < size(); ++i) inputs_[i] = i == index_ ? local.data() : read(i) + offset;
    reduce_all_into(out, inputs_.data(), int(size()), int64_t(local.size()) / size_of(dtype), dtype, op);
  }

  [[noreturn]] void throw_corrupt(const Call& call, size_t member) const {
    const std::string text = concat("rank ", members_[member], " corrupted the shared memory of collectives");
    throw_failure(call.op, call.watch.membership->report({Failure::Kind::kFailed, members_[member], text}));
  }

  const std::shared_ptr<Segment> segment_;
  const std::vector<int> members_;
  const size_t index_;
  Arrival& arrival_;
  Slot* const slots_;
  std::byte* const buffers_;
  uint64_t round_ = 0;  // the last one that this member has published
  std::vector<const void*> inputs_;
};

}  // namespace

size_t arena_bytes(int members) { return head_bytes(members) + size_t(members) * 2 * kBufferBytes; }

std::unique_ptr<Backend> make_arena_backend(std::shared_ptr<Segment> segment, std::vector<int> members,
                                            int index) {
  return std::make_unique<ArenaBackend>(std::move(segment), std::move(members), index);
}

}  // namespace gradus::dist::internal
