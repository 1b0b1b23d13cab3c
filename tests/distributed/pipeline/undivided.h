// Trainings in f64 of three models, undivided and in a pipeline, and the difference of their results.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {

// Batches, a loss, and cuts for 1, 2, 4 and 8 stages.
template <class M> struct Case;
template <> struct Case<ResidualMLP> {
  static Tensor input(int64_t rows, int step) { return random_tensor({rows, 6}, DType::kF64, 10 + step); }
  static Tensor target(int64_t rows, int step) { return random_tensor({rows, 3}, DType::kF64, 20 + step); }
  static Tensor loss(const Tensor& y, const Tensor& t) { return nn::mse_loss(y, t); }
  static std::vector<std::string> cuts(int stages) {
    if (stages == 1) return {};
    if (stages == 2) return {"b1"};
    if (stages == 4) return {"b0", "b1", "b2"};
    return {"in", "b0.fc1", "b0", "b1", "b2.fc1", "b2", "b3"};
  }
};
// The last of four stages reads outputs of the first and the second.
template <> struct Case<RowwiseUNet> {
  static Tensor input(int64_t rows, int step) {
    return random_tensor({rows, 2, 8, 8}, DType::kF64, 10 + step);
  }
  static Tensor target(int64_t rows, int step) { return input(rows, step + 10); }
  static Tensor loss(const Tensor& y, const Tensor& t) { return nn::mse_loss(y, t); }
  static std::vector<std::string> cuts(int stages) {
    if (stages == 1) return {};
    if (stages == 2) return {"norm1"};
    if (stages == 4) return {"down0", "norm1", "norm2"};
    return {"down0", "down1", "norm1", "middle", "norm2", "up1", "norm3"};
  }
};
template <> struct Case<TiedText> {
  static Tensor input(int64_t rows, int step) {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < rows * 5; ++i) tokens.push_back((i * i + step * 7 + i) % 11);
    return tensor(tokens, {rows, 5});
  }
  static Tensor target(int64_t rows, int step) { return input(rows, step + 1); }
  static Tensor loss(const Tensor& y, const Tensor& t) {
    return nn::cross_entropy(flatten(y, 0, 1), flatten(t, 0, 1));
  }
  static std::vector<std::string> cuts(int stages) {
    if (stages == 1) return {};
    if (stages == 2) return {"b0"};
    if (stages == 4) return {"b0", "b1", "b2"};
    return {"embed", "b0.norm", "b0", "b1.norm", "b1", "b2.norm", "b2"};
  }
};

inline constexpr std::array kSchedules = {
    Schedule::kGPipe,         Schedule::kGPipeLIFO,       Schedule::k1F1B,
    Schedule::k1F1BSlowLinks, Schedule::kInterleaved1F1B, Schedule::kLoopedBreadthFirst,
    Schedule::kZeroBubbleH1,  Schedule::kZeroBubbleV};

// Returns options for `ranks` ranks, with two stages on each if the schedule needs them.
template <class M> PipelineOptions options_of(Schedule schedule, int ranks, int micro_batches) {
  PipelineOptions options{.stages = ranks, .schedule = schedule, .micro_batches = micro_batches};
  const bool loops = schedule == Schedule::kInterleaved1F1B || schedule == Schedule::kLoopedBreadthFirst ||
                     schedule == Schedule::kZeroBubbleV;
  if (loops) options.interleave = 2;
  if (schedule == Schedule::k1F1BSlowLinks) options.extra_warmup = 1;
  options.cut_after = Case<M>::cuts(ranks * options.interleave);
  return options;
}

// Results of a training, on this rank. Tensors are by name.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> grads;  // of the first step
  std::map<std::string, std::vector<double>> state;  // parameters and buffers at the end
};

inline constexpr int kSteps = 5;

// Trains kSteps steps of SGD. step(i) computes gradients and returns the loss.
template <class Step> Trained trained(nn::Module& model, const nn::StateDict& parameters, const Step& step) {
  std::vector<Tensor> all;
  for (const auto& [name, p] : parameters) all.push_back(p);
  optim::SGD opt(all, {.lr = 0.1, .momentum = 0.9});
  Trained trained;
  for (int i = 0; i < kSteps; ++i) {
    trained.losses.push_back(step(i));
    for (const auto& [name, p] : parameters)
      if (i == 0) trained.grads[name] = p.grad().template to_vector<double>();
    opt.step().clear_grad();
  }
  for (const auto& [name, x] : model.state_dict())
    if (x.device().type != DeviceType::kMeta) trained.state[name] = x.template to_vector<double>();
  return trained;
}

template <class M> Trained undivided(int64_t rows) {
  manual_seed(5);
  const auto model = make_f64<M>();
  GradManager gm;
  gm.attach(model->parameters());
  return trained(*model, model->named_parameters(), [&](int i) {
    auto recording = gm.record();
    const Tensor loss = Case<M>::loss((*model)(Case<M>::input(rows, i)), Case<M>::target(rows, i));
    gm.backward(loss);
    return loss.template item<double>();
  });
}

// Trains this rank's stages. `rows` counts the rows of all replicas.
template <class M> Trained trained_here(const PipelineOptions& options, int64_t rows) {
  manual_seed(5);
  Pipeline<M> pipe(make_f64<M>, Case<M>::input(2, 0), options);
  GradManager gm;
  pipe.attach(gm);
  const int64_t own = rows / pipe.grid().size("replica"), begin = pipe.grid().index("replica") * own;
  return trained(pipe.module(), pipe.named_parameters(), [&](int i) {
    return pipe.step(gm, narrow(Case<M>::input(rows, i), 0, begin, own),
                     narrow(Case<M>::target(rows, i), 0, begin, own), Case<M>::loss);
  });
}

// Returns the largest difference of trainings, relative to the largest element of the tensor.
inline double difference(const Trained& got, const Trained& want) {
  double worst = got.losses.size() == want.losses.size() && !got.state.empty() ? 0 : INFINITY;
  const auto compare = [&](const std::vector<double>& a, const std::vector<double>& b) {
    worst = std::max(worst, relative_difference(a, b));
  };
  compare(got.losses, want.losses);
  for (const auto& [name, values] : got.grads) compare(values, want.grads.at(name));
  for (const auto& [name, values] : got.state) compare(values, want.state.at(name));
  return worst;
}

}  // namespace gradus::dist
