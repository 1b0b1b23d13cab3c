// Comparisons of values between ranks, by majority: the members of a group whose value is not the most
// frequent one are reported. All members compute the same result from the same gathered values.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/group_state.h"

namespace gradus::dist::internal {

// Members are indices in the group.
struct Minority {
  std::vector<size_t> members;  // those whose value is not the most frequent one; empty: all are equal
  size_t majority = 0;          // the first member with the most frequent value
};
// Compares value(i) of the members i, in O(members^2) if the values differ. On a tie the first value wins.
template <class Value> Minority find_minority(const std::vector<size_t>& members, Value value) {
  const auto is_like_first = [&](size_t i) { return value(i) == value(members[0]); };
  if (std::ranges::all_of(members, is_like_first)) return {{}, members.empty() ? 0 : members[0]};
  const auto votes = [&](size_t i) {
    return std::ranges::count_if(members, [&](size_t j) { return value(i) == value(j); });
  };
  Minority found;
  found.majority = *std::ranges::max_element(members, {}, votes);
  std::ranges::copy_if(members, std::back_inserter(found.members),
                       [&](size_t i) { return value(i) != value(found.majority); });
  return found;
}

// Returns the lists of all members, by rank in the group. Collective. `op` is the function that the user
// called: ranks compare it, and errors contain its name. T is a type of wire.h.
template <class T>
std::vector<std::vector<T>> gather_lists(Op op, const std::vector<T>& local, const Group& group) {
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : gather_strings(group.state(), op, to_wire(local)))
    all.push_back(from_wire<std::vector<T>>(bytes));
  return all;
}

struct Mismatch {
  int rank;          // the first rank, in the job, that differs from the majority
  std::string text;  // "rank 0 has x, ranks 1, 2 have y"
};
// Returns the first line that differs between the members' lists; nullopt if all lists are equal. Lists and
// `ranks`, the members' ranks in the job, are by rank in the group. A missing line counts as "no more".
std::optional<Mismatch> find_difference(const std::vector<std::vector<std::string>>& lists,
                                        const std::vector<int>& ranks);
// Gathers the members' lists and compares them. Collective.
std::optional<Mismatch> find_difference(Op op, const std::vector<std::string>& local, const Group& group);
// Throws a MismatchError, the same on all ranks, if lists differ. `what` is the error's subject. Collective.
void check_equal(Op op, const std::string& what, const std::vector<std::string>& local, const Group& group);

}  // namespace gradus::dist::internal
