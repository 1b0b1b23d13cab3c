// balance: cuts a row of units into stages so that the slowest stage is as fast as can be.
#pragma once

#include <functional>
#include <vector>

namespace gradus::dist::internal {

// Returns how long the units [begin, end) take as one stage; infinity if they may not be one.
using StageSeconds = std::function<double(int stage, int begin, int end)>;

// A unit is a part of the model between two places where it may be cut. `bytes_after` are those that cross a
// cut behind each unit. Returns for each stage the unit after its last one. Each stage has a unit or more. Of
// the cuts whose slowest stage is within 1 % of the least that is possible, the one over which the fewest
// bytes go. An empty result: there is no cut whose stages may all be one.
// Takes time in proportion to stages * units^2.
std::vector<int> balance(const std::vector<double>& bytes_after, int stages, const StageSeconds& seconds);

}  // namespace gradus::dist::internal
