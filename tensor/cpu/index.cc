// CPU kernels of gather, scatter, index_select, index_put, nonzero, masked_select, masked_scatter and one_hot.
// Tensors are row-major and seen as [outer, n, inner] around the indexed dim of size n; k is the number of indices
// along that dim (gradus/tensor/ops/index.h). Indices are i64. An index out of range throws IndexError, possibly
// after other elements have been written. Results do not depend on the number of threads.
#include <cstring>
#include <vector>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/value_errors.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kGrain = 16384;    // minimum number of elements per thread
constexpr int64_t kMinColumns = 64;  // minimum width of a tile of columns

inline int64_t checked_index(int64_t index, const IndexedDim& d) {
  if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(d.n)) [[unlikely]]
    throw_invalid_index(d.op, index, d.dim, d.n);
  return index;
}

// Calls f.operator()<T>() with the unsigned integer type of the size of x's elements, for kernels that only
// move elements.
template <class F> void dispatch_by_size(const Tensor& x, F&& f) {
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

// Calls f.operator()<T>(combine), where combine(old, written) returns the new value of an element. T is x's
// element type; for kAssign it is the unsigned integer type of the same size. The other modes take f32, f64
// and integers, kAdd also bool.
template <class F> void dispatch_write(const Tensor& x, const char* op, WriteMode mode, F&& f) {
  if (mode == WriteMode::kAssign)
    return dispatch_by_size(x, [&]<class T>() { f.template operator()<T>([](T, T b) { return b; }); });
  if (mode == WriteMode::kAdd) {
    const auto add = [&]<class T>() { f.template operator()<T>(functors::Add()); };
    return x.dtype() == DType::kBool ? add.template operator()<bool>() : dispatch_numeric(x.dtype(), op, add);
  }
  dispatch_numeric(x.dtype(), op, [&]<class T>() {
    f.template operator()<T>([mode](T a, T b) {
      if (mode == WriteMode::kMultiply) return functors::Mul()(a, b);
      return mode == WriteMode::kMax ? functors::Maximum()(b, a) : functors::Minimum()(b, a);
    });
  });
}

// out[o, i, j] = x[o, index[o, i, j], j].
void gather_cpu(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d) {
  if (out.numel() == 0) return;
  const int64_t k = index.numel() / (d.outer * d.inner);
  const int64_t* at = index.ptr<int64_t>();
  dispatch_by_size(x, [&]<class T>() {
    T* to = out.ptr<T>();
    const T* from = x.ptr<T>();
    if (d.inner == 1) {
      parallel_for(0, d.outer * k, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end;) {
          const int64_t slice = first / k, last = std::min(end, (slice + 1) * k);
          for (const T* block = from + slice * d.n; first < last; ++first)
            to[first] = block[checked_index(at[first], d)];
        }
      });
      return;
    }
    parallel_for(0, d.outer * k, std::max<int64_t>(1, kGrain / d.inner), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* block = from + row / k * d.n * d.inner;
        for (int64_t j = 0; j < d.inner; ++j)
          to[row * d.inner + j] = block[checked_index(at[row * d.inner + j], d) * d.inner + j];
      }
    });
  });
}

// Divides the `inner` columns among threads. All writes to one element come from one column [o, :, j], and
// one thread processes a column in order, so there are no races and the result is deterministic.
struct ColumnTiles {
  int64_t inner, width, tiles;
  ColumnTiles(const IndexedDim& d) : inner(d.inner) {
    const int64_t shares = (num_threads() + d.outer - 1) / d.outer;
    width = std::min(inner, std::max(kMinColumns, (inner + shares - 1) / shares));
    tiles = (inner + width - 1) / width;
  }
  // Calls f(o, first column, number of columns) for all tiles in parallel. `k` is the number of rows of a tile.
  template <class F> void for_each(int64_t outer, int64_t k, F f) const {
    parallel_for(0, outer * tiles, std::max<int64_t>(1, kGrain / (k * width)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t tile = begin; tile < end; ++tile) {
                     const int64_t first = tile % tiles * width;
                     f(tile / tiles, first, std::min(width, inner - first));
                   }
                 });
  }
};

// out[o, index[o, i, j], j] = combine(its old value, src[o, i, j]) for i = 0, 1, ... in order.
void scatter_cpu(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, WriteMode mode) {
  if (index.numel() == 0) return;
  const int64_t k = index.numel() / (d.outer * d.inner);
  const int64_t* at = index.ptr<int64_t>();
  dispatch_write(out, d.op, mode, [&]<class T>(auto combine) {
    T* to = out.ptr<T>();
    const T* from = src.ptr<T>();
    ColumnTiles(d).for_each(d.outer, k, [&](int64_t o, int64_t first, int64_t n) {
      T* block = to + o * d.n * d.inner + first;
      if (d.inner == 1) {
        for (int64_t i = o * k; i < (o + 1) * k; ++i) {
          T& element = block[checked_index(at[i], d)];
          element = combine(element, from[i]);
        }
        return;
      }
      for (int64_t i = 0; i < k; ++i) {
        const int64_t s = (o * k + i) * d.inner + first;
        for (int64_t j = 0; j < n; ++j) {
          T& element = block[checked_index(at[s + j], d) * d.inner + j];
          element = combine(element, from[s + j]);
        }
      }
    });
  });
}

// out[o, i, j] = x[o, index[i], j].
void index_select_cpu(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d) {
  const int64_t k = index.numel();
  const int64_t* at = index.ptr<int64_t>();
  if (out.numel() == 0) {
    for (int64_t i = 0; i < k; ++i) checked_index(at[i], d);
    return;
  }
  const int64_t bytes = d.inner * size_of(x.dtype());
  const auto rows = [&](auto copy_row) {
    parallel_for(0, d.outer * k, std::max<int64_t>(1, kGrain / d.inner), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end;) {
        const int64_t o = row / k, last = std::min(end, (o + 1) * k);
        for (int64_t i = row - o * k; row < last; ++row, ++i)
          copy_row(row, o * d.n + checked_index(at[i], d));
      }
    });
  };
  if (d.inner == 1) {
    dispatch_by_size(x, [&]<class T>() {
      T* to = out.ptr<T>();
      const T* from = x.ptr<T>();
      rows([=](int64_t row, int64_t source) { to[row] = from[source]; });
    });
  } else {
    char* to = static_cast<char*>(out.raw_ptr());
    const char* from = static_cast<const char*>(x.raw_ptr());
    rows([=](int64_t row, int64_t source) { std::memcpy(to + row * bytes, from + source * bytes, bytes); });
  }
}

// out[o, index[i], j] = combine(its old value, src[o, i, j]) for i = 0, 1, ... in order, except where
// index[i] is d.skip.
void index_put_cpu(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, WriteMode mode) {
  const int64_t k = index.numel();
  const int64_t* at = index.ptr<int64_t>();
  for (int64_t i = 0; i < k; ++i) checked_index(at[i], d);
  if (src.numel() == 0) return;
  dispatch_write(out, d.op, mode, [&]<class T>(auto combine) {
    T* to = out.ptr<T>();
    const T* from = src.ptr<T>();
    ColumnTiles(d).for_each(d.outer, k, [&](int64_t o, int64_t first, int64_t n) {
      for (int64_t i = 0; i < k; ++i) {
        if (at[i] == d.skip) continue;
        T* element = to + (o * d.n + at[i]) * d.inner + first;
        const T* s = from + (o * k + i) * d.inner + first;
        for (int64_t j = 0; j < n; ++j) element[j] = combine(element[j], s[j]);
      }
    });
  });
}

// out[i] += index[i] * stride: adds one dim's part to linear offsets. Negative indices count from the end.
void flat_index_cpu(const Tensor& out, const Tensor& index, IndexedDim d, int64_t stride) {
  int64_t* to = out.ptr<int64_t>();
  const int64_t* at = index.ptr<int64_t>();
  parallel_for(0, index.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (at[i] < -d.n || at[i] >= d.n) [[unlikely]]
        throw_invalid_index(d.op, at[i], d.dim, d.n);
      to[i] += (at[i] < 0 ? at[i] + d.n : at[i]) * stride;
    }
  });
}

constexpr int64_t kMaskBlock = 4096;

// Exclusive prefix sum: element b is the number of true elements before block b of kMaskBlock elements. The
// last element is the total.
std::vector<int64_t> counts_before(const bool* mask, int64_t n) {
  const int64_t blocks = (n + kMaskBlock - 1) / kMaskBlock;
  std::vector<int64_t> before(blocks + 1, 0);
  parallel_for(0, blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kMaskBlock, last = std::min(n, first + kMaskBlock);
      int count = 0;
      for (int64_t i = first; i < last; ++i) count += mask[i];
      before[b + 1] = count;
    }
  });
  for (int64_t b = 0; b < blocks; ++b) before[b + 1] += before[b];
  return before;
}

// out[k, d] = coordinate d of the k-th true element of a bool x, in row-major order; out has a row for each.
void nonzero_cpu(const Tensor& out, const Tensor& x) {
  const bool* p = x.ptr<bool>();
  const int dims = x.dim();
  const std::vector<int64_t> before = counts_before(p, x.numel());
  const Strides strides = row_major_strides(x.shape());
  parallel_for(0, static_cast<int64_t>(before.size()) - 1, 4, [&](int64_t begin, int64_t end) {
    int64_t* to = out.ptr<int64_t>() + before[begin] * dims;
    int64_t position[kMaxDims] = {};
    for (int64_t i = begin * kMaskBlock, d = 0; d < dims; ++d) position[d] = i / strides[d], i %= strides[d];
    for (int64_t i = begin * kMaskBlock, last = std::min(x.numel(), end * kMaskBlock); i < last; ++i) {
      if (p[i])
        for (int d = 0; d < dims; ++d) *to++ = position[d];
      for (int d = dims - 1; d >= 0 && ++position[d] == x.shape()[d]; --d)
        if (d > 0) position[d] = 0;
    }
  });
}

// out = elements of x where mask is true, then zeros. A block is compacted without branches in a buffer with
// room for one element more: an element that is not kept is also written.
void masked_select_cpu(const Tensor& out, const Tensor& x, const Tensor& mask) {
  const bool* m = mask.ptr<bool>();
  const int64_t n = mask.numel();
  const std::vector<int64_t> before = counts_before(m, n);
  if (before.back() > out.numel()) throw_small_selection(before.back(), out.numel());
  dispatch_by_size(x, [&]<class T>() {
    T* to = out.ptr<T>();
    const T* from = x.ptr<T>();
    parallel_for(0, static_cast<int64_t>(before.size()) - 1, 4, [&](int64_t begin, int64_t end) {
      T packed[kMaskBlock + 1];
      for (int64_t b = begin; b < end; ++b) {
        const int64_t last = std::min(n, (b + 1) * kMaskBlock);
        int64_t count = 0;
        for (int64_t i = b * kMaskBlock; i < last; ++i) {
          packed[count] = from[i];
          count += m[i];
        }
        std::memcpy(to + before[b], packed, count * sizeof(T));
      }
    });
    std::fill(to + before.back(), to + out.numel(), T(0));
  });
}

// out[i] = the next element of src where mask[i] is true, else x[i] (0 if x is undefined).
void masked_scatter_cpu(const Tensor& out, const Tensor& x, const Tensor& mask, const Tensor& src) {
  const bool* m = mask.ptr<bool>();
  const int64_t n = out.numel(), source_count = src.numel();
  const std::vector<int64_t> before = counts_before(m, n);
  if (before.back() > source_count) throw_small_source(before.back(), source_count);
  dispatch_by_size(out, [&]<class T>() {
    T* to = out.ptr<T>();
    const T zero{};
    const T* from = source_count > 0 ? src.ptr<T>() : &zero;
    const T* base = x.defined() ? x.ptr<T>() : nullptr;
    const int64_t last_source = std::max<int64_t>(0, source_count - 1);
    parallel_for(0, static_cast<int64_t>(before.size()) - 1, 4, [&](int64_t begin, int64_t end) {
      int64_t at = before[begin];
      for (int64_t i = begin * kMaskBlock, last = std::min(n, end * kMaskBlock); i < last; ++i) {
        const T next = from[std::min(at, last_source)], old = base ? base[i] : T(0);
        to[i] = m[i] ? next : old;
        at += m[i];
      }
    });
  });
}

// out[i, c] = 1 if c == index[i], else 0.
void one_hot_cpu(const Tensor& out, const Tensor& index) {
  const IndexedDim classes{.n = out.shape().back(), .dim = out.dim() - 1, .op = "one_hot"};
  const int64_t* at = index.ptr<int64_t>();
  std::memset(out.raw_ptr(), 0, out.nbytes());
  dispatch_all(out.dtype(), [&]<class T>() {
    T* to = out.ptr<T>();
    for (int64_t i = 0; i < index.numel(); ++i)
      to[i * classes.n + checked_index(at[i], classes)] = static_cast<T>(1);
  });
}

}  // namespace

constinit decltype(gather_kernel) gather_kernel{"gather", &gather_cpu};
constinit decltype(scatter_kernel) scatter_kernel{"scatter", &scatter_cpu};
constinit decltype(index_select_kernel) index_select_kernel{"index_select", &index_select_cpu};
constinit decltype(index_put_kernel) index_put_kernel{"index_put", &index_put_cpu};
constinit decltype(flat_index_kernel) flat_index_kernel{"index", &flat_index_cpu};
constinit decltype(masked_select_kernel) masked_select_kernel{"masked_select", &masked_select_cpu};
constinit decltype(masked_scatter_kernel) masked_scatter_kernel{"masked_scatter", &masked_scatter_cpu};
constinit decltype(nonzero_kernel) nonzero_kernel{"nonzero", &nonzero_cpu};
constinit decltype(one_hot_kernel) one_hot_kernel{"one_hot", &one_hot_cpu};

}  // namespace gradus::raw
