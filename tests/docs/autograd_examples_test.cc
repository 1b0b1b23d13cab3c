// The examples of docs/guide/autograd.md: that they compile and do what the page says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

TEST(AutogradPage, AttachRecordBackward) {
  Tensor w = tensor({1.f, 2.f});
  GradManager gm;
  gm.attach(w);
  {
    auto recording = gm.record();
    Tensor loss = sum(square(w));
    gm.backward(loss);
  }
  Tensor g = w.grad();  // [2, 4]
  EXPECT_THAT(values(g), ElementsAre(2, 4));
}

TEST(AutogradPage, SeveralManagers) {
  Tensor a = scalar(2), b = scalar(5);
  GradManager gm_a, gm_b;
  gm_a.attach(a);
  gm_b.attach(b);
  auto recording_a = gm_a.record();
  auto recording_b = gm_b.record();
  Tensor y = a * b;
  gm_a.backward(y);  // sets a.grad() alone
  gm_b.backward(y);  // sets b.grad() alone
  EXPECT_EQ(a.grad().item<float>(), 5);
  EXPECT_EQ(b.grad().item<float>(), 2);
}

TEST(AutogradPage, Narrowing) {
  Tensor a = scalar(2), b = scalar(5);
  GradManager gm;
  gm.attach({a, b});
  {
    auto recording = gm.record({.only = a});
    gm.backward(a * b);  // b is a constant here
  }
  EXPECT_EQ(a.grad().item<float>(), 5);
  EXPECT_FALSE(b.grad().defined());
}

TEST(AutogradPage, PausedRecordings) {
  Tensor w = scalar(3);
  GradManager gm;
  gm.attach(w);
  std::deque<std::pair<Recording, Tensor>> in_flight;
  for (double x : {1.0, 2.0}) {
    Recording recording = gm.record();
    Tensor loss = square(w) * x;
    in_flight.emplace_back(std::move(recording).pause(), loss);
  }
  for (auto& [recording, loss] : in_flight) recording.backward(loss);  // adds up in w.grad()
  EXPECT_EQ(w.grad().item<float>(), 18);
}

TEST(AutogradPage, TwoParts) {
  const Tensor x = ones({2, 3}), w = ones({3, 2});
  GradManager half;
  half.attach({x, w});
  auto recording = half.record();
  Tensor y = tanh(matmul(x, w));
  recording.backward_inputs(x, sum(y));  // x.grad() is there
  recording.backward_weights();          // w.grad() too
  EXPECT_TRUE(x.grad().defined());
  EXPECT_TRUE(w.grad().defined());
}

TEST(AutogradPage, Callbacks) {
  Tensor w = scalar(1);
  GradManager gm;
  gm.attach(w, [](const Tensor& /*w*/, const Tensor& grad) { return grad * 0.5; });
  {
    auto recording = gm.record();
    gm.backward(w * 8);
  }
  EXPECT_EQ(w.grad().item<float>(), 4);
}

TEST(AutogradPage, GradOfGrad) {
  auto cube = [](const Tensor& x) { return x * x * x; };
  auto derivative = [&](const Tensor& x) { return autograd::grad(cube, x); };
  Tensor second = autograd::grad(derivative, scalar(2));  // 6x = 12
  EXPECT_EQ(second.item<float>(), 12);
}

TEST(AutogradPage, GradientPenalty) {
  nn::Linear disc({.in = 3, .out = 1});
  Tensor x = tensor<float>({1, 2, 3}, {1, 3});
  GradManager gm;
  gm.attach(disc.parameters());
  {
    auto recording = gm.record();
    Tensor gx = autograd::grad([&](const Tensor& v) { return sum(disc(v)); }, x);
    gm.backward(mean(square(norm(gx, {1}) - 1)));  // reaches disc's weights through gx
  }
  EXPECT_TRUE(disc.weight.grad().defined());
  EXPECT_FALSE(disc.bias.grad().defined());
}

TEST(AutogradPage, R1) {
  nn::Linear disc({.in = 4, .out = 1});
  GradManager gm;
  gm.attach(disc.parameters());
  const Tensor real = randn({3, 4}), fake = randn({3, 4});
  const double gamma = 10;
  auto recording = gm.record();
  Tensor gradient = autograd::grad([&](const Tensor& x) { return sum(disc(x)); }, real);
  Tensor r1 = 0.5 * gamma * mean(sum(square(gradient), {1}));
  gm.backward(mean(softplus(disc(fake))) + mean(softplus(-disc(real))) + r1);
  // The gradient of a linear function is its weight.
  EXPECT_NEAR(r1.item<double>(), 5 * sum(square(disc.weight)).item<double>(), 1e-5);
  EXPECT_TRUE(disc.weight.grad().defined());
}

TEST(AutogradPage, JacobiansAndHessians) {
  Tensor x = tensor({1.f, 2.f}), v = tensor({1.f, 0.f});
  auto f = [](const Tensor& y) { return y * y * y; };
  Tensor j = autograd::jacobian(f, x);    // [2,2]: 3x^2 on the diagonal
  auto [y, jv] = autograd::jvp(f, x, v);  // f(x) and j v
  auto [z, vj] = autograd::vjp(f, x, v);  // f(x) and v^T j
  auto energy = [&](const Tensor& y) { return sum(f(y)); };
  Tensor h = autograd::hessian(energy, x);     // [2,2]: 6x on the diagonal
  auto [e, hv] = autograd::hvp(energy, x, v);  // energy(x) and h v
  EXPECT_THAT(values(j), ElementsAre(3, 0, 0, 12));
  EXPECT_THAT(values(h), ElementsAre(6, 0, 0, 12));
  EXPECT_THAT(values(y), ElementsAre(1, 8));
  EXPECT_THAT(values(z), ElementsAre(1, 8));
  EXPECT_THAT(values(e), ElementsAre(9));
  for (const Tensor& product : {jv, vj}) EXPECT_THAT(values(product), ElementsAre(3, 0));
  EXPECT_THAT(values(hv), ElementsAre(6, 0));
}

TEST(AutogradPage, Checkpoint) {
  nn::Linear block({.in = 2, .out = 2});
  Tensor x = tensor<float>({1, 2}, {1, 2});
  GradManager gm;
  gm.attach(block.parameters());
  {
    auto recording = gm.record();
    Tensor h = autograd::checkpoint([&](const Tensor& y) { return relu(block(y)); }, x);
    gm.backward(sum(h));
  }
  EXPECT_TRUE(block.weight.grad().defined());
}

// x^3, with its derivative.
struct Cube : autograd::Function {
  std::vector<Tensor> forward(const std::vector<Tensor>& xs) override {
    save(xs[0]);
    return {xs[0] * xs[0] * xs[0]};
  }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override { return {dys[0] * 3 * square(saved(0))}; }
};

// The mean loss with recordings is that without.
TEST(AutogradPage, CapturedSteps) {
  const auto train = [](int warm_up) {
    manual_seed(1);
    const data::GeneratedDigits digits({.size = 64});
    nn::Sequential net({nn::layer<nn::Flatten>(), nn::layer<nn::Linear>({.in = 784, .out = 10})});
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    GradManager gm;
    gm.attach(net.parameters());
    data::DataLoader loader(digits, {.batch_size = 8});
    Tensor total = zeros({});
    CapturedStep step(
        [&](const CapturedStep::Tensors& in) -> CapturedStep::Tensors {
          auto recording = gm.record();
          Tensor loss = nn::cross_entropy(net(in[0]), in[1]);
          gm.backward(loss);
          opt.step().clear_grad();
          return {loss};
        },
        {.warm_up = warm_up});
    for (const data::Batch& b : loader) total += step({b.input, b.target})[0];
    EXPECT_EQ(step.num_recordings(), warm_up == 3 ? 1u : 0u);
    return total.item<double>();
  };
  EXPECT_EQ(train(3), train(1000));
}

TEST(AutogradPage, Function) {
  Tensor x = scalar(2);
  GradManager gm;
  gm.attach(x);
  {
    auto recording = gm.record();
    Tensor y = autograd::apply<Cube>(x);
    gm.backward(y);
  }
  EXPECT_EQ(x.grad().item<float>(), 12);
}

TEST(AutogradPage, GradCheck) {
  Tensor a = tensor({0.5, -1.0}), b = tensor({2.0, 3.0});
  auto f = [](const std::vector<Tensor>& x) { return x[0] * exp(x[1]); };
  auto first = autograd::gradcheck(f, {a, b});       // f64 inputs
  auto second = autograd::gradgradcheck(f, {a, b});  // the gradient's gradient
  EXPECT_TRUE(first) << first.message;
  EXPECT_TRUE(second) << second.message;
}

TEST(AutogradPage, Threads) {
  Tensor w = scalar(3), y;
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  std::thread worker([&, context = Context::current().snapshot()]() mutable {
    ContextScope scope(context);
    y = w * 2;  // recorded
  });
  worker.join();
  gm.backward(y);
  EXPECT_EQ(w.grad().item<float>(), 2);
}

template <class F> std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(AutogradPage, ErrorsNameTheMistake) {
  Tensor w = tensor({1.f, 2.f});
  GradManager gm;
  gm.attach(w);
  EXPECT_THAT(error_of([&] { gm.backward(sum(w)); }),
              HasSubstr("[backward] no computation history: call record() before the forward"));
  EXPECT_THAT(error_of([&] {
                auto recording = gm.record();
                const Tensor loss = sum(w);
                gm.backward(loss);
                gm.backward(loss);
              }),
              HasSubstr("[backward] no computation history: this recording was already used by backward"));
  EXPECT_THAT(error_of([&] {
                auto recording = gm.record();
                gm.backward(w * 2);
              }),
              HasSubstr("[backward] the loss must have one element (or pass its dy), got f32[2] cpu"));
  EXPECT_THAT(error_of([&] {
                auto recording = gm.record();
                gm.backward(sum(detach(w)));
              }),
              HasSubstr("[backward] the loss depends on no attached tensor: f32[] cpu, 1 tensors attached"));
  EXPECT_THAT(
      error_of([&] {
        auto recording = gm.record();
        add_(w, 1);
      }),
      HasSubstr("[add_] would overwrite an attached tensor (a parameter) under a recording: x f32[2] cpu"));
  EXPECT_THAT(
      error_of([&] {
        auto recording = gm.record();
        Tensor x = tensor({1.f, 1.f}), loss = sum(w * x);
        add_(x, 1);
        gm.backward(loss);
      }),
      HasSubstr("while running backward of mul: [mul] input 1 saved for backward was modified in place"));
}

}  // namespace
}  // namespace gradus
