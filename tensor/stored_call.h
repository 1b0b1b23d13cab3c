// StoredCall: a kernel call with copies of its arguments, so that the memory of its tensors lives until the
// call has run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "gradus/tensor/kernel.h"

namespace gradus::internal {

class StoredCall {
 public:
  // If a copy throws, the destructor runs all the same, because the delegated constructor has ended.
  explicit StoredCall(const KernelCall& call) : StoredCall(call.op, call.kernel, call.run) {
    constexpr size_t kAlign = alignof(std::max_align_t);
    size_t bytes = 0;
    for (const Argument& x : call.arguments) bytes += (x.ops->size + kAlign - 1) / kAlign * kAlign;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    copies_.reserve(call.arguments.size());
    std::byte* to = memory_.get();
    for (const Argument& x : call.arguments) {
      x.ops->copy(to, x.value);
      copies_.push_back({to, x.ops});
      to += (x.ops->size + kAlign - 1) / kAlign * kAlign;
    }
  }
  ~StoredCall() {
    for (const Argument& x : copies_) x.ops->destroy(const_cast<void*>(x.value));
  }
  StoredCall(const StoredCall&) = delete;
  StoredCall& operator=(const StoredCall&) = delete;

  void run() const { run_(kernel_, copies_.data()); }
  KernelCall call() const { return {op_, kernel_, run_, copies_}; }

 private:
  StoredCall(const char* op, void (*kernel)(), void (*run)(void (*)(), const Argument*))
      : op_(op), kernel_(kernel), run_(run) {}

  const char* op_;
  void (*kernel_)();
  void (*run_)(void (*)(), const Argument*);
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Argument> copies_;
};

// Returns the defined tensors among the arguments of a call, without ownership.
inline TensorPointers tensors_of(const KernelCall& call) {
  TensorPointers tensors;
  for (const Argument& argument : call.arguments) argument.ops->collect(tensors, argument.value);
  return tensors;
}

}  // namespace gradus::internal
