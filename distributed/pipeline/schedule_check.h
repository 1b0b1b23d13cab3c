// check_schedule: checks that a pipeline schedule can run without deadlock.
#pragma once

#include "gradus/distributed/pipeline/schedule.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist {

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

}  // namespace gradus::dist
