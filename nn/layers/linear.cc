// Linear, y = x weight^T + bias, and Bilinear, y_o = a^T W_o b + bias_o: their initial parameters, as in torch.nn,
// and their forward. Shapes and errors: linear.h.
#include "gradus/nn/layers/linear.h"

#include <cmath>

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"

namespace gradus::nn {

Tensor Linear::initial_weight() {
  const Options& o = options();
  if (o.in == kLazy) return uninitialized();
  if (o.in < 0 || o.out < 0)
    throw ValueError("Linear", "expected in, out >= 0, got ", *o.in, " and ", *o.out);
  // With a = sqrt(5), kaiming_uniform_ is uniform on +-1/sqrt(in).
  return init::kaiming_uniform_(empty({o.out, o.in}, {.device = internal::initial_device()}),
                                {.a = std::sqrt(5.0)});
}

Tensor Linear::initial_bias() const {
  const Options& o = options();
  if (!o.bias || !weight.defined()) return {};
  const double bound = o.in > 0 ? 1 / std::sqrt(double(o.in)) : 0;
  return init::uniform_(empty({o.out}, {.device = internal::initial_device()}),
                        {.low = -bound, .high = bound});
}

// Creates the parameters of a layer with in = kLazy in its first call.
void Linear::set_size(const Tensor& x) {
  if (has_sizes()) return;
  if (x.dim() < 1) throw ShapeError("Linear", "expected x [...,in], got ", describe(x));
  mutable_options().in = x.size(-1);
  initialize(weight, initial_weight());
  initialize(bias, initial_bias());
  set_initialized();
}

Tensor Linear::forward(const Tensor& x) {
  set_size(x);
  return linear(x, weight, bias);
}

Tensor Linear::relu(const Tensor& x) {
  if (has_hooks()) return gradus::relu((*this)(x));  // hooks must get the result before the relu
  return call([&] {
    set_size(x);
    return linear_relu(x, weight, bias);
  });
}

template class ModuleWith<LinearOptions, Layer>;

// Returns the initial weight or bias, uniform on +-1/sqrt(in1); undefined if not enabled (no bias).
Tensor Bilinear::initial(bool enabled, const Shape& shape) const {
  const Options& o = options();
  if (o.in1 < 1 || o.in2 < 1 || o.out < 1)
    throw ValueError("Bilinear", "expected in1, in2, out >= 1, got ", *o.in1, ", ", *o.in2, ", ", *o.out);
  if (!enabled) return {};
  const double bound = 1 / std::sqrt(double(*o.in1));
  return init::uniform_(empty(shape, {.device = internal::initial_device()}), {.low = -bound, .high = bound});
}

Tensor Bilinear::operator()(const Tensor& a, const Tensor& b) {
  return call([&] {
    const Options& o = options();
    const auto leading_shape = [](const Tensor& x) {
      Shape s = x.shape();
      s.erase(s.size() - 1);
      return s;
    };
    if (a.dim() < 1 || a.dim() != b.dim() || a.size(-1) != o.in1 || b.size(-1) != o.in2 ||
        leading_shape(a) != leading_shape(b))
      throw ShapeError("Bilinear", "expected a [...,", *o.in1, "] and b [...,", *o.in2, "], got ",
                       describe(a), " and ", describe(b));
    // With all leading dims as rows r: half[r,o,:] = a_r^T W_o by one product [rows,in1] x [in1,out*in2]; then
    // y[r,o] = half[r,o,:] . b_r.
    const Tensor rows = reshape(a, {-1, *o.in1});
    const Tensor w = reshape(permute(weight, {1, 0, 2}), {*o.in1, o.out * o.in2});
    const Tensor half = reshape(matmul(rows, w), {rows.size(0), *o.out, *o.in2});
    const Tensor y = sum(half * reshape(b, {rows.size(0), 1, *o.in2}), -1);
    Shape shape = leading_shape(a);
    shape.push_back(o.out);
    return reshape(bias.defined() ? y + bias : y, shape);
  });
}

template class ModuleWith<BilinearOptions>;

}  // namespace gradus::nn
