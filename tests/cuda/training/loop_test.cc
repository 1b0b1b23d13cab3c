// Scores and training loops (train/) on the emulated GPU: sums are those of the CPU, and the host waits only
// when a log line is due.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/data/dataloader.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/train/evaluate.h"
#include "gradus/train/step.h"
#include "gradus/train/tally.h"
#include "gradus/train/training.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};
constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

// Rows with equal numbers, infinities and NaN, each with each of the classes as its target.
struct Rows {
  Tensor logits, target;
  Rows() {
    const std::vector<std::vector<float>> rows = {
        {1, 2, 3, 4, 5, 6, 7},
        {7, 6, 5, 4, 3, 2, 1},
        {1, 1, 1, 1, 1, 1, 1},
        {0, 2, 2, 0, 2, 2, 0},
        {kInf, 1, kInf, 0, 0, 0, 1},
        {-kInf, -kInf, 0, -kInf, -kInf, -kInf, -1},
        {1, kNaN, 2, 3, 0, 5, 6},
        {kNaN, 9, kNaN, 1, 1, 1, 1},
        {kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN},
        {-0.f, 0.f, -1, -0.f, 0, 0, 0},
    };
    std::vector<float> x;
    std::vector<int64_t> y;
    for (const auto& row : rows)
      for (size_t c = 0; c < row.size(); ++c) {
        x.insert(x.end(), row.begin(), row.end());
        y.push_back(int64_t(c));
      }
    const auto n = int64_t(y.size());
    logits = tensor(x, {n, 7}), target = tensor(y, {n});
  }
  data::Batch batch(Device d, int64_t padding) const {
    data::Batch b{.input = raw::to(logits, d), .target = raw::to(target, d), .padding = padding};
    b.indices.resize(size_t(target.size(0)));
    return b;
  }
};

TEST(Loop, ScoresAreTheCpus) {
  const Rows rows;
  for (const int64_t k : {1, 2, 3, 5, 7, 9})
    EXPECT_EQ(training::count_correct(raw::to(rows.logits, kCuda), raw::to(rows.target, kCuda), k),
              training::count_correct(rows.logits, rows.target, k))
        << k;
  manual_seed(1);
  const Tensor each = randn({rows.target.size(0)}), mean = scalar(1.25f, {.dtype = DType::kF32});
  for (const Tensor& loss : {each, mean}) {
    const auto score = [&](Device d) {
      const data::Batch b = rows.batch(d, 3);
      return training::score(raw::to(loss, d), raw::to(rows.logits, d), b, {.top5 = true});
    };
    const training::Sums expected = score(kCPU), given = score(kCuda);
    ASSERT_EQ(given.on_device.size(), 3u);
    EXPECT_EQ(given.seen, expected.seen);
    for (const char* name : {"accuracy", "accuracy_in_5"}) {
      EXPECT_TRUE(given.contains(name));
      EXPECT_EQ(given.sum(name), expected.sum(name)) << name;
    }
    // 67 additions in another order.
    EXPECT_NEAR(given.sum("loss"), expected.sum("loss"), 67 * 0x1p-53 * 67);
    EXPECT_EQ(given.read().on_device.size(), 0u);
    EXPECT_EQ(given.means().size(), 3u);
  }
}

TEST(Loop, AScoreWaitsForNobody) {
  const Rows rows;
  const Tensor logits = raw::to(rows.logits, kCuda), loss = raw::to(scalar(0.5f), kCuda);
  const data::Batch b = rows.batch(kCuda, 0);
  training::Tally tally;
  tally.add(training::score(loss, logits, b));
  tally.reduce();
  cuda::HostCallScope calls;
  for (int step = 0; step < 3; ++step) tally.add(training::score(loss, logits, b));
  raw::fill_(loss, 100);  // must not change the sums
  EXPECT_EQ(calls.total().waits, 0) << calls.table();
  EXPECT_EQ(calls.total().allocations, 0) << calls.table();
  EXPECT_EQ(calls.total().pageable_copies, 0) << calls.table();
  EXPECT_EQ(tally.reduce().mean("loss"), 0.5);
  EXPECT_EQ(calls.total().waits, 1) << calls.table();
  EXPECT_EQ(tally.total().seen, 4 * 70);
}

TEST(Loop, AnEpochOfManyStepsIsReadInParts) {
  training::Tally tally;
  cuda::HostCallScope calls;
  for (int step = 0; step < 1500; ++step)
    tally.add({.seen = 1, .on_device = {{"loss", full({}, step, {DType::kF64, kCuda})}}});
  EXPECT_EQ(calls.total().waits, 1) << calls.table();
  EXPECT_EQ(tally.reduce().sum("loss"), 1500 * 1499 / 2);
}

// Points, 16 to an epoch.
struct Points : data::Dataset {
  int64_t size() const override { return 16; }
  data::Sample get(int64_t i) const override {
    return {.input = tensor(std::vector<float>{float(i), 1}, {2}),
            .target = scalar(i % 2, {.dtype = DType::kI64})};
  }
};

struct Fit {
  explicit Fit(training::RunOptions options) : run(std::move(options)) {
    gm.attach(net.to(kCuda).parameters());
  }

  training::RunOptions run;
  nn::Linear net{{.in = 2, .out = 2}};
  data::DataLoader loader{Points(), {.batch_size = 4, .device = kCuda}};
  GradManager gm;
  optim::SGD opt{net.parameters(), {.lr = 0.01, .momentum = 0.9}};
  training::Training training{"fit", run, loader, {{"model", net}, {"optimizer_sgd", opt}}};
};

TEST(Loop, ARangeOfStepsWaitsAtItsLines) {
  Fit fit({.iterations = 12, .log_interval = 4});
  std::vector<cuda::HostCalls> calls_of = {{}};  // by step
  cuda::HostCallScope calls;
  for (training::Step& s : fit.training) {
    calls_of.push_back(calls.total());  // since the step before began
    calls.restart();
    auto recording = fit.gm.record();
    fit.gm.backward(s.log("loss", nn::cross_entropy(fit.net(s.batch().input), s.batch().target)));
    fit.opt.step().clear_grad();
    s.log("noise", s.randn({3}).numel() > 0 ? raw::to(scalar(0.5f), kCuda) : Tensor());
  }
  ASSERT_EQ(calls_of.size(), 13u);
  for (size_t step = 3; step < 12; ++step) {
    // The line of step 4 is written between the beginning of step 4 and that of step 5.
    EXPECT_EQ(calls_of[step + 1].waits, step % 4 == 0 ? 1 : 0) << step;
    EXPECT_EQ(calls_of[step + 1].pageable_copies, step % 4 == 0 ? 1 : 0) << step;
  }
  EXPECT_EQ(fit.training.recent().mean("noise"), 0.5);
  EXPECT_TRUE(std::isfinite(fit.training.recent().mean("loss")));
}

TEST(Loop, NaNEndsTheTrainingAtTheNextLine) {
  Fit fit({.iterations = 12, .log_interval = 4});
  int64_t last = 0;
  try {
    for (training::Step& s : fit.training) {
      last = s.number();
      s.log("loss", scalar(last == 6 ? kNaN : float(last), {DType::kF32, kCuda}));
    }
    FAIL() << "no error";
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("step 6: loss is NaN on rank 0; before it was 5"), std::string::npos)
        << e.what();
  }
  EXPECT_EQ(last, 8);
}

}  // namespace
}  // namespace gradus
