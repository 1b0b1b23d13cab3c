// Serialization of BackwardNote, checks that the notes of all ranks are consistent, and the derivation of the
// Consensus.
#include "gradus/distributed/data_parallel/internal/backward_note.h"

#include <algorithm>

#include "gradus/distributed/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr size_t kHeaderSize = 7;  // number of int64 before the bits of `reached`

// Among the members selected by `selects`, returns the first whose value differs from the most frequent
// value, and a member with the most frequent value. Returns nullopt if all values are equal.
template <class Selects, class Value>
std::optional<std::pair<size_t, size_t>> find_minority(const std::vector<BackwardNote>& notes,
                                                       Selects selects, Value value) {
  std::vector<size_t> all;
  for (size_t i = 0; i < notes.size(); ++i)
    if (selects(notes[i])) all.push_back(i);
  const auto votes = [&](size_t i) {
    return std::ranges::count_if(all, [&](size_t j) { return value(notes[i]) == value(notes[j]); });
  };
  const auto majority = std::ranges::max_element(all, {}, votes);
  for (size_t i : all)
    if (value(notes[i]) != value(notes[*majority])) return std::pair(i, *majority);
  return std::nullopt;
}

template <class Predicate> int first(const BackwardNotes& notes, Predicate is) {
  const auto it = std::ranges::find_if(notes, is);
  return it == notes.end() ? -1 : int(it - notes.begin());
}

bool is_joined(const BackwardNote& note) { return note.kind == BackwardNote::kJoined; }

}  // namespace

std::vector<int64_t> serialize(const BackwardNote& note) {
  std::vector<int64_t> record{note.kind,
                              note.number,
                              note.plan,
                              note.attached,
                              note.flags,
                              note.checksum,
                              int64_t(note.reached.size())};
  record.resize(kHeaderSize + (note.reached.size() + 63) / 64);
  for (size_t i = 0; i < note.reached.size(); ++i)
    if (note.reached[i]) record[kHeaderSize + i / 64] |= int64_t(uint64_t{1} << i % 64);
  return record;
}

std::optional<BackwardNote> parse(const std::vector<int64_t>& record) {
  if (record.size() < kHeaderSize || record[0] < 0 || record[0] > BackwardNote::kJoined || record[6] < 0 ||
      record[6] > kMaxReached || record.size() != kHeaderSize + size_t(record[6] + 63) / 64)
    return std::nullopt;
  BackwardNote note{
      record[0], record[1], record[2], record[3], record[4], record[5], std::vector<bool>(record[6])};
  for (size_t i = 0; i < note.reached.size(); ++i)
    note.reached[i] = record[kHeaderSize + i / 64] >> i % 64 & 1;
  return note;
}

std::optional<Failure> find_mismatch(const std::vector<std::optional<BackwardNote>>& received,
                                     const std::vector<int>& ranks,
                                     const std::function<std::string(size_t, size_t)>& difference) {
  const auto mismatch = [&](size_t i, const auto&... parts) {
    return Failure{Failure::Kind::kMismatch, ranks[i], concat("rank ", ranks[i], parts...)};
  };
  std::vector<BackwardNote> notes;
  for (size_t i = 0; i < received.size(); ++i) {
    if (!received[i]) return mismatch(i, " sent a malformed note: do all ranks run the same program?");
    notes.push_back(*received[i]);
  }
  const auto all = [](const BackwardNote&) { return true; };
  const auto not_joined = [](const BackwardNote& n) { return n.kind != BackwardNote::kJoined; };
  const auto is_backward = [](const BackwardNote& n) { return n.kind == BackwardNote::kBackward; };
  if (const auto mismatching =
          find_minority(notes, all, [](const auto& n) { return std::pair(n.plan, n.reached.size()); }))
    return mismatch(mismatching->first, " attached other tensors to its all-reduce callback than rank ",
                    ranks[mismatching->second], ", or gave it other options",
                    difference(mismatching->first, mismatching->second));
  if (const auto mismatching = find_minority(
          notes, all, [](const auto& n) { return n.flags & ~BackwardNote::kEnclosingRecording; }))
    return mismatch(mismatching->first, " is within join() and rank ", ranks[mismatching->second],
                    " is not, or has other options there");
  if (const auto mismatching = find_minority(notes, not_joined, [](const auto& n) { return n.number; }))
    return mismatch(mismatching->first, " synchronizes its backward ", notes[mismatching->first].number,
                    " where rank ", ranks[mismatching->second], " synchronizes its backward ",
                    notes[mismatching->second].number,
                    ": all ranks must run the same backwards, and under no_sync() the same of them");
  if (const auto mismatching = find_minority(notes, is_backward, [](const auto& n) { return n.attached; }))
    return mismatch(mismatching->first, " runs the backward of another manager than rank ",
                    ranks[mismatching->second]);
  if (const auto mismatching = find_minority(notes, is_backward, [](const auto& n) { return n.flags; }))
    return mismatch(mismatching->first, " has an outer recording open and rank ", ranks[mismatching->second],
                    " has none, or the other way round: what one rank differentiates, all must record");
  return std::nullopt;
}

Consensus::Consensus(const BackwardNotes& notes)
    : canceled(std::ranges::any_of(notes, [](const auto& n) { return n.kind == BackwardNote::kNone; })),
      joined(first(notes, is_joined)),
      active(first(notes, std::not_fn(is_joined))),
      divisor(int(notes.size())),
      used(notes[0].reached.size()) {
  const bool some_joined = joined >= 0 && active >= 0;
  diverged = !canceled && joined < 0 &&
             std::ranges::any_of(notes, [&](const auto& n) { return n.checksum != notes[0].checksum; });
  if (some_joined && notes[active].flags & BackwardNote::kDivideByActive)
    divisor -= int(std::ranges::count_if(notes, is_joined));
  const bool error = some_joined && (notes[joined].flags & BackwardNote::kEndEarly ||
                                     notes[active].flags & BackwardNote::kEnclosingRecording);
  if (canceled || diverged || error) return;
  for (const BackwardNote& n : notes)
    for (size_t i = 0; i < used.size(); ++i) used[i] = used[i] || n.reached[i];
}

void Consensus::check_joined(const BackwardNotes& notes, const std::vector<int>& ranks) const {
  if (joined < 0 || active < 0) return;
  const int rank = ranks[joined];
  if (notes[joined].flags & BackwardNote::kEndEarly)
    throw PeerError("backward", rank, "rank ", rank,
                    " has no more data, and others have: throw_on_early_termination");
  if (notes[active].flags & BackwardNote::kEnclosingRecording)
    throw StateError("backward", "rank ", rank,
                     " has no more data: it cannot take part in what an outer recording sees");
}

}  // namespace gradus::dist::internal
