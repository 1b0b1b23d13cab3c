// Dims (an inline list of up to 8 integers), broadcasting as in NumPy, and stride computation. Strides are in
// elements; dims of size 0 count as 1 in strides. Channels-last strides store [N, C, ...] with C innermost.
#include "gradus/tensor/base/shape.h"

#include <ostream>

#include "gradus/tensor/base/error.h"

namespace gradus {

void Dims::throw_too_many(size_t n) {
  throw ShapeError("shape", "at most ", kMaxDims, " dimensions, got ", n);
}

Dims::Dims(std::span<const int64_t> dims) : n_(static_cast<int>(dims.size())) {
  if (dims.size() > size_t(kMaxDims)) throw_too_many(dims.size());
  std::copy(dims.begin(), dims.end(), d_.begin());
}

Dims Dims::filled(int n, int64_t value) {
  if (n > kMaxDims) throw_too_many(size_t(n));
  Dims d;
  d.n_ = n;
  std::fill_n(d.d_.begin(), n, value);
  return d;
}

void Dims::push_back(int64_t v) { insert(n_, v); }

void Dims::insert(int at, int64_t v) {
  if (n_ == kMaxDims) throw_too_many(size_t(n_) + 1);
  std::copy_backward(begin() + at, end(), end() + 1);
  d_[at] = v;
  ++n_;
}

void Dims::erase(int at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --n_;
}

std::string to_string(const Dims& d) {
  std::string s = "[";
  for (int i = 0; i < d.size(); ++i) s += (i ? "," : "") + std::to_string(d[i]);
  return s + "]";
}

std::ostream& operator<<(std::ostream& out, const Dims& d) { return out << to_string(d); }
std::ostream& operator<<(std::ostream& out, Size2 s) { return out << s.h << 'x' << s.w; }
std::ostream& operator<<(std::ostream& out, Size3 s) { return out << s.d << 'x' << s.h << 'x' << s.w; }

int wrap_dim(int64_t dim, int n, std::string_view op) {
  const int64_t limit = std::max(n, 1);  // a 0-dimensional tensor accepts 0 and -1
  if (dim < -limit || dim >= limit)
    throw IndexError(op, "dimension ", dim, " out of range [", -limit, ", ", limit - 1, "]");
  return static_cast<int>(dim < 0 ? dim + limit : dim);
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape out = longer;
  const int lead = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    int64_t& o = out[lead + i];
    if (o == shorter[i] || shorter[i] == 1) continue;
    if (o != 1) throw ShapeError(op, "shapes do not broadcast: ", a, " and ", b);
    o = shorter[i];
  }
  return out;
}

int64_t checked_numel(const Shape& s, std::string_view op) {
  int64_t n = 1;
  bool zero = false;
  for (int64_t v : s) {
    if (v < 0) throw ShapeError(op, "negative size in shape ", s);
    if (v == 0)
      zero = true;
    else if (__builtin_mul_overflow(n, v, &n) || n > (int64_t{1} << 59))
      throw ShapeError(op, "shape too large: ", s);
  }
  return zero ? 0 : n;
}

Strides row_major_strides(const Shape& s) {
  Strides out = s;
  int64_t step = 1;
  for (int i = s.size() - 1; i >= 0; --i) {
    out[i] = step;
    step *= std::max<int64_t>(s[i], 1);
  }
  return out;
}

Dims memory_order(const Strides& strides) {
  Dims order;
  for (int d = 0; d < strides.size(); ++d) {
    int at = d;
    while (at > 0 && strides[static_cast<int>(order[at - 1])] < strides[d]) --at;
    order.insert(at, d);
  }
  return order;
}

Strides strides_in_order(const Shape& s, const Dims& order) {
  Strides out = s;
  int64_t step = 1;
  for (int i = s.size() - 1; i >= 0; --i) {
    const int d = static_cast<int>(order[i]);
    out[d] = step;
    step *= std::max<int64_t>(s[d], 1);
  }
  return out;
}

Strides channels_last_strides(const Shape& s) {
  if (s.size() < 3 || s.size() > 5) throw ShapeError("channels_last", "needs 3 to 5 dimensions, got ", s);
  Strides out = s;
  out[1] = 1;
  int64_t step = std::max<int64_t>(s[1], 1);
  for (int i = s.size() - 1; i >= 2; --i) {
    out[i] = step;
    step *= std::max<int64_t>(s[i], 1);
  }
  out[0] = step;
  return out;
}

}  // namespace gradus
