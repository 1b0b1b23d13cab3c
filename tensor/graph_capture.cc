// GraphCapture: which tensors of a step exist before it, and the calls of the device's runtime.
#include "gradus/tensor/graph_capture.h"

#include <algorithm>
#include <exception>

#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/stored_call.h"

namespace gradus::internal {

GraphCapture::GraphCapture(const Stream& stream) : native_(native_stream(stream)) {
  native_->set_keeps_memory(true);
}

GraphCapture::~GraphCapture() {
  if (graph_) native_->runtime().destroy_graph(graph_);
  native_->set_keeps_memory(false);
}

Device GraphCapture::device() const { return native_->device(); }
bool GraphCapture::is_recording() const { return native_->is_capturing(); }

void GraphCapture::add(const KernelCall& call) {
  for (const Tensor* x : tensors_of(call)) {
    const Ref<Storage>& storage = x->storage();
    if (!own_.contains(storage.get()))
      known_.try_emplace(storage.get(), KnownStorage{storage, storage->version()});
  }
}

void GraphCapture::allocated(const Storage& storage) {
  if (storage.device() != device()) return;
  if (current_native_stream(device()) != native_)
    throw StateError("empty", "cannot be captured: it is used on another stream than the step");
  own_.insert(&storage);
}

void GraphCapture::run_on_host(const char* op, std::function<void()>) {
  throw StateError(op, "cannot be captured on ", device(),
                   ": it computes on the host, which takes no part in a replay");
}

void GraphCapture::begin() { native_->begin_capture(); }

void GraphCapture::end() {
  graph_ = native_->end_capture();
  for (const auto& [storage, known] : known_)
    if (storage->version() != known.version) written_.push_back(known.storage);
}

void GraphCapture::discard() noexcept {
  try {
    if (!native_->is_capturing()) return;
    native_->runtime().destroy_graph(native_->end_capture());
  } catch (const std::exception&) {
    // The capture was invalid, and has ended.
  }
}

void GraphCapture::launch() {
  native_->runtime().launch(graph_, native_->handle());
  for (const Ref<Storage>& storage : written_) storage->bump_version();
  for (const auto& f : after_replay_) f();
}

bool GraphCapture::is_current() const {
  return graph_ && is_valid() &&
         std::ranges::none_of(known_, [](const auto& known) { return known.first->is_replaced(); });
}

}  // namespace gradus::internal
