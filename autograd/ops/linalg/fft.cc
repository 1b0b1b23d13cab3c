// Fourier transforms composed of raw::dft along one dim. The transform is linear, and its adjoint is the
// inverse transform with the same factor, so gradients of all orders are transforms.
#include "gradus/autograd/ops/linalg/fft.h"

#include <cmath>
#include <vector>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/arrange.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/linalg/fft.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::fft {
namespace {

Tensor dft(const Tensor& x, int dim, bool inverse, double scale) {
  return autograd::record_unary("dft", x, raw::dft(x, dim, inverse, scale),
                                [=](const Tensor& dy) { return dft(dy, dim, !inverse, scale); });
}

double scale_of(Norm norm, int64_t n, bool inverse) {
  if (norm == Norm::kOrtho) return 1 / std::sqrt(double(n));
  return (norm == Norm::kForward) != inverse ? 1 / double(n) : 1;
}

// Returns the number of dims of a complex tensor, without that of the parts.
int complex_dims(const char* op, const Tensor& x) {
  if (x.dim() < 2 || x.shape().back() != 2)
    throw ShapeError(op, "expected a complex tensor [...,2], got ", describe(x));
  return x.dim() - 1;
}

int64_t checked_points(const char* op, int64_t n) {
  if (n < 1 || n > raw::kMaxDftLength)
    throw ValueError(op, "expected a number of points in [1, ", raw::kMaxDftLength, "], got ", n);
  return n;
}

// Returns x with n entries along dim: the first ones, or zeros after those of x.
Tensor resized(const Tensor& x, int dim, int64_t n) {
  if (n == x.size(dim)) return x;
  if (n < x.size(dim)) return narrow(x, dim, 0, n);
  Shape rest = x.shape();
  rest[dim] = n - x.size(dim);
  return cat({x, zeros(rest, {.dtype = x.dtype(), .device = x.device()})}, dim);
}

Tensor transform(const char* op, const Tensor& x, const Options& o, bool inverse) {
  const OpCall call(op, {{"x", x}});
  const int dim = wrap_dim(o.dim, complex_dims(op, x), op);
  const int64_t n = checked_points(op, o.n.value_or(x.size(dim)));
  return dft(resized(x, dim, n), dim, inverse, scale_of(o.norm, n, inverse));
}

Tensor real_transform(const char* op, const Tensor& x, const Options& o) {
  const OpCall call(op, {{"x", x}});
  if (x.dim() == 0) throw ShapeError(op, "expected x with dims, got ", describe(x));
  const int dim = wrap_dim(o.dim, x.dim(), op);
  const int64_t n = checked_points(op, o.n.value_or(x.size(dim)));
  const Tensor real = resized(is_floating(x.dtype()) ? x : to(x, get_default_dtype()), dim, n);
  const Tensor y = dft(stack({real, zeros_like(real)}, -1), dim, false, scale_of(o.norm, n, false));
  return narrow(y, dim, 0, n / 2 + 1);
}

// Points 1, ..., (n - 1) / 2 count twice: for themselves and for their conjugates.
Tensor inverse_real_transform(const char* op, const Tensor& x, const Options& o) {
  const OpCall call(op, {{"x", x}});
  const int dim = wrap_dim(o.dim, complex_dims(op, x), op);
  const int64_t n = checked_points(op, o.n.value_or(2 * (x.size(dim) - 1)));
  const int64_t points = n / 2 + 1;
  Shape shape = Dims::filled(x.dim(), 1);
  shape[dim] = points;
  const Tensor weights = full(shape, 2, {.dtype = x.dtype(), .device = x.device()});
  raw::fill_(raw::narrow(weights, dim, 0, 1), 1);
  if (n % 2 == 0) raw::fill_(raw::narrow(weights, dim, points - 1, 1), 1);
  const Tensor half = resized(x, dim, points) * weights;
  return select(dft(resized(half, dim, n), dim, true, scale_of(o.norm, n, true)), -1, 0);
}

// One transform of a function of several dims.
struct Step {
  int64_t dim;
  std::optional<int64_t> n;
};

// Returns the transforms along the listed dims. `dims`: of x, complex dims if x is complex.
std::vector<Step> steps_of(const char* op, int dims, const ManyOptions& o,
                           const std::optional<Dims>& default_dim) {
  const std::optional<Dims> dim = o.dim ? o.dim : default_dim;
  if (dim && o.s && dim->size() != o.s->size())
    throw ShapeError(op, "expected as many sizes s as dims, got ", *o.s, " for dims ", *dim);
  const int count = dim ? dim->size() : o.s ? o.s->size() : dims;
  if (count > dims) throw ShapeError(op, "expected at most ", dims, " sizes s, got ", *o.s);
  std::vector<Step> steps;
  for (int i = 0; i < count; ++i) {
    const int d = dim ? wrap_dim((*dim)[i], dims, op) : dims - count + i;
    for (const Step& other : steps)
      if (other.dim == d) throw ValueError(op, "dim ", d, " is listed twice");
    steps.push_back({d, o.s && (*o.s)[i] != -1 ? std::optional((*o.s)[i]) : std::nullopt});
  }
  return steps;
}

const Dims kLastTwo = {-2, -1};

Tensor transforms(const char* op, const Tensor& x, const ManyOptions& o, bool inverse,
                  const std::optional<Dims>& default_dim = {}) {
  const OpCall call(op, {{"x", x}});
  Tensor y = x;
  for (const Step& s : steps_of(op, complex_dims(op, x), o, default_dim))
    y = transform(op, y, {.n = s.n, .dim = s.dim, .norm = o.norm}, inverse);
  return y;
}

Tensor real_transforms(const char* op, const Tensor& x, const ManyOptions& o,
                       const std::optional<Dims>& default_dim = {}) {
  const OpCall call(op, {{"x", x}});
  std::vector<Step> steps = steps_of(op, x.dim(), o, default_dim);
  if (steps.empty()) throw ValueError(op, "expected at least one dim, got ", describe(x));
  const Step last = steps.back();
  steps.pop_back();
  Tensor y = real_transform(op, x, {.n = last.n, .dim = last.dim, .norm = o.norm});
  for (const Step& s : steps) y = transform(op, y, {.n = s.n, .dim = s.dim, .norm = o.norm}, false);
  return y;
}

Tensor inverse_real_transforms(const char* op, const Tensor& x, const ManyOptions& o,
                               const std::optional<Dims>& default_dim = {}) {
  const OpCall call(op, {{"x", x}});
  std::vector<Step> steps = steps_of(op, complex_dims(op, x), o, default_dim);
  if (steps.empty()) throw ValueError(op, "expected at least one dim, got ", describe(x));
  const Step last = steps.back();
  steps.pop_back();
  Tensor y = x;
  for (const Step& s : steps) y = transform(op, y, {.n = s.n, .dim = s.dim, .norm = o.norm}, true);
  return inverse_real_transform(op, y, {.n = last.n, .dim = last.dim, .norm = o.norm});
}

// Returns the first `count` frequencies of n points. `wraps`: the upper half is negative.
std::vector<double> frequencies(int64_t n, double d, int64_t count, bool wraps) {
  std::vector<double> f;
  for (int64_t k = 0; k < count; ++k)
    f.push_back(double(wraps && k > (n - 1) / 2 ? k - n : k) / (d * double(n)));
  return f;
}

Tensor shifted(const char* op, const Tensor& x, const std::optional<Dims>& dims, bool inverse) {
  const OpCall call(op, {{"x", x}});
  Dims of = Dims::filled(x.dim(), 0), shifts;
  for (int d = 0; d < x.dim(); ++d) of[d] = d;
  if (dims) of = *dims;
  for (int64_t d : of) {
    const int64_t n = x.size(wrap_dim(d, x.dim(), op));
    shifts.push_back(inverse ? n - n / 2 : n / 2);
  }
  return of.empty() ? x : roll(x, shifts, of);
}

}  // namespace

Tensor fft(const Tensor& x, const Options& o) { return transform("fft", x, o, false); }
Tensor ifft(const Tensor& x, const Options& o) { return transform("ifft", x, o, true); }
Tensor rfft(const Tensor& x, const Options& o) { return real_transform("rfft", x, o); }
Tensor irfft(const Tensor& x, const Options& o) { return inverse_real_transform("irfft", x, o); }

Tensor fftn(const Tensor& x, const ManyOptions& o) { return transforms("fftn", x, o, false); }
Tensor ifftn(const Tensor& x, const ManyOptions& o) { return transforms("ifftn", x, o, true); }
Tensor rfftn(const Tensor& x, const ManyOptions& o) { return real_transforms("rfftn", x, o); }
Tensor irfftn(const Tensor& x, const ManyOptions& o) { return inverse_real_transforms("irfftn", x, o); }

Tensor fft2(const Tensor& x, const ManyOptions& o) { return transforms("fft2", x, o, false, kLastTwo); }
Tensor ifft2(const Tensor& x, const ManyOptions& o) { return transforms("ifft2", x, o, true, kLastTwo); }
Tensor rfft2(const Tensor& x, const ManyOptions& o) { return real_transforms("rfft2", x, o, kLastTwo); }
Tensor irfft2(const Tensor& x, const ManyOptions& o) {
  return inverse_real_transforms("irfft2", x, o, kLastTwo);
}

Tensor fftfreq(int64_t n, double d, TensorOptions options) {
  const std::vector<double> f = frequencies(checked_points("fftfreq", n), d, n, true);
  return raw::to(tensor(f, {n}, options.device), options.dtype);
}
Tensor rfftfreq(int64_t n, double d, TensorOptions options) {
  const int64_t points = checked_points("rfftfreq", n) / 2 + 1;
  return raw::to(tensor(frequencies(n, d, points, false), {points}, options.device), options.dtype);
}

Tensor fftshift(const Tensor& x, const std::optional<Dims>& dims) {
  return shifted("fftshift", x, dims, false);
}
Tensor ifftshift(const Tensor& x, const std::optional<Dims>& dims) {
  return shifted("ifftshift", x, dims, true);
}

}  // namespace gradus::fft
