// Pipeline schedules as plain data: for each rank the ordered list of its actions.
// Sources: GPipe (Huang et al., 2019), 1F1B and interleaved 1F1B (Narayanan et al., Megatron-LM, 2021), looped
// breadth-first (Lamy-Poirier, 2023), zero bubble H1 and V (Qi et al., 2024).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {

// Note [Schedules]
// A model is divided into stages, and a batch into micro-batches. An action computes one micro-batch on one
// stage. A backward B is either one action, or two: I, the gradient of the stage's input, and W, the
// gradients of its parameters. A rank runs its list in order, so the order does not depend on timing.
//
// Dependencies, for stage s and micro-batch k: an action waits for its predecessor in the list; F(s,k) for
// F(s-1,k); B(s,k) and I(s,k) for F(s,k) and for B(s+1,k) or I(s+1,k); W(s,k) for I(s,k). If the dependencies
// have no cycle and sends do not block, all actions run.

enum class ActionKind : uint8_t {
  kForward,         // F
  kBackward,        // B: I and W in one action
  kInputGradient,   // I
  kWeightGradient,  // W
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};

// Returns <stage><letter><micro-batch>: "2F0" is the forward of micro-batch 0 on stage 2.
std::string to_string(const Action& action);

enum class Schedule : uint8_t {
  kGPipe,               // all F, then all B, both from micro-batch 0 upward
  kGPipeLIFO,           // all F, then all B from the last micro-batch to 0
  k1F1B,                // F and B alternate after a warm-up, which limits the micro-batches in flight
  k1F1BSlowLinks,       // 1F1B with a longer warm-up, to overlap messages with computation
  kInterleaved1F1B,     // 1F1B with several stages (model chunks) per rank: less idle time
  kLoopedBreadthFirst,  // several chunks per rank; each chunk runs all micro-batches before the next chunk
  kZeroBubbleH1,        // 1F1B with backward split into I and W; W fills idle time
  kZeroBubbleV,         // zero bubble with two stages per rank, r and 2P-1-r (V shape)
};

// Which forwards of a stage are recomputed. Recomputation saves memory and takes about a third more time.
enum class Recompute : uint8_t {
  kNever,
  kAlways,
  kExceptLast,  // except forwards followed immediately by their backward, which would save no memory
  kAuto,        // kExceptLast if the rank would otherwise exceed the memory limit; otherwise kNever
};

// Returns "gpipe", "gpipe-lifo", "1f1b", "1f1b-slow-links", "interleaved-1f1b", "looped-breadth-first",
// "zb-h1" or "zb-v".
std::string_view name_of(Schedule schedule);
// Errors: ValueError for an unknown name. It lists the names.
Schedule parse_schedule_name(std::string_view name);

struct ScheduleOptions {
  int ranks = 1;            // P
  int stages_per_rank = 1;  // V
  int micro_batches = 1;    // M
  // For 1f1b-slow-links: c. Rank r has a warm-up of (P-1-r) * (1 + c) forwards. If a message takes time L and
  // a micro-batch takes F + B per rank, c = ceil(2L / (F + B)) hides the messages.
  int extra_warmup = 0;
};

struct ActionLists {
  std::vector<std::vector<Action>> of_rank;
  std::vector<int> rank_of_stage;  // -1 for a stage that occurs in no list
  int micro_batches = 0;

  int ranks() const { return int(of_rank.size()); }
  int stages() const { return int(rank_of_stage.size()); }
  bool operator==(const ActionLists&) const = default;
};

// Limit of the total number of actions in all lists.
inline constexpr int64_t kMaxActions = int64_t(1) << 26;

// Returns the lists of ranks * stages_per_rank stages, for any number of micro-batches. Assignment of stages:
//   interleaved-1f1b, looped-breadth-first: stage s is on rank s mod P.
//   zb-v: rank r has stages r and 2P-1-r.
//   the others: rank r has stages rV to rV+V-1, and runs them as a single stage.
// Errors: ValueError for a count below 1, more than kMaxActions actions, extra_warmup < 0 or in a schedule
// other than 1f1b-slow-links, and zb-v unless stages_per_rank is 2.
ActionLists make_schedule(Schedule schedule, const ScheduleOptions& options);

// Thrown for lists that cannot run.
struct ScheduleError : ValueError {
  template <class... Parts>
  explicit ScheduleError(std::string_view op, std::vector<Action> waiting, const Parts&... parts)
      : ValueError(op, parts...), cycle(std::move(waiting)) {}
  // A cycle of actions: each waits for the next, and the last for the first. Empty for other errors.
  std::vector<Action> cycle;
};

// Checks that the lists run to their end for any durations of actions: each stage is on one rank, each F
// occurs once, each backward once, either as B or as I and W, and the dependencies have no cycle. Lists of
// forwards only are valid. Takes time proportional to the number of actions.
// Errors: ScheduleError, which names a missing, repeated or misplaced action, or prints the cycle.
void check_schedule(const ActionLists& lists);

// Returns the lists without backwards, for an evaluation.
ActionLists forwards_of(const ActionLists& lists);

// Returns one text per rank, like "0F0 0F1 2F0".
std::vector<std::string> to_text(const ActionLists& lists);
}  // namespace gradus::dist
