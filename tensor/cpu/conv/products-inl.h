// Matrix products for convolutions that are computed in pieces. The operands of a piece were just written and
// are still in a cache. A block of the result is summed in registers.
#if defined(GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H
#undef GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H
#else
#define GRADUS_TENSOR_CPU_CONV_PRODUCTS_INL_H
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "gradus/tensor/cpu/vectors-inl.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

constexpr int kPanel = 2 * kLanes;                   // columns of a block of the result
constexpr int kMaxRows = kRegisters == 16 ? 6 : 14;  // and its rows

// Memory that a product prefetches into the second-level cache while it computes. Each of the product's K
// steps prefetches the line at `at`, then adds `step` to `at`.
struct Ahead {
  const char* at = nullptr;
  int64_t step = 0;
};

constexpr int kColumnsAhead = 8;  // columns of a, perhaps in memory, to prefetch; more evict each other

// Computes c[R][kPanel] = a[R][K] b[K][kPanel], or c += a b if kAdd. a_row and a_column are the steps between
// a's rows and columns.
template <int R, bool kAdd>
void product(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t b_row, int64_t K,
             float* c, int64_t c_row, Ahead ahead) {
  if (!ahead.at) ahead.at = reinterpret_cast<const char*>(b);
  Floats sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = hn::Zero(kFloats);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {  // c is written at the end: fetch it while the sums are made
    __builtin_prefetch(c + r * c_row, 1);
    __builtin_prefetch(c + r * c_row + kLanes, 1);
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < K; ++k, a += a_column, b += b_row) {
    __builtin_prefetch(a + kColumnsAhead * a_column, 0, 3);
    __builtin_prefetch(ahead.at, 0, 2);
    ahead.at += ahead.step;
    const Floats b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Floats v = hn::Set(kFloats, a[r * a_row]);
      sum[r][0] = hn::MulAdd(v, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(v, b1, sum[r][1]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    float* to = c + r * c_row;
    if constexpr (kAdd) {
      sum[r][0] = load(to) + sum[r][0];
      sum[r][1] = load(to + kLanes) + sum[r][1];
    }
    store(to, sum[r][0]);
    store(to + kLanes, sum[r][1]);
  }
}

using Product = void (*)(const float*, int64_t, int64_t, const float*, int64_t, int64_t, float*, int64_t,
                         Ahead);
template <bool kAdd, size_t... R>
constexpr std::array<Product, kMaxRows> make_products(std::index_sequence<R...>) {
  return {&product<int(R) + 1, kAdd>...};
}
inline constexpr auto kProducts = make_products<false>(std::make_index_sequence<kMaxRows>());
inline constexpr auto kAddedProducts = make_products<true>(std::make_index_sequence<kMaxRows>());

// Returns memory for a kernel's own use. Its size is rounded so that few different sizes occur and many
// convolutions reuse the same blocks.
inline Tensor scratch(int64_t floats) {
  return empty({floats < (1 << 18) ? floats : int64_t(std::bit_ceil(uint64_t(floats)))}, {DType::kF32});
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls f(first, count) on ceil_div(n, max_rows) consecutive parts of n rows, as equal as possible.
template <class F> void for_row_blocks(int64_t n, F f, int64_t max_rows = kMaxRows) {
  const int64_t parts = ceil_div(n, max_rows);
  for (int64_t i = 0; i < parts; ++i) f(n * i / parts, n * (i + 1) / parts - n * i / parts);
}

// Matrices [positions, channels], one for each plane. Rows and planes lie a little further apart than their
// length, so that neighbors do not compete for places in a cache.
struct Planes {
  Planes(float* data, int64_t positions, int64_t channels)
      : data(data), row(row_of(channels)), plane(positions * row + kLanes) {}
  static int64_t row_of(int64_t channels) { return channels + kLanes; }
  static int64_t floats(int64_t planes, int64_t positions, int64_t channels) {
    return planes * (positions * row_of(channels) + kLanes);
  }
  float* at(int64_t p, int64_t position, int64_t channel = 0) const {
    return data + p * plane + position * row + channel;
  }
  float* data;
  int64_t row, plane;
};

// The same, in panels of kPanel channels: a panel's positions lie one after another.
struct Panels {
  Panels(float* data, int64_t positions, int64_t channels)
      : data(data), panel(positions * row + kLine), plane((channels + kPanel - 1) / kPanel * panel) {}
  static int64_t floats(int64_t planes, int64_t positions, int64_t channels) {
    return planes * Panels(nullptr, positions, channels).plane;
  }
  float* at(int64_t p, int64_t position, int64_t channel = 0) const {
    return data + p * plane + channel / kPanel * panel + position * row + channel % kPanel;
  }
  static constexpr int64_t kLine = 16;  // floats in a cache line
  float* data;
  static constexpr int64_t row = kPanel;
  int64_t panel, plane;
};

// Memory of up to two tensors that is prefetched in equal shares by a number of products.
class Upcoming {
 public:
  explicit Upcoming(int64_t products) : products_(products) {}
  // Adds a part of t to prefetch: if `of` positions make up t, the positions [first, last).
  void add(const Tensor& t, int64_t first, int64_t last, int64_t of) {
    const auto at = [&](int64_t i) { return int64_t(double(t.nbytes()) / double(of) * double(i)); };
    first_bytes_ = bytes_;
    first_ = second_;
    second_ = static_cast<const char*>(t.raw_ptr()) + at(first);
    bytes_ += at(last) - at(first);
  }
  // Returns the i-th product's share. The product has K steps.
  Ahead share(int64_t i, int64_t K) const {
    const int64_t at = bytes_ * i / products_, end = bytes_ * (i + 1) / products_;
    return {at < first_bytes_ ? first_ + at : second_ + (at - first_bytes_), (end - at) / K};
  }

 private:
  const char *first_ = nullptr, *second_ = nullptr;
  int64_t first_bytes_ = 0, bytes_ = 0, products_;
};

// What products across positions read. Blocks of few rows use a small part of each cache line, so that their
// operands lie in panels.
using Operands = std::conditional_t<(kMaxRows < 8), Panels, Planes>;
constexpr int kGroup = 128;  // channels that stay in the second-level cache while they meet all panels

// Sums for weight gradients: for each plane, over all positions, d[position][o] * v[position][c].
struct PositionSums {
  int64_t planes, O, C;
  Tensor dy, x;       // d and v are made of them, in nearly the order of positions: the source to prefetch
  int64_t positions;  // in all
  int64_t at_once = kMaxRows < 8 ? 256 : 392;  // positions that caches hold at once

  // One or several partial results, a set of sums for each share of the positions.
  struct Result {
    // Adds row o of plane p of the other shares to the first share's, and returns it. Call it once for a row.
    const float* total(int64_t p, int64_t o, int64_t C) const {
      float* to = planes.at(p, o);
      for (int64_t s = 1; s < shares; ++s)
        for (int64_t c = 0; c < C; ++c) to[c] += to[s * share + c];
      return to;
    }
    Tensor bytes;
    Planes planes;
    int64_t shares, share;  // floats from one share's sums to the next
  };
  // Returns the sums. fill(first, last, base, d, v) writes the positions [first, last) to d and v, at
  // `position - base`.
  template <class Fill> Result of(Fill fill) const;

 private:
  // Adds the panels [first, last), counted over all planes, and prefetches the positions [next, after).
  void add(const Operands& d, const Operands& v, int64_t count, int64_t first, int64_t last, bool fresh,
           const Planes& sums, int64_t next, int64_t after) const {
    const auto& products = fresh ? kProducts : kAddedProducts;
    constexpr bool kInPanels = std::is_same_v<Operands, Panels>;
    const int64_t panels = C / kPanel, strip = kInPanels ? int64_t(kPanel) : O;
    const int64_t group = kInPanels ? int64_t(kGroup) : O;
    Upcoming upcoming((last - first) *
                      (O / strip * ceil_div(strip, kMaxRows) + ceil_div(O % strip, kMaxRows)));
    upcoming.add(dy, next, after, positions);
    upcoming.add(x, next, after, positions);
    int64_t done = 0;
    const auto multiply = [&](int64_t p, int64_t c, int64_t o, int64_t count_of_o) {
      for_row_blocks(count_of_o, [&](int64_t row, int64_t rows) {
        products[rows - 1](d.at(p, 0, o + row), 1, d.row, v.at(p, 0, c), v.row, count, sums.at(p, o + row, c),
                           sums.row, upcoming.share(done++, count));
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

template <class Fill> PositionSums::Result PositionSums::of(Fill fill) const {
  const int64_t chunk = std::min(at_once, positions), size = Planes::floats(planes, O, C);
  // Where the sums are small each thread has its own. Where they are large all threads share one set and
  // divide its panels among them.
  const int64_t threads = std::min<int64_t>(num_threads(), positions / 64 + 1);
  const bool own = threads * size * int64_t(sizeof(float)) <= (int64_t{8} << 20);
  const int64_t shares = own ? threads : 1;
  const Tensor sums = scratch(shares * size);
  const int64_t d_floats = Operands::floats(planes, chunk, O);
  const int64_t floats = d_floats + Operands::floats(planes, chunk, C);
  const Tensor bytes = scratch(shares * floats);

  const auto add_share = [&](int64_t share, auto each) {
    const Operands d(bytes.ptr<float>() + share * floats, chunk, O), v(d.data + d_floats, chunk, C);
    const int64_t begin = positions * share / shares, end = positions * (share + 1) / shares;
    for (int64_t base = begin; base < end; base += chunk) {
      const int64_t count = std::min(chunk, end - base), next = base + count;
      each(count, [&](int64_t first, int64_t last) { fill(base + first, base + last, base, d, v); });
      each(planes * (C / kPanel), [&](int64_t first, int64_t last) {
        add(d, v, count, first, last, base == begin, {sums.ptr<float>() + share * size, O, C}, next,
            std::min(end, next + chunk));
      });
    }
  };
  if (!own) {
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
