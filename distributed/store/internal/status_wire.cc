// Encodes and decodes a RankStatus for heartbeats, in at most kMaxStatusBytes. Order of fields: activity,
// call, posted calls, stuck, arrived, waits. encode_status cuts texts and leaves out the last waits and runs
// of ranks if they do not fit. decode_status checks bytes from the network: it returns nullopt instead of
// throwing.
#include "gradus/distributed/store/internal/status_wire.h"

#include <algorithm>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/store/store_protocol.h"

namespace gradus::dist::internal {
namespace {

constexpr size_t kMaxCallText = 1024, kMaxPostedText = 1024;
// Encoded sizes of a CallSeries, of a CallId, and of a RankWait without its runs of ranks.
constexpr size_t kSeriesBytes = 1 + 4 + 4, kCallBytes = kSeriesBytes + 8, kWaitBytes = kCallBytes + 2 + 8;

void put(WireWriter& wire, const CallSeries& series) { wire.put(series.kind, series.group, series.first); }

CallSeries get_series(WireReader& wire) {
  CallSeries series;
  wire.get(series.kind, series.group, series.first);
  if (series.kind > CallSeries::Kind::kMessage) WireReader::throw_malformed();
  return series;
}

// Writes at most max_runs runs of the ranks that the wait is for.
void put(WireWriter& wire, const RankWait& wait, size_t max_runs) {
  put(wire, wait.call.series);
  wire.put(wait.call.sequence, wait.any, wait.blocks);
  const std::vector<RankSet::Run>& runs = wait.ranks.runs();
  const size_t count = std::min(runs.size(), max_runs);
  wire.put(uint64_t(count));
  for (size_t i = 0; i < count; ++i) wire.put(runs[i].first, runs[i].last, runs[i].step);
}

// Errors: StoreError for malformed bytes.
RankWait get_wait(WireReader& wire, int world_size) {
  RankWait wait;
  wait.call.series = get_series(wire);
  wire.get(wait.call.sequence, wait.any, wait.blocks);
  std::vector<RankSet::Run> runs;
  uint64_t count = 0;
  for (wire.get(count); count > 0; --count) {
    RankSet::Run& run = runs.emplace_back();
    wire.get(run.first, run.last, run.step);
  }
  wait.ranks = RankSet::from_runs(runs, world_size);
  return wait;
}

// Writes the first posted calls, at most kMaxPostedText bytes.
void put_posted(WireWriter& wire, const RankStatus& status) {
  std::vector<std::string> posted;
  size_t room = kMaxPostedText;
  for (const std::string& call : status.posted) {
    const size_t bytes = call.size() + sizeof(uint64_t);
    if (bytes > room) break;
    room -= bytes;
    posted.push_back(call);
  }
  wire.put(posted);
}

}  // namespace

std::string encode_status(const RankStatus& status) {
  // `room` is the number of bytes left for arrived calls, waits and runs, beside the fixed fields: activity
  // and 5 64-bit numbers. `stuck` is only sent together with all calls and waits that it refers to.
  size_t room = kMaxStatusBytes - kMaxCallText - kMaxPostedText - 1 - 5 * sizeof(uint64_t);
  const size_t arrived_bytes = status.stuck != 0 ? status.arrived.size() * kCallBytes : 0;
  const size_t waits_bytes = status.waits.size() * kWaitBytes;
  const bool is_stuck = status.stuck != 0 && arrived_bytes + waits_bytes <= room;
  if (is_stuck) room -= arrived_bytes;
  const size_t wait_count = std::min(status.waits.size(), room / kWaitBytes);
  room -= wait_count * kWaitBytes;
  WireWriter wire;
  wire.put(status.activity);
  wire.put(std::string_view(status.call).substr(0, kMaxCallText));
  put_posted(wire, status);
  wire.put(is_stuck ? status.stuck : uint64_t(0));
  wire.put(uint64_t(is_stuck ? status.arrived.size() : 0));
  if (is_stuck)
    for (const auto& [series, sequence] : status.arrived) {
      put(wire, series);
      wire.put(sequence);
    }
  wire.put(uint64_t(wait_count));
  for (size_t i = 0; i < wait_count; ++i) {
    const size_t max_runs = room / 2 / sizeof(RankSet::Run);  // leaves room for the other waits
    put(wire, status.waits[i], max_runs);
    room -= std::min(status.waits[i].ranks.runs().size(), max_runs) * sizeof(RankSet::Run);
  }
  return wire.release();
}

std::optional<RankStatus> decode_status(std::string_view bytes, int world_size) {
  if (bytes.size() > kMaxStatusBytes) return {};
  try {
    WireReader wire(bytes);
    RankStatus status;
    wire.get(status.activity);
    if (status.activity > Activity::kAfterTimeout) return {};
    wire.get(status.call, status.posted, status.stuck);
    uint64_t count = 0;
    for (wire.get(count); count > 0; --count) {
      const CallSeries series = get_series(wire);
      wire.get(status.arrived[series]);
    }
    for (wire.get(count); count > 0; --count) status.waits.push_back(get_wait(wire, world_size));
    if (wire.remaining() != 0) return {};
    return status;
  } catch (const StoreError&) {
    return {};
  }
}

}  // namespace gradus::dist::internal
