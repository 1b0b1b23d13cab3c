// PipelineBase: pipeline parallelism without the type of the model. The constructor cuts the model into
// stages and assigns them to ranks or devices. A step divides the batch by rows into micro-batches, makes the
// schedule's action lists for them, and lets the Executor run the lists with weighted losses, so that the sum
// of the losses is the loss of the batch. With replicas (data parallelism), gradients are all-reduced and
// losses averaged over them. All ranks of a pipeline pass the same batch. Checkpoints are in checkpoint.cc,
// describe() in describe.cc.
#include "gradus/distributed/pipeline/pipeline_base.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/auto_micro_batches.h"
#include "gradus/distributed/pipeline/executor.h"
#include "gradus/distributed/pipeline/internal/auto_cut.h"
#include "gradus/distributed/pipeline/internal/stage_timing.h"
#include "gradus/nn/layers/batch_norm.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/scaled_gradient.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::dist::internal {
namespace {

constexpr auto kOp = "Pipeline";

ActionLists schedule_of(const PipelineOptions& o, int micro_batches) {
  return make_schedule(o.schedule, {.ranks = o.stages,
                                    .stages_per_rank = o.interleave,
                                    .micro_batches = micro_batches,
                                    .extra_warmup = o.extra_warmup});
}

// Checks the options and fills in `stages`.
PipelineOptions checked(PipelineOptions o) {
  const std::pair<const char*, int64_t> counts[] = {{"micro_batches", o.micro_batches},
                                                    {"micro_batch_size", o.micro_batch_size},
                                                    {"memory_limit", o.memory_limit},
                                                    {"recompute_every", o.recompute_every},
                                                    {"stages", o.stages}};
  for (const auto& [name, value] : counts)
    if (value < 0) throw ValueError(kOp, "expected ", name, " >= 0, got ", value);
  if (o.micro_batches > 0 && o.micro_batch_size > 0)
    throw ValueError(kOp, "expected micro_batches or micro_batch_size, got both");
  if (o.recompute == Recompute::kAuto && o.memory_limit == 0)
    throw ValueError(kOp, "expected a memory_limit for Recompute::kAuto, got none");
  if (o.recompute_every > 0 && o.recompute == Recompute::kNever)
    throw ValueError(kOp, "expected stages that run again for recompute_every = ", o.recompute_every,
                     ", got none");
  if (!o.devices.empty()) {
    if (o.stages != 0 && o.stages != int(o.devices.size()))
      throw ValueError(kOp, "expected as many stages as devices, got ", o.stages, " and ", o.devices.size());
    o.stages = int(o.devices.size());
  }
  if (o.stages == 0) o.stages = get_world_size();
  return o;
}

// Micro-batches per rank that the choice of cuts assumes while their number is not chosen yet.
constexpr int kDefaultMicroBatchesPerRank = 4;

// Adds cuts, ranks and devices of stages to `parts`. A cut is the path of a module after which a stage ends.
// Chooses the cuts if the options have none, and adds those between recomputation groups. Sets `layout`.
StagedModel::Parts with_layout(StagedModel::Parts parts, const PipelineOptions& o, const Group& group,
                               StageLayout& layout) {
  const int micro_batches = o.micro_batches > 0 ? o.micro_batches : kDefaultMicroBatchesPerRank * o.stages;
  const ActionLists lists = schedule_of(o, micro_batches);
  parts.cut_after = o.cut_after;
  if (o.cut_after.empty() && lists.stages() > 1) {
    CutChoice choice = choose_cuts(
        parts, lists,
        {.memory_limit = o.memory_limit, .recompute = o.recompute, .recompute_every = o.recompute_every});
    parts.cut_after = std::move(choice.cut_after);
    layout.times = std::move(choice.stages);
  }
  if (o.recompute_every > 0)
    for (const auto& ends : group_ends(parts, lists.stages(), o.recompute_every)) {
      parts.cut_after.insert(parts.cut_after.end(), ends.begin(), ends.end());
      layout.groups.push_back(int(ends.size()) + 1);
    }
  parts.rank_of_stage = in_groups(lists, layout.groups).rank_of_stage;
  parts.rank = group.rank();
  if (!o.devices.empty())
    for (int& rank : parts.rank_of_stage) {
      parts.device_of_stage.push_back(o.devices[size_t(rank)]);
      rank = 0;
    }
  return parts;
}

// Returns the tensors of this rank. Tensors of other ranks' stages are on the meta device.
std::vector<Tensor> without_meta(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& x) { return x.device().type == DeviceType::kMeta; });
  return tensors;
}

// Returns size(0) of all tensors of the batch.
// Errors: ShapeError for tensors without dims or of different numbers of rows, and for 0 rows.
int64_t rows_of(const Batch& batch) {
  int64_t rows = -1;
  for (const auto* list : {&batch.inputs, &batch.targets})
    for (const Tensor& x : *list) {
      if (!x.defined()) continue;
      if (x.dim() == 0) throw ShapeError(kOp, "a batch has rows, got ", describe(x));
      if (rows < 0) rows = x.size(0);
      if (x.size(0) != rows)
        throw ShapeError(kOp, "expected as many rows in all tensors of a batch, got ", rows, " and ",
                         describe(x));
    }
  if (rows < 1)
    throw ShapeError(kOp, "expected a batch of at least one row, got ", std::max<int64_t>(rows, 0));
  return rows;
}

// Replaces each defined tensor x by f(x).
template <class F> Batch transformed(Batch batch, const F& f) {
  for (auto* list : {&batch.inputs, &batch.targets})
    for (Tensor& x : *list)
      if (x.defined()) x = f(x);
  return batch;
}

// Returns views of rows [begin, end).
Batch slice_rows(const Batch& batch, int64_t begin, int64_t end) {
  return transformed(batch, [&](const Tensor& x) { return narrow(x, 0, begin, end - begin); });
}

// Returns the batch on the Context's device, which is the current stage's.
Batch on_current_device(const Batch& batch) {
  return transformed(batch, [](const Tensor& x) { return to(x, Context::current().device); });
}

// Returns the maximum of x over all ranks. Collective over the job.
double largest_of_all(double x) {
  const Tensor all = full({}, x, {.dtype = DType::kF64});
  if (get_world_size() > 1) all_reduce(all, {.op = ReduceOp::kMax});
  return all.item<double>();
}

// GPipe's deferred batch norm: until destruction the model's batch norms accumulate statistics of their
// batches instead of updating the running statistics. A step that fails does not call apply.
class DeferredBatchNorm {
 public:
  explicit DeferredBatchNorm(nn::Module& model) {
    model.apply([&](nn::Module& m) {
      if (auto* layer = dynamic_cast<nn::BatchNorm*>(&m)) layers_.push_back(layer);
    });
    for (nn::BatchNorm* layer : layers_) layer->defer_statistics(true);
  }
  ~DeferredBatchNorm() {
    for (nn::BatchNorm* layer : layers_) layer->defer_statistics(false);
  }
  // Updates the running statistics from all rows since construction.
  void apply() {
    for (nn::BatchNorm* layer : layers_) layer->apply_deferred_statistics();
  }

 private:
  std::vector<nn::BatchNorm*> layers_;
};

}  // namespace

struct PipelineBase::SplitBatch {
  int64_t rows = 0;
  std::vector<Batch> micro_batches;
  ActionLists lists;
  StepWork work;
};

PipelineBase::PipelineBase(ModelFunctions model, const PipelineOptions& options)
    : options_(checked(options)),
      grid_({{"replica", -1}, {"pipeline", options_.devices.empty() ? options_.stages : 1}}),
      group_(grid_.group("pipeline")),
      model_(std::make_unique<StagedModel>(with_layout({.make = std::move(model.make),
                                                        .forward = std::move(model.forward),
                                                        .inputs = model.example_inputs},
                                                       options_, group_, layout_))),
      executor_(std::make_unique<Executor>(*model_, group_)),
      example_(std::move(model.example_inputs)) {
  const Group& replicas = grid_.group("replica");
  if (replicas.size() == 1) return;
  // The replicas' generators may differ, so the initial weights are broadcast from the first replica.
  std::vector<Tensor> state;
  for (const auto& [name, tensor] : named_tensors(model_->module())) state.push_back(tensor);
  bcast_list_(without_meta(std::move(state)), {.group = replicas});
  // uneven_no_sync: replicas with different numbers of rows may have different numbers of micro-batches.
  all_reduce_ = make_allreduce_cb(
      ReduceOp::kMean, {.group = replicas, .uneven_no_sync = true, .group_name = "replicas of a pipeline"});
}

PipelineBase::~PipelineBase() = default;

nn::Module& PipelineBase::base_module() { return model_->module(); }
int PipelineBase::stages() const { return model_->stages(); }
nn::StateDict PipelineBase::named_parameters() const { return model_->named_parameters(); }
void PipelineBase::record_steps(int steps) { executor_->recorder().record_last(steps); }

std::vector<Tensor> PipelineBase::parameters() const {
  std::vector<Tensor> all;
  for (const auto& [name, tensor] : model_->named_parameters()) all.push_back(tensor);
  return all;
}

void PipelineBase::attach(GradManager& gm) {
  if (all_reduce_)
    gm.attach(parameters(), all_reduce_);
  else
    gm.attach(parameters());
}

ActionLists PipelineBase::lists_for(int micro_batches) const {
  return in_groups(schedule_of(options_, micro_batches), layout_.groups);
}

// Reduction::kMean: weight = number of counted elements of the micro-batch / their number in the batch, so a
// weighted sum of means is the mean over the batch. With R replicas the denominator is the mean of the
// replicas' numbers, since the results are averaged over the replicas.
std::vector<double> PipelineBase::weights_of(const std::vector<Batch>& micro_batches,
                                             const StepOptions& options) const {
  const double replicas = grid_.size("replica");
  if (options.reduction == Reduction::kSum)  // gradients are averaged over the replicas
    return std::vector<double>(micro_batches.size(), replicas);
  std::vector<double> counts;
  double total = 0;
  for (const Batch& micro_batch : micro_batches) {
    if (options.count)
      counts.push_back(options.count(micro_batch.targets));
    else if (options.ignore_index)
      counts.push_back(
          sum(to(ne(micro_batch.targets.at(0), double(*options.ignore_index)), DType::kF64)).item<double>());
    else
      counts.push_back(double(rows_of(micro_batch)));
    total += counts.back();
  }
  if (replicas > 1) {
    const Tensor all = full({}, total, {.dtype = DType::kF64});
    dist::all_reduce(all, {.group = grid_.group("replica")});
    total = all.item<double>() / replicas;
  }
  for (double& count : counts) count = total > 0 ? count / total : 1 / double(micro_batches.size());
  return counts;
}

// Returns the number of micro-batches for a batch of `rows` rows.
int PipelineBase::micro_batches_for(int64_t rows) const {
  int64_t number = stages();  // unless the options or earlier measurements determine the number
  if (options_.micro_batches > 0)
    number = options_.micro_batches;
  else if (options_.micro_batch_size > 0)
    number = (rows + options_.micro_batch_size - 1) / options_.micro_batch_size;
  else if (auto_micro_batches_)
    number = auto_micro_batches_->micro_batches_for(rows);
  return int(std::min(number, std::min<int64_t>(rows, kMaxActions)));
}

std::vector<double> PipelineBase::rank_bytes() {
  std::vector<double> rank_bytes(size_t(options_.stages));
  for (const auto& entry : model_->state()) {
    if (!entry.is_parameter) continue;
    const double bytes = kBytesPerParameterByte * double(model_->module().parameter(entry.name).nbytes());
    if (model_->has_devices())
      rank_bytes[size_t(std::ranges::find(options_.devices, entry.device) - options_.devices.begin())] +=
          bytes;
    else
      for (int rank : entry.ranks) rank_bytes[size_t(rank)] += bytes;
  }
  return rank_bytes;
}

void PipelineBase::measure(const Batch& batch, const Compute& compute) {
  const int64_t own_rows = rows_of(batch);
  const auto rows = int64_t(largest_of_all(double(own_rows)));
  auto_micro_batches_ = std::make_unique<AutoMicroBatches>(
      rows,
      AutoMicroBatches::Options{
          .make_lists = [&](int micro_batches) { return lists_for(micro_batches); },
          .measure = [&](int64_t rows) { return measure_stages(batch, compute, std::min(rows, own_rows)); },
          .micro_batches = chooses_micro_batches() ? 0 : micro_batches_for(rows),
          .rank_bytes = rank_bytes(),
          .memory_limit = double(options_.memory_limit),
          .recompute = options_.recompute});
}

std::vector<StageTimes> PipelineBase::measure_stages(const Batch& batch, const Compute& compute,
                                                     int64_t rows) {
  const Batch part = slice_rows(batch, 0, rows);
  const bool split_backward = splits_backwards(lists_for(1));
  std::vector<StageTimes> times(static_cast<size_t>(stages()));
  for (int s = 0; s < stages(); ++s) {
    if (model_->rank_of(s) != model_->rank()) continue;
    Context context = Context::current().snapshot();
    context.device = model_->device_of(s);
    const ContextScope on_device(context);
    const auto cached = model_->split_for(part.inputs);
    const StageSplit& split = *cached;
    const nn::ParameterScope tied(model_->module(), model_->from_other_devices(split, s), {.partial = true});
    times[s] = measure_stage(model_->module(), split, s, split_backward,
                             [&] { return Tensors{compute(on_current_device(part), s + 1 == stages())}; });
  }
  return sum_over_ranks(std::move(times), grid_.size("replica"));
}

PipelineBase::SplitBatch PipelineBase::split(const Batch& batch, const std::string& what) const {
  const int64_t rows = rows_of(batch);
  SplitBatch result{.rows = rows, .lists = lists_for(micro_batches_for(rows))};
  const int count = result.lists.micro_batches;
  // Sizes differ by at most one row; larger micro-batches come first.
  for (int64_t k = 0, begin = 0; k < count; ++k) {
    const int64_t end = begin + rows / count + (k < rows % count);
    result.micro_batches.push_back(slice_rows(batch, begin, end));
    result.work.inputs.push_back(result.micro_batches.back().inputs);
    begin = end;
  }
  result.work.random_key = Context::current().generator->next();
  result.work.description = concat(what, " by ", name_of(options_.schedule), ", ", stages(), " stages, ",
                                   count, " micro-batches, ", rows, " rows");
  return result;
}

// Returns the loss of the batch, averaged over the replicas and equal on all ranks of the pipeline.
double PipelineBase::run(GradManager* gm, const Batch& batch, const Compute& compute,
                         const StepOptions& options) {
  if (options.reduction != Reduction::kMean && options.reduction != Reduction::kSum)
    throw ValueError(kOp, "expected a loss that is a mean or a sum");
  if (options.scaler && options.scaler->options().enabled && !options.scaler->options().agree &&
      group_.size() > 1)
    throw ValueError(kOp,
                     "the ranks must skip a step together: make the scaler with "
                     "{.agree = [](bool found) { return dist::any_rank(found); }}");
  if (gm && !auto_micro_batches_ && (chooses_micro_batches() || options_.recompute == Recompute::kAuto))
    measure(batch, compute);
  auto [rows, micro_batches, lists, work] = split(batch, gm ? "training" : "evaluation");
  if (!gm) lists = forwards_of(lists);
  work.gm = gm;
  work.recompute = auto_micro_batches_ ? auto_micro_batches_->current_choice().of_stage
                                       : std::vector(size_t(stages()), options_.recompute);
  const std::vector<double> weights = weights_of(micro_batches, options);
  work.compute = [&](int k, bool is_last_stage) {
    const Tensor loss = compute(on_current_device(micro_batches[k]), is_last_stage);
    // A micro-batch with no counted elements has weight 0, and its mean may be NaN: it is left out.
    return !is_last_stage || weights[k] == 0 ? Tensor() : weights[k] == 1 ? loss : loss * weights[k];
  };
  if (gm) work.all_reduce = all_reduce_;
  std::optional<DeferredBatchNorm> deferred;
  if (options_.deferred_batch_norm) deferred.emplace(model_->module());
  const auto begin = std::chrono::steady_clock::now();
  double loss = 0;
  const auto run_lists = [&](double scale) {
    work.loss_scale = scale;
    if (scale != 1) work.description += concat(", gradients times ", scale);
    loss = executor_->run(lists, work);
  };
  if (gm && options.scaler)
    options.scaler->backward_of_part(gm->attached_tensors(), run_lists);
  else
    run_lists(1);
  if (gm && auto_micro_batches_)
    auto_micro_batches_->record_time(
        rows, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
        largest_of_all);
  if (deferred) deferred->apply();
  if (!all_reduce_) return loss;
  const auto buffers = without_meta(model_->module().buffers());
  if (gm && !buffers.empty()) bcast_list_(buffers, {.group = grid_.group("replica"), .verify = false});
  const Tensor mean = full({}, loss, {.dtype = DType::kF64});
  dist::all_reduce(mean, {.op = ReduceOp::kMean, .group = grid_.group("replica")});
  return mean.item<double>();
}

PipelineBase::Tensors PipelineBase::run_forward(const Tensors& inputs,
                                                const std::function<Tensors(const Tensors&)>& model,
                                                size_t results, const ForwardOptions& options) {
  auto [rows, micro_batches, lists, work] =
      split({inputs, {}}, options.everywhere ? "forward everywhere" : "forward");
  std::vector<Tensors> outputs(micro_batches.size(), Tensors(results));
  work.compute = [&](int k, bool is_last_stage) {
    Tensors output = model(on_current_device(micro_batches[size_t(k)]).inputs);
    if (is_last_stage) outputs[size_t(k)] = std::move(output);
    return Tensor();
  };
  executor_->run(forwards_of(lists), work);
  if (options.everywhere) executor_->broadcast_results(outputs);
  Tensors joined;
  for (size_t i = 0; i < results; ++i) {
    Tensors of_parts;
    for (const Tensors& output : outputs) of_parts.push_back(output.at(i));
    joined.push_back(of_parts[0].defined() ? cat(of_parts, 0) : Tensor());
  }
  return joined;
}

double PipelineBase::clip_grad_norm_(double max_norm) {
  if (!(max_norm > 0)) throw ValueError("clip_grad_norm_", "expected max_norm > 0, got ", max_norm);
  for (const Tensor& p : parameters())
    if (p.grad().defined() && optim::internal::factor_of(p.grad()))
      throw StateError("clip_grad_norm_",
                       "a GradScaler has multiplied the gradients: call scaler.unscale_(opt) before");
  // squares[i] is the squared norm of the undivided model's parameter i, computed by one rank. The sum is
  // always in the undivided order, so the norm does not depend on the cuts.
  const auto& state = model_->state();
  std::vector<double> squares(state.size());
  const auto off = no_record();
  // All kernels are queued before the first value is read: only the first read waits for them on a GPU.
  std::vector<std::pair<size_t, Tensor>> sums;
  for (size_t i = 0; i < state.size(); ++i) {
    if (!state[i].is_parameter || state[i].ranks.front() != model_->rank()) continue;
    const Tensor grad = model_->module().parameter(state[i].name).grad();
    if (!grad.defined()) continue;
    const Tensor wide = to(grad, DType::kF64);
    sums.emplace_back(i, sum(wide * wide));
  }
  for (const auto& [i, square] : sums) squares[i] = square.item<double>();
  Tensor all = tensor(squares, {int64_t(squares.size())});
  if (group_.size() > 1) all_reduce(all, {.group = group_});
  double total = 0;
  for (double square : all.to_vector<double>()) total += square;
  const double norm = std::sqrt(total), scale = max_norm / (norm + 1e-6);
  if (scale < 1)
    for (const Tensor& p : parameters())
      if (p.grad().defined()) p.set_grad(p.grad() * scale);
  return norm;
}

std::optional<PipelineRecord> PipelineBase::gather_records() {
  const auto& steps = executor_->recorder().steps();
  std::vector<RankRecord> records{{.rank = get_rank(),
                                   .replica = grid_.index("replica"),
                                   .pipeline_rank = group_.rank(),
                                   .steps = {steps.begin(), steps.end()}}};
  for (const Group& group : {group_, grid_.group("replica")})
    records = gathered_records(std::move(records), group);
  if (get_rank() > 0) return {};
  return PipelineRecord{std::move(records)};
}

}  // namespace gradus::dist::internal
