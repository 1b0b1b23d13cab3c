// CPU kernels of unfold (im2col) and fold (col2im), as torch.nn.Unfold and Fold, for f32 and f64. Tensors are
// row-major and not empty, of shapes that the caller has checked: images [N,C,H,W], columns [N, C KH KW, P Q] for
// P x Q windows (w.blocks) of KH x KW pixels (w.kernel). Parallel over the channels of all images. The inner loop
// runs over a row of Q windows for one channel and one tap: element (i, j) of the windows.
#include "gradus/tensor/ops/images/unfold.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

// The range [first, last) of the windows q of a row whose tap, at position q * stride + offset of an image row of
// n pixels, lies inside [0, n).
struct WindowRange {
  int64_t first, last;
};
WindowRange windows_inside(int64_t n, int64_t blocks, int64_t stride, int64_t offset) {
  const int64_t first = offset < 0 ? std::min(blocks, (-offset + stride - 1) / stride) : 0;
  const int64_t last = offset >= n ? 0 : std::min(blocks, (n - 1 - offset) / stride + 1);
  return {first, std::max(first, last)};
}

// For each tap (i, j) and each row of windows p of one channel, calls f(columns, row, in, offset): a pointer to
// columns[i, j, p, 0], the offset in the channel of the image row at which the tap lies (-1 if that row is
// padding), the windows of the row whose tap is inside the image horizontally, and the image column of the tap of
// window 0 (negative if in the padding). image_row is the number of elements from one image row to the next.
template <class T, class F> void for_each_run(const UnfoldWindows& w, T* columns, int64_t image_row, F f) {
  for (int64_t i = 0; i < w.kernel.h; ++i)
    for (int64_t j = 0; j < w.kernel.w; ++j) {
      const int64_t offset = j * w.dilation.w - w.padding.w;
      const WindowRange in = windows_inside(w.image.w, w.blocks.w, w.stride.w, offset);
      for (int64_t p = 0; p < w.blocks.h; ++p, columns += w.blocks.w) {
        const int64_t h = p * w.stride.h - w.padding.h + i * w.dilation.h;
        f(columns, h >= 0 && h < w.image.h ? h * image_row : -1, in, offset);
      }
    }
}

// Calls f(channel [H,W] of an image, its columns [KH,KW,P,Q]) in parallel for each channel of each image. f gets
// pointers to the first elements.
template <class T, class F>
void for_each_channel(const Tensor& images, const Tensor& columns, const UnfoldWindows& w, F f) {
  const int64_t count = images.size(0) * images.size(1), length = columns.numel() / count;
  parallel_for(0, count, 1 + 32768 / (1 + length), [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c)
      f(images.ptr<T>() + c * w.image.h * w.image.w, columns.ptr<T>() + c * length);
  });
}

// columns[n,c,i,j,p,q] = images[n, c, p * stride.h - padding.h + i * dilation.h,
//                               q * stride.w - padding.w + j * dilation.w], 0 outside of the image.
template <class T> void unfold(const Tensor& columns, const Tensor& images, const UnfoldWindows& w) {
  for_each_channel<T>(images, columns, w, [&](const T* from, T* channel) {
    for_each_run(w, channel, w.image.w, [&](T* to, int64_t row, WindowRange in, int64_t offset) {
      if (row < 0) in = {0, 0};
      std::fill_n(to, in.first, T(0));
      const T* start = from + row + offset;
      if (w.stride.w == 1 && in.last > in.first)
        std::copy_n(start + in.first, in.last - in.first, to + in.first);
      else
        for (int64_t q = in.first; q < in.last; ++q) to[q] = start[q * w.stride.w];
      std::fill(to + in.last, to + w.blocks.w, T(0));
    });
  });
}

// Sets images to 0, then adds each element of columns to the pixel that unfold() copies it from.
template <class T> void fold(const Tensor& images, const Tensor& columns, const UnfoldWindows& w) {
  for_each_channel<T>(images, columns, w, [&](T* to, const T* channel) {
    std::fill_n(to, w.image.h * w.image.w, T(0));
    for_each_run(w, channel, w.image.w,
                 [&](const T* __restrict from, int64_t row, WindowRange in, int64_t offset) {
                   if (row < 0) return;
                   T* __restrict start = to + row + offset;
                   if (w.stride.w == 1)
                     for (int64_t q = in.first; q < in.last; ++q) start[q] += from[q];
                   else
                     for (int64_t q = in.first; q < in.last; ++q) start[q * w.stride.w] += from[q];
                 });
  });
}

void unfold_cpu(const Tensor& columns, const Tensor& images, UnfoldWindows w) {
  dispatch_floating(images.dtype(), "unfold", [&]<class T>() { unfold<T>(columns, images, w); });
}
void fold_cpu(const Tensor& images, const Tensor& columns, UnfoldWindows w) {
  dispatch_floating(images.dtype(), "fold", [&]<class T>() { fold<T>(images, columns, w); });
}

}  // namespace

constinit decltype(unfold_kernel) unfold_kernel{"unfold", &unfold_cpu};
constinit decltype(fold_kernel) fold_kernel{"fold", &fold_cpu};

}  // namespace gradus::raw
