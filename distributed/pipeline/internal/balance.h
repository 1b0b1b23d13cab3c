// balance: cuts a row of units into stages so that the slowest stage is as fast as can be.
#pragma once

#include <functional>
#include <vector>

namespace gradus::dist::internal {

// A part of the model between two places where it may be cut.
struct Unit {
  double seconds = 0;
  double bytes_after = 0;  // that cross a cut behind it
};

// Whether the units [begin, end) may be one stage.
using Fits = std::function<bool(int stage, int begin, int end)>;

// Returns for each stage the unit after its last one. Each stage has a unit or more. Of the cuts whose
// slowest stage is within 1 % of the least that is possible, the one over which the fewest bytes go. An empty
// result: there is no cut whose stages all fit.
// Takes time in proportion to stages * units^2.
std::vector<int> balance(const std::vector<Unit>& units, int stages, const Fits& fits);

}  // namespace gradus::dist::internal
