// The gradient reducer on random programs against sums of integers; and one training under a simulated
// scheduler with random orders of events and killed ranks: gradients are sums over all ranks, or every rank
// gets an error.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/simulation/simulation.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {
namespace {

struct Step {
  enum Kind { kSync, kKept, kCanceled } kind = kSync;  // kKept: under no_sync; kCanceled: dropped on a rank
  int drops = 0;                                       // the rank that cancels
  std::vector<std::vector<int>> gradient;              // [rank][param]; 0: not reached
  bool clears = false;                                 // drops grad() afterward
  bool holds = false;                                  // the gradients are kept, and must not change
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
    options.rebuild_buckets = pick(0, 1);
  }
  int pick(int low, int high) { return low + int(random() % uint64_t(high - low + 1)); }

  // grad() of each parameter after each step, the same on all ranks: the sum over ranks, -1 if undefined.
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

// ---- in every order of events ----

constexpr int kWorld = 3;
constexpr uint64_t kSeeds = 60;

double grad_of(const Tensor& x) { return x.grad().defined() ? x.grad().item<double>() : 0; }

// Steps in which ranks reach different parameters, use no_sync, drop a recording, and end at different times.
void train(bool rebuild_buckets) {
  std::vector<Tensor> params;
  for (int i = 0; i < 4; ++i) params.push_back(ones({}, {.dtype = DType::kF64}));
  auto cb = make_allreduce_cb(
      ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .rebuild_buckets = rebuild_buckets});
  GradManager gm;
  gm.attach(params, cb);
  const int rank = get_rank();
  const auto step = [&](int k, bool drop = false) {
    auto recording = gm.record();
    Tensor loss = params[0] * (rank + 1);
    if (k % kWorld == rank) loss = loss + params[1] * 10;
    if (rank != 1) loss = loss * params[2];
    if (!drop) gm.backward(loss);
  };
  const auto expect = [&](std::vector<double> want) {
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(grad_of(params[i]), want[i]);
      params[i].set_grad({});
    }
  };
  for (int k = 0; k < 2; ++k) step(k);
  // Of params[2]: rank 0 has 1 + 10 in the first step and 1 in the second, rank 2 has 3 in both.
  expect({12, 20, 18, 0});
  step(2, rank == 2);
  expect({0, 0, 0, 0});
  {
    const NoSync off = cb->no_sync();
    step(3);
  }
  step(4);
  expect({12, 20, 18, 0});
  join({cb}, [&] {
    for (int k = 0; k < rank; ++k) step(5);  // 5 % 3 == 2
  });
  if (rank == 2) expect({5 + 3, 20, 26, 0});
}

// Parameter: messages_only, with rebuild_buckets; else shared memory, without.
class Simulated : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Reducer, Simulated, testing::Bool());

TEST_P(Simulated, GradientsAreThoseOfAllRanksInEveryOrderOfEvents) {
  for (uint64_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    const SimulationReport report =
        simulate(kWorld, {.seed = seed, .messages_only = GetParam()}, [] { train(GetParam()); });
    EXPECT_FALSE(report.hung) << "seed " << seed;
    for (const auto& error : report.errors)
      if (error) {
        try {
          std::rethrow_exception(error);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "seed " << seed << ": " << e.what();
        }
      }
  }
}

TEST_P(Simulated, ARankThatIsKilledIsAnErrorOnAllOthersAndNoHang) {
  int killed = 0;
  for (uint64_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    const SimulationReport report =
        simulate(kWorld, {.seed = seed, .kill = 1, .messages_only = GetParam()}, [] { train(GetParam()); });
    EXPECT_FALSE(report.hung) << "seed " << seed;
    if (report.killed < 0) continue;
    ++killed;
    for (int rank = 0; rank < kWorld; ++rank)
      if (rank != report.killed && report.errors[rank]) {
        try {
          std::rethrow_exception(report.errors[rank]);
        } catch (const DistributedError& e) {
          EXPECT_EQ(e.rank(), report.killed) << "seed " << seed << ": " << e.what();
        }
      }
  }
  EXPECT_GT(killed, int(kSeeds / 3));
}

}  // namespace
}  // namespace gradus::dist
