// Copies between layouts, dtypes and devices, recorded with the gradient rule dx = dy, and copy_ and fill_,
// which write in place and are not recorded. raw:: ops compute.
#include "gradus/autograd/ops/copy.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {
namespace {

// Records y, a copy of x, with dy as x's gradient (the engine converts it to the dtype, device and layout of
// x). Records nothing if y is x itself.
Tensor record_identity(const char* op, const Tensor& x, Tensor y) {
  if (y.is_same(x)) return y;
  if (Recorder r{op, x}) r.record(y, wrt(x, [](const Tensor& dy) { return dy; }));
  return y;
}

}  // namespace

Tensor contiguous(const Tensor& x) {
  const OpCall call("contiguous", {{"x", x}});
  return record_identity("contiguous", x, raw::contiguous(x));
}
Tensor channels_last(const Tensor& x) {
  const OpCall call("channels_last", {{"x", x}});
  return record_identity("channels_last", x, raw::channels_last(x));
}
Tensor clone(const Tensor& x) {
  const OpCall call("clone", {{"x", x}});
  return record_identity("clone", x, raw::clone(x));
}

Tensor to(const Tensor& x, DType dtype) {
  const OpCall call("to", {{"x", x}});
  Tensor y = raw::to(x, dtype);
  return is_floating(dtype) ? record_identity("to", x, std::move(y)) : y;
}

Tensor to(const Tensor& x, Device device) {
  const OpCall call("to", {{"x", x}});
  Tensor y = raw::to(x, device);
  if (y.is_same(x)) return y;
  if (Recorder r{"to", x})
    r.record(y, wrt(x, [from = x.device()](const Tensor& dy) { return to(dy, from); }));
  return y;
}

void copy_(const Tensor& dst, const Tensor& src) {
  const OpCall call("copy_", {{"dst", dst}, {"src", src}});
  autograd::check_in_place("copy_", dst);
  raw::copy_(dst, src);
}

void fill_(const Tensor& x, Number value) {
  const OpCall call("fill_", {{"x", x}});
  autograd::check_in_place("fill_", x);
  check_fits("fill_", value, x.dtype());
  raw::fill_(x, value);
}

}  // namespace gradus
