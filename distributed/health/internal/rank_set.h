// RankSet: a set of ranks, stored as runs. Groups consist of few runs, however many ranks they have.
#pragma once

#include <compare>
#include <span>
#include <vector>

namespace gradus::dist {

class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(std::vector<int> ranks);  // in any order

  bool empty() const { return runs_.empty(); }
  bool contains(int rank) const;
  std::vector<int> ranks() const;
  // Ranks first, first + step, ..., last.
  struct Run {
    int first, last, step;
    auto operator<=>(const Run&) const = default;
  };
  const std::vector<Run>& runs() const { return runs_; }
  // Takes runs from outside. Leaves out malformed runs and runs with ranks outside of the world.
  static RankSet from_runs(std::span<const Run> runs, int world_size);

  auto operator<=>(const RankSet&) const = default;

 private:
  std::vector<Run> runs_;
};

}  // namespace gradus::dist
