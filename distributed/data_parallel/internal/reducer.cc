// Implementation of Reducer: the callbacks of a backward, the exchange of notes, delivery of gradients, and
// join.
#include "gradus/distributed/data_parallel/internal/reducer.h"

#include <algorithm>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/reducer_checks.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist::internal {
namespace {

bool is_outer_recording_open() {
  return std::ranges::any_of(autograd::open_recordings(),
                             [](const auto& r) { return !autograd::as_recording(r)->finished(); });
}

ReducerConfig configure(ReduceOp op, AllReduceCallbackOptions options, Op maker) {
  const Group group = resolved(options.group);
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg)
    throw ValueError(internal::name_of(maker), "expected sum or mean, got ", dist::name_of(op));
  caps_of(options);
  group.state().check_member(internal::name_of(maker));
  const Group duplicated = group.size() == 1 ? group : duplicate(group, maker, options.group_name);
  return {op, std::move(options), !World::current(), group, duplicated};
}

}  // namespace

Reducer::Reducer(ReduceOp op, AllReduceCallbackOptions options, Op maker)
    : config_(configure(op, std::move(options), maker)), params_(config_.options.name_of) {}

void Reducer::attached_to(const Tensor& param) {
  if (!is_single_rank()) check_can_average("attach", concat("parameter ", params_.size()), param);
  if (params_.add(param, stats_.backwards)) plan_ = nullptr;
}

// ---- a backward ----

void Reducer::begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) {
  if (backward_) throw StateError("backward", "an all-reduce callback serves one backward at a time");
  if (is_single_rank() && config_.without_job && World::current() && World::current()->size > 1)
    throw StateError("backward",
                     "make_allreduce_cb was called before init_process_group: it knows of one rank only");
  count_backward();
  config_.users_group.state().backward_begins();
  Backward& b = open_backward();
  Fingerprint of_attached;
  for (size_t t = 0; t < attached.size(); ++t) {
    const size_t i = params_.index_of(attached[t]);
    of_attached.add(i);
    b.gradients[i].has_local = reached[t] || (!b.keeping && params_[i].accumulated.defined());
  }
  if (b.keeping || is_single_rank()) return;
  plan();
  b.outer = is_outer_recording_open();
  const int every = config_.options.check_divergence_every;
  const bool compare = every > 0 && (synchronized_ + 1) % every == 0;
  BackwardNote local_note = note(BackwardNote::kBackward);
  if (plan_->settled) {
    check_static(*plan_->settled, group(), local_note.reached, params_);
    if (!join_.is_active() && !compare) {
      start_reduction(b, plan_->settled);
      return apply_consensus(b);
    }
  }
  local_note.attached = of_attached.value();
  if (b.outer) local_note.flags |= BackwardNote::kEnclosingRecording;
  if (compare) local_note.checksum = checksum_of(tensors()) | 1;
  send(local_note);
  start_reduction(b, last_exchange_);
}

// ready, landed and finish own a reference to the Backward: a hook that they call may begin another backward,
// which fails and abandons the current one.

std::optional<Tensor> Reducer::ready(const Tensor& param, const Tensor& grad) {
  const std::shared_ptr<Backward> b = backward_;
  const size_t i = params_.index_of(param);
  if (b && b->keeping) {
    params_.accumulate(i, grad);
  } else if (is_single_rank()) {
    const Tensor total = sum_of(params_[i].accumulated, grad);
    if (b && total.defined()) b->finite.check(i, total);
    return total;
  } else if (b && b->gradients[i].has_local) {
    b->reduction->set_gradient(i, params_[i].accumulated, grad);
    if (config_.options.overlap && !b->outer && (!config_.options.comm_hook || try_apply_consensus(*b)))
      b->reduction->launch_ready();
  }
  return std::nullopt;
}

std::vector<GradCallback::Delivery> Reducer::landed() {
  std::vector<Delivery> all;
  const std::shared_ptr<Backward> b = backward_;
  if (!b || !b->reduction || config_.options.comm_hook) return all;
  if (!b->reduction->all_delivered() && try_apply_consensus(*b)) b->reduction->deliver_completed(all);
  return all;
}

std::vector<GradCallback::Delivery> Reducer::finish() {
  const std::shared_ptr<Backward> b = backward_;
  // The Backward is closed if a hook began another backward and caught its error.
  const auto check_open = [&] {
    if (!b || b != backward_)
      throw StateError("backward", "an all-reduce callback serves one backward at a time");
  };
  check_open();
  std::vector<Delivery> all;
  const TimePoint computed = clock_now();
  if (b->reduction) {
    apply_consensus(*b);
    b->outer = b->outer && !b->canceled() && any_rank_tracks(*b);
    if (b->outer)
      deliver_tracked(*b, all);
    else if (!b->canceled())
      finish_reduction(*b, &all);
    check_open();
  } else {
    for (Gradient& g : b->gradients) g.used = g.has_local;
  }
  if (b->canceled()) {
    ++stats_.canceled;
  } else if (!b->keeping) {
    conclude(*b);
    count(*b, computed);
  }
  backward_ = nullptr;
  for (; b->pending_cancellations > 0; --b->pending_cancellations) send_cancellation();
  return all;
}

void Reducer::abandon(std::exception_ptr error) noexcept {
  try {
    if (!error && backward_) {  // another recording ended while this backward is running
      ++backward_->pending_cancellations;
      return;
    }
    if (!error) return send_cancellation();
    const bool agreed = backward_ && backward_->agreed_error;
    if (backward_ && backward_->reduction) backward_->reduction->abandon();
    backward_ = nullptr;
    if (!is_single_rank() && !agreed) report_backward_failure(group().state().world(), error);
  } catch (...) {
    // Either the job has failed, and the next call will throw the error, or a simulation is killing this
    // rank.
  }
}

int Reducer::serve_until_all_joined() {
  const struct Scope {
    ~Scope() { backward = nullptr; }
    std::shared_ptr<Backward>& backward;
  } scope{backward_};
  for (;;) {
    const std::shared_ptr<BackwardExchange> before = last_exchange_;
    Backward& b = open_backward();
    plan();
    send(note(BackwardNote::kJoined));
    number_ = std::ranges::max(last_exchange_->notes(), {}, &BackwardNote::number).number;
    if (last_exchange_->consensus().active < 0) return before ? before->consensus().root() : 0;
    config_.users_group.state().backward_begins();  // as on the ranks that run this backward
    start_reduction(b, last_exchange_);
    apply_consensus(b);
    if (b.canceled()) {
      ++stats_.canceled;
      continue;
    }
    finish_reduction(b, nullptr);
    conclude(b);
  }
}

// ---- start of a backward ----

Reducer::Backward& Reducer::open_backward() {
  backward_ = std::make_shared<Backward>(clock_now(), in_no_sync(), config_.options.check_finite);
  remove_destroyed();
  for (size_t i = 0; i < params_.size(); ++i) backward_->gradients.push_back({params_.tensor(i)});
  return *backward_;
}

void Reducer::count_backward() {
  if (!in_no_sync() || !config_.options.uneven_no_sync) ++number_;
}

void Reducer::remove_destroyed() {
  if (params_.remove_destroyed()) plan_ = nullptr;
}

void Reducer::plan() {
  if (!plan_) plan_ = make_plan(config_, params_);
}

BackwardNote Reducer::note(BackwardNote::Kind kind) const {
  BackwardNote note{
      .kind = kind, .number = number_, .plan = plan_->fingerprint, .flags = join_.flags(), .reached = {}};
  note.reached.resize(params_.size());
  if (backward_)
    for (size_t i = 0; i < note.reached.size(); ++i) note.reached[i] = backward_->gradients[i].has_local;
  return note;
}

void Reducer::send(const BackwardNote& note) {
  last_exchange_ = std::make_shared<BackwardExchange>(group(), note, plan_->lines);
}

void Reducer::start_reduction(Backward& b, const std::shared_ptr<BackwardExchange>& exchange) {
  b.reduction.emplace(config_, plan_, exchange, number_, b.gradients, b.finite);
}

// Sends a kNone note: a recording ended without a backward.
void Reducer::send_cancellation() {
  count_backward();
  config_.users_group.state().recording_dropped();
  if (is_single_rank() || in_no_sync()) return;
  ++stats_.canceled;
  remove_destroyed();
  plan();
  send(note(BackwardNote::kNone));
}

// ---- consensus on the parameters that some rank reaches ----

// Waits for the exchange of notes, throws the errors that follow from it, and passes the consensus to the
// Reduction.
void Reducer::apply_consensus(Backward& b) {
  Reduction& reduction = *b.reduction;
  if (reduction.consensus()) return;
  const std::shared_ptr<BackwardExchange>& exchange = reduction.exchange();
  try {
    exchange->notes();
  } catch (const DistributedError&) {
    const Membership& job = *group().state().world()->membership;
    if (join_.is_active() || !job.failed()) throw;
    Failure failure = job.failure();
    if (failure.kind != Failure::Kind::kLeft && failure.kind != Failure::Kind::kDeadlock) throw;
    failure.text += ". If some ranks have fewer batches than others: join() lets them take part to the end";
    throw_failure("backward", failure);
  }
  const Consensus& consensus = exchange->consensus();
  check_on_all_ranks(b, [&] { consensus.check_joined(exchange->notes(), group().ranks()); });
  reduction.set_consensus(consensus);
  if (consensus.diverged) {
    const Divergence d = find_divergence(group(), params_);
    check_on_all_ranks(b, [&] {
      throw MismatchError("backward", d.rank, "parameters have diverged: ", d.text,
                          ", before synchronizing backward ", synchronized_ + 1,
                          " (and may have diverged since the last comparison)");
    });
  }
  const bool settles = config_.options.static_graph && consensus.joined < 0 && !consensus.canceled;
  if (settles && plan_) plan_->settled = exchange;
}

// Calls apply_consensus() if the exchange has completed. Returns whether it has and the step is not canceled.
bool Reducer::try_apply_consensus(Backward& b) {
  if (!b.reduction->exchange()->is_completed()) return false;
  apply_consensus(b);
  return !b.canceled();
}

// Calls a check that throws on all ranks or on none, so that its error is not reported to the other ranks.
template <class F> void Reducer::check_on_all_ranks(Backward& b, F check) {
  b.agreed_error = true;
  check();
  b.agreed_error = false;
}

// ---- end of a backward ----

// Launches the remaining buckets, broadcasts buffers, and waits. Null `to`: discards the results.
void Reducer::finish_reduction(Backward& b, std::vector<Delivery>* to) {
  b.reduction->launch_all();
  start_broadcast(b);
  b.reduction->deliver_all(to);
}

// Returns whether an enclosing recording tracks a gradient on any rank. Collective.
bool Reducer::any_rank_tracks(const Backward& b) const {
  const bool local = std::ranges::any_of(b.gradients, [](const Gradient& g) {
    return g.used && g.grad.defined() && autograd::is_tracked(g.grad);
  });
  return std::ranges::any_of(exchange_numbers(group(), {local}),
                             [](const auto& remote) { return remote[0]; });
}

// Reduces gradients one by one with the differentiable all-reduce, for an enclosing recording.
void Reducer::deliver_tracked(Backward& b, std::vector<Delivery>& to) {
  for (const Bucket& bucket : b.reduction->plan().buckets)
    for (size_t i : bucket.params) {
      const Gradient& g = b.gradients[i];
      if (!g.used) continue;
      if (g.grad.defined()) b.finite.check(i, g.grad);
      const Tensor grad = g.grad.defined() ? g.grad : zeros_like(g.param);
      b.tracked_bytes += grad.nbytes();
      to.push_back({g.param, functional::all_reduce(grad, config_.op, {config_.users_group})});
    }
  start_broadcast(b);
}

void Reducer::start_broadcast(Backward& b) {
  if (const auto& tensors = config_.options.broadcast_after)
    b.broadcast.emplace(group(), tensors(), b.reduction->consensus()->root());
}

void Reducer::conclude(Backward& b) {
  const std::string text = b.finite.findings(group(), params_);
  if (!text.empty()) {
    drop_pending();
    check_on_all_ranks(b, [&] { throw NotFiniteError("backward", text); });
  }
  if (b.broadcast) b.broadcast->finish();
  ++synchronized_;
}

// Updates the statistics, and clears the accumulated gradients that this backward has reduced.
void Reducer::count(const Backward& b, TimePoint computed) {
  internal::count(stats_, b.begun, computed,
                  b.reduction ? b.reduction->traffic() : std::vector<BucketTraffic>());
  stats_.bytes += b.tracked_bytes;
  for (size_t i = 0; i < b.gradients.size(); ++i) {
    const Gradient& g = b.gradients[i];
    AttachedParam& p = params_[i];
    if (g.used) p.last_use = stats_.backwards;
    p.locally_unused = g.used && !g.has_local;
    if (g.has_local) p.accumulated = Tensor();
  }
}

std::vector<std::string> Reducer::unused_parameters(int backwards) const {
  return params_.names([&](const auto& p) { return stats_.backwards - p.last_use >= backwards; });
}

std::vector<std::string> Reducer::locally_unused_parameters() const {
  return params_.names([](const auto& p) { return p.locally_unused; });
}

}  // namespace gradus::dist::internal
