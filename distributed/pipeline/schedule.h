// Schedules of a pipeline as plain data: for each rank the list of its actions, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::dist {

// Note [Schedules]
// A model is cut into stages, and a batch into micro-batches. An action computes one micro-batch on one
// stage. A whole backward B is I and W: the gradient with respect to the stage's input, and the gradients of
// its parameters. A rank runs its list from front to back, so the order does not depend on timing.
//
// An action waits for the one before it in its list, and for other actions. F(s,k) waits for F(s-1,k). B(s,k)
// and I(s,k) wait for F(s,k), and for B(s+1,k) or I(s+1,k). W(s,k) waits for I(s,k). Nothing else matters.
// When no actions wait for each other in a circle and sends do not block, all actions run.

enum class ActionKind : uint8_t {
  kForward,         // F
  kBackward,        // B: I and W at once
  kInputGradient,   // I
  kWeightGradient,  // W
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};

// Returns stage, letter, micro-batch: "2F0" is the forward of micro-batch 0 on stage 2.
std::string to_string(const Action& action);

enum class Schedule : uint8_t {
  kGPipe,               // all F, then all B, micro-batch 0 first
  kGPipeLIFO,           // all F, then all B, micro-batch 0 last
  k1F1B,                // F and B by turns as soon as B can run: holds few micro-batches
  k1F1BSlowLinks,       // the same with more F ahead, so that messages travel while ranks compute
  kInterleaved1F1B,     // 1F1B with several chunks of the model per rank: smaller idle times
  kLoopedBreadthFirst,  // several chunks per rank, each with all micro-batches in turn
  kZeroBubbleH1,        // 1F1B whose W fill idle times
  kZeroBubbleV,         // the same, where each rank has one stage of the way up and one of the way down
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
  // For 1f1b-slow-links: c, the more forwards that a rank runs ahead, for each rank behind it. When a message
  // takes time L, and a micro-batch on a rank F + B, ceil(2L / (F + B)) hides the messages.
  int extra_warmup = 0;
};

struct ActionLists {
  std::vector<std::vector<Action>> of_rank;
  std::vector<int> rank_of_stage;  // -1 where no list has the stage
  int micro_batches = 0;

  int ranks() const { return int(of_rank.size()); }
  int stages() const { return int(rank_of_stage.size()); }
  bool operator==(const ActionLists&) const = default;
};

// All lists together have no more actions than this.
inline constexpr int64_t kMaxActions = int64_t(1) << 26;

// Returns the lists of ranks * stages_per_rank stages. Any number of micro-batches will do. Where the stages
// lie follows from the schedule:
//   interleaved-1f1b, looped-breadth-first: stage s is on rank s mod P.
//   zb-v: rank r has stages r and 2P-1-r.
//   the others: rank r has stages rV to rV+V-1, and runs them as one.
// Errors: ValueError for a count below 1, more than kMaxActions actions, extra_warmup < 0 or in a schedule
// other than 1f1b-slow-links, and zb-v unless stages_per_rank is 2.
ActionLists make_schedule(Schedule schedule, const ScheduleOptions& options);

// Returns the forwards alone: what an evaluation runs.
ActionLists forwards_of(const ActionLists& lists);

// Returns one text per rank, like "0F0 0F1 2F0".
std::vector<std::string> to_text(const ActionLists& lists);
// Reads what to_text wrote, with any white space. It checks no more than the text: see check_schedule.
// Errors: ValueError naming rank and position for what is no action, and for a stage or a micro-batch with a
// higher number than there are actions. ValueError for no actions, and for more than kMaxActions.
ActionLists parse_schedule(const std::vector<std::string>& text_of_rank);

}  // namespace gradus::dist
