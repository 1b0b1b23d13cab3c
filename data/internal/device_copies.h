// DeviceCopies: copies batches to a device asynchronously, overlapping with computation on the previous batch.
//
// Note [Copies of batches]
// The worker that has read a batch copies it into pinned memory. The loop's thread enqueues the copy to the
// device on the loader's stream while the loop uses the previous batch. When the loop receives the batch, its
// current stream waits for the copy; the host does not. The device memory belongs to the loader's stream.
// Kernels register the streams that use it with the allocator, so that the next copy into it waits for them.
// Pinned memory is reused after its copy has completed.
#pragma once

#include "gradus/data/dataset.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::data::internal {

class DeviceCopies {
 public:
  // Errors: DeviceError if the device does not exist.
  explicit DeviceCopies(Device device);

  // Returns the batch in pinned memory; unchanged if the device is no GPU. May be called from any thread.
  Batch pin(Batch batch) const;

  struct Queued {
    Batch batch;   // on the device
    Event copied;  // completes when the batch has been copied
  };
  // Enqueues the copy of a batch to the device. Called, as receive(), in the loop's thread.
  Queued queue(Batch batch) const;
  // Makes the current stream wait for the copy, and returns the batch on the device.
  Batch receive(Queued queued) const;

 private:
  Device device_;
  Stream stream_;
};

}  // namespace gradus::data::internal
