// Matrix and vector products with checks of their shapes, as in torch. All but addmm, addmv and baddbmm are
// composed of differentiable ops (matmul, or broadcast multiplication for outer, kron and cross) and have no
// backward rule of their own. Each function opens an OpCall, which names the function in errors and rejects
// undefined arguments. Under autocast, the function then calls itself once with its operands cast (Casting).
// Letters in shapes: see linalg.h.
#include "gradus/autograd/ops/linalg/linalg.h"

#include <limits>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Returns the end of an error's text, which describes both operands.
std::string both(const Tensor& a, const Tensor& b) { return concat(": ", describe(a), " and ", describe(b)); }

// Errors: DeviceError, DTypeError unless a and b have the same device and dtype.
void check_like(const char* op, const Tensor& a, const Tensor& b) {
  autograd::check_same_device(op, "a", a, "b", b);
  check_same_dtype(op, "a", a, "b", b);
}

// As check_like. Errors: also DTypeError unless floating point.
void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  check_like(op, a, b);
  check_floating(op, "a", a);
}

// Checks devices, dtypes, numbers of dims and inner sizes of a and b and, for 3 dims, the batch sizes.
void check_product(const char* op, const Tensor& a, int a_dims, const Tensor& b, int b_dims) {
  check_pair(op, a, b);
  if (a.dim() != a_dims || b.dim() != b_dims)
    throw ShapeError(op, "expected ", a_dims, " and ", b_dims, " dimensions", both(a, b));
  const int64_t left = a.size(-1), right = b.size(b_dims == 1 ? 0 : -2);
  if (left != right) throw ShapeError(op, "sizes ", left, " and ", right, " do not fit", both(a, b));
  if (a_dims == 3 && a.size(0) != b.size(0))
    throw ShapeError(op, "batches of ", a.size(0), " and ", b.size(0), both(a, b));
}

// Returns and records beta c + alpha a b, where c broadcasts to a b. The caller has checked a and b, of
// shapes [M,K] and [K,N] or [K], or [G,M,K] and [G,K,N]. With beta 0, c is not read.
Tensor add_product(const char* op, const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& o) {
  check_pair(op, a, c);
  Shape shape = a.shape();
  if (b.dim() == 1)
    shape.erase(shape.size() - 1);
  else
    shape[shape.size() - 1] = b.size(-1);
  bool fits = c.dim() <= shape.size();
  for (int d = 1; fits && d <= c.dim(); ++d) fits = c.size(-d) == 1 || c.size(-d) == shape[shape.size() - d];
  if (!fits) throw ShapeError(op, "c does not broadcast to ", shape, ": c ", describe(c));
  // c [N] as a bias per column: the matmul kernel adds it itself.
  const bool is_bias =
      o.beta == 1 && o.alpha == 1 && c.dim() == 1 && a.dim() == 2 && b.dim() == 2 && c.size(0) == b.size(1);
  Tensor y;
  if (is_bias) {
    y = raw::linear(a, raw::transpose(b, 0, 1), c);
  } else {
    y = raw::matmul_in_f32(a, b);  // 16-bit floats are rounded once, at the end
    if (o.alpha != 1) raw::mul_(y, o.alpha);
    if (o.beta == 1)
      raw::add_(y, c);
    else if (o.beta != 0)
      raw::add_(y, c, o.beta);
    y = raw::to(y, a.dtype());
  }
  // dc = beta dy, which the engine sums to c's shape; da = alpha dy b^T; db = alpha a^T dy.
  if (Recorder r{op, c, a, b}) {
    const auto scaled = [alpha = o.alpha](const Tensor& v) { return alpha == 1 ? v : v * alpha; };
    r.record(y, wrt(c, [beta = o.beta](const Tensor& dy) { return beta == 0 ? zeros_like(dy) : dy * beta; }),
             wrt(a,
                 [b = r.save(b), scaled](const Tensor& dy) {
                   const Tensor v = b.get();
                   return scaled(v.dim() == 1 ? outer(dy, v) : matmul(dy, transpose(v, -2, -1)));
                 }),
             wrt(b, [a = r.save(a), scaled](const Tensor& dy) {
               return scaled(matmul(transpose(a.get(), -2, -1), dy));
             }));
  }
  return y;
}

}  // namespace

namespace {

// Returns the product of operands with these numbers of dims. `b_name`: of b in errors.
Tensor product(const char* op, autograd::CastOp cast_op, const Tensor& a, int a_dims, const Tensor& b,
               int b_dims, const char* b_name = "b") {
  const OpCall call(op, {{"a", a}, {b_name, b}});
  if (autograd::Casting cast{cast_op, a, b})
    return product(op, cast_op, cast(a), a_dims, cast(b), b_dims, b_name);
  check_product(op, a, a_dims, b, b_dims);
  return matmul(a, b);
}
// The same for beta c + alpha a b.
Tensor added_product(const char* op, autograd::CastOp cast_op, const Tensor& c, const Tensor& a, int a_dims,
                     const Tensor& b, int b_dims, const AddmmOptions& o, const char* b_name = "b") {
  const OpCall call(op, {{"c", c}, {"a", a}, {b_name, b}});
  if (autograd::Casting cast{cast_op})
    return added_product(op, cast_op, cast(c), cast(a), a_dims, cast(b), b_dims, o, b_name);
  check_product(op, a, a_dims, b, b_dims);
  return add_product(op, c, a, b, o);
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) { return product("mm", "mm", a, 2, b, 2); }
Tensor bmm(const Tensor& a, const Tensor& b) { return product("bmm", "bmm", a, 3, b, 3); }
Tensor mv(const Tensor& a, const Tensor& v) { return product("mv", "mv", a, 2, v, 1, "v"); }
Tensor dot(const Tensor& a, const Tensor& b) { return product("dot", "dot", a, 1, b, 1); }

Tensor inner(const Tensor& a, const Tensor& b) {
  const OpCall call("inner", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"inner"}) return inner(cast(a), cast(b));
  check_pair("inner", a, b);
  if (a.dim() == 0 || b.dim() == 0) return a * b;
  if (a.size(-1) != b.size(-1))
    throw ShapeError("inner", "last sizes ", a.size(-1), " and ", b.size(-1), " differ", both(a, b));
  return tensordot(a, b, {-1}, {-1});
}

Tensor outer(const Tensor& a, const Tensor& b) {
  const OpCall call("outer", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"outer", a, b}) return outer(cast(a), cast(b));
  check_like("outer", a, b);
  if (a.dim() != 1 || b.dim() != 1) throw ShapeError("outer", "expected vectors", both(a, b));
  return unsqueeze(a, 1) * b;
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  return added_product("addmm", "addmm", c, a, 2, b, 2, options);
}
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& v, const AddmmOptions& options) {
  return added_product("addmv", "addmv", c, a, 2, v, 1, options, "v");
}
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  return added_product("baddbmm", "baddbmm", c, a, 3, b, 3, options);
}

Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& w, const Tensor& bias) {
  const OpCall call("bilinear", {{"a", a}, {"b", b}, {"weight", w}});
  if (autograd::Casting cast{"bilinear"})
    return bilinear(cast(a), cast(b), cast.weight(w), cast.weight(bias));
  const char* op = "bilinear";
  check_pair(op, a, b);
  check_pair(op, a, w);
  if (w.dim() != 3) throw ShapeError(op, "weight must be [O,I,J]: weight ", describe(w));
  const int64_t O = w.size(0), I = w.size(1), J = w.size(2);
  if (a.dim() < 1 || b.dim() != a.dim() || a.size(-1) != I || b.size(-1) != J)
    throw ShapeError(op, "weight ", describe(w), " takes ", I, " and ", J, " features", both(a, b));
  Shape rows = a.shape(), rows_b = b.shape();
  rows.erase(a.dim() - 1), rows_b.erase(b.dim() - 1);
  if (!(rows == rows_b)) throw ShapeError(op, "leading sizes differ", both(a, b));
  if (bias.defined()) {
    check_pair(op, a, bias);
    if (bias.dim() != 1 || bias.size(0) != O)
      throw ShapeError(op, "bias must have ", O, " elements: bias ", describe(bias));
  }
  const int64_t n = rows.product();
  // forms [n,O*I] = b [n,J] (w as [O*I,J])^T. Then y[n,o] = sum_i forms[n,o,i] a[n,i].
  const Tensor forms = linear(reshape(b, {n, J}), reshape(w, {O * I, J}));
  const Tensor y = matmul(reshape(forms, {n, O, I}), reshape(a, {n, I, 1}));
  rows.push_back(O);
  const Tensor shaped = reshape(y, rows);
  return bias.defined() ? shaped + bias : shaped;
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  const OpCall call("tensordot", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"tensordot"}) return tensordot(cast(a), cast(b), dims);
  check_pair("tensordot", a, b);
  if (dims < 0 || dims > a.dim() || dims > b.dim())
    throw ValueError("tensordot", dims, " dims to sum over", both(a, b));
  Dims of_a, of_b;
  for (int64_t d = 0; d < dims; ++d) of_a.push_back(a.dim() - dims + d), of_b.push_back(d);
  return tensordot(a, b, of_a, of_b);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
  const OpCall call("tensordot", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"tensordot"}) return tensordot(cast(a), cast(b), dims_a, dims_b);
  const char* op = "tensordot";
  check_pair(op, a, b);
  if (dims_a.size() != dims_b.size())
    throw ShapeError(op, "dims ", dims_a, " and ", dims_b, " do not pair up", both(a, b));
  // The dims summed over, and the other dims with their sizes.
  struct Side {
    Dims summed, kept, kept_sizes;
    int64_t length = 1;
    Side(const Tensor& x, const Dims& dims) {
      std::array<bool, kMaxDims> is_summed{};
      for (int64_t d : dims) {
        const int at = wrap_dim(d, x.dim(), "tensordot");
        if (is_summed[at] || x.dim() == 0)
          throw ShapeError("tensordot", "dim ", d, " is named twice: ", dims, ", ", describe(x));
        is_summed[at] = true;
        summed.push_back(at);
        length *= x.size(at);
      }
      for (int d = 0; d < x.dim(); ++d)
        if (!is_summed[d]) kept.push_back(d), kept_sizes.push_back(x.size(d));
    }
  };
  const Side left(a, dims_a), right(b, dims_b);
  for (int i = 0; i < dims_a.size(); ++i)
    if (a.size(left.summed[i]) != b.size(right.summed[i]))
      throw ShapeError(op, "sizes of dims ", dims_a[i], " and ", dims_b[i], " differ", both(a, b));
  // One matrix product: a as [kept, summed] times b as [summed, kept].
  Dims order_a = left.kept, order_b = right.summed, shape = left.kept_sizes;
  for (int64_t d : left.summed) order_a.push_back(d);
  for (int64_t d : right.kept) order_b.push_back(d);
  for (int64_t n : right.kept_sizes) shape.push_back(n);
  const Tensor x = reshape(permute(a, order_a), {left.kept_sizes.product(), left.length});
  const Tensor y = reshape(permute(b, order_b), {right.length, right.kept_sizes.product()});
  return reshape(matmul(x, y), shape);
}

// a as [M,1,N,1] times b as [1,P,1,Q], reshaped to [MP,NQ].
Tensor kron(const Tensor& a, const Tensor& b) {
  const OpCall call("kron", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"kron", a, b}) return kron(cast(a), cast(b));
  check_like("kron", a, b);
  const int n = std::max(a.dim(), b.dim());
  if (2 * n > kMaxDims) throw ShapeError("kron", "at most ", kMaxDims / 2, " dimensions", both(a, b));
  Shape shape_a, shape_b, shape;
  for (int d = 0; d < n; ++d) {
    const int64_t size_a = d < n - a.dim() ? 1 : a.size(d - (n - a.dim()));
    const int64_t size_b = d < n - b.dim() ? 1 : b.size(d - (n - b.dim()));
    shape_a.push_back(size_a), shape_a.push_back(1);
    shape_b.push_back(1), shape_b.push_back(size_b);
    shape.push_back(Checked("kron", size_a) * size_b);
  }
  return reshape(reshape(a, shape_a) * reshape(b, shape_b), shape);
}

Tensor chain_matmul(const std::vector<Tensor>& matrices) {
  const OpCall call("chain_matmul", "matrices", matrices);
  if (autograd::Casting cast{"chain_matmul"}) return chain_matmul(cast(matrices));
  const char* op = "chain_matmul";
  if (matrices.empty()) throw ValueError(op, "expected at least one matrix, got 0");
  const int n = int(matrices.size());
  if (matrices[0].dim() != 2) throw ShapeError(op, "expected matrices, got ", describe(matrices[0]));
  for (int i = 1; i < n; ++i) check_product(op, matrices[i - 1], 2, matrices[i], 2);
  // Dynamic programming over products of matrices i to j: cost[i][j] is the least number of scalar
  // multiplications, and split[i][j] the last matrix of the left factor. Cubic in the number of matrices.
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<int>> split(n, std::vector<int>(n, 0));
  for (int length = 2; length <= n; ++length)
    for (int i = 0, j = length - 1; j < n; ++i, ++j) {
      cost[i][j] = std::numeric_limits<double>::infinity();
      for (int k = i; k < j; ++k) {
        const double c =
            cost[i][k] + cost[k + 1][j] +
            double(matrices[i].size(0)) * double(matrices[k].size(1)) * double(matrices[j].size(1));
        if (c < cost[i][j]) cost[i][j] = c, split[i][j] = k;
      }
    }
  const auto product = [&](const auto& self, int i, int j) -> Tensor {
    return i == j ? matrices[i] : matmul(self(self, i, split[i][j]), self(self, split[i][j] + 1, j));
  };
  return product(product, 0, n - 1);
}

Tensor matrix_power(const Tensor& x, int64_t n) {
  const OpCall call("matrix_power", {{"x", x}});
  if (autograd::Casting cast{"matrix_power"}) return matrix_power(cast(x), n);
  const char* op = "matrix_power";
  check_floating(op, "x", x);
  if (x.dim() < 2 || x.size(-1) != x.size(-2))
    throw ShapeError(op, "expected square matrices, got ", describe(x));
  if (n < 0) throw ValueError(op, "the power must be at least 0, got ", n);
  if (n == 0) return zeros_like(x) + eye(x.size(-1), x.size(-1), {x.dtype(), x.device()});
  Tensor result, power = x;  // binary exponentiation: result = x^(low bits of n), power = x^(2^bit)
  for (; n > 0; n >>= 1) {
    if (n & 1) result = result.defined() ? matmul(result, power) : power;
    if (n > 1) power = matmul(power, power);
  }
  return result.is_same(x) ? x * 1.0 : result;  // never x itself
}

Tensor cross(const Tensor& a, const Tensor& b, int64_t dim) {
  const OpCall call("cross", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"cross", a, b}) return cross(cast(a), cast(b), dim);
  const char* op = "cross";
  check_like(op, a, b);
  if (a.dim() != b.dim()) throw ShapeError(op, "numbers of dimensions differ", both(a, b));
  const int d = wrap_dim(dim, a.dim(), op);
  if (a.dim() == 0 || a.size(d) != 3 || b.size(d) != 3)
    throw ShapeError(op, "expected vectors of 3 in dim ", dim, both(a, b));
  broadcast_shapes(a.shape(), b.shape(), op);
  // y[i] = a[i+1] b[i+2] - a[i+2] b[i+1], with indices modulo 3.
  const auto rotated = [d](const Tensor& x, int64_t by) {
    return cat({narrow(x, d, by, 3 - by), narrow(x, d, 0, by)}, d);
  };
  return rotated(a, 1) * rotated(b, 2) - rotated(a, 2) * rotated(b, 1);
}

}  // namespace gradus
