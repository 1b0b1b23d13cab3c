// RankSet: a set of ranks, stored as runs. Groups consist of few runs, however many ranks they have.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::dist {

class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(std::vector<int> ranks);  // in any order

  bool empty() const { return runs_.empty(); }
  bool contains(int rank) const;
  std::vector<int> ranks() const;
  // Returns "0-3,8,9-15/2": ranks 0 to 3, 8, and every second rank from 9 to 15. Runs that would make the
  // text longer than `most_bytes` are left out.
  std::string text(size_t most_bytes) const;
  // Reads such a text. Leaves out malformed runs and runs with ranks outside of the world.
  static RankSet parse(std::string_view text, int world_size);

  auto operator<=>(const RankSet&) const = default;

 private:
  struct Run {
    int first, last, step;
    auto operator<=>(const Run&) const = default;
  };
  std::vector<Run> runs_;
};

}  // namespace gradus::dist
