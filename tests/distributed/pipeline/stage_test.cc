// plan_stages and run_stage: a model run in stages, one after the other in one process, has the results and
// gradients of the undivided model; which tensors cross which cut; which cuts are refused.
#include <gmock/gmock.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/pipeline/stage_plan.h"
#include "gradus/models/resnet.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/ops/values.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist::internal {
namespace {

using testing::ElementsAre;

struct Result {
  std::vector<double> y;
  std::vector<std::vector<double>> tensors;  // gradients, then buffers
};

Result result_of(nn::Module& model, const Tensor& y) {
  Result r{y.to_vector<double>(), {}};
  for (const Tensor& p : model.parameters())
    r.tensors.push_back(p.grad().defined() ? p.grad().to_vector<double>() : std::vector<double>());
  for (const Tensor& b : model.buffers()) r.tensors.push_back(b.to_vector<double>());
  return r;
}

ModelTrace trace_of(nn::Layer& model, const Tensor& x) {
  const Tensor meta = on_meta(x);
  return trace_model(model, {meta}, [&] { return std::vector{model(meta)}; });
}

std::vector<std::string> paths_of(const ModelTrace& trace) {
  std::vector<std::string> paths;
  for (const TracedCall& call : trace.calls)
    if (call.parent >= 0) paths.push_back(call.path);
  return paths;
}

template <class M> std::unique_ptr<M> make(DType dtype) {
  manual_seed(3);
  auto model = std::make_unique<M>();
  model->to(dtype);
  manual_seed(4);
  return model;
}

// Returns output and gradients for the output gradient dy.
template <class M> Result undivided(const Tensor& x, const Tensor& dy, DType dtype) {
  auto model = make<M>(dtype);
  GradManager gm;
  gm.attach(model->parameters());
  auto recording = gm.record();
  const Tensor y = (*model)(x);
  gm.backward(y, dy);
  return result_of(*model, y);
}

// The same in stages, each with its own recording, that end after the traced calls with indices `cuts`.
template <class M>
Result in_stages(const Tensor& x, const Tensor& dy, DType dtype, const std::vector<int>& cuts) {
  auto model = make<M>(dtype);
  const ModelTrace trace = trace_of(*model, x);
  const StagePlan plan = plan_stages(trace, cuts);
  std::vector<StageInput> inputs(plan.stages);
  std::vector<StageOutput> outputs(plan.stages);
  std::vector<GradManager> managers(plan.stages);
  std::vector<Recording> recordings(plan.stages);
  Tensor y;
  for (int s = 0; s < plan.stages; ++s) {
    inputs[s].generator = s == 0 ? Context::current().generator->state() : outputs[s - 1].generator;
    for (const StageInputSource& need : plan.inputs[s]) {
      const auto sends = plan.sends(need.stage);
      Tensor received;
      for (size_t i = 0; i < sends.size(); ++i)
        if (sends[i].value == need) received = outputs[need.stage].sent[i];
      if (need.call >= 0) {
        EXPECT_TRUE(received.defined());
        EXPECT_EQ(received.device(), kCPU);
        received = detach(received);
        if (is_floating(received.dtype())) managers[s].attach(received);
      }
      inputs[s].received.push_back(received);
    }
    managers[s].attach(model->parameters());
    recordings[s] = managers[s].record();
    outputs[s] = run_stage(trace, plan, s, inputs[s], [&] { y = (*model)(x); });
    recordings[s].pause();
  }
  for (int s = plan.stages - 1; s >= 0; --s) {
    std::vector<Tensor> roots, dys;
    const auto sends = plan.sends(s);
    for (size_t i = 0; i < sends.size(); ++i) {
      const Tensor& root = outputs[s].sent[i];
      if (!root.defined() || !is_floating(root.dtype())) continue;
      Tensor sum;
      for (const auto& [stage, slot] : sends[i].to) {
        const Tensor part = inputs[stage].received[slot].grad();
        if (part.defined()) sum = sum.defined() ? sum + part : part;
      }
      if (!sum.defined()) continue;
      roots.push_back(root), dys.push_back(sum);
    }
    if (s == plan.stages - 1) roots = {y}, dys = {dy};
    recordings[s].backward(roots, dys);
  }
  return result_of(*model, y);
}

double difference(const Result& got, const Result& want) {
  double worst = relative_difference(got.y, want.y);
  for (size_t i = 0; i < want.tensors.size(); ++i)
    worst = std::max(worst, relative_difference(got.tensors[i], want.tensors[i]));
  return worst;
}

// Compares all possible cuts into two and into three stages. Where a cut lies between a model's own modules,
// all bits are the same. Deeper cuts may let two stages run one op between modules: then gradients are added
// after that op's rule, not before.
template <class M> void expect_equal_for_all_cuts(const Tensor& x, const Shape& y, double tolerance) {
  const DType dtype = DType::kF64;
  const Tensor dy = random_tensor(y, dtype, 9);
  const Result want = undivided<M>(x, dy, dtype);
  const ModelTrace trace = trace_of(*make<M>(dtype), x);
  int possible = 0;
  const auto compare = [&](const std::vector<int>& cuts) {
    try {
      plan_stages(trace, cuts);
    } catch (const ValueError&) {
      return;
    }
    ++possible;
    std::string text;
    for (int c : cuts) text += " " + trace.calls[c].path;
    const bool deep = text.find('.') != text.npos;
    EXPECT_LE(difference(in_stages<M>(x, dy, dtype, cuts), want), deep ? 1e-14 : tolerance)
        << "cut after" << text;
  };
  const int n = int(trace.calls.size());
  for (int a = 1; a < n; ++a) {
    compare({a});
    for (int b = 1; b < n; ++b)
      if (trace.calls[b].end > trace.calls[a].end) compare({a, b});
  }
  EXPECT_GT(possible, 12);
}

TEST(Stages, AResidualMLPIsTheSame) {
  expect_equal_for_all_cuts<ResidualMLP>(random_tensor({5, 6}, DType::kF64), {5, 3}, 0);
}
TEST(Stages, AUNetIsTheSame) {
  expect_equal_for_all_cuts<UNet>(random_tensor({3, 2, 8, 8}, DType::kF64), {3, 2, 8, 8}, 0);
}
TEST(Stages, AModelWithTiedWeightsIsTheSame) {
  const Tensor x = tensor(std::vector<int64_t>{0, 4, 10, 3, 3, 0, 7, 1}, {2, 4});
  expect_equal_for_all_cuts<TiedText>(x, {2, 4, 11}, 1e-14);
}

// Ops between modules combine tensors of other stages with the input, a parameter and skips.
struct Dense : nn::Layer {
  nn::Linear a{this, "a", {.in = 6, .out = 6}}, b{this, "b", {.in = 6, .out = 6}},
      c{this, "c", {.in = 6, .out = 6}}, d{this, "d", {.in = 6, .out = 6}}, e{this, "e", {.in = 6, .out = 6}};
  Tensor scale = ones({6});
  Dense() { register_parameter("scale", scale); }
  Tensor forward(const Tensor& x) override {
    const Tensor p = a(x) + x;
    const Tensor q = b(cat({p, x}, 0)) * scale;
    const Tensor r = c(q + cat({p, p}, 0));
    const Tensor s = d(matmul(r, reshape(scale, {6, 1})) + r);
    return e(s + cat({p, x}, 0) * scale);
  }
};

TEST(Stages, ADenselyConnectedModelIsTheSame) {
  expect_equal_for_all_cuts<Dense>(random_tensor({5, 6}, DType::kF64), {10, 6}, 1e-14);
}

TEST(Stages, SkipsGoStraightToTheirReader) {
  auto net = make<UNet>(DType::kF32);
  const ModelTrace trace = trace_of(*net, random_tensor({3, 2, 8, 8}));
  EXPECT_THAT(paths_of(trace), ElementsAre("down0", "down1", "norm", "middle", "dropout", "up1", "up0"));
  const StagePlan plan = plan_stages(trace, cuts_after(trace, {"down0", "norm", "dropout", "up1"}));
  const auto needs = [&](int stage) {
    std::vector<std::string> names;
    for (const StageInputSource& c : plan.inputs[stage]) names.push_back(trace.calls[c.call].path);
    return names;
  };
  EXPECT_THAT(needs(1), ElementsAre("down0"));
  EXPECT_THAT(needs(2), ElementsAre("norm"));
  EXPECT_THAT(needs(3), ElementsAre("dropout", "norm"));
  EXPECT_THAT(needs(4), ElementsAre("up1", "down0"));
}

TEST(Stages, ATiedWeightHasSeveralOwners) {
  auto net = make<TiedText>(DType::kF32);
  const ModelTrace trace = trace_of(*net, tensor(std::vector<int64_t>{0, 4}, {1, 2}));
  const StagePlan plan = plan_stages(trace, cuts_after(trace, {"embed", "b1"}));
  for (size_t i = 0; i < trace.state.size(); ++i) {
    if (trace.state[i] == "embed.tokens.weight")
      EXPECT_THAT(plan.owners[i], ElementsAre(0, 2));
    else
      EXPECT_EQ(plan.owners[i].size(), 1u) << trace.state[i];
  }
}

TEST(Stages, AResNetCanBeCutWithinItsBlocks) {
  models::ResNet net(models::cifar_resnet(8));
  const ModelTrace trace = trace_of(net, random_tensor({2, 3, 32, 32}));
  const StagePlan plan = plan_stages(trace, cuts_after(trace, {"layer1.0.conv1", "layer2.0", "layer3"}));
  EXPECT_EQ(plan.stages, 4);
  // The residual input of the block, the result of the stem's batch norm, crosses the first cut as well.
  EXPECT_EQ(plan.inputs[1].size(), 2u);
  EXPECT_EQ(plan.inputs[2].size(), 1u);
  EXPECT_EQ(plan.inputs[3].size(), 1u);
}

TEST(Stages, WhatCannotBeCutIsNamed) {
  auto net = make<UNet>(DType::kF32);
  const ModelTrace trace = trace_of(*net, random_tensor({3, 2, 8, 8}));
  EXPECT_ERROR(ValueError, cuts_after(trace, {"down7"}),
               "'down7', which is called 0 times; there are: down0 down1 norm");
  EXPECT_ERROR(ValueError, plan_stages(trace, {1, 1}), "no module is called between");
  EXPECT_ERROR(ValueError, plan_stages(trace, {0}), "it is the whole model");

  models::ResNet checkpointed(models::cifar_resnet(8, {.classes = 10, .checkpoint = true}));
  const ModelTrace hidden = trace_of(checkpointed, random_tensor({2, 3, 32, 32}));
  EXPECT_ERROR(ValueError, cuts_after(hidden, {"layer1.0.conv1"}), "0 times");
  EXPECT_EQ(plan_stages(hidden, cuts_after(hidden, {"layer1.0"})).stages, 2);

  struct Aside : nn::Layer {
    struct Keeps : nn::Layer {
      using Layer::Layer;
      Tensor kept;
      Tensor forward(const Tensor& x) override { return kept = exp(x), kept + 1; }
    };
    Keeps keeps{this, "keeps"};
    nn::Identity middle{this, "middle"};
    nn::Linear fc{this, "fc", {.in = 2, .out = 2}};
    Tensor forward(const Tensor& x) override {
      const Tensor y = fc(middle(keeps(x)));
      return y * keeps.kept;
    }
  } aside;
  const ModelTrace kept = trace_of(aside, random_tensor({1, 2}));
  EXPECT_ERROR(ValueError, plan_stages(kept, cuts_after(kept, {"fc"})),
               "reads a tensor that 'keeps' of stage 0 keeps aside: let 'keeps' return it");

  struct Draws : nn::Layer {
    nn::Linear a{this, "a", {.in = 2, .out = 2}}, b{this, "b", {.in = 2, .out = 2}};
    Tensor forward(const Tensor& x) override {
      const Tensor h = dropout(a(x), 0.5);
      return b(h) + h;
    }
  } draws;
  const ModelTrace drawn = trace_of(draws, random_tensor({1, 2}));
  EXPECT_ERROR(ValueError, plan_stages(drawn, cuts_after(drawn, {"b"})),
               "random numbers that were drawn on stage 0 between modules");
}

TEST(Stages, CallsThatDependOnValuesAreAnError) {
  struct Odd : nn::Layer {
    nn::Linear a{this, "a", {.in = 2, .out = 2}}, b{this, "b", {.in = 2, .out = 2}};
    bool other = false;
    Tensor forward(const Tensor& x) override { return other ? a(b(x)) : b(a(x)); }
  } odd;
  const Tensor x = random_tensor({1, 2});
  const ModelTrace trace = trace_of(odd, x);
  const StagePlan plan = plan_stages(trace, cuts_after(trace, {"a"}));
  odd.other = true;
  EXPECT_ERROR(ValueError, run_stage(trace, plan, 0, {}, [&] { odd(x); }),
               "the model calls Linear 'b' where it called 'a' before");
}

}  // namespace
}  // namespace gradus::dist::internal
