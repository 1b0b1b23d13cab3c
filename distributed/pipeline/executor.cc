// Executor: one step of pipeline parallelism on this rank. Runs the schedule's actions in order: the forward
// of a micro-batch on a stage, its backward, or that backward split into input gradient and weight gradient.
// Activations, gradients and random states are sent to the ranks of other stages as parcels through a
// Mailbox, addressed by step, stage, micro-batch, slot (number of the stage's input) and direction. All ranks
// call run() with the same schedule.
#include "gradus/distributed/pipeline/executor.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "gradus/autograd/graph/tracking.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

constexpr int kMaxSlots = 256;
constexpr int kPrefetchedActions = 2;  // number of later actions whose receives are posted in advance

}  // namespace

// State of a micro-batch on a stage between its forward and the end of its backward.
struct Executor::Running {
  std::shared_ptr<const StageSplit> split;
  bool recomputes = false;  // the forward runs again before the backward
  nn::StateDict buffers;    // copies of the buffers that the first run of the forward changed
  Recording recording;
  StageInput input;
  std::vector<char> awaited;  // per slot: the sending stage waits for the input's gradient
  StageOutput output;
  std::vector<char> tracked;  // per output: the output is recorded and will receive a gradient
  Tensor loss;
};

// State of one call of run().
struct Executor::Step {
  const ActionLists& lists;
  const StepWork& work;
  uint64_t number;
  std::map<std::pair<int, int>, Running> running;  // by stage and micro-batch
  std::map<Address, Parcel> local;                 // between stages of this rank
  std::vector<Tensor> losses;                      // of this rank's micro-batches, in order

  Running& at(const Action& a) { return running[{a.stage, a.micro_batch}]; }
};

Executor::Executor(StagedModel& model, const Group& group) : model_(model), group_(resolved(group)) {
  // The additional stage number addresses the loss and the gradients of tied parameters.
  if (group.size() > 1)
    mailbox_ = std::make_unique<Mailbox>(group, Mailbox::AddressLimits{model.stages() + 1, kMaxSlots});
}

double Executor::run(const ActionLists& lists, const StepWork& work) {
  if (mailbox_) mailbox_->set_program(work.description);
  Step step{lists, work, steps_++, {}, {}, {}};
  try {
    return run_list(step);
  } catch (...) {
    // The other ranks wait for messages that this rank will not send.
    if (mailbox_ || work.all_reduce)
      report_backward_failure(group_.state().world(), std::current_exception(), "failed in its step");
    // A recording that ends without a backward cancels the step on the other replicas, possibly before the
    // failure reaches them. Within no_sync it does not.
    std::optional<NoSync> no_sync_scope;
    if (work.all_reduce) no_sync_scope.emplace(work.all_reduce->no_sync());
    step.running.clear();
    throw;
  }
}

// Runs the actions, then sums the gradients of tied parameters, and returns the loss on every rank.
double Executor::run_list(Step& step) {
  const ActionLists& lists = step.lists;
  const StepWork& work = step.work;
  // Gradients of tied parameters (shared by stages of several ranks) from before the step, which starts
  // without them.
  std::map<std::string, Tensor> before;
  if (work.gm)
    for (const auto& entry : model_.state())
      if (entry.is_parameter && entry.ranks.size() > 1 &&
          std::ranges::find(entry.ranks, model_.rank()) != entry.ranks.end()) {
        const Tensor parameter = model_.module().parameter(entry.name);
        before[entry.name] = parameter.grad();
        parameter.set_grad({});
      }
  // Stages draw random numbers from the generator of their micro-batch, not from the caller's.
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>();
  const ContextScope in_context(context);
  const std::vector<ActionPosition> order = order_of(lists);
  recorder_.begin_step(step.number);
  std::optional<NoSync> no_sync;
  if (work.all_reduce) no_sync.emplace(work.all_reduce->no_sync());
  for (const ActionPosition& position : order) {
    const std::vector<Action>& list = lists.of_rank[position.list];
    const Action& action = list[position.index];
    if (&position == &order.back()) no_sync.reset();  // the last action is a backward, which all-reduces
    const ReportedAction reported(to_string(action));
    try {
      for (size_t j = position.index; j < std::min(list.size(), position.index + 1 + kPrefetchedActions); ++j)
        post_receives(step, list[j]);
      recorder_.begin(action);
      context.device = model_.device_of(action.stage);
      switch (action.kind) {
        case ActionKind::kForward:
          forward(step, action,
                  !work.recompute.empty() &&
                      is_recomputed(work.recompute[size_t(action.stage)], list, position.index));
          break;
        case ActionKind::kWeightGradient:
          weight_gradient(step, action);
          break;
        default:
          backward(step, action);
      }
    } catch (Error& e) {
      e.add_context("in " + to_string(action) + mismatching_inputs(step, action));
      throw;
    }
    recorder_.end();
  }
  if (work.all_reduce) recorder_.set_all_reduce_bytes(work.all_reduce->stats().bytes);
  recorder_.end_step();
  sum_tied_gradients(step, before);
  return broadcast_loss(step);
}

// Returns a text for errors with the received inputs whose shapes differ from this rank's trace.
std::string Executor::mismatching_inputs(const Step& step, const Action& action) const {
  const auto found = step.running.find({action.stage, action.micro_batch});
  if (found == step.running.end() || !found->second.split) return "";
  const StageSplit& split = *found->second.split;
  const auto& received = found->second.input.received;
  std::string text;
  for (size_t slot = 0; slot < received.size(); ++slot) {
    const StageInputSource& need = split.plan.inputs[size_t(action.stage)][slot];
    if (need.call < 0 || !received[slot].defined()) continue;
    const Shape& expected = split.result(need).shape();
    if (received[slot].shape() != expected)
      text += concat(", where rank ", get_global_rank(group_, model_.rank_of(need.stage)), " sent ",
                     received[slot].shape(), " in place of ", expected);
  }
  return text;
}

// Returns the order in which this process runs or enqueues actions: the rank's list, or, with several
// devices, the lists of all devices merged by their begin in a simulation with equal times.
std::vector<Executor::ActionPosition> Executor::order_of(const ActionLists& lists) const {
  std::vector<ActionPosition> order;
  if (!model_.has_devices()) {
    const size_t local = size_t(model_.rank());
    for (size_t i = 0; i < lists.of_rank[local].size(); ++i) order.push_back({local, i});
    return order;
  }
  const StageTimes equal = {.forward = 1, .input_gradient = 1, .weight_gradient = 1};
  const auto begins = simulate(lists, std::vector(size_t(lists.stages()), equal)).begins;
  for (size_t r = 0; r < begins.size(); ++r)
    for (size_t i = 0; i < begins[r].size(); ++i) order.push_back({r, i});
  std::ranges::stable_sort(order, {}, [&](const ActionPosition& p) { return begins[p.list][p.index]; });
  return order;
}

// Receives the stage's inputs, runs its layers under a recording, and sends the outputs. With `recomputes`,
// the outputs and the graph are dropped, and backward() runs the layers again.
void Executor::forward(Step& step, const Action& action, bool recomputes) {
  const int s = action.stage, k = action.micro_batch;
  Running& running = step.at(action);
  running.split = model_.split_for(step.work.inputs[k]);
  const auto& sources = running.split->plan.inputs[s];
  if (s == 0) running.input.generator = RandomGenerator::of_part(step.work.random_key, uint64_t(k)).state();
  for (size_t slot = 0; slot < sources.size(); ++slot) {
    Parcel parcel = receive(step, sources[slot].stage, {step.number, s, k, int(slot), false}, action);
    if (slot == 0) running.input.generator = parcel.generator;
    running.input.received.push_back(std::move(parcel.tensor));
    running.awaited.push_back(parcel.wants_gradient && step.work.gm);
  }
  if (step.work.gm) {
    for (size_t slot = 0; slot < sources.size(); ++slot)
      if (running.awaited[slot]) {
        const Address address{step.number, s, k, int(slot), true};
        // Sends the gradient as soon as backward has computed it.
        step.work.gm->attach(running.input.received[slot],
                             [this, &step, &running, slot, address, maker = sources[slot].stage](
                                 const Tensor&, const Tensor& dx) -> Tensor {
                               running.awaited[slot] = false;
                               send(step, maker, address, {.tensor = dx});
                               return {};
                             });
      }
    running.recording = step.work.gm->record();
    running.recomputes = recomputes;
  }
  std::optional<ProbeForward> probe;
  if (running.recomputes) probe.emplace(model_.module());
  run_own_stage(step, action);
  if (running.loss.defined()) step.losses.push_back(detach(running.loss));
  const auto sends = running.split->plan.sends(s);
  for (size_t i = 0; i < sends.size(); ++i) {
    const Tensor& y = running.output.sent[i];
    running.tracked.push_back(step.work.gm && y.defined() && autograd::is_tracked(y));
    for (const auto& [stage, slot] : sends[i].to)
      send(step, stage, {step.number, stage, k, slot, false},
           {.tensor = y.defined() ? detach(y) : y,
            .wants_gradient = bool(running.tracked[i]),
            .generator = running.output.generator});
  }
  if (probe) {
    running.buffers = probe->changed_buffers();
    running.output.sent.clear();
    running.loss = {};
    probe.reset();
  }
  if (step.work.gm)
    running.recording.pause();
  else
    step.running.erase({s, k});
}

// Runs the stage on running.input. Sets running.output and, on the last stage, running.loss.
void Executor::run_own_stage(Step& step, const Action& action) {
  Running& running = step.at(action);
  std::optional<nn::ParameterScope> tied;
  if (model_.has_devices())
    tied.emplace(model_.module(), model_.from_other_devices(*running.split, action.stage),
                 nn::ParameterScopeOptions{.partial = true});
  running.output = run_stage(running.split->trace, running.split->plan, action.stage, running.input, [&] {
    const bool is_last = action.stage + 1 == running.split->plan.stages;
    running.loss = step.work.compute(action.micro_batch, is_last);
  });
}

// Receives the gradients of the sent outputs, and runs the whole backward or only the input gradients. The
// callbacks that forward() attached send the gradients of received inputs.
void Executor::backward(Step& step, const Action& action) {
  const int s = action.stage, k = action.micro_batch;
  Running& running = step.at(action);
  const StagePlan& plan = running.split->plan;
  if (running.recomputes) {  // before waiting for gradients
    const RecomputedForward recomputing(model_.module(), running.buffers);
    running.recording.resume();
    run_own_stage(step, action);
    running.recording.pause();
  }
  std::vector<Tensor> roots, dys;
  const auto sends = plan.sends(s);
  for (size_t i = 0; i < sends.size(); ++i) {
    if (!running.tracked[i]) continue;
    Tensor sum;
    for (const auto& [stage, slot] : sends[i].to) {
      const Tensor dy = receive(step, stage, {step.number, stage, k, slot, true}, action).tensor;
      if (dy.defined()) sum = sum.defined() ? sum + dy : dy;
    }
    if (!sum.defined()) continue;
    roots.push_back(running.output.sent[i]);
    dys.push_back(sum);
  }
  if (running.loss.defined()) {
    roots.push_back(running.loss);
    dys.push_back(full_like(running.loss, step.work.loss_scale));
  }
  running.output.sent.clear();
  running.loss = {};
  const bool is_whole_backward = action.kind == ActionKind::kBackward;
  if (roots.empty()) {
    running.recording.backward();  // calls the callbacks, which all ranks must do
  } else if (is_whole_backward) {
    running.recording.backward(std::move(roots), std::move(dys));
  } else {
    std::vector<Tensor> inputs;
    for (size_t slot = 0; slot < running.awaited.size(); ++slot)
      if (running.awaited[slot]) inputs.push_back(running.input.received[slot]);
    running.recording.backward_inputs(inputs, std::move(roots), std::move(dys));
  }
  for (size_t slot = 0; slot < running.awaited.size(); ++slot)
    if (running.awaited[slot])  // backward computed no gradient: sends an undefined tensor
      send(step, plan.inputs[s][slot].stage, {step.number, s, k, int(slot), true}, {});
  running.input.received.clear();
  if (is_whole_backward) step.running.erase({s, k});
}

void Executor::weight_gradient(Step& step, const Action& action) {
  Running& running = step.at(action);
  if (running.recording.is_open()) running.recording.backward_weights();
  step.running.erase({action.stage, action.micro_batch});
}

// Posts receives for the known messages of an action. Receives of one message may be posted twice.
void Executor::post_receives(Step& step, const Action& action) {
  if (!mailbox_) return;
  const int s = action.stage, k = action.micro_batch;
  const auto post = [&](int from_stage, const Address& address) {
    const int from = model_.rank_of(from_stage);
    if (from != model_.rank()) mailbox_->post_receive(from, address, model_.device_of(s));
  };
  if (action.kind == ActionKind::kForward) {
    const auto split = model_.split_for(step.work.inputs[k]);
    const auto& sources = split->plan.inputs[s];
    for (size_t slot = 0; slot < sources.size(); ++slot)
      post(sources[slot].stage, {step.number, s, k, int(slot), false});
  } else if (const auto found = step.running.find({s, k}); found != step.running.end() &&
                                                           found->second.split &&
                                                           action.kind != ActionKind::kWeightGradient) {
    const Running& running = found->second;
    const auto sends = running.split->plan.sends(s);
    for (size_t i = 0; i < running.tracked.size(); ++i)
      if (running.tracked[i])
        for (const auto& [stage, slot] : sends[i].to) post(stage, {step.number, stage, k, slot, true});
  }
}

// Sends a parcel to the rank of a stage. On this rank itself, moves the tensor to the stage's device and
// keeps the parcel for receive().
void Executor::send(Step& step, int to_stage, const Address& address, Parcel parcel) {
  const int to = model_.rank_of(to_stage);
  if (to == model_.rank()) {
    if (parcel.tensor.defined()) parcel.tensor = gradus::to(parcel.tensor, model_.device_of(to_stage));
    step.local[address] = std::move(parcel);
    return;
  }
  recorder_.begin_message();
  mailbox_->send(to, address, parcel);
  recorder_.sent(to, address, parcel.tensor);
}

Parcel Executor::receive(Step& step, int from_stage, const Address& address, const Action& action) {
  const int from = model_.rank_of(from_stage);
  if (from != model_.rank()) {
    recorder_.begin_message();
    Parcel parcel = mailbox_->receive(from, address, to_string(action), model_.device_of(action.stage));
    recorder_.received(from, address, parcel.tensor);
    return parcel;
  }
  const auto found = step.local.find(address);
  if (found == step.local.end())
    throw StateError("Pipeline", "nothing was made for ", internal::to_string(address));
  Parcel parcel = std::move(found->second);
  step.local.erase(found);
  return parcel;
}

// Sums the gradients of tied parameters over their ranks, in the order of stages, so that all ranks get the
// same bits. `before` has the gradients from before the step.
void Executor::sum_tied_gradients(Step& step, const std::map<std::string, Tensor>& before) {
  int number = 0;
  for (const auto& entry : model_.state()) {
    if (!entry.is_parameter || entry.ranks.size() < 2) continue;
    const Address address{step.number, model_.stages(), number++, 0, true};
    const auto earlier = before.find(entry.name);
    if (earlier == before.end()) continue;
    const Tensor parameter = model_.module().parameter(entry.name);
    const Tensor local = parameter.grad();
    for (int rank : entry.ranks)
      if (rank != model_.rank()) mailbox_->send(rank, address, {.tensor = local});
    Tensor sum;
    for (int rank : entry.ranks) {
      const Tensor rank_gradient =
          rank == model_.rank() ? local
                                : mailbox_->receive(rank, address, entry.name, parameter.device()).tensor;
      if (rank_gradient.defined()) sum = sum.defined() ? add(sum, rank_gradient) : rank_gradient;
    }
    if (earlier->second.defined()) sum = sum.defined() ? add(earlier->second, sum) : earlier->second;
    parameter.set_grad(sum);
  }
}

// Returns the tensor of the last stage's rank on all ranks; on other ranks, on `device`.
Tensor Executor::broadcast_from_last(const Address& address, const Tensor& x, const std::string& doing,
                                     Device device) {
  const int last = model_.rank_of(model_.stages() - 1);
  if (last != model_.rank()) return mailbox_->receive(last, address, doing, device).tensor;
  for (int rank = 0; rank < group_.size(); ++rank)
    if (rank != last) mailbox_->send(rank, address, {.tensor = x});
  return x;
}

void Executor::broadcast_results(std::vector<std::vector<Tensor>>& of_micro_batch) {
  if (!mailbox_) return;
  const uint64_t number = steps_++;
  for (size_t k = 0; k < of_micro_batch.size(); ++k)
    for (size_t i = 0; i < of_micro_batch[k].size(); ++i) {
      Tensor& x = of_micro_batch[k][i];
      x = broadcast_from_last({number, model_.stages(), int(k), int(i), false}, x, "the results",
                              model_.device_of(model_.stages() - 1));
    }
}

double Executor::broadcast_loss(Step& step) {
  double sum = 0;
  for (const Tensor& loss : step.losses) sum += loss.item<double>();
  if (!mailbox_) return sum;
  return broadcast_from_last({step.number, model_.stages(), 0, 1, false},
                             full({}, sum, {.dtype = DType::kF64}), "the loss", kCPU)
      .item<double>();
}

}  // namespace gradus::dist::internal
