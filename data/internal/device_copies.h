// DeviceCopies: batches on their way to a device.
//
// Note [Batches on their way]
// Whoever has read a batch puts it into pinned memory. The loop's thread queues its copy on a stream of the
// loader's own, while the loop still has the batch before: so it is copied while that one is computed with.
// When it is the batch's turn, the loop's current stream waits for the copy, and the host does not. Its block
// on the device belongs to the loader's stream. Kernels tell the allocator which streams use it, so that the
// next copy into it waits for them. The pinned block is used again when its copy has been made.
#pragma once

#include "gradus/data/dataset.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::data::internal {

class DeviceCopies {
 public:
  // Errors: DeviceError where there is no such device.
  explicit DeviceCopies(Device device);

  // Returns the batch where the device can copy it from by itself. On any thread.
  Batch pin(Batch batch) const;

  struct Queued {
    Batch batch;
    Event arrived;
  };
  // Queues the copy of a batch.
  Queued queue(Batch batch) const;
  // Returns the batch on the device, for what is queued on the current stream from now on.
  Batch receive(Queued queued) const;

 private:
  Device device_;
  Stream stream_;
};

}  // namespace gradus::data::internal
