// Dims: a short list of sizes or strides, stored inline. Shape and Strides are Dims.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

namespace gradus {

inline constexpr int kMaxDims = 8;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> dims) : Dims(std::span(dims.begin(), dims.size())) {}
  explicit Dims(std::span<const int64_t> dims);  // Errors: ShapeError above kMaxDims.
  static Dims filled(int n, int64_t value);

  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t operator[](int i) const { return d_[i]; }
  int64_t& operator[](int i) { return d_[i]; }
  int64_t back() const { return d_[n_ - 1]; }
  const int64_t* begin() const { return d_.data(); }
  const int64_t* end() const { return d_.data() + n_; }
  int64_t* begin() { return d_.data(); }
  int64_t* end() { return d_.data() + n_; }

  void push_back(int64_t v);  // Errors: ShapeError above kMaxDims.
  void insert(int at, int64_t v);
  void erase(int at);

  // Product of the entries; 1 when empty.
  int64_t product() const {
    int64_t p = 1;
    for (int64_t v : *this) p *= v;
    return p;
  }
  bool operator==(const Dims& o) const { return n_ == o.n_ && std::equal(begin(), end(), o.begin()); }

 private:
  std::array<int64_t, kMaxDims> d_{};
  int n_ = 0;
};

using Shape = Dims;
using Strides = Dims;

std::string to_string(const Dims& d);  // "[32,8,28,28]"
std::ostream& operator<<(std::ostream& out, const Dims& d);

// Returns `dim` counted from the front; negative counts from the back. Errors: IndexError naming `op`.
int wrap_dim(int64_t dim, int n, std::string_view op);

// Returns the shape that `a` and `b` broadcast to (NumPy's rule). Errors: ShapeError naming `op` and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);

// Returns the element count, checked: ShapeError for a negative size or a product above 2^59 (2^62 bytes of f64).
int64_t checked_numel(const Shape& s, std::string_view op);

Strides row_major_strides(const Shape& s);
// NHWC strides of an NCHW shape (4 dims; 3 and 5 dims alike: channels innermost).
Strides channels_last_strides(const Shape& s);

// A height and a width; one number means both.
struct Size2 {
  int64_t h = 0, w = 0;
  constexpr Size2() = default;
  template <std::integral T>  // not from floating point
  constexpr Size2(T both) : h(both), w(both) {}
  constexpr Size2(int64_t height, int64_t width) : h(height), w(width) {}
  bool operator==(const Size2&) const = default;
};
std::ostream& operator<<(std::ostream& out, Size2 s);  // "3x3"

// A depth, a height and a width; one number means all three.
struct Size3 {
  int64_t d = 0, h = 0, w = 0;
  constexpr Size3() = default;
  template <std::integral T>  // not from floating point
  constexpr Size3(T all) : d(all), h(all), w(all) {}
  constexpr Size3(int64_t depth, int64_t height, int64_t width) : d(depth), h(height), w(width) {}
  bool operator==(const Size3&) const = default;
};
std::ostream& operator<<(std::ostream& out, Size3 s);  // "3x3x3"

}  // namespace gradus
