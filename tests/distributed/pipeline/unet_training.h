// Trains a small U-Net in a pipeline, with dropout, batch norm and clipping, to compare results bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {

constexpr int kUNetSteps = 5;

inline Tensor unet_input(int64_t rows, int step) {
  return random_tensor({rows, 2, 8, 8}, DType::kF32, 10 + step);
}
inline Tensor unet_target(int64_t rows, int step) { return unet_input(rows, step + 5); }

// For 1, 2, 4 and 6 stages.
inline std::vector<std::string> unet_cuts(int stages) {
  if (stages == 1) return {};
  if (stages == 2) return {"middle"};
  if (stages == 4) return {"down0", "norm", "up1"};
  return {"down0", "norm", "middle", "dropout", "up1"};
}

using UNetState = std::map<std::string, std::vector<double>>;

// Returns the state of all ranks together, by the model's names, and "losses": losses and gradient norms.
inline UNetState train_unet(int ranks, PipelineOptions options, std::optional<DType> amp = {}) {
  UNetState all;
  std::mutex mutex;
  options.stages = ranks;
  options.cut_after = unet_cuts(ranks * options.interleave);
  run_ranks(ranks, [&] {
    manual_seed(5);
    set_num_threads(1);
    Pipeline<UNet> pipe([] { return std::make_unique<UNet>(); }, unet_input(2, 0), options);
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    const auto loss = [](const Tensor& y, const Tensor& t) { return nn::mse_loss(y, t); };
    const auto scope = autocast(amp.value_or(DType::kBF16), {.enabled = amp.has_value()});
    std::vector<double> losses;
    for (int i = 0; i < kUNetSteps; ++i) {
      losses.push_back(pipe.step(gm, unet_input(13, i), unet_target(13, i), loss));
      losses.push_back(pipe.clip_grad_norm_(0.1));
      opt.step().clear_grad();
    }
    pipe.eval();
    losses.push_back(pipe.eval_step(unet_input(7, 9), unet_target(7, 9), loss));
    const std::lock_guard lock(mutex);
    const auto [it, fresh] = all.emplace("losses", losses);
    EXPECT_EQ(it->second, losses);
    for (const auto& [name, x] : pipe.module().state_dict())
      if (x.device() == kCPU) all[name] = x.template to_vector<double>();
  });
  return all;
}

// Expects these bits from each of the schedules on each number of ranks.
inline void expect_unet(const UNetState& want, PipelineOptions options, const std::vector<int>& ranks,
                        const std::vector<Schedule>& schedules = {Schedule::kGPipe, Schedule::k1F1B,
                                                                  Schedule::kZeroBubbleH1},
                        std::optional<DType> amp = {}) {
  for (const Schedule schedule : schedules)
    for (const int n : ranks) {
      options.schedule = schedule;
      EXPECT_EQ(train_unet(n, options, amp), want)
          << name_of(schedule) << " P " << n << " M " << options.micro_batches << ", recomputation "
          << int(options.recompute) << ' ' << options.recompute_every;
    }
}
// The same of schedules with two stages on each of three ranks.
inline void expect_interleaved_unet(const UNetState& want, PipelineOptions options) {
  options.interleave = 2;
  expect_unet(want, options, {3}, {Schedule::kInterleaved1F1B, Schedule::kZeroBubbleV});
}

}  // namespace gradus::dist
