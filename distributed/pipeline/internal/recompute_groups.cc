// Implementation of recomputation groups: finds the ends of groups, and expands a schedule's stages to groups.
#include "gradus/distributed/pipeline/internal/recompute_groups.h"

#include <algorithm>

#include "gradus/distributed/pipeline/internal/auto_cut.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

// Returns whether exactly one floating-point tensor crosses a cut after the call.
bool is_narrow(const ModelTrace& trace, int call) {
  const auto plan = plan_if_possible(trace, {call});
  return plan && std::ranges::count_if(plan->needs[1], [&](const StageInputSource& c) {
                   return c.call >= 0 &&
                          is_floating(trace.calls[size_t(c.call)].results[size_t(c.result)].dtype());
                 }) == 1;
}

}  // namespace

std::vector<std::vector<std::string>> group_ends(const StagedModel::Parts& parts, int stages, int every) {
  const std::unique_ptr<nn::Module> model = make_on_meta(parts);
  const ModelTrace trace = trace_model(*model, parts, parts.inputs);
  std::vector<int> cuts = cuts_after(trace, parts.cut_after);
  check_cuts(parts.cut_after, stages);
  const auto end_of = [&](int call) { return trace.calls[size_t(call)].end; };
  std::vector<int> stage_ends;
  for (int cut : cuts) stage_ends.push_back(end_of(cut));
  stage_ends.push_back(int(trace.calls.size()));

  std::vector<std::vector<std::string>> ends(static_cast<size_t>(stages));
  size_t s = 0;
  int layers = 0;
  for (const int call : outermost_calls(trace)) {
    while (s < stage_ends.size() && end_of(call) >= stage_ends[s]) ++s, layers = 0;
    if (s == stage_ends.size()) break;
    if (s > 0 && end_of(call) == stage_ends[s - 1]) continue;
    if (!is_narrow(trace, call) || ++layers % every != 0) continue;
    std::vector<int> extended = cuts;
    extended.insert(std::ranges::upper_bound(extended, end_of(call), {}, end_of), call);
    if (!plan_if_possible(trace, extended)) continue;
    cuts = std::move(extended);
    ends[s].push_back(trace.calls[size_t(call)].path);
  }
  return ends;
}

ActionLists in_groups(const ActionLists& lists, const std::vector<int>& groups_of_stage) {
  if (groups_of_stage.empty()) return lists;
  std::vector<int> first = {0};  // group of each stage
  for (int groups : groups_of_stage) first.push_back(first.back() + groups);
  ActionLists grouped{.of_rank = {}, .rank_of_stage = {}, .micro_batches = lists.micro_batches};
  for (size_t s = 0; s < groups_of_stage.size(); ++s)
    grouped.rank_of_stage.insert(grouped.rank_of_stage.end(), size_t(groups_of_stage[s]),
                                 lists.rank_of_stage[s]);
  for (const auto& list : lists.of_rank) {
    auto& list_of_groups = grouped.of_rank.emplace_back();
    for (const Action& a : list) {
      const int begin = first[size_t(a.stage)], end = first[size_t(a.stage) + 1];
      for (int i = 0; i < end - begin; ++i)
        list_of_groups.push_back(
            {a.kind, a.kind == ActionKind::kForward ? begin + i : end - 1 - i, a.micro_batch});
    }
  }
  return grouped;
}

}  // namespace gradus::dist::internal
