// Placement: the placements of a thread form a stack, linked by outer_. The first construction of a model
// stores the names of its tensors; in the second one the i-th tensor gets the device of the i-th stored name.
#include "gradus/nn/placement.h"

#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::nn::internal {
namespace {

constinit thread_local Placement* innermost = nullptr;

}  // namespace

Placement::Placement() : outer_(std::exchange(innermost, this)) {}
Placement::Placement(std::vector<std::string> names, DeviceOf device_of)
    : expected_(std::move(names)), device_of_(std::move(device_of)), outer_(std::exchange(innermost, this)) {}
Placement::~Placement() { innermost = outer_; }

Placement* Placement::current() { return innermost; }

Device Placement::next_device() const {
  if (!device_of_) return Device{DeviceType::kMeta};
  const size_t i = registered_.size();
  return i < expected_.size() ? device_of_(expected_[i]) : Device{DeviceType::kMeta};
}

Device Placement::register_tensor(const std::string& name) {
  const size_t i = registered_.size();
  if (device_of_ && (i >= expected_.size() || expected_[i] != name))
    throw StateError("Module", "the model was built once more, and has '", name, "' where it had ",
                     i < expected_.size() ? "'" + expected_[i] + "'" : "nothing more",
                     ": build the same model every time");
  const Device device = next_device();
  registered_.push_back(name);
  return device;
}

Device initial_device() {
  const Placement* p = Placement::current();
  return p ? p->next_device() : Context::current().device;
}

}  // namespace gradus::nn::internal
