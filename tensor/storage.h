// Storage: a block of memory shared by the tensors that view it, with its device and a version counter that
// in-place writes increment.
#pragma once

#include <functional>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/allocator.h"

namespace gradus {

class Storage final : public Counted {
 public:
  // Allocates `bytes` (may be 0) from the device's caching allocator; contents are unspecified.
  // Errors: as gradus::allocate.
  static Ref<Storage> allocate(Device device, int64_t bytes);
  // Wraps memory of another owner on `device`. `release` (may be empty) is called when the last reference is
  // released, on the thread that releases it.
  static Ref<Storage> adopt(Device device, void* data, int64_t bytes, std::function<void()> release);

  // Releases this storage's memory, and continues with `bytes()` bytes of `arena` at `offset`. The contents are
  // unspecified. No other thread may use the storage.
  void move_into(Ref<Storage> arena, int64_t offset);

  void* data() const { return data_; }  // null for 0 bytes, and on meta
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_external() const { return external_; }  // from adopt()

  uint32_t version() const { return version_.load(std::memory_order_acquire); }
  void bump_version() { version_.fetch_add(1, std::memory_order_acq_rel); }

  // Whether a module has given its tensors another storage (Module::to).
  bool is_replaced() const { return replaced_.load(std::memory_order_relaxed); }
  void set_replaced() { replaced_ = true; }

  // Data of kernels that belongs to the contents: copies of weights in oneDNN's layouts (guarded by a lock in
  // cpu/onednn/onednn.cc), or the rows of a sparse gradient (autograd/graph/sparse_gradient.cc). Null: none.
  Ref<Counted> kernel_data;
  // Data of autograd that belongs to the contents: the cast that autocast caches (guarded by its lock), the mark
  // of a scaled gradient, or the mark that all elements are 1. Null: none.
  Ref<Counted> autograd_data;

 private:
  Storage(Device device, void* data, int64_t bytes, bool external, std::function<void()> release)
      : data_(data), bytes_(bytes), device_(device), external_(external), release_(std::move(release)) {}
  ~Storage() override;
  void release_memory();

  void* data_;
  int64_t bytes_;
  Device device_;
  bool external_;
  std::atomic<uint32_t> version_{0};
  std::atomic<bool> replaced_{false};
  std::function<void()> release_;
};

}  // namespace gradus
