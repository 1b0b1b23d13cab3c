// ReducerConfig: the constant settings of a reducer.
#pragma once

#include "gradus/distributed/data_parallel/allreduce_callback.h"

namespace gradus::dist::internal {

struct ReducerConfig {
  ReduceOp op;
  AllReduceCallbackOptions options;
  bool without_job;  // created before init_process_group
  // The group in the options. Carries the differentiable all-reduces of an enclosing recording, since the
  // program defines their order, unlike that of buckets.
  Group users_group;
  Group group;  // the reducer's duplicate of users_group, for buckets and notes
};

}  // namespace gradus::dist::internal
