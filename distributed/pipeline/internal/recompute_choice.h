// choose_recomputation: chooses the stages whose forwards are recomputed, to meet a memory limit per rank.
#pragma once

#include <vector>

#include "gradus/distributed/pipeline/recompute.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"

namespace gradus::dist::internal {

// Memory per byte of parameters: the parameter, its gradient and two moments.
inline constexpr double kBytesPerParameterByte = 4;

// Maximal numbers of micro-batches in flight on a stage.
struct MicroBatchesInFlight {
  int64_t most = 0;              // between F and the end of B or W
  int64_t most_in_backward = 0;  // between the begin of B or I and the end of B or W
};
std::vector<MicroBatchesInFlight> max_in_flight(const ActionLists& lists);

struct RecomputeChoice {
  std::vector<Recompute> of_stage;  // without kAuto
  std::vector<StageTimes> stages;   // with `recomputed` set accordingly
  double makespan = 0, idle_fraction = 0;
  std::vector<double> rank_bytes;  // estimated peak memory per rank

  // Returns the maximum of rank_bytes.
  double peak_bytes() const;
};

// Greedy: simulates the lists, and while a rank needs more than `limit` bytes (0: no limit), recomputes one
// more of its stages if `mode` is kAuto, the one that frees the most bytes per second of recomputation. A rank may exceed
// the limit even with all its stages recomputed. `rank_bytes` is the memory of each rank that does not
// depend on micro-batches.
RecomputeChoice choose_recomputation(Recompute mode, const ActionLists& lists, std::vector<StageTimes> stages,
                                     const std::vector<double>& rank_bytes, double limit);

}  // namespace gradus::dist::internal
