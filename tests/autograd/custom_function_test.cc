// autograd::Function: user-defined forward and backward. Gradients are compared with values computed by hand
// and checked by gradcheck; a result or input without a gradient is an undefined Tensor.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/ops.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Tensors = std::vector<Tensor>;

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
Tensor f64(std::initializer_list<double> v) { return tensor(v); }

struct Cube : autograd::Function {
  Tensors forward(const Tensors& x) override {
    save(x[0]);
    return {x[0] * x[0] * x[0]};
  }
  Tensors backward(Tensors dys) override { return {dys[0] * 3 * square(saved(0))}; }
};
Tensor cube(const Tensor& x) { return autograd::apply(std::make_shared<Cube>(), {x})[0]; }

// Results {a + b, a * b}. Logs a digit per result: 1 if its gradient is defined, else 0.
struct SumAndProduct : autograd::Function {
  explicit SumAndProduct(std::string* log) : log(log) {}
  Tensors forward(const Tensors& x) override {
    save(x[0]);
    save(x[1]);
    return {x[0] + x[1], x[0] * x[1]};
  }
  Tensors backward(Tensors dys) override {
    for (const Tensor& dy : dys) *log += dy.defined() ? '1' : '0';
    Tensor da, db;
    if (dys[0].defined()) da = dys[0], db = dys[0];
    if (dys[1].defined()) {
      const Tensor pa = dys[1] * saved(1), pb = dys[1] * saved(0);
      da = da.defined() ? da + pa : pa;
      db = db.defined() ? db + pb : pb;
    }
    return {da, db};
  }
  std::string* log;
};

TEST(CustomFunction, UsesItsOwnRule) {
  const Tensor x = f64({2, -1});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = cube(x);
  EXPECT_THAT(values(y), ElementsAre(8, -1));
  gm.backward(sum(y));
  EXPECT_THAT(values(x.grad()), ElementsAre(12, 3));
}

TEST(CustomFunction, IsDifferentiableAgain) {
  const auto f = [](const Tensors& x) { return cube(x[0]); };
  const auto first = autograd::gradcheck(f, {f64({0.5, -1.25})});
  EXPECT_TRUE(first) << first.message;
  const auto second = autograd::gradgradcheck(f, {f64({0.5, -1.25})});
  EXPECT_TRUE(second) << second.message;
}

TEST(CustomFunction, ReceivesNoneForResultsThatAreNotUsed) {
  for (int used : {0, 1, 2}) {
    const Tensor a = f64({2}), b = f64({5});
    std::string log;
    GradManager gm;
    gm.attach({a, b});
    auto recording = gm.record();
    const Tensors y = autograd::apply(std::make_shared<SumAndProduct>(&log), {a, b});
    gm.backward(used == 2 ? y[0] + y[1] : y[size_t(used)]);
    EXPECT_EQ(log, used == 0 ? "10" : used == 1 ? "01" : "11");
    EXPECT_THAT(values(a.grad()), ElementsAre(used == 0 ? 1 : used == 1 ? 5 : 6));
    EXPECT_THAT(values(b.grad()), ElementsAre(used == 0 ? 1 : used == 1 ? 2 : 3));
  }
}

TEST(CustomFunction, IsSkippedWhenNoResultIsUsed) {
  const Tensor a = f64({2}), b = f64({5});
  std::string log;
  GradManager gm;
  gm.attach({a, b});
  auto recording = gm.record();
  const Tensors unused = autograd::apply(std::make_shared<SumAndProduct>(&log), {a, b});
  gm.backward(a * 2);
  EXPECT_EQ(log, "");
  EXPECT_FALSE(b.grad().defined());
}

// No gradient for its second input.
struct Gate : autograd::Function {
  Tensors forward(const Tensors& x) override { return {x[0] * 2, x[1] * 2}; }
  Tensors backward(Tensors dys) override { return {dys[0] * 2, Tensor()}; }
};

TEST(CustomFunction, MayReturnNone) {
  const Tensor a = f64({2}), b = f64({5});
  GradManager gm;
  gm.attach({a, b});
  auto recording = gm.record();
  const Tensors y = autograd::apply(std::make_shared<Gate>(), {a, b});
  gm.backward(y[0] * y[1]);
  EXPECT_THAT(values(a.grad()), ElementsAre(20));
  EXPECT_FALSE(b.grad().defined());
}

struct Throws : autograd::Function {
  Tensors forward(const Tensors& x) override { return {x[0] * 2}; }
  Tensors backward(Tensors) override { throw ValueError("mine", "does not like it"); }
};

TEST(CustomFunction, ErrorsOfItsRuleSayWhereTheyAroseAndEndTheRecording) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = autograd::apply(std::make_shared<Throws>(), {x})[0];
  try {
    gm.backward(y);
    FAIL() << "no error";
  } catch (const std::exception& e) {
    EXPECT_THAT(e.what(), HasSubstr("does not like it"));
    EXPECT_THAT(e.what(), HasSubstr("while running backward of"));
  }
  EXPECT_FALSE(recording.is_open());
  EXPECT_FALSE(x.grad().defined());
}

struct Identity : autograd::Function {
  Tensors forward(const Tensors& x) override { return {x[0]}; }
  Tensors backward(Tensors dys) override { return dys; }
};

TEST(CustomFunction, MustNotReturnItsInputItself) {
  const Tensor x = f64({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  EXPECT_THROW(autograd::apply(std::make_shared<Identity>(), {x}), StateError);
}

TEST(CustomFunction, KeepsNothingOutsideOfARecording) {
  EXPECT_THAT(values(cube(f64({3}))), ElementsAre(27));
}

}  // namespace
}  // namespace gradus
