// Comparisons of values between ranks.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/group_state.h"

namespace gradus::dist::internal {

struct Minority {
  std::vector<size_t>
      members;          // those whose value differs from the most frequent value; empty: all are equal
  size_t majority = 0;  // the first member with the most frequent value
};
// Compares value(i) of the members i.
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

// Returns the lists of all members. Collective; `op` is the op of the calling function.
template <class T>
std::vector<std::vector<T>> gather_lists(Op op, const std::vector<T>& local, const Group& group) {
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : gather_strings(group.state(), op, to_wire(local)))
    all.push_back(from_wire<std::vector<T>>(bytes));
  return all;
}

// A difference between ranks: the first mismatching rank in the job, and a text like "rank 0 has x, ranks 1, 2
// have y".
struct Mismatch {
  int rank;
  std::string text;
};
// Returns the first line that differs between the members' lists. `ranks` are the members' ranks in the job.
std::optional<Mismatch> find_difference(const std::vector<std::vector<std::string>>& lists,
                                        const std::vector<int>& ranks);
// Gathers the members' lists and compares them. Collective.
std::optional<Mismatch> find_difference(Op op, const std::vector<std::string>& local, const Group& group);
// Throws a MismatchError of `op`, the same on all ranks, if the lists differ. `what` is the error's subject.
void check_equal(Op op, const std::string& what, const std::vector<std::string>& local, const Group& group);

}  // namespace gradus::dist::internal
