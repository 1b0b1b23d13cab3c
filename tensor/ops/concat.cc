// cat and stack, by copies: cat allocates the result and copies each tensor into a view of the result's range
// along dim; the copy converts the dtype. On GPUs one kernel call makes the copies. stack is cat of views of the
// tensors with a new dim of size 1.
#include "gradus/tensor/ops/concat.h"

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {

constinit decltype(cat_kernel) cat_kernel{"cat"};

Tensor cat(const std::vector<Tensor>& xs, int64_t dim) {
  if (xs.empty()) throw ValueError("cat", "expected at least one tensor, got none");
  const Tensor& first = xs[0];
  if (first.dim() == 0)
    throw ShapeError("cat", "tensors without dims cannot be joined, call stack(): ", describe(first));
  const int d = wrap_dim(dim, first.dim(), "cat");
  Shape s = first.shape();
  DType dtype = first.dtype();
  bool channels_last = first.is_channels_last();
  for (size_t i = 1; i < xs.size(); ++i) {
    const Tensor& x = xs[i];
    bool fits = x.dim() == s.size();
    for (int j = 0; fits && j < s.size(); ++j) fits = j == d || x.shape()[j] == s[j];
    if (!fits)
      throw ShapeError("cat", "tensor ", i, " differs from the first outside of dim ", d, ": ", describe(x),
                       " after ", describe(first));
    if (!are_compatible_devices(x.device(), first.device()))
      throw DeviceError("cat", "tensor ", i, " is on ", x.device(), " but the first on ", first.device());
    s[d] = Checked("cat", s[d]) + x.shape()[d];
    dtype = promote(dtype, x.dtype());
    channels_last = channels_last && x.is_channels_last();
  }
  const TensorOptions options{.dtype = dtype, .device = first.device()};
  const Tensor out = channels_last ? empty_channels_last(s, options) : empty(s, options);
  if (out.device().type == DeviceType::kCUDA) {
    if (out.numel() > 0) cat_kernel(out, xs, d);
    return out;
  }
  int64_t start = 0;  // of the next tensor along d
  for (const Tensor& x : xs) {
    copy_(narrow(out, d, start, x.shape()[d]), x);
    start += x.shape()[d];
  }
  return out;
}

Tensor stack(const std::vector<Tensor>& xs, int64_t dim) {
  if (xs.empty()) throw ValueError("stack", "expected at least one tensor, got none");
  const int d = wrap_dim(dim, xs[0].dim() + 1, "stack");
  std::vector<Tensor> unsqueezed;
  unsqueezed.reserve(xs.size());
  for (const Tensor& x : xs) {
    if (x.shape() != xs[0].shape())
      throw ShapeError("stack", "tensors differ in shape: ", describe(x), " after ", describe(xs[0]));
    unsqueezed.push_back(unsqueeze(x, d));
  }
  return cat(unsqueezed, d);
}

}  // namespace gradus::raw
