// balance: partitions a sequence of units into consecutive stages, minimizing the time of the slowest stage
// (linear partitioning by dynamic programming).
#pragma once

#include <functional>
#include <vector>

namespace gradus::dist::internal {

// Returns the time of units [begin, end) as one stage; infinity if they cannot be one stage.
using StageSeconds = std::function<double(int stage, int begin, int end)>;

// A unit is a part of the model between two possible cuts. bytes_after[u] is the number of bytes that cross a
// cut after unit u. Returns for each stage the end of its range of units; ranges are not empty. Among the
// partitions whose slowest stage is within 1 % of the optimum, returns the one with the fewest crossing
// bytes. Returns an empty list if every partition has a stage with infinite time. Takes time O(stages *
// units^2).
std::vector<int> balance(const std::vector<double>& bytes_after, int stages, const StageSeconds& seconds);

}  // namespace gradus::dist::internal
