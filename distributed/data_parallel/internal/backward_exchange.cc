// Implementation of BackwardExchange as a queued collective of the group, and of the error text for different
// bucket plans.
#include "gradus/distributed/data_parallel/internal/backward_exchange.h"

#include <algorithm>

namespace gradus::dist::internal {
namespace {

// Returns the lines of all members. Collective: all members call it, since all found different fingerprints.
std::vector<std::vector<std::string>> exchange_lines(const MatchedCall& matched,
                                                     const std::vector<std::string>& local) {
  constexpr size_t kChunk = kMaxExchangeBytes / 2;
  std::string text;
  for (const std::string& line : local) text += line + '\n';
  std::vector<std::string> all(matched.records.size());
  for (bool more = true; more;) {
    const std::vector<std::string> chunks =
        matched.backend.exchange(matched.call, std::string_view(text).substr(0, kChunk));
    text.erase(0, kChunk);
    for (size_t i = 0; i < all.size(); ++i) all[i] += chunks[i];
    more = std::ranges::any_of(chunks, [](const std::string& chunk) { return chunk.size() == kChunk; });
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

// Returns ": fc.weight f32[3,4] on rank 1, where rank 0 has fc.weight f32[3,5]". The lines are those of
// BucketPlan::lines. Names, after a tab, are not compared, since they may differ between ranks.
std::string first_difference(const std::vector<std::string>& a, int rank_a, const std::vector<std::string>& b,
                             int rank_b) {
  const auto without_name = [](const std::string& line) { return line.substr(0, line.find('\t')); };
  const size_t at = size_t(std::ranges::mismatch(a, b, {}, without_name, without_name).in1 - a.begin());
  const auto text = [&](const std::vector<std::string>& lines) {
    if (at >= lines.size()) return std::string("no more");
    const std::string& line = lines[at];
    const size_t tab = line.find('\t');
    return tab == line.npos ? line : concat(line.substr(tab + 1), ' ', without_name(line));
  };
  if (at >= a.size() && at >= b.size()) return ": they are on other devices";
  return concat(": ", text(a), " on rank ", rank_a, ", where rank ", rank_b, " has ", text(b));
}

}  // namespace

BackwardExchange::BackwardExchange(const Group& group, const BackwardNote& local,
                                   std::shared_ptr<const std::vector<std::string>> plan)
    : result_(std::make_shared<Result>()) {
  Collective call{.op = "backward", .record = {.op = Op::kBackward}, .sizes = serialize(local)};
  call.check = [&state = group.state(), plan = std::move(plan)](const MatchedCall& matched) {
    std::vector<std::optional<BackwardNote>> received;
    for (const auto& text : matched.sizes) received.push_back(parse(text));
    const std::vector<int>& ranks = state.members();
    return find_mismatch(received, ranks, [&](size_t minority, size_t majority) {
      const auto lines = exchange_lines(matched, *plan);
      return first_difference(lines[minority], ranks[minority], lines[majority], ranks[majority]);
    });
  };
  call.move = [result = result_](MatchedCall& matched) {
    for (const auto& text : matched.sizes) result->notes.push_back(parse(text).value());
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

std::vector<std::vector<int64_t>> exchange_numbers(const Group& group, const std::vector<int64_t>& local) {
  constexpr size_t kChunk = 512;
  std::vector<std::vector<int64_t>> all(group.size());
  for (size_t begin_index = 0; begin_index < local.size(); begin_index += kChunk) {
    const auto begin = local.begin() + begin_index;
    Collective call{.op = "backward",
                    .record = {.op = Op::kBackward, .flags = 1},
                    .sizes = {begin, begin + std::min(kChunk, local.size() - begin_index)}};
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
