// check_schedule: whether the ranks' lists can run.
#pragma once

#include "gradus/distributed/pipeline/schedule.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist {

// Lists that cannot run.
struct ScheduleError : ValueError {
  template <class... Parts>
  explicit ScheduleError(std::string_view op, std::vector<Action> circle, const Parts&... parts)
      : ValueError(op, parts...), cycle(std::move(circle)) {}
  // Actions that wait for each other in a circle: each for the next one, and the last for the first. Empty
  // where something else is wrong.
  std::vector<Action> cycle;
};

// Checks that the lists run to their end, whatever the times: each stage is on one rank, each F occurs once,
// each backward once as B or as I and W, and no actions wait for each other in a circle. Lists of forwards
// alone are valid. Takes time in proportion to the number of actions.
// Errors: ScheduleError, which names the action that is missing, twice or misplaced, or prints the circle.
void check_schedule(const ActionLists& lists);

}  // namespace gradus::dist
