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
// Returns the hook of one reducer; a resumed training passes the backwards that are left to the start. A subgroup is of
// ranks of the reducer's group; a mean over it divides by its size, also within join(). Without a subgroup the call is
// collective over the job (get_local_group), unless post_local_gradient_allreduce is false.
// Errors: ValueError for a negative start_local_sgd_iter, and for a subgroup that lacks this rank.
// Source: Lin, Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020.
CommHook post_local_sgd_hook(const PostLocalSGDOptions& options = {});

struct PeriodicModelAveragerOptions {
  Required<int64_t, "period"> period;  // steps from one average to the next
  int64_t warmup_steps = 0;            // steps before the first average
  Group group = {};
};
// Averages parameters over the ranks now and then. Between averages the ranks' parameters differ: a checkpoint of one rank is
// saved behind average_parameters.
class PeriodicModelAverager {
 public:
  // Errors: ValueError for a period below 1 or negative warmup_steps.
  explicit PeriodicModelAverager(const PeriodicModelAveragerOptions& options);

  // To be called after each step, by all ranks equally often. Averages the parameters in place after the steps
  // warmup_steps + 1 + k * period, k = 0, 1, 2, ...
  // Errors: those of all_reduce_params.
  void average_parameters(const std::vector<Tensor>& parameters);

  // The number of steps so far. A resumed training restores it.
  // Errors: ValueError for a negative step.
  int64_t step() const { return step_; }
  void set_step(int64_t step);

 private:
  PeriodicModelAveragerOptions options_;
  int64_t step_ = 0;
};

}  // namespace gradus::dist
