// Copies, fills, and conversions of layout, dtype and device. Work on one device runs on the current stream of the
// device. Copies between CPU devices run on the stream of the source, and the stream of the destination waits for
// them. The CUDA copy kernel handles all copies from and to GPUs.
#include "gradus/tensor/ops/copy.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/runtime/capture.h"

namespace gradus::raw {
namespace {

// Returns src expanded to dst's shape, with stride 0 along broadcast dims.
Tensor broadcast_to(const Tensor& src, const Tensor& dst) {
  if (src.shape() == dst.shape()) return src;
  const int lead = dst.dim() - src.dim();
  bool fits = lead >= 0;
  for (int d = 0; fits && d < src.dim(); ++d)
    fits = src.shape()[d] == 1 || src.shape()[d] == dst.shape()[lead + d];
  if (!fits)
    throw ShapeError("copy_", "source does not broadcast to the destination: source ", describe(src),
                     ", destination ", describe(dst));
  Strides strides = Strides::filled(dst.dim(), 0);
  for (int d = 0; d < src.dim(); ++d)
    if (src.shape()[d] != 1) strides[lead + d] = src.strides()[d];
  return view_as_strided(src, dst.shape(), strides, src.impl().offset);
}

// Returns the range [first, end) of bytes of the storage that x's elements span. Requires strides >= 0.
std::pair<int64_t, int64_t> byte_range(const Tensor& x) {
  int64_t last = x.impl().offset;
  for (int d = 0; d < x.dim(); ++d) last += (x.shape()[d] - 1) * x.strides()[d];
  return {x.impl().offset * size_of(x.dtype()), (last + 1) * size_of(x.dtype())};
}

// Returns whether the byte ranges of a and b intersect, even if no element of a is an element of b.
bool overlap(const Tensor& a, const Tensor& b) {
  if (a.storage() != b.storage()) return false;
  const auto [a_begin, a_end] = byte_range(a);
  const auto [b_begin, b_end] = byte_range(b);
  return a_begin < b_end && b_begin < a_end;
}

// Returns an uninitialized tensor on another device, in x's layout if x is dense, else row-major.
Tensor empty_like_on(const Tensor& x, Device device) {
  const TensorOptions options{x.dtype(), device};
  if (x.is_row_major()) return empty(x.shape(), options);
  if (x.is_dense()) return empty_strided(x.shape(), x.strides(), options);
  return empty(x.shape(), options);
}

// Returns x's memory as a tensor on another CPU device, so that a kernel on that device can write it. The result
// keeps x alive.
Tensor on_host_device(Device device, const Tensor& x) {
  Ref<Storage> storage = Storage::adopt(device, x.storage()->data(), x.storage()->bytes(), [x] {});
  return Tensor(Ref<TensorImpl>(
      new TensorImpl(std::move(storage), x.impl().offset, x.shape(), x.strides(), x.dtype())));
}

// Copies src to dst, of the same shape on another device. No queued kernel may use dst, unless dst is on a GPU.
// Between CPU devices the copy runs on the current stream of src's device, after queued kernels that write src and
// before later kernels that modify src. The current stream of dst's device waits for the copy; src's stream never
// waits for dst's device. The CUDA kernel orders its copy with the current streams of both devices.
// Errors: DeviceError for a meta src, or if a GPU is involved and the program has no CUDA copy kernel.
void copy_between_devices(const Tensor& dst, const Tensor& src) {
  const Device to = dst.device(), from = src.device();
  refuse_capture("copy_", "it copies between devices");
  if (from.type == DeviceType::kMeta)
    throw DeviceError("copy_", "a meta tensor has no data: source ", describe(src), ", destination ",
                      describe(dst));
  if (from.type == DeviceType::kCUDA || to.type == DeviceType::kCUDA) {
    if (!copy_kernel.cuda) throw_no_kernel("copy_", from.type == DeviceType::kCUDA ? from : to);
    const RunningRange running = observed({.kind = RangeKind::kKernel, .name = "copy"});
    try {
      return copy_kernel.cuda(dst, src);
    } catch (DeviceFailure& e) {
      e.name_tensors(describe(dst) + ", " + describe(src));
      throw;
    }
  }
  copy_kernel(on_host_device(from, dst), src);
  current_stream(to).wait(Event::record(current_stream(from)));
}

// Returns whether two elements of x share memory.
bool has_overlapping_elements(const Tensor& x) {
  if (x.is_row_major() || x.numel() <= 1) return false;
  std::vector<std::pair<int64_t, int64_t>> loops;  // (stride, size), in ascending order
  for (int d = 0; d < x.dim(); ++d)
    if (x.shape()[d] > 1) loops.emplace_back(std::abs(x.strides()[d]), x.shape()[d]);
  std::sort(loops.begin(), loops.end());
  bool nested = true;  // whether each stride exceeds the extent of the loops with smaller strides
  int64_t extent = 0;
  for (const auto& [stride, size] : loops) {
    nested = nested && stride > extent;
    extent += (size - 1) * stride;
  }
  if (nested) return false;
  if (loops.front().first == 0 || x.numel() > extent + 1) return true;
  std::vector<bool> used(size_t(extent) + 1);  // strides interleave: searches for two elements at one offset
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t at = 0, left = i;
    for (const auto& [stride, size] : loops) at += left % size * stride, left /= size;
    if (used[size_t(at)]) return true;
    used[size_t(at)] = true;
  }
  return false;
}

}  // namespace

void check_writable(std::string_view op, const Tensor& x) {
  if (has_overlapping_elements(x))
    throw ShapeError(op, "cannot write into a tensor whose elements share places, call clone() first: ",
                     describe(x), " with strides ", x.strides());
}

void copy_(const Tensor& dst, const Tensor& src) {
  const Tensor from = broadcast_to(src, dst);
  if (src.numel() != 1) check_writable("copy_", dst);
  if (dst.numel() == 0) return;
  if (dst.device().type == DeviceType::kMeta) return copy_kernel(dst, from);  // reports the op to an Observer
  if (dst.device() != from.device()) {
    // dst is written directly if the copy is ordered with kernels that use dst: the CUDA copy is, and an inline
    // stream has no queued kernels. Otherwise src is copied to a new tensor on dst's device first. A src that
    // broadcasts to a GPU tensor is copied first too, which transfers each of its elements once.
    const bool in_order = dst.device().type == DeviceType::kCUDA && src.shape() == dst.shape();
    if (in_order || current_stream(dst.device()).is_inline())
      copy_between_devices(dst, from);
    else
      copy_kernel(dst, broadcast_to(to(src, dst.device()), dst));  // after queued kernels that use dst
  } else if (overlap(dst, from)) {
    if (dst.impl().offset == from.impl().offset && dst.strides() == from.strides() &&
        dst.dtype() == from.dtype())
      return;
    copy_kernel(dst, clone(from));
  } else {
    copy_kernel(dst, from);
  }
  dst.storage()->bump_version();
}

void copy_each_(const std::vector<Tensor>& dst, const std::vector<Tensor>& src) {
  // The pairs of one dtype and device, whose elements only move.
  struct Moved {
    std::vector<Tensor> to, from;
  };
  std::vector<Moved> all;
  const auto is_alike = [](const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.device() == b.device();
  };
  for (size_t i = 0; i < dst.size(); ++i) {
    const Tensor &y = dst[i], &x = src[i];
    if (y.device().type != DeviceType::kCUDA || !is_alike(y, x) || !x.is_dense() || y.shape() != x.shape() ||
        y.strides() != x.strides()) {
      copy_(y, x);
    } else if (y.numel() > 0) {
      auto moved = std::ranges::find_if(all, [&](const Moved& m) { return is_alike(m.to[0], y); });
      if (moved == all.end()) moved = all.insert(all.end(), Moved());
      moved->to.push_back(y);
      moved->from.push_back(x);
    }
  }
  for (const Moved& moved : all) {
    copy_each_kernel(moved.to[0], moved.to, moved.from);
    for (const Tensor& y : moved.to) y.storage()->bump_version();
  }
}

void fill_(const Tensor& dst, Number value) {
  if (dst.numel() == 0) return;
  fill_kernel(dst, value);
  dst.storage()->bump_version();
}

Tensor contiguous(const Tensor& x) {
  if (x.is_row_major()) return x;
  Tensor out = empty(x.shape(), {x.dtype(), x.device()});
  if (x.numel() != 0) copy_kernel(out, x);
  return out;
}

Tensor channels_last(const Tensor& x) {
  if (x.dim() < 3 || x.dim() > 5)
    throw ShapeError("channels_last", "expected an image of 3 to 5 dimensions, got ", describe(x));
  if (x.is_channels_last()) return x;
  // Row-major and channels-last are the same layout if the orders of dims differ only in dims of size 1.
  Tensor out = empty_channels_last(x.shape(), {x.dtype(), x.device()});
  if (out.strides() == x.strides()) return x;
  if (x.numel() != 0) copy_kernel(out, x);
  return out;
}

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = empty_like(x, dtype);
  if (x.numel() != 0) copy_kernel(out, x);
  return out;
}

std::vector<Tensor> round_all(const std::vector<Tensor>& xs, DType dtype) {
  std::vector<Tensor> rounded;
  for (const Tensor& x : xs) rounded.push_back(empty_like(x, dtype));
  if (!xs.empty()) copy_each_kernel(xs[0], rounded, xs);
  return rounded;
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  Tensor out = empty_like_on(x, device);
  if (x.numel() != 0 && device.type != DeviceType::kMeta) copy_between_devices(out, x);
  return out;
}

Tensor clone(const Tensor& x) {
  Tensor out = empty_like(x);
  if (x.numel() != 0) copy_kernel(out, x);
  return out;
}

}  // namespace gradus::raw
