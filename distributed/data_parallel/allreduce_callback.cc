// AllReduceCallback, the counterpart of PyTorch's DDP Reducer. Its inner class Backward is the state of one
// backward pass. Algorithm (allreduce_callback.h): begin() sends a note with the parameters that this rank
// will reach; the Consensus (internal/consensus.h) of all notes says which gradients are reduced; ready()
// launches complete buckets in a fixed order; landed() and finish() deliver the results. GradManager calls
// these in the thread of the backward; queued all-reduces run in the thread of the group's collectives.
#include "gradus/distributed/data_parallel/allreduce_callback.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/data_parallel/internal/bucket.h"
#include "gradus/distributed/data_parallel/internal/bucket_plan.h"
#include "gradus/distributed/data_parallel/internal/compare.h"
#include "gradus/distributed/data_parallel/joinable.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/helpers.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist {

using namespace internal;

namespace {

bool is_outer_recording_open() {
  return std::ranges::any_of(autograd::open_recordings(),
                             [](const auto& r) { return !autograd::as_recording(r)->finished(); });
}

// Returns whether TORCH_DISTRIBUTED_DEBUG, as in PyTorch, asks for reports. INFO and DETAIL are the same, since the
// checks of DETAIL are always on.
// Errors: ValueError for another value.
bool is_reporting(std::string_view op) {
  const char* value = std::getenv("TORCH_DISTRIBUTED_DEBUG");
  std::string level = value ? value : "";
  std::ranges::transform(level, level.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  if (level == "INFO" || level == "DETAIL") return true;
  if (level.empty() || level == "OFF") return false;
  throw ValueError(op, "expected TORCH_DISTRIBUTED_DEBUG of OFF, INFO or DETAIL, got \"", value, '"');
}

std::string report_of(const std::string& reducer, const BucketPlan& plan, const AttachedParams& params) {
  std::string text = concat("gradus: ", reducer, ": ", plan.buckets.size(), " buckets of gradients\n");
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    size_t bytes = 0;
    std::string names;
    for (size_t i : plan.buckets[b]) {
      const Tensor x = params.tensor(i);
      bytes += x.nbytes();
      names += concat(names.empty() ? " " : ", ", params.name_of(i), ' ', x.dtype(), x.shape());
    }
    text += concat("gradus: bucket ", b, ", ", bytes, " bytes:", names, '\n');
  }
  return text;
}

// Returns a duplicate of the group, after checks of the options. Collective. `maker` is the function that the
// user called, for errors.
Group duplicate_for(const Group& group, ReduceOp op, const AllReduceCallbackOptions& options, Op maker) {
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg)
    throw ValueError(internal::name_of(maker), "expected sum or mean, got ", name_of(op));
  internal::caps_of(options);
  is_reporting(internal::name_of(maker));
  group.state().check_member(internal::name_of(maker));
  return group.size() == 1 ? group : internal::duplicate(group, maker, options.group_name);
}

}  // namespace

// A backward of the callback. Launches the buckets and delivers their results, both in the order of buckets.
class AllReduceCallback::Backward {
 public:
  using Deliveries = std::vector<Delivery>;

  explicit Backward(AllReduceCallback& callback)
      : accumulating(callback.in_no_sync()),
        finite(callback.options_.check_finite),
        reached(callback.params_->size()),
        callback_(callback) {}
  // A queued all-reduce may outlive the Backward. It must not keep parameters alive, since all ranks must
  // find the same parameters alive in the next backward.
  ~Backward() {
    for (const auto& bucket : buckets_)
      for (Gradient& g : bucket->gradients) g.param = Tensor();
  }

  // Makes the buckets of the plan. A bucket waits for the gradients of `reached`; the consensus, which may
  // still be under way, says which gradients of a bucket are reduced.
  void start(std::shared_ptr<BucketPlan> plan, std::shared_ptr<const Consensus> consensus) {
    plan_ = std::move(plan);
    consensus_ = std::move(consensus);
    gradients_.resize(reached.size());
    for (const std::vector<size_t>& params : plan_->buckets) {
      Bucket& bucket = *buckets_.emplace_back(std::make_shared<Bucket>());
      bucket.as_views = callback_.options_.gradient_as_bucket_view;
      for (size_t i : params) {
        const Tensor param = callback_.params_->tensor(i);
        bucket.gradients.push_back({.index = i, .param = param, .bytes = param.nbytes()});
        bucket.num_pending += reached[i];
      }
      for (Gradient& g : bucket.gradients) gradients_[g.index] = {&bucket, &g};
    }
  }

  // False within no_sync and in a group of one rank.
  bool is_reducing() const { return consensus_ != nullptr; }
  // Whether the consensus is known, and the step is canceled on all ranks.
  bool is_canceled() const { return has_consensus_ && consensus_->canceled; }

  // Waits for the consensus and throws the errors that follow from it. try_consensus() does so only if the
  // exchange has completed. Returns whether it has and the step is not canceled.
  void wait_for_consensus() {
    if (has_consensus_) return;
    const Group& group = callback_.group_;
    try {
      consensus_->wait();
    } catch (const DistributedError&) {
      const Membership& job = *group.state().world()->membership;
      if (callback_.join_ || !job.failed()) throw;
      Failure failure = job.failure();
      if (failure.kind != Failure::Kind::kLeft && failure.kind != Failure::Kind::kDeadlock) throw;
      failure.text += ". If some ranks have fewer batches than others: join() lets them take part to the end";
      throw_failure("backward", failure);
    }
    check_on_all_ranks([&] { consensus_->check_joined(group.ranks()); });
    has_consensus_ = true;
    for (size_t b = 0; b < buckets_.size(); ++b)
      if (buckets_[b]->is_reduced(consensus_->reduced)) last_ = b;
    if (consensus_->diverged) {
      const AttachedParams& params = *callback_.params_;
      std::vector<std::string> lines;
      const std::vector<Tensor> tensors = params.tensors();
      const std::vector<int64_t> checksums = checksums_of(tensors);
      for (size_t i = 0; i < tensors.size(); ++i)
        lines.push_back(concat(params.name_of(params.index_of(tensors[i])), " with checksum ", checksums[i]));
      const auto difference = find_difference(Op::kCheckSynchronized, lines, group);
      if (!difference) throw InternalError("checksums that differ, of parameters that do not");
      check_on_all_ranks([&] {
        throw MismatchError("backward", difference->rank, "parameters have diverged: ", difference->text,
                            ", before synchronizing backward ", callback_.synchronized_ + 1,
                            " (and may have diverged since the last comparison)");
      });
    }
    if (callback_.options_.static_graph && consensus_->first_joined < 0 && !consensus_->canceled)
      plan_->static_consensus = consensus_;
  }

  bool try_consensus() {
    if (!consensus_->is_completed()) return false;
    wait_for_consensus();
    return !is_canceled();
  }

  // Sets this rank's gradient of a tensor to accumulated + grad; either may be undefined.
  void set_gradient(size_t param, const Tensor& accumulated, const Tensor& grad) {
    const auto [bucket, g] = gradients_[param];
    if (plan_->rebuilds) order_.push_back(param);
    g->grad = sum_of(accumulated, grad);
    // The only references are those of the autograd engine and of this Gradient.
    if (g->grad.defined() && g->grad.is_same(grad) && grad.ref()->use_count() == 2 &&
        grad.storage()->use_count() == 1 && !grad.storage()->is_external())
      g->ownership = Ownership::kExclusive;
    --bucket->num_pending;
  }

  // Launches the buckets that are complete and next in order, without waiting. With a comm hook,
  // wait_for_consensus() must have run; the all-reduce without a hook reads the consensus when it runs.
  void launch_ready() {
    while (launched_ < buckets_.size() && buckets_[launched_]->num_pending == 0) launch(false);
  }

  bool all_delivered() const { return delivered_ == launched_; }
  // Appends the results of launched buckets that have completed, without waiting.
  void deliver_completed(Deliveries& to) {
    while (delivered_ < launched_ && buckets_[delivered_]->work.is_completed()) deliver_next(&to);
  }

  // After wait_for_consensus(): launches the remaining buckets, broadcasts buffers, waits, and delivers. Null
  // `to`: discards the results. If an enclosing recording tracks gradients, they are reduced one by one with
  // the differentiable all-reduce instead.
  void finish(Deliveries* to) {
    in_outer_recording = in_outer_recording && any_rank_tracks();
    if (in_outer_recording) deliver_tracked(*to);
    while (!in_outer_recording && launched_ < buckets_.size()) launch(true);
    const auto& tensors = callback_.options_.broadcast_after;
    if (tensors) broadcast_.emplace(callback_.group_, tensors(), consensus_->root());
    while (delivered_ < launched_) deliver_next(to);
  }

  // Throws NotFiniteError if check_finite has found NaN or infinity on some rank, and updates the buffers of
  // broadcast_after. Collective.
  void conclude() {
    const std::string text = finite.findings(callback_.group_, *callback_.params_);
    if (!text.empty()) {
      callback_.drop_pending();
      check_on_all_ranks([&] { throw NotFiniteError("backward", text); });
    }
    if (broadcast_) broadcast_->finish();
    if (plan_ && plan_->rebuilds && !recording_capture()) rebuild_buckets();
    ++callback_.synchronized_;
  }

  // Updates the callback's statistics. `computed` is the end of the computation.
  void count(TimePoint computed) const {
    const auto seconds = [](TimePoint from, TimePoint to) {
      return std::chrono::duration<double>(to - from).count();
    };
    ReducerStats& stats = callback_.stats_;
    stats = {.backwards = stats.backwards + 1, .canceled = stats.canceled, .bytes = tracked_bytes_};
    TimePoint until = begun;  // communication before `until` is counted, so overlaps of buckets count once
    for (size_t b = 0; b < launched_; ++b) {
      const Bucket& bucket = *buckets_[b];
      if (!bucket.is_reduced(consensus_->reduced)) continue;
      ++stats.buckets;
      const TimePoint start = std::max(until, bucket.start), end = std::max(start, bucket.end);
      stats.bytes += bucket.bytes;
      stats.communication_s += seconds(start, end);
      stats.exposed_s += seconds(std::max(start, computed), std::max(end, computed));
      until = std::max(until, end);
    }
    stats.backward_s = seconds(begun, clock_now());
    for (size_t i = 0; i < reached.size(); ++i) {
      AttachedParam& p = (*callback_.params_)[i];
      const bool reduced = consensus_ ? consensus_->reduced[i] : reached[i];
      if (reduced) p.last_reached = stats.backwards;
      p.locally_unused = reduced && !reached[i];
      if (reached[i]) p.accumulated = Tensor();
    }
    constexpr int64_t kReportedBackward = 10;
    if (stats.backwards != kReportedBackward || callback_.group_.rank() != 0 || !is_reporting("backward"))
      return;
    const auto ms = [](double seconds) { return std::round(seconds * 1e5) / 100; };
    std::cerr << concat("gradus: ", callback_.group_.name(), ": backward ", stats.backwards, " took ",
                        ms(stats.backward_s), " ms; communication ", ms(stats.communication_s),
                        " ms, after the computation ", ms(stats.exposed_s), " ms; ", stats.bytes,
                        " bytes in ", stats.buckets, " buckets\n");
  }

  // Releases memory that communication may still use. No further bucket is launched or delivered.
  void abandon() {
    if (launched_ > 0) plan_->memory.assign(plan_->memory.size(), Tensor());
    launched_ = delivered_ = buckets_.size();
  }

  const TimePoint begun = internal::clock_now();
  const bool accumulating;  // within no_sync
  internal::FiniteCheck finite;
  std::vector<bool> reached;        // per attached tensor: this rank has a gradient for it
  bool in_outer_recording = false;  // an enclosing recording may record this backward
  bool agreed_error = false;        // all ranks throw the same error, so no failure report is sent
  int pending_cancellations = 0;    // recordings that ended without a backward during this backward

 private:
  // Calls a check that throws on all ranks or on none, so that its error is not reported to the other ranks.
  template <class F> void check_on_all_ranks(F check) {
    agreed_error = true;
    check();
    agreed_error = false;
  }

  // Launches the next bucket: runs the comm hook, or queues the all-reduce. `finishing`: all is computed.
  void launch(bool finishing) {
    const size_t index = launched_++;
    const std::shared_ptr<Bucket>& bucket = buckets_[index];
    if (has_consensus_ && !bucket->is_reduced(consensus_->reduced)) return;
    bucket->allocate(plan_->memory[index]);
    plan_->memory[index] = bucket->memory;
    if (callback_.options_.comm_hook) {
      bucket->start = bucket->end = clock_now();
      bucket->complete = call_hook(index);
      return;
    }
    bucket->prepare(finite);
    const Group& group = callback_.group_;
    Collective call = bucket_all_reduce(bucket, callback_.op_, group, consensus_);
    call.sizes = {callback_.number_, int64_t(index)};
    // After the computation, the last bucket runs in this thread, which saves a switch of threads.
    bucket->work = group.state().run(std::move(call), !(finishing && index == last_), {});
  }

  // Returns the hook's completion, which deliver_next calls; null for a bucket without a reduced gradient.
  std::function<void()> call_hook(size_t index) {
    Bucket& bucket = *buckets_[index];
    bucket.pack(consensus_->reduced, finite);
    if (bucket.bytes == 0) return {};
    GradBucket grad_bucket{.index = int(index),
                           .is_last = index == last_,
                           .buffer = bucket.view(0, {bucket.bytes / size_of(bucket.dtype())}),
                           .op = callback_.op_,
                           .divisor = consensus_->divisor,
                           .group = callback_.group_};
    bucket.for_each_reduced(consensus_->reduced, [&](Gradient& g, const Tensor& view) {
      grad_bucket.gradients.push_back(view);
      grad_bucket.parameters.push_back(g.param);
    });
    return callback_.options_.comm_hook(grad_bucket);
  }

  // Replaces the callback's plan by one in the order of set_gradient() on the first rank with data. Tensors
  // that this rank did not reach follow in the order of the old plan. Collective.
  void rebuild_buckets() {
    const Group& group = callback_.group_;
    Tensor computed = full({int64_t(reached.size())}, -1, {.dtype = DType::kI64, .device = kCPU});
    std::ranges::copy(order_, computed.mutable_data<int64_t>());
    broadcast(computed, {.src = group.ranks()[consensus_->root()], .group = group});
    std::vector<size_t> order;
    std::vector<bool> is_in_order(reached.size());
    const auto append = [&](size_t i) {
      if (i >= is_in_order.size() || is_in_order[i]) return;
      is_in_order[i] = true;
      order.push_back(i);
    };
    for (int64_t i : computed.to_vector<int64_t>()) append(size_t(i));
    for (const auto& bucket : plan_->buckets)
      for (size_t i : bucket) append(i);
    if (callback_.plan_ != plan_) return;  // tensors have been attached since
    const auto plan = std::make_shared<BucketPlan>(*plan_);
    plan->rebuilds = false;
    plan->assign(order, callback_.options_, *callback_.params_);
    std::vector<std::string> lines = *plan->lines;
    lines[0] += ", rebuilt as";
    for (size_t i : order) lines[0] += concat(' ', i);
    plan->fingerprint ^= internal::checksum_of(lines[0]);
    plan->lines = std::make_shared<const std::vector<std::string>>(std::move(lines));
    callback_.plan_ = plan;
    callback_.report_plan();
  }

  // Waits for the next launched bucket. Null `to`: discards the results.
  void deliver_next(Deliveries* to) {
    Bucket& bucket = *buckets_[delivered_++];
    bucket.work.wait();  // throws the errors of the communication
    if (bucket.complete) bucket.complete();
    if (callback_.options_.comm_hook) bucket.end = clock_now();
    if (to) bucket.unpack(consensus_->reduced, *to);
  }

  // Returns whether an enclosing recording tracks a gradient on any rank. Collective.
  bool any_rank_tracks() const {
    const bool local = std::ranges::any_of(gradients_, [](const auto& entry) {
      return entry.second->grad.defined() && autograd::is_tracked(entry.second->grad);
    });
    return any_rank(local, callback_.group_);
  }

  // Reduces the gradients one by one with the differentiable all-reduce, for double backward.
  void deliver_tracked(Deliveries& to) {
    for (const auto& bucket : buckets_)
      for (const Gradient& g : bucket->gradients) {
        if (!consensus_->reduced[g.index]) continue;
        if (g.grad.defined()) finite.check(g.index, g.grad);
        const Tensor grad = g.grad.defined() ? g.grad : zeros_like(g.param);
        tracked_bytes_ += grad.nbytes();
        to.push_back({g.param, functional::all_reduce(grad, callback_.op_, {callback_.user_group_})});
      }
  }

  AllReduceCallback& callback_;
  std::shared_ptr<internal::BucketPlan> plan_;
  std::shared_ptr<const internal::Consensus> consensus_;  // null within no_sync and in a group of one rank
  bool has_consensus_ = false;
  std::vector<std::shared_ptr<internal::Bucket>> buckets_;
  std::vector<std::pair<internal::Bucket*, internal::Gradient*>> gradients_;  // by attached tensor
  size_t launched_ = 0, delivered_ = 0;  // numbers of launched and of delivered buckets
  std::vector<size_t> order_;  // rebuild_buckets: the tensors whose gradients are complete, in this order
  size_t last_ = 0;            // index of the last bucket that some rank uses
  std::optional<internal::PackedBroadcast> broadcast_;  // of broadcast_after
  int64_t tracked_bytes_ = 0;  // size of gradients reduced one by one, outside of buckets
};

std::shared_ptr<AllReduceCallback> make_allreduce_cb(ReduceOp op, AllReduceCallbackOptions options) {
  return std::make_shared<AllReduceCallback>(op, std::move(options), Op::kMakeAllreduceCb);
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, AllReduceCallbackOptions options) {
  std::string name(op);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  if (name == "sum") return make_allreduce_cb(ReduceOp::kSum, std::move(options));
  if (name == "mean") return make_allreduce_cb(ReduceOp::kMean, std::move(options));
  throw ValueError("make_allreduce_cb", "expected \"sum\" or \"mean\", got \"", op, '"');
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, const Group& group) {
  return make_allreduce_cb(op, {.group = group});
}

NoSync::NoSync(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks) {
  for (const auto& callback : callbacks) {
    ++callback->no_sync_;
    scopes_.emplace_back(callback.get(), [callback](void*) { --callback->no_sync_; });
  }
}

NoSync AllReduceCallback::no_sync() { return NoSync({shared_from_this()}); }

AllReduceCallback::AllReduceCallback(ReduceOp op, AllReduceCallbackOptions options, Op maker)
    : op_(op),
      options_(std::move(options)),
      without_job_(!internal::World::current()),
      user_group_(internal::resolved(options_.group)),
      group_(duplicate_for(user_group_, op_, options_, maker)),
      params_(std::make_unique<internal::AttachedParams>(options_.name_of)) {}
AllReduceCallback::~AllReduceCallback() = default;

void AllReduceCallback::attached_to(const Tensor& param) {
  if (!is_single_rank()) internal::check_can_average("attach", concat("parameter ", params_->size()), param);
  if (params_->add(param, stats_.backwards)) plan_ = nullptr;
}

void AllReduceCallback::recording_opened(GradManager&) { user_group_.state().recording_opens(); }

void AllReduceCallback::drop_pending() { params_->clear_accumulated(); }

std::vector<std::string> AllReduceCallback::unused_parameters(int backwards) const {
  return params_->names([&](const auto& p) { return stats_.backwards - p.last_reached >= backwards; });
}

std::vector<std::string> AllReduceCallback::locally_unused_parameters() const {
  return params_->names([](const auto& p) { return p.locally_unused; });
}

// ---- a backward ----

void AllReduceCallback::begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) {
  if (backward_) throw StateError("backward", "an all-reduce callback serves one backward at a time");
  if (is_single_rank() && without_job_ && internal::World::current() && internal::World::current()->size > 1)
    throw StateError("backward",
                     "make_allreduce_cb was called before init_process_group: it knows of one rank only");
  count_backward();
  user_group_.state().backward_begins();
  Backward& b = open_backward();
  std::string indices;
  for (size_t t = 0; t < attached.size(); ++t) {
    const size_t i = params_->index_of(attached[t]);
    indices += concat(i, ' ');
    b.reached[i] = reached[t] || (!b.accumulating && (*params_)[i].accumulated.defined());
  }
  check_capture();
  if (b.accumulating || is_single_rank()) return;
  plan();
  b.in_outer_recording = is_outer_recording_open();
  const int every = options_.check_divergence_every;
  const bool compare = every > 0 && (synchronized_ + 1) % every == 0;
  if (plan_->static_consensus) {
    const std::vector<bool>& before = plan_->static_consensus->notes[group_.rank()].reached;
    for (size_t i = 0; i < before.size(); ++i)
      if (b.reached[i] != before[i])
        throw StateError("backward", params_->name_of(i),
                         before[i] ? " is no longer reached" : " is reached now",
                         ", but static_graph promises that every backward reaches the same");
    if (!join_ && !compare) {
      b.start(plan_, plan_->static_consensus);
      return b.wait_for_consensus();
    }
  }
  BackwardNote local_note = note(BackwardNote::kBackward, &b);
  local_note.manager_fingerprint = internal::checksum_of(indices);
  if (b.in_outer_recording) local_note.flags |= BackwardNote::kEnclosingRecording;
  // The lowest bit is set because 0 means no comparison.
  if (compare) local_note.checksum = internal::checksum_of(params_->tensors()) | 1;
  send(local_note);
  b.start(plan_, last_consensus_);
}

// In a step that is captured: refuses what needs the host in each step. Gradients that were accumulated before the step,
// or are accumulated by it for a later one, are in other memory each time: such a step is recorded again.
void AllReduceCallback::check_capture() {
  Capture* const capture = recording_capture();
  if (!capture) return;
  if (options_.check_divergence_every > 0)
    refuse_capture("backward", "check_divergence_every compares parameters on the host");
  if (options_.check_finite) refuse_capture("backward", "check_finite reads gradients on the host");
  if (join_) refuse_capture("backward", "within join() a rank may have no more steps");
  if (captured_.first != capture->id) captured_ = {capture->id, std::make_shared<bool>()};
  *captured_.second = in_no_sync();
  const bool begins_with =
      params_->has_accumulated([&](const Tensor& x) { return !capture->is_own(*x.storage()); });
  capture->valid_while([self = shared_from_this(), begins_with, ends_with = captured_.second] {
    return !begins_with && !*ends_with && !self->params_->has_accumulated([](const Tensor&) { return true; });
  });
}

// ready, landed and finish own a reference to the Backward: a hook that they call may begin another backward,
// which fails and abandons the current one.

std::optional<Tensor> AllReduceCallback::ready(const Tensor& param, const Tensor& grad) {
  const std::shared_ptr<Backward> b = backward_;
  const size_t i = params_->index_of(param);
  if (b && b->accumulating) {
    params_->accumulate(i, grad);
  } else if (is_single_rank()) {
    const Tensor total = internal::sum_of((*params_)[i].accumulated, grad);
    if (b && total.defined()) b->finite.check(i, total);
    return total;
  } else if (b && b->reached[i]) {
    b->set_gradient(i, (*params_)[i].accumulated, grad);
    if (options_.overlap && !b->in_outer_recording && (!options_.comm_hook || b->try_consensus()))
      b->launch_ready();
  }
  return std::nullopt;
}

std::vector<GradCallback::Delivery> AllReduceCallback::landed() {
  std::vector<Delivery> all;
  const std::shared_ptr<Backward> b = backward_;
  // In a step that is captured no call is done before its graph runs.
  if (!b || !b->is_reducing() || options_.comm_hook || recording_capture()) return all;
  if (!b->all_delivered() && b->try_consensus()) b->deliver_completed(all);
  return all;
}

std::vector<GradCallback::Delivery> AllReduceCallback::finish() {
  const std::shared_ptr<Backward> b = backward_;
  // The Backward is closed if a hook began another backward and caught its error.
  const auto check_open = [&] {
    if (!b || b != backward_)
      throw StateError("backward", "an all-reduce callback serves one backward at a time");
  };
  check_open();
  std::vector<Delivery> all;
  const TimePoint computed = internal::clock_now();
  if (b->is_reducing()) {
    b->wait_for_consensus();
    if (!b->is_canceled()) b->finish(&all);
    check_open();
  }
  if (b->is_canceled()) {
    ++stats_.canceled;
  } else if (!b->accumulating) {
    b->conclude();
    b->count(computed);
  }
  backward_ = nullptr;
  for (; b->pending_cancellations > 0; --b->pending_cancellations) send_cancellation();
  return all;
}

void AllReduceCallback::abandon(std::exception_ptr error) noexcept {
  try {
    if (!error && backward_) {  // another recording ended while this backward is running
      ++backward_->pending_cancellations;
      return;
    }
    if (!error) return send_cancellation();
    const bool agreed = backward_ && backward_->agreed_error;
    if (backward_) backward_->abandon();
    backward_ = nullptr;
    if (!is_single_rank() && !agreed) internal::report_backward_failure(group_.state().world(), error);
  } catch (...) {
    // The job has failed, and the next call will throw the error; or a simulation is killing this rank.
  }
}

AllReduceCallback::Backward& AllReduceCallback::open_backward() {
  if (params_->remove_destroyed()) plan_ = nullptr;
  backward_ = std::make_shared<Backward>(*this);
  return *backward_;
}

// Advances the number that notes and collectives of the ranks are matched by.
void AllReduceCallback::count_backward() {
  if (!in_no_sync() || !options_.uneven_no_sync) ++number_;
}

void AllReduceCallback::plan() {
  if (plan_) return;
  plan_ = internal::make_plan(op_, options_, *params_);
  report_plan();
}

void AllReduceCallback::report_plan() const {
  if (group_.rank() == 0 && is_reporting("backward")) std::cerr << report_of(group_.name(), *plan_, *params_);
}

BackwardNote AllReduceCallback::note(int64_t kind, const Backward* backward) const {
  BackwardNote note{.kind = kind, .number = number_, .plan_fingerprint = plan_->fingerprint, .reached = {}};
  if (backward)
    note.reached = backward->reached;
  else
    note.reached.resize(params_->size());
  if (join_) {
    note.flags = BackwardNote::kJoining;
    if (!join_->divide_by_initial_world_size) note.flags |= BackwardNote::kDivideByActive;
    if (join_->throw_on_early_termination) note.flags |= BackwardNote::kEndEarly;
  }
  return note;
}

void AllReduceCallback::send(const BackwardNote& note) {
  last_consensus_ = Consensus::start(group_, note, plan_->lines);
}

// Sends a kNone note: a recording ended without a backward.
void AllReduceCallback::send_cancellation() {
  count_backward();
  user_group_.state().recording_dropped();
  if (is_single_rank() || in_no_sync()) return;
  ++stats_.canceled;
  if (params_->remove_destroyed()) plan_ = nullptr;
  plan();
  send(note(BackwardNote::kNone, nullptr));
}

// ---- join ----

int AllReduceCallback::serve_until_all_joined() {
  const struct Scope {
    ~Scope() { backward = nullptr; }
    std::shared_ptr<Backward>& backward;
  } scope{backward_};
  for (;;) {
    const std::shared_ptr<const Consensus> before = last_consensus_;
    Backward& b = open_backward();
    plan();
    send(note(BackwardNote::kJoined, &b));
    last_consensus_->wait();
    number_ = std::ranges::max(last_consensus_->notes, {}, &BackwardNote::number).number;
    if (last_consensus_->first_active < 0) return before ? before->root() : 0;
    user_group_.state().backward_begins();  // as on the ranks that run this backward
    b.start(plan_, last_consensus_);
    b.wait_for_consensus();
    if (b.is_canceled()) {
      ++stats_.canceled;
      continue;
    }
    b.finish(nullptr);
    b.conclude();
  }
}

void join(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks, const std::function<void()>& body,
          const JoinOptions& options, const std::vector<Tensor>& also,
          const std::vector<Joinable*>& joinables) {
  if ((callbacks.empty() && joinables.empty()) || !options.enable) return body();
  struct Scope {
    const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks;
    std::vector<std::shared_ptr<const Consensus>> before;  // each begun callback's last one before join()
    ~Scope() {
      for (size_t i = 0; i < before.size(); ++i) callbacks[i]->join_.reset();
    }
  } scope{callbacks, {}};
  for (const auto& callback : callbacks) {
    if (callback->join_) throw StateError("join", "a callback is within join() already");
    scope.before.push_back(callback->last_consensus_);
    callback->join_ = options;
  }
  internal::JoinedObjects objects(joinables, options);
  try {
    body();
  } catch (const PeerError&) {
    // Whether a callback has thrown the error on all ranks that have data, because another rank has none.
    const auto has_ended = [&](size_t i) {
      const auto& last = callbacks[i]->last_consensus_;
      return last && last != scope.before[i] && last->is_completed() && last->first_joined >= 0;
    };
    std::vector<size_t> others;
    for (size_t i = 0; i < callbacks.size(); ++i)
      if (!has_ended(i)) others.push_back(i);
    if (!options.throw_on_early_termination || (others.size() == callbacks.size() && !objects.ended_by))
      throw;
    // Joined ranks still serve the other callbacks and objects: ends that.
    try {
      for (const size_t i : others) callbacks[i]->send_cancellation();
      if (!objects.ended_by) objects.exchange(false);
    } catch (...) {
      // The error of body() is thrown.
    }
    throw;
  }
  // Takes part in the other ranks' steps until all ranks have joined. Each callback has its own thread, since
  // the order in which the other ranks use the callbacks is unknown.
  const bool alone = callbacks.empty() || callbacks[0]->is_single_rank();
  std::vector<std::exception_ptr> errors(callbacks.size() + 1);
  std::vector<std::thread> threads;
  int last = 0;  // group rank of a member with the most backwards of the first callback
  const auto serve = [&](size_t i) {
    try {
      if (i == callbacks.size()) return objects.serve_until_all_joined();
      const int member = callbacks[i]->serve_until_all_joined();
      if (i == 0) last = member;
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  const size_t own = joinables.empty() && !alone ? 0 : callbacks.size();  // served in this thread
  for (size_t i = 0; i < callbacks.size() && !alone; ++i)
    if (i != own) threads.push_back(internal::start_thread([&, i] { serve(i); }));
  serve(own);
  for (std::thread& thread : threads) internal::join_thread(thread);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (size_t i = 0; i < callbacks.size() && !alone; ++i) {
    std::vector<Tensor> tensors = callbacks[i]->params_->tensors();
    if (i == 0) tensors.insert(tensors.end(), also.begin(), also.end());
    internal::PackedBroadcast(callbacks[i]->group_, tensors, last).finish();
  }
  objects.after_join();
}

}  // namespace gradus::dist
