#include "gradus/distributed/pipeline/schedule_check.h"

#include <algorithm>

#include "gradus/distributed/pipeline/internal/action_graph.h"

namespace gradus::dist {

void check_schedule(const ActionLists& lists) {
  const internal::ActionGraph graph(lists);
  const std::vector<int32_t> next = graph.run_all([](int32_t) {});
  int rank = 0;
  while (rank < lists.ranks() && next[rank] == graph.end(rank)) ++rank;
  if (rank == lists.ranks()) return;

  // Each rank that is stuck waits for an action that another stuck rank has not reached. Following these
  // waits comes round to a rank that was there before.
  std::vector<int32_t> path;  // what waits, and what it waits for, by turns
  std::vector<int> place(lists.ranks(), -1);
  for (; place[rank] < 0;) {
    place[rank] = int(path.size());
    const int32_t waits = next[rank];
    int32_t needed = -1;
    graph.each_needed(waits, [&](int32_t id) {
      if (id >= next[graph.rank(id)]) needed = id;
    });
    path.push_back(waits);
    path.push_back(needed);
    rank = graph.rank(needed);
  }
  path.erase(path.begin(), path.begin() + place[rank]);

  std::vector<Action> cycle;
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    const Action& action = graph.action(path[i]);
    const bool repeats =
        !cycle.empty() && (cycle.back() == action || (i + 1 == path.size() && cycle[0] == action));
    if (repeats) continue;  // a rank's next action is itself what another waits for
    cycle.push_back(action);
  }
  for (size_t i = 0; i < path.size(); i += 2) {
    const int32_t waits = path[i], needed = path[i + 1], after = path[(i + 2) % path.size()];
    text +=
        (i ? "; " : "") + to_string(graph.action(waits)) + " waits for " + to_string(graph.action(needed));
    if (needed != after)
      text += ", which comes after " + to_string(graph.action(after)) + " on rank " +
              std::to_string(graph.rank(after));
  }
  throw ScheduleError("check_schedule", cycle, "actions wait for each other in a circle: ", text);
}

}  // namespace gradus::dist
