// GraphCapture: a step on a GPU as a CUDA graph, whose launch queues all kernels of the step in one call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::internal {

// Note [Memory of a graph]
// A graph names addresses, so the memory of its intermediate results must serve no other tensor. They are
// allocated on a stream of the capture's own, whose free memory the allocator gives to no other stream while
// the GraphCapture exists (NativeStream::keeps_memory). Within a capture the allocator reuses blocks in the
// order of the stream, in which the graph runs its kernels. The side stream has free memory of its own in the same
// way; a block that both streams use is reused after the capture. Tensors from before the capture are kept alive by it.
// A graph is launched on the same stream, so that memory that is freed later waits for the launch.
class GraphCapture final : public Capture {
 public:
  // `stream`, of a GPU, is used for nothing but this capture, its launches, and the warm-up before.
  explicit GraphCapture(const Stream& stream);
  ~GraphCapture() override;

  Device device() const override;
  bool is_recording() const override;
  void add(const KernelCall& call) override;
  // Errors: StateError if the current stream is another one, whose memory other tensors would share.
  void allocated(const Storage& storage) override;
  void use(const Ref<Storage>& storage) override;
  Stream side_stream() override;
  bool is_own(const Storage& storage) const override { return own_.contains(&storage); }
  void run_on_host(const char* op, std::function<void()> f) override;
  void after_replay(std::function<void()> f) override { after_replay_.push_back(std::move(f)); }

  // Work that this thread queues on the stream between begin() and end() is recorded in the graph and does not
  // run. discard() ends a capture that has failed; it is called by the handler of the exception.
  // Errors: DeviceFailure.
  void begin();
  void end();
  void discard() noexcept;
  // Queues the graph, increments the versions of the storages that it writes, and calls the functions of after_replay.
  // Returns false, and does nothing, if another process does not launch its graph.
  // Errors: those of the replay_hook; StateError if the graph was destroyed.
  bool launch();
  // Returns whether there is a graph, the tensors from before the capture still have their storages, and all
  // conditions of a replay hold.
  bool is_current() const;
  // Returns whether a kernel uses the storage, which exists since before the capture.
  bool uses(const Storage& storage) const { return known_.contains(&storage); }

 private:
  struct KnownStorage {
    Ref<Storage> storage;
    uint32_t version;  // before the capture
  };

  class Graph;
  void end_streams() noexcept;

  const Stream stream_;
  const std::shared_ptr<NativeStream> native_;
  std::optional<Stream> side_;
  std::shared_ptr<Graph> graph_;                            // null: no capture has ended
  std::unordered_set<const Storage*> own_;                  // allocated during the capture
  std::unordered_map<const Storage*, KnownStorage> known_;  // used by kernels, from before the capture
  std::vector<Ref<Storage>> written_;                       // those of known_ that the graph writes
  std::vector<std::function<void()>> after_replay_;
};

}  // namespace gradus::internal
