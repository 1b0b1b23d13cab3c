#include "gradus/distributed/data_parallel/internal/backward_exchange.h"

#include <algorithm>

namespace gradus::dist::internal {
namespace {

// Returns every member's lines. Collective; all members have found that their fingerprints differ.
std::vector<std::vector<std::string>> exchange_lines(const MatchedCall& matched,
                                                     const std::vector<std::string>& mine) {
  constexpr size_t kAtOnce = kMaxExchangeBytes / 2;
  std::string text;
  for (const std::string& line : mine) text += line + '\n';
  std::vector<std::string> all(matched.records.size());
  for (bool more = true; more;) {
    const std::vector<std::string> parts =
        matched.backend.exchange(matched.call, std::string_view(text).substr(0, kAtOnce));
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

}  // namespace

BackwardExchange::BackwardExchange(const Group& group, const BackwardNote& mine,
                                   std::shared_ptr<const std::vector<std::string>> plan)
    : result_(std::make_shared<Result>()) {
  Collective call{.op = "backward", .record = {.op = Op::kBackward}, .sizes = write(mine)};
  call.check = [&state = group.state(), plan = std::move(plan)](const MatchedCall& matched) {
    std::vector<std::optional<BackwardNote>> given;
    for (const auto& text : matched.sizes) given.push_back(read(text));
    const std::vector<int>& ranks = state.members();
    return find_mismatch(given, ranks, [&](size_t odd, size_t usual) {
      const auto lines = exchange_lines(matched, *plan);
      return first_difference(lines[odd], ranks[odd], lines[usual], ranks[usual]);
    });
  };
  call.move = [result = result_](MatchedCall& matched) {
    for (const auto& text : matched.sizes) result->notes.push_back(read(text).value());
    result->consensus.emplace(result->notes);
  };
  work_ = group.state().run(std::move(call), true, {});
}

const BackwardNotes& BackwardExchange::notes() {
  work_.wait();
  return result_->notes;
}

const Consensus& BackwardExchange::consensus() {
  work_.wait();
  return *result_->consensus;
}

std::vector<std::vector<int64_t>> exchange_numbers(const Group& group, const std::vector<int64_t>& mine) {
  constexpr size_t kAtOnce = 512;
  std::vector<std::vector<int64_t>> all(group.size());
  for (size_t done = 0; done < mine.size(); done += kAtOnce) {
    const auto begin = mine.begin() + done;
    Collective call{.op = "backward",
                    .record = {.op = Op::kBackward, .flags = 1},
                    .sizes = {begin, begin + std::min(kAtOnce, mine.size() - done)}};
    call.check = [&state = group.state()](const MatchedCall& matched) -> std::optional<Failure> {
      for (size_t i = 0; i < matched.sizes.size(); ++i)
        if (matched.sizes[i].size() != matched.sizes[0].size())
          return Failure{Failure::Kind::kMismatch, state.members()[i],
                         concat("rank ", state.members()[i], " gave ", matched.sizes[i].size(),
                                " numbers, and rank ", state.members()[0], ' ', matched.sizes[0].size())};
      return std::nullopt;
    };
    call.move = [&all](MatchedCall& matched) {
      for (size_t i = 0; i < all.size(); ++i)
        all[i].insert(all[i].end(), matched.sizes[i].begin(), matched.sizes[i].end());
    };
    group.state().run(std::move(call), false, {});
  }
  return all;
}

}  // namespace gradus::dist::internal
