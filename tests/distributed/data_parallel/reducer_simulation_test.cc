// The reducer under a scheduler that a seed drives: whatever the order of events, gradients are those of all
// ranks, or every rank has an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/simulation/simulation.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {
namespace {

constexpr int kWorld = 3;
constexpr uint64_t kSeeds = 60;

double grad_of(const Tensor& x) { return x.grad().defined() ? x.grad().item<double>() : 0; }

// Steps in which ranks reach different parameters, keep, drop, and end at different times.
void train() {
  std::vector<Tensor> params;
  for (int i = 0; i < 4; ++i) params.push_back(ones({}, {.dtype = DType::kF64}));
  auto cb = make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
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

class Simulated : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Reducer, Simulated, testing::Bool());

TEST_P(Simulated, GradientsAreThoseOfAllRanksInEveryOrderOfEvents) {
  for (uint64_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    const SimulationReport report = simulate(kWorld, {.seed = seed, .messages_only = GetParam()}, train);
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
        simulate(kWorld, {.seed = seed, .kill = 1, .messages_only = GetParam()}, train);
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
