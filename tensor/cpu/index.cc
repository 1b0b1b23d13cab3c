// Indexing by tensors of indices on the CPU.
#include <cstring>

#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kGrain = 16384;  // elements moved
constexpr int64_t kColumns = 64;   // least neighbours that one thread takes, where columns are shared out

int64_t checked(int64_t index, const IndexedDim& d, const char* op) {
  if (index < 0 || index >= d.n)
    throw IndexError(op, "index ", index, " is out of range for dim ", d.dim, " of size ", d.n);
  return index;
}

// Calls f.operator()<T>() with an unsigned type as wide as x's elements: moving needs no more.
template <class F>
void dispatch_width(const Tensor& x, F&& f) {
  switch (size_of(x.dtype())) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return static_cast<T>(a + b);
}

// Calls f.operator()<T, add>(); without `add`, T is as wide as x's elements and no more is known of it.
template <class F>
void dispatch_write(const Tensor& x, bool add, F&& f) {
  if (add) {
    dispatch_all(x.dtype(), [&]<class T>() { f.template operator()<T, true>(); });
  } else {
    dispatch_width(x, [&]<class T>() { f.template operator()<T, false>(); });
  }
}

void gather_cpu(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d) {
  if (out.numel() == 0) return;
  const int64_t k = index.numel() / (d.outer * d.inner);
  const int64_t* at = index.ptr<int64_t>();
  dispatch_width(x, [&]<class T>() {
    T* to = out.ptr<T>();
    const T* from = x.ptr<T>();
    parallel_for(0, d.outer * k, std::max<int64_t>(1, kGrain / d.inner), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* block = from + row / k * d.n * d.inner;
        for (int64_t j = 0; j < d.inner; ++j)
          to[row * d.inner + j] = block[checked(at[row * d.inner + j], d, "gather") * d.inner + j];
      }
    });
  });
}

void scatter_cpu(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, bool add) {
  const int64_t lines = d.outer * d.inner;
  if (lines == 0 || index.numel() == 0) return;
  const int64_t k = index.numel() / lines;
  const int64_t* at = index.ptr<int64_t>();
  dispatch_write(out, add, [&]<class T, bool adds>() {
    T* to = out.ptr<T>();
    const T* from = src.ptr<T>();
    // Equal targets lie on one line along the dimension, and one thread takes a line in order.
    parallel_for(0, lines, std::max<int64_t>(1, kGrain / k), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t o = line / d.inner, j = line % d.inner;
        for (int64_t i = 0; i < k; ++i) {
          const int64_t s = (o * k + i) * d.inner + j;
          T& target = to[(o * d.n + checked(at[s], d, adds ? "scatter_add" : "scatter")) * d.inner + j];
          if constexpr (adds)
            target = sum_of(target, from[s]);
          else
            target = from[s];
        }
      }
    });
  });
}

void index_select_cpu(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d) {
  const int64_t k = index.numel(), bytes = d.inner * size_of(x.dtype());
  const int64_t* at = index.ptr<int64_t>();
  for (int64_t i = 0; i < k; ++i) checked(at[i], d, "index_select");
  if (out.numel() == 0) return;
  char* to = static_cast<char*>(out.raw_ptr());
  const char* from = static_cast<const char*>(x.raw_ptr());
  parallel_for(0, d.outer * k, std::max<int64_t>(1, kGrain / d.inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(to + row * bytes, from + (row / k * d.n + at[row % k]) * bytes, bytes);
  });
}

void index_put_cpu(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, bool add) {
  const int64_t k = index.numel();
  const int64_t* at = index.ptr<int64_t>();
  for (int64_t i = 0; i < k; ++i) checked(at[i], d, add ? "index_add" : "index_copy");
  if (src.numel() == 0) return;
  dispatch_write(out, add, [&]<class T, bool adds>() {
    T* to = out.ptr<T>();
    const T* from = src.ptr<T>();
    // A thread takes some columns of all slices, in order: repeated indices never meet.
    const int64_t shares = (num_threads() + d.outer - 1) / d.outer;
    const int64_t width = std::min(d.inner, std::max(kColumns, (d.inner + shares - 1) / shares));
    const int64_t tiles = (d.inner + width - 1) / width;
    parallel_for(0, d.outer * tiles, std::max<int64_t>(1, kGrain / (k * width)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t tile = begin; tile < end; ++tile) {
                     const int64_t o = tile / tiles, first = tile % tiles * width,
                                   n = std::min(width, d.inner - first);
                     for (int64_t i = 0; i < k; ++i) {
                       T* target = to + (o * d.n + at[i]) * d.inner + first;
                       const T* s = from + (o * k + i) * d.inner + first;
                       for (int64_t j = 0; j < n; ++j) {
                         if constexpr (adds)
                           target[j] = sum_of(target[j], s[j]);
                         else
                           target[j] = s[j];
                       }
                     }
                   }
                 });
  });
}

void flat_index_cpu(const Tensor& out, const Tensor& index, int64_t size, int64_t stride, int dim) {
  int64_t* to = out.ptr<int64_t>();
  const int64_t* at = index.ptr<int64_t>();
  for (int64_t i = 0; i < index.numel(); ++i) {
    if (at[i] < -size || at[i] >= size)
      throw IndexError("index", "index ", at[i], " is out of range for dim ", dim, " of size ", size);
    to[i] += (at[i] < 0 ? at[i] + size : at[i]) * stride;
  }
}

void nonzero_cpu(const Tensor& out, const Tensor& x) {
  const bool* p = x.ptr<bool>();
  int64_t* to = out.ptr<int64_t>();
  const int n = x.dim();
  const Strides strides = row_major_strides(x.shape());
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (!p[i]) continue;
    for (int d = 0; d < n; ++d) *to++ = i / strides[d] % x.shape()[d];
  }
}

void one_hot_cpu(const Tensor& out, const Tensor& index) {
  const IndexedDim classes{.n = out.shape().back(), .dim = out.dim() - 1};
  const int64_t* at = index.ptr<int64_t>();
  std::memset(out.raw_ptr(), 0, out.nbytes());
  dispatch_all(out.dtype(), [&]<class T>() {
    T* to = out.ptr<T>();
    for (int64_t i = 0; i < index.numel(); ++i)
      to[i * classes.n + checked(at[i], classes, "one_hot")] = static_cast<T>(1);
  });
}

const RegisterKernel kGather(gather_kernel, DeviceType::kCPU, &gather_cpu);
const RegisterKernel kScatter(scatter_kernel, DeviceType::kCPU, &scatter_cpu);
const RegisterKernel kIndexSelect(index_select_kernel, DeviceType::kCPU, &index_select_cpu);
const RegisterKernel kIndexPut(index_put_kernel, DeviceType::kCPU, &index_put_cpu);
const RegisterKernel kFlatIndex(flat_index_kernel, DeviceType::kCPU, &flat_index_cpu);
const RegisterKernel kNonzero(nonzero_kernel, DeviceType::kCPU, &nonzero_cpu);
const RegisterKernel kOneHot(one_hot_kernel, DeviceType::kCPU, &one_hot_cpu);

}  // namespace
}  // namespace gradus::raw
