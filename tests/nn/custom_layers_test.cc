// Users' layer classes under `using namespace gradus`: names that must not be ambiguous, nested layers, the
// warning for a layer constructed without its parent (whose parameters are not registered), printed options.
#include <gtest/gtest.h>

#include <functional>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tests/ops/values.h"

using namespace gradus;      // NOLINT
using namespace gradus::nn;  // NOLINT

struct Generator : Layer {  // a name that gradus must not have
  Linear fc{this, "fc", {.in = 2, .out = 3}};
  Tensor forward(const Tensor& x) override { return to(fc(to(x, DType::kF32)), x.device()); }
};

struct Block : Layer {
  using Layer::Layer;
  Linear fc{this, "fc", {.in = 4, .out = 4}};
  Tensor forward(const Tensor& x) override { return relu(fc(x)); }
};

struct WithParents : Layer {
  Block b1{this, "b1"}, b2{this, "b2"};
  Linear out{this, "out", {.in = 4, .out = 1}};
  Tensor forward(const Tensor& x) override { return out(b2(b1(x))); }
};

struct WithoutParents : Layer {
  Block b1, b2;
  Linear out{this, "out", {.in = 4, .out = 1}};
  Tensor forward(const Tensor& x) override { return out(b2(b1(x))); }
};

struct Mlp : Sequential {
  Mlp() : Sequential({layer<Linear>({.in = 2, .out = 8}), layer<ReLU>()}) {}
};

namespace {

TEST(UsersClasses, NamesOfTheirOwnAreNotAmbiguous) {
  Generator g;
  EXPECT_EQ(g(ones({1, 2})).shape(), (Shape{1, 3}));
  const Conv2dOptions conv{.in = 1, .out = 2, .kernel = 3};
  const BatchNormOptions norm{.features = 2};
  const EmbeddingOptions embedding{.num_embeddings = 3, .embedding_dim = 2};
  EXPECT_EQ(conv.out + norm.features + embedding.embedding_dim, 6);
  Mlp mlp;
  EXPECT_EQ(mlp(ones({1, 2})).shape(), (Shape{1, 8}));
}

// What f writes to stderr.
template <class F> std::string said(F f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

void train_once(Layer& net) {
  GradManager gm;
  gm.attach(net.parameters());
  auto recording = gm.record();
  gm.backward(sum(net(ones({2, 4}))));
}

TEST(ALayerWithoutAParent, IsNamedOnceWhenItsParametersAreNotFollowed) {
  WithoutParents net;
  const std::string text = said([&] { train_once(net), train_once(net); });
  EXPECT_NE(text.find("warning: Block is called in the forward of WithoutParents"), std::string::npos)
      << text;
  EXPECT_NE(text.find("2 parameters are neither trained nor saved"), std::string::npos) << text;
  EXPECT_NE(text.find("using Layer::Layer;"), std::string::npos) << text;
  EXPECT_EQ(text.find("warning:"), text.rfind("warning:")) << text;
}

TEST(ALayerWithoutAParent, IsFineWhenItIsMeantToBe) {
  WithParents complete;
  WithoutParents apart;
  EXPECT_EQ(said([&] { train_once(complete); }), "");
  EXPECT_EQ(said([&] { apart(ones({2, 4})); }), "") << "nothing is recorded";
  EXPECT_EQ(said([&] {
              GradManager gm;
              gm.attach(apart.parameters()).attach(apart.b1.parameters()).attach(apart.b2.parameters());
              auto recording = gm.record();
              apart(ones({2, 4}));
            }),
            "")
      << "somebody follows its parameters";
  EXPECT_EQ(said([&] {
              GradManager gm;
              const Tensor x = ones({2, 4});
              gm.attach(x);
              auto recording = gm.record();
              apart(x);
            }),
            "")
      << "nobody follows the other's";
}

TEST(ALayerWithoutAParent, IsInExplainAndSummary) {
  WithoutParents net;
  GradManager gm;
  gm.attach(net.parameters());
  auto recording = gm.record();
  const Tensor loss = sum(net(ones({2, 4})));
  EXPECT_NE(autograd::explain(loss).find("Block is called in the forward of WithoutParents"),
            std::string::npos);
  recording.release();
  EXPECT_ERROR(Error, summary(net, {2, 4}), "Block is called in the forward of WithoutParents", "no parent");
  Context meta = Context::current().snapshot();
  meta.device = "meta";
  const ContextScope scope(meta);
  WithoutParents without_data;
  EXPECT_NE(to_string(summary(without_data, {2, 4})).find("has no parent: its 2 parameters"),
            std::string::npos);
}

TEST(Optimizers, TakeGroupsAndOptionsByTheirUsualNames) {
  const Tensor a = ones({2}), b = ones({2}), c = ones({2});
  const optim::SGD::Options options{.lr = 0.1, .momentum = 0.9};
  optim::SGD sgd({a}, options);
  optim::Optimizer& any = sgd;
  any.add_param_group({b}, {{"lr", 0.5}, {"weight_decay", 0.25}});
  any.add_param_group({c});
  EXPECT_EQ(sgd.lr(1), 0.5);
  EXPECT_EQ(sgd.options(1).weight_decay, 0.25);
  EXPECT_EQ(sgd.options(2).momentum, 0.9);
  EXPECT_ERROR(ValueError, any.add_param_group({ones({1})}, {{"decay", 1}}), "[SGD]", "'decay'",
               "weight_decay");
  EXPECT_ERROR(ValueError, any.add_param_group({ones({1})}, {{"lr", -1}}), "lr");
  EXPECT_EQ(sgd.num_groups(), 3u);
  const std::vector<double> rates{0.1, 0.2, 0.3};
  optim::PerGroup per_group(rates);
  EXPECT_EQ(per_group[2], 0.3);
}

}  // namespace

struct ScaleOptions {
  bool inverse = false;
  Required<double, "by"> by;
  std::vector<std::string> names = {"a"};
  std::function<void()> done = {};
};
struct Scale : nn::LayerWith<ScaleOptions> {
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override {
    return options().inverse ? x / *options().by : x * *options().by;
  }
};
struct NamedScale : Scale {
  using Scale::Scale;
  std::string extra_repr() const override { return "named, " + Scale::extra_repr(); }
};
struct ShiftOptions : ScaleOptions {
  double shift = 0;
};
struct Shift : nn::LayerWith<ShiftOptions> {
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override { return x + options().shift; }
};

TEST(Printing, ShowsTheOptionsOfUsersLayers) {
  EXPECT_EQ(Scale({.by = 2}).extra_repr(), "inverse=false, by=2");
  EXPECT_EQ(NamedScale({.by = 2, .names = {"b", "c"}}).extra_repr(),
            "named, inverse=false, by=2, names=[b,c]");
  EXPECT_EQ(Shift({{.by = 2}, 3}).extra_repr(), "") << "options with a base";
}
