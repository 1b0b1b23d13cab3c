// Implementation of AllReduceCallback::Backward: the consensus, buckets by all-reduce or comm hook, delivery.
#include "gradus/distributed/data_parallel/internal/backward.h"

#include <algorithm>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/compare.h"
#include "gradus/distributed/group/any_rank.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {

using namespace internal;

AllReduceCallback::Backward::Backward(AllReduceCallback& callback)
    : accumulating(callback.in_no_sync()),
      finite(callback.options_.check_finite),
      reached(callback.params_->size()),
      callback_(callback) {}

// A queued all-reduce may outlive the Backward. It must not keep parameters alive, since all ranks must find
// the same parameters alive in the next backward.
AllReduceCallback::Backward::~Backward() {
  for (const auto& bucket : buckets_)
    for (Gradient& g : bucket->gradients) g.param = Tensor();
}

void AllReduceCallback::Backward::start(std::shared_ptr<BucketPlan> plan,
                                        std::shared_ptr<const Consensus> consensus) {
  plan_ = std::move(plan);
  consensus_ = std::move(consensus);
  gradients_.resize(reached.size());
  for (const std::vector<size_t>& params : plan_->buckets) {
    Bucket& bucket = *buckets_.emplace_back(std::make_shared<Bucket>());
    bucket.as_views = callback_.options_.gradient_as_bucket_view;
    for (size_t i : params) {
      const Tensor param = callback_.params_->tensor(i);
      bucket.gradients.push_back({.index = i, .param = param, .bytes = param.nbytes()});
      bucket.waiting += reached[i];
    }
    for (Gradient& g : bucket.gradients) gradients_[g.index] = {&bucket, &g};
  }
}

// ---- consensus on the parameters that some rank reaches ----

// Calls a check that throws on all ranks or on none, so that its error is not reported to the other ranks.
template <class F> void AllReduceCallback::Backward::check_on_all_ranks(F check) {
  agreed_error = true;
  check();
  agreed_error = false;
}

void AllReduceCallback::Backward::wait_for_consensus() {
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
    if (buckets_[b]->is_used(consensus_->used)) last_ = b;
  if (consensus_->diverged) {
    const AttachedParams& params = *callback_.params_;
    std::vector<std::string> lines;
    for (const Tensor& x : params.tensors())
      lines.push_back(concat(params.name_of(params.index_of(x)), " with checksum ", checksum_of(x)));
    const auto difference = find_difference(Op::kCheckSynchronized, lines, group);
    if (!difference) throw InternalError("checksums that differ, of parameters that do not");
    check_on_all_ranks([&] {
      throw MismatchError("backward", difference->rank, "parameters have diverged: ", difference->text,
                          ", before synchronizing backward ", callback_.synchronized_ + 1,
                          " (and may have diverged since the last comparison)");
    });
  }
  if (callback_.options_.static_graph && consensus_->joined < 0 && !consensus_->canceled)
    plan_->static_consensus = consensus_;
}

bool AllReduceCallback::Backward::try_consensus() {
  if (!consensus_->is_completed()) return false;
  wait_for_consensus();
  return !is_canceled();
}

// ---- launching ----

void AllReduceCallback::Backward::set_gradient(size_t param, const Tensor& accumulated, const Tensor& grad) {
  const auto [bucket, g] = gradients_[param];
  g->grad = sum_of(accumulated, grad);
  // The only references are those of the autograd engine and of this Gradient.
  if (g->grad.defined() && g->grad.is_same(grad) && grad.ref()->use_count() == 2 &&
      grad.storage()->use_count() == 1 && !grad.storage()->is_external())
    g->ownership = Ownership::kExclusive;
  --bucket->waiting;
}

void AllReduceCallback::Backward::launch_ready() {
  while (launched_ < buckets_.size() && buckets_[launched_]->waiting == 0) launch(false);
}

void AllReduceCallback::Backward::launch(bool finishing) {
  const size_t index = launched_++;
  const std::shared_ptr<Bucket>& bucket = buckets_[index];
  if (has_consensus_ && !bucket->is_used(consensus_->used)) return;
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

std::function<void()> AllReduceCallback::Backward::call_hook(size_t index) {
  Bucket& bucket = *buckets_[index];
  bucket.pack(consensus_->used, finite);
  if (bucket.bytes == 0) return {};
  GradBucket grad_bucket{.index = int(index),
                         .is_last = index == last_,
                         .buffer = bucket.view(0, {bucket.bytes / size_of(bucket.dtype())}),
                         .op = callback_.op_,
                         .divisor = consensus_->divisor,
                         .group = callback_.group_};
  bucket.for_each_used(consensus_->used, [&](Gradient& g, const Tensor& view) {
    grad_bucket.gradients.push_back(view);
    grad_bucket.parameters.push_back(g.param);
  });
  return callback_.options_.comm_hook(grad_bucket);
}

// ---- delivering ----

void AllReduceCallback::Backward::deliver_completed(Deliveries& to) {
  while (delivered_ < launched_ && buckets_[delivered_]->work.is_completed()) deliver_next(&to);
}

void AllReduceCallback::Backward::deliver_next(Deliveries* to) {
  Bucket& bucket = *buckets_[delivered_++];
  bucket.work.wait();  // throws the errors of the communication
  if (bucket.complete) bucket.complete();
  if (callback_.options_.comm_hook) bucket.end = clock_now();
  if (to) bucket.unpack(consensus_->used, *to);
}

// Launches the remaining buckets, broadcasts buffers, and waits. If an enclosing recording tracks gradients, they
// are reduced one by one with the differentiable all-reduce instead.
void AllReduceCallback::Backward::finish(Deliveries* to) {
  in_outer_recording = in_outer_recording && any_rank_tracks();
  if (in_outer_recording) deliver_tracked(*to);
  while (!in_outer_recording && launched_ < buckets_.size()) launch(true);
  if (const auto& tensors = callback_.options_.broadcast_after)
    broadcast_.emplace(callback_.group_, tensors(), consensus_->root());
  while (delivered_ < launched_) deliver_next(to);
}

// Returns whether an enclosing recording tracks a gradient on any rank. Collective.
bool AllReduceCallback::Backward::any_rank_tracks() const {
  const bool local = std::ranges::any_of(gradients_, [](const auto& entry) {
    return entry.second->grad.defined() && autograd::is_tracked(entry.second->grad);
  });
  return any_rank(local, callback_.group_);
}

void AllReduceCallback::Backward::deliver_tracked(Deliveries& to) {
  for (const auto& bucket : buckets_)
    for (const Gradient& g : bucket->gradients) {
      if (!consensus_->used[g.index]) continue;
      if (g.grad.defined()) finite.check(g.index, g.grad);
      const Tensor grad = g.grad.defined() ? g.grad : zeros_like(g.param);
      tracked_bytes_ += grad.nbytes();
      to.push_back({g.param, functional::all_reduce(grad, callback_.op_, {callback_.users_group_})});
    }
}

void AllReduceCallback::Backward::conclude() {
  const std::string text = finite.findings(callback_.group_, *callback_.params_);
  if (!text.empty()) {
    callback_.drop_pending();
    check_on_all_ranks([&] { throw NotFiniteError("backward", text); });
  }
  if (broadcast_) broadcast_->finish();
  ++callback_.synchronized_;
}

void AllReduceCallback::Backward::count(TimePoint computed) const {
  const auto seconds = [](TimePoint from, TimePoint to) {
    return std::chrono::duration<double>(to - from).count();
  };
  ReducerStats& stats = callback_.stats_;
  stats = {.backwards = stats.backwards + 1, .canceled = stats.canceled, .bytes = tracked_bytes_};
  TimePoint until = begun;  // communication before `until` is counted, so overlaps of buckets count once
  for (size_t b = 0; b < launched_; ++b) {
    const Bucket& bucket = *buckets_[b];
    if (!bucket.is_used(consensus_->used)) continue;
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
    const bool used = consensus_ ? consensus_->used[i] : reached[i];
    if (used) p.last_use = stats.backwards;
    p.locally_unused = used && !reached[i];
    if (reached[i]) p.accumulated = Tensor();
  }
}

void AllReduceCallback::Backward::abandon() {
  if (launched_ > 0) plan_->memory.assign(plan_->memory.size(), Tensor());
  launched_ = delivered_ = buckets_.size();
}

}  // namespace gradus::dist
