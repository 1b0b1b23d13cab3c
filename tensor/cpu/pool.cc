// Pooling on the CPU. Images lie channels-last, so each cell of a window is a run of C neighbours, and every loop below
// works on whole runs.
#include "gradus/tensor/ops/pool.h"

#include <array>
#include <limits>

#include "gradus/tensor/parallel.h"

namespace gradus {
namespace {

// The cells of one window along one axis: number k, of which those from `first` to `last` lie inside the input, at
// position origin + k * step.
struct Span {
  int64_t first, last, origin, step, padded_length;
};

Span span_of(const PoolWindows& w, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding,
             int64_t dilation, int64_t i) {
  if (w.adaptive) {
    const int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    return {0, end - begin, begin, 1, end - begin};
  }
  const int64_t origin = i * stride - padding;
  const int64_t first = origin < 0 ? (-origin + dilation - 1) / dilation : 0;
  const int64_t last = std::min(kernel, (in - origin + dilation - 1) / dilation);
  return {first, last, origin, dilation, std::min(origin + kernel, in + padding) - origin};
}
Span rows_of(const PoolWindows& w, int64_t p) {
  return span_of(w, w.input.h, w.output.h, w.kernel.h, w.stride.h, w.padding.h, w.dilation.h, p);
}
Span columns_of(const PoolWindows& w, int64_t q) {
  return span_of(w, w.input.w, w.output.w, w.kernel.w, w.stride.w, w.padding.w, w.dilation.w, q);
}

// Calls f(number of the cell within the window, offset of its run in the image of C channels).
template <class F>
void for_each_cell(const PoolWindows& w, const Span& rows, const Span& columns, int64_t C, F f) {
  for (int64_t i = rows.first; i < rows.last; ++i)
    for (int64_t j = columns.first; j < columns.last; ++j)
      f(i * w.kernel.w + j, ((rows.origin + i * rows.step) * w.input.w + columns.origin + j * columns.step) * C);
}

// Calls f(image n, rows of the window, columns of it, offset of the output's run) for all windows of images
// [first, last).
template <class F>
void for_each_window(const PoolWindows& w, int64_t C, int64_t first_row, int64_t last_row, F f) {
  for (int64_t row = first_row; row < last_row; ++row) {
    const Span rows = rows_of(w, row % w.output.h);
    for (int64_t q = 0; q < w.output.w; ++q)
      f(row / w.output.h, rows, columns_of(w, q), (row * w.output.w + q) * C);
  }
}

// Rows of windows that are worth a thread.
int64_t row_grain(const PoolWindows& w, int64_t C) {
  return 1 + 16384 / (1 + w.output.w * C * w.kernel.h * w.kernel.w);
}
// The same for whole images: overlapping windows write to shared cells, so an image is one thread's.
int64_t image_grain(const PoolWindows& w, int64_t C) {
  return 1 + 16384 / (1 + w.output.h * w.output.w * C * w.kernel.h * w.kernel.w);
}

template <class T, class I>
void max_forward(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w) {
  const int64_t C = x.size(1), image = w.input.h * w.input.w * C;
  parallel_for(0, x.size(0) * w.output.h, row_grain(w, C), [&](int64_t first, int64_t last) {
    for_each_window(w, C, first, last, [&](int64_t n, const Span& rows, const Span& columns, int64_t at) {
      T* __restrict best = y.ptr<T>() + at;
      I* __restrict where = index.ptr<I>() + at;
      bool begun = false;
      for_each_cell(w, rows, columns, C, [&](int64_t cell, int64_t offset) {
        const T* __restrict in = x.ptr<T>() + n * image + offset;
        if (!begun) {
          std::copy_n(in, C, best);
          std::fill_n(where, C, I(cell));
          begun = true;
          return;
        }
        for (int64_t c = 0; c < C; ++c) {
          const bool wins = in[c] > best[c] || in[c] != in[c];
          best[c] = wins ? in[c] : best[c];
          where[c] = wins ? I(cell) : where[c];
        }
      });
      if (!begun) {  // all cells lie in the padding
        std::fill_n(best, C, -std::numeric_limits<T>::infinity());
        std::fill_n(where, C, I(0));
      }
    });
  });
}

template <class T>
void max_value(const Tensor& y, const Tensor& x, const PoolWindows& w) {
  const int64_t C = x.size(1), image = w.input.h * w.input.w * C;
  parallel_for(0, x.size(0) * w.output.h, row_grain(w, C), [&](int64_t first, int64_t last) {
    for_each_window(w, C, first, last, [&](int64_t n, const Span& rows, const Span& columns, int64_t at) {
      T* __restrict best = y.ptr<T>() + at;
      bool begun = false;
      for_each_cell(w, rows, columns, C, [&](int64_t, int64_t offset) {
        const T* __restrict in = x.ptr<T>() + n * image + offset;
        if (!begun) std::copy_n(in, C, best);
        else
          for (int64_t c = 0; c < C; ++c) best[c] = in[c] > best[c] || in[c] != in[c] ? in[c] : best[c];
        begun = true;
      });
    });
  });
}

template <class F>
void dispatch_index(DType t, F f) {
  t == DType::kU8 ? f.template operator()<uint8_t>() : f.template operator()<int32_t>();
}

void max_pool2d_cpu(const Tensor& y, const Tensor& index, const Tensor& x, PoolWindows w) {
  dispatch_floating(x.dtype(), "max_pool2d", [&]<class T>() {
    if (!index.defined()) return max_value<T>(y, x, w);
    dispatch_index(index.dtype(), [&]<class I>() { max_forward<T, I>(y, index, x, w); });
  });
}

void max_pool2d_scatter_cpu(const Tensor& dx, const Tensor& dy, const Tensor& index, PoolWindows w) {
  const int64_t C = dx.size(1), image = w.input.h * w.input.w * C;
  dispatch_floating(dx.dtype(), "max_pool2d_scatter", [&]<class T>() {
    dispatch_index(index.dtype(), [&]<class I>() {
      parallel_for(0, dx.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
        std::fill(dx.ptr<T>() + first * image, dx.ptr<T>() + last * image, T(0));
        for_each_window(w, C, first * w.output.h, last * w.output.h,
                        [&](int64_t n, const Span& rows, const Span& columns, int64_t at) {
          const T* __restrict from = dy.ptr<T>() + at;
          const I* __restrict where = index.ptr<I>() + at;
          for_each_cell(w, rows, columns, C, [&](int64_t cell, int64_t offset) {
            T* __restrict to = dx.ptr<T>() + n * image + offset;
            for (int64_t c = 0; c < C; ++c) to[c] += where[c] == I(cell) ? from[c] : T(0);
          });
        });
      });
    });
  });
}

void max_pool2d_gather_cpu(const Tensor& y, const Tensor& x, const Tensor& index, PoolWindows w) {
  const int64_t C = x.size(1), image = w.input.h * w.input.w * C;
  dispatch_floating(x.dtype(), "max_pool2d_gather", [&]<class T>() {
    dispatch_index(index.dtype(), [&]<class I>() {
      parallel_for(0, x.size(0) * w.output.h, row_grain(w, C), [&](int64_t first, int64_t last) {
        for_each_window(w, C, first, last, [&](int64_t n, const Span& rows, const Span& columns, int64_t at) {
          T* __restrict to = y.ptr<T>() + at;
          const I* __restrict where = index.ptr<I>() + at;
          std::fill_n(to, C, T(0));
          for_each_cell(w, rows, columns, C, [&](int64_t cell, int64_t offset) {
            const T* __restrict from = x.ptr<T>() + n * image + offset;
            for (int64_t c = 0; c < C; ++c) to[c] = where[c] == I(cell) ? from[c] : to[c];
          });
        });
      });
    });
  });
}

// One over the number of cells that a window's sum is divided by.
template <class T>
T weight_of(const PoolWindows& w, const Span& rows, const Span& columns) {
  const int64_t inside = (rows.last - rows.first) * (columns.last - columns.first);
  return T(1) / T(w.count_include_pad ? rows.padded_length * columns.padded_length : inside);
}

void avg_pool2d_cpu(const Tensor& y, const Tensor& x, PoolWindows w) {
  const int64_t C = x.size(1), image = w.input.h * w.input.w * C;
  dispatch_floating(x.dtype(), "avg_pool2d", [&]<class T>() {
    parallel_for(0, x.size(0) * w.output.h, row_grain(w, C), [&](int64_t first, int64_t last) {
      for_each_window(w, C, first, last, [&](int64_t n, const Span& rows, const Span& columns, int64_t at) {
        T* __restrict to = y.ptr<T>() + at;
        std::fill_n(to, C, T(0));
        for_each_cell(w, rows, columns, C, [&](int64_t, int64_t offset) {
          const T* __restrict from = x.ptr<T>() + n * image + offset;
          for (int64_t c = 0; c < C; ++c) to[c] += from[c];
        });
        const T weight = weight_of<T>(w, rows, columns);
        for (int64_t c = 0; c < C; ++c) to[c] *= weight;
      });
    });
  });
}

void avg_pool2d_spread_cpu(const Tensor& dx, const Tensor& dy, PoolWindows w) {
  const int64_t C = dx.size(1), image = w.input.h * w.input.w * C;
  dispatch_floating(dx.dtype(), "avg_pool2d_spread", [&]<class T>() {
    parallel_for(0, dx.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
      std::fill(dx.ptr<T>() + first * image, dx.ptr<T>() + last * image, T(0));
      for_each_window(w, C, first * w.output.h, last * w.output.h,
                      [&](int64_t n, const Span& rows, const Span& columns, int64_t at) {
        const T* __restrict from = dy.ptr<T>() + at;
        const T weight = weight_of<T>(w, rows, columns);
        for_each_cell(w, rows, columns, C, [&](int64_t, int64_t offset) {
          T* __restrict to = dx.ptr<T>() + n * image + offset;
          for (int64_t c = 0; c < C; ++c) to[c] += from[c] * weight;
        });
      });
    });
  });
}

// Each window is read and overwritten before the next one, so x's buffer becomes the gradient in one pass.
void max_pool2d_relu_grad_cpu(const Tensor& x, const Tensor& dy, PoolWindows w) {
  constexpr int64_t kRun = 64;  // channels at a time: their maxima stay in registers or the first cache
  const int64_t C = x.size(1), image = w.input.h * w.input.w * C;
  dispatch_floating(x.dtype(), "max_pool2d_relu_grad_", [&]<class T>() {
    parallel_for(0, x.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
      for_each_window(w, C, first * w.output.h, last * w.output.h,
                      [&](int64_t n, const Span& rows, const Span& columns, int64_t at) {
        for (int64_t start = 0; start < C; start += kRun) {
          const int64_t run = std::min(kRun, C - start);
          const T* from = dy.ptr<T>() + at + start;
          T* cells = x.ptr<T>() + n * image + start;
          std::array<T, kRun> best, left;  // the window's maxima; what no cell has taken yet
          std::fill_n(best.begin(), run, T(0));
          std::copy_n(from, run, left.begin());
          for_each_cell(w, rows, columns, C, [&](int64_t, int64_t offset) {
            for (int64_t c = 0; c < run; ++c) best[c] = std::max(best[c], cells[offset + c]);
          });
          for_each_cell(w, rows, columns, C, [&](int64_t, int64_t offset) {
            for (int64_t c = 0; c < run; ++c) {
              const bool wins = best[c] > 0 && cells[offset + c] == best[c];
              cells[offset + c] = wins ? left[c] : T(0);
              left[c] = wins ? T(0) : left[c];
            }
          });
        }
      });
      // Cells that no window covers.
      for (int64_t n = first; n < last; ++n)
        for (int64_t h = 0; h < w.input.h; ++h) {
          const bool covered_row = h / w.stride.h < w.output.h && h % w.stride.h < w.kernel.h;
          for (int64_t v = 0; v < w.input.w; ++v)
            if (!covered_row || v / w.stride.w >= w.output.w || v % w.stride.w >= w.kernel.w)
              std::fill_n(x.ptr<T>() + n * image + (h * w.input.w + v) * C, C, T(0));
        }
    });
  });
}

const RegisterKernel registrations[] = {
    {raw::max_pool2d_kernel, DeviceType::kCPU, &max_pool2d_cpu},
    {raw::max_pool2d_scatter_kernel, DeviceType::kCPU, &max_pool2d_scatter_cpu},
    {raw::max_pool2d_gather_kernel, DeviceType::kCPU, &max_pool2d_gather_cpu},
    {raw::avg_pool2d_kernel, DeviceType::kCPU, &avg_pool2d_cpu},
    {raw::avg_pool2d_spread_kernel, DeviceType::kCPU, &avg_pool2d_spread_cpu},
    {raw::max_pool2d_relu_grad_kernel, DeviceType::kCPU, &max_pool2d_relu_grad_cpu},
};

}  // namespace
}  // namespace gradus
