// Checks the tensors of collectives and point-to-point calls, and describes them to the backends as blocks of
// host memory. A tensor that a call reads may have any strides (on_host copies); one that a call writes
// must be row-major. In all functions `op` is the user's function and `what` the argument's name, for errors.
//
// Staging of a tensor on a GPU: on_host() waits for the device on the thread that makes the call; the backend's
// threads see host memory alone; write_back() queues the copies to the device on the thread that waits. So no thread of
// the transport calls CUDA, and no stream waits for another rank.
#include "gradus/distributed/group/collective_argument.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist::internal {
namespace {

// The work of a call whose results go to GPUs. Thread-safe.
class StagedWork final : public WorkState {
 public:
  StagedWork(Work call, HostTensors tensors) : call_(std::move(call)), tensors_(std::move(tensors)) {}

  void wait(std::optional<Milliseconds> timeout) override {
    call_.wait(timeout);
    const std::lock_guard lock(mutex_);
    if (!is_written_) {
      tensors_.write_back();
      is_written_ = true;
      for (const Tensor& x : tensors_.written())
        written_.emplace_back(x.device(), Event::record(current_stream(x.device())));
    }
    // Waiting threads may have other streams.
    for (const auto& [device, event] : written_) current_stream(device).wait(event);
  }
  // A program that only asks has the results, too.
  bool is_completed() override {
    if (!call_.is_completed()) return false;
    try {
      call_.wait({});
    } catch (const Error&) {
      return true;  // the call has failed
    }
    wait({});
    return true;
  }

 private:
  const Work call_;
  const HostTensors tensors_;
  std::mutex mutex_;
  bool is_written_ = false;
  std::vector<std::pair<Device, Event>> written_;
};

}  // namespace

void check_has_data(std::string_view op, std::string_view what, const Tensor& x) {
  if (!x) throw ValueError(op, what, " is undefined");
  refuse_capture(op, "a replay does not call other ranks");
  if (x.device().type == DeviceType::kMeta) throw DeviceError(op, what, " has no data: ", describe(x));
}

void wait_for_device(const Tensor& x) {
  if (x.device() != kCPU) Event::record(current_stream(x.device())).synchronize();
}

Tensor on_host(const Tensor& x) {
  if (x.device().type == DeviceType::kCUDA) return raw::contiguous(raw::to(detach(x), kCPU));
  Tensor dense = raw::contiguous(x);
  wait_for_device(dense);
  return dense;
}

std::vector<Tensor> on_host(std::span<const Tensor> xs) {
  const auto on_gpu = [](const Tensor& x) { return x.device().type == DeviceType::kCUDA; };
  std::vector<Tensor> all;
  for (const Tensor& x : xs)
    all.push_back(on_gpu(x) ? raw::queue_to_host(raw::contiguous(detach(x))) : on_host(x));
  for (const Tensor& x : xs)
    if (on_gpu(x)) wait_for_device(x);
  return all;
}

void HostTensors::check(std::string_view what, const Tensor& x, bool is_written) {
  check_has_data(op_, what, x);
  if (autograd::is_tracked(x))
    throw StateError(op_, what, " is followed by an open recording, which sees nothing of this call: ",
                     "use dist::functional, or give detach(x): ", describe(x));
  if (is_written && !x.is_row_major())
    throw ShapeError(op_, what, " does not lie in row-major order, call contiguous(): ", describe(x));
  if (std::exchange(has_tensors_, true) && device_ != x.device().type)
    throw DeviceError(op_, "expected all tensors in host memory, or all on GPUs, got ", what, ' ',
                      describe(x));
  device_ = x.device().type;
}

Tensor HostTensors::input(std::string_view what, const Tensor& x) {
  check(what, x, false);
  return on_host(x);
}

Tensor HostTensors::output(std::string_view what, const Tensor& x, bool reads) {
  check(what, x, true);
  written_.push_back(x);
  if (device_ == DeviceType::kCPU) return on_host(x);
  posted_.push_back(Event::record(current_stream(x.device())));
  host_.push_back(reads ? on_host(x) : empty(x.shape(), {.dtype = x.dtype()}));
  return host_.back();
}

Tensor HostTensors::input_or_output(std::string_view what, const Tensor& x, bool reads) {
  if (!reads) return output(what, x);
  check(what, x, true);
  return on_host(x);
}

std::vector<Tensor> HostTensors::inputs(const char* what, const std::vector<Tensor>& xs) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < xs.size(); ++i) all.push_back(input(concat(what, '[', i, ']'), xs[i]));
  return all;
}
std::vector<Tensor> HostTensors::outputs(const char* what, const std::vector<Tensor>& xs, bool read) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < xs.size(); ++i) all.push_back(output(concat(what, '[', i, ']'), xs[i], read));
  return all;
}

void HostTensors::write_back() const {
  if (device_ == DeviceType::kCPU) return;
  for (size_t i = 0; i < written_.size(); ++i) {
    // Work that was queued before the call may still use the tensor.
    current_stream(written_[i].device()).wait(posted_[i]);
    raw::copy_(written_[i], host_[i]);
  }
}

Work HostTensors::write_back_after(Work done, bool async) && {
  if (device_ == DeviceType::kCPU || written_.empty()) return done;
  if (async) return Work(Ref<WorkState>(make_ref<StagedWork>(std::move(done), std::move(*this))));
  write_back();
  return done;
}

void check_dtypes(std::string_view op, DType dtype, std::span<const Tensor> xs) {
  for (const Tensor& x : xs)
    if (x.dtype() != dtype)
      throw DTypeError(op, "all tensors must have one dtype, got ", dtype, " and ", x.dtype(), ": ",
                       describe(x));
}

CallRecord make_record(Op op, const Tensor& x, ReduceOp reduce, int root) {
  CallRecord record{.op = op,
                    .reduce = reduce,
                    .dtype = x.dtype(),
                    .root = root,
                    .ndim = x.dim(),
                    .device = x.device().type,
                    .bytes = x.nbytes()};
  std::ranges::copy(x.shape(), record.dims);
  return record;
}

std::vector<Block> blocks(std::span<const Tensor> xs) {
  std::vector<Block> blocks;
  std::ranges::transform(xs, std::back_inserter(blocks), block);
  return blocks;
}
std::vector<ConstBlock> const_blocks(std::span<const Tensor> xs) {
  std::vector<ConstBlock> blocks;
  std::ranges::transform(xs, std::back_inserter(blocks), const_block);
  return blocks;
}

}  // namespace gradus::dist::internal
