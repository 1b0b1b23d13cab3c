// CPU kernels of sort, topk, kthvalue, median, mode, unique's row order, searchsorted and histc. Sorting and
// selection work along dim 1 of row-major [outer, n, inner]; a slice is the n elements with stride `inner` at
// one position of outer and inner. Algorithms: radix sort or std::sort, a bounded buffer for a small k,
// std::nth_element for a selection. Slices are distributed over threads. Callers have checked shapes and
// dtypes.
//
// Note [Sort keys]
// An element is mapped to an unsigned integer key of the same order (NaN last), followed by its index. No two
// keys are equal, so every algorithm is stable and all give the same result. Complemented keys sort in
// descending order. Values are then copied by index, so -0 stays -0.
#include "gradus/tensor/ops/sort.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "gradus/tensor/cpu/reduce_types.h"
#include "gradus/tensor/ops/formulas/sort.h"
#include "gradus/tensor/ops/value_errors.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

using cpu::dispatch_bool_as_u8;
using cpu::is_nan;

constexpr int64_t kGrain = 8192;          // minimum number of elements per thread
constexpr int64_t kMinRadixLength = 256;  // minimum length for radix sort; std::sort is faster below

template <class T> using KeyOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// Returns the key of x. Floats: the IEEE 754 bits with the sign bit flipped if positive, all bits flipped if
// negative.
template <class T> KeyOf<T> key_of(T x) {
  using K = KeyOf<T>;
  constexpr K kSign = K(1) << (8 * sizeof(K) - 1);
  if constexpr (is_floating(dtype_v<T>)) {
    using F = std::conditional_t<sizeof(T) == 8, double, float>;
    const F f = static_cast<F>(x) + F(0);  // -0 becomes 0
    const K bits = std::bit_cast<K>(f);
    const K key = bits & kSign ? ~bits : bits | kSign;
    return f != f ? ~K(0) : key;
  } else if constexpr (std::is_signed_v<T>) {  // i8 keys have 8 bits, one radix digit
    return static_cast<std::make_unsigned_t<T>>(x) ^ (K(1) << (8 * sizeof(T) - 1));
  } else {
    return x;
  }
}

// A 64-bit key with its index. A 32-bit key and its index share one uint64_t.
struct KeyAndIndex {
  uint64_t key;
  uint64_t at;
  bool operator<(const KeyAndIndex& o) const { return key < o.key || (key == o.key && at < o.at); }
};
template <class K> using SortItem = std::conditional_t<sizeof(K) == 8, KeyAndIndex, uint64_t>;

// clang-format off
inline KeyAndIndex make_item(uint64_t key, int64_t at) { return {key, static_cast<uint64_t>(at)}; }
inline uint64_t make_item(uint32_t key, int64_t at) { return uint64_t(key) << 32 | static_cast<uint64_t>(at); }
inline int64_t index_of(const KeyAndIndex& i) { return static_cast<int64_t>(i.at); }
inline int64_t index_of(uint64_t i) { return static_cast<int64_t>(i & 0xffffffffu); }
inline uint64_t key_bits(const KeyAndIndex& i) { return i.key; }
inline uint64_t key_bits(uint64_t i) { return i >> 32; }
// clang-format on

// LSD radix sort with digits of 8 bits. `spare` has room for n items. Returns the array with the result:
// items or spare.
template <class I, int digits> I* radix_sort(I* items, I* spare, int64_t n) {
  static_assert(digits <= 8);
  std::vector<uint32_t> counts(digits * 256);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = key_bits(items[i]);
    for (int d = 0; d < digits; ++d) ++counts[d * 256 + (key >> (8 * d) & 255)];
  }
  for (int d = 0; d < digits; ++d) {
    uint32_t* count = &counts[d * 256];
    if (count[key_bits(items[0]) >> (8 * d) & 255] == n) continue;  // all items have the same digit
    uint32_t sum = 0;
    for (int b = 0; b < 256; ++b) sum += std::exchange(count[b], sum);
    for (int64_t i = 0; i < n; ++i) spare[count[key_bits(items[i]) >> (8 * d) & 255]++] = items[i];
    std::swap(items, spare);
  }
  return items;
}

// Errors: ShapeError for n of 2^32 or more: the index of an item has 32 bits.
void check_slice_length(int64_t n) {
  if (n > std::numeric_limits<uint32_t>::max())
    throw ShapeError("sort", "expected fewer than 2^32 elements along the dim, got ", n);
}

// The items (key, index) of one slice of n elements, with a buffer for sorting.
// Errors: as check_slice_length.
template <class T> class SliceSorter {
 public:
  using K = KeyOf<T>;
  using I = SortItem<K>;
  explicit SliceSorter(int64_t n) : n_(n) {
    check_slice_length(n);
    items_.reset(new I[n]);
  }

  void load(const T* x, int64_t stride, bool descending) {
    for (int64_t i = 0; i < n_; ++i)
      items_[i] = make_item(descending ? K(~key_of(x[i * stride])) : key_of(x[i * stride]), i);
  }

  // Sorts all items and returns them.
  const I* sorted() {
    if (n_ < kMinRadixLength) {
      std::sort(items_.get(), items_.get() + n_);
      return items_.get();
    }
    if (!spare_) spare_.reset(new I[n_]);
    return radix_sort < I, sizeof(K) == 4 ? (sizeof(T) == 1 ? 1 : 4) : 8 > (items_.get(), spare_.get(), n_);
  }

  // Returns the k-th smallest item, k from 0. Reorders the items.
  I kth(int64_t k) {
    std::nth_element(items_.get(), items_.get() + k, items_.get() + n_);
    return items_[k];
  }

  const I& operator[](int64_t i) const { return items_[i]; }

 private:
  int64_t n_;
  std::unique_ptr<I[]> items_, spare_;
};

// Selects the first k items of a slice in sort order. Candidates are collected in a buffer of about 4 * k items. A
// full buffer is reduced to its first k items, whose largest key becomes the limit for further candidates.
template <class T> class TopK {
 public:
  using K = KeyOf<T>;
  using I = SortItem<K>;
  explicit TopK(int64_t k) : k_(k), capacity_(std::max<int64_t>(4 * k, 256)), items_(new I[capacity_]) {}
  const I* find(const T* x, int64_t n, int64_t stride, bool descending) {
    int64_t count = 0;
    K limit = ~K(0);
    for (int64_t i = 0; i < n; ++i) {
      const K key = descending ? K(~key_of(x[i * stride])) : key_of(x[i * stride]);
      if (key > limit) continue;
      items_[count++] = make_item(key, i);
      if (count == capacity_) {
        std::nth_element(items_.get(), items_.get() + k_ - 1, items_.get() + count);
        limit = static_cast<K>(key_bits(items_[k_ - 1]));
        count = k_;
      }
    }
    if (k_ < count) std::nth_element(items_.get(), items_.get() + k_ - 1, items_.get() + count);
    std::sort(items_.get(), items_.get() + k_);
    return items_.get();
  }

 private:
  int64_t k_, capacity_;
  std::unique_ptr<I[]> items_;
};

// Calls f(scratch, slice) in parallel for all outer * inner slices along dim 1 of x. Each thread has its own
// scratch = make().
template <class Make, class F> void for_each_slice(const Tensor& x, Make&& make, F&& f) {
  const int64_t n = x.shape()[1], slices = x.shape()[0] * x.shape()[2];
  parallel_for(0, slices, std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)),
               [&](int64_t begin, int64_t end) {
                 auto scratch = make();
                 for (int64_t i = begin; i < end; ++i) f(scratch, i);
               });
}

// values, indices [outer, k, inner] = the first k elements of each slice in sorted order; k = n sorts.
void sort_cpu(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending) {
  const int64_t n = x.shape()[1], inner = x.shape()[2], k = values.shape()[1];
  check_slice_length(n);
  dispatch_bool_as_u8(x, [&]<class T>() {
    const T* p = x.ptr<T>();
    T* v = values.ptr<T>();
    int64_t* at = indices.ptr<int64_t>();
    const auto write_result = [&](const auto* items, int64_t slice) {
      const T* from = p + slice / inner * n * inner + slice % inner;
      const int64_t base = slice / inner * k * inner + slice % inner;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t a = index_of(items[i]);
        v[base + i * inner] = from[a * inner];
        at[base + i * inner] = a;
      }
    };
    const auto start = [=](int64_t slice) { return p + slice / inner * n * inner + slice % inner; };
    if (8 * k <= n) {  // selecting is cheaper than sorting all
      for_each_slice(
          x, [&] { return TopK<T>(k); },
          [&](TopK<T>& top, int64_t slice) {
            write_result(top.find(start(slice), n, inner, descending), slice);
          });
      return;
    }
    for_each_slice(
        x, [&] { return SliceSorter<T>(n); },
        [&](SliceSorter<T>& items, int64_t slice) {
          items.load(start(slice), inner, descending);
          write_result(items.sorted(), slice);
        });
  });
}

// Returns the index of the most frequent key of sorted items: the smallest such key, its last occurrence.
template <class I> int64_t mode_of(const I* items, int64_t n) {
  int64_t best = 0, best_run = 0, run = 0;
  for (int64_t i = 0; i < n; ++i) {
    run = i > 0 && key_bits(items[i]) == key_bits(items[i - 1]) ? run + 1 : 1;
    if (run > best_run) best_run = run, best = i;
  }
  return index_of(items[best]);
}

// Returns the index of the selected element; k, from 0, is for kKth alone. The median is the lower of two
// middle elements. kMedian returns a NaN if there is one; kNanMedian ignores NaN.
template <class T>
int64_t select_index(SliceSorter<T>& items, const T* x, int64_t n, int64_t stride, Selection what,
                     int64_t k) {
  items.load(x, stride, false);
  if (what == Selection::kMode) return mode_of(items.sorted(), n);
  if (what == Selection::kKth) return index_of(items.kth(k));
  int64_t not_nan = n;
  if constexpr (is_floating(dtype_v<T>)) {
    for (int64_t i = 0; i < n; ++i) {
      if (!is_nan(static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(x[i * stride]))) continue;
      if (what == Selection::kMedian) return i;
      --not_nan;
    }
  }
  return index_of(items.kth(not_nan == 0 ? 0 : (not_nan - 1) / 2));
}

void select_cpu(const Tensor& values, const Tensor& indices, const Tensor& x, Selection what, int64_t k) {
  const int64_t n = x.shape()[1], inner = x.shape()[2];
  dispatch_bool_as_u8(x, [&]<class T>() {
    const T* p = x.ptr<T>();
    for_each_slice(
        x, [&] { return SliceSorter<T>(n); },
        [&](SliceSorter<T>& items, int64_t slice) {
          const T* from = p + slice / inner * n * inner + slice % inner;
          const int64_t at = select_index(items, from, n, inner, what, k);
          values.ptr<T>()[slice] = from[at * inner];
          indices.ptr<int64_t>()[slice] = at;
        });
  });
}

// order = the stable permutation that sorts the rows of x [n, m] lexicographically.
void sort_rows_cpu(const Tensor& order, const Tensor& x) {
  const int64_t n = x.shape()[0], m = x.shape()[1];
  int64_t* at = order.ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i) at[i] = i;
  dispatch_bool_as_u8(x, [&]<class T>() {
    const T* p = x.ptr<T>();
    std::stable_sort(at, at + n, [=](int64_t a, int64_t b) {
      for (int64_t j = 0; j < m; ++j) {
        const KeyOf<T> ka = key_of(p[a * m + j]), kb = key_of(p[b * m + j]);
        if (ka != kb) return ka < kb;
      }
      return false;
    });
  });
}

// out [rows, m] = the position of values [rows, m] in the row of sorted [rows, n], of the same dtype.
void searchsorted_cpu(const Tensor& out, const Tensor& sorted, const Tensor& values, bool right) {
  const int64_t n = sorted.shape()[1], m = values.shape()[1];
  dispatch_bool_as_u8(values, [&]<class T>() {
    using V = cpu::ComparisonType<T>;
    const T *s = sorted.ptr<T>(), *v = values.ptr<T>();
    int64_t* to = out.ptr<int64_t>();
    parallel_for(0, values.numel(), 512, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* slice = s + i / m * n;
        const V value = static_cast<V>(v[i]);
        // NaN sorts after all numbers, for left and right.
        const auto as_value = [](T x) { return static_cast<V>(x); };
        to[i] = is_nan(value) ? n
                : right       ? formulas::bound_index<true>(value, slice, n, as_value)
                              : formulas::bound_index<false>(value, slice, n, as_value);
      }
    });
  });
}

// out [bins] = the number of elements in each of equal parts of [low, high]; low = high: of the range of x.
void histc_cpu(const Tensor& out, const Tensor& x, double low, double high) {
  const int64_t bins = out.numel(), n = x.numel();
  dispatch_floating(x.dtype(), "histc", [&]<class T>() {
    const T* p = x.ptr<T>();
    T from = static_cast<T>(low), to = static_cast<T>(high);
    if (from == to && n > 0) {
      const auto [min, max] = std::minmax_element(p, p + n);
      from = *min, to = *max;
      // minmax_element orders NaN with nothing.
      if (const T* const nan = std::find_if(p, p + n, is_nan<T>); nan != p + n) from = *nan;
    }
    for (const T bound : {from, to})
      if (!std::isfinite(bound)) throw_infinite_range(bound);
    std::vector<int64_t> counts(bins);
    const auto histogram = formulas::HistogramBins<T>::of(from, to, bins);
    for (int64_t i = 0; i < n; ++i)
      if (histogram.contains(p[i])) ++counts[histogram.bin_of(p[i])];
    std::copy(counts.begin(), counts.end(), out.ptr<T>());
  });
}

}  // namespace

constinit decltype(sort_kernel) sort_kernel{"sort", &sort_cpu};
constinit decltype(select_kernel) select_kernel{"kthvalue", &select_cpu};
constinit decltype(sort_rows_kernel) sort_rows_kernel{"unique", &sort_rows_cpu};
constinit decltype(searchsorted_kernel) searchsorted_kernel{"searchsorted", &searchsorted_cpu};
constinit decltype(histc_kernel) histc_kernel{"histc", &histc_cpu};

}  // namespace gradus::raw
