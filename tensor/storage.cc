// Storage of memory from the caching allocator of a device, or of another owner, which release() notifies.
#include "gradus/tensor/storage.h"

#include "gradus/tensor/runtime/context.h"

namespace gradus {

Ref<Storage> Storage::allocate(Device device, int64_t bytes) {
  // The memory is allocated last: an exception after the allocation would leak the block.
  Ref<Storage> storage(new Storage(device, nullptr, 0, false, {}));
  if (bytes > 0) {
    storage->data_ = gradus::allocate(device, bytes);
    storage->bytes_ = bytes;
  }
  if (Capture* capture = recording_capture()) capture->allocated(*storage);
  return storage;
}

Ref<Storage> Storage::adopt(Device device, void* data, int64_t bytes, std::function<void()> release) {
  return Ref<Storage>(new Storage(device, data, bytes, true, std::move(release)));
}

void Storage::move_into(Ref<Storage> arena, int64_t offset) {
  release_memory();
  data_ = static_cast<char*>(arena->data()) + offset;
  external_ = true;
  release_ = [arena = std::move(arena)] {};
}

void Storage::release_memory() {
  if (!external_) {
    if (bytes_ > 0) deallocate(device_, data_, bytes_);
  } else if (release_) {
    release_();
  }
}

Storage::~Storage() { release_memory(); }

}  // namespace gradus
