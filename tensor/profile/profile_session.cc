#include "gradus/tensor/profile/profile_session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "gradus/tensor/flops.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/job.h"

namespace gradus::internal {
namespace {

// Returns the bytes that reading x moves. A broadcast operand is read once, however often its
// elements are repeated.
int64_t bytes_of(const Tensor& x) { return std::min(x.nbytes(), x.storage()->bytes()); }

// Returns "f32[32,64] f32[64,10]" for the first few tensors. An optimizer's step has hundreds.
std::string shapes_of(std::span<const Tensor* const> tensors) {
  constexpr size_t kShown = 6;
  std::string text;
  for (const Tensor* x : tensors.first(std::min(tensors.size(), kShown))) {
    if (!text.empty()) text += ' ';
    text += name_of(x->dtype());
    char mark = '[';
    for (const int64_t n : x->shape()) {
      text += mark;
      text += std::to_string(n);
      mark = ',';
    }
    text += mark == '[' ? "[]" : "]";
  }
  if (tensors.size() > kShown) text += concat(" ... (", tensors.size(), ')');
  return text;
}

// Returns the name that name_thread gave this thread. Without it a new thread has its creator's name, and in
// the end the program's.
std::string own_thread_name() {
  if (::gettid() == ::getpid()) return "main";
  char name[16] = "", program[16] = "";
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  const std::string path = program_invocation_short_name;
  std::copy_n(path.data(), std::min<size_t>(path.size(), 15), program);
  return *name && std::string(name) != program ? name : concat("thread ", ::gettid());
}

}  // namespace

int Names::id_of(std::string_view text) {
  const auto [it, fresh] = ids_.try_emplace(std::string(text), static_cast<int>(texts_.size()));
  if (fresh) texts_.push_back(it->first);
  return it->second;
}

int64_t ProfileSession::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int ProfileSession::this_thread(int rank) {
  const auto [it, fresh] =
      thread_index_.try_emplace(std::this_thread::get_id(), static_cast<int>(threads_.size()));
  if (fresh) threads_.push_back({own_thread_name(), rank, ::gettid()});
  return it->second;
}

int64_t ProfileSession::announce(const Range& range) {
  if (!active_.load(std::memory_order_relaxed)) return -1;
  const std::string shapes = shapes_of(range.tensors);
  int64_t bytes = range.bytes, flops = 0;
  for (const Tensor* x : range.tensors) bytes += bytes_of(*x);
  if (range.kind == RangeKind::kKernel) flops = kernel_flops(range.name, range.tensors);
  const int rank = Job::current()->rank;

  const std::lock_guard lock(mutex_);
  ProfileEvent event{.kind = range.kind,
                     .in_backward = range.kind == RangeKind::kBackward,
                     .name = names_.id_of(range.name),
                     .shapes = names_.id_of(shapes),
                     .module = names_.id_of(range.module),
                     .kernel = names_.id_of(""),
                     .thread = this_thread(rank),
                     .bytes = bytes,
                     .flops = flops};
  const std::vector<int64_t>& open = threads_[static_cast<size_t>(event.thread)].open;
  if (!open.empty()) {
    const ProfileEvent& around = events_[static_cast<size_t>(open.back() - first_)];
    event.in_backward |= around.in_backward;
    if (range.module.empty()) event.module = around.module;
  }
  events_.push_back(event);
  return first_ + static_cast<int64_t>(events_.size()) - 1;
}

void ProfileSession::begin(int64_t id) {
  const std::lock_guard lock(mutex_);
  if (id < first_) return;
  ProfileEvent& event = events_[static_cast<size_t>(id - first_)];
  event.thread = this_thread(threads_[static_cast<size_t>(event.thread)].rank);
  std::vector<int64_t>& open = threads_[static_cast<size_t>(event.thread)].open;
  event.parent = open.empty() ? -1 : open.back();
  open.push_back(id);
  event.begin = now();
}

void ProfileSession::end(int64_t id) noexcept {
  const int64_t at = now();
  const std::lock_guard lock(mutex_);
  if (id < first_) return;
  ProfileEvent& event = events_[static_cast<size_t>(id - first_)];
  event.end = at;
  ProfileThread& thread = threads_[static_cast<size_t>(event.thread)];
  std::erase(thread.open, id);
  if (!event.is_work()) return;
  for (int64_t outer = event.parent; outer >= 0;
       outer = events_[static_cast<size_t>(outer - first_)].parent) {
    ProfileEvent& around = events_[static_cast<size_t>(outer - first_)];
    if (!around.is_work()) continue;
    around.inner += at - event.begin;
    break;
  }
}

void ProfileSession::chose(std::string_view kernel) {
  if (!active_.load(std::memory_order_relaxed)) return;
  const int rank = Job::current()->rank;
  const std::lock_guard lock(mutex_);
  const std::vector<int64_t>& open = threads_[static_cast<size_t>(this_thread(rank))].open;
  if (open.empty()) return;
  ProfileEvent& event = events_[static_cast<size_t>(open.back() - first_)];
  std::string kernels = names_[event.kernel];
  if (kernels.ends_with(kernel)) return;  // once more, in a loop
  if (!kernels.empty()) kernels += ", ";
  event.kernel = names_.id_of(kernels.append(kernel));
}

void ProfileSession::allocated(Device device) {
  if (device.type == DeviceType::kMeta || !active_.load(std::memory_order_relaxed)) return;
  const int64_t live = memory_stats(device).live_bytes, at = now();
  const int rank = Job::current()->rank;
  const std::lock_guard lock(mutex_);
  const std::vector<int64_t>& open = threads_[static_cast<size_t>(this_thread(rank))].open;
  memory_.push_back({device, rank, at, live, open.empty() ? -1 : open.back()});
}

bool ProfileSession::is_scheduled() const {
  return steps_ >= options_.skip && (options_.steps == 0 || steps_ - options_.skip < options_.steps);
}

void ProfileSession::update_active() {
  const bool active = open_ && is_scheduled();
  if (active == active_.load(std::memory_order_relaxed)) return;
  active_.store(active, std::memory_order_relaxed);
  if (active)
    active_since_ = now();
  else
    recorded_ += now() - active_since_;
}

void ProfileSession::open() {
  const int rank = Job::current()->rank;
  const std::lock_guard lock(mutex_);
  if (open_)
    throw StateError("Profiler", "records already: end the scope that record() gave before the next");
  threads_[static_cast<size_t>(this_thread(rank))].records = true;
  open_ = true;
  observers.fetch_add(1, std::memory_order_relaxed);
  update_active();
}

void ProfileSession::close() {
  const std::lock_guard lock(mutex_);
  open_ = false;
  observers.fetch_sub(1, std::memory_order_relaxed);
  update_active();
}

void ProfileSession::step() {
  const std::lock_guard lock(mutex_);
  ++steps_;
  if (active_.load(std::memory_order_relaxed)) ++steps_recorded_;
  update_active();
}

void ProfileSession::clear() {
  const std::lock_guard lock(mutex_);
  first_ += static_cast<int64_t>(events_.size());
  events_.clear();
  memory_.clear();
  for (ProfileThread& thread : threads_) thread.open.clear();
  steps_ = steps_recorded_ = recorded_ = 0;
  if (active_.load(std::memory_order_relaxed)) active_since_ = now();
  update_active();
}

ProfileSession::Snapshot ProfileSession::snapshot() const {
  const std::lock_guard lock(mutex_);
  const int64_t under_way = active_.load(std::memory_order_relaxed) ? now() - active_since_ : 0;
  Snapshot s{names_, events_, threads_, memory_, recorded_ + under_way, steps_recorded_};
  for (ProfileEvent& event : s.events) event.parent = event.parent < first_ ? -1 : event.parent - first_;
  for (MemorySample& sample : s.memory) sample.event = sample.event < first_ ? -1 : sample.event - first_;
  return s;
}

}  // namespace gradus::internal
