// gradcheck and gradgradcheck: compare gradients of f with the five-point central difference
// (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h, in f64. Compared are the numbers <dy, df/dx u> for
// directions u of each input and projections dy of the output: unit vectors for small tensors, random vectors
// for large ones.
#include "gradus/autograd/gradcheck.h"

#include <cmath>

#include "gradus/autograd/functional.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::autograd {
namespace {

using Values = std::vector<double>;  // elements of a tensor in row-major order

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Returns random numbers with magnitude in [0.5, 1.5) and random sign. A factor near zero would hide errors.
Values random_values(int64_t n, uint64_t seed, uint64_t stream) {
  Values v(n);
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = philox(seed, stream, uint64_t(i));
    v[i] = (bits[2] & 1 ? 1 : -1) * (0.5 + uniform_f64(bits[0], bits[1]));
  }
  return v;
}

// Returns a new tensor with the layout of `x` and the given values in row-major order.
Tensor with_values(const Tensor& x, const Values& values) {
  Tensor out = empty_like(x);
  raw::copy_(out, tensor(values, x.shape(), x.device()));
  return out;
}

std::string coordinates(const Shape& shape, int64_t element) {
  Dims at = Dims::filled(shape.size(), 0);
  for (int d = shape.size() - 1; d >= 0; --d) {
    at[d] = element % shape[d];
    element /= shape[d];
  }
  return to_string(at);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || (a.shape() == b.shape() && a.to_vector<double>() == b.to_vector<double>());
}

// One run of gradcheck. A failed check sets `ok` and `message` of the result; errors of the caller throw.
class Check {
 public:
  Check(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradCheckOptions& options)
      : f_(f), inputs_(inputs), options_(options) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const DType t = inputs[i].dtype();
      if (t == DType::kF64) {
        differentiable_.push_back(i);
      } else if (is_floating(t)) {
        throw DTypeError("gradcheck", "expected f64 inputs (differences need the precision), input ", i,
                         " is ", describe(inputs[i]));
      }
    }
    if (differentiable_.empty()) throw DTypeError("gradcheck", "expected an f64 input, got none");
  }

  GradCheckResult run() {
    const Tensor y = call(inputs_);
    if (!y.defined() || y.dtype() != DType::kF64) {
      throw DTypeError("gradcheck", "expected an f64 result, got ", describe(y));
    }
    if (!same_bits(y, call(inputs_))) return fail("two calls with the same inputs give different results");
    const std::vector<Values> dys = projections(y.numel());
    std::vector<std::vector<Values>> grads(differentiable_.size());  // [input][dy]
    for (size_t k = 0; k < dys.size(); ++k) {
      const std::vector<Tensor> g = gradients(y, dys[k], differentiable_);
      if (!check_form(g)) return result_;
      if (k == 0 && !check_repeatable(y, dys[k], g)) return result_;
      for (size_t w = 0; w < differentiable_.size(); ++w)
        grads[w].push_back(values_of(g[w], differentiable_[w]));
    }
    for (size_t w = 0; w < differentiable_.size(); ++w) compare_input(differentiable_[w], dys, grads[w]);
    for (size_t i : differentiable_) {
      if (inputs_[i].grad().defined()) return fail(concat("input ", i, " was left with a grad()"));
    }
    if (result_.ok) {
      result_.message = concat(compared_, " derivatives agree, the worst within ", result_.max_error_ratio,
                               " of its tolerance");
    }
    return result_;
  }

 private:
  Tensor call(const std::vector<Tensor>& x) const { return f_(x); }

  // Returns basis vectors for small results, else two random vectors.
  std::vector<Values> projections(int64_t n) const {
    std::vector<Values> dys;
    if (n > options_.max_outputs || n == 0) {
      for (uint64_t k = 0; k < 2; ++k) dys.push_back(random_values(n, options_.seed, k));
      return dys;
    }
    for (int64_t j = 0; j < n; ++j) {
      dys.emplace_back(n, 0.0)[j] = 1;
    }
    return dys;
  }

  // Returns the gradients of <dy, f> with respect to the inputs with these indices; the others are constants.
  std::vector<Tensor> gradients(const Tensor& y, const Values& dy, const std::vector<size_t>& which) const {
    std::vector<Tensor> x;
    for (size_t i : which) x.push_back(inputs_[i]);
    auto f_of_selected = [&](const std::vector<Tensor>& values) {
      std::vector<Tensor> all = inputs_;
      for (size_t k = 0; k < which.size(); ++k) all[which[k]] = values[k];
      return f_(all);
    };
    return grad(f_of_selected, x, with_values(y, dy));
  }

  Values values_of(const Tensor& g, size_t input) const {
    return g.defined() ? g.to_vector<double>() : Values(inputs_[input].numel(), 0.0);
  }

  // Checks the shape, dtype and device of each gradient. Undefined gradients are allowed, and count as zeros.
  bool check_form(const std::vector<Tensor>& grads) {
    for (size_t w = 0; w < grads.size(); ++w) {
      const Tensor &g = grads[w], &x = inputs_[differentiable_[w]];
      if (!g.defined()) continue;
      if (g.shape() != x.shape() || g.dtype() != x.dtype() || g.device() != x.device()) {
        fail(concat("gradient of input ", differentiable_[w], " is ", describe(g), ", the input is ",
                    describe(x)));
      }
    }
    return result_.ok;
  }

  // Checks that a second backward gives the same bits, and that a backward to one input alone gives the same
  // values.
  bool check_repeatable(const Tensor& y, const Values& dy, const std::vector<Tensor>& grads) {
    const std::vector<Tensor> again = gradients(y, dy, differentiable_);
    for (size_t w = 0; w < differentiable_.size(); ++w) {
      if (!same_bits(grads[w], again[w])) {
        fail(concat("two backward runs give different gradients of input ", differentiable_[w]));
      }
      if (differentiable_.size() == 1) continue;
      const std::vector<Tensor> alone = gradients(y, dy, {differentiable_[w]});
      if (values_of(alone[0], differentiable_[w]) != values_of(grads[w], differentiable_[w])) {
        fail(concat("gradient of input ", differentiable_[w],
                    " alone differs from its gradient among all inputs"));
      }
    }
    return result_.ok;
  }

  // Returns <dy, d/dt f(x + t * direction)> at t = 0 for every dy, by the difference formula with step h. `x`
  // has the values of the input with this index; the other inputs keep their values.
  Values differences(size_t input, const Values& x, const Values& direction, double h,
                     const std::vector<Values>& dys) const {
    auto at = [&](double t) {
      Values moved = x;
      for (size_t i = 0; i < moved.size(); ++i) moved[i] += t * direction[i];
      std::vector<Tensor> all = inputs_;
      all[input] = with_values(inputs_[input], moved);
      return call(all).to_vector<double>();
    };
    const Values p1 = at(h), m1 = at(-h), p2 = at(2 * h), m2 = at(-2 * h);
    Values derivative(p1.size());
    for (size_t j = 0; j < derivative.size(); ++j)
      derivative[j] = (8 * (p1[j] - m1[j]) - (p2[j] - m2[j])) / (12 * h);
    Values out;
    for (const Values& dy : dys) out.push_back(dot(dy, derivative));
    return out;
  }

  void compare_input(size_t input, const std::vector<Values>& dys, const std::vector<Values>& grads) {
    const Values x = inputs_[input].to_vector<double>();
    const int64_t n = int64_t(x.size());
    if (n <= options_.max_elements) {
      Values unit(n, 0.0);
      for (int64_t i = 0; i < n; ++i) {
        unit[i] = 1;
        const Values d = differences(input, x, unit, options_.step * std::max(1.0, std::abs(x[i])), dys);
        unit[i] = 0;
        for (size_t k = 0; k < dys.size(); ++k) compare(input, i, grads[k][i], d[k], 1);
      }
      return;
    }
    for (int r = 0; r < options_.directions; ++r) {
      const Values u = random_values(n, options_.seed, 1000 + uint64_t(r));
      const Values d = differences(input, x, u, options_.step, dys);
      // Rounding errors of the sums grow with the square root of their length.
      for (size_t k = 0; k < dys.size(); ++k)
        compare(input, -1, dot(grads[k], u), d[k], std::sqrt(double(n)));
    }
  }

  // Compares `given`, from autograd, with `expected`, from the differences. `element` is -1 for a random
  // direction. `scale` multiplies the tolerance.
  void compare(size_t input, int64_t element, double given, double expected, double scale) {
    ++compared_;
    const double tolerance = (options_.atol + options_.rtol * std::abs(expected)) * scale;
    double error = std::abs(given - expected) / tolerance;
    if (std::isnan(error)) error = INFINITY;
    if (error <= result_.max_error_ratio) return;
    result_.max_error_ratio = error;
    result_.input = int(input), result_.element = element;
    result_.analytical = given, result_.numerical = expected;
    if (error <= 1) return;
    const Tensor& x = inputs_[input];
    const std::string where =
        element < 0 ? "along a random direction" : "at " + coordinates(x.shape(), element);
    fail(concat("gradient of input ", input, " (", describe(x), ") ", where, " is ", given,
                ", central differences give ", expected, " (", error, " times the tolerance)"));
  }

  GradCheckResult fail(std::string message) {
    result_.ok = false;
    result_.message = std::move(message);
    return result_;
  }

  const TensorFunction& f_;
  const std::vector<Tensor>& inputs_;
  const GradCheckOptions& options_;
  std::vector<size_t> differentiable_;  // inputs to differentiate
  int64_t compared_ = 0;
  GradCheckResult result_;
};

}  // namespace

GradCheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradCheckOptions& options) {
  return Check(f, inputs, options).run();
}

GradCheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                              const GradCheckOptions& options) {
  std::vector<size_t> differentiable;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() == DType::kF64) differentiable.push_back(i);
  }
  const Tensor y = f(inputs);
  std::vector<Tensor> with_dy = inputs;
  with_dy.push_back(with_values(y, random_values(y.numel(), options.seed, 2000)));
  GradCheckResult total;
  for (size_t w = 0; w < differentiable.size(); ++w) {
    // The gradient of one input as a function of all inputs and dy.
    auto gradient = [&](const std::vector<Tensor>& values) {
      auto f_of_differentiable = [&](const std::vector<Tensor>& x) {
        std::vector<Tensor> all(values.begin(), values.end() - 1);
        for (size_t k = 0; k < differentiable.size(); ++k) all[differentiable[k]] = x[k];
        return f(all);
      };
      std::vector<Tensor> x;
      for (size_t i : differentiable) x.push_back(values[i]);
      return grad(f_of_differentiable, x, values.back())[w];
    };
    if (!gradient(with_dy).defined()) continue;  // f does not depend on this input
    GradCheckResult r = gradcheck(gradient, with_dy, options);
    if (!r) {
      r.message = concat("in the gradient of input ", differentiable[w], " (dy is input ", inputs.size(),
                         "): ", r.message);
      return r;
    }
    if (r.max_error_ratio >= total.max_error_ratio) total = r;
  }
  return total;
}

}  // namespace gradus::autograd
