// Automatic choices of PipelineBase from measured times: number of micro-batches and recomputation.
#include <algorithm>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/auto_micro_batches.h"
#include "gradus/distributed/pipeline/internal/auto_cut.h"
#include "gradus/distributed/pipeline/internal/batch_rows.h"
#include "gradus/distributed/pipeline/internal/stage_timing.h"
#include "gradus/distributed/pipeline/pipeline_base.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Returns the maximum of x over all ranks. Collective over the job.
double largest_of_all(double x) {
  const Tensor all = full({}, x, {.dtype = DType::kF64});
  if (get_world_size() > 1) all_reduce(all, {.op = ReduceOp::kMax});
  return all.item<double>();
}

}  // namespace

std::vector<double> PipelineBase::rank_bytes() {
  std::vector<double> rank_bytes(size_t(options_.stages));
  for (const auto& entry : model_.state()) {
    if (!entry.is_parameter) continue;
    const double bytes = kBytesPerParameterByte * double(model_.module().parameter(entry.name).nbytes());
    if (model_.has_devices())
      rank_bytes[size_t(std::ranges::find(options_.devices, entry.device) - options_.devices.begin())] +=
          bytes;
    else
      for (int rank : entry.ranks) rank_bytes[size_t(rank)] += bytes;
  }
  return rank_bytes;
}

void PipelineBase::measure(const Batch& batch, const Compute& compute) {
  const int64_t own_rows = rows_of(batch.inputs, batch.targets);
  const auto rows = int64_t(largest_of_all(double(own_rows)));
  auto_ = std::make_unique<AutoMicroBatches>(
      rows,
      AutoMicroBatches::Setting{
          .lists = [&](int micro_batches) { return lists_for(micro_batches); },
          .measure = [&](int64_t rows) { return measure_stages(batch, compute, std::min(rows, own_rows)); },
          .micro_batches = chooses_micro_batches() ? 0 : micro_batches_for(rows),
          .rank_bytes = rank_bytes(),
          .memory_limit = double(options_.memory_limit),
          .recompute = options_.recompute});
}

std::vector<StageTimes> PipelineBase::measure_stages(const Batch& batch, const Compute& compute,
                                                     int64_t rows) {
  const Batch part{slice_rows(batch.inputs, 0, rows), slice_rows(batch.targets, 0, rows)};
  const bool split = splits_backwards(lists_for(1));
  std::vector<double> numbers;
  for (int s = 0; s < stages(); ++s) {
    StageTimes t;
    if (model_.rank_of(s) == model_.rank()) {
      Context context = Context::current().snapshot();
      context.device = model_.device_of(s);
      const ContextScope on_device(context);
      const Cut& cut = model_.cut_for(part.inputs);
      const nn::ParameterScope tied(model_.module(), model_.from_other_devices(cut, s), {.partial = true});
      t = measure_stage(model_.module(), cut, s, split, [&] {
        return Tensors{
            compute({on_current_device(part.inputs), on_current_device(part.targets)}, s + 1 == stages())};
      });
    }
    numbers.insert(numbers.end(), {t.forward, t.input_gradient, t.weight_gradient, t.bytes, t.input_bytes});
  }
  const Tensor all = tensor(numbers, {int64_t(numbers.size())});
  if (get_world_size() > 1) all_reduce(all);
  const double replicas = grid_.size("replica");
  numbers = all.to_vector<double>();
  std::vector<StageTimes> times;
  for (size_t i = 0; i < numbers.size(); i += 5)
    times.push_back({.forward = numbers[i] / replicas,
                     .input_gradient = numbers[i + 1] / replicas,
                     .weight_gradient = numbers[i + 2] / replicas,
                     .bytes = numbers[i + 3] / replicas,
                     .input_bytes = numbers[i + 4] / replicas});
  return times;
}

void PipelineBase::record_step_time(int64_t rows, double seconds) {
  auto_->record_time(rows, seconds, largest_of_all);
}

}  // namespace gradus::dist::internal
