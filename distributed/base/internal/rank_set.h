// RankSet: ranks as the few runs that groups are made of, however many they are.
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
  // "0-3,8,9-15/2": 0 to 3, 8, and every second one from 9. Runs that would make it longer are left out.
  std::string text(size_t most_bytes) const;
  // Malformed runs, and those with ranks outside of the world, are left out.
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
