// GPT: size and names as GPT-2's, causality, numeric gradients, errors, and that pipeline stages (on threads)
// train it as one rank does, to 1e-12 in f64. tests/golden/gpt compares its values with PyTorch's.
#include "gradus/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/nn/distributions.h"
#include "gradus/optim/optimizers/sgd.h"

namespace gradus::models {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr GPTOptions kSmall = {
    .vocabulary = 11, .context = 6, .layers = 4, .heads = 2, .width = 8, .dropout = 0};

GPTOptions with_dropout(GPTOptions o, double p) {
  o.dropout = p;
  return o;
}

Tensor tokens(int64_t rows, int64_t length, int64_t step = 0) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < rows * length; ++i) all.push_back((i * i + step * 7 + i) % 11);
  return tensor(all, {rows, length});
}

Tensor loss_of(const Tensor& logits, const Tensor& target) {
  return nn::cross_entropy(flatten(logits, 0, 1), flatten(target));
}

// ---- the network ----

TEST(GPT, HasAsManyParametersAsGPT2AndNanoGPT) {
  Context context = Context::current().snapshot();
  context.device = {DeviceType::kMeta};
  const ContextScope scope(context);
  EXPECT_EQ(GPT().num_parameters(), 124'439'808);
  // nanoGPT's network for Shakespeare; it does not count the embeddings of positions, and says 10.65 million.
  const GPT small({.vocabulary = 65, .context = 256, .layers = 6, .heads = 6, .width = 384, .bias = false});
  EXPECT_EQ(small.num_parameters() - 256 * 384, 10'646'784);
}

TEST(GPT, HasGPT2sNames) {
  std::vector<std::string> names;
  for (const auto& [name, p] :
       GPT({.vocabulary = 3, .context = 4, .layers = 1, .heads = 1, .width = 2}).state_dict())
    names.push_back(name + " " + to_string(p.shape()));
  EXPECT_THAT(names, testing::ElementsAre("wte.weight [3,2]", "wpe.weight [4,2]", "h.0.ln_1.weight [2]",
                                          "h.0.ln_1.bias [2]", "h.0.attn.c_attn.weight [6,2]",
                                          "h.0.attn.c_attn.bias [6]", "h.0.attn.c_proj.weight [2,2]",
                                          "h.0.attn.c_proj.bias [2]", "h.0.ln_2.weight [2]",
                                          "h.0.ln_2.bias [2]", "h.0.mlp.c_fc.weight [8,2]",
                                          "h.0.mlp.c_fc.bias [8]", "h.0.mlp.c_proj.weight [2,8]",
                                          "h.0.mlp.c_proj.bias [2]", "ln_f.weight [2]", "ln_f.bias [2]"));
}

// The standard error of the deviation of n normal numbers is 1 / sqrt(2 n) of it; five of these are allowed.
TEST(GPT, StartsAsGPT2Does) {
  manual_seed(1);
  const GPT net({.vocabulary = 50, .context = 40, .layers = 8, .heads = 2, .width = 32});
  for (const auto& [name, p] : net.named_parameters()) {
    double mean = 0, square = 0;
    for (double v : p.to_vector<double>()) mean += v / double(p.numel()), square += v * v / double(p.numel());
    if (p.dim() == 1) {
      EXPECT_EQ(square, name.ends_with(".bias") ? 0 : 1) << name;
      continue;
    }
    const double expected = name.ends_with("c_proj.weight") ? 0.02 / 4 : 0.02;
    EXPECT_NEAR(std::sqrt(square), expected, expected * 5 / std::sqrt(2 * double(p.numel()))) << name;
    EXPECT_NEAR(mean, 0, expected * 5 / std::sqrt(double(p.numel()))) << name;
  }
}

// The first position whose logits differ.
int64_t first_change(GPT& net, const Tensor& a, const Tensor& b) {
  const std::vector<float> x = net(a).to_vector<float>(), y = net(b).to_vector<float>();
  const size_t at = size_t(std::mismatch(x.begin(), x.end(), y.begin()).first - x.begin());
  return int64_t(at) / 11;
}

TEST(GPT, SeesNoLaterToken) {
  manual_seed(2);
  GPT net(kSmall);
  const Tensor x = tokens(1, 6);
  for (int64_t t = 0; t < 6; ++t) {
    std::vector<int64_t> changed = x.to_vector<int64_t>();
    changed[size_t(t)] = (changed[size_t(t)] + 1) % 11;
    EXPECT_EQ(first_change(net, x, tensor(changed, {1, 6})), t);
  }
}

TEST(GPT, ItsGradientsAreThoseOfDifferences) {
  manual_seed(3);
  GPT net({.vocabulary = 5, .context = 3, .layers = 1, .heads = 2, .width = 4, .dropout = 0});
  net.to(DType::kF64);
  const Tensor x = tensor<int64_t>({1, 4, 4, 0, 2, 3}, {2, 3}),
               target = tensor<int64_t>({4, 4, 2, 2, 3, 1}, {2, 3});
  std::vector<Tensor> inputs;
  for (const Tensor& p : net.parameters()) inputs.push_back(rand(p.shape(), {.dtype = DType::kF64}) - 0.5);
  const auto check = autograd::gradcheck(
      [&](const std::vector<Tensor>& parameters) {
        const nn::ParameterScope scope(net, parameters);
        return loss_of(net(x), target);
      },
      inputs);
  EXPECT_TRUE(check) << check.message;
}

TEST(GPT, DropsElementsInTrainingAlone) {
  GPT net(with_dropout(kSmall, 0.5));
  const Tensor x = tokens(2, 6);
  EXPECT_NE(net(x).to_vector<float>(), net(x).to_vector<float>());
  net.eval();
  EXPECT_EQ(net(x).to_vector<float>(), net(x).to_vector<float>());
}

// ---- text ----

TEST(GPTText, ACacheGivesTheLogitsOfAllTokens) {
  manual_seed(4);
  GPT net(kSmall);
  net.to(DType::kF64);
  const Tensor x = tokens(3, 6);
  const Tensor expected = net(x);
  for (const std::vector<int64_t>& parts :
       std::vector<std::vector<int64_t>>{{6}, {1, 1, 1, 1, 1, 1}, {3, 3}, {2, 1, 3}, {5, 1}, {1, 5}}) {
    KeyValueCache cache;
    std::vector<Tensor> logits;
    for (const int64_t part : parts) logits.push_back(net.forward(narrow(x, 1, cache.length, part), cache));
    EXPECT_EQ(cache.length, 6);
    EXPECT_TRUE(allclose(cat(logits, 1), expected, {.rtol = 1e-12, .atol = 1e-12}))
        << testing::PrintToString(parts);
  }
}

// Each token is drawn as without a cache, also where the text is longer than the context of 6.
TEST(GPTText, IsDrawnFromTheLogits) {
  manual_seed(5);
  GPT net(kSmall);
  net.to(DType::kF64);
  net.eval();
  for (const int64_t prompt : {1, 4, 6, 9}) {
    manual_seed(7);
    const Tensor text = net.generate(tokens(2, prompt), {.max_new_tokens = 8, .temperature = 0.7});
    manual_seed(7);
    Tensor expected = tokens(2, prompt);
    for (int i = 0; i < 8; ++i) {
      const int64_t t = std::min<int64_t>(6, expected.size(1));
      const Tensor logits = select(net(narrow(expected, 1, expected.size(1) - t, t)), 1, -1) / 0.7;
      expected = cat({expected, unsqueeze(distributions::Categorical({.logits = logits}).sample(), 1)}, 1);
    }
    EXPECT_EQ(text.to_vector<int64_t>(), expected.to_vector<int64_t>()) << prompt;
  }
}

TEST(GPTText, IsDrawnAmongTheMostLikely) {
  manual_seed(6);
  GPT net(kSmall);
  net.eval();
  const Tensor x = tokens(2, 2);
  const Tensor best = net.generate(x, {.max_new_tokens = 4, .temperature = 0});
  EXPECT_EQ(net.generate(x, {.max_new_tokens = 4, .top_k = 1}).to_vector<int64_t>(),
            best.to_vector<int64_t>());
  const std::vector<int64_t> three = topk(select(net(x), 1, -1), 3).indices.to_vector<int64_t>();
  std::set<int64_t> seen[2];
  for (int i = 0; i < 100; ++i) {
    const Tensor text = net.generate(x, {.max_new_tokens = 1, .top_k = 3});
    for (int64_t row : {0, 1}) seen[row].insert(text.to_vector<int64_t>()[size_t(row * 3 + 2)]);
  }
  for (const size_t row : {0, 1})
    EXPECT_EQ(seen[row], std::set<int64_t>(three.begin() + long(row) * 3, three.begin() + long(row) * 3 + 3));
}

TEST(GPTText, RefusesWhatItCannotWrite) {
  GPT net(kSmall);
  const Tensor x = tokens(2, 3);
  EXPECT_EQ(net.generate(x, {.max_new_tokens = 0}).to_vector<int64_t>(), x.to_vector<int64_t>());
  EXPECT_THROW(net.generate(x, {.max_new_tokens = -1}), ValueError);
  EXPECT_THROW(net.generate(x, {.max_new_tokens = 1, .temperature = NAN}), ValueError);
  EXPECT_THROW(net.generate(x, {.max_new_tokens = 1, .temperature = INFINITY}), ValueError);
  EXPECT_THROW(net.generate(x, {.max_new_tokens = 1, .top_k = 12}), ValueError);
  EXPECT_THROW(net.generate(select(x, 0, 0), {.max_new_tokens = 1}), ShapeError);
  KeyValueCache cache;
  net.forward(x, cache);
  EXPECT_THAT([&] { net.forward(tokens(2, 4), cache); },
              ThrowsMessage<ShapeError>(HasSubstr("the context of 6 less the 3 tokens of the cache")));
  EXPECT_THROW(net.forward(tokens(1, 1), cache), ShapeError);
  GPT other({.vocabulary = 11, .context = 6, .layers = 3, .heads = 2, .width = 8});
  EXPECT_THROW(other.forward(tokens(2, 1), cache), ShapeError);
  EXPECT_EQ(cache.length, 3);
}

TEST(GPT, NamesItsBlocks) {
  GPT net(kSmall);
  EXPECT_EQ(net.h[1].attn.c_attn.weight.shape(), (Shape{24, 8}));
  EXPECT_EQ(net.h[3].mlp.c_fc.weight.shape(), (Shape{32, 8}));
}

TEST(GPT, RefusesWhatItCannotBe) {
  EXPECT_THAT([] { GPT({.heads = 5}); },
              ThrowsMessage<ValueError>(HasSubstr("a multiple of the 5 heads, got 768")));
  EXPECT_THAT([] { GPT({.layers = 0}); }, ThrowsMessage<ValueError>(HasSubstr("layers >= 1, got 0")));
  EXPECT_THROW(GPT({.vocabulary = 0}), ValueError);
  EXPECT_THROW(GPT({.context = -1}), ValueError);
  EXPECT_THROW(GPT({.dropout = 1.5}), ValueError);
  EXPECT_THROW(GPT({.dropout = NAN}), ValueError);
  GPT net(kSmall);
  EXPECT_EQ(to_string(net(tokens(2, 3)).shape()), "[2,3,11]");
  EXPECT_THAT([&] { net(tokens(1, 7)); },
              ThrowsMessage<ShapeError>(HasSubstr("T from 1 to the context of 6")));
  EXPECT_THROW(net(tensor({1, 2})), ShapeError);
}

// ---- in a pipeline ----

using Values = std::map<std::string, std::vector<double>>;

// Trains two steps on `ranks` ranks. Returns losses and gradient norms ("losses") and parameters.
Values trained(const GPTOptions& model, dist::PipelineOptions options, int ranks) {
  Values all;
  std::mutex mutex;
  options.stages = ranks;
  dist::run_ranks(ranks, [&] {
    manual_seed(5);
    dist::Pipeline<GPT> pipe(
        [&] {
          auto net = std::make_unique<GPT>(model);
          net->to(DType::kF64);
          return net;
        },
        tokens(1, 6), options);
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    std::vector<double> losses;
    for (int step = 0; step < 2; ++step) {
      losses.push_back(pipe.step(gm, tokens(7, 6, step), tokens(7, 6, step + 1), loss_of));
      losses.push_back(pipe.clip_grad_norm_(1.0));
      opt.step().clear_grad();
    }
    pipe.eval();
    losses.push_back(pipe.eval_step(tokens(3, 4), tokens(3, 4, 1), loss_of));
    const std::lock_guard lock(mutex);
    all["losses"] = losses;
    for (const auto& [name, p] : pipe.named_parameters()) all[name] = p.to_vector<double>();
  });
  return all;
}

void expect_same(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, values] : want) {
    double largest = 0, most = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      most = std::max(most, std::abs(values[i] - got.at(name)[i]));
    }
    EXPECT_LE(most, 1e-12 * largest) << what << ": " << name;
  }
}

TEST(GPT, TrainsCutAfterAnyOfItsModules) {
  const Values want = trained(kSmall, {.micro_batches = 3}, 1);
  GPT net(kSmall);
  for (const auto& [path, module] : net.named_modules()) {
    if (path.empty() || path == "h") continue;  // the network, and the list of blocks
    expect_same(trained(kSmall, {.micro_batches = 3, .cut_after = {path}}, 2), want, path);
  }
}

// Dropout's random numbers depend on the micro-batch, not on the cuts between stages.
TEST(GPT, DropsTheSameElementsInAnyNumberOfStages) {
  const GPTOptions model = with_dropout(kSmall, 0.2);
  const Values want = trained(model, {.micro_batches = 3}, 1);
  using dist::Schedule;
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1}) {
    const dist::PipelineOptions two = {.schedule = schedule, .micro_batches = 3, .cut_after = {"h.1.attn"}};
    const dist::PipelineOptions four = {
        .schedule = schedule, .micro_batches = 3, .cut_after = {"h.0", "h.1", "h.2"}};
    expect_same(trained(model, two, 2), want, "two stages");
    expect_same(trained(model, four, 4), want, "four stages");
  }
  expect_same(trained(model,
                      {.interleave = 2,
                       .schedule = Schedule::kInterleaved1F1B,
                       .micro_batches = 3,
                       .cut_after = {"h.0", "h.1", "h.2"}},
                      2),
              want, "two of each rank");
}

}  // namespace
}  // namespace gradus::models
