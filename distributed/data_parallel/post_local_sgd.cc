#include "gradus/distributed/data_parallel/post_local_sgd.h"

#include "gradus/distributed/group/helpers.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {

CommHook post_local_sgd_hook(const PostLocalSGDOptions& options) {
  if (options.start_local_sgd_iter < 0)
    throw ValueError("post_local_sgd_hook", "expected start_local_sgd_iter >= 0, got ",
                     options.start_local_sgd_iter);
  const bool reduces = options.post_local_gradient_allreduce;
  const Group subgroup = reduces && options.subgroup.is_default() ? get_local_group() : options.subgroup;
  if (reduces && !subgroup.is_member())
    throw ValueError("post_local_sgd_hook", "rank ", get_rank(), " is no member of the subgroup");
  return [=, left = options.start_local_sgd_iter](const GradBucket& bucket) mutable -> std::function<void()> {
    const bool everywhere = left > 0;
    if (bucket.is_last && everywhere) --left;
    if (everywhere) return allreduce_hook()(bucket);
    if (!reduces || subgroup.size() == 1) return noop_hook()(bucket);
    GradBucket local = bucket;
    local.group = subgroup;
    local.divisor = subgroup.size();
    return allreduce_hook()(local);
  };
}

PeriodicModelAverager::PeriodicModelAverager(const PeriodicModelAveragerOptions& options)
    : options_(options) {
  if (options_.period < 1)
    throw ValueError("PeriodicModelAverager", "expected period >= 1, got ", int64_t(options_.period));
  if (options_.warmup_steps < 0)
    throw ValueError("PeriodicModelAverager", "expected warmup_steps >= 0, got ", options_.warmup_steps);
}

void PeriodicModelAverager::set_step(int64_t step) {
  if (step < 0) throw ValueError("PeriodicModelAverager", "expected step >= 0, got ", step);
  step_ = step;
}

void PeriodicModelAverager::average_parameters(const std::vector<Tensor>& parameters) {
  const int64_t after_warmup = step_++ - options_.warmup_steps;
  if (after_warmup >= 0 && after_warmup % options_.period == 0)
    all_reduce_params(parameters, {.op = ReduceOp::kAvg, .group = options_.group});
}

}  // namespace gradus::dist
