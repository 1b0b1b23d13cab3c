#include "gradus/distributed/pipeline/schedule.h"

#include <algorithm>
#include <charconv>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {
namespace {

constexpr std::string_view kLetters = "FBIW";
constexpr std::string_view kNames[] = {
    "gpipe", "gpipe-lifo", "1f1b", "1f1b-slow-links", "interleaved-1f1b", "looped-breadth-first",
    "zb-h1", "zb-v"};

constexpr ActionKind F = ActionKind::kForward, B = ActionKind::kBackward, I = ActionKind::kInputGradient,
                     W = ActionKind::kWeightGradient;

void check(Schedule schedule, const ScheduleOptions& options) {
  constexpr auto kOp = "make_schedule";
  const int64_t ranks = options.ranks, depth = options.stages_per_rank;
  if (ranks < 1 || depth < 1 || options.micro_batches < 1)
    throw ValueError(kOp, "expected at least one rank, stage per rank and micro-batch, given ", ranks, ", ",
                     depth, " and ", options.micro_batches);
  if (options.extra_warmup < 0)
    throw ValueError(kOp, "expected extra_warmup >= 0, given ", options.extra_warmup);
  if (options.extra_warmup > 0 && schedule != Schedule::k1F1BSlowLinks)
    throw ValueError(kOp, name_of(schedule), " has no extra warm-up; ", name_of(Schedule::k1F1BSlowLinks),
                     " has");
  const bool is_v = schedule == Schedule::kZeroBubbleV;
  if (is_v && depth != 2) throw ValueError(kOp, name_of(schedule), " has 2 stages per rank, given ", depth);

  const int64_t kinds = is_v || schedule == Schedule::kZeroBubbleH1 ? 3 : 2;
  // The rule of zb-v counts at least so many micro-batches.
  const int64_t micro_batches = std::max<int64_t>(options.micro_batches, is_v ? 2 * ranks - 1 : 1);
  const int64_t most_stages = kMaxActions / kinds / micro_batches;
  if (ranks > most_stages / depth)
    throw ValueError(kOp, ranks, " ranks with ", depth, " stages each and ", options.micro_batches,
                     " micro-batches have too many actions: the limit is ", kMaxActions);
}

// The list of one rank in the making. A chunk is one stage, or several that follow each other and run as one.
class RankList {
 public:
  RankList(int micro_batches, size_t size) : micro_batches_(micro_batches) { list_.reserve(size); }

  // Adds a chunk of the stages [first, last].
  void add_chunk(int first, int last) { chunks_.push_back({first, last, {}}); }
  void add_chunk(int stage) { add_chunk(stage, stage); }

  // Runs micro-batch k on a chunk's stages, the last one first in backward. There may be no such
  // micro-batch: then it does nothing.
  void run(ActionKind kind, int chunk, int k) {
    if (k >= micro_batches_) return;
    const auto [first, last, done] = chunks_[chunk];
    for (int i = 0; i <= last - first; ++i) list_.push_back({kind, kind == F ? first + i : last - i, k});
  }
  // Runs the chunk's next micro-batch of this kind.
  void next(ActionKind kind, int chunk) { run(kind, chunk, chunks_[chunk].done[int(kind)]++); }
  // Returns how many times next ran.
  int done(ActionKind kind, int chunk) const { return chunks_[chunk].done[int(kind)]; }

  std::vector<Action> take() { return std::move(list_); }

 private:
  struct Chunk {
    int first, last;
    int done[4];
  };
  int micro_batches_;
  std::vector<Chunk> chunks_;
  std::vector<Action> list_;
};

// Runs `warmup` forwards; then F and B by turns; then the backwards left. Forwards take `group` micro-batches
// through one chunk, then through the next; after all chunks comes the next group. Backwards do the same from
// the last chunk to the first. `group` divides `micro_batches`.
void forwards_then_turns(RankList& list, int chunks, int micro_batches, int group, int64_t warmup,
                         bool newest_first) {
  const int n = chunks * micro_batches;
  const int ahead = int(std::min<int64_t>(warmup, n));
  const auto chunk_of = [&](int i) { return i / group % chunks; };
  const auto micro_batch_of = [&](int i) { return i / group / chunks * group + i % group; };
  const auto forward = [&](int i) { list.run(F, chunk_of(i), micro_batch_of(i)); };
  const auto backward = [&](int i) {
    const int k = micro_batch_of(i);
    list.run(B, chunks - 1 - chunk_of(i), newest_first ? micro_batches - 1 - k : k);
  };
  for (int i = 0; i < ahead; ++i) forward(i);
  for (int i = ahead; i < n; ++i) {
    forward(i);
    backward(i - ahead);
  }
  for (int i = n - ahead; i < n; ++i) backward(i);
}

void zero_bubble_h1(RankList& list, int ranks, int rank, int micro_batches) {
  const int ahead = std::min(micro_batches, ranks - 1 - rank);
  for (int i = 0; i < ahead; ++i) list.next(F, 0);
  for (int j = 0; j < micro_batches; ++j) {
    list.next(F, 0);
    list.next(I, 0);
    if (j >= rank) list.next(W, 0);
  }
  while (list.done(W, 0) < micro_batches) list.next(W, 0);
}

// Chunk 0 is the stage on the way up, chunk 1 the one on the way down.
void zero_bubble_v(RankList& list, int ranks, int rank, int micro_batches) {
  const int n = std::max(2 * ranks - 1, micro_batches);
  const int behind = ranks - rank;
  for (int i = 0; i < 2 * behind - 1; ++i) list.next(F, 0);
  for (int i = 0; i < rank; ++i) {
    list.next(F, 1);
    list.next(F, 0);
  }
  for (int i = 0; i < behind; ++i)
    for (ActionKind kind : {F, I, W}) list.next(kind, 1);
  while (list.done(F, 1) < list.done(F, 0) || list.done(F, 0) < n) {
    if (list.done(F, 0) < n) list.next(F, 0);
    list.next(I, 0);
    list.next(W, 0);
    for (ActionKind kind : {F, I, W}) list.next(kind, 1);
  }
  for (int i = 0; i < rank; ++i)
    for (int chunk : {0, 1}) list.next(I, chunk);
  for (int i = 0; i < behind; ++i)
    for (ActionKind kind : {I, W}) list.next(kind, 0);
  for (int chunk : {1, 0})
    while (list.done(W, chunk) < n) list.next(W, chunk);
}

// Returns how many micro-batches go through a chunk in turn: about as many as there are ranks.
int interleaved_group(int ranks, int micro_batches) {
  int rounds = std::max(1, micro_batches / ranks);
  while (micro_batches % rounds != 0) --rounds;
  return micro_batches / rounds;
}

std::vector<Action> list_of_rank(Schedule schedule, const ScheduleOptions& options, int rank) {
  const int ranks = options.ranks, depth = options.stages_per_rank, m = options.micro_batches;
  const int kinds = schedule == Schedule::kZeroBubbleH1 || schedule == Schedule::kZeroBubbleV ? 3 : 2;
  const int64_t behind = ranks - 1 - rank;
  RankList list(m, size_t(kinds) * depth * m);

  switch (schedule) {
    case Schedule::kInterleaved1F1B:
    case Schedule::kLoopedBreadthFirst:
      for (int chunk = 0; chunk < depth; ++chunk) list.add_chunk(chunk * ranks + rank);
      break;
    case Schedule::kZeroBubbleV:
      list.add_chunk(rank);
      list.add_chunk(2 * ranks - 1 - rank);
      break;
    default:
      list.add_chunk(rank * depth, rank * depth + depth - 1);
  }
  const auto turns = [&](int64_t warmup) { forwards_then_turns(list, 1, m, m, warmup, false); };
  switch (schedule) {
    case Schedule::kGPipe:
      turns(m);
      break;
    case Schedule::kGPipeLIFO:
      forwards_then_turns(list, 1, m, m, m, true);
      break;
    case Schedule::k1F1B:
    case Schedule::k1F1BSlowLinks:
      turns(behind * (int64_t(1) + options.extra_warmup));
      break;
    case Schedule::kInterleaved1F1B: {
      const int group = interleaved_group(ranks, m);
      forwards_then_turns(list, depth, m, group, int64_t(depth - 1) * group + 2 * behind, false);
      break;
    }
    case Schedule::kLoopedBreadthFirst:
      forwards_then_turns(list, depth, m, m, int64_t(depth) * m, true);
      break;
    case Schedule::kZeroBubbleH1:
      zero_bubble_h1(list, ranks, rank, m);
      break;
    case Schedule::kZeroBubbleV:
      zero_bubble_v(list, ranks, rank, m);
      break;
  }
  return list.take();
}

// ---- text ----

constexpr std::string_view kSpace = " \t\n\r\v\f";

// Reads a number of at most nine digits. Takes it off the text.
bool take_number(std::string_view& text, int& number) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits < 1 || digits > 9) return false;
  std::from_chars(text.data(), text.data() + digits, number);
  text.remove_prefix(digits);
  return true;
}

bool parse_action(std::string_view text, Action& action) {
  if (!take_number(text, action.stage) || text.empty()) return false;
  const size_t kind = kLetters.find(text[0]);
  if (kind == kLetters.npos) return false;
  action.kind = ActionKind(kind);
  text.remove_prefix(1);
  return take_number(text, action.micro_batch) && text.empty();
}

// Returns the beginning of a text from outside, fit to be printed.
std::string quoted(std::string_view text) {
  constexpr size_t kMost = 20;
  std::string out = "'";
  for (char c : text.substr(0, kMost)) out += c > ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kMost ? "...'" : "'");
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
  throw ValueError("parse_schedule_name", "expected one of ", names, ", given ", quoted(name));
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
  for (auto& list : forwards.of_rank) std::erase_if(list, [](const Action& a) { return a.kind != F; });
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

ActionLists parse_schedule(const std::vector<std::string>& text_of_rank) {
  constexpr auto kOp = "parse_schedule";
  ActionLists lists;
  int64_t actions = 0;
  for (size_t rank = 0; rank < text_of_rank.size(); ++rank) {
    std::string_view text = text_of_rank[rank];
    auto& list = lists.of_rank.emplace_back();
    for (size_t from = 0; (from = text.find_first_not_of(kSpace)) != text.npos;) {
      text.remove_prefix(from);
      const std::string_view word = text.substr(0, text.find_first_of(kSpace));
      text.remove_prefix(word.size());
      Action action;
      if (!parse_action(word, action))
        throw ValueError(kOp, "rank ", rank, ", position ", list.size(),
                         ": expected an action like 2F0, given ", quoted(word));
      if (++actions > kMaxActions)
        throw ValueError(kOp, "rank ", rank, ", position ", list.size(), ": more than ", kMaxActions,
                         " actions");
      list.push_back(action);
    }
  }
  if (actions == 0) throw ValueError(kOp, "expected actions, given none");

  int stages = 0;
  for (size_t rank = 0; rank < lists.of_rank.size(); ++rank)
    for (size_t i = 0; i < lists.of_rank[rank].size(); ++i) {
      const Action& action = lists.of_rank[rank][i];
      if (std::max(action.stage, action.micro_batch) >= actions)
        throw ValueError(kOp, "rank ", rank, ", position ", i, ": ", to_string(action), " is one of only ",
                         actions, " actions, and numbers begin at 0");
      stages = std::max(stages, action.stage + 1);
      lists.micro_batches = std::max(lists.micro_batches, action.micro_batch + 1);
    }
  lists.rank_of_stage.assign(stages, -1);
  for (int rank = 0; rank < lists.ranks(); ++rank)
    for (const Action& action : lists.of_rank[rank]) {
      int& owner = lists.rank_of_stage[action.stage];
      if (owner < 0) owner = rank;
    }
  return lists;
}

}  // namespace gradus::dist
