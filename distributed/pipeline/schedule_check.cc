// Implementation of check_schedule: runs the dependency graph, and reports a cycle if the run gets stuck.
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

  // The next action of each blocked rank waits for an action that another blocked rank has not reached.
  // Following these dependencies leads to a rank for the second time: a cycle.
  std::vector<int32_t> path;  // alternates: waiting action, needed action
  std::vector<int> path_position(lists.ranks(), -1);
  for (; path_position[rank] < 0;) {
    path_position[rank] = int(path.size());
    const int32_t waiting = next[rank];
    int32_t needed = -1;
    graph.each_needed(waiting, [&](int32_t id) {
      if (id >= next[graph.rank(id)]) needed = id;
    });
    path.push_back(waiting);
    path.push_back(needed);
    rank = graph.rank(needed);
  }
  path.erase(path.begin(), path.begin() + path_position[rank]);

  std::vector<Action> cycle;
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    const Action& action = graph.action(path[i]);
    const bool repeats =
        !cycle.empty() && (cycle.back() == action || (i + 1 == path.size() && cycle[0] == action));
    if (repeats) continue;  // the needed action is itself the next action of its rank
    cycle.push_back(action);
  }
  for (size_t i = 0; i < path.size(); i += 2) {
    const int32_t waiting = path[i], needed = path[i + 1], predecessor = path[(i + 2) % path.size()];
    text +=
        (i ? "; " : "") + to_string(graph.action(waiting)) + " waits for " + to_string(graph.action(needed));
    if (needed != predecessor)
      text += ", which comes after " + to_string(graph.action(predecessor)) + " on rank " +
              std::to_string(graph.rank(predecessor));
  }
  throw ScheduleError("check_schedule", cycle, "actions wait for each other in a circle: ", text);
}

}  // namespace gradus::dist
