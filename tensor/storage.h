// Storage: the bytes that one or more tensors view, their device, and a version that in-place writes bump.
#pragma once

#include <functional>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/allocator.h"

namespace gradus {

class Storage final : public Counted {
 public:
  // Takes `bytes` (may be 0) from the device's caching allocator; contents are unspecified.
  static Ref<Storage> allocate(Device device, int64_t bytes);
  // Adopts memory of another owner. `release` (may be empty) runs when the last tensor is gone.
  static Ref<Storage> adopt(Device device, void* data, int64_t bytes, std::function<void()> release);

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_external() const { return external_; }

  uint32_t version() const { return version_.load(std::memory_order_acquire); }
  void bump_version() { version_.fetch_add(1, std::memory_order_acq_rel); }

  // What kernels keep beside the contents: weights in a library's own layout. Kernels guard it with a lock of
  // their own. It is freed with the bytes.
  Ref<Counted> companion;
  // The contents in another dtype, which autocast keeps. Autocast guards it with a lock of its own.
  Ref<Counted> cast;

 private:
  Storage(Device device, void* data, int64_t bytes, bool external, std::function<void()> release)
      : data_(data), bytes_(bytes), device_(device), external_(external), release_(std::move(release)) {}
  ~Storage() override;

  void* data_;
  int64_t bytes_;
  Device device_;
  bool external_;
  std::atomic<uint32_t> version_{0};
  std::function<void()> release_;
};

}  // namespace gradus
