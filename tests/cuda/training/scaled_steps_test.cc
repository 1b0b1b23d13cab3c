// Steps with a GradScaler on the emulated cuda:0, where the device decides whether to skip. Parameters,
// states, step counts and scale equal the CPU's; a skipped step changes nothing. Capturable steps, whose
// learning rate is on the device, have the bits of normal ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/optim/optimizers.h"

namespace gradus::optim {
namespace {

using testing::HasSubstr;

constexpr Device kCuda{DeviceType::kCUDA};
constexpr float kInf = std::numeric_limits<float>::infinity();

using Tensors = std::vector<Tensor>;
using Make = std::function<std::unique_ptr<Optimizer>(const Tensors&)>;
template <class O, class Options> Make of(Options options) {
  return [options](const Tensors& p) { return std::make_unique<O>(p, options); };
}

// The elements of an optimizer's parameters and states, and its numbers.
std::vector<double> all_of(const Optimizer& opt) {
  std::vector<double> all;
  const auto append = [&](const Tensor& x) {
    const std::vector<double> values = x.to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  };
  for (const Tensor& p : opt.parameters()) append(p);
  const State state = opt.state_dict();
  for (const auto& [name, x] : state.tensors) append(x);
  for (const auto& [name, x] : state.numbers) all.push_back(x);
  return all;
}

// Three parameters, the last one empty, whose gradients a test chooses.
struct Model {
  explicit Model(Device d, DType dtype = DType::kF32, const Make& make = of<SGD>(SGDOptions{.lr = 0.5}),
                 GradScalerOptions options = {.init_scale = 8, .growth_interval = 3})
      : device(d), scaler(options) {
    for (const std::vector<float>& v : {std::vector<float>{1, 2, 3}, {4, -5}, {}})
      params.push_back(raw::to(raw::to(tensor(v, {int64_t(v.size())}), dtype), d));
    gm.attach(params);
    opt = make(params);
  }
  // Adds gradients of `value` times 1, 2, ... The second parameter has none if `is_partial`.
  void backward(float value, bool is_partial = false) {
    auto recording = gm.record();
    Tensor loss;
    for (size_t i = 0; i < params.size(); ++i) {
      if (i == 1 && is_partial) continue;
      std::vector<float> g;
      for (int64_t e = 0; e < params[i].numel(); ++e) g.push_back(value * float(e + 1));
      const Tensor part =
          sum(params[i] * raw::to(raw::to(tensor(g, {params[i].numel()}), params[i].dtype()), device));
      loss = loss.defined() ? loss + part : part;
    }
    scaler.backward(gm, loss);
  }
  StepOutcome step(const ScaledStepOptions& options = {}) {
    StepOutcome stepped = scaler.step(*opt, options);
    opt->clear_grad();
    return stepped;
  }

  Device device;
  Tensors params;
  GradManager gm;
  std::unique_ptr<Optimizer> opt;
  GradScaler scaler;
};

class ScaledSteps : public testing::TestWithParam<size_t> {};

// A listed gradient of 0 stands for infinity. The second parameter has no gradient in two steps; steps are
// skipped at first and in between; one is made without the scaler.
TEST_P(ScaledSteps, AreAsOnTheCpu) {
  const OptimizerCase& named = all_optimizers()[GetParam()];
  const double tolerance = named.by_norms ? 0x1p-20 : 0;  // rates by norms may differ in the last bit of f32
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    Model here(kCPU, dtype, named.make), there(kCuda, dtype, named.make);
    if (dtype == DType::kBF16) here.opt->keep_master_weights(), there.opt->keep_master_weights();
    for (const float g : {0.f, 0.5f, 0.25f, 0.f, -1.f, 0.75f, 0.f, 0.125f}) {
      const std::vector<double> before = all_of(*there.opt);
      for (Model* m : {&here, &there}) {
        m->backward(g == 0 ? kInf : g, g == 0.5f || g == -1.f);
        EXPECT_EQ(m->step(), g != 0);
        if (g == 0.25f) {
          for (const Tensor& p : m->params) p.set_grad(ones_like(p));
          m->opt->step().clear_grad();
        }
      }
      const std::vector<double> want = all_of(*here.opt), got = all_of(*there.opt);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_LE(std::abs(got[i] - want[i]), tolerance * std::max(1., std::abs(want[i])))
            << name_of(dtype) << " " << g << " " << i << ": " << got[i] << ", not " << want[i];
      if (g == 0) {
        EXPECT_EQ(got, before);
      }
      EXPECT_EQ(there.scaler.scale(), here.scaler.scale());
    }
    EXPECT_EQ(there.scaler.skipped_steps(), 3);
    EXPECT_EQ(there.scaler.state_dict().numbers, here.scaler.state_dict().numbers);
  }
}

TEST_P(ScaledSteps, DoNotWait) {
  Model m(kCuda, DType::kF32, all_optimizers()[GetParam()].make);
  const auto step = [&] {
    auto recording = m.gm.record();
    m.scaler.backward(m.gm, sum(m.params[0] * m.params[0]));
    m.step({.clip_norm = 1.0});
  };
  step(), step();
  cuda::HostCallScope calls;
  step();
  EXPECT_EQ(calls.total().waits, 0);
  EXPECT_EQ(calls.total().allocations, 0);
  EXPECT_EQ(calls.total().copies_to_device + calls.total().copies_to_host, 0);
}

// Training resumes bit-equal from state dicts, also into a model that has stepped.
TEST_P(ScaledSteps, GoOnFromAState) {
  const Make& make = all_optimizers()[GetParam()].make;
  Model whole(kCuda, DType::kF32, make), first(kCuda, DType::kF32, make), second(kCuda, DType::kF32, make);
  const auto run = [](Model& m, std::vector<float> gradients) {
    for (const float g : gradients) m.backward(g == 0 ? kInf : g), m.step();
  };
  run(whole, {0.5f, 0, 0.25f, 0.f, 1.f});
  run(first, {0.5f, 0, 0.25f});
  for (size_t i = 0; i < first.params.size(); ++i) raw::copy_(second.params[i], first.params[i]);
  run(second, {0.125f});  // its numbers are on the device already
  for (size_t i = 0; i < first.params.size(); ++i) raw::copy_(second.params[i], first.params[i]);
  second.opt->load_state_dict(first.opt->state_dict());
  second.scaler.load_state_dict(first.scaler.state_dict());
  run(second, {0.f, 1.f});
  EXPECT_EQ(all_of(*second.opt), all_of(*whole.opt));
  EXPECT_EQ(second.scaler.state_dict().numbers, whole.scaler.state_dict().numbers);
}

INSTANTIATE_FOR_ALL_OPTIMIZERS(ScaledSteps);

TEST(ScaledStep, GrowsHalvesAndStaysWithinF32) {
  for (const Device d : {kCPU, kCuda}) {
    Model m(d, DType::kF32, of<SGD>(SGDOptions{.lr = 0}), {.init_scale = 0x1p126, .growth_interval = 2});
    std::vector<double> scales;
    for (const float g : {0.f, 0.f, 1.f, 0.f, 0.f, 0.f, 0.f}) {
      m.backward(g == 1 ? kInf : 0), m.step();
      scales.push_back(m.scaler.scale());
    }
    EXPECT_EQ(scales, (std::vector{0x1p126, 0x1p127, 0x1p126, 0x1p126, 0x1p127, 0x1p127, 0x1p127}));
  }
}

TEST(ScaledStep, ClipsTrueGradientsAlsoAfterOneThatWasLeftOut) {
  for (const Device d : {kCPU, kCuda}) {
    Model m(d, DType::kF32);
    m.backward(kInf);
    EXPECT_FALSE(m.step({.clip_norm = 1.0}));
    m.backward(2);
    EXPECT_TRUE(m.step({.clip_norm = 1.0}));
    EXPECT_FLOAT_EQ(m.scaler.grad_norm().item<float>(), std::sqrt(76.f));  // 4 + 16 + 36 + 4 + 16
    EXPECT_NEAR(m.params[0].to_vector<float>()[0], 1 - 0.5 * 2 / std::sqrt(76.), 1e-6);
  }
}

// One scaler for two optimizers: one update of the scale, to which an accumulated gradient is rescaled.
TEST(ScaledStep, SeveralOptimizersShareAScale) {
  for (const Device d : {kCPU, kCuda}) {
    Model m(d);
    const Tensor other = raw::to(tensor<float>({1}, {1}), d);
    m.gm.attach(other);
    SGD opt({other}, {.lr = 1});
    const auto backward = [&](float of_other, float of_model) {
      auto recording = m.gm.record();
      m.scaler.backward(m.gm, sum(other) * of_other + sum(m.params[0]) * of_model);
    };
    backward(kInf, 1);
    EXPECT_TRUE(m.step());
    EXPECT_FALSE(m.scaler.step(opt));
    opt.clear_grad();
    EXPECT_EQ(m.scaler.scale(), 4);
    EXPECT_EQ(m.scaler.skipped_steps(), 1);

    backward(kInf, 3);
    m.scaler.step(opt);
    opt.clear_grad();
    EXPECT_THAT(m.params[0].grad().to_vector<float>(), testing::Each(12));
    backward(1, 1);
    EXPECT_THAT(m.params[0].grad().to_vector<float>(), testing::Each(8));  // 2 (3 + 1)
    m.scaler.unscale_(*m.opt);
    EXPECT_THAT(m.params[0].grad().to_vector<float>(), testing::Each(4));
    EXPECT_THROW(m.scaler.unscale_(*m.opt), StateError);
    EXPECT_TRUE(m.step());
    EXPECT_TRUE(m.scaler.step(opt));
    EXPECT_EQ(other.item<float>(), 0);
  }
}

TEST(ScaledStep, RefusesScaledGradientsWithoutAWait) {
  Model m(kCuda);
  m.backward(1);
  EXPECT_THROW(m.opt->step(), StateError);
  EXPECT_THROW(clip_grad_norm_(m.params, 1), StateError);
  m.params[0].set_grad(ones_like(m.params[0]));
  EXPECT_THROW(m.step(), StateError);
}

// The error is thrown where the host next waits.
TEST(ScaledStep, SaysSoWhenNoScaleHelps) {
  Model m(kCuda, DType::kF32, of<SGD>(SGDOptions{.lr = 1}), {.init_scale = 1});
  for (int i = 0; i < 126; ++i) m.backward(kInf), m.step();
  EXPECT_EQ(m.scaler.scale(), 0x1p-126);
  m.backward(kInf), m.step();
  try {
    m.scaler.scale();
    FAIL() << "no error";
  } catch (const StateError& e) {
    EXPECT_THAT(e.what(), HasSubstr("127 skipped steps"));
    EXPECT_THAT(e.what(), HasSubstr("GradScaler"));
  }
}

// With `agree`, or an optimizer that cannot skip on the device, the host reads whether infinities were found.
TEST(ScaledStep, ReadsWhatWasFoundWhereOthersDecide) {
  std::vector<bool> asked;
  Model m(kCuda, DType::kF32, of<SGD>(SGDOptions{.lr = 0.5}), {.init_scale = 8, .agree = [&](bool found) {
                                                                 asked.push_back(found);
                                                                 return true;
                                                               }});
  m.backward(1);
  EXPECT_FALSE(m.step());
  EXPECT_THAT(asked, testing::ElementsAre(false));
  EXPECT_EQ(m.scaler.scale(), 4);

  struct Own final : OptimizerWith<SGDOptions> {
    explicit Own(const Tensors& params) { OptimizerWith::add_param_group(params, SGDOptions{.lr = 1}); }
    const char* kind() const override { return "Own"; }
    std::vector<const char*> state_names(const SGDOptions&) const override { return {}; }
    void step_group(size_t, const std::vector<raw::StepItem>& items) override {
      for (const raw::StepItem& item : items) raw::fill_(item.param, 7);
    }
  };
  Model own(kCuda, DType::kF32, [](const Tensors& p) { return std::make_unique<Own>(p); });
  own.backward(kInf);
  EXPECT_FALSE(own.step());
  EXPECT_EQ(own.params[0].to_vector<float>()[0], 1);
  own.backward(1);
  EXPECT_TRUE(own.step());
  EXPECT_EQ(own.params[0].to_vector<float>()[0], 7);
}

// The host reads the flag for optimizers without a step kernel.
TEST(ScaledStep, OfOptimizersByOps) {
  for (const Device d : {kCPU, kCuda}) {
    const Tensor p = raw::to(tensor<float>({1, 2, 3, 4}, {2, 2}), d);
    const Tensors params = {p};
    const std::vector<std::shared_ptr<Optimizer>> optimizers = {
        std::make_shared<Muon>(params, MuonOptions{.lr = 0.1}),
        std::make_shared<Adafactor>(params, AdafactorOptions{.lr = 0.1})};
    for (const auto& opt : optimizers) {
      GradManager gm;
      gm.attach(p);
      GradScaler scaler({.init_scale = 8});
      for (const float g : {1.f, kInf, 1.f}) {
        const std::vector<double> before = all_of(*opt);
        auto recording = gm.record();
        scaler.backward(gm, sum(p * g));
        EXPECT_EQ(scaler.step(*opt, {.clip_norm = 1.0}), g == 1);
        opt->clear_grad();
        EXPECT_EQ(all_of(*opt) == before, g != 1);
      }
    }
  }
}

// Parameters on two devices, and a model that moves.
TEST(ScaledStep, WaitsWhereNoOneDeviceDecides) {
  const Device second{DeviceType::kCUDA, 1};
  const Tensor a = raw::to(tensor<float>({1}, {1}), kCuda), b = raw::to(tensor<float>({1}, {1}), second);
  GradManager gm;
  gm.attach({a, b});
  Adam opt({a, b}, {.lr = 0.5});
  GradScaler scaler({.init_scale = 8});
  for (const float g : {1.f, kInf, 1.f}) {
    auto recording = gm.record();
    scaler.backward(gm, sum(a) + sum(to(b * g, kCuda)));
    EXPECT_EQ(scaler.step(opt), g == 1);
    opt.clear_grad();
  }
  EXPECT_EQ(a.item<float>(), b.item<float>());
  EXPECT_EQ(scaler.scale(), 4);

  // From the GPU to the CPU: the scale and the counts of steps go along.
  GradScaler moving({.init_scale = 8});
  const auto step = [&](const Tensor& w, float g) {
    GradManager manager;
    manager.attach(w);
    auto recording = manager.record();
    moving.backward(manager, sum(w * g));
    return bool(moving.step(opt));
  };
  opt.clear_grad();
  EXPECT_FALSE(step(a, kInf));
  opt.clear_grad();
  EXPECT_TRUE(step(a, 1));
  opt.clear_grad();
  const Tensor c = tensor<float>({1}, {1});
  SGD on_cpu({c}, {.lr = 1});
  GradManager of_c;
  of_c.attach(c);
  auto recording = of_c.record();
  moving.backward(of_c, sum(c));
  EXPECT_EQ(c.grad().item<float>(), 4);
  EXPECT_TRUE(moving.step(on_cpu));
  EXPECT_EQ(moving.skipped_steps(), 1);
}

class CapturableSteps : public testing::TestWithParam<size_t> {};

// Steps with a scaler and without, one skipped, a parameter without a gradient; rates changed for all groups,
// for one, and by a state dict.
TEST_P(CapturableSteps, HaveTheBitsOfOthers) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    Model plain(kCuda, dtype, all_optimizers()[GetParam()].make),
        there(kCuda, dtype, all_optimizers()[GetParam()].make);
    there.opt->make_capturable();
    for (Model* m : {&plain, &there}) {
      if (dtype == DType::kBF16) m->opt->keep_master_weights();
      m->opt->add_param_group({raw::to(full({3}, 0.5, {.dtype = dtype}), kCuda)}, {{"lr", 0.0625}});
    }
    const auto step = [](Model& m, int number) {
      if (number % 3 == 1) {
        m.backward(number == 4 ? kInf : 0.75f), m.step();
        return;
      }
      const Tensors params = m.opt->parameters();
      for (size_t i = 0; i < params.size(); ++i)
        if (number != 2 || i != 1) params[i].set_grad(full_like(params[i], 0.25 * (number - 2)));
      m.opt->step().clear_grad();
    };
    for (int number = 0; number < 8; ++number) {
      for (Model* m : {&plain, &there}) {
        if (number == 2) m->opt->set_lr(0.3);
        if (number == 3) m->opt->set_lr(1, 0.7);
        if (number == 6) {
          State state = m->opt->state_dict();
          for (auto& [name, x] : state.numbers)
            if (name == "group.0.lr") x = 0.03;
          m->opt->load_state_dict(state);
        }
      }
      step(plain, number);
      {
        const std::shared_ptr<void> rate_on_device = all_optimizers()[GetParam()].without_rate();
        step(there, number);
      }
      ASSERT_EQ(there.opt->state_dict().numbers, plain.opt->state_dict().numbers);
      ASSERT_EQ(all_of(*there.opt), all_of(*plain.opt)) << name_of(dtype) << ", step " << number;
    }
  }
}

TEST_P(CapturableSteps, DoNotWait) {
  Model m(kCuda, DType::kF32, all_optimizers()[GetParam()].make);
  m.opt->make_capturable();
  Tensors grads;
  for (const Tensor& p : m.params) grads.push_back(ones_like(p));
  const auto step = [&](double lr) {
    m.opt->set_lr(lr);
    for (size_t i = 0; i < grads.size(); ++i) m.params[i].set_grad(grads[i]);
    m.opt->step();
  };
  step(0.25), step(0.5);
  cuda::HostCallScope calls;
  step(0.5);
  const int64_t launches = calls.total().launches;
  step(0.125);
  EXPECT_EQ(calls.total().launches, 2 * launches + 1) << "the rate is one launch, if it changes";
  EXPECT_EQ(calls.total().waits, 0);
  EXPECT_EQ(calls.total().allocations, 0);
  EXPECT_EQ(calls.total().copies_to_device + calls.total().copies_to_host, 0);
}

INSTANTIATE_FOR_ALL_OPTIMIZERS(CapturableSteps);

// A captured step reads the same memory each time it runs.
TEST(CapturableStep, FindsItsNumbersWhereTheyWere) {
  struct Own final : OptimizerWith<SGDOptions> {
    explicit Own(const Tensors& params) { OptimizerWith::add_param_group(params, SGDOptions{.lr = 1}); }
    const char* kind() const override { return "Own"; }
    std::vector<const char*> state_names(const SGDOptions&) const override { return {}; }
    void step_group(size_t, const std::vector<raw::StepItem>& items) override { item = items.front(); }
    bool can_skip_on_device() const override { return true; }
    raw::StepItem item;
  };
  const Tensor p = zeros({2}, {.device = kCuda});
  Own opt({p});
  opt.make_capturable();
  const auto step = [&] {
    p.set_grad(ones_like(p));
    opt.step();
    return opt.item;
  };
  const raw::StepItem first = step();
  EXPECT_EQ(first.lr.item<double>(), 1);
  opt.set_lr(0, 0.1);
  EXPECT_EQ(first.lr.item<double>(), 0.1);
  opt.set_options(0, {.lr = 0.2});
  EXPECT_EQ(first.lr.item<double>(), 0.2);
  EXPECT_THROW(opt.set_lr(-1), ValueError);
  EXPECT_EQ(first.lr.item<double>(), 0.2);
  const raw::StepItem second = step();
  EXPECT_EQ(second.lr.raw_ptr(), first.lr.raw_ptr());
  EXPECT_EQ(second.on_device.raw_ptr(), first.on_device.raw_ptr());
  State state = opt.state_dict();
  for (auto& [name, x] : state.numbers)
    if (name == "group.0.lr") x = 0.3;
  opt.load_state_dict(state);
  EXPECT_EQ(first.lr.item<double>(), 0.3);
  EXPECT_EQ(step().lr.raw_ptr(), first.lr.raw_ptr());
  opt.make_capturable(false);
  EXPECT_FALSE(step().lr.defined());
}

// Parameters on two devices and on the CPU.
TEST(CapturableStep, HasARateOnEachDevice) {
  const Device second{DeviceType::kCUDA, 1};
  Tensors params;
  for (const Device d : {kCPU, kCuda, second}) params.push_back(raw::to(tensor<float>({1}, {1}), d));
  SGD opt(params, {.lr = 0.5});
  opt.make_capturable();
  for (const double lr : {0.5, 0.25}) {
    opt.set_lr(lr);
    for (const Tensor& p : params) p.set_grad(ones_like(p));
    opt.step();
  }
  for (const Tensor& p : params) EXPECT_EQ(p.item<float>(), 0.25) << describe(p);
}

TEST(CapturableStep, IsRefusedWhereTheHostHasTheRate) {
  LBFGS opt({zeros({2}, {.device = kCuda})});
  try {
    opt.make_capturable();
    FAIL() << "no error";
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("LBFGS"));
  }
}

}  // namespace
}  // namespace gradus::optim
