// ReducerConfig: what a reducer was made with.
#pragma once

#include "gradus/distributed/data_parallel/allreduce_callback.h"

namespace gradus::dist::internal {

struct ReducerConfig {
  ReduceOp op;
  AllReduceCallbackOptions options;
  bool without_job;  // made before there was one
  // Collectives that an outer recording follows go through the user's group: their order is that of the
  // program, while buckets are sent when they are ready.
  Group users_group;
  Group group;  // the reducer's own
};

}  // namespace gradus::dist::internal
