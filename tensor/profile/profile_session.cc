// ProfileSession: stores the events (ranges of kernels, modules, backward rules, collectives, user code) that
// the runtime announces to the Profiler, with their nesting per thread, host times, and GPU times from pairs
// of CUDA events on the kernel's stream. Ids count events since construction, so ids from before clear() stay
// invalid. mutex_ guards all records and is released before calls of the device runtime, which may block.
#include "gradus/tensor/profile/profile_session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "gradus/tensor/flops.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/job.h"

namespace gradus::internal {
namespace {

// Returns the bytes of x's memory that a kernel accesses. Broadcast elements are counted once.
int64_t bytes_of(const Tensor& x) { return std::min(x.nbytes(), x.storage()->bytes()); }

// Returns "f32[32,64] f32[64,10]" for the first 6 tensors. An optimizer step has hundreds.
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

// Returns the GPU on which a kernel runs; kCPU for other ranges.
Device device_of(const Range& range) {
  if (range.kind != RangeKind::kKernel || range.tensors.empty()) return kCPU;
  const Device device = range.tensors.front()->device();
  return device.type == DeviceType::kCUDA ? device : kCPU;
}

// Returns "main", the name set by name_thread, or "thread <id>". A thread that was not named inherits its
// creator's name, which is the program's.
std::string own_thread_name() {
  if (::gettid() == ::getpid()) return "main";
  char name[16] = "", program[16] = "";
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  const std::string path = program_invocation_short_name;
  std::copy_n(path.data(), std::min<size_t>(path.size(), 15), program);
  return *name && std::string(name) != program ? name : concat("thread ", ::gettid());
}

}  // namespace

int InternedStrings::id_of(std::string_view text) {
  const auto [it, fresh] = ids_.try_emplace(std::string(text), static_cast<int>(texts_.size()));
  if (fresh) texts_.push_back(it->first);
  return it->second;
}

int ProfileSession::this_thread(int rank) {
  const auto [it, fresh] =
      thread_index_.try_emplace(std::this_thread::get_id(), static_cast<int>(threads_.size()));
  if (fresh) threads_.push_back({own_thread_name(), rank, ::gettid()});
  return it->second;
}

// Appends an event for the range. Module and in_backward are inherited from the enclosing event.
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
                     .runs_on = device_of(range),
                     .bytes = bytes,
                     .flops = flops};
  const std::vector<int64_t>& open = threads_[static_cast<size_t>(event.thread)].open;
  if (!open.empty()) {
    const ProfileEvent& enclosing = events_[static_cast<size_t>(open.back() - first_)];
    event.in_backward |= enclosing.in_backward;
    if (range.module.empty()) event.module = enclosing.module;
  }
  events_.push_back(event);
  return first_ + static_cast<int64_t>(events_.size()) - 1;
}

// Profiling must not make the program fail: errors of the device runtime are kept for the snapshot.
template <class F> void ProfileSession::call_device(F&& f) noexcept {
  try {
    f();
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    if (device_error_.empty()) device_error_ = e.what();
  }
}

// Called on the thread that runs the event, which may differ from the announcing one.
void ProfileSession::begin(int64_t id) {
  Device device;
  {
    const std::lock_guard lock(mutex_);
    ProfileEvent* const event = find(id);
    if (!event) return;
    event->thread = this_thread(threads_[static_cast<size_t>(event->thread)].rank);
    std::vector<int64_t>& open = threads_[static_cast<size_t>(event->thread)].open;
    event->parent = open.empty() ? -1 : open.back();
    open.push_back(id);
    event->host.begin = host_time();
    device = event->runs_on;
  }
  if (device == kCPU) return;
  call_device([&] {
    const auto stream = current_stream_times(id, device);
    if (!stream) return;
    collect(*stream);  // keeps the number of pending events low
    stream->mark(id, StreamTimes::kBegin);
  });
  // The launch begins after the marking, whose time is not the kernel's.
  const std::lock_guard lock(mutex_);
  if (ProfileEvent* const event = find(id)) event->host.begin = host_time();
}

void ProfileSession::end(int64_t id) noexcept {
  const int64_t at = host_time();
  std::shared_ptr<StreamTimes> stream;
  {
    const std::lock_guard lock(mutex_);
    ProfileEvent* const event = find(id);
    if (!event) return;
    event->host.end = at;
    ProfileThread& thread = threads_[static_cast<size_t>(event->thread)];
    std::erase(thread.open, id);
    if (!event->is_work()) return;
    // Time in nested work does not count as the enclosing event's own.
    if (ProfileEvent* const enclosing = work_around(*event)) enclosing->host.inner += event->host.length();
    if (event->stream >= 0) stream = streams_[static_cast<size_t>(event->stream)];
  }
  if (stream) call_device([&] { stream->mark(id, StreamTimes::kEnd); });
}

// Pointers stay valid until the lock is released.
ProfileEvent* ProfileSession::find(int64_t id) {
  return id < first_ ? nullptr : &events_[static_cast<size_t>(id - first_)];
}

ProfileEvent* ProfileSession::work_around(const ProfileEvent& event) {
  for (int64_t outer = event.parent; outer >= 0;) {
    ProfileEvent* const enclosing = find(outer);
    if (!enclosing || enclosing->is_work()) return enclosing;
    outer = enclosing->parent;
  }
  return nullptr;
}

// Returns the times of the thread's current stream on the device, and assigns the stream to the event. Null
// if clear() has removed the event.
std::shared_ptr<StreamTimes> ProfileSession::current_stream_times(int64_t id, Device device) {
  const std::shared_ptr<NativeStream> native = current_native_stream(device);
  const std::lock_guard lock(mutex_);
  ProfileEvent* const event = find(id);
  if (!event) return nullptr;
  auto it = stream_index_.find(native);
  if (it == stream_index_.end()) {
    const auto others = std::ranges::count_if(streams_, [&](const auto& s) { return s->device == device; });
    streams_.push_back(std::make_shared<StreamTimes>(native, static_cast<int>(others) + 1));
    it = stream_index_.emplace(native, static_cast<int>(streams_.size()) - 1).first;
  }
  event->stream = it->second;
  return streams_[static_cast<size_t>(it->second)];
}

// Stores the device times of all marks of the stream that have happened. Does not block. A mark whose time
// fails is removed, so the loop ends.
void ProfileSession::collect(StreamTimes& stream) noexcept {
  const auto store = [this](int64_t id, StreamTimes::Side side, int64_t ns) {
    const std::lock_guard lock(mutex_);
    ProfileEvent* const event = find(id);
    if (!event) return;
    if (side == StreamTimes::kBegin) {
      event->device.begin = ns;
    } else if (event->device.begin >= 0) {
      event->device.end = ns;
      ProfileEvent* const enclosing = work_around(*event);
      if (enclosing && enclosing->stream == event->stream) enclosing->device.inner += event->device.length();
    }
  };
  bool all = false;
  while (!all)
    call_device([&] {
      stream.collect(store);
      all = true;
    });
}

void ProfileSession::wait_for_devices() {
  std::vector<std::shared_ptr<StreamTimes>> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) {
    call_device([&] { stream->wait(); });
    collect(*stream);
  }
}

// Appends the name of an algorithm to the thread's innermost open event.
void ProfileSession::algorithm_selected(std::string_view kernel) {
  if (!active_.load(std::memory_order_relaxed)) return;
  const int rank = Job::current()->rank;
  const std::lock_guard lock(mutex_);
  const std::vector<int64_t>& open = threads_[static_cast<size_t>(this_thread(rank))].open;
  if (open.empty()) return;
  ProfileEvent& event = events_[static_cast<size_t>(open.back() - first_)];
  std::string kernels = names_[event.kernel];
  if (kernels.ends_with(kernel)) return;  // repeated calls in a loop
  if (!kernels.empty()) kernels += ", ";
  event.kernel = names_.id_of(kernels.append(kernel));
}

void ProfileSession::allocated(Device device) {
  if (device.type == DeviceType::kMeta || !active_.load(std::memory_order_relaxed)) return;
  const int64_t live = memory_stats(device).live_bytes, at = host_time();
  const int rank = Job::current()->rank;
  const std::lock_guard lock(mutex_);
  const std::vector<int64_t>& open = threads_[static_cast<size_t>(this_thread(rank))].open;
  memory_.push_back({device, rank, at, live, open.empty() ? -1 : open.back()});
}

// Returns whether the current step is to be recorded: options_.steps steps (0: all) after options_.skip.
bool ProfileSession::is_scheduled() const {
  return steps_ >= options_.skip && (options_.steps == 0 || steps_ - options_.skip < options_.steps);
}

// Starts or ends a recording interval. Called with the lock held, after changes of open_ or steps_.
void ProfileSession::update_active() {
  const bool active = open_ && is_scheduled();
  if (active == active_.load(std::memory_order_relaxed)) return;
  active_.store(active, std::memory_order_relaxed);
  if (active)
    active_since_ = host_time();
  else
    recorded_ += host_time() - active_since_;
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
  streams_.clear();
  stream_index_.clear();
  device_error_.clear();
  for (ProfileThread& thread : threads_) thread.open.clear();
  steps_ = steps_recorded_ = recorded_ = 0;
  if (active_.load(std::memory_order_relaxed)) active_since_ = host_time();
  update_active();
}

// In the copy, ids are indices into `events`, and device times are on the host clock.
ProfileSession::Snapshot ProfileSession::snapshot() const {
  const std::lock_guard lock(mutex_);
  const int64_t under_way = active_.load(std::memory_order_relaxed) ? host_time() - active_since_ : 0;
  Snapshot s{names_, events_, threads_, {}, device_error_, memory_, recorded_ + under_way, steps_recorded_};
  for (const auto& stream : streams_) s.streams.push_back({stream->device, stream->number});
  for (ProfileEvent& event : s.events) {
    event.parent = event.parent < first_ ? -1 : event.parent - first_;
    if (!event.device.has_ended()) continue;
    const int64_t start = streams_[static_cast<size_t>(event.stream)]->start();
    event.device.begin += start;
    event.device.end += start;
  }
  for (MemorySample& sample : s.memory) sample.event = sample.event < first_ ? -1 : sample.event - first_;
  return s;
}

}  // namespace gradus::internal
