// AveragedModel (averages of weights) against PyTorch's values in tests/golden; in 16-bit types, in networks
// that change, resumed. update_bn, which recomputes the statistics of batch norms.
#include "gradus/optim/averaged_model.h"

#include <gtest/gtest.h>

#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/golden/golden.h"
#include "gradus/tests/support/error.h"

namespace gradus::optim {
namespace {

struct Net : nn::Layer {
  explicit Net(DType dtype = DType::kF64) { to(dtype); }
  nn::Parameter weight{this, "weight", empty({3, 4}, {.dtype = DType::kF64})};
  nn::Buffer mean{this, "mean", empty({5}, {.dtype = DType::kF64})};
  Tensor forward(const Tensor& x) override { return x; }

  // Fills with pseudorandom values of these two keys, as the Python script of the golden values does.
  void fill(int64_t weights, int64_t means) {
    raw::copy_(weight, tensor(golden::formula(12, uint64_t(weights), 1), {3, 4}));
    raw::copy_(mean, tensor(golden::formula(5, uint64_t(means), 1), {5}));
  }
};

struct Case {
  const char* name;
  AveragedModelOptions options;
};
const Case kCases[] = {
    {"equal", {}},
    {"equal_buffers", {.use_buffers = true}},
    {"decay", {.decay = 0.9}},
    {"decay_buffers", {.decay = 0.9, .use_buffers = true}},
    {"warm_up", {.decay = 0.9, .warm_up = true}},
    {"corrected", {.decay = 0.9, .bias_correction = true}},
};

TEST(AveragedModel, AgreesWithPyTorchAlsoWhenResumed) {
  const io::SafetensorsFile file = golden::load("optimizers");
  for (const Case& c : kCases) {
    Net net;
    net.fill(1, 2);
    auto average = std::make_unique<AveragedModel>(net, c.options);
    for (int t = 0; t < 12; ++t) {
      if (t == 5) {
        auto resumed = std::make_unique<AveragedModel>(net, c.options);
        resumed->load_state_dict(average->state_dict());
        average = std::move(resumed);
      }
      net.fill(10 + t, 40 + t);
      average->update_parameters();
    }
    EXPECT_EQ(average->n_averaged(), 12);
    for (const auto& [name, value] : average->weights())
      golden::expect_near(value, file.at("average/" + std::string(c.name) + "/" + name), 1e-13,
                          c.name + (" " + name));
  }
}

TEST(AveragedModel, KeepsSmallChangesOfWeightsInSixteenBits) {
  Net net(DType::kBF16);
  raw::fill_(net.weight, 1);
  AveragedModel average(net, {.decay = 0.999});
  average.update_parameters();
  raw::fill_(net.weight, 2);
  for (int t = 0; t < 700; ++t) average.update_parameters();
  const Tensor mean = average.weights()[0].second;
  EXPECT_EQ(mean.dtype(), DType::kBF16);
  EXPECT_NEAR(mean.to_vector<double>()[0], 2 - std::pow(0.999, 700), 0.01);
}

TEST(AveragedModel, StandsInForTheWeightsWithinAScope) {
  Net net;
  net.fill(1, 2);
  AveragedModel average(net);
  average.update_parameters();
  const std::vector<double> first = net.weight.to_vector<double>();
  net.fill(3, 4);
  {
    nn::ParameterScope scope(net, average.weights());
    EXPECT_EQ(net.weight.to_vector<double>(), first);
  }
  EXPECT_NE(net.weight.to_vector<double>(), first);
  average.copy_to(net);
  EXPECT_EQ(net.weight.to_vector<double>(), first);
}

// A network that gets a second layer later and whose first layer can be replaced.
struct Growing : nn::Layer {
  Growing() { first.emplace(this, "first", nn::LinearOptions{.in = 1, .out = 1, .bias = false}); }
  Tensor forward(const Tensor& x) override { return second ? (*second)((*first)(x)) : (*first)(x); }
  void grow() { second.emplace(this, "second", nn::LinearOptions{.in = 1, .out = 1, .bias = false}); }
  void fill(float one, float two) {
    raw::fill_(first->weight, one);
    if (second) raw::fill_(second->weight, two);
  }
  std::optional<nn::Linear> first, second;
};

TEST(AveragedModel, FollowsANetworkThatGrowsAndOneWhoseLayersChange) {
  Growing net;
  AveragedModel average(net);  // the mean of all updates
  for (const float v : {1.f, 3.f}) {
    net.fill(v, 0);
    average.update_parameters();
  }
  net.grow();
  net.fill(5, 10);
  const auto refused = [&] { nn::ParameterScope scope(net, average.weights()); };
  EXPECT_ERROR(ValueError, refused(), "has more than is given: 'second.weight'");
  average.update_parameters();
  net.fill(7, 20);
  average.update_parameters();
  const auto averages = [&] {
    nn::ParameterScope scope(net, average.weights());
    return std::vector<float>{net.first->weight.item<float>(), net.second->weight.item<float>()};
  };
  EXPECT_EQ(averages(), (std::vector<float>{4, 15}));

  AveragedModel resumed(net);
  resumed.load_state_dict(average.state_dict());
  net.fill(9, 30);
  for (AveragedModel* a : {&average, &resumed}) a->update_parameters();
  EXPECT_EQ(averages(), (std::vector<float>{5, 20}));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(resumed.weights()[i].second.item<float>(), average.weights()[i].second.item<float>());

  net.first.reset();
  net.first.emplace(&net, "first", nn::LinearOptions{.in = 1, .out = 1, .bias = false});
  net.fill(100, 40);
  average.update_parameters();
  EXPECT_EQ(averages(), (std::vector<float>{100, 25}));  // the new layer's average begins anew
  net.second.reset();
  average.update_parameters();
  EXPECT_EQ(average.weights().size(), 1u);
}

TEST(AveragedModel, FollowsAModelToAnotherDevice) {
  nn::BatchNorm2d net({.features = 2});
  AveragedModel average(net);
  net.to(Device(DeviceType::kCPU, 1));
  average.update_parameters();
  for (const auto& [name, t] : average.weights()) EXPECT_EQ(t.device(), Device(DeviceType::kCPU, 1)) << name;
}

TEST(AveragedModel, TakesNoOtherTensorsForTheWeights) {
  Net net;
  net.fill(1, 2);
  AveragedModel average(net);
  average.update_parameters();
  const nn::StateDict weights = average.weights();
  const nn::ParameterScope scope(net, weights);
  EXPECT_THROW(average.update_parameters(), StateError);
}

TEST(AveragedModel, StandsInForASharedWeightUnderAllItsNames) {
  struct Shared : nn::Layer {
    nn::Parameter a{this, "a", empty({1})};
    Tensor b = a;
    Shared() { register_parameter("b", b); }
    Tensor forward(const Tensor& x) override { return x; }
  } net;
  AveragedModel average(net);
  raw::fill_(net.a, 3);
  average.update_parameters();
  raw::fill_(net.a, 5);
  const nn::ParameterScope scope(net, average.weights());
  EXPECT_EQ(net.a.item<float>(), 3);
  EXPECT_EQ(net.b.item<float>(), 3);
}

TEST(AveragedModel, RefusesWhatDoesNotFit) {
  Net net;
  EXPECT_THROW(AveragedModel(net, {.decay = 1.0}), ValueError);
  EXPECT_THROW(AveragedModel(net, {.decay = -0.1}), ValueError);
  EXPECT_THROW(AveragedModel(net, {.warm_up = true}), ValueError);
  EXPECT_THROW(AveragedModel(net, {.bias_correction = true}), ValueError);
  EXPECT_THROW(AveragedModel(net, {.decay = 0.9, .warm_up = true, .bias_correction = true}), ValueError);
  AveragedModel average(net);
  EXPECT_THROW(average.load_state_dict({}), ValueError);
  State state = average.state_dict();
  state.tensors[0].second = empty({1});
  EXPECT_THROW(average.load_state_dict(state), ValueError);
  state = average.state_dict();
  state.tensors.emplace_back("module.other", empty({1}));
  EXPECT_THROW(average.load_state_dict(state), ValueError);
  state = average.state_dict();
  state.numbers[0].second = -1;
  EXPECT_THROW(average.load_state_dict(state), ValueError);
  EXPECT_NO_THROW(average.load_state_dict(average.state_dict()));
}

TEST(UpdateBN, AveragesTheStatisticsOfAllBatchesAlike) {
  nn::BatchNorm1d bn({.features = 1});
  bn.eval();
  raw::fill_(bn.running_mean, 77);
  // Batches of mean 1 and 5, with variances 2 and 8.
  const std::vector<Tensor> batches = {tensor(std::vector<float>{0, 2}, {2, 1}),
                                       tensor(std::vector<float>{3, 7}, {2, 1})};
  update_bn(batches, bn);
  EXPECT_FLOAT_EQ(bn.running_mean.item<float>(), 3);
  EXPECT_FLOAT_EQ(bn.running_var.item<float>(), 5);
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 2);
  EXPECT_FALSE(bn.is_training());
  // update_bn has restored the layer's momentum.
  bn.train();
  bn(batches[0]);
  EXPECT_FLOAT_EQ(bn.running_mean.item<float>(), 2.8f);

  Net none;
  none.eval();
  update_bn(batches, none);
  EXPECT_FALSE(none.is_training());

  nn::BatchNorm1d frozen({.features = 1, .freeze = true});
  raw::fill_(frozen.running_mean, 77);
  update_bn(batches, frozen);
  EXPECT_EQ(frozen.running_mean.item<float>(), 77);
}

}  // namespace
}  // namespace gradus::optim
