// Generates the action lists of the pipeline schedules, rank by rank, without simulation of time. Notation: P
// ranks, V stages per rank, M micro-batches; F forward, B backward, I input gradient, W weight gradient.
// Sources: Huang et al., GPipe, 2019; Narayanan et al., PipeDream-2BW (1F1B), 2021, and Megatron-LM
// (interleaved 1F1B), 2021; Lamy-Poirier, breadth-first pipeline parallelism, 2022; Qi et al., zero bubble
// (zb-h1), 2023, and pipeline parallelism with controllable memory (zb-v), 2024.
#include "gradus/distributed/pipeline/schedule.h"

#include <algorithm>

namespace gradus::dist {
namespace {

constexpr std::string_view kLetters = "FBIW";  // by ActionKind
constexpr std::string_view kNames[] = {        // by Schedule
    "gpipe", "gpipe-lifo", "1f1b", "1f1b-slow-links", "interleaved-1f1b", "looped-breadth-first",
    "zb-h1", "zb-v"};

constexpr ActionKind kF = ActionKind::kForward, kB = ActionKind::kBackward, kI = ActionKind::kInputGradient,
                     kW = ActionKind::kWeightGradient;

// Errors: ValueError as make_schedule.
void check(Schedule schedule, const ScheduleOptions& options) {
  constexpr auto kOp = "make_schedule";
  const int64_t ranks = options.ranks, stages_per_rank = options.stages_per_rank;
  if (ranks < 1 || stages_per_rank < 1 || options.micro_batches < 1)
    throw ValueError(kOp, "expected at least one rank, stage per rank and micro-batch, got ", ranks, ", ",
                     stages_per_rank, " and ", options.micro_batches);
  if (options.extra_warmup < 0)
    throw ValueError(kOp, "expected extra_warmup >= 0, got ", options.extra_warmup);
  if (options.extra_warmup > 0 && schedule != Schedule::k1F1BSlowLinks)
    throw ValueError(kOp, name_of(schedule), " has no extra warm-up; ", name_of(Schedule::k1F1BSlowLinks),
                     " has");
  const bool is_v = schedule == Schedule::kZeroBubbleV;
  if (is_v && stages_per_rank != 2)
    throw ValueError(kOp, name_of(schedule), " has 2 stages per rank, got ", stages_per_rank);
  const int64_t kinds = is_v || schedule == Schedule::kZeroBubbleH1 ? 3 : 2;
  // zero_bubble_v generates at least 2P-1 micro-batches and drops those that do not exist.
  const int64_t micro_batches = std::max<int64_t>(options.micro_batches, is_v ? 2 * ranks - 1 : 1);
  const int64_t max_stages = kMaxActions / kinds / micro_batches;
  if (ranks > max_stages / stages_per_rank)
    throw ValueError(kOp, ranks, " ranks with ", stages_per_rank, " stages each and ", options.micro_batches,
                     " micro-batches have too many actions: the limit is ", kMaxActions);
}

// Builds the list of one rank. A chunk is a stage, or several consecutive stages that run as one.
class RankList {
 public:
  explicit RankList(int micro_batches) : micro_batches_(micro_batches) {}

  // Adds a chunk of the stages [first, last].
  void add_chunk(int first, int last) { chunks_.push_back({first, last, {}}); }

  // Appends micro-batch k, unless k >= micro_batches, on the chunk's stages; in reverse order for backward.
  void run(ActionKind kind, int chunk, int k) {
    if (k >= micro_batches_) return;
    const auto [first, last, done] = chunks_[chunk];
    for (int i = 0; i <= last - first; ++i) list_.push_back({kind, kind == kF ? first + i : last - i, k});
  }
  // Appends the chunk's next micro-batch of this kind.
  void next(ActionKind kind, int chunk) { run(kind, chunk, chunks_[chunk].done[int(kind)]++); }
  // Returns the number of calls of next(kind, chunk).
  int done(ActionKind kind, int chunk) const { return chunks_[chunk].done[int(kind)]; }

  int chunks() const { return int(chunks_.size()); }
  std::vector<Action> take() { return std::move(list_); }

 private:
  struct Chunk {
    int first, last;  // stages
    int done[4];      // by ActionKind: the number of calls of next()
  };
  int micro_batches_;
  std::vector<Chunk> chunks_;
  std::vector<Action> list_;
};

// Appends `warmup` forwards, then F and B alternating, then the remaining backwards. Forwards run `group`
// micro-batches on chunk 0, then on chunk 1, and so on, then the next group of micro-batches. Backwards do
// the same from the last chunk to the first. `group` divides `micro_batches`. newest_first: backwards start
// with the last micro-batch.
void warmup_then_alternate(RankList& list, int micro_batches, int group, int64_t warmup, bool newest_first) {
  const int chunks = list.chunks(), n = chunks * micro_batches;
  const int warmup_count = int(std::min<int64_t>(warmup, n));
  const auto chunk_of = [&](int i) { return i / group % chunks; };
  const auto micro_batch_of = [&](int i) { return i / group / chunks * group + i % group; };
  const auto forward = [&](int i) { list.run(kF, chunk_of(i), micro_batch_of(i)); };
  const auto backward = [&](int i) {
    const int k = micro_batch_of(i);
    list.run(kB, chunks - 1 - chunk_of(i), newest_first ? micro_batches - 1 - k : k);
  };
  for (int i = 0; i < warmup_count; ++i) forward(i);
  for (int i = warmup_count; i < n; ++i) {
    forward(i);
    backward(i - warmup_count);
  }
  for (int i = n - warmup_count; i < n; ++i) backward(i);
}

// 1F1B with P-1-r warm-up forwards on rank r, and B split: W lags r micro-batches behind I, and the remaining
// W fill the end of the step. RankList::run drops forwards beyond M.
void zero_bubble_h1(RankList& list, int ranks, int rank, int micro_batches) {
  const int warmup_count = std::min(micro_batches, ranks - 1 - rank);
  for (int i = 0; i < warmup_count; ++i) list.next(kF, 0);
  for (int j = 0; j < micro_batches; ++j) {
    list.next(kF, 0);
    list.next(kI, 0);
    if (j >= rank) list.next(kW, 0);
  }
  while (list.done(kW, 0) < micro_batches) list.next(kW, 0);
}

// On rank r chunk 0 is stage r, chunk 1 is stage 2P-1-r. Phases: warm-up forwards of chunk 0, then of both
// chunks; first F I W of chunk 1; steady state F I W on each chunk; I of both chunks; I W of chunk 0;
// remaining W. Generated for max(2P-1, M) micro-batches; RankList::run drops those that do not exist.
void zero_bubble_v(RankList& list, int ranks, int rank, int micro_batches) {
  const int n = std::max(2 * ranks - 1, micro_batches);
  const int remaining_ranks = ranks - rank;
  for (int i = 0; i < 2 * remaining_ranks - 1; ++i) list.next(kF, 0);
  for (int i = 0; i < rank; ++i) {
    list.next(kF, 1);
    list.next(kF, 0);
  }
  for (int i = 0; i < remaining_ranks; ++i)
    for (ActionKind kind : {kF, kI, kW}) list.next(kind, 1);
  while (list.done(kF, 1) < list.done(kF, 0) || list.done(kF, 0) < n) {
    if (list.done(kF, 0) < n) list.next(kF, 0);
    list.next(kI, 0);
    list.next(kW, 0);
    for (ActionKind kind : {kF, kI, kW}) list.next(kind, 1);
  }
  for (int i = 0; i < rank; ++i)
    for (int chunk : {0, 1}) list.next(kI, chunk);
  for (int i = 0; i < remaining_ranks; ++i)
    for (ActionKind kind : {kI, kW}) list.next(kind, 0);
  for (int chunk : {1, 0})
    while (list.done(kW, chunk) < n) list.next(kW, chunk);
}

// Returns the number of consecutive micro-batches per chunk: a divisor of micro_batches, at least `ranks` if
// possible.
int interleaved_group(int ranks, int micro_batches) {
  int rounds = std::max(1, micro_batches / ranks);
  while (micro_batches % rounds != 0) --rounds;
  return micro_batches / rounds;
}

// Returns the list of one rank: assigns stages to chunks, and chooses the schedule's warm-up and grouping.
std::vector<Action> list_of_rank(Schedule schedule, const ScheduleOptions& options, int rank) {
  const int ranks = options.ranks, stages_per_rank = options.stages_per_rank, m = options.micro_batches;
  const int64_t later_ranks = ranks - 1 - rank;
  const bool is_v = schedule == Schedule::kZeroBubbleV;
  RankList list(m);
  if (is_v || schedule == Schedule::kInterleaved1F1B || schedule == Schedule::kLoopedBreadthFirst) {
    for (int chunk = 0; chunk < stages_per_rank; ++chunk) {
      const int stage = is_v && chunk == 1 ? 2 * ranks - 1 - rank : chunk * ranks + rank;
      list.add_chunk(stage, stage);
    }
  } else {
    list.add_chunk(rank * stages_per_rank, rank * stages_per_rank + stages_per_rank - 1);
  }
  int group = m;
  int64_t warmup = m;
  bool newest_first = false;
  switch (schedule) {
    case Schedule::kGPipe:
      break;
    case Schedule::kGPipeLIFO:
      newest_first = true;
      break;
    case Schedule::k1F1B:
    case Schedule::k1F1BSlowLinks:
      warmup = later_ranks * (int64_t(1) + options.extra_warmup);
      break;
    case Schedule::kInterleaved1F1B:
      group = interleaved_group(ranks, m);
      warmup = int64_t(stages_per_rank - 1) * group + 2 * later_ranks;
      break;
    case Schedule::kLoopedBreadthFirst:
      warmup = int64_t(stages_per_rank) * m;
      newest_first = true;
      break;
    case Schedule::kZeroBubbleH1:
      zero_bubble_h1(list, ranks, rank, m);
      return list.take();
    case Schedule::kZeroBubbleV:
      zero_bubble_v(list, ranks, rank, m);
      return list.take();
  }
  warmup_then_alternate(list, m, group, warmup, newest_first);
  return list.take();
}

}  // namespace

std::string to_string(const Action& action) {
  return std::to_string(action.stage) + kLetters[int(action.kind)] + std::to_string(action.micro_batch);
}

std::string_view name_of(Schedule schedule) { return kNames[int(schedule)]; }

Schedule parse_schedule_name(std::string_view name) {
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found != std::end(kNames)) return Schedule(found - std::begin(kNames));
  std::string names;
  for (std::string_view known : kNames) names.append(names.empty() ? "" : ", ").append(known);
  throw ValueError("parse_schedule_name", "expected one of ", names, ", got '", name, "'");
}

ActionLists make_schedule(Schedule schedule, const ScheduleOptions& options) {
  check(schedule, options);
  ActionLists lists;
  lists.micro_batches = options.micro_batches;
  lists.rank_of_stage.resize(size_t(options.ranks) * options.stages_per_rank);
  lists.of_rank.resize(options.ranks);
  for (int rank = 0; rank < options.ranks; ++rank) {
    lists.of_rank[rank] = list_of_rank(schedule, options, rank);
    for (const Action& action : lists.of_rank[rank]) lists.rank_of_stage[action.stage] = rank;
  }
  return lists;
}

ActionLists forwards_of(const ActionLists& lists) {
  ActionLists forwards = lists;
  for (auto& list : forwards.of_rank) std::erase_if(list, [](const Action& a) { return a.kind != kF; });
  return forwards;
}

std::vector<std::string> to_text(const ActionLists& lists) {
  std::vector<std::string> text_of_rank;
  for (const auto& list : lists.of_rank) {
    std::string& text = text_of_rank.emplace_back();
    for (const Action& action : list) text.append(text.empty() ? "" : " ").append(to_string(action));
  }
  return text_of_rank;
}

}  // namespace gradus::dist
