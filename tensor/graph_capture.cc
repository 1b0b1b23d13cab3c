// GraphCapture: which tensors of a step exist before it, and the calls of the device's runtime.
#include "gradus/tensor/graph_capture.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/stored_call.h"

namespace gradus::internal {

class GraphCapture::Graph final : public CapturedGraph {
 public:
  Graph(DeviceRuntime& runtime, DeviceRuntime::GraphHandle handle) : runtime_(runtime), handle_(handle) {}
  ~Graph() override { destroy(); }

  void destroy() noexcept override {
    const std::lock_guard lock(mutex_);
    if (handle_) runtime_.destroy_graph(std::exchange(handle_, nullptr));
  }
  bool is_destroyed() {
    const std::lock_guard lock(mutex_);
    return !handle_;
  }
  void launch(DeviceRuntime::StreamHandle stream) {
    const std::lock_guard lock(mutex_);
    if (!handle_) throw StateError("CapturedStep", "a failure of the job has ended the recording");
    runtime_.launch(handle_, stream);
  }

 private:
  DeviceRuntime& runtime_;
  std::mutex mutex_;
  DeviceRuntime::GraphHandle handle_;
};

GraphCapture::GraphCapture(const Stream& stream) : stream_(stream), native_(native_stream(stream)) {
  native_->set_keeps_memory(true);
}

GraphCapture::~GraphCapture() {
  if (graph_) graph_->destroy();
  native_->set_keeps_memory(false);
  if (side_) native_stream(*side_)->set_keeps_memory(false);
}

Device GraphCapture::device() const { return native_->device(); }
bool GraphCapture::is_recording() const { return native_->is_capturing(); }

void GraphCapture::add(const KernelCall& call) {
  for (const Tensor* x : tensors_of(call)) use(x->storage());
}

void GraphCapture::use(const Ref<Storage>& storage) {
  if (!own_.contains(storage.get()))
    known_.try_emplace(storage.get(), KnownStorage{storage, storage->version()});
}

Stream GraphCapture::side_stream() {
  if (!side_) {
    side_ = Stream::create(device());
    side_->wait(Event::record(stream_));
    native_stream(*side_)->set_capturing(true);
    native_stream(*side_)->set_keeps_memory(true);
  }
  return *side_;
}

void GraphCapture::allocated(const Storage& storage) {
  if (storage.device() != device()) return;
  const Stream current = current_stream(device());
  if (current != stream_ && current != side_)
    throw StateError("empty", "cannot be captured: it is used on another stream than the step");
  own_.insert(&storage);
}

void GraphCapture::run_on_host(const char* op, std::function<void()>) {
  throw StateError(op, "cannot be captured on ", device(),
                   ": it computes on the host, which takes no part in a replay");
}

void GraphCapture::begin() { native_->begin_capture(); }

void GraphCapture::end() {
  if (side_) stream_.wait(Event::record(*side_));
  graph_ = std::make_shared<Graph>(native_->runtime(), native_->end_capture());
  end_streams();
  if (replay_hook) replay_hook->recorded(graph_);
  for (const auto& [storage, known] : known_)
    if (storage->version() != known.version) written_.push_back(known.storage);
}

void GraphCapture::end_streams() noexcept {
  DeviceAllocator* const allocator = DeviceAllocator::find(device());  // null: not used yet
  if (side_) native_stream(*side_)->set_capturing(false);
  if (allocator && side_) allocator->capture_ended(native_stream(*side_));
  if (allocator) allocator->capture_ended(native_);
}

void GraphCapture::discard() noexcept {
  try {
    if (native_->is_capturing()) native_->runtime().destroy_graph(native_->end_capture());
  } catch (const std::exception&) {
    // The capture was invalid, and has ended.
  }
  end_streams();
  if (replay_hook) replay_hook->failed(std::current_exception());
}

bool GraphCapture::launch() {
  const auto launch = [&] { graph_->launch(native_->handle()); };
  if (!replay_hook)
    launch();
  else if (!replay_hook->replay(launch))
    return false;
  for (const Ref<Storage>& storage : written_) storage->bump_version();
  for (const auto& f : after_replay_) f();
  return true;
}

bool GraphCapture::is_current() const {
  return graph_ && !graph_->is_destroyed() && is_valid() &&
         std::ranges::none_of(known_, [](const auto& known) { return known.first->is_replaced(); });
}

}  // namespace gradus::internal
