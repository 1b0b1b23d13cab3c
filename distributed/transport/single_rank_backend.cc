// With one member, every reduction (a mean as well) and every exchange is a copy from input to output,
// skipped if both are the same memory. Reduction op, root and the call's deadline have no effect.
#include "gradus/distributed/transport/single_rank_backend.h"

#include <cstring>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::dist::internal {
namespace {

// Base: Backend or DeviceCollectives.
template <class Base> class OneMember : public Base {
 public:
  void all_reduce(const Call&, const void* in, void* out, int64_t n, DType dtype, ReduceOp) override {
    copy(out, in, n * size_of(dtype));
  }
  void reduce(const Call&, int, const void* in, void* out, int64_t n, DType dtype, ReduceOp) override {
    copy(out, in, n * size_of(dtype));
  }
  void reduce_scatter(const Call&, std::span<const ConstBlock> blocks, void* out, DType, ReduceOp) override {
    copy(out, blocks[0].data, blocks[0].bytes);
  }
  void broadcast(const Call&, int, void*, size_t) override {}
  void all_gather(const Call&, ConstBlock in, std::span<const Block> out) override {
    copy(out[0].data, in.data, in.bytes);
  }
  void exchange_blocks(const Call&, std::span<const ConstBlock> in, std::span<const Block> out) override {
    copy(out[0].data, in[0].data, in[0].bytes);
  }

 private:
  void copy(void* out, const void* in, size_t bytes) {
    if (bytes && out != in) copy_bytes(out, in, bytes);
  }
  virtual void copy_bytes(void* out, const void* in, size_t bytes) = 0;
};

class SingleRankBackend final : public OneMember<Backend> {
 public:
  std::vector<std::string> exchange(const Call&, std::string_view local) override {
    return {std::string(local)};
  }

 private:
  void copy_bytes(void* out, const void* in, size_t bytes) override { std::memcpy(out, in, bytes); }
};

class SingleRankOnGpu final : public OneMember<DeviceCollectives> {
 public:
  explicit SingleRankOnGpu(const Stream& stream) : stream_(stream) {}

  const Stream& stream() const override { return stream_; }

 private:
  void copy_bytes(void* out, const void* in, size_t bytes) override {
    const auto current = gradus::internal::current_native_stream(stream_.device());
    current->runtime().copy(out, in, int64_t(bytes), current->handle());
  }

  const Stream stream_;
};

}  // namespace

std::unique_ptr<Backend> make_single_rank_backend() { return std::make_unique<SingleRankBackend>(); }
std::unique_ptr<DeviceCollectives> make_single_rank_on_gpu(const Stream& stream) {
  return std::make_unique<SingleRankOnGpu>(stream);
}

}  // namespace gradus::dist::internal
