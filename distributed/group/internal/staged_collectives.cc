// Staging: blocks of pinned host memory for what a call reads and writes. The calling thread waits for the copies to the
// host and for the other members; no stream waits for a member.
#include "gradus/distributed/group/internal/staged_collectives.h"

#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/pinned_memory.h"

namespace gradus::dist::internal {
namespace {

using gradus::internal::NativeStream;
using gradus::internal::PinnedMemory;

// Memory of the host, pinned if there is enough. Copies from and to GPUs are queued on a stream.
class HostBlock {
 public:
  HostBlock(const NativeStream& stream, size_t bytes)
      : memory_(PinnedMemory::of(stream.device())), stream_(stream), bytes_(bytes) {
    if (bytes == 0) return;
    pinned_ = memory_.allocate(stream.device().index, int64_t(bytes));
    if (!pinned_) pageable_.resize(bytes);
  }
  ~HostBlock() {
    if (pinned_) memory_.release(pinned_);
  }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  void* data() { return pinned_ ? pinned_ : pageable_.data(); }
  Block block() { return {data(), bytes_}; }
  void read(const void* on_gpu) { copy(data(), on_gpu); }
  void write(void* on_gpu) { copy(on_gpu, data()); }

 private:
  void copy(void* to, const void* from) {
    if (bytes_ == 0) return;
    stream_.runtime().copy(to, from, int64_t(bytes_), stream_.handle());
    if (pinned_) memory_.record_use(pinned_, stream_.handle());
  }

  PinnedMemory& memory_;
  const NativeStream& stream_;
  const size_t bytes_;
  void* pinned_ = nullptr;
  std::vector<char> pageable_;
};

class StagedCollectives final : public DeviceCollectives {
 public:
  StagedCollectives(Backend& host, int index, const Stream& stream)
      : host_(host), index_(index), stream_(stream), native_(gradus::internal::native_stream(stream)) {}

  const Stream& stream() const override { return stream_; }

  void all_reduce(const Call& call, const void* in, void* out, int64_t n, DType dtype, ReduceOp op) override {
    HostBlock x(*native_, size_t(n * size_of(dtype)));
    x.read(in);
    wait(call);
    host_.all_reduce(call, x.data(), x.data(), n, dtype, op);
    x.write(out);
  }
  void reduce(const Call& call, int root, const void* in, void* out, int64_t n, DType dtype,
              ReduceOp op) override {
    HostBlock x(*native_, size_t(n * size_of(dtype)));
    x.read(in);
    wait(call);
    host_.reduce(call, root, x.data(), index_ == root ? x.data() : nullptr, n, dtype, op);
    if (index_ == root) x.write(out);
  }
  void reduce_scatter(const Call& call, std::span<const ConstBlock> blocks, void* out, DType dtype,
                      ReduceOp op) override {
    Inputs in(*native_, blocks);
    HostBlock result(*native_, blocks[size_t(index_)].bytes);
    wait(call);
    host_.reduce_scatter(call, in.on_host, result.data(), dtype, op);
    result.write(out);
  }
  void broadcast(const Call& call, int root, void* data, size_t bytes) override {
    HostBlock x(*native_, bytes);
    if (index_ == root) x.read(data);
    wait(call);
    host_.broadcast(call, root, x.data(), bytes);
    if (index_ != root) x.write(data);
  }
  void all_gather(const Call& call, ConstBlock in, std::span<const Block> out) override {
    Inputs input(*native_, {&in, 1});
    Outputs outputs(*native_, out);
    wait(call);
    host_.all_gather(call, input.on_host[0], outputs.on_host);
    outputs.write(out);
  }
  void exchange_blocks(const Call& call, std::span<const ConstBlock> in,
                       std::span<const Block> out) override {
    Inputs inputs(*native_, in);
    Outputs outputs(*native_, out);
    wait(call);
    host_.exchange_blocks(call, inputs.on_host, outputs.on_host);
    outputs.write(out);
  }

 private:
  struct Inputs {
    Inputs(const NativeStream& stream, std::span<const ConstBlock> on_gpu) {
      for (const ConstBlock& b : on_gpu) {
        blocks.emplace_back(stream, b.bytes).read(b.data);
        on_host.push_back({blocks.back().data(), b.bytes});
      }
    }
    std::deque<HostBlock> blocks;
    std::vector<ConstBlock> on_host;
  };
  struct Outputs {
    Outputs(const NativeStream& stream, std::span<const Block> on_gpu) {
      for (const Block& b : on_gpu) on_host.push_back(blocks.emplace_back(stream, b.bytes).block());
    }
    void write(std::span<const Block> on_gpu) {
      for (size_t i = 0; i < blocks.size(); ++i) blocks[i].write(on_gpu[i].data);
    }
    std::deque<HostBlock> blocks;
    std::vector<Block> on_host;
  };

  // Blocks until the work queued on the stream is done. Sleeps between polls, so that the core is free.
  // Errors: those of kernels; the job's failure; a timeout.
  void wait(const Call& call) {
    const Event queued = Event::record(stream_);
    while (!queued.done()) {
      call.watch.membership->check(call.op);
      if (call.watch.deadline.passed()) throw_wait(call.op, WaitResult::kTimeout, call.watch, {});
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    queued.synchronize();
  }

  Backend& host_;
  const int index_;
  const Stream stream_;
  const std::shared_ptr<NativeStream> native_;
};

}  // namespace

std::unique_ptr<DeviceCollectives> make_staged_collectives(Backend& host, int index, const Stream& stream) {
  return std::make_unique<StagedCollectives>(host, index, stream);
}

}  // namespace gradus::dist::internal
