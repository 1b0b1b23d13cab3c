// Results of x[i], shape() and strides() that a user keeps with `auto` stay valid after x is gone. Also
// x[0][1] = y and x += y under a recording, and autograd::apply<F>().
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Floats = std::vector<float>;

Tensor made() { return tensor({{1.f, 2.f}, {3.f, 4.f}}); }

TEST(IndexLifetime, APartHoldsItsTensor) {
  auto row = made()[1];
  const Tensor other = full({2, 2}, 9);  // would reuse freed memory
  EXPECT_EQ(row.to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(row.shape(), Shape{2});
  EXPECT_EQ(row[0].item<double>(), 3);
}

TEST(IndexLifetime, APartStaysThatOfTheOldValue) {
  Tensor x = zeros({3});
  auto v = x[0];
  x = zeros({3}) + 7;
  EXPECT_EQ(v.item<double>(), 0);
}

TEST(IndexLifetime, ShapesOfTemporariesAreCopies) {
  int64_t product = 1;
  for (const int64_t n : made().shape()) product *= n;
  EXPECT_EQ(product, 4);
  const Shape& shape = made().shape();
  const Strides& strides = made().strides();
  const Tensor other = ones({7, 5});
  EXPECT_EQ(shape, (Shape{2, 2}));
  EXPECT_EQ(strides, (Strides{2, 1}));
}

TEST(PartsOfParts, AreReadAndWritten) {
  Tensor x = made();
  EXPECT_EQ(x[0][1].item<float>(), 2);
  x[0][1] = 7;
  x[1][0] += 2;
  x[1][1] *= tensor({2.f});
  x[{Ellipsis, 0}] -= 1;
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 7, 4, 8}));
  x[tensor({1, 0})][0] = 5;  // index tensors read a copy, an assignment changes x all the same
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 7, 5, 5}));
  const Tensor as_const = x;
  as_const[1][0] = 3;
  EXPECT_EQ(x[1][0].item<float>(), 3);
}

TEST(PartsOfParts, HaveGradients) {
  Tensor x = made(), v = tensor({10.f});
  GradManager gm;
  gm.attach({x, v});
  const Tensor attached = x;
  auto recording = gm.record();
  x = x * 2;
  x[1][0] = v;
  x[0][1] += 1;
  EXPECT_EQ(x.to_vector<float>(), (Floats{2, 5, 10, 8}));
  gm.backward(sum(x * x));
  EXPECT_EQ(attached.grad().to_vector<float>(), (Floats{8, 20, 0, 32}));
  EXPECT_EQ(v.grad().to_vector<float>(), (Floats{20}));
}

TEST(CompoundAssignment, UnderARecordingMakesANewValue) {
  Tensor w = tensor({1.f, 2.f}), total = zeros({2});
  const Tensor zero = total;
  GradManager gm;
  gm.attach(w);
  {
    auto recording = gm.record();
    total += w * 3;
    total *= w;
    total -= 1;
    EXPECT_ERROR(StateError, w += 1, "[add_]", "attached", "no_record");
    EXPECT_ERROR(ShapeError, total += outer(w, w), "[add_]", "f32[2]");
    gm.backward(sum(total));
  }
  EXPECT_EQ(zero.to_vector<float>(), (Floats{0, 0})) << "other handles keep the old value";
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{6, 12}));
  w += 1;
  EXPECT_EQ(w.to_vector<float>(), (Floats{2, 3}));
}

struct Square : autograd::Function {
  std::vector<Tensor> forward(const std::vector<Tensor>& xs) override {
    save(xs[0]);
    return {xs[0] * xs[0]};
  }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override { return {dys[0] * saved(0) * 2}; }
};
struct Halves : autograd::Function {
  std::vector<Tensor> forward(const std::vector<Tensor>& xs) override { return split(xs[0] * 1.0, 1); }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override { return {cat(dys)}; }
};

TEST(Apply, TakesTheFunctionsType) {
  Tensor x = tensor({3.f, 4.f});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = autograd::apply<Square>(x);
  const std::vector<Tensor> all = autograd::apply<Square>({x});
  EXPECT_EQ(all.size(), 1u);
  EXPECT_ERROR(ValueError, autograd::apply<Halves>(x), "[apply]", "2 outputs");
  gm.backward(sum(y));
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{6, 8}));
  EXPECT_EQ(y.detach().to_vector<float>(), (Floats{9, 16}));
}

}  // namespace
}  // namespace gradus
