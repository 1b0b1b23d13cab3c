// DeviceCollectives: the collectives of one group on memory of GPUs, one GPU per member. A call is queued on a stream, as
// a kernel is. Implementations:
//
//   StagedCollectives (group/internal/staged_collectives.h)   through host memory, by a Backend
//   NcclCollectives (distributed/cuda/nccl_collectives.cc)    by NCCL, which a DeviceLibrary connects
//   SingleRankOnGpu (single_rank_backend.cc)                  copies, in a group of one
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "gradus/distributed/transport/backend.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist::internal {

// Functions of Collectives return when the call is queued. One thread at a time makes calls; error() may be called by any
// thread at any time.
class DeviceCollectives : public Collectives {
 public:
  // The caller makes it the current stream. In a step that is captured, NcclCollectives and SingleRankOnGpu queue their
  // calls on another current stream of the GPU.
  virtual const Stream& stream() const = 0;
  // Queues the calls of all_reduce that f makes as one.
  virtual void together(const Call& call, const std::function<void()>& f) {
    (void)call;
    f();
  }
  // Returns what has made queued calls fail, or "".
  virtual std::string error() { return {}; }
  // Frees what the members share; all of them call it. No calls are queued here. Returns false until the others have
  // done so, too: call it again then. May wait for work that is queued on the GPU.
  virtual bool close() noexcept { return true; }
  // Registers a graph that has calls of this object: an abort destroys it first.
  virtual void add_graph(const std::shared_ptr<CapturedGraph>&) {}
};

// Connects members that have a GPU each. A program has one if it is linked with //distributed/cuda.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;

  // Returns the library's name and version. Errors: DeviceError if it is missing here.
  virtual std::string version(const char* op) = 0;
  // Returns an id that no other GPU in the world has.
  virtual std::string gpu_id(int device) = 0;
  // Whether all_reduce, reduce and reduce_scatter take this dtype and op.
  virtual bool can_reduce(DType dtype, ReduceOp op) const = 0;
  // Returns the id of a new communicator, which one member makes and all give to connect().
  virtual std::string new_id(const char* op) = 0;
  // Collective over the members. `index` is this member's, `stream` of its GPU.
  virtual std::unique_ptr<DeviceCollectives> connect(const Call& call, const std::string& id, int index,
                                                     int size, const Stream& stream) = 0;
  // Ends the queued calls of connections although other members may never take part; their results are undefined, and
  // later calls throw. A call may wait on the GPU for one of another connection: so all are ended at once. Does not wait
  // for other members. Thread-safe.
  virtual void abort(std::span<const std::shared_ptr<DeviceCollectives>> all) noexcept = 0;
};

// Returns the program's library, or null.
DeviceLibrary* find_device_library() noexcept;
// Called before main() by the initializer of a static variable. `library` has static storage duration.
void register_device_library(DeviceLibrary* library) noexcept;

}  // namespace gradus::dist::internal
