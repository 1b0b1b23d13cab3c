#include "gradus/distributed/data_parallel/internal/reducer.h"

#include <algorithm>
#include <cstring>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/bucket_plan.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/elementwise.h"

namespace gradus::dist::internal {
namespace {

// Note [Bucket order]
// The plan follows from the attached tensors alone: in the reverse order of attaching, which is about the
// order in which gradients come, grouped by dtype and device, closed at the caps. All ranks attach the same,
// so all have the same plan, whatever they compute, and it never changes but with what is attached.
//
// At the begin of a backward every rank knows from the graph which tensors it will reach, and tells the
// others; the backward goes on meanwhile. A bucket holds what some rank reaches, and nothing else: it is cut
// to size for each backward, and left out when that is empty. What is missing here counts as zeros. So no
// bucket waits for a gradient that does not come, and no rank need know why another one takes another way.
//
// Buckets are sent strictly by index: one whose gradients are early waits for those before it. All ranks then
// call the same collectives in the same order, though their gradients come in different orders.

TimePoint clock_now() { return std::chrono::steady_clock::now(); }
double seconds(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

bool is_outer_recording_open() {
  return std::ranges::any_of(autograd::open_recordings(),
                             [](const auto& r) { return !autograd::as_recording(r)->finished(); });
}

// a + b; either may be undefined.
Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return add(a, b);
}

// A gradient of so many bytes is not packed with others: it is reduced where it lies, if nobody else sees it.
constexpr int64_t kAloneBytes = 1 << 20;

bool is_joined(const BackwardNote& note) { return note.kind == BackwardNote::kJoined; }
bool is_none(const BackwardNote& note) { return note.kind == BackwardNote::kNone; }

// Whether buckets follow these notes: nobody cancels the backward, and no error that all throw ends it.
bool is_sent(const std::vector<BackwardNote>& notes) {
  if (std::ranges::any_of(notes, is_none)) return false;
  const auto joined = std::ranges::find_if(notes, is_joined);
  if (joined == notes.end())
    return std::ranges::all_of(notes, [&](const auto& n) { return n.checksum == notes[0].checksum; });
  const auto active = std::ranges::find_if_not(notes, is_joined);
  return active == notes.end() ||
         !(joined->flags & BackwardNote::kEndEarly || active->flags & BackwardNote::kOuter);
}

// What a sum is divided by to be a mean.
int divisor_of(const std::vector<BackwardNote>& notes) {
  const auto active = std::ranges::find_if_not(notes, is_joined);
  if (active == notes.end() || !(active->flags & BackwardNote::kDivideByActive)) return int(notes.size());
  return int(notes.size() - std::ranges::count_if(notes, is_joined));
}

int64_t cap_bytes(double mb, const char* name) {
  if (!(mb > 0)) throw ValueError("make_allreduce_cb", name, " must be positive, given ", mb);
  return int64_t(std::min(mb, 1e9) * (1 << 20));
}

}  // namespace

// When a bucket was under way: the end is written by the thread that moves it, before its Work is done.
struct Reducer::Times {
  TimePoint start, end;
};

Reducer::Reducer(ReduceOp op, AllReduceCallbackOptions options, Op maker)
    : op_(op),
      options_(std::move(options)),
      without_job_(!World::current()),
      users_group_(resolved(options_.group)),
      group_(users_group_) {
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg)
    throw ValueError(internal::name_of(maker), "expected sum or mean, given ", dist::name_of(op));
  cap_bytes(options_.bucket_cap_mb, "bucket_cap_mb");
  cap_bytes(options_.first_bucket_mb, "first_bucket_mb");
  group_.state().check_member(internal::name_of(maker));
  if (!alone()) group_ = duplicate(group_, maker, options_.group_name);
}

Reducer::~Reducer() = default;

// ---- what is attached, and the plan ----

void Reducer::attached_to(const Tensor& param) {
  Ref<autograd::Leaf> leaf = autograd::leaf_of(param);
  if (!index_.try_emplace(leaf.get(), params_.size()).second) return;
  params_.push_back({.leaf = std::move(leaf), .last_use = stats_.backwards});
  planned_ = false;
}

size_t Reducer::index_of(const Tensor& param) const {
  const auto it = index_.find(param.ref()->slot.get());
  if (it == index_.end())
    throw InternalError("a gradient of a tensor that is not attached: ", describe(param));
  return it->second;
}

std::string Reducer::name_of(size_t param) const {
  const Tensor x = params_[param].leaf->tensor();
  if (options_.name_of && x.defined())
    if (std::string name = options_.name_of(x); !name.empty()) return name;
  return concat("parameter ", param);
}

std::vector<Tensor> Reducer::tensors() const {
  std::vector<Tensor> alive;
  for (const Param& p : params_)
    if (Tensor x = p.leaf->tensor(); x.defined()) alive.push_back(std::move(x));
  return alive;
}

void Reducer::forget_dead() {
  const auto dead = [](const Param& p) { return !p.tensor.defined() && !p.leaf->tensor().defined(); };
  if (std::ranges::none_of(params_, dead)) return;
  std::erase_if(params_, dead);
  index_.clear();
  for (size_t i = 0; i < params_.size(); ++i) index_[params_[i].leaf.get()] = i;
  planned_ = false;
}

void Reducer::plan() {
  if (planned_) return;
  if (int64_t(params_.size()) > kMaxReached)
    throw ValueError("backward", "at most ", kMaxReached, " tensors can share an all-reduce callback, given ",
                     params_.size());
  Fingerprint fingerprint;
  const int64_t limits[] = {cap_bytes(options_.first_bucket_mb, ""), cap_bytes(options_.bucket_cap_mb, "")};
  for (int64_t n : limits) fingerprint.add(n);
  fingerprint.add(uint64_t(op_) | uint64_t(bool(options_.comm_hook)) << 8 |
                  uint64_t(options_.static_graph) << 9 | uint64_t(options_.check_finite) << 10 |
                  uint64_t(bool(options_.broadcast_after)) << 11 |
                  uint64_t(options_.check_divergence_every) << 16);
  const size_t n = params_.size();
  std::vector<BucketItem> items;
  std::vector<Device> devices;  // ranks may use different ones: what counts is which are the same
  for (size_t i = 0; i < n; ++i) {
    const Tensor x = params_[n - 1 - i].leaf->tensor();
    items.push_back({x.nbytes(), x.dtype(), x.device()});
    fingerprint.add(x);
    const auto device = std::ranges::find(devices, x.device());
    fingerprint.add(uint64_t(device - devices.begin()));
    if (device == devices.end()) devices.push_back(x.device());
  }
  buckets_.clear();
  for (const auto& indices : assign_buckets(items, limits)) {
    Bucket& bucket = buckets_.emplace_back(Bucket{.dtype = items[indices[0]].dtype});
    for (size_t i : indices) {
      bucket.params.push_back(n - 1 - i);
      params_[n - 1 - i].bucket = buckets_.size() - 1;
    }
  }
  std::vector<std::string> lines = {
      concat(dist::name_of(op_), " with bucket_cap_mb = ", options_.bucket_cap_mb,
             ", first_bucket_mb = ", options_.first_bucket_mb, ", static_graph = ", options_.static_graph,
             ", check_finite = ", options_.check_finite, ", a comm_hook = ", bool(options_.comm_hook),
             ", broadcast_after = ", bool(options_.broadcast_after),
             ", check_divergence_every = ", options_.check_divergence_every)};
  for (size_t i = 0; i < n; ++i) {
    const Tensor x = params_[i].leaf->tensor();
    lines.push_back(concat(x.dtype(), x.shape(), '\t', name_of(i)));
  }
  plan_lines_ = std::make_shared<const std::vector<std::string>>(std::move(lines));
  fingerprint_ = fingerprint.value();
  static_known_ = false;
  planned_ = true;
}

// ---- a backward ----

BackwardNote Reducer::note(BackwardNote::Kind kind) const {
  BackwardNote note{.kind = kind, .number = number_, .plan = fingerprint_};
  if (join_) {
    note.flags = BackwardNote::kJoining;
    if (!join_->divide_by_initial_world_size) note.flags |= BackwardNote::kDivideByActive;
    if (join_->throw_on_early_termination) note.flags |= BackwardNote::kEndEarly;
  }
  note.reached.resize(params_.size());
  return note;
}

void Reducer::begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) {
  if (running_) throw StateError("backward", "an all-reduce callback serves one backward at a time");
  if (alone() && without_job_ && World::current() && World::current()->size > 1)
    throw StateError("backward",
                     "make_allreduce_cb was called before init_process_group: it knows of one rank only");
  running_ = true;
  ++number_;
  users_group_.state().backward_begins();
  begun_ = clock_now();
  keeping_ = keeps();
  forget_dead();
  Fingerprint of_attached;
  for (size_t i = 0; i < attached.size(); ++i) {
    const size_t at = index_of(attached[i]);
    of_attached.add(at);
    params_[at].tensor = attached[i];
    params_[at].mine = reached[i] || (!keeping_ && params_[at].kept.defined());
  }
  attached_ = of_attached.value();
  if (keeping_ || alone()) return;
  plan();
  for (Bucket& bucket : buckets_)
    bucket.waiting = int(std::ranges::count_if(bucket.params, [&](size_t i) { return params_[i].mine; }));
  outer_ = is_outer_recording_open();
  const int every = options_.check_divergence_every;
  const bool compare = every > 0 && (synchronized_ + 1) % every == 0;
  if (static_known_) check_static();
  if (static_known_ && !join_ && !compare) {
    known_ = true;
    return choose_used(static_used_);
  }
  BackwardNote mine = note(BackwardNote::kBackward);
  mine.attached = attached_;
  if (outer_) mine.flags |= BackwardNote::kOuter;
  if (compare) mine.checksum = checksum_of(tensors()) | 1;
  for (size_t i = 0; i < params_.size(); ++i) mine.reached[i] = params_[i].mine;
  exchange_ = last_exchange_ = std::make_shared<BackwardExchange>(group_, mine, plan_lines_);
}

std::optional<Tensor> Reducer::ready(const Tensor& param, const Tensor& grad) {
  Param& p = params_[index_of(param)];
  if (keeping_) {
    if (!grad.defined()) return std::nullopt;
    if (!p.kept.defined())
      p.kept = grad.sole_owner() ? grad : clone(grad);
    else if (autograd::may_reuse(p.kept) && !autograd::is_tracked(p.kept) && !autograd::is_tracked(grad))
      raw::add_(p.kept, grad);
    else
      p.kept = add(p.kept, grad);
    return std::nullopt;
  }
  if (alone()) {
    Tensor whole = sum_of(p.kept, grad);
    if (options_.check_finite && whole.defined()) note_if_not_finite(size_t(&p - params_.data()), whole);
    return whole;
  }
  if (!p.mine) return std::nullopt;
  p.grad = sum_of(p.kept, grad);
  // The engine's handle and this one: nobody else looks at it.
  p.is_ours = p.grad.defined() && p.grad.is_same(grad) && grad.ref()->use_count() == 2 &&
              grad.storage()->use_count() == 1 && !grad.storage()->is_external();
  --buckets_[p.bucket].waiting;
  advance();
  return std::nullopt;
}

// Launches what may go, without waiting. An all-reduce need not know what the others reach: it finds out when
// its turn has come, after the exchange. A hook does, since it is called here.
void Reducer::advance() {
  if (!options_.overlap || outer_) return;
  if (options_.comm_hook) {
    if (!known_ && exchange_->has_come()) learn();
    if (!known_ || canceled_) return;
  }
  while (launched_ < buckets_.size() && buckets_[launched_].waiting == 0) launch(launched_, false);
}

std::vector<GradCallback::Delivery> Reducer::landed() {
  std::vector<Delivery> all;
  if (!running_ || options_.comm_hook || landed_ == launched_) return all;
  if (!known_) {
    if (!exchange_->has_come()) return all;
    learn();
  }
  if (canceled_) return all;
  for (; landed_ < launched_; ++landed_) {
    Bucket& bucket = buckets_[landed_];
    if (!bucket.work.is_completed()) break;
    bucket.work.wait();  // throws what went wrong
    unpack(bucket, all);
  }
  return all;
}

std::vector<GradCallback::Delivery> Reducer::finish() {
  // Another backward began within this one, and what it threw was caught: there is nothing left of this one.
  if (!running_) throw StateError("backward", "an all-reduce callback serves one backward at a time");
  std::vector<Delivery> all;
  if (!keeping_) {
    const TimePoint computed = clock_now();
    if (!alone()) {
      if (!known_) learn();
      if (outer_ && !canceled_) outer_ = someone_tracks();
      if (outer_ && !canceled_) {
        deliver_tracked(all);
      } else if (!canceled_) {
        while (launched_ < buckets_.size()) launch(launched_, true);
        start_broadcast();
        for (; landed_ < buckets_.size(); ++landed_) {
          Bucket& bucket = buckets_[landed_];
          bucket.work.wait();
          if (bucket.complete) bucket.complete();
          if (bucket.times && options_.comm_hook) bucket.times->end = clock_now();
          unpack(bucket, all);
        }
      }
    } else {
      for (Param& p : params_) p.used = p.mine;
    }
    if (canceled_) {
      ++stats_.canceled;
    } else {
      check_finite();
      if (broadcast_) broadcast_->finish();
      count(computed);
      for (Param& p : params_)
        if (p.mine) p.kept = Tensor();
    }
  }
  clear_backward();
  for (; owed_none_ > 0; --owed_none_) post_none();
  return all;
}

void Reducer::abandon(std::exception_ptr error) noexcept {
  try {
    if (!error && running_) {  // another recording's end, in the middle of a backward
      ++owed_none_;
      return;
    }
    if (!error) return post_none();
    if (launched_ > 0)
      for (Bucket& bucket : buckets_) bucket.memory = Tensor();  // it may still be under way
    const bool agreed = agreed_error_;
    clear_backward();
    owed_none_ = 0;
    if (!alone() && !agreed) report_backward_failure(group_.state().world(), error);
  } catch (...) {
    // The job has failed, which the next call tells; or a simulation kills this rank.
  }
}

void Reducer::post_none() {
  ++number_;
  users_group_.state().recording_dropped();
  if (alone() || keeps()) return;
  ++stats_.canceled;
  forget_dead();
  plan();
  last_exchange_ = std::make_shared<BackwardExchange>(group_, note(BackwardNote::kNone), plan_lines_);
}

void Reducer::clear_backward() {
  for (Param& p : params_) {
    p.tensor = p.grad = Tensor();
    p.mine = p.used = p.is_ours = p.in_place = false;
  }
  for (Bucket& bucket : buckets_) {
    bucket.used.clear();
    bucket.buffer = Tensor();
    bucket.sent = 0;
    bucket.work = Work();
    bucket.complete = nullptr;
    bucket.times = nullptr;
  }
  running_ = keeping_ = outer_ = agreed_error_ = known_ = canceled_ = false;
  exchange_ = nullptr;
  broadcast_ = nullptr;
  divisor_ = group_.size();
  root_ = 0;
  launched_ = landed_ = 0;
  tracked_bytes_ = 0;
  not_finite_ = {};
}

template <class E, class... Parts> void Reducer::throw_on_all(int rank, const Parts&... parts) {
  agreed_error_ = true;
  if constexpr (std::is_base_of_v<DistributedError, E>)
    throw E("backward", rank, parts...);
  else
    throw E("backward", parts...);
}

// ---- what all ranks reach ----

void Reducer::learn() {
  const std::vector<BackwardNote>* notes = nullptr;
  try {
    notes = &exchange_->notes();
  } catch (const DistributedError&) {
    const Membership& job = *group_.state().world()->membership;
    if (join_ || !job.failed()) throw;
    Failure failure = job.failure();
    if (failure.kind != Failure::Kind::kLeft && failure.kind != Failure::Kind::kDeadlock) throw;
    failure.text += ". If some ranks have fewer batches than others: join() lets them take part to the end";
    throw_failure("backward", failure);
  }
  use(*notes);
}

void Reducer::use(const std::vector<BackwardNote>& notes) {
  known_ = true;
  const std::vector<int>& ranks = group_.ranks();
  const auto joined = std::ranges::find_if(notes, is_joined);
  const auto active = std::ranges::find_if_not(notes, is_joined);
  if (joined != notes.end() && active != notes.end()) {
    if (joined->flags & BackwardNote::kEndEarly) {
      const int rank = ranks[joined - notes.begin()];
      throw_on_all<PeerError>(rank, "rank ", rank,
                              " has no more data, and others have: throw_on_early_termination");
    }
    if (active->flags & BackwardNote::kOuter)
      throw_on_all<StateError>(-1, "rank ", ranks[joined - notes.begin()],
                               " has no more data: it cannot take part in what an outer recording sees");
  }
  canceled_ = std::ranges::any_of(notes, is_none);
  divisor_ = divisor_of(notes);
  root_ = active == notes.end() ? 0 : int(active - notes.begin());
  if (canceled_) return;
  if (joined == notes.end() &&
      std::ranges::any_of(notes, [&](const BackwardNote& n) { return n.checksum != notes[0].checksum; }))
    throw_difference();
  std::vector<bool> used(params_.size());
  for (const BackwardNote& n : notes)
    for (size_t i = 0; i < used.size(); ++i) used[i] = used[i] || n.reached[i];
  if (options_.static_graph && joined == notes.end()) {
    static_known_ = true;
    static_used_ = used;
    static_mine_.resize(params_.size());
    for (size_t i = 0; i < params_.size(); ++i) static_mine_[i] = params_[i].mine;
  }
  choose_used(used);
}

void Reducer::check_static() const {
  for (size_t i = 0; i < params_.size(); ++i)
    if (params_[i].mine != static_mine_[i])
      throw StateError("backward", name_of(i), static_mine_[i] ? " is no longer reached" : " is reached now",
                       ", but static_graph promises that every backward reaches the same");
}

void Reducer::choose_used(const std::vector<bool>& used) {
  last_bucket_ = buckets_.size();
  for (size_t i = 0; i < params_.size(); ++i) params_[i].used = used[i];
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    bucket.used.clear();
    for (size_t i : bucket.params)
      if (used[i]) bucket.used.push_back(i);
    if (!bucket.used.empty()) last_bucket_ = b;
  }
}

// ---- buckets ----

void Reducer::launch(size_t index, bool finishing) {
  Bucket& bucket = buckets_[index];
  launched_ = index + 1;
  if (known_ && bucket.used.empty()) return;
  make_room(bucket);
  bucket.times = std::make_shared<Times>();
  if (options_.comm_hook) {
    bucket.times->start = bucket.times->end = clock_now();
    pack(bucket);
    if (bucket.buffer.numel() > 0) start_hook(bucket);
  } else {
    // With nothing left to compute the last one goes in this thread.
    start_all_reduce(bucket, !(finishing && index == last_bucket_));
  }
}

void Reducer::make_room(Bucket& bucket) {
  // Views of the last backward's may still be somebody's gradients.
  if (bucket.memory.defined() && bucket.memory.storage()->use_count() == 1) return;
  int64_t room = 0;
  for (size_t i : bucket.params) room += tensor_of(params_[i]).numel();
  bucket.memory = empty({room}, {.dtype = bucket.dtype});
}

Tensor Reducer::part_of(const Bucket& bucket, int64_t offset, const Shape& shape) const {
  Strides strides = Strides::filled(shape.size(), 1);
  for (int d = shape.size() - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * std::max<int64_t>(shape[d + 1], 1);
  return view_as_strided(bucket.memory, shape, strides, offset);
}

// Copies this rank's gradients into the bucket.
void Reducer::pack(Bucket& bucket) {
  int64_t offset = 0;
  for (size_t i : bucket.used) {
    Param& p = params_[i];
    const Tensor x = tensor_of(p);
    const Tensor part = part_of(bucket, offset, x.shape());
    offset += x.numel();
    if (!p.grad.defined()) {
      raw::fill_(part, 0);
      continue;
    }
    raw::copy_(part, p.grad);
    if (options_.check_finite) note_if_not_finite(i, part);
    if (options_.gradient_as_bucket_view) p.grad = Tensor();
  }
  bucket.buffer = part_of(bucket, 0, {offset});
}

// This rank's gradient as the bucket wants it: row-major, written by its device.
Tensor Reducer::host_gradient(size_t param) {
  Param& p = params_[param];
  if (!p.grad.defined()) return {};
  const Tensor grad = raw::contiguous(p.grad);
  wait_for_device(grad);
  if (options_.check_finite) note_if_not_finite(param, grad);
  if (options_.gradient_as_bucket_view) p.grad = Tensor();
  return grad;
}

// Packs and sends when its turn has come: then the exchange before it is over, and says what is sent.
void Reducer::start_all_reduce(Bucket& bucket, bool async) {
  struct Part {
    size_t param;
    int64_t bytes;
    Tensor grad;
    bool in_place;
  };
  std::vector<Part> parts;
  for (size_t i : bucket.params) {
    Param& p = params_[i];
    const int64_t bytes = tensor_of(p).nbytes();
    const Tensor grad = host_gradient(i);
    p.in_place = bytes >= kAloneBytes && p.is_ours && grad.defined() && grad.is_same(p.grad);
    parts.push_back({i, bytes, grad, p.in_place});
  }
  const size_t index = &bucket - buckets_.data();
  Collective call{.op = "backward", .sizes = {number_, int64_t(index)}};
  call.prepare = [parts = std::move(parts), x = bucket.memory, exchange = exchange_, settled = static_used_,
                  op = op_, size = group_.size(), times = bucket.times](Collective& call) {
    const std::vector<BackwardNote>* notes = exchange ? &exchange->notes() : nullptr;
    if (notes && !is_sent(*notes)) return false;
    const auto is_used = [&](size_t i) {
      return notes ? std::ranges::any_of(*notes, [i](const BackwardNote& n) { return bool(n.reached[i]); })
                   : bool(settled[i]);
    };
    times->start = clock_now();
    // What is sent in one piece: small gradients that were packed, or a large one, where it lies if it may.
    std::vector<std::pair<char*, int64_t>> pieces;
    std::vector<Tensor> in_place;
    char* const begin = static_cast<char*>(x.raw_ptr());
    char* end = begin;
    bool last_is_packed = false;
    for (const Part& part : parts) {
      if (!is_used(part.param) || part.bytes == 0) continue;
      const bool alone = part.bytes >= kAloneBytes;
      char* at = end;
      end += part.bytes;
      if (part.in_place) {
        at = static_cast<char*>(part.grad.raw_ptr());
        in_place.push_back(part.grad);
      } else if (part.grad.defined()) {
        std::memcpy(at, part.grad.raw_ptr(), size_t(part.bytes));
      } else {
        std::memset(at, 0, size_t(part.bytes));
      }
      if (!alone && last_is_packed)
        pieces.back().second += part.bytes;
      else
        pieces.emplace_back(at, part.bytes);
      last_is_packed = !alone;
    }
    const int64_t bytes = end - begin, n = bytes / size_of(x.dtype());
    times->end = times->start;
    if (n == 0) return false;
    // Division by fewer than all comes after the sum.
    const int divisor = notes ? divisor_of(*notes) : size;
    const ReduceOp reduce = op == ReduceOp::kAvg && divisor != size ? ReduceOp::kSum : op;
    call.record = {
        .op = Op::kAllReduce, .reduce = reduce, .dtype = x.dtype(), .ndim = 1, .dims = {n}, .bytes = bytes};
    call.move = [=](Turn& turn) {
      for (const auto& [data, bytes] : pieces) {
        const int64_t count = bytes / size_of(x.dtype());
        turn.backend.all_reduce(turn.call, data, data, count, x.dtype(), reduce);
        if (reduce != op) finish_reduce(data, count, x.dtype(), op, divisor);
      }
      x.storage()->bump_version();
      for (const Tensor& grad : in_place) grad.storage()->bump_version();
      times->end = clock_now();
    };
    return true;
  };
  call.check = [&state = group_.state()](const Turn& turn) {
    return find_odd(turn, state, [](const std::vector<int64_t>& sizes) {
      return sizes.size() == 2 ? concat("bucket ", sizes[1], " of backward ", sizes[0]) : "nonsense";
    });
  };
  bucket.work = group_.state().run(std::move(call), async, {});
}

void Reducer::start_hook(Bucket& bucket) {
  GradBucket given;
  given.index = int(&bucket - buckets_.data());
  given.is_last = size_t(given.index) == last_bucket_;
  given.buffer = bucket.buffer;
  int64_t offset = 0;
  for (size_t i : bucket.used) {
    const Tensor x = tensor_of(params_[i]);
    given.gradients.push_back(part_of(bucket, offset, x.shape()));
    given.parameters.push_back(x);
    offset += x.numel();
  }
  given.op = op_;
  given.divisor = divisor_;
  given.group = group_;
  bucket.complete = options_.comm_hook(given);
}

void Reducer::unpack(Bucket& bucket, std::vector<Delivery>& to) {
  int64_t offset = 0;
  for (size_t i : bucket.used) {
    Param& p = params_[i];
    Tensor x = tensor_of(p);
    Tensor part = part_of(bucket, offset, x.shape());
    offset += x.numel();
    if (p.in_place) {
      to.push_back({std::move(x), std::exchange(p.grad, Tensor())});
      continue;
    }
    if (options_.gradient_as_bucket_view && x.is_row_major() && x.device() == kCPU) {
      to.push_back({std::move(x), std::move(part), true});
      continue;
    }
    // Back to where it came from, if nobody else has an eye on that.
    Tensor grad = p.grad.sole_owner() && p.grad.is_dense() ? std::move(p.grad) : empty_like(x);
    p.grad = Tensor();
    raw::copy_(grad, part);
    to.push_back({std::move(x), std::move(grad)});
  }
  bucket.sent = offset * size_of(bucket.dtype);
}

// ---- inside an outer recording ----

bool Reducer::someone_tracks() {
  const bool mine = std::ranges::any_of(
      params_, [](const Param& p) { return p.used && p.grad.defined() && autograd::is_tracked(p.grad); });
  for (const auto& theirs : exchange_numbers(group_, {mine}))
    if (theirs[0]) return true;
  return false;
}

void Reducer::deliver_tracked(std::vector<Delivery>& to) {
  for (const Bucket& bucket : buckets_)
    for (size_t i : bucket.used) {
      Param& p = params_[i];
      const Tensor x = tensor_of(p);
      if (options_.check_finite && p.grad.defined()) note_if_not_finite(i, p.grad);
      const Tensor mine = p.grad.defined() ? p.grad : zeros_like(x);
      tracked_bytes_ += mine.nbytes();
      to.push_back({x, functional::all_reduce(mine, op_, {users_group_})});
    }
  start_broadcast();
}

// ---- around ----

void Reducer::start_broadcast() {
  if (options_.broadcast_after)
    broadcast_ = std::make_unique<PackedBroadcast>(group_, options_.broadcast_after(), root_);
}

void Reducer::throw_difference() {
  const std::vector<Tensor> all = tensors();
  const std::optional<Difference> d = find_difference(group_, all);
  if (!d) throw InternalError("checksums that differ, of parameters that do not");
  const std::vector<int>& ranks = group_.ranks();
  throw_on_all<MismatchError>(ranks[d->odd], "parameters have diverged: ", name_of(index_of(all[d->tensor])),
                              " of rank ", ranks[d->odd], " is not that of rank ", ranks[d->usual],
                              ", before synchronizing backward ", synchronized_ + 1,
                              " (and may have diverged since the last comparison)");
}

void Reducer::note_if_not_finite(size_t param, const Tensor& grad) {
  if (not_finite_.tensor >= 0) return;
  if (const int64_t element = first_not_finite(grad); element >= 0) not_finite_ = {int64_t(param), element};
}

void Reducer::check_finite() {
  if (!options_.check_finite) return;
  std::string text;
  const auto add = [&](int rank, const NotFinite& n) {
    if (n.tensor >= 0)
      text += concat(text.empty() ? "" : "; ", "rank ", rank, " has NaN or infinity in the gradient of ",
                     name_of(n.tensor), ", first in element ", n.element);
  };
  if (alone()) {
    add(group_.ranks()[0], not_finite_);
  } else {
    const std::vector<NotFinite> all = share(group_, not_finite_);
    for (size_t i = 0; i < all.size(); ++i) add(group_.ranks()[i], all[i]);
  }
  if (text.empty()) return;
  drop_pending();
  throw_on_all<ValueError>(-1, text);
}

void Reducer::count(TimePoint computed) {
  ++synchronized_;
  ++stats_.backwards;
  stats_.bytes = tracked_bytes_;
  stats_.buckets = 0;
  stats_.communication_s = stats_.exposed_s = 0;
  TimePoint until = begun_;  // counted up to here
  for (const Bucket& bucket : buckets_) {
    if (!bucket.times || bucket.used.empty()) continue;
    ++stats_.buckets;
    stats_.bytes += bucket.sent;
    const TimePoint start = std::max(until, bucket.times->start), end = std::max(start, bucket.times->end);
    stats_.communication_s += seconds(start, end);
    stats_.exposed_s += seconds(std::max(start, computed), std::max(end, computed));
    until = std::max(until, end);
  }
  for (Param& p : params_) {
    if (p.used) p.last_use = stats_.backwards;
    p.unused_here = p.used && !p.mine;
  }
  stats_.backward_s = seconds(begun_, clock_now());
}

void Reducer::drop_pending() {
  for (Param& p : params_) p.kept = Tensor();
}

std::vector<std::string> Reducer::unused_parameters(int backwards) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < params_.size(); ++i)
    if (stats_.backwards - params_[i].last_use >= backwards && params_[i].leaf->tensor().defined())
      names.push_back(name_of(i));
  return names;
}

std::vector<std::string> Reducer::locally_unused_parameters() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < params_.size(); ++i)
    if (params_[i].unused_here && params_[i].leaf->tensor().defined()) names.push_back(name_of(i));
  return names;
}

// ---- join ----

void Reducer::begin_join(const JoinOptions& options) {
  if (join_) throw StateError("join", "a callback is within join() already");
  join_ = options;
}

void Reducer::end_join() noexcept { join_.reset(); }

int Reducer::serve_until_all_joined() {
  const auto is_joined = [](const BackwardNote& n) { return n.kind == BackwardNote::kJoined; };
  for (;;) {
    const std::shared_ptr<BackwardExchange> before = last_exchange_;
    forget_dead();
    plan();
    exchange_ = last_exchange_ =
        std::make_shared<BackwardExchange>(group_, note(BackwardNote::kJoined), plan_lines_);
    const std::vector<BackwardNote>& notes = exchange_->notes();
    number_ = std::ranges::max_element(notes, {}, &BackwardNote::number)->number;
    if (std::ranges::all_of(notes, is_joined)) {
      clear_backward();
      if (!before) return 0;
      const auto last = std::ranges::find_if_not(before->notes(), is_joined);
      return last == before->notes().end() ? 0 : int(last - before->notes().begin());
    }
    users_group_.state().backward_begins();  // the others'
    try {
      use(notes);
      if (!canceled_) {
        while (launched_ < buckets_.size()) launch(launched_, true);
        start_broadcast();
        for (; landed_ < buckets_.size(); ++landed_) {
          buckets_[landed_].work.wait();
          if (buckets_[landed_].complete) buckets_[landed_].complete();
        }
        check_finite();
        if (broadcast_) broadcast_->finish();
        ++synchronized_;
      } else {
        ++stats_.canceled;
      }
    } catch (...) {
      clear_backward();
      throw;
    }
    clear_backward();
  }
}

}  // namespace gradus::dist::internal
