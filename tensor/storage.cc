#include "gradus/tensor/storage.h"

namespace gradus {

Ref<Storage> Storage::allocate(Device device, int64_t bytes) {
  void* data = bytes == 0 ? nullptr : gradus::allocate(device, bytes);
  return Ref<Storage>(new Storage(device, data, bytes, false, {}));
}

Ref<Storage> Storage::adopt(Device device, void* data, int64_t bytes, std::function<void()> release) {
  return Ref<Storage>(new Storage(device, data, bytes, true, std::move(release)));
}

Storage::~Storage() {
  if (!external_) {
    if (bytes_ > 0) deallocate(device_, data_, bytes_);
  } else if (release_) {
    release_();
  }
}

}  // namespace gradus
