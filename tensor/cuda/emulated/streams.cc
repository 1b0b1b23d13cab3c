#include "gradus/tensor/cuda/emulated/streams.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "gradus/tensor/cuda/emulated/fault.h"
#include "gradus/tensor/cuda/emulated/memory.h"
#include "gradus/tensor/cuda/emulated/order.h"

namespace gradus::cuda::emulated {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool may_run(const CUstream_st& stream) {
  if (stream.queue.empty() || stream.running) return false;
  const auto& after = stream.queue.front().after;
  return std::all_of(after.begin(), after.end(), [](const auto& end) { return end->reached; });
}

}  // namespace

thread_local bool in_host_function = false;
thread_local int current_device = 0;

Runtime& Runtime::get() {
  static Runtime& runtime = *new Runtime;  // streams may be used while the program ends
  return runtime;
}

Runtime::Device& Runtime::device(int number) {
  const auto at = static_cast<size_t>(number);
  if (devices_.size() <= at) devices_.resize(at + 1);
  Device& d = devices_[at];
  if (!d.legacy) {
    d.legacy = std::make_unique<CUstream_st>();
    d.per_thread = std::make_unique<CUstream_st>();
    d.legacy->device = d.per_thread->device = number;
    d.legacy->id = 7, d.per_thread->id = 8;
  }
  return d;
}

cudaStream_t Runtime::stream(cudaStream_t handle) {
  if (!handle || handle == cudaStreamLegacy) return device(current_device).legacy.get();
  if (handle == cudaStreamPerThread) return device(current_device).per_thread.get();
  const auto is_it = [=](const auto& s) { return s.get() == handle && !s->destroyed; };
  if (std::any_of(streams_.begin(), streams_.end(), is_it)) return handle;
  deliver({FaultKind::kArgument,
           "gradus emulated device: a call with a stream that was destroyed, or never made" +
               host_op_and_seed()});
  return device(current_device).legacy.get();
}

cudaStream_t Runtime::create_stream(unsigned flags, int priority) {
  streams_.push_back(std::make_unique<CUstream_st>());
  CUstream_st& made = *streams_.back();
  made.device = current_device, made.flags = flags, made.priority = priority, made.id = ids_++;
  return &made;
}

void Runtime::destroy_stream(cudaStream_t stream) {
  stream->destroyed = true;
  if (is_idle(stream)) std::erase_if(streams_, [=](const auto& s) { return s.get() == stream; });
}

std::vector<cudaStream_t> Runtime::all_streams() {
  std::vector<cudaStream_t> all;
  for (const Device& d : devices_)
    if (d.legacy) all.push_back(d.legacy.get()), all.push_back(d.per_thread.get());
  for (const auto& s : streams_) all.push_back(s.get());
  return all;
}

std::shared_ptr<End> Runtime::enqueue(cudaStream_t stream, CUstream_st::Work work) {
  work.end = std::make_shared<End>();
  const Device& d = device(stream->device);
  const bool is_blocking = !(stream->flags & cudaStreamNonBlocking);
  if (stream == d.legacy.get()) {
    for (const cudaStream_t other : all_streams())
      if (other != stream && other->device == stream->device && !(other->flags & cudaStreamNonBlocking) &&
          other->last)
        work.after.push_back(other->last);
  } else if (is_blocking && d.legacy->last) {
    work.after.push_back(d.legacy->last);
  }
  stream->last = work.end;
  stream->queue.push_back(std::move(work));
  const std::shared_ptr<End> end = stream->last;
  // Now and then something runs early, as on a real device.
  if (Order(++choices_).below(4) == 0) step();
  return end;
}

void Runtime::wait_for(cudaStream_t stream, const std::shared_ptr<End>& end) {
  if (!end->reached) enqueue(stream, {nullptr, false, {end}});
}

std::shared_ptr<End> Runtime::end_of(cudaStream_t stream) { return enqueue(stream, {nullptr}); }

bool Runtime::step() {
  std::vector<cudaStream_t> able;
  for (const cudaStream_t s : all_streams())
    if (may_run(*s)) able.push_back(s);
  if (able.empty()) return false;
  const cudaStream_t stream = able[Order(++choices_).below(static_cast<uint32_t>(able.size()))];
  CUstream_st::Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (work.run && sticky == cudaSuccess) {
    // A host function may wait for other threads, which may call CUDA meanwhile.
    if (work.is_host_function) {
      stream->running = in_host_function = true;
      mutex_.unlock();
      work.run();
      mutex_.lock();
      stream->running = in_host_function = false;
    } else {
      work.run();
    }
  }
  work.end->reached = true;
  work.end->seconds = seconds() + seconds_ahead;
  if (stream->destroyed) destroy_stream(stream);
  return true;
}

void Runtime::run_until(const std::shared_ptr<End>& end) {
  while (!end->reached) {
    if (step()) continue;
    const auto all = all_streams();
    if (std::none_of(all.begin(), all.end(), [](cudaStream_t s) { return s->running; })) {
      std::fprintf(stderr, "gradus emulated device: streams wait for each other\n");
      std::abort();
    }
    mutex_.unlock();
    std::this_thread::yield();
    mutex_.lock();
  }
}

void Runtime::run_until_idle(int device) {
  std::vector<std::shared_ptr<End>> ends;
  for (const cudaStream_t s : all_streams())
    if (s->device == device && s->last) ends.push_back(s->last);
  for (const auto& end : ends) run_until(end);
}

void Runtime::reset() {
  streams_.clear();
  devices_.clear();
  sticky = cudaSuccess;
}

}  // namespace gradus::cuda::emulated
