#include "gradus/distributed/data_parallel/internal/backward_exchange.h"

#include <algorithm>
#include <functional>

namespace gradus::dist::internal {
namespace {

constexpr size_t kHead = 7;  // how many numbers precede the bits

std::vector<int64_t> write(const BackwardNote& note) {
  std::vector<int64_t> text{note.kind,
                            note.number,
                            note.plan,
                            note.attached,
                            note.flags,
                            note.checksum,
                            int64_t(note.reached.size())};
  text.resize(kHead + (note.reached.size() + 63) / 64);
  for (size_t i = 0; i < note.reached.size(); ++i)
    if (note.reached[i]) text[kHead + i / 64] |= int64_t(uint64_t{1} << i % 64);
  return text;
}

std::optional<BackwardNote> read(const std::vector<int64_t>& text) {
  if (text.size() < kHead || text[0] < 0 || text[0] > BackwardNote::kJoined || text[6] < 0 ||
      text[6] > kMaxReached || text.size() != kHead + size_t(text[6] + 63) / 64)
    return std::nullopt;
  BackwardNote note{text[0], text[1], text[2], text[3], text[4], text[5], std::vector<bool>(text[6])};
  for (size_t i = 0; i < note.reached.size(); ++i) note.reached[i] = text[kHead + i / 64] >> i % 64 & 1;
  return note;
}

// Among the members that count, returns one with another value than most, and one with the value
// that most have.
template <class Counts, class Value>
std::optional<std::pair<size_t, size_t>> find_odd(const std::vector<BackwardNote>& notes, Counts counts,
                                                  Value value) {
  std::vector<size_t> all;
  for (size_t i = 0; i < notes.size(); ++i)
    if (counts(notes[i])) all.push_back(i);
  const auto votes = [&](size_t i) {
    return std::ranges::count_if(all, [&](size_t j) { return value(notes[i]) == value(notes[j]); });
  };
  const auto usual = std::ranges::max_element(all, {}, votes);
  for (size_t i : all)
    if (value(notes[i]) != value(notes[*usual])) return std::pair(i, *usual);
  return std::nullopt;
}

// Returns every member's lines. Collective; all members have found that their fingerprints differ.
std::vector<std::vector<std::string>> exchange_lines(const Turn& turn, const std::vector<std::string>& mine) {
  constexpr size_t kAtOnce = kMaxExchangeBytes / 2;
  std::string text;
  for (const std::string& line : mine) text += line + '\n';
  std::vector<std::string> all(turn.records.size());
  for (bool more = true; more;) {
    const std::vector<std::string> parts =
        turn.backend.exchange(turn.call, std::string_view(text).substr(0, kAtOnce));
    text.erase(0, kAtOnce);
    for (size_t i = 0; i < all.size(); ++i) all[i] += parts[i];
    more = std::ranges::any_of(parts, [](const std::string& part) { return part.size() == kAtOnce; });
  }
  std::vector<std::vector<std::string>> lines(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t at = 0; at < all[i].size();) {
      const size_t end = std::min(all[i].find('\n', at), all[i].size());
      lines[i].push_back(all[i].substr(at, end - at));
      at = end + 1;
    }
  return lines;
}

// Returns ": fc.weight f32[3,4] on rank 1, where rank 0 has fc.weight f32[3,5]". The first line has the
// options. In the other lines a tab and a name follow; the name need not be the same on all ranks.
std::string first_difference(const std::vector<std::string>& a, int rank_a, const std::vector<std::string>& b,
                             int rank_b) {
  const auto form = [](const std::string& line) { return line.substr(0, line.find('\t')); };
  const size_t at = size_t(std::ranges::mismatch(a, b, {}, form, form).in1 - a.begin());
  const auto text = [&](const std::vector<std::string>& lines) {
    if (at >= lines.size()) return std::string("no more");
    const std::string& line = lines[at];
    const size_t tab = line.find('\t');
    return tab == line.npos ? line : concat(line.substr(tab + 1), ' ', form(line));
  };
  if (at >= a.size() && at >= b.size()) return ": they are on other devices";
  return concat(": ", text(a), " on rank ", rank_a, ", where rank ", rank_b, " has ", text(b));
}

// Returns what does not fit, or nothing. `difference` returns how the plans of two members differ. Either all
// members call it or none does.
std::optional<Failure> find_mismatch(const std::vector<std::optional<BackwardNote>>& given,
                                     const std::vector<int>& ranks,
                                     const std::function<std::string(size_t, size_t)>& difference) {
  const auto mismatch = [&](size_t i, const auto&... parts) {
    return Failure{Failure::Kind::kMismatch, ranks[i], concat("rank ", ranks[i], parts...)};
  };
  std::vector<BackwardNote> notes;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) return mismatch(i, " sent a malformed note: do all ranks run the same program?");
    notes.push_back(*given[i]);
  }
  const auto all = [](const BackwardNote&) { return true; };
  const auto here = [](const BackwardNote& n) { return n.kind != BackwardNote::kJoined; };
  const auto backward = [](const BackwardNote& n) { return n.kind == BackwardNote::kBackward; };
  if (const auto odd =
          find_odd(notes, all, [](const auto& n) { return std::pair(n.plan, n.reached.size()); }))
    return mismatch(odd->first, " attached other tensors to its all-reduce callback than rank ",
                    ranks[odd->second], ", or gave it other options", difference(odd->first, odd->second));
  if (const auto odd = find_odd(notes, all, [](const auto& n) { return n.flags & ~BackwardNote::kOuter; }))
    return mismatch(odd->first, " is within join() and rank ", ranks[odd->second],
                    " is not, or has other options there");
  if (const auto odd = find_odd(notes, here, [](const auto& n) { return n.number; }))
    return mismatch(odd->first, " synchronizes its backward ", notes[odd->first].number, " where rank ",
                    ranks[odd->second], " synchronizes its backward ", notes[odd->second].number,
                    ": all ranks must run the same backwards, and under no_sync() the same of them");
  if (const auto odd = find_odd(notes, backward, [](const auto& n) { return n.attached; }))
    return mismatch(odd->first, " runs the backward of another manager than rank ", ranks[odd->second]);
  if (const auto odd = find_odd(notes, backward, [](const auto& n) { return n.flags; }))
    return mismatch(odd->first, " has an outer recording open and rank ", ranks[odd->second],
                    " has none, or the other way round: what one rank differentiates, all must record");
  return std::nullopt;
}

}  // namespace

BackwardExchange::BackwardExchange(const Group& group, const BackwardNote& mine,
                                   std::shared_ptr<const std::vector<std::string>> plan)
    : notes_(std::make_shared<std::vector<BackwardNote>>()) {
  Collective call{.op = "backward", .record = {.op = Op::kBackward}, .sizes = write(mine)};
  call.check = [&state = group.state(), plan = std::move(plan)](const Turn& turn) {
    std::vector<std::optional<BackwardNote>> given;
    for (const auto& text : turn.sizes) given.push_back(read(text));
    const std::vector<int>& ranks = state.members();
    return find_mismatch(given, ranks, [&](size_t odd, size_t usual) {
      const auto lines = exchange_lines(turn, *plan);
      return first_difference(lines[odd], ranks[odd], lines[usual], ranks[usual]);
    });
  };
  call.move = [notes = notes_](Turn& turn) {
    for (const auto& text : turn.sizes) notes->push_back(read(text).value());
  };
  work_ = group.state().run(std::move(call), true, {});
}

const std::vector<BackwardNote>& BackwardExchange::notes() {
  work_.wait();
  return *notes_;
}

std::vector<std::vector<int64_t>> exchange_numbers(const Group& group, const std::vector<int64_t>& mine) {
  constexpr size_t kAtOnce = 512;
  std::vector<std::vector<int64_t>> all(group.size());
  for (size_t done = 0; done < mine.size(); done += kAtOnce) {
    const auto begin = mine.begin() + done;
    Collective call{.op = "backward",
                    .record = {.op = Op::kBackward, .flags = 1},
                    .sizes = {begin, begin + std::min(kAtOnce, mine.size() - done)}};
    call.check = [&state = group.state()](const Turn& turn) -> std::optional<Failure> {
      for (size_t i = 0; i < turn.sizes.size(); ++i)
        if (turn.sizes[i].size() != turn.sizes[0].size())
          return Failure{Failure::Kind::kMismatch, state.members()[i],
                         concat("rank ", state.members()[i], " gave ", turn.sizes[i].size(),
                                " numbers, and rank ", state.members()[0], ' ', turn.sizes[0].size())};
      return std::nullopt;
    };
    call.move = [&all](Turn& turn) {
      for (size_t i = 0; i < all.size(); ++i)
        all[i].insert(all[i].end(), turn.sizes[i].begin(), turn.sizes[i].end());
    };
    group.state().run(std::move(call), false, {});
  }
  return all;
}

}  // namespace gradus::dist::internal
