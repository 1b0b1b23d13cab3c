// Checks the tensors of collectives and point-to-point calls, and describes them to Collectives as blocks of memory. A
// tensor that a call reads may have any strides (readable copies); one that a call writes must be row-major. In all
// functions `op` is the user's function and `what` the argument's name, for errors.
#include "gradus/distributed/group/collective_argument.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist::internal {

void check_has_data(std::string_view op, std::string_view what, const Tensor& x) {
  if (!x) throw ValueError(op, what, " is undefined");
  if (x.device().type == DeviceType::kMeta) throw DeviceError(op, what, " has no data: ", describe(x));
}

void wait_for_device(const Tensor& x) {
  if (x.device() != kCPU) Event::record(current_stream(x.device())).synchronize();
}

Tensor on_host(const Tensor& x) {
  if (x.device().type == DeviceType::kCUDA) return raw::contiguous(raw::to(detach(x), kCPU));
  return readable(x);
}

Tensor readable(const Tensor& x) {
  Tensor dense = raw::contiguous(x);
  if (x.device().type != DeviceType::kCUDA) wait_for_device(dense);
  return dense;
}

std::vector<Tensor> readable(std::span<const Tensor> xs) {
  std::vector<Tensor> all;
  for (const Tensor& x : xs) all.push_back(readable(x));
  return all;
}

Tensor CallTensors::add(std::string_view what, const Tensor& x) {
  check_has_data(op_, what, x);
  if (autograd::is_tracked(x))
    throw StateError(op_, what, " is followed by an open recording, which sees nothing of this call: ",
                     "use dist::functional, or give detach(x): ", describe(x));
  const bool is_on_gpu = x.device().type == DeviceType::kCUDA;
  const Device device = is_on_gpu ? x.device() : kCPU;
  if (device_.value_or(device) != device)
    throw DeviceError(op_, "expected all tensors in host memory, or all on one GPU, got ", what, ' ',
                      describe(x));
  device_ = device;
  return is_on_gpu ? on_gpu_.emplace_back(readable(x)) : readable(x);
}

Tensor CallTensors::input(std::string_view what, const Tensor& x) { return add(what, x); }

Tensor CallTensors::output(std::string_view what, const Tensor& x, bool is_written) {
  const Tensor y = add(what, x);
  if (!x.is_row_major())
    throw ShapeError(op_, what, " does not lie in row-major order, call contiguous(): ", describe(x));
  if (is_written) written_.push_back(x);
  return y;
}

std::vector<Tensor> CallTensors::inputs(const char* what, const std::vector<Tensor>& xs) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < xs.size(); ++i) all.push_back(input(concat(what, '[', i, ']'), xs[i]));
  return all;
}
std::vector<Tensor> CallTensors::outputs(const char* what, const std::vector<Tensor>& xs) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < xs.size(); ++i) all.push_back(output(concat(what, '[', i, ']'), xs[i]));
  return all;
}

void copy_row_major(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
  if (!to.empty() && to[0].device().type == DeviceType::kCUDA) return raw::copy_each_(to, from);
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i].nbytes()) std::memcpy(to[i].raw_ptr(), from[i].raw_ptr(), size_t(to[i].nbytes()));
}

namespace {

// Returns a view of each of xs' elements in `flat`.
std::vector<Tensor> parts_of(const Tensor& flat, const std::vector<Tensor>& xs) {
  std::vector<Tensor> parts;
  int64_t offset = 0;
  for (const Tensor& x : xs) {
    parts.push_back(view_as_strided(flat, x.shape(), row_major_strides(x.shape()), offset));
    offset += x.numel();
  }
  return parts;
}

}  // namespace

void pack(const Tensor& flat, const std::vector<Tensor>& xs) { copy_row_major(parts_of(flat, xs), xs); }
void unpack(const std::vector<Tensor>& xs, const Tensor& flat) { copy_row_major(xs, parts_of(flat, xs)); }

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
