// vjp, jvp, jacobian, hessian and hvp against closed formulas, against each other, and with the options of
// torch.autograd.functional.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using autograd::hessian, autograd::hvp, autograd::jacobian, autograd::jvp, autograd::vjp;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;
using Tensors = std::vector<Tensor>;

const Tensor kX = tensor({0.5, -1.25, 2.0}), kV = tensor({1.0, 3.0, -2.0});
const Tensor kMatrix = reshape(tensor({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}), {2, 3});

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
void expect_near(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(to_string(got.shape()), to_string(expected.shape()));
  EXPECT_THAT(values(got), Pointwise(DoubleNear(1e-12), values(expected)));
}

// y = (A x)^2, with Jacobian 2 diag(A x) A.
Tensor squares(const Tensor& x) { return square(mv(kMatrix, x)); }
Tensor jacobian_of_squares(const Tensor& x) { return 2 * reshape(mv(kMatrix, x), {2, 1}) * kMatrix; }

TEST(Jacobian, IsThatOfTheFormula) {
  expect_near(jacobian(squares, kX), jacobian_of_squares(kX));
  // of a result without dims, and with respect to a tensor without dims
  expect_near(jacobian([](const Tensor& x) { return sum(x * x); }, kX), 2 * kX);
  expect_near(jacobian([](const Tensor& x) { return x * kX; }, scalar(2.0, {.dtype = DType::kF64})), kX);
  // of a result without elements
  expect_near(jacobian([](const Tensor& x) { return slice(x, 0, 0, 0); }, kX),
              zeros({0, 3}, {.dtype = DType::kF64}));
}

TEST(Jacobian, HasTheShapeOfResultAndInput) {
  const Tensor j =
      jacobian([](const Tensor& x) { return matmul(x, kMatrix); }, ones({4, 2}, {.dtype = DType::kF64}));
  EXPECT_EQ(to_string(j.shape()), "[4,3,4,2]");
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t other = 0; other < 4; ++other)
      expect_near(select(select(j, 2, other), 0, row),
                  row == other ? t(kMatrix) : zeros({3, 2}, {.dtype = DType::kF64}));
}

TEST(Jacobian, OfSeveralResultsAndInputs) {
  const auto f = [](const Tensors& xs) -> Tensors { return {xs[0] * xs[1], sum(xs[1])}; };
  const auto j = jacobian(f, {kX, kV});
  ASSERT_EQ(j.size(), 2u);
  ASSERT_EQ(j[1].size(), 2u);
  expect_near(j[0][0], diag(kV));
  expect_near(j[0][1], diag(kX));
  expect_near(j[1][0], zeros_like(kX));
  expect_near(j[1][1], ones_like(kX));
  const Tensors one = jacobian([](const Tensors& xs) { return xs[0] * xs[1]; }, {kX, kV});
  ASSERT_EQ(one.size(), 2u);
  expect_near(one[1], diag(kX));
}

TEST(Hessian, IsThatOfTheFormula) {
  expect_near(hessian([](const Tensor& x) { return sum(x * x * x); }, kX), diag(6 * kX));
  const auto h = hessian([](const Tensors& xs) { return sum(xs[0] * xs[0] * xs[1]); }, {kX, kV});
  expect_near(h[0][0], diag(2 * kV));
  expect_near(h[0][1], diag(2 * kX));
  expect_near(h[1][0], diag(2 * kX));
  expect_near(h[1][1], zeros({3, 3}, {.dtype = DType::kF64}));
}

TEST(Products, AreThoseOfTheJacobian) {
  const Tensor j = jacobian_of_squares(kX), u = tensor({2.0, -1.0});
  const auto [y, row] = vjp(squares, kX, u);
  expect_near(y, squares(kX));
  expect_near(row, mv(t(j), u));
  const auto [again, column] = jvp(squares, kX, kV);
  expect_near(again, squares(kX));
  expect_near(column, mv(j, kV));
}

TEST(Products, OfSeveralResultsAndInputs) {
  const auto f = [](const Tensors& xs) -> Tensors { return {xs[0] * xs[1], sum(xs[1])}; };
  const Tensor a = tensor({1.0, -1.0, 0.5}), b = tensor(std::vector<double>{3.0}, {});
  const auto [ys, rows] = vjp(f, {kX, kV}, {a, b});
  expect_near(ys[0], kX * kV);
  expect_near(rows[0], a * kV);
  expect_near(rows[1], a * kX + b);
  const auto [again, columns] = jvp(f, {kX, kV}, {a, kX});
  expect_near(again[1], sum(kV));
  expect_near(columns[0], a * kV + kX * kX);
  expect_near(columns[1], sum(kX));
  // The same functions of one result.
  const auto product = [](const Tensors& xs) { return xs[0] * xs[1]; };
  expect_near(vjp(product, {kX, kV}, a).second[0], a * kV);
  expect_near(jvp(product, {kX, kV}, {a, kX}).second, a * kV + kX * kX);
}

TEST(Products, OfTheHessian) {
  const auto f = [](const Tensor& x) { return prod(x); };
  const auto [y, hv] = hvp(f, kX, kV);
  expect_near(y, prod(kX));
  expect_near(hv, mv(hessian(f, kX), kV));
  const auto g = [](const Tensors& xs) { return sum(xs[0] * xs[0] * xs[1]); };
  const auto [z, products] = hvp(g, {kX, kV}, {kV, kX});
  expect_near(products[0], 2 * kV * kV + 2 * kX * kX);
  expect_near(products[1], 2 * kX * kV);
}

// An omitted v is 1.
TEST(Products, OfOneElementNeedNoVector) {
  const auto cube = [](const Tensor& x) { return x * x * x; };
  const Tensor two = tensor(std::vector<double>{2.0}, {});
  expect_near(vjp(cube, two).second, 6 * two);
  expect_near(jvp(cube, two).second, 6 * two);
  expect_near(hvp(cube, two).second, 6 * two);
  expect_near(vjp([](const Tensor& x) { return sum(x); }, kX).second, ones_like(kX));
}

TEST(Products, OfFunctionsThatReturnTheirInput) {
  expect_near(vjp([](const Tensor& x) { return x; }, kX, kV).second, kV);
  expect_near(jvp([](const Tensor& x) { return x; }, kX, kV).second, kV);
  const auto twice = [](const Tensors& xs) -> Tensors { return {xs[0], xs[0]}; };
  expect_near(vjp(twice, {kX}, {kV, kX}).second[0], kV + kX);
  expect_near(jvp(twice, {kX}, {kV}).second[1], kV);
}

// Networks have rules that compute the gradients of several inputs together.
TEST(Products, OfANetworkAgreeWithItsJacobian) {
  manual_seed(1);
  nn::Sequential net({nn::layer<nn::Linear>({.in = 4, .out = 5}), nn::layer<nn::LayerNorm>({.shape = {5}}),
                      nn::layer<nn::GELU>(), nn::layer<nn::Linear>({.in = 5, .out = 3})});
  net.to(DType::kF64);
  const Tensor x = randn({2, 4}, {.dtype = DType::kF64}), v = randn({2, 4}, {.dtype = DType::kF64});
  const auto f = [&](const Tensor& x) { return net(x); };
  const Tensor j = reshape(jacobian(f, x), {6, 8});
  expect_near(reshape(jvp(f, x, v).second, {6}), mv(j, reshape(v, {8})));
}

TEST(CreateGraph, MakesResultsDifferentiable) {
  const autograd::DerivativeOptions graph{.create_graph = true};
  const auto cubes = [](const Tensor& x) { return x * x * x; };
  const auto cube = [&](const Tensor& x) { return sum(cubes(x)); };
  const std::vector<autograd::NaryFunction> functions = {
      [&](const Tensors& xs) { return jacobian(cubes, xs[0], graph); },
      [&](const Tensors& xs) { return hessian(cube, xs[0], graph); },
      [&](const Tensors& xs) { return vjp(cubes, xs[0], xs[1], graph).second; },
      [&](const Tensors& xs) { return jvp(cubes, xs[0], xs[1], graph).second; },
      [&](const Tensors& xs) { return jvp(cubes, xs[0], xs[1], graph).first; },
      [&](const Tensors& xs) { return hvp(cube, xs[0], xs[1], graph).second; },
  };
  for (size_t i = 0; i < functions.size(); ++i) {
    const auto check = autograd::gradcheck(functions[i], {kX, kV});
    EXPECT_TRUE(check) << i << ": " << check.message;
  }
}

TEST(CreateGraph, ReachesCapturedTensors) {
  const Tensor w = tensor({1.0, 2.0, 3.0});
  GradManager gm;
  gm.attach(w);
  const auto f = [&](const Tensor& x) { return sum(w * x * x); };
  auto recording = gm.record();
  EXPECT_FALSE(autograd::is_tracked(hessian(f, kX)));
  const Tensor h = hessian(f, kX, {.create_graph = true});  // diag(2 w)
  gm.backward(sum(h * h));
  expect_near(w.grad(), 8 * w);
}

TEST(Strict, ThrowsForIndependentResultsAndInputs) {
  const autograd::DerivativeOptions strict{.strict = true};
  const auto constant = [](const Tensor&) { return sum(kV); };
  const auto first = [](const Tensors& xs) { return sum(xs[0] * xs[0]); };
  EXPECT_ERROR(ValueError, vjp(constant, kX, {}, strict), "[vjp]", "result 0");
  EXPECT_ERROR(ValueError, jvp(constant, kX, kV, strict), "[jvp]", "result 0");
  EXPECT_ERROR(ValueError, jacobian(constant, kX, strict), "[jacobian]", "result 0");
  EXPECT_ERROR(ValueError, vjp(first, {kX, kV}, {}, strict), "[vjp]", "input 1");
  EXPECT_ERROR(ValueError, jvp(first, {kX, kV}, {kX, kV}, strict), "[jvp]", "input 1");
  EXPECT_ERROR(ValueError, jacobian(first, {kX, kV}, strict), "[jacobian]", "input 1");
  EXPECT_ERROR(ValueError, hessian(first, {kX, kV}, strict), "[hessian]", "input 1");
  EXPECT_ERROR(ValueError, hvp(first, {kX, kV}, {kX, kV}, strict), "[hvp]", "input 1");
  const auto linear = [](const Tensor& x) { return sum(x * kV); };
  EXPECT_ERROR(ValueError, hessian(linear, kX, strict), "[hessian]");
  EXPECT_ERROR(ValueError, hvp(linear, kX, kV, strict), "[hvp]");
  // Without strict, the derivatives are 0.
  expect_near(jvp(constant, kX, kV).second, tensor(std::vector<double>{0.0}, {}));
  expect_near(hessian(linear, kX), zeros({3, 3}, {.dtype = DType::kF64}));
  expect_near(hvp(linear, kX, kV).second, zeros_like(kX));
  expect_near(jacobian([](const Tensor&) { return kV; }, kX), zeros({3, 3}, {.dtype = DType::kF64}));
}

TEST(Errors, OfArgumentsThatDoNotFit) {
  const auto same = [](const Tensor& x) { return x * x; };
  const auto product = [](const Tensors& xs) { return xs[0] * xs[1]; };
  const Tensor two = tensor({1.0, 2.0});
  EXPECT_ERROR(ShapeError, vjp(same, kX), "[vjp]", "result 0");
  EXPECT_ERROR(ShapeError, jvp(same, kX), "[jvp]", "input 0");
  EXPECT_ERROR(ShapeError, vjp(same, kX, two), "[vjp]", "f64[2]");
  EXPECT_ERROR(ShapeError, jvp(same, kX, two), "[jvp]", "f64[2]");
  EXPECT_ERROR(ShapeError, hvp(same, kX, kV), "[hvp]", "one element");
  EXPECT_ERROR(ShapeError, hessian(same, kX), "[hessian]", "one element");
  EXPECT_ERROR(ValueError, jvp(product, {kX, kV}, {kX}), "[jvp]", "per input: 2, got 1");
  EXPECT_ERROR(StateError, jacobian(same, Tensor()), "[jacobian]", "undefined");
  EXPECT_ERROR(StateError, jacobian([](const Tensor&) { return Tensor(); }, kX), "[jacobian]", "undefined");
  EXPECT_THROW(jacobian(same, tensor({1, 2})), DTypeError);
}

}  // namespace
}  // namespace gradus
