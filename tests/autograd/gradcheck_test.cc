// gradcheck() and gradgradcheck() pass correct backward rules, and report the input and element of a wrong
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/ops.h"

namespace gradus {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<Tensor>;

// x^2 with `rule` as its backward.
struct Square : autograd::Function {
  using Rule = std::function<Tensor(const Tensor& dy, const Tensor& x)>;
  explicit Square(Rule rule) : rule(std::move(rule)) {}
  Tensors forward(const Tensors& x) override {
    save(x[0]);
    return {square(x[0])};
  }
  Tensors backward(Tensors dys) override { return {rule(dys[0], saved(0))}; }
  Rule rule;
};
autograd::TensorFunction square_with(Square::Rule rule) {
  return [rule](const Tensors& x) { return autograd::apply(std::make_shared<Square>(rule), {x[0]})[0]; };
}

const Tensor kX = tensor({0.5, -1.25, 2.0});

TEST(GradCheck, PassesARightRule) {
  const auto f = square_with([](const Tensor& dy, const Tensor& x) { return dy * 2 * x; });
  const auto check = autograd::gradcheck(f, {kX});
  EXPECT_TRUE(check) << check.message;
  EXPECT_LT(check.max_error_ratio, 0.1);
  EXPECT_TRUE(autograd::gradgradcheck(f, {kX}));
}

TEST(GradCheck, NamesTheElementOfAWrongRule) {
  const Tensor factor = tensor({2.0, 3.0, 2.0});  // wrong in the middle
  const auto check = autograd::gradcheck(
      square_with([=](const Tensor& dy, const Tensor& x) { return dy * factor * x; }), {kX});
  EXPECT_FALSE(check);
  EXPECT_EQ(check.input, 0);
  EXPECT_EQ(check.element, 1);
  EXPECT_NEAR(check.numerical, -2.5, 1e-6);
  EXPECT_NEAR(check.analytical, -3.75, 1e-6);
  EXPECT_THAT(check.message, HasSubstr("at [1] is -3.75"));
}

TEST(GradCheck, FindsAnErrorOfOnePartInAHundredThousand) {
  EXPECT_FALSE(autograd::gradcheck(
      square_with([](const Tensor& dy, const Tensor& x) { return dy * 2.00002 * x; }), {kX}));
}

TEST(GradCheck, FindsAWrongRuleOfALargeInput) {
  std::vector<double> many;
  for (int i = 0; i < 1000; ++i) many.push_back(0.001 * i - 0.4);
  const Tensor x = tensor(many, {1000});
  EXPECT_TRUE(
      autograd::gradcheck(square_with([](const Tensor& dy, const Tensor& x) { return dy * 2 * x; }), {x}));
  EXPECT_FALSE(
      autograd::gradcheck(square_with([](const Tensor& dy, const Tensor& x) { return dy * 2.1 * x; }), {x}));
}

TEST(GradCheck, FindsARuleThatIsWrongAtTheSecondOrderAlone) {
  const auto f = square_with([](const Tensor& dy, const Tensor& x) { return dy * 2 * detach(x); });
  EXPECT_TRUE(autograd::gradcheck(f, {kX}));
  const auto check = autograd::gradgradcheck(f, {kX});
  EXPECT_FALSE(check);
  EXPECT_THAT(check.message, HasSubstr("in the gradient of input 0"));
}

TEST(GradCheck, FindsAMissingGradient) {
  EXPECT_FALSE(autograd::gradcheck([](const Tensors& x) { return detach(x[0]) * 2; }, {kX}));
}

TEST(GradCheck, FindsAFunctionThatIsNotDeterministic) {
  int calls = 0;
  const auto check = autograd::gradcheck([&](const Tensors& x) { return x[0] * ++calls; }, {kX});
  EXPECT_FALSE(check);
  EXPECT_THAT(check.message, HasSubstr("two calls"));
}

TEST(GradCheck, FindsARuleThatIsNotDeterministic) {
  int calls = 0;
  const auto check = autograd::gradcheck(
      square_with([&](const Tensor& dy, const Tensor& x) { return dy * ++calls * x; }), {kX});
  EXPECT_FALSE(check);
  EXPECT_THAT(check.message, HasSubstr("two backward runs"));
}

TEST(GradCheck, LeavesIndicesAlone) {
  const Tensor index = tensor(std::vector<int64_t>{2, 0, 2}, {3});
  const auto f = [](const Tensors& x) { return exp(index_select(x[0], 0, x[1])); };
  EXPECT_TRUE(autograd::gradcheck(f, {kX, index}));
  EXPECT_TRUE(autograd::gradgradcheck(f, {kX, index}));
}

TEST(GradCheck, AsksForF64) {
  EXPECT_THROW(autograd::gradcheck([](const Tensors& x) { return x[0]; }, {tensor({1.f})}), DTypeError);
  EXPECT_THROW(autograd::gradcheck([](const Tensors& x) { return x[0]; }, {}), DTypeError);
  EXPECT_THROW(autograd::gradcheck([](const Tensors& x) { return to(x[0], DType::kF32); }, {kX}), DTypeError);
}

}  // namespace
}  // namespace gradus
