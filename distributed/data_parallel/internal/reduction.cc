// Implementation of Reduction: launches buckets in order, by all-reduce or comm hook, and delivers their
// results.
#include "gradus/distributed/data_parallel/internal/reduction.h"

#include <algorithm>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/distributed/data_parallel/internal/bucket_all_reduce.h"

namespace gradus::dist::internal {

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return add(a, b);
}

Reduction::Reduction(const ReducerConfig& config, std::shared_ptr<BucketPlan> plan,
                     std::shared_ptr<BackwardExchange> exchange, int64_t number, Gradients& gradients,
                     FiniteCheck& check)
    : config_(config),
      plan_(std::move(plan)),
      exchange_(std::move(exchange)),
      number_(number),
      gradients_(gradients),
      check_(check) {
  for (const Bucket& bucket : plan_->buckets)
    flights_.push_back(
        {int(std::ranges::count_if(bucket.params, [&](size_t i) { return gradients[i].has_local; }))});
}

bool Reduction::is_used(const Bucket& bucket) const {
  return std::ranges::any_of(bucket.params, [&](size_t i) { return gradients_[i].used; });
}

void Reduction::set_consensus(const Consensus& consensus) {
  consensus_ = &consensus;
  for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i].used = consensus.used[i];
  for (size_t b = 0; b < flights_.size(); ++b)
    if (is_used(plan_->buckets[b])) last_ = b;
}

void Reduction::set_gradient(size_t param, const Tensor& accumulated, const Tensor& grad) {
  Gradient& g = gradients_[param];
  g.grad = sum_of(accumulated, grad);
  // The only references are those of the autograd engine and of this Gradient.
  g.is_exclusive = g.grad.defined() && g.grad.is_same(grad) && grad.ref()->use_count() == 2 &&
                   grad.storage()->use_count() == 1 && !grad.storage()->is_external();
  --flights_[plan_->bucket_of[param]].waiting;
}

// ---- launching ----

void Reduction::launch_ready() {
  while (launched_ < flights_.size() && flights_[launched_].waiting == 0) launch(false);
}

void Reduction::launch_all() {
  while (launched_ < flights_.size()) launch(true);
}

void Reduction::launch(bool finishing) {
  const size_t index = launched_++;
  Bucket& bucket = plan_->buckets[index];
  BucketInFlight& flight = flights_[index];
  if (consensus_ && !is_used(bucket)) return;
  bucket.allocate(gradients_);
  flight.traffic = std::make_shared<BucketTraffic>();
  if (config_.options.comm_hook) {
    flight.traffic->start = flight.traffic->end = clock_now();
    flight.complete = call_hook(index);
    return;
  }
  Collective call = bucket_all_reduce(config_, exchange_, bucket.memory,
                                      bucket.local_gradients(gradients_, check_), flight.traffic);
  call.sizes = {number_, int64_t(index)};
  // After the computation, the last bucket runs in this thread, which saves a switch of threads.
  flight.work = config_.group.state().run(std::move(call), !(finishing && index == last_), {});
}

std::function<void()> Reduction::call_hook(size_t index) {
  const Bucket& bucket = plan_->buckets[index];
  const int64_t elements = bucket.pack(gradients_, check_);
  if (elements == 0) return {};
  GradBucket grad_bucket{.index = int(index),
                         .is_last = index == last_,
                         .buffer = bucket.view(0, {elements}),
                         .op = config_.op,
                         .divisor = consensus_->divisor,
                         .group = config_.group};
  bucket.for_each_used(gradients_, [&](size_t, Gradient& g, const Tensor& view) {
    grad_bucket.gradients.push_back(view);
    grad_bucket.parameters.push_back(g.param);
  });
  return config_.options.comm_hook(grad_bucket);
}

// ---- delivering ----

void Reduction::deliver_completed(Deliveries& to) {
  while (delivered_ < launched_ && flights_[delivered_].work.is_completed()) deliver_next(&to);
}

void Reduction::deliver_all(Deliveries* to) {
  while (delivered_ < launched_) deliver_next(to);
}

void Reduction::deliver_next(Deliveries* to) {
  const size_t index = delivered_++;
  BucketInFlight& flight = flights_[index];
  flight.work.wait();  // throws the errors of the communication
  if (flight.complete) flight.complete();
  if (flight.traffic && config_.options.comm_hook) flight.traffic->end = clock_now();
  if (!to) return;
  const int64_t bytes = plan_->buckets[index].unpack(gradients_, *to);
  if (flight.traffic) flight.traffic->bytes = bytes;
}

void Reduction::abandon() {
  if (launched_ > 0)
    for (Bucket& bucket : plan_->buckets) bucket.memory = Tensor();
  for (Gradient& g : gradients_) g = Gradient();
  launched_ = delivered_ = flights_.size();
}

std::vector<BucketTraffic> Reduction::traffic() const {
  std::vector<BucketTraffic> all;
  for (size_t b = 0; b < flights_.size(); ++b)
    if (flights_[b].traffic && is_used(plan_->buckets[b])) all.push_back(*flights_[b].traffic);
  return all;
}

}  // namespace gradus::dist::internal
