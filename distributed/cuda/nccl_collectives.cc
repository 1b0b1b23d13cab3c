// NcclCollectives: the collectives of one group by NCCL, NVIDIA's library for GPUs. The communicator never blocks the
// host: a call that NCCL has not queued yet is polled, so that the job's failure and deadlines end each wait.
//
// All members queue their calls in one order (group/internal/issue_order.h), and those of all groups on one stream of the
// GPU: no kernel of a later call runs before that of an earlier one. Calls that members describe in different ways, such
// as all_gather to one tensor and to a list, are one call of NCCL: the choice depends on what all members know.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/distributed/health/waiting.h"
#include "gradus/distributed/transport/device_collectives.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/nccl/nccl_functions.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::dist::internal {
namespace {

using cuda::Nccl;

std::optional<ncclDataType_t> type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return ncclFloat64;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI64:
      return ncclInt64;
    case DType::kI32:
      return ncclInt32;
    case DType::kI8:
      return ncclInt8;
    case DType::kU8:
      return ncclUint8;
    case DType::kI16:
    case DType::kBool:
      break;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kPremulSum:  // the inputs are multiplied already
      return ncclSum;
    case ReduceOp::kProduct:
      return ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kAvg:
      return ncclAvg;
    default:
      return std::nullopt;
  }
}

template <class B> bool are_equal(std::span<const B> blocks) {
  return std::ranges::all_of(blocks, [&](const B& b) { return b.bytes == blocks[0].bytes; });
}
template <class B> bool are_adjacent(std::span<const B> blocks) {
  for (size_t i = 1; i < blocks.size(); ++i)
    if (static_cast<const char*>(blocks[i - 1].data) + blocks[i - 1].bytes != blocks[i].data) return false;
  return true;
}
template <class B> size_t total_bytes(std::span<const B> blocks) {
  size_t bytes = 0;
  for (const B& b : blocks) bytes += b.bytes;
  return bytes;
}

class NcclCollectives;
void abort_all(std::span<NcclCollectives* const> all) noexcept;

class NcclCollectives final : public DeviceCollectives {
 public:
  NcclCollectives(const Call& call, const std::string& id, int index, int size, const Stream& stream)
      : nccl_(cuda::nccl(call.op)),
        index_(index),
        stream_(stream),
        native_(gradus::internal::native_stream(stream)) {
    ncclUniqueId unique;
    if (id.size() != sizeof unique) throw InternalError("an id of NCCL of ", id.size(), " bytes");
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    make_current();
    try {
      poll_until_queued(call, "ncclCommInitRankConfig",
                        nccl_.ncclCommInitRankConfig(&comm_, size, unique, index, &config));
    } catch (...) {
      abort();
      throw;
    }
  }
  ~NcclCollectives() override { abort(); }

  const Stream& stream() const override { return stream_; }
  void together(const Call& call, const std::function<void()>& f) override { group(call, f); }
  void all_reduce(const Call& call, const void* in, void* out, int64_t n, DType dtype, ReduceOp op) override {
    if (n == 0) return;
    run(call, "ncclAllReduce", [&] {
      return nccl_.ncclAllReduce(in, out, size_t(n), *type_of(dtype), *op_of(op), comm_, handle());
    });
  }
  void reduce(const Call& call, int root, const void* in, void* out, int64_t n, DType dtype,
              ReduceOp op) override {
    if (n == 0) return;
    run(call, "ncclReduce", [&] {
      return nccl_.ncclReduce(in, out, size_t(n), *type_of(dtype), *op_of(op), root, comm_, handle());
    });
  }
  void reduce_scatter(const Call& call, std::span<const ConstBlock> blocks, void* out, DType dtype,
                      ReduceOp op) override {
    const size_t element = size_t(size_of(dtype));
    if (!are_equal(blocks))
      return group(call, [&] {
        for (size_t i = 0; i < blocks.size(); ++i)
          reduce(call, int(i), blocks[i].data, int(i) == index_ ? out : nullptr,
                 int64_t(blocks[i].bytes / element), dtype, op);
      });
    if (blocks[0].bytes == 0) return;
    const void* in = blocks[0].data;
    Tensor packed;
    if (!are_adjacent(blocks)) {
      packed = temporary(total_bytes(blocks));
      char* at = static_cast<char*>(packed.raw_ptr());
      in = at;
      for (const ConstBlock& b : blocks) copy(std::exchange(at, at + b.bytes), b.data, b.bytes);
    }
    run(call, "ncclReduceScatter", [&] {
      return nccl_.ncclReduceScatter(in, out, blocks[0].bytes / element, *type_of(dtype), *op_of(op), comm_,
                                     handle());
    });
  }
  void broadcast(const Call& call, int root, void* data, size_t bytes) override {
    broadcast(call, root, data, data, bytes);
  }
  void all_gather(const Call& call, ConstBlock in, std::span<const Block> out) override {
    if (!are_equal(out))
      return group(call, [&] {
        for (size_t i = 0; i < out.size(); ++i)
          broadcast(call, int(i), int(i) == index_ ? in.data : out[i].data, out[i].data, out[i].bytes);
      });
    if (in.bytes == 0) return;
    const bool is_packed = are_adjacent(out);
    const Tensor packed = is_packed ? Tensor() : temporary(total_bytes(out));
    char* at = static_cast<char*>(is_packed ? out[0].data : packed.raw_ptr());
    run(call, "ncclAllGather",
        [&] { return nccl_.ncclAllGather(in.data, at, in.bytes, ncclChar, comm_, handle()); });
    if (!is_packed)
      for (const Block& b : out) copy(b.data, std::exchange(at, at + b.bytes), b.bytes);
  }
  void exchange_blocks(const Call& call, std::span<const ConstBlock> in,
                       std::span<const Block> out) override {
    if (total_bytes(in) + total_bytes(out) == 0) return;
    group(call, [&] {
      for (size_t i = 0; i < in.size(); ++i) {
        if (in[i].bytes > 0)
          run(call, "ncclSend",
              [&] { return nccl_.ncclSend(in[i].data, in[i].bytes, ncclChar, int(i), comm_, handle()); });
        if (out[i].bytes > 0)
          run(call, "ncclRecv",
              [&] { return nccl_.ncclRecv(out[i].data, out[i].bytes, ncclChar, int(i), comm_, handle()); });
      }
    });
  }

  // Ends poll_until_queued(), which has the lock. Later calls throw. ncclCommAbort blocks until all graphs with calls of
  // the communicator are destroyed.
  void begin_abort() noexcept {
    is_aborted_ = true;
    const std::lock_guard lock(graphs_mutex_);
    for (const auto& one : graphs_)
      if (const auto graph = one.lock()) graph->destroy();
  }
  void add_graph(const std::shared_ptr<CapturedGraph>& graph) override {
    const std::lock_guard lock(graphs_mutex_);
    std::erase_if(graphs_, [](const auto& one) { return one.expired(); });
    graphs_.push_back(graph);
    if (is_aborted_) graph->destroy();
  }
  // Returns the communicator, which the caller must abort; null if another caller has it. A thread that does not give
  // up the lock is inside NCCL, and blocks: only the abort ends that.
  ncclComm_t take() noexcept {
    const std::unique_lock lock(mutex_, std::chrono::milliseconds(200));
    return std::exchange(comm_, nullptr);
  }
  const Nccl& nccl() const { return nccl_; }
  void make_current() const { native_->runtime().make_current(stream_.device().index); }

  std::string error() override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !comm_) return {};
    ncclResult_t status = ncclSuccess;
    const ncclResult_t asked = nccl_.ncclCommGetAsyncError(comm_, &status);
    if (asked != ncclSuccess) status = asked;
    return status == ncclSuccess || status == ncclInProgress ? std::string() : text_of(status);
  }

  // ncclCommFinalize ends when all members have called it.
  bool close() noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (!comm_) return true;
      make_current();
      ncclResult_t status = std::exchange(is_closing_, true) ? ncclSuccess : nccl_.ncclCommFinalize(comm_);
      if (status == ncclSuccess || status == ncclInProgress)
        (void)nccl_.ncclCommGetAsyncError(comm_, &status);
      if (status == ncclInProgress) return false;
      if (status == ncclSuccess) {
        (void)nccl_.ncclCommDestroy(std::exchange(comm_, nullptr));
        return true;
      }
    } catch (const Error&) {  // the device is lost
    }
    abort();
    return true;
  }

 private:
  cudaStream_t handle() const {
    return static_cast<cudaStream_t>(gradus::internal::current_native_stream(stream_.device())->handle());
  }
  void abort() noexcept {
    NcclCollectives* const self = this;
    abort_all({&self, 1});
  }
  std::string text_of(ncclResult_t status) const {
    const char* const more = comm_ ? nccl_.ncclGetLastError(comm_) : nullptr;
    return concat("NCCL: ", nccl_.ncclGetErrorString(status), more && *more ? ": " : "", more ? more : "");
  }

  // Calls f(), which calls one function of NCCL, and waits until it is queued, or in a group returns.
  template <class F> void run(const Call& call, const char* function, F&& f) {
    const std::lock_guard lock(mutex_);
    if (is_aborted_ || !comm_) throw_ended(call);
    make_current();
    const ncclResult_t status = f();
    cuda::count_calls(call.op, {.library_calls = 1});
    if (in_group_ && (status == ncclSuccess || status == ncclInProgress)) return;
    poll_until_queued(call, function, status);
  }
  template <class F> void group(const Call& call, F&& f) {
    const std::lock_guard lock(mutex_);
    if (is_aborted_ || !comm_) throw_ended(call);
    make_current();
    poll_until_queued(call, "ncclGroupStart", nccl_.ncclGroupStart());
    in_group_ = true;
    try {
      f();
    } catch (...) {
      in_group_ = false;
      (void)nccl_.ncclGroupEnd();
      throw;
    }
    in_group_ = false;
    poll_until_queued(call, "ncclGroupEnd", nccl_.ncclGroupEnd());
  }
  void broadcast(const Call& call, int root, const void* in, void* out, size_t bytes) {
    if (bytes == 0) return;
    run(call, "ncclBroadcast",
        [&] { return nccl_.ncclBroadcast(in, out, bytes, ncclChar, root, comm_, handle()); });
  }

  [[noreturn]] void throw_ended(const Call& call) const {
    call.watch.membership->check(call.op);
    throw StateError(call.op, "the group's connection between GPUs has ended by an earlier error");
  }

  // Polls until NCCL has queued what `function` returned `status` for.
  // Errors: the job's failure; a timeout; DeviceError with NCCL's text.
  void poll_until_queued(const Call& call, const char* function, ncclResult_t status) {
    Membership& job = *call.watch.membership;
    while (status == ncclInProgress) {
      if (is_aborted_ || job.failed()) throw_ended(call);
      if (call.watch.deadline.passed()) throw_wait(call.op, WaitResult::kTimeout, call.watch, {});
      if (const ncclResult_t asked = nccl_.ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess)
        status = asked;
      if (status == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
    if (status == ncclSuccess) return;
    // NCCL may notice the end of a rank before the job does, which knows the rank.
    const Deadline grace = Deadline::after(Milliseconds(1'500));
    while ((status == ncclRemoteError || status == ncclSystemError) && !job.failed() && !grace.passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    job.check(call.op);
    throw DeviceError(call.op, function, " failed. ", text_of(status),
                      ". NCCL_DEBUG=INFO says more; with backend \"gloo\" the data goes through host memory");
  }

  // Memory of the GPU for a call on the current stream.
  Tensor temporary(size_t bytes) const {
    return empty({int64_t(bytes)}, {.dtype = DType::kU8, .device = stream_.device()});
  }
  void copy(void* to, const void* from, size_t bytes) const {
    native_->runtime().copy(to, from, int64_t(bytes), handle());
  }

  const Nccl& nccl_;
  const int index_;
  const Stream stream_;
  const std::shared_ptr<gradus::internal::NativeStream> native_;
  std::atomic<bool> is_aborted_{false};
  std::mutex graphs_mutex_;
  std::vector<std::weak_ptr<CapturedGraph>> graphs_;
  std::recursive_timed_mutex mutex_;  // of what follows
  ncclComm_t comm_ = nullptr;
  bool in_group_ = false, is_closing_ = false;
};

// In a group of NCCL's, all communicators are told to end before the first is freed: that may wait for work on the GPU,
// such as a call of another communicator.
void abort_all(std::span<NcclCollectives* const> all) noexcept {
  for (NcclCollectives* one : all) one->begin_abort();
  std::vector<ncclComm_t> taken;
  for (NcclCollectives* one : all)
    if (const ncclComm_t comm = one->take()) taken.push_back(comm);
  if (taken.empty()) return;
  try {
    all[0]->make_current();
  } catch (const Error&) {  // the device is lost
  }
  const Nccl& nccl = all[0]->nccl();
  const bool is_grouped = taken.size() > 1 && nccl.ncclGroupStart() == ncclSuccess;
  for (const ncclComm_t comm : taken) (void)nccl.ncclCommAbort(comm);
  if (is_grouped) (void)nccl.ncclGroupEnd();
}

class NcclLibrary final : public DeviceLibrary {
 public:
  std::string version(const char* op) override {
    int version = 0;
    if (const ncclResult_t status = cuda::nccl(op).ncclGetVersion(&version); status != ncclSuccess)
      throw DeviceError(op, "ncclGetVersion failed: ", cuda::nccl(op).ncclGetErrorString(status));
    return concat("NCCL ", version / 10000, '.', version / 100 % 100, '.', version % 100);
  }
  std::string gpu_id(int device) override {
    cudaDeviceProp properties;
    cuda::check("cuda", "cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device));
    return std::string(properties.uuid.bytes, sizeof properties.uuid.bytes);
  }
  bool can_reduce(DType dtype, ReduceOp op) const override { return type_of(dtype) && op_of(op); }
  void abort(std::span<const std::shared_ptr<DeviceCollectives>> all) noexcept override {
    std::vector<NcclCollectives*> connections;
    for (const auto& one : all) connections.push_back(static_cast<NcclCollectives*>(one.get()));
    abort_all(connections);
  }
  std::string new_id(const char* op) override {
    ncclUniqueId id;
    if (const ncclResult_t status = cuda::nccl(op).ncclGetUniqueId(&id); status != ncclSuccess)
      throw DeviceError(op, "ncclGetUniqueId failed: ", cuda::nccl(op).ncclGetErrorString(status), ": ",
                        cuda::nccl(op).ncclGetLastError(nullptr));
    return std::string(id.internal, sizeof id.internal);
  }
  std::unique_ptr<DeviceCollectives> connect(const Call& call, const std::string& id, int index, int size,
                                             const Stream& stream) override {
    return std::make_unique<NcclCollectives>(call, id, index, size, stream);
  }
};

NcclLibrary library;
[[maybe_unused]] const bool is_set = (register_device_library(&library), true);

}  // namespace
}  // namespace gradus::dist::internal
