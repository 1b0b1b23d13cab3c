// find_difference compares the members' lists line by line. At the first line on which members differ, the
// most frequent text is the majority. The members that have the first differing text are reported. A missing
// line of a shorter list compares as "no more". With a group, the calls are collective.
#include "gradus/distributed/data_parallel/internal/compare.h"

#include <functional>
#include <numeric>

#include "gradus/distributed/base/error.h"

namespace gradus::dist::internal {

std::optional<Mismatch> find_difference(const std::vector<std::vector<std::string>>& lists,
                                        const std::vector<int>& ranks) {
  if (std::ranges::adjacent_find(lists, std::not_equal_to()) == lists.end()) return std::nullopt;
  std::vector<size_t> members(lists.size());
  std::iota(members.begin(), members.end(), size_t(0));
  size_t longest = 0;
  for (const auto& list : lists) longest = std::max(longest, list.size());
  for (size_t line = 0; line < longest; ++line) {
    const auto text = [&](size_t i) { return line < lists[i].size() ? lists[i][line] : "no more"; };
    const auto [minority, majority] = find_minority(members, text);
    if (minority.empty()) continue;
    std::vector<int> mismatching;
    for (size_t i : minority)
      if (text(i) == text(minority[0])) mismatching.push_back(ranks[i]);
    const bool one = mismatching.size() == 1;
    return Mismatch{mismatching[0],
                    concat("rank ", ranks[majority], " has ", text(majority), one ? ", rank " : ", ranks ",
                           to_text(mismatching), one ? " has " : " have ", text(minority[0]))};
  }
  return std::nullopt;
}

std::optional<Mismatch> find_difference(Op op, const std::vector<std::string>& local, const Group& group) {
  return find_difference(gather_lists(op, local, group), group.ranks());
}

void check_equal(Op op, const std::string& what, const std::vector<std::string>& local, const Group& group) {
  if (const auto difference = find_difference(op, local, group))
    throw MismatchError(name_of(op), difference->rank, what, " differ between ranks: ", difference->text);
}

}  // namespace gradus::dist::internal
