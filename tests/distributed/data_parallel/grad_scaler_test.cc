// GradScaler over ranks: an infinity on one skips the step on all, and scales stay equal.
#include "gradus/optim/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/helpers.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/optim/optimizers/sgd.h"

namespace gradus::dist {
namespace {

using testing::Each;
using testing::ElementsAre;

// The result of body() on each rank.
template <class T, class Body> std::vector<T> on_ranks(int world, Body body) {
  std::vector<T> results(world);
  std::mutex mutex;
  run_ranks(world, [&] {
    T result = body();
    std::lock_guard lock(mutex);
    results[get_rank()] = std::move(result);
  });
  return results;
}

struct Outcome {
  std::vector<double> scales;  // after each step
  double value = 0;            // of the parameter at the end
  int64_t skipped = 0;
  bool operator==(const Outcome&) const = default;
};
// Four steps of SGD from 1 with the gradient 1, which is infinite on rank `bad` in step `at`.
Outcome train(int bad, int at, std::vector<Callback> callbacks, optim::GradScalerOptions options) {
  const Tensor w = ones({1});
  GradManager gm;
  gm.attach(w, std::move(callbacks));
  optim::SGD opt({w}, {.lr = 0.25});
  optim::GradScaler scaler(options);
  Outcome outcome;
  for (int i = 0; i < 4; ++i) {
    auto recording = gm.record();
    const double factor = get_rank() == bad && i == at ? std::numeric_limits<double>::infinity() : 1;
    scaler.backward(gm, sum(w) * factor);
    scaler.step(opt);
    opt.clear_grad();
    outcome.scales.push_back(scaler.scale());
  }
  outcome.value = w.item<double>();
  outcome.skipped = scaler.skipped_steps();
  return outcome;
}

const optim::GradScalerOptions kOptions{.init_scale = 8, .growth_interval = 2};
// The skipped step halves the scale; two good steps double it. The value is 1 - 3 * 0.25.
const Outcome kExpected{{8, 4, 4, 8}, 0.25, 1};

TEST(GradScalerOverRanks, AllSkipTogetherWithAveragedGradients) {
  for (const int world : {2, 4})
    EXPECT_THAT(on_ranks<Outcome>(
                    world, [&] { return train(world - 1, 1, {Callback(make_allreduce_cb())}, kOptions); }),
                Each(kExpected));
}

// Gradients are not reduced: the other ranks know of the infinity through `agree` only.
TEST(GradScalerOverRanks, AllSkipTogetherWithGradientsOfTheirOwn) {
  for (const int world : {2, 4})
    EXPECT_THAT(on_ranks<Outcome>(world,
                                  [] {
                                    optim::GradScalerOptions options = kOptions;
                                    options.agree = [](bool found) { return any_rank(found); };
                                    return train(0, 1, {}, options);
                                  }),
                Each(kExpected));
}

TEST(GradScalerOverRanks, APartOfTheRanksAgreesByItsGroup) {
  const auto outcomes = on_ranks<Outcome>(4, [] {
    const Group half = world().split(get_rank() / 2);
    optim::GradScalerOptions options = kOptions;
    options.agree = [half](bool found) { return any_rank(found, half); };
    return train(3, 1, {}, options);
  });
  const Outcome clean{{8, 16, 16, 32}, 0, 0};
  EXPECT_THAT(outcomes, ElementsAre(clean, clean, kExpected, kExpected));
}

TEST(GradScalerOverRanks, WhatNoSyncKeepsBackCounts) {
  const auto values = on_ranks<double>(2, [] {
    const Tensor w = ones({1});
    GradManager gm;
    const auto callback = make_allreduce_cb();
    gm.attach(w, callback);
    optim::SGD opt({w}, {.lr = 0.25});
    optim::GradScaler scaler(kOptions);
    for (int i = 0; i < 2; ++i) {
      {
        const auto kept_back = callback->no_sync();
        auto recording = gm.record();
        const bool bad = get_rank() == 1 && i == 0;
        scaler.backward(gm, sum(w) * (bad ? std::numeric_limits<double>::infinity() : 1.0));
      }
      auto recording = gm.record();
      scaler.backward(gm, sum(w));
      EXPECT_EQ(scaler.step(opt), i == 1);
      opt.clear_grad();
    }
    return w.item<double>();
  });
  EXPECT_THAT(values, Each(0.5));  // one step by 2 * 0.25
}

}  // namespace
}  // namespace gradus::dist
