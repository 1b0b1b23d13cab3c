// The module tree: names, state, conversion, substitution, hooks, printing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Block : nn::Layer {
  using nn::Layer::Layer;
  nn::Linear fc{this, "fc", {.in = 2, .out = 3}};
  nn::BatchNorm1d bn{this, "bn", {.features = 3}};
  Tensor forward(const Tensor& x) override { return bn(fc(x)); }
};

struct Net : nn::Layer {
  nn::Parameter scale{this, "scale", nn::init::ones_(empty({3}))};
  nn::Buffer offset{this, "offset", nn::init::zeros_(empty({3}))};
  nn::Buffer scratch{this, "scratch", nn::init::zeros_(empty({3})), {.persistent = false}};
  Block block{this, "block"};
  nn::Linear head{this, "head", {.in = 3, .out = 2, .bias = false}};
  Tensor forward(const Tensor& x) override { return head(block(x) * scale + offset); }
};

template <class Named> std::vector<std::string> names(const Named& named) {
  std::vector<std::string> all;
  for (const auto& [name, value] : named) all.push_back(name);
  return all;
}
std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

TEST(Module, NamesComeInRegistrationOrderOwnBeforeChildren) {
  Net net;
  EXPECT_THAT(names(net.named_parameters()), ElementsAre("scale", "block.fc.weight", "block.fc.bias",
                                                         "block.bn.weight", "block.bn.bias", "head.weight"));
  EXPECT_THAT(names(net.named_buffers()),
              ElementsAre("offset", "scratch", "block.bn.running_mean", "block.bn.running_var",
                          "block.bn.num_batches_tracked"));
  EXPECT_THAT(names(net.state_dict()),
              ElementsAre("scale", "offset", "block.fc.weight", "block.fc.bias", "block.bn.weight",
                          "block.bn.bias", "block.bn.running_mean", "block.bn.running_var",
                          "block.bn.num_batches_tracked", "head.weight"));
  EXPECT_THAT(names(net.named_modules()), ElementsAre("", "block", "block.fc", "block.bn", "head"));
  EXPECT_EQ(net.num_parameters(), 3 + 6 + 3 + 3 + 3 + 6);
  EXPECT_EQ(net.block.fc.path(), "block.fc");
  EXPECT_EQ(&net.find("block.bn"), &net.block.bn);
  EXPECT_ERROR(Error, net.find("block.nope"), "block.fc");
}

TEST(Module, StateDictSharesTheTensors) {
  Net net;
  raw::fill_(net.state_dict()[0].second, 7);
  EXPECT_THAT(values(net.scale), ElementsAre(7, 7, 7));
  EXPECT_TRUE(net.parameters()[0].is_same(net.scale));
}

TEST(Module, ASharedParameterIsListedOnceButSavedUnderBothNames) {
  struct Tied : nn::Module {
    nn::Parameter a{this, "a", empty({2})};
    nn::Parameter b{this, "b", a};
  } tied;
  EXPECT_EQ(tied.parameters().size(), 1u);
  EXPECT_THAT(names(tied.state_dict()), ElementsAre("a", "b"));
  EXPECT_EQ(tied.num_parameters(), 2);
}

TEST(Module, NamesMustBeUniqueAndWithoutDots) {
  Net net;
  EXPECT_ERROR(Error, nn::Linear(&net, "head", {.in = 1, .out = 1}), "'head' is taken in Net");
  EXPECT_ERROR(Error, nn::Linear(&net, "scale", {.in = 1, .out = 1}), "'scale' is taken");
  EXPECT_ERROR(Error, nn::ReLU(&net, "a.b"), "'a.b'");
  EXPECT_ERROR(Error, nn::ReLU(&net, ""), "empty");
  EXPECT_EQ(net.children().size(), 2u);  // those that failed are gone
}

TEST(Module, AChildThatIsDestroyedLeavesTheTree) {
  Net net;
  {
    nn::Linear extra(&net, "extra", {.in = 1, .out = 1});
    EXPECT_EQ(net.children().size(), 3u);
  }
  EXPECT_EQ(net.children().size(), 2u);
}

TEST(LoadStateDict, CopiesContentsAndKeepsIdentity) {
  Net a, b;
  const Tensor weight = b.head.weight;
  nn::copy_state_(a, b);
  EXPECT_TRUE(b.head.weight.is_same(weight));
  EXPECT_EQ(values(weight), values(a.head.weight));
  EXPECT_FALSE(a.head.weight.storage() == b.head.weight.storage());
}

TEST(LoadStateDict, ConvertsToTheModulesDtype) {
  nn::Linear from({.in = 2, .out = 1}), to({.in = 2, .out = 1});
  from.to(DType::kF64);
  nn::copy_state_(from, to);
  EXPECT_EQ(to.weight.dtype(), DType::kF32);
  EXPECT_EQ(values(to.weight), values(from.weight));
}

TEST(LoadStateDict, ListsEverythingWrongAtOnceAndChangesNothing) {
  Net net;
  const std::vector<float> before = values(net.head.weight);
  nn::StateDict state = Net().state_dict();
  std::erase_if(state, [](const auto& s) { return s.first == "scale" || s.first == "block.bn.running_var"; });
  state.emplace_back("head.bias", empty({2}));
  state.emplace_back("extra", empty({2}));
  for (auto& [name, t] : state) {
    if (name == "block.fc.weight") t = empty({3, 5});
    if (name == "block.bn.num_batches_tracked") t = empty({});
  }
  const std::string text = error_of([&] { net.load_state_dict(state); });
  EXPECT_THAT(text, HasSubstr("missing (2): scale block.bn.running_var"));
  EXPECT_THAT(text, HasSubstr("unexpected (2): head.bias extra"));
  EXPECT_THAT(text, HasSubstr("block.fc.weight: expected f32[3,2] cpu, got f32[3,5] cpu"));
  EXPECT_THAT(text, HasSubstr("block.bn.num_batches_tracked: expected i64[] cpu, got f32[] cpu"));
  EXPECT_EQ(values(net.head.weight), before);
}

TEST(LoadStateDict, WithoutStrictReportsNamesButStillRefusesShapes) {
  Net net;
  const nn::LoadReport report =
      net.load_state_dict({{"scale", tensor({1.f, 2.f, 3.f})}, {"other", empty({1})}}, {.strict = false});
  EXPECT_THAT(values(net.scale), ElementsAre(1, 2, 3));
  EXPECT_EQ(report.missing.size(), 9u);
  EXPECT_THAT(report.unexpected, ElementsAre("other"));
  EXPECT_THROW(net.load_state_dict({{"scale", empty({4})}}, {.strict = false}), ValueError);
  EXPECT_THROW(net.load_state_dict({{"scale", Tensor()}}, {.strict = false}), ValueError);
  EXPECT_THROW(net.load_state_dict({{"scale", empty({3})}, {"scale", empty({3})}}, {.strict = false}),
               ValueError);
}

TEST(LoadStateDict, IsRefusedWhileARecordingFollowsTheParameters) {
  nn::Linear net({.in = 2, .out = 1});
  GradManager gm;
  gm.attach(net.parameters());
  const auto recording = gm.record();
  EXPECT_THROW(net.load_state_dict(nn::Linear({.in = 2, .out = 1}).state_dict()), StateError);
  EXPECT_THROW(net.to(DType::kF64), StateError);
}

TEST(Module, TrainAndEvalReachAllChildren) {
  Net net;
  EXPECT_TRUE(net.block.bn.is_training());
  net.eval();
  EXPECT_FALSE(net.block.bn.is_training());
  EXPECT_FALSE(net.is_training());
  net.block.train();
  EXPECT_TRUE(net.block.bn.is_training());
  EXPECT_FALSE(net.is_training());
}

TEST(Module, ToConvertsFloatsInPlaceWithTheirGradients) {
  Net net;
  const Tensor weight = net.head.weight;
  const std::vector<float> before = values(weight);
  net.head.weight.set_grad(clone(net.head.weight));
  net.to(DType::kF64);
  EXPECT_TRUE(net.head.weight.is_same(weight));
  EXPECT_EQ(weight.dtype(), DType::kF64);
  EXPECT_EQ(weight.grad().dtype(), DType::kF64);
  EXPECT_EQ(values(weight), before);
  EXPECT_EQ(net.block.bn.running_var.dtype(), DType::kF64);
  EXPECT_EQ(net.block.bn.num_batches_tracked.dtype(), DType::kI64);
  EXPECT_THROW(net.to(DType::kI32), DTypeError);
}

TEST(Module, ToMovesBetweenDevices) {
  Net net;
  const std::vector<float> before = values(net.head.weight);
  const Device second{DeviceType::kCPU, 1};  // a logical CPU device with a worker thread
  net.to(second);
  EXPECT_EQ(net.head.weight.device(), second);
  EXPECT_EQ(net.block.bn.num_batches_tracked.device(), second);
  EXPECT_EQ(values(net.head.weight), before);
  net.to(kCPU);
  EXPECT_EQ(values(net.head.weight), before);
}

// The conversion is queued behind the sleep and reads the tensors: to() may replace their contents only then.
TEST(Module, ToWaitsForWhatIsQueuedOnTheDevice) {
  Net net;
  const std::vector<float> before = values(net.head.weight);
  const Device second{DeviceType::kCPU, 1};
  net.to(second);
  Stream::of(second).enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  net.to(DType::kF64);
  net.to(DType::kF32);
  EXPECT_EQ(values(net.head.weight), before);
}

TEST(Module, ApplyVisitsChildrenFirst) {
  Net net;
  std::vector<std::string> order;
  net.apply([&](nn::Module& m) { order.push_back(m.path()); });
  EXPECT_THAT(order, ElementsAre("block.fc", "block.bn", "block", "head", ""));
}

TEST(ParameterScope, SubstitutesUntilItsEnd) {
  nn::Linear net({.in = 2, .out = 1, .bias = false});
  const Tensor own = net.weight, x = tensor(std::vector<float>{1, 2}, {1, 2});
  const std::vector<float> before = values(net(x));
  {
    nn::ParameterScope scope(net, std::vector<Tensor>{tensor(std::vector<float>{10, 100}, {1, 2})});
    EXPECT_THAT(values(net(x)), ElementsAre(210));
    {
      nn::ParameterScope inner(net, nn::StateDict{{"weight", tensor(std::vector<float>{1, 1}, {1, 2})}});
      EXPECT_THAT(values(net(x)), ElementsAre(3));
    }
    EXPECT_THAT(values(net(x)), ElementsAre(210));
  }
  EXPECT_TRUE(net.weight.is_same(own));
  EXPECT_EQ(values(net(x)), before);
}

TEST(ParameterScope, GradientsReachTheSubstitutes) {
  nn::Linear net({.in = 2, .out = 1, .bias = false});
  const Tensor other = tensor(std::vector<float>{10, 100}, {1, 2});
  GradManager gm;
  gm.attach(other);
  gm.attach(net.parameters());
  const auto recording = gm.record();
  const nn::ParameterScope scope(net, std::vector<Tensor>{other});
  gm.backward(sum(net(tensor(std::vector<float>{1, 2}, {1, 2}))));
  EXPECT_THAT(values(other.grad()), ElementsAre(1, 2));
}

TEST(ParameterScope, RefusesWhatDoesNotFitAndChangesNothing) {
  nn::Linear net({.in = 2, .out = 1});
  const Tensor own = net.weight;
  EXPECT_THROW(nn::ParameterScope(net, std::vector<Tensor>{empty({1, 2})}), ValueError);
  EXPECT_THROW(nn::ParameterScope(net, std::vector<Tensor>{empty({1, 2}), empty({2})}), ShapeError);
  EXPECT_THROW(nn::ParameterScope(net, nn::StateDict{{"nope", empty({1, 2})}}), ValueError);
  EXPECT_TRUE(net.weight.is_same(own));
}

TEST(ParameterScope, ListsWhatIsNotNamedUnlessItIsToStay) {
  nn::BatchNorm1d bn({.features = 2});
  const Tensor own = bn.weight, other = zeros({2});
  const auto error = [&](const nn::StateDict& tensors) -> std::string {
    try {
      nn::ParameterScope scope(bn, tensors);
    } catch (const ValueError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_THAT(error({{"weight", other}}), HasSubstr("has more than is given: 'bias';"));
  EXPECT_EQ(error({{"weight", other}, {"bias", other}}), "none");
  // If one buffer is named, all must be.
  EXPECT_THAT(error({{"weight", other}, {"bias", other}, {"running_mean", other}}),
              HasSubstr("'running_var', 'num_batches_tracked'"));
  EXPECT_TRUE(bn.weight.is_same(own));
  EXPECT_FALSE(bn.is_substituted());
  {
    nn::ParameterScope scope(bn, {{"weight", other}}, {.partial = true});
    EXPECT_TRUE(bn.weight.is_same(other));
    EXPECT_TRUE(bn.is_substituted());
  }
  EXPECT_TRUE(bn.weight.is_same(own));
}

TEST(Hooks, SeeInputAndOutputAndReplaceInput) {
  nn::ReLU relu;
  const Tensor x = tensor({-1.f, 2.f});
  int calls = 0;
  auto before = relu.register_forward_pre_hook([&](nn::Layer&, const Tensor& x) { return x + 1.0; });
  auto after = relu.register_forward_hook([&](nn::Layer&, const Tensor& x, const Tensor& y) {
    ++calls;
    EXPECT_THAT(values(x), ElementsAre(0, 3));
    EXPECT_THAT(values(y), ElementsAre(0, 3));
  });
  EXPECT_THAT(values(relu(x)), ElementsAre(0, 3));
  before.remove();
  after.remove();
  after.remove();
  EXPECT_THAT(values(relu(x)), ElementsAre(0, 2));
  EXPECT_EQ(calls, 1);
}

TEST(Hooks, AHandleMayOutliveItsLayer) {
  nn::HookHandle handle;
  {
    nn::ReLU relu;
    handle = relu.register_forward_pre_hook([](nn::Layer&, const Tensor&) {});
  }
  handle.remove();
}

TEST(Layer, CallsPutTheirNameOnTheModulePath) {
  Net net;
  std::string path;
  net.block.fc.register_forward_pre_hook(
      [&](nn::Layer&, const Tensor&) { path = Context::current().module_path_text(); });
  net(empty({4, 2}));
  EXPECT_EQ(path, "block.fc");
  EXPECT_EQ(Context::current().module_path_text(), "");
  EXPECT_THROW(net(empty({4, 5})), ShapeError);
  EXPECT_EQ(Context::current().module_path_text(), "");
}

TEST(Print, ShowsTheTreeWithCountsAndTheirTotal) {
  Net net;
  EXPECT_EQ(to_string(net),
            "Net(\n"
            "  (block): Block(                          15\n"
            "    (fc): Linear(in=2, out=3)               9\n"
            "    (bn): BatchNorm1d(features=3)           6\n"
            "  )\n"
            "  (head): Linear(in=3, out=2, bias=false)   6\n"
            ")\n"
            "24 parameters in 6 tensors (96 B)");
}

TEST(Sequential, NamesItsLayersByNumberAndRunsThemInOrder) {
  nn::Sequential net({nn::layer<nn::Linear>({.in = 2, .out = 3}), nn::layer<nn::ReLU>(),
                      nn::layer<nn::Dropout>({.p = 0.5})});
  net.add<nn::Linear>({.in = 3, .out = 1});
  EXPECT_EQ(net.size(), 4u);
  EXPECT_THAT(names(net.state_dict()), ElementsAre("0.weight", "0.bias", "3.weight", "3.bias"));
  net.eval();
  const Tensor x = tensor(std::vector<float>{1, -2}, {1, 2});
  EXPECT_EQ(values(net(x)), values(net[3](relu(net[0](x)))));
  EXPECT_THAT(values(x), ElementsAre(1, -2));
  EXPECT_THROW(net[4], IndexError);
}

TEST(Sequential, TakesLayersOfOnesOwn) {
  nn::Sequential net;
  net.add<Block>();
  net.add(nn::layer<Block>());
  EXPECT_EQ(net[1].path(), "1");
  EXPECT_EQ(net.find("1.fc").num_parameters(), 9);
  const Tensor x = tensor({1.f});
  EXPECT_TRUE(nn::Sequential()(x).is_same(x));
}

TEST(Sequential, AsAMemberNestsNames) {
  struct Owner : nn::Layer {
    nn::Sequential body{this, "body", {nn::layer<nn::Linear>({.in = 1, .out = 1})}};
    Tensor forward(const Tensor& x) override { return body(x); }
  } net;
  EXPECT_THAT(names(net.named_parameters()), ElementsAre("body.0.weight", "body.0.bias"));
}

}  // namespace
}  // namespace gradus
