// The reducer against plain sums, on programs that a seed makes up.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {
namespace {

struct Step {
  enum Kind { kSync, kKept, kCanceled } kind = kSync;
  int drops = 0;                           // the rank that cancels
  std::vector<std::vector<int>> gradient;  // [rank][param]; 0: not reached
  bool clears = false;                     // drops grad() afterward
  bool holds = false;                      // somebody keeps the gradients
};

struct Program {
  explicit Program(uint64_t seed) : random(seed) {
    world = pick(1, 4);
    if (pick(0, 1)) op = ReduceOp::kMean;
    for (int i = pick(1, 9); i > 0; --i) sizes.push_back(pick(0, 40));
    options.bucket_cap_mb = pick(1, 600) / double(1 << 20);
    options.first_bucket_mb = pick(1, 100) / double(1 << 20);
    options.overlap = pick(0, 3);
    options.gradient_as_bucket_view = pick(0, 1);
    if (pick(0, 4) == 0)
      options.comm_hook = [](const GradBucket& bucket) {
        const Work work = all_reduce(bucket.buffer, {.group = bucket.group, .async_op = true});
        return [=] {
          work.wait();
          bucket.divide(bucket.buffer);
        };
      };
    options.check_divergence_every = pick(0, 2);
    options.check_finite = pick(0, 3) == 0;
    for (int i = pick(3, 10); i > 0; --i) {
      Step step;
      step.kind = Step::Kind(std::max(0, pick(-2, 2)));
      step.drops = pick(0, world - 1);
      step.clears = pick(0, 1);
      step.holds = pick(0, 3) == 0;
      for (int r = 0; r < world; ++r) {
        step.gradient.emplace_back();
        for (size_t p = 0; p < sizes.size(); ++p) step.gradient[r].push_back(std::max(0, pick(-3, 3)));
      }
      steps.push_back(std::move(step));
    }
  }
  int pick(int low, int high) { return low + int(random() % uint64_t(high - low + 1)); }

  // What grad() holds after each step, as a sum over ranks: -1 for none. All ranks have the same.
  std::vector<std::vector<int>> expected() const {
    std::vector<std::vector<int>> all;
    const size_t n = sizes.size();
    std::vector<int> kept(n), grad(n, -1);
    for (const Step& step : steps) {
      for (size_t p = 0; p < n && step.kind != Step::kCanceled; ++p) {
        for (const auto& of_rank : step.gradient) kept[p] += of_rank[p];
        if (step.kind == Step::kKept || kept[p] == 0) continue;
        grad[p] = std::max(grad[p], 0) + std::exchange(kept[p], 0);
      }
      all.push_back(grad);
      if (step.clears) grad.assign(n, -1);
    }
    return all;
  }

  std::mt19937_64 random;
  int world = 1;
  ReduceOp op = ReduceOp::kSum;
  std::vector<int64_t> sizes;
  AllReduceCallbackOptions options;
  std::vector<Step> steps;
};

void run(const Program& program) {
  std::vector<Tensor> params;
  for (int64_t n : program.sizes) params.push_back(ones({n}, {.dtype = DType::kF64}));
  auto cb = make_allreduce_cb(program.op, program.options);
  GradManager gm;
  gm.attach(params, cb);
  const auto expected = program.expected();
  std::vector<std::pair<Tensor, std::vector<double>>> held;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const Step& step = program.steps[s];
    {
      std::optional<NoSync> off;
      if (step.kind == Step::kKept) off.emplace(std::vector{cb});
      auto recording = gm.record();
      Tensor loss = scalar(0, {DType::kF64});
      for (size_t p = 0; p < params.size(); ++p)
        if (const int g = step.gradient[get_rank()][p]) loss = loss + sum(params[p]) * double(g);
      if (step.kind != Step::kCanceled || step.drops != get_rank()) {
        const bool reaches = autograd::is_tracked(loss);
        gm.backward(reaches ? TensorList(loss) : TensorList());
      }
    }
    for (size_t p = 0; p < params.size(); ++p) {
      const Tensor grad = params[p].grad();
      ASSERT_EQ(grad.defined(), expected[s][p] >= 0) << "step " << s << ", parameter " << p;
      if (!grad.defined()) continue;
      const double divisor = program.op == ReduceOp::kMean ? program.world : 1;
      EXPECT_THAT(grad.to_vector<double>(),
                  testing::Each(testing::DoubleNear(expected[s][p] / divisor, 1e-9)))
          << "step " << s << ", parameter " << p;
      if (step.holds && step.clears) held.emplace_back(grad, grad.to_vector<double>());
      if (step.clears) params[p].set_grad({});
    }
    for (const auto& [grad, was] : held)
      EXPECT_EQ(grad.to_vector<double>(), was) << "held since before step " << s;
  }
}

TEST(RandomPrograms, GetTheSumsOfAllRanks) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Program program(seed);
    run_ranks(program.world, [&] { run(program); }, {.timeout = Milliseconds(20'000)});
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gradus::dist
