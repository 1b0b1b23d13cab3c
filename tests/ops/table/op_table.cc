// Inputs, layouts, tolerances and f64 references of the op test table.
#include "gradus/tests/ops/table/op_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::optest {

Input in(const Shape& shape, double lo, double hi) { return {.shape = shape, .lo = lo, .hi = hi}; }

Input off_zero(const Shape& shape, double hi) { return {.shape = shape, .fill = Fill::kNonzero, .hi = hi}; }

Input distinct(const Shape& shape, double lo, double hi) {
  return {.shape = shape, .fill = Fill::kDistinct, .lo = lo, .hi = hi};
}

Input indices(const Shape& shape, int64_t below) {
  return {.shape = shape,
          .fill = Fill::kInteger,
          .lo = 0,
          .hi = double(below),
          .fixed = true,
          .dtype = DType::kI64};
}

Input indices(const Shape& shape, std::vector<double> values) {
  return {.shape = shape, .fixed = true, .dtype = DType::kI64, .values = std::move(values)};
}

Input mask(const Shape& shape) {
  return {.shape = shape, .fill = Fill::kMask, .fixed = true, .dtype = DType::kBool};
}

int64_t Array::offset(std::initializer_list<int64_t> i) const {
  int64_t at = 0;
  int d = 0;
  for (int64_t k : i) {
    const int64_t size = shape[d++];
    if (k < 0 || k >= size) throw std::out_of_range("Array: an index beyond its shape");
    at = at * size + k;
  }
  return at;
}

double broadcast_at(const Array& a, const Shape& shape, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int d = shape.size() - 1, k = a.dim() - 1; d >= 0; --d, --k) {
    const int64_t here = i % shape[d];
    i /= shape[d];
    if (k < 0) continue;
    if (a.shape[k] != 1) at += here * stride;
    stride *= a.shape[k];
  }
  return a.v[size_t(at)];
}

namespace {

Reference element_wise(std::function<double(const double*)> f, size_t n) {
  return [f, n](A x) {
    Shape shape = x[0].shape;
    for (size_t k = 1; k < n; ++k) shape = broadcast_shapes(shape, x[k].shape, "reference");
    Array y(shape);
    for (size_t i = 0; i < y.v.size(); ++i) {
      double arguments[3] = {};
      for (size_t k = 0; k < n; ++k) arguments[k] = broadcast_at(x[k], shape, int64_t(i));
      y.v[i] = f(arguments);
    }
    return y;
  };
}

std::vector<OpCase>& rows() {
  static std::vector<OpCase> all;
  return all;
}

std::vector<std::pair<std::string, std::string>>& elsewhere() {
  static std::vector<std::pair<std::string, std::string>> all;
  return all;
}

}  // namespace

Reference unary(std::function<double(double)> f) {
  return element_wise([f](const double* a) { return f(a[0]); }, 1);
}

Reference binary(std::function<double(double, double)> f) {
  return element_wise([f](const double* a) { return f(a[0], a[1]); }, 2);
}

Reference ternary(std::function<double(double, double, double)> f) {
  return element_wise([f](const double* a) { return f(a[0], a[1], a[2]); }, 3);
}

Array along(const Array& x, int dim, bool keepdim,
            const std::function<std::vector<double>(std::vector<double>)>& f) {
  if (dim < 0) dim += x.dim();
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < dim; ++d) outer *= x.shape[d];
  for (int d = dim + 1; d < x.dim(); ++d) inner *= x.shape[d];
  const int64_t n = x.shape[dim];
  Array y;
  int64_t m = -1;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<double> line;
      for (int64_t k = 0; k < n; ++k) line.push_back(x.v[size_t((o * n + k) * inner + i)]);
      const std::vector<double> out = f(line);
      if (m < 0) {
        m = int64_t(out.size());
        y.shape = x.shape;
        y.shape[dim] = m;
        y.v.resize(size_t(outer * m * inner));
      }
      for (int64_t k = 0; k < m; ++k) y.v[size_t((o * m + k) * inner + i)] = out[size_t(k)];
    }
  }
  if (m < 0) {  // no line: a line of zeros gives the size
    y.shape = x.shape;
    y.shape[dim] = m = int64_t(f(std::vector<double>(size_t(n))).size());
  }
  if (!keepdim && m == 1) y.shape.erase(dim);
  return y;
}

Array transpose_to(const Array& x, const std::vector<int>& order) {
  Array y;
  for (int d : order) y.shape.push_back(x.shape[d]);
  const Strides strides = row_major_strides(x.shape);
  for (int64_t i = 0; i < y.shape.product(); ++i) {
    int64_t left = i, at = 0;
    for (int d = y.dim() - 1; d >= 0; --d) {
      at += left % y.shape[d] * strides[order[size_t(d)]];
      left /= y.shape[d];
    }
    y.v.push_back(x.v[size_t(at)]);
  }
  return y;
}

void add_row(OpCase row) { rows().push_back(std::move(row)); }

const std::vector<OpCase>& all_rows() { return rows(); }

void covered_elsewhere(const std::string& op, const std::string& test) { elsewhere().emplace_back(op, test); }
const std::vector<std::pair<std::string, std::string>>& ops_covered_elsewhere() { return elsewhere(); }

Tensor make_input(const Input& want, uint64_t key, uint64_t stream, DType dtype) {
  std::vector<double> v = want.values;
  const int64_t n = want.shape.product();
  if (v.empty()) {
    for (int64_t i = 0; i < n; ++i) {
      const auto bits = philox(key, stream, uint64_t(i));
      const double u = uniform_f64(bits[0], bits[1]);
      switch (want.fill) {
        case Fill::kUniform:
          v.push_back(want.lo + (want.hi - want.lo) * u);
          break;
        case Fill::kNonzero:
          v.push_back((bits[2] & 1 ? 1 : -1) * (0.1 + (want.hi - 0.1) * u));
          break;
        case Fill::kDistinct:
          v.push_back(u);
          break;
        case Fill::kInteger:
          v.push_back(std::floor(want.lo + (want.hi - want.lo) * u));
          break;
        case Fill::kMask:
          v.push_back(double(bits[2] & 1));
          break;
      }
    }
  }
  if (want.fill == Fill::kDistinct && want.values.empty()) {
    std::vector<size_t> order(v.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v[a] < v[b]; });
    // Half a step off the grid's center, so that no value is 0.
    for (size_t r = 0; r < order.size(); ++r) {
      v[order[r]] = want.lo + (want.hi - want.lo) * (double(r) + 0.3) / double(order.size());
    }
  }
  // References see what the op sees: values are rounded to the dtype first.
  return raw::to(tensor(v, want.shape), want.fixed ? want.dtype : dtype);
}

std::vector<Tensor> make_inputs(const OpCase& row, size_t sample, DType dtype, Device device) {
  uint64_t key = 1469598103934665603u;  // FNV-1a of the name
  for (char c : row.op + "/" + row.variant) key = (key ^ uint8_t(c)) * 1099511628211u;
  std::vector<Tensor> out;
  for (size_t k = 0; k < row.samples[sample].size(); ++k)
    out.push_back(raw::to(make_input(row.samples[sample][k], key, sample * 100 + k, dtype), device));
  return out;
}

Tensor strided(const Tensor& x) {
  Shape wide = x.shape();
  for (int64_t& n : wide) n *= 2;
  const Tensor base = empty(wide, {.dtype = x.dtype(), .device = x.device()});
  raw::fill_(base, 77);
  Strides strides = base.strides();
  for (int64_t& s : strides) s *= 2;
  const Tensor y = view_as_strided(base, x.shape(), strides, 0);
  raw::copy_(y, x);
  return y;
}

Tensor reversed_order(const Tensor& x) {
  Strides strides = x.strides();
  int64_t step = 1;
  for (int d = 0; d < x.dim(); ++d) strides[d] = step, step *= std::max<int64_t>(1, x.size(d));
  const Tensor y = empty_strided(x.shape(), strides, {.dtype = x.dtype(), .device = x.device()});
  raw::copy_(y, x);
  return y;
}

std::string bits(const Tensor& x) {
  const Tensor c = raw::contiguous(x);
  return dispatch_all(c.dtype(), [&]<class T>() {
    return std::string(reinterpret_cast<const char*>(c.data<T>()), size_t(c.nbytes()));
  });
}

std::vector<Array> to_arrays(X x) {
  std::vector<Array> out;
  for (const Tensor& t : x) {
    Array a;
    a.shape = t.shape();
    a.v = t.to_vector<double>();
    out.push_back(std::move(a));
  }
  return out;
}

double tolerance(const OpCase& row, DType dtype, const Array& expected) {
  double largest = 1;
  for (double v : expected.v) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::epsilon() * (4 + row.terms) * largest;
    case DType::kF32:
      return double(std::numeric_limits<float>::epsilon()) * (4 + row.terms) * largest;
    // 16-bit floats are computed in f32 and rounded once.
    case DType::kF16:
      return 0x1p-11 * 1.01 * largest;
    case DType::kBF16:
      return 0x1p-8 * 1.01 * largest;
    default:
      return 0;
  }
}

}  // namespace gradus::optest
