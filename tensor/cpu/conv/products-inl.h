// Operands of the matrix products of convolutions: their layouts, the prefetching of their sources, and the
// products of weight gradients (PositionSums). Strides count floats unless noted. Highway compiles this file
// once per instruction set.
#if defined(GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H
#undef GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H
#else
#define GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H
#endif

#include <algorithm>
#include <type_traits>

#include "gradus/tensor/cpu/product_blocks-inl.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

// A view of an array [planes][positions][channels], with strides that are padded so that rows and planes do
// not map to the same cache sets. floats() returns the size of the memory.
struct Planes {
  Planes(float* data, int64_t positions, int64_t channels)
      : data(data), row_stride(row_stride_of(channels)), plane_stride(positions * row_stride + kLanes) {}
  static int64_t row_stride_of(int64_t channels) { return channels + kLanes; }
  static int64_t floats(int64_t planes, int64_t positions, int64_t channels) {
    return planes * (positions * row_stride_of(channels) + kLanes);
  }
  float* at(int64_t p, int64_t position, int64_t channel = 0) const {
    return data + p * plane_stride + position * row_stride + channel;
  }
  float* data;
  int64_t row_stride, plane_stride;
};

// An array [planes][channels / kPanel][positions][kPanel], with the interface of Planes.
struct Panels {
  Panels(float* data, int64_t positions, int64_t channels)
      : data(data),
        panel_stride(positions * row_stride + kCacheLine),
        plane_stride((channels + kPanel - 1) / kPanel * panel_stride) {}
  static int64_t floats(int64_t planes, int64_t positions, int64_t channels) {
    return planes * Panels(nullptr, positions, channels).plane_stride;
  }
  float* at(int64_t p, int64_t position, int64_t channel = 0) const {
    return data + p * plane_stride + channel / kPanel * panel_stride + position * row_stride +
           channel % kPanel;
  }
  static constexpr int64_t kCacheLine = 16;  // floats in a cache line
  float* data;
  static constexpr int64_t row_stride = kPanel;
  int64_t panel_stride, plane_stride;
};

// Distributes the prefetching of ranges of up to two tensors over `products` calls of product().
class PrefetchPlan {
 public:
  explicit PrefetchPlan(int64_t products) : products_(products) {}
  // Adds positions [first, last) of t, which has `positions` positions of equal size.
  void add(const Tensor& t, int64_t first, int64_t last, int64_t positions) {
    const auto at = [&](int64_t i) { return int64_t(double(t.nbytes()) / double(positions) * double(i)); };
    first_bytes_ = bytes_;
    first_ = second_;
    second_ = static_cast<const char*>(t.raw_ptr()) + at(first);
    bytes_ += at(last) - at(first);
  }
  // Returns what call i prefetches in its K steps.
  Prefetch share(int64_t i, int64_t K) const {
    const int64_t at = bytes_ * i / products_, end = bytes_ * (i + 1) / products_;
    return {at < first_bytes_ ? first_ + at : second_ + (at - first_bytes_), (end - at) / K};
  }

 private:
  const char *first_ = nullptr, *second_ = nullptr;
  int64_t first_bytes_ = 0, bytes_ = 0, products_;
};

// The layout of operands that are summed over positions. With few rows per block, rows of Planes would use
// only a part of each cache line, so the operands are in Panels.
using Operands = std::conditional_t<(kMaxRows < 8), Panels, Planes>;
// Channels of d that stay in the second-level cache while PositionSums::add reads all panels of v.
constexpr int kGroup = 128;

// The products of weight gradients: sums[plane][o][c] = sum over positions of d[plane][position][o] *
// v[plane][position][c]. Requires C divisible by kPanel.
struct PositionSums {
  int64_t planes, O, C;
  Tensor dy, x;       // the sources of d and v, roughly in order of positions; only prefetched
  int64_t positions;  // total number
  int64_t max_chunk = kMaxRows < 8 ? 256 : 392;  // positions per chunk of d and v, to fit into the cache

  // Partial sums, one set for each share: one of `shares` ranges of the positions.
  struct Result {
    // Returns row o of plane p, summed over the shares in order. Modifies the first share, so at most one
    // call per row.
    const float* total(int64_t p, int64_t o, int64_t C) const {
      float* to = planes.at(p, o);
      for (int64_t s = 1; s < shares; ++s)
        for (int64_t c = 0; c < C; ++c) to[c] += to[s * share + c];
      return to;
    }
    Tensor bytes;           // owns the memory of `planes`
    Planes planes;          // the sums of the first share
    int64_t shares, share;  // number of shares; floats per share
  };
  // Computes the sums on all threads; their rounding may depend on the number of threads. fill(first, last,
  // base, d, v) must write positions [first, last) of d and v, at index position - base; several threads call
  // it at once.
  template <class Fill> Result compute(Fill fill) const;

 private:
  // Adds the products of `count` positions to the panels [first, last) of kPanel columns, numbered through
  // all planes, or overwrites the sums if `overwrite`. Prefetches positions [next, after).
  void add(const Operands& d, const Operands& v, int64_t count, int64_t first, int64_t last, bool overwrite,
           const Planes& sums, int64_t next, int64_t after) const {
    const auto& products = overwrite ? kProducts : kAccumulatingProducts;
    constexpr bool kInPanels = std::is_same_v<Operands, Panels>;
    const int64_t panels = C / kPanel, strip = kInPanels ? int64_t(kPanel) : O;
    const int64_t group = kInPanels ? int64_t(kGroup) : O;
    PrefetchPlan prefetch_plan((last - first) *
                               (O / strip * ceil_div(strip, kMaxRows) + ceil_div(O % strip, kMaxRows)));
    prefetch_plan.add(dy, next, after, positions);
    prefetch_plan.add(x, next, after, positions);
    int64_t done = 0;
    const auto multiply = [&](int64_t p, int64_t c, int64_t o, int64_t count_of_o) {
      for_row_blocks(count_of_o, [&](int64_t row, int64_t rows) {
        products[rows - 1](d.at(p, 0, o + row), 1, d.row_stride, v.at(p, 0, c), v.row_stride, count,
                           sums.at(p, o + row, c), sums.row_stride, prefetch_plan.share(done++, count));
      });
    };
    for (int64_t i = first, end; i < last; i = end) {  // panels of one plane
      end = std::min(last, (i / panels + 1) * panels);
      for (int64_t o = 0; o < O; o += group)
        for (int64_t k = i; k < end; ++k)
          for (int64_t at = o; at < std::min(O, o + group); at += strip)
            multiply(i / panels, k % panels * kPanel, at, std::min(strip, O - at));
    }
  }
};

template <class Fill> PositionSums::Result PositionSums::compute(Fill fill) const {
  const int64_t chunk = std::min(max_chunk, positions), size = Planes::floats(planes, O, C);
  // Small sums: one share of the positions per thread. Large sums: one share, whose panels the threads
  // divide.
  const int64_t threads = std::min<int64_t>(num_threads(), positions / 64 + 1);
  const bool per_thread = threads * size * int64_t(sizeof(float)) <= (int64_t{8} << 20);
  const int64_t shares = per_thread ? threads : 1;
  const Tensor sums = scratch(shares * size);
  const int64_t d_floats = Operands::floats(planes, chunk, O);
  const int64_t floats = d_floats + Operands::floats(planes, chunk, C);
  const Tensor bytes = scratch(shares * floats);

  const auto add_share = [&](int64_t share, auto for_range) {
    const Operands d(bytes.ptr<float>() + share * floats, chunk, O), v(d.data + d_floats, chunk, C);
    const int64_t begin = positions * share / shares, end = positions * (share + 1) / shares;
    for (int64_t base = begin; base < end; base += chunk) {
      const int64_t count = std::min(chunk, end - base), next = base + count;
      for_range(count, [&](int64_t first, int64_t last) { fill(base + first, base + last, base, d, v); });
      for_range(planes * (C / kPanel), [&](int64_t first, int64_t last) {
        add(d, v, count, first, last, base == begin, {sums.ptr<float>() + share * size, O, C}, next,
            std::min(end, next + chunk));
      });
    }
  };
  if (!per_thread) {
    add_share(0, [](int64_t n, auto f) { parallel_for(0, n, 1, f); });
  } else {
    parallel_for(0, shares, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) add_share(i, [](int64_t n, auto f) { f(0, n); });
    });
  }
  return {sums, {sums.ptr<float>(), O, C}, shares, size};
}

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
