// At the start of a data-parallel backward each rank sends a BackwardNote: the parameters for which the rank
// has gradients, and fingerprints of its options, attached tensors and parameters. This file serializes the
// notes, exchanges them by an asynchronous collective, checks that all ranks run the same backward
// (find_mismatch), and derives what all ranks do (Consensus::resolve). The check and resolve() run on the
// thread of the group's queue when the notes of all members have arrived; Consensus::wait publishes the
// result, or throws on all ranks.
#include "gradus/distributed/data_parallel/internal/consensus.h"

#include <algorithm>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/internal/compare.h"

namespace gradus::dist::internal {
namespace {

constexpr size_t kHeaderSize = 7;  // number of int64 before the bits of `reached`

// Returns the index of the first note with the property, or -1.
template <class Predicate> int first(const BackwardNotes& notes, Predicate is) {
  const auto it = std::ranges::find_if(notes, is);
  return it == notes.end() ? -1 : int(it - notes.begin());
}

// Returns whether the rank has no more data and takes part with zero gradients, within join().
bool is_joined(const BackwardNote& note) { return note.kind == BackwardNote::kJoined; }

// Returns the bucket plans of all members as text lines (BucketPlan::lines: one line with the options, then
// one per attached tensor), by member. `local` is this rank's plan. It is sent in chunks of kChunk bytes; a
// shorter chunk is a member's last one. Collective: either all members call exchange_lines or none does,
// because all members decide it by the same notes.
std::vector<std::vector<std::string>> exchange_lines(const MatchedCall& matched,
                                                     const std::vector<std::string>& local) {
  constexpr size_t kChunk = kMaxExchangeBytes / 2;
  std::string text = to_wire(local);
  std::vector<std::string> all(matched.records.size());
  for (bool more = true; more;) {
    const std::vector<std::string> chunks =
        matched.backend.exchange(matched.call, std::string_view(text).substr(0, kChunk));
    text.erase(0, kChunk);
    for (size_t i = 0; i < all.size(); ++i) all[i] += chunks[i];
    more = std::ranges::any_of(chunks, [](const std::string& chunk) { return chunk.size() == kChunk; });
  }
  std::vector<std::vector<std::string>> lines;
  for (const std::string& bytes : all) lines.push_back(from_wire<std::vector<std::string>>(bytes));
  return lines;
}

}  // namespace

// The serialized form: kHeaderSize numbers, then `reached` with 64 bits per number, the lowest bit first.
std::vector<int64_t> serialize(const BackwardNote& note) {
  std::vector<int64_t> record{
      note.kind,  note.number,   note.plan_fingerprint,       note.manager_fingerprint,
      note.flags, note.checksum, int64_t(note.reached.size())};
  record.resize(kHeaderSize + (note.reached.size() + 63) / 64);
  for (size_t i = 0; i < note.reached.size(); ++i)
    if (note.reached[i]) record[kHeaderSize + i / 64] |= int64_t(uint64_t{1} << i % 64);
  return record;
}

std::optional<BackwardNote> parse(const std::vector<int64_t>& record) {
  if (record.size() < kHeaderSize || record[0] < 0 || record[0] > BackwardNote::kJoined || record[6] < 0 ||
      record[6] > kMaxAttachedTensors || record.size() != kHeaderSize + size_t(record[6] + 63) / 64)
    return std::nullopt;
  BackwardNote note{
      record[0], record[1], record[2], record[3], record[4], record[5], std::vector<bool>(record[6])};
  for (size_t i = 0; i < note.reached.size(); ++i)
    note.reached[i] = record[kHeaderSize + i / 64] >> i % 64 & 1;
  return note;
}

std::optional<Failure> find_mismatch(const std::vector<std::optional<BackwardNote>>& received,
                                     const std::vector<int>& ranks,
                                     const std::function<std::string()>& difference) {
  const auto mismatch = [&](size_t i, const auto&... parts) {
    return Failure{Failure::Kind::kMismatch, ranks[i], concat("rank ", ranks[i], parts...)};
  };
  std::vector<BackwardNote> notes;
  std::vector<size_t> all, not_joined, backwards;  // members: all; those with data; those that run a backward
  for (size_t i = 0; i < received.size(); ++i) {
    if (!received[i]) return mismatch(i, " sent a malformed note: do all ranks run the same program?");
    notes.push_back(*received[i]);
    all.push_back(i);
    if (!is_joined(notes[i])) not_joined.push_back(i);
    if (notes[i].kind == BackwardNote::kBackward) backwards.push_back(i);
  }
  size_t i = 0, other = 0;  // members: the first that differs from the majority, the first of the majority
  // Returns whether value(note) differs between the members; sets `i` and `other`.
  const auto differs = [&](const std::vector<size_t>& members, auto value) {
    const Minority found = find_minority(members, [&](size_t m) { return value(notes[m]); });
    if (found.members.empty()) return false;
    i = found.members[0], other = found.majority;
    return true;
  };
  if (differs(all, [](const auto& n) { return std::pair(n.plan_fingerprint, n.reached.size()); }))
    return mismatch(i, " attached other tensors to its all-reduce callback than rank ", ranks[other],
                    ", or gave it other options: ", difference());
  if (differs(all, [](const auto& n) { return n.flags & ~BackwardNote::kEnclosingRecording; }))
    return mismatch(i, " is within join() and rank ", ranks[other], " is not, or has other options there");
  if (differs(not_joined, [](const auto& n) { return n.number; }))
    return mismatch(i, " synchronizes its backward ", notes[i].number, " where rank ", ranks[other],
                    " synchronizes its backward ", notes[other].number,
                    ": all ranks must run the same backwards, and under no_sync() the same of them");
  if (differs(backwards, [](const auto& n) { return n.manager_fingerprint; }))
    return mismatch(i, " runs the backward of another manager than rank ", ranks[other]);
  if (differs(backwards, [](const auto& n) { return n.flags; }))
    return mismatch(i, " has an outer recording open and rank ", ranks[other],
                    " has none, or the other way round: what one rank differentiates, all must record");
  return std::nullopt;
}

std::shared_ptr<Consensus> Consensus::start(const Group& group, const BackwardNote& local,
                                            std::shared_ptr<const std::vector<std::string>> plan) {
  const auto consensus = std::make_shared<Consensus>();
  Collective call{.op = "backward", .record = {.op = Op::kBackward}, .sizes = serialize(local)};
  call.is_agreement = true;
  // The plans' lines are compared only if the plans' fingerprints differ, to name the difference in the
  // error. If the lines are equal, the devices differ: the fingerprint includes the tensors' devices, and the
  // lines do not.
  call.check = [&state = group.state(), plan = std::move(plan)](const MatchedCall& matched) {
    std::vector<std::optional<BackwardNote>> received;
    for (const auto& record : matched.sizes) received.push_back(parse(record));
    return find_mismatch(received, state.members(), [&] {
      const auto difference = find_difference(exchange_lines(matched, *plan), state.members());
      return difference ? difference->text : std::string("they are on other devices");
    });
  };
  call.move = [consensus](MatchedCall& matched) {
    BackwardNotes all;
    for (const auto& record : matched.sizes) all.push_back(parse(record).value());
    consensus->resolve(std::move(all));
  };
  consensus->work = group.state().run(std::move(call), /*async=*/true, /*timeout=*/{});
  return consensus;
}

// All members compute the same result from the same notes.
void Consensus::resolve(BackwardNotes all) {
  notes = std::move(all);
  canceled = std::ranges::any_of(notes, [](const auto& n) { return n.kind == BackwardNote::kNone; });
  first_joined = first(notes, is_joined);
  first_active = first(notes, std::not_fn(is_joined));
  divisor = int(notes.size());
  reduced.assign(notes[0].reached.size(), false);
  const bool some_joined = first_joined >= 0 && first_active >= 0;  // some members have data, others none
  diverged = !canceled && first_joined < 0 &&
             std::ranges::any_of(notes, [&](const auto& n) { return n.checksum != notes[0].checksum; });
  if (some_joined && notes[first_active].flags & BackwardNote::kDivideByActive)
    divisor -= int(std::ranges::count_if(notes, is_joined));
  const bool error = some_joined && (notes[first_joined].flags & BackwardNote::kEndEarly ||
                                     notes[first_active].flags & BackwardNote::kEnclosingRecording);
  if (canceled || diverged || error) return;
  for (const BackwardNote& n : notes)
    for (size_t i = 0; i < reduced.size(); ++i) reduced[i] = reduced[i] || n.reached[i];
}

void Consensus::check_joined(const std::vector<int>& ranks) const {
  if (first_joined < 0 || first_active < 0) return;
  const int rank = ranks[first_joined];
  if (notes[first_joined].flags & BackwardNote::kEndEarly)
    throw PeerError("backward", rank, "rank ", rank,
                    " has no more data, and others have: throw_on_early_termination");
  if (notes[first_active].flags & BackwardNote::kEnclosingRecording)
    throw StateError("backward", "rank ", rank,
                     " has no more data: it cannot take part in what an outer recording sees");
}

}  // namespace gradus::dist::internal
