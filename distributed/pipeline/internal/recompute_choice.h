// choose_recomputation: which stages run their forwards again, so that ranks keep a memory limit.
#pragma once

#include <vector>

#include "gradus/distributed/pipeline/recompute.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"

namespace gradus::dist::internal {

// Bytes that a rank needs for each byte of its parameters: with the gradient and two moments.
inline constexpr double kBytesPerParameterByte = 4;

// Micro-batches of a stage at once.
struct HeldMicroBatches {
  int64_t most = 0;              // between F and the end of B or W
  int64_t most_in_backward = 0;  // of them, those whose B or I has begun
};
std::vector<HeldMicroBatches> most_held(const ActionLists& lists);

struct RecomputeChoice {
  std::vector<Recompute> of_stage;  // without kAuto
  std::vector<StageTimes> stages;   // with runs_again
  double makespan = 0, idle_fraction = 0;
  std::vector<double> rank_bytes;  // estimates

  // Of the rank that needs most.
  double most_bytes() const;
};

// Simulates the lists. While a rank needs more than `limit` bytes (0: no limit), one more of its stages with
// kAuto runs again: the one that frees most bytes for its time. If all do, the rank may still need more.
// `rank_bytes` are those that each rank has besides.
RecomputeChoice choose_recomputation(std::vector<Recompute> of_stage, const ActionLists& lists,
                                     std::vector<StageTimes> stages, const std::vector<double>& rank_bytes,
                                     double limit);

}  // namespace gradus::dist::internal
