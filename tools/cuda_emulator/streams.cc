// Implementation of streams.h: queues of work, and the choice of what runs next.
#include "gradus/tools/cuda_emulator/streams.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/cuda_emulator/pinned.h"

namespace gradus::cuda::emulated {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// `is_lost`: whether an error ended the device. Then work ends without running, and waits for no other rank.
bool may_run(const CUstream_st& stream, bool is_lost) {
  if (stream.queue.empty() || stream.running) return false;
  const Work& work = stream.queue.front();
  if (!std::all_of(work.after.begin(), work.after.end(), [](const auto& end) { return end->reached; }))
    return false;
  return !work.is_ready || is_lost || work.is_ready();
}

bool waits_for_ranks(const CUstream_st& stream) {
  return !stream.queue.empty() && stream.queue.front().is_ready;
}

// Returns whether the memory of a copy or a fill still exists. Delivers a fault if it was freed after the
// work was queued or captured.
bool are_there(const Work& work) {
  for (const GradusEmulatedRange& range : work.ranges) {
    if (is_there(range)) continue;
    const DeviceMemory* memory = device_that_holds(range.p);
    deliver({memory ? FaultKind::kOutOfBounds : FaultKind::kHostMemory,
             std::string("gradus emulated device: a copy or a fill ") +
                 (range.is_written ? "writes " : "reads ") + std::to_string(range.bytes) +
                 " bytes of memory that is gone\n  memory " +
                 (memory ? "device " + std::to_string(device_number(memory)) + ", " +
                               memory->describe(memory->offset(memory->for_kernels(range.p)))
                         : "of the host, which was pinned") +
                 "\n  repeat with GRADUS_EMULATED_SEED=" + std::to_string(seed())});
    return false;
  }
  return true;
}

}  // namespace

bool is_there(const GradusEmulatedRange& range) {
  if (const DeviceMemory* memory = device_that_holds(range.p))
    return memory->is_within_a_block(range.p, range.bytes);
  return !range.is_pinned || is_pinned(range.p, range.bytes);
}

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
    d.legacy->id = CUstream_st::kLegacy, d.per_thread->id = CUstream_st::kLegacy + 1;
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

std::shared_ptr<End> Runtime::append(cudaStream_t stream, Work work) {
  work.end = stream->last = std::make_shared<End>();
  stream->queue.push_back(std::move(work));
  return stream->last;
}

std::shared_ptr<End> Runtime::enqueue(cudaStream_t stream, Work work) {
  if (stream->capture) return captures.add(stream, std::move(work)), nullptr;
  const Device& d = device(stream->device);
  if (stream->is_legacy()) {
    for (const cudaStream_t other : all_streams())
      if (other != stream && other->device == stream->device && other->is_blocking() && other->last)
        work.after.push_back(other->last);
  } else if (stream->is_blocking() && d.legacy->last) {
    work.after.push_back(d.legacy->last);
  }
  const std::shared_ptr<End> end = append(stream, std::move(work));
  // One time in four some queued work runs at once, as on a real device.
  if (Order(++choices_).below(4) == 0) step();
  return end;
}

// Each node runs on a temporary stream, so that only the graph's edges order the nodes.
void Runtime::launch(CUgraphExec_st& graph, cudaStream_t stream) {
  Work begin, end;
  if (graph.last) begin.after.push_back(graph.last);
  const std::shared_ptr<End> begun = enqueue(stream, std::move(begin));
  std::map<cudaGraphNode_t, std::shared_ptr<End>> ends;
  for (const auto& node : graph.graph->nodes) {
    Work work = node->work;
    if (work.on_launch) work.on_launch();
    work.after.push_back(begun);
    for (const cudaGraphNode_t before : node->after) work.after.push_back(ends.at(before));
    streams_.push_back(std::make_unique<CUstream_st>(
        CUstream_st{.device = node->device, .flags = cudaStreamNonBlocking, .destroyed = true}));
    ends[node.get()] = append(streams_.back().get(), std::move(work));
    end.after.push_back(ends[node.get()]);
  }
  graph.last = enqueue(stream, std::move(end));
}

void Runtime::wait_for(cudaStream_t stream, const std::shared_ptr<End>& end) {
  if (!end->reached) enqueue(stream, {.run = nullptr, .after = {end}});
}

std::shared_ptr<End> Runtime::end_of(cudaStream_t stream) { return enqueue(stream, {nullptr}); }

bool Runtime::step() {
  std::vector<cudaStream_t> able;
  const auto all = all_streams();
  for (const cudaStream_t s : all)
    if (may_run(*s, sticky != cudaSuccess)) able.push_back(s);
  if (able.empty()) {
    const bool is_running = std::any_of(all.begin(), all.end(), [](cudaStream_t s) { return s->running; });
    return on_stall && !is_running && on_stall();
  }
  const cudaStream_t stream = able[Order(++choices_).below(static_cast<uint32_t>(able.size()))];
  Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (work.run && sticky == cudaSuccess && are_there(work)) {
    // A host function runs without the lock: it may wait for other threads, which may call CUDA.
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
    const bool is_running = std::any_of(all.begin(), all.end(), [](cudaStream_t s) { return s->running; });
    if (!is_running && std::none_of(all.begin(), all.end(), [](auto s) { return waits_for_ranks(*s); })) {
      std::fprintf(stderr, "gradus emulated device: streams wait for each other\n");
      std::abort();
    }
    mutex_.unlock();
    if (is_running)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
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
  captures = {};
  graphs.clear();
  executable_graphs.clear();
  streams_.clear();
  devices_.clear();
  sticky = cudaSuccess;
}

}  // namespace gradus::cuda::emulated
