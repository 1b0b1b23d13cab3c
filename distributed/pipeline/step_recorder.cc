// StepRecorder: timestamps of the actions and messages of a pipeline-parallel executor, one rank's, on the
// steady clock in nanoseconds. gathered_records serializes the records of all ranks, converts times to the
// first rank's clock (offset by round trips, as NTP), and gathers them there. Not thread-safe.
#include "gradus/distributed/pipeline/step_recorder.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/allocator.h"

namespace gradus::dist::internal {
namespace {

// Trivially copyable records as raw bytes; assumes that all ranks run the same binary.
template <class T> std::string_view bytes_of(const std::vector<T>& items) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T)};
}
template <class T> std::vector<T> from_bytes(std::string_view bytes) {
  if (bytes.size() % sizeof(T) != 0) WireReader::throw_malformed();
  std::vector<T> items(bytes.size() / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), bytes.size());
  return items;
}

std::string to_wire(const std::vector<RankRecord>& records) {
  WireWriter writer;
  writer.put(uint64_t(records.size()));
  for (const RankRecord& r : records) {
    writer.put(r.rank, r.replica, r.pipeline_rank, uint64_t(r.steps.size()));
    for (const StepRecord& s : r.steps)
      writer.put(s.number, bytes_of(s.actions), bytes_of(s.messages), s.all_reduce_bytes);
  }
  return writer.release();
}

// Errors: those of WireReader for bytes that to_wire did not write.
void append_from_wire(std::string_view bytes, std::vector<RankRecord>& records) {
  WireReader reader(bytes);
  uint64_t ranks, steps;
  for (reader.get(ranks); ranks > 0; --ranks) {
    RankRecord& r = records.emplace_back();
    for (reader.get(r.rank, r.replica, r.pipeline_rank, steps); steps > 0; --steps) {
      StepRecord& s = r.steps.emplace_back();
      std::string_view actions, messages;
      reader.get(s.number, actions, messages, s.all_reduce_bytes);
      s.actions = from_bytes<ActionRecord>(actions);
      s.messages = from_bytes<MessageRecord>(messages);
    }
  }
  if (reader.remaining()) WireReader::throw_malformed();
}

// Subtracts the offset from all times.
void subtract(int64_t offset, std::vector<RankRecord>& records) {
  for (RankRecord& r : records)
    for (StepRecord& s : r.steps) {
      for (ActionRecord& a : s.actions) a.begin -= offset, a.end -= offset;
      for (MessageRecord& m : s.messages) m.begin -= offset, m.end -= offset;
    }
}

}  // namespace

int64_t monotonic_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void StepRecorder::record_last(int steps) {
  if (steps < 0) throw ValueError("record_steps", "expected steps >= 0, got ", steps);
  max_steps_ = steps;
  steps_.clear();
}

void StepRecorder::end_step() {
  if (max_steps_ == 0) return;
  if (int(steps_.size()) == max_steps_) steps_.pop_front();
  steps_.push_back(std::move(step_));
}

void StepRecorder::end() {
  if (max_steps_ == 0) return;
  step_.actions.back().end = monotonic_now();
  step_.actions.back().held_bytes = memory_stats().live_bytes;
}

void StepRecorder::record_message(bool received, int peer, const Address& address, const Tensor& x) {
  if (max_steps_ == 0) return;
  const int64_t now = monotonic_now();
  step_.messages.push_back({.action = int(step_.actions.size()) - 1,
                            .received = received,
                            .peer = peer,
                            .stage = address.stage,
                            .micro_batch = address.micro_batch,
                            .slot = address.slot,
                            .gradient = address.gradient,
                            .bytes = x.defined() ? x.nbytes() : 0,
                            .begin = message_begin_,
                            .end = now});
  // The waiting time does not count as computation.
  if (received) step_.actions.back().begin += now - message_begin_;
}

int64_t clock_offset(const Group& group, const std::function<int64_t()>& now) {
  constexpr int kRoundTrips = 16;
  Tensor time = zeros({1}, {.dtype = DType::kI64});
  int64_t* value = time.mutable_data<int64_t>();
  const int first = group.ranks().front();
  int64_t offset = 0;
  // Each other rank answers the first rank's round trips with its time, and then receives its offset.
  if (group.rank() > 0) {
    for (int i = 0; i < kRoundTrips; ++i) {
      recv(time, {.src = first, .group = group});
      *value = now();
      send(time, {.dst = first, .group = group});
    }
    recv(time, {.src = first, .group = group});
    return *value;
  }
  for (int member = 1; member < group.size(); ++member) {
    const int rank = get_global_rank(group, member);
    int64_t shortest = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < kRoundTrips; ++i) {
      const int64_t begin = now();
      send(time, {.dst = rank, .group = group});
      recv(time, {.src = rank, .group = group});
      const int64_t end = now();
      if (end - begin >= shortest) continue;
      // Assumes that both directions of the shortest round trip took equally long.
      shortest = end - begin;
      offset = *value - (begin + shortest / 2);
    }
    *value = offset;
    send(time, {.dst = rank, .group = group});
  }
  return 0;
}

std::vector<RankRecord> gathered_records(std::vector<RankRecord> local, const Group& group) {
  if (group.size() == 1) return local;
  // Ranks on the same host have the same clock.
  const std::vector<int>& host_of = group.state().world()->host_of;
  const auto on_other_host = [&](int rank) {
    return host_of[size_t(rank)] != host_of[size_t(group.ranks().front())];
  };
  if (std::ranges::any_of(group.ranks(), on_other_host)) {
    const int64_t offset = clock_offset(group, monotonic_now);
    if (on_other_host(get_rank())) subtract(offset, local);
  }
  std::vector<RankRecord> all;
  for (const std::string& bytes :
       gather_object(to_wire(local), {.dst = group.ranks().front(), .group = group}))
    append_from_wire(bytes, all);
  return all;
}

}  // namespace gradus::dist::internal
