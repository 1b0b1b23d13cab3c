// Context: the thread-local pointer to the current one, the scopes that replace it or a current stream, and
// functions on the current Context. Each thread owns a default Context, created at first use. Also
// name_thread() of observer.h.
#include "gradus/tensor/runtime/context.h"

#include <pthread.h>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {

constinit thread_local Context* Context::current_ = nullptr;

Context& Context::own() {
  static thread_local Context own;
  current_ = &own;
  return own;
}

std::shared_ptr<RandomGenerator> Context::new_generator() { return std::make_shared<RandomGenerator>(); }

Context Context::snapshot() const {
  Context copy = *this;
  copy.running_node = nullptr;  // a backward rule runs on one thread only
  copy.is_last_run = false;
  copy.capture = nullptr;  // a step runs on one thread
  copy.replays_training = false;
  return copy;
}

std::string Context::module_path_text() const {
  std::string text;
  for (const std::string* name : module_path) {
    if (name->empty()) continue;
    if (!text.empty()) text += '.';
    text += *name;
  }
  return text;
}

void name_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

ContextScope::ContextScope(Context& context) : previous_(Context::current_) {
  if (previous_ && !context.capture) context.capture = std::move(previous_->capture);
  Context::current_ = &context;
}
ContextScope::~ContextScope() {
  if (previous_ && !previous_->capture) previous_->capture = std::move(Context::current_->capture);
  Context::current_ = previous_;
}

void refuse_capture(std::string_view op, const char* reason) {
  if (recording_capture()) throw StateError(op, "cannot be captured: ", reason);
}

Stream current_stream(Device device) {
  for (const Stream& s : Context::current().streams)
    if (s.device() == device) return s;
  return Stream::of(device);
}

StreamScope::StreamScope(Stream stream) : previous_(current_stream(stream.device())) {
  auto& streams = Context::current().streams;
  std::erase_if(streams, [&](const Stream& s) { return s.device() == stream.device(); });
  streams.push_back(std::move(stream));
}

StreamScope::~StreamScope() {
  auto& streams = Context::current().streams;
  std::erase_if(streams, [&](const Stream& s) { return s.device() == previous_.device(); });
  if (!(previous_ == Stream::of(previous_.device()))) streams.push_back(previous_);
}

void manual_seed(uint64_t seed) { Context::current().generator->manual_seed(seed); }

}  // namespace gradus
