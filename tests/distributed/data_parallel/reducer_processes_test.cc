// The all-reduce callback of data-parallel training (make_allreduce_cb) between three processes, once through
// shared memory and once through sockets. Each rank is a process of this program that runs a RankFunction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/rank_processes.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

// 12 parameters with 300,000 elements, in 10 buckets. On rank r, loss = sum over i != r of (r + 1) * (i + 1) *
// sum(params[i]). So the gradient of params[i] is (r + 1) * (i + 1) per element, and parameter r has no gradient
// on rank r, which counts as zeros in the mean over ranks. grad() accumulates over the steps.
struct Training {
  Training() {
    for (int i = 0; i < 12; ++i) params.push_back(ones({(i % 4 + 1) * 10'000}));
    cb = make_allreduce_cb(ReduceOp::kMean, {.bucket_cap_mb = 0.05, .first_bucket_mb = 0.01});
    gm.attach(params, cb);
  }
  void step() {
    auto recording = gm.record();
    Tensor loss = scalar(0);
    for (int i = 0; i < 12; ++i)
      if (i != get_rank()) loss = loss + sum(params[i]) * double((get_rank() + 1) * (i + 1));
    gm.backward(loss);
  }
  // Returns whether grad() is the sum of the mean gradients of `steps` steps.
  bool is_right(int steps) const {
    for (int i = 0; i < 12; ++i) {
      double want = 0;
      for (int r = 0; r < get_world_size(); ++r)
        if (r != i) want += (r + 1) * (i + 1);
      want *= steps / double(get_world_size());
      for (double g : params[i].grad().to_vector<double>())
        if (std::abs(g - want) > 1e-5 * want) return false;
    }
    return true;
  }
  std::vector<Tensor> params;
  std::shared_ptr<AllReduceCallback> cb;
  GradManager gm;
};

// Exit codes: 0, or 1 for a wrong gradient.
const RankFunction trains{"trains", [] {
                            join_job();
                            Training training;
                            for (int step = 1; step <= 5; ++step) {
                              training.step();
                              if (!training.is_right(step)) return 1;
                            }
                            destroy_process_group();
                            return 0;
                          }};

// Rank 1 is killed during its backward, once the reduced gradient of parameter 6 arrives. The other ranks may
// still complete that step, so they start another one. Exit codes: 0 if the error names rank 1; 1 if the error
// names another rank; 2 without an error.
const RankFunction loses_a_rank{"loses_a_rank", [] {
                                  join_job();
                                  Training training;
                                  training.gm.attach(training.params[6], [](const Tensor&, const Tensor& g) {
                                    if (get_rank() == 1) std::raise(SIGKILL);
                                    return g;
                                  });
                                  try {
                                    training.step();
                                    training.step();
                                  } catch (const DistributedError& e) {
                                    std::cout << e.what() << std::endl;
                                    return e.rank() == 1 ? 0 : 1;
                                  }
                                  return 2;
                                }};

// The parameter: whether ranks communicate through shared memory.
class Processes : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Reducer, Processes, testing::Bool());

TEST_P(Processes, GradientsAreTheMeanOverProcesses) {
  for (const RankEnd& end : run_processes("trains", 3, job_options(GetParam())))
    EXPECT_EQ(end.exit_code, 0) << end.output;
}

TEST_P(Processes, AProcessThatIsKilledInItsBackwardIsNamed) {
  const std::vector<RankEnd> ends = run_processes("loses_a_rank", 3, job_options(GetParam()));
  EXPECT_EQ(ends[1].signal, SIGKILL);
  for (int rank : {0, 2}) EXPECT_EQ(ends[rank].exit_code, 0) << ends[rank].output;
}

}  // namespace
}  // namespace gradus::dist
