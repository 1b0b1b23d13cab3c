#include "gradus/tests/kernels/layout_cases.h"

#include <algorithm>
#include <numeric>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/images/conv.h"
#include "gradus/autograd/ops/linalg/einsum.h"
#include "gradus/autograd/ops/linalg/linalg.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/kernels/random.h"

namespace gradus::kerneltest {
namespace {

using Tensors = std::vector<Tensor>;
using Operand = LayoutCase::Operand;

struct Problem {
  std::string op;
  std::vector<Shape> shapes;
  std::function<Tensor(const Tensors&)> run;
  bool takes_integers = false;
};

int64_t extent(Random& r) { return r.one_in(6) ? r.in(1, 70) : r.one_in(40) ? 0 : r.in(1, 9); }

Shape joined(Shape batch, std::initializer_list<int64_t> sizes) {
  for (int64_t n : sizes) batch.push_back(n);
  return batch;
}

// `batch`, or batch dims that broadcast to it.
Shape broadcast_to(Random& r, const Shape& batch) {
  Shape s;
  for (int64_t n : batch)
    if (!s.empty() || !r.one_in(4)) s.push_back(r.one_in(4) ? 1 : n);
  return s;
}

Problem random_product(Random& r) {
  const int64_t m = extent(r), k = extent(r), n = extent(r), g = r.in(1, 6);
  const AddmmOptions factors{.beta = r.of({0.0, 0.5, 1.0}), .alpha = r.of({0.5, 1.0})};
  const Shape c = r.of({Shape{m, n}, Shape{n}, Shape{m, 1}});
  switch (r.in(0, 14)) {
    case 0: {
      Shape batch;
      for (int64_t d = r.in(1, 3); d > 0; --d) batch.push_back(r.in(1, 4));
      return {"matmul",
              {joined(broadcast_to(r, batch), {m, k}), joined(broadcast_to(r, batch), {k, n})},
              [](const Tensors& x) { return matmul(x[0], x[1]); }};
    }
    case 1:
      return {"mm", {{m, k}, {k, n}}, [](const Tensors& x) { return mm(x[0], x[1]); }};
    case 2:
      return {"mv", {{m, k}, {k}}, [](const Tensors& x) { return mv(x[0], x[1]); }};
    case 3:
      return {"dot", {{k}, {k}}, [](const Tensors& x) { return dot(x[0], x[1]); }};
    case 4:
      return {"inner", {{g, m, k}, {n, k}}, [](const Tensors& x) { return inner(x[0], x[1]); }};
    case 5: {
      const Shape x = r.of({Shape{k}, Shape{m, k}, Shape{g, m, k}, Shape{2, g, m, k}});
      return {"linear", {x, {n, k}, {n}}, [](const Tensors& x) { return linear(x[0], x[1], x[2]); }};
    }
    case 6:
      return {"linear_relu", {{g, m, k}, {n, k}, {n}}, [](const Tensors& x) {
                return linear_relu(x[0], x[1], x[2]);
              }};
    case 7:
      return {
          "addmm", {c, {m, k}, {k, n}}, [=](const Tensors& x) { return addmm(x[0], x[1], x[2], factors); }};
    case 8:
      return {
          "addmv", {{m}, {m, k}, {k}}, [=](const Tensors& x) { return addmv(x[0], x[1], x[2], factors); }};
    case 9:
      return {"baddbmm", {c, {g, m, k}, {g, k, n}}, [=](const Tensors& x) {
                return baddbmm(x[0], x[1], x[2], factors);
              }};
    case 10:
      return {"bilinear", {{m, k}, {m, n}, {g, k, n}, {g}}, [](const Tensors& x) {
                return bilinear(x[0], x[1], x[2], x[3]);
              }};
    case 11:
      return {"tensordot", {{m, g, k}, {g, k, n}}, [](const Tensors& x) { return tensordot(x[0], x[1]); }};
    case 12:
      return {"einsum", {{g, m, k}, {n, g, k}}, [](const Tensors& x) {
                return einsum("gmk,ngk->gnm", {x[0], x[1]});
              }};
    case 13:
      if (r.one_in(2)) return {"outer", {{m}, {n}}, [](const Tensors& x) { return outer(x[0], x[1]); }, true};
      return {"kron", {{m, 3}, {2, n}}, [](const Tensors& x) { return kron(x[0], x[1]); }, true};
    default:
      return {"bmm", {{g, m, k}, {g, k, n}}, [](const Tensors& x) { return bmm(x[0], x[1]); }};
  }
}

template <class Options, class Size>
Options options_of(int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  Options o;
  o.stride = Size(stride), o.padding = Size(padding), o.dilation = Size(dilation), o.groups = groups;
  return o;
}

Problem random_convolution(Random& r) {
  const int rank = int(r.of({1, 2, 2, 2, 3}));
  const bool transposed = r.one_in(3), bias = r.one_in(2), pointwise = r.one_in(4);
  const int64_t groups = r.one_in(4) ? r.in(2, 4) : 1;
  const int64_t in = groups * (r.one_in(4) ? r.in(1, 33) : r.in(1, 5)),
                out = groups * (r.one_in(4) ? r.in(1, 33) : r.in(1, 5));
  const int64_t stride = r.in(1, 3), dilation = r.in(1, 2);
  Shape x{r.in(1, 4), in}, w = transposed ? Shape{in, out / groups} : Shape{out, in / groups};
  int64_t padding = pointwise ? 0 : r.in(0, 2);
  for (int d = 0; d < rank; ++d) {
    const int64_t taps = pointwise ? 1 : r.in(1, 4);
    x.push_back(dilation * (taps - 1) + r.in(transposed ? 2 : 1, rank == 3 ? 4 : 9)), w.push_back(taps);
    if (transposed) padding = std::min(padding, taps / 2);
  }
  std::vector<Shape> shapes{x, w};
  if (bias) shapes.push_back({out});
  const auto with = [=](auto f) {
    return [=](const Tensors& t) { return f(t[0], t[1], bias ? t[2] : Tensor()); };
  };
  const auto problem = [&](const char* name, auto f) {
    return Problem{
        concat(name, " stride ", stride, " padding ", padding, " dilation ", dilation, " groups ", groups),
        shapes, with(f)};
  };
#define GRADUS_CONVOLUTION(f, Options, Size)                                      \
  problem(#f, [o = options_of<Options, Size>(stride, padding, dilation, groups)]( \
                  const Tensor& x, const Tensor& w, const Tensor& b) { return f(x, w, b, o); })
  if (transposed) {
    if (rank == 1) return GRADUS_CONVOLUTION(conv_transpose1d, ConvTranspose1dFuncOptions, int64_t);
    if (rank == 2) return GRADUS_CONVOLUTION(conv_transpose2d, ConvTranspose2dFuncOptions, Size2);
    return GRADUS_CONVOLUTION(conv_transpose3d, ConvTranspose3dFuncOptions, Size3);
  }
  if (rank == 1) return GRADUS_CONVOLUTION(conv1d, Conv1dFuncOptions, int64_t);
  if (rank == 3) return GRADUS_CONVOLUTION(conv3d, Conv3dFuncOptions, Size3);
  if (r.one_in(4)) return GRADUS_CONVOLUTION(conv2d_relu, Conv2dFuncOptions, Size2);
  return GRADUS_CONVOLUTION(conv2d, Conv2dFuncOptions, Size2);
#undef GRADUS_CONVOLUTION
}

// Random strides for a shape, in storage that ends with the last element or up to 20 elements later.
Operand random_operand(Random& r, const Shape& shape) {
  Operand o{shape, row_major_strides(shape), 0, 0};
  const int n = shape.size();
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  if (!r.one_in(3))
    for (int i = n - 1; i > 0; --i) std::swap(order[size_t(i)], order[size_t(r.in(0, i))]);
  const bool overlaps = r.one_in(3);
  int64_t dense = 1;  // the stride that the next dim has without gaps
  for (int i = n - 1; i >= 0; --i) {
    const int d = order[size_t(i)];
    const int64_t last = std::max<int64_t>(shape[d] - 1, 0);
    if (overlaps) {  // windows
      o.strides[d] = r.one_in(3) ? dense : r.in(0, dense);
      dense = std::max(dense, o.strides[d] * last + 1);
    } else {  // a slice
      const int64_t step = r.one_in(3) ? r.in(2, 4) : 1, rest = r.one_in(3) ? r.in(0, 5) : 0;
      o.strides[d] = dense * step;
      dense *= step * last + 1 + rest;
    }
    if (r.one_in(8)) o.strides[d] = 0;  // expanded
  }
  int64_t last = 0;
  for (int d = 0; d < n; ++d) last += o.strides[d] * std::max<int64_t>(shape[d] - 1, 0);
  o.offset = r.one_in(2) ? r.in(1, 20) : 0;
  o.room = o.offset + last + 1 + (r.one_in(4) ? r.in(1, 20) : 0);
  return o;
}

Tensor make(const Operand& o, DType dtype, Random& r) {
  const Tensor wide = empty({o.room}, {DType::kF64});
  for (int64_t i = 0; i < o.room; ++i) {
    const double value = double(2 * r.in(0, 7) - 7);
    wide.ptr<double>()[i] = is_floating(dtype) ? value / 4 : value;
  }
  return view_as_strided(raw::to(wide, dtype), o.shape, o.strides, o.offset);
}

// A copy that shares nothing with x.
Tensor copy_of(const Tensor& x) {
  const Tensor y = empty(x.shape(), {x.dtype()});
  if (x.numel() > 0) raw::copy_(y, x);
  return y;
}

std::string difference(const std::string& what, const Tensor& got, const Tensor& want) {
  if (got.shape() != want.shape() || got.dtype() != want.dtype())
    return concat("  ", what, " is ", describe(got), ", of contiguous operands ", describe(want), '\n');
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i]))
      return concat("  element ", i, " of ", what, " is ", a[i], ", of contiguous operands ", b[i], '\n');
  return {};
}

}  // namespace

LayoutCase::LayoutCase(uint64_t seed) : seed_(seed) {
  Random r(seed);
  Problem p = r.one_in(2) ? random_product(r) : random_convolution(r);
  op_ = std::move(p.op), run_ = std::move(p.run);
  for (const Shape& s : p.shapes) operands_.push_back(random_operand(r, s));
  dtype_ = p.takes_integers && r.one_in(2)
               ? r.of({DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8})
               : r.of({DType::kF64, DType::kF32, DType::kF16, DType::kBF16});
  threads_ = int(r.in(1, 3));
}

std::string LayoutCase::text() const {
  std::string s = concat(op_, ' ', dtype_, ", ", threads_, " threads:");
  for (const Operand& o : operands_) s += concat(' ', o.shape, " by ", o.strides);
  return s;
}

std::string LayoutCase::wrong() const {
  set_num_threads(threads_);
  Random r(seed_ + 1);
  Tensors x, copies;
  for (const Operand& o : operands_) {
    x.push_back(make(o, dtype_, r));
    copies.push_back(copy_of(x.back()));
  }
  const Tensor y = run_(x);
  std::string wrong = difference("the result", y, run_(copies));
  if (!is_floating(y.dtype())) return wrong;
  const Tensor dy = make(random_operand(r, y.shape()), y.dtype(), r);
  const Tensors g = autograd::grad(run_, x, dy), want = autograd::grad(run_, copies, copy_of(dy));
  for (size_t i = 0; i < g.size(); ++i)
    wrong += difference(concat("the gradient of operand ", i), g[i], want[i]);
  return wrong;
}

}  // namespace gradus::kerneltest
