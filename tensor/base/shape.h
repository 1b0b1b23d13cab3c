// Dims: a list of up to kMaxDims integers, stored inline; Shape (sizes) and Strides (in elements) are Dims. Also
// broadcasting, stride computation, and the 2- and 3-dim sizes Size2 and Size3.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace gradus {

inline constexpr int kMaxDims = 8;

// Any integer type except bool.
template <class T>
concept DimIndex = std::integral<T> && !std::same_as<T, bool>;

class Dims {
 public:
  // An entry of an initializer list, which may mix integer types: {n, 3, v.size()}.
  struct Entry {
    template <class I>
      requires(DimIndex<I> ||
               (!std::is_arithmetic_v<I> && std::convertible_to<I, int64_t>))  // such as Required and Checked
    constexpr Entry(const I& value_) : value(static_cast<int64_t>(value_)) {}
    int64_t value;
  };

  Dims() = default;
  Dims(std::initializer_list<Entry> dims) : n_(static_cast<int>(dims.size())) {
    if (dims.size() > size_t(kMaxDims)) [[unlikely]]
      throw_too_many(dims.size());
    std::transform(dims.begin(), dims.end(), d_.begin(), [](Entry e) { return e.value; });
  }
  // A list of one entry: zeros(5), sum(x, -1).
  template <DimIndex I> Dims(I only) : n_(1) { d_[0] = static_cast<int64_t>(only); }
  explicit Dims(std::span<const int64_t> dims);  // Errors: ShapeError above kMaxDims
  static Dims filled(int n, int64_t value);      // n >= 0 entries of this value. Errors: as above

  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t operator[](int i) const { return d_[size_t(i)]; }
  int64_t& operator[](int i) { return d_[size_t(i)]; }
  int64_t back() const { return d_[size_t(n_ - 1)]; }
  const int64_t* begin() const { return d_.data(); }
  const int64_t* end() const { return d_.data() + n_; }
  int64_t* begin() { return d_.data(); }
  int64_t* end() { return d_.data() + n_; }

  void push_back(int64_t v);       // Errors: ShapeError above kMaxDims
  void insert(int at, int64_t v);  // before entry `at`, 0 <= at <= size(). Errors: ShapeError above kMaxDims
  void erase(int at);              // 0 <= at < size()

  // Product of the entries, without a check for overflow; 1 when empty.
  int64_t product() const {
    int64_t p = 1;
    for (int64_t v : *this) p *= v;
    return p;
  }
  bool operator==(const Dims& o) const { return n_ == o.n_ && std::equal(begin(), end(), o.begin()); }

 private:
  [[noreturn, gnu::cold]] static void throw_too_many(size_t n);
  std::array<int64_t, kMaxDims> d_{};
  int n_ = 0;
};

using Shape = Dims;
using Strides = Dims;

std::string to_string(const Dims& d);  // "[32,8,28,28]"
std::ostream& operator<<(std::ostream& out, const Dims& d);

// Returns `dim` as an index in [0, n). A negative `dim` counts from the end. n = 0 counts as 1.
// Errors: IndexError naming `op`.
int wrap_dim(int64_t dim, int n, std::string_view op);

// Returns the shape to which a and b broadcast, by NumPy's rules.
// Errors: ShapeError naming `op` and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);

// Returns the number of elements of shape `s`.
// Errors: ShapeError naming `op` for a negative size, or if the product of the nonzero sizes exceeds 2^59.
int64_t checked_numel(const Shape& s, std::string_view op);

// Returns the strides of a contiguous row-major tensor, for a shape that checked_numel() accepts.
Strides row_major_strides(const Shape& s);
// Returns the dims in descending order of their strides, those of equal strides in ascending order.
Dims memory_order(const Strides& strides);
// Returns the strides of a contiguous tensor whose dims lie in memory in this order, the innermost last.
Strides strides_in_order(const Shape& s, const Dims& order);
// Returns the NHWC strides of an NCHW shape; for 3 and 5 dims likewise with channels innermost.
// Errors: ShapeError for other numbers of dims.
Strides channels_last_strides(const Shape& s);

// A height and a width. One number sets both.
struct Size2 {
  int64_t h = 0, w = 0;
  constexpr Size2() = default;
  template <std::integral T>  // not from floating point
  constexpr Size2(T both) : h(both), w(both) {}
  template <std::integral A, std::integral B>
  constexpr Size2(A height, B width) : h(int64_t(height)), w(int64_t(width)) {}
  bool operator==(const Size2&) const = default;
};
std::ostream& operator<<(std::ostream& out, Size2 s);  // "3x3"

// A depth, a height and a width. One number sets all three.
struct Size3 {
  int64_t d = 0, h = 0, w = 0;
  constexpr Size3() = default;
  template <std::integral T>  // not from floating point
  constexpr Size3(T all) : d(all), h(all), w(all) {}
  template <std::integral A, std::integral B, std::integral C>
  constexpr Size3(A depth, B height, C width) : d(int64_t(depth)), h(int64_t(height)), w(int64_t(width)) {}
  bool operator==(const Size3&) const = default;
};
std::ostream& operator<<(std::ostream& out, Size3 s);  // "3x3x3"

}  // namespace gradus
