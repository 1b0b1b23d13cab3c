// The threads of DeviceCalls. The watcher looks at queued calls every kPeriod: at their events, the library's error, the
// job and the clock. The closer closes connections.
#include "gradus/distributed/group/internal/device_calls.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/health/still_threads.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::dist::internal {
namespace {

constexpr std::chrono::milliseconds kPeriod{5};
// A library may notice the end of a rank before the job does, which knows the rank.
constexpr Milliseconds kGrace{1'500};

}  // namespace

DeviceCalls::DeviceCalls(std::shared_ptr<Membership> membership, std::shared_ptr<PostedCalls> posted)
    : membership_(std::move(membership)), posted_(std::move(posted)) {}

DeviceCalls::~DeviceCalls() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread* thread : {&watcher_, &closer_})
    if (thread->joinable()) thread->join();
}

void DeviceCalls::watch(std::shared_ptr<Watched> call) {
  {
    const std::lock_guard lock(mutex_);
    if (!watcher_.joinable()) watcher_ = std::thread([this] { watch_calls(); });
    new_calls_.push_back(call);
    posted_->add(call->series, 1);
  }
  changed_.notify_all();
}

void DeviceCalls::retire(std::shared_ptr<DeviceCollectives> collectives) {
  {
    const std::lock_guard lock(mutex_);
    if (!closer_.joinable()) closer_ = std::thread([this] { close_connections(); });
    retired_.push_back(std::move(collectives));
  }
  changed_.notify_all();
}

void DeviceCalls::finish_closing(Milliseconds limit) {
  const Deadline end = Deadline::after(limit);
  std::unique_lock lock(mutex_);
  while (!retired_.empty() && !membership_->failed() && !end.passed()) changed_.wait_for(lock, kPeriod);
}

void DeviceCalls::watch_calls() {
  name_framework_thread("device calls");
  std::list<std::shared_ptr<Watched>> calls;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto has_news = [&] { return stop_ || !new_calls_.empty(); };
      calls.empty() ? changed_.wait(lock, has_news) : (void)changed_.wait_for(lock, kPeriod, has_news);
      calls.splice(calls.end(), new_calls_);
      if (stop_) break;
    }
    for (auto call = calls.begin(); call != calls.end();) {
      if (const std::optional<Failure> failure = find_failure(**call)) {
        end_all(calls, *failure);
        break;
      }
      if (is_done(**call))
        call = calls.erase(call);
      else
        ++call;
    }
  }
  const int rank = membership_->rank();
  if (!calls.empty()) end_all(calls, {Failure::Kind::kLeft, rank, concat("rank ", rank, " has left")});
}

// Connections whose calls are watched still have another owner.
void DeviceCalls::close_connections() {
  name_framework_thread("device calls");
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait_for(lock, retired_.empty() ? std::chrono::hours(1) : kPeriod,
                      [&] { return stop_ || !retired_.empty(); });
    const bool ends = stop_ || membership_->failed();
    const Connections all = retired_;
    lock.unlock();
    if (ends && !all.empty()) find_device_library()->abort(all);
    std::vector<const DeviceCollectives*> closed;
    for (const auto& one : all)
      if (ends || (one.use_count() == 2 && one->close())) closed.push_back(one.get());
    lock.lock();
    std::erase_if(retired_, [&](const auto& one) { return std::ranges::count(closed, one.get()) > 0; });
    if (!closed.empty()) changed_.notify_all();
    if (stop_ && retired_.empty()) return;
    if (!retired_.empty()) changed_.wait_for(lock, kPeriod, [&] { return stop_; });
  }
}

bool DeviceCalls::is_done(Watched& call) {
  try {
    if (!call.is_queued.load(std::memory_order_acquire) || !call.done.done()) return false;
  } catch (const std::exception&) {
    return false;  // find_failure() reports the device's error
  }
  posted_->add(call.series, -1);
  return true;
}

std::optional<Failure> DeviceCalls::find_failure(Watched& call) {
  const int rank = membership_->rank();
  try {
    if (call.is_queued.load(std::memory_order_acquire) && call.done.done()) return std::nullopt;
    std::string error;
    for (const auto& one : call.connections)
      if (error.empty()) error = one->error();
    if (!error.empty() && call.fails_at == TimePoint()) call.fails_at = now() + kGrace;
    if (membership_->failed()) return membership_->failure();
    if (call.fails_at != TimePoint() && now() >= call.fails_at)
      return membership_->report(
          {Failure::Kind::kFailed, -1, concat(call.text, " failed on the GPU of rank ", rank, ": ", error)});
    if (call.deadline.passed())
      return membership_->report(queued_call_timeout(call.text, {membership_.get(), call.deadline}));
  } catch (const std::exception& e) {  // of the device
    return membership_->report(
        {Failure::Kind::kFailed, rank, concat("rank ", rank, " failed in ", call.text, ": ", e.what())});
  }
  return std::nullopt;
}

void DeviceCalls::end_all(std::list<std::shared_ptr<Watched>>& calls, const Failure& failure) {
  Connections connections;
  for (const auto& call : calls) {
    Failure with_call = failure;
    with_call.text += concat("\n", call->text, " was queued on the GPU");
    try {
      throw_failure(call->op, with_call);
    } catch (...) {
      gradus::internal::native_stream(call->stream)->fail(std::current_exception());
    }
    connections.insert(connections.end(), call->connections.begin(), call->connections.end());
  }
  find_device_library()->abort(connections);
  for (const auto& call : calls) posted_->add(call->series, -1);
  calls.clear();
}

void record_use(const Tensor& x, const Stream& stream) {
  if (x.device().type != DeviceType::kCUDA || x.numel() == 0) return;
  gradus::internal::DeviceAllocator::of(x.device())
      .record_stream(x.storage()->data(), gradus::internal::native_stream(stream));
}

}  // namespace gradus::dist::internal
