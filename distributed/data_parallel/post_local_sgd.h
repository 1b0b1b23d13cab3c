// Post-local SGD: after a number of steps, gradients are averaged within small groups of ranks alone, and now and then
// the parameters over all ranks.
//
//   dist::DistributedDataParallel ddp(net, {.comm_hook = dist::post_local_sgd_hook({.start_local_sgd_iter = 100})});
//   dist::PeriodicModelAverager averager({.period = 4, .warmup_steps = 100});
//   ...
//   opt.step();
//   averager.average_parameters(net.parameters());
#pragma once

#include <vector>

#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/tensor/base/required.h"

namespace gradus::dist {

struct PostLocalSGDOptions {
  int64_t start_local_sgd_iter = 0;  // number of backwards with gradients of all ranks
  Group subgroup = {};  // ranks whose gradients are reduced thereafter; default: those of this host
  bool post_local_gradient_allreduce = true;  // false: thereafter each rank keeps its own gradients
};
// Returns the hook. A mean over a subgroup divides by its size, also within join(). It must serve one callback only. Without a subgroup the call is collective over the job
// (get_local_group).
// Errors: ValueError for a negative start_local_sgd_iter.
// Source: Lin, Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020.
CommHook post_local_sgd_hook(const PostLocalSGDOptions& options = {});

struct PeriodicModelAveragerOptions {
  Required<int64_t, "period"> period;  // steps from one average to the next
  int64_t warmup_steps = 0;            // steps before the first average
  Group group = {};
};
// Averages parameters over the ranks after every `period` steps.
class PeriodicModelAverager {
 public:
  // Errors: ValueError for a period below 1 or negative warmup_steps.
  explicit PeriodicModelAverager(const PeriodicModelAveragerOptions& options);

  // To be called after each step, on all ranks. Averages the parameters in place after step warmup_steps + 1, and then
  // after every period-th one.
  // Errors: those of all_reduce_params.
  void average_parameters(const std::vector<Tensor>& parameters);

  // The number of steps so far. A resumed training restores it.
  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }

 private:
  PeriodicModelAveragerOptions options_;
  int64_t step_ = 0;
};

}  // namespace gradus::dist
