// Pipelines whose stages are processes: through shared memory, and through sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/remote.h"
#include "gradus/tests/distributed/rank_processes.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

Tensor any(int64_t n, int seed) { return random_tensor({n}, DType::kF64, seed); }

// A micro-batch's way to the next stage, in a recording that is left open.
std::pair<Recording, Tensor> forward(GradManager& gm, const Tensor& x, const Tensor& w) {
  Recording recording = gm.record();
  const int rank = get_rank();
  const Tensor y = (rank == 0 ? x : remote_recv({.src_rank = rank - 1})) * w;
  Tensor loss;
  if (rank == get_world_size() - 1)
    loss = sum(y);
  else
    remote_send(y, {.dest_rank = rank + 1});
  return {std::move(recording).pause(), loss};
}

// Stages without a loss answer to those that have one.
TensorList roots_of(const Tensor& loss) { return loss.defined() ? TensorList(loss) : TensorList(); }

int run_pipeline() {
  join_job();
  for (const int64_t n : {3, 1 << 18}) {
    const Tensor w = any(n, get_rank());
    GradManager gm;
    gm.attach(w);
    std::vector<std::pair<Recording, Tensor>> in_flight;
    for (int k = 0; k < 3; ++k) in_flight.push_back(forward(gm, any(n, 10 + k), w));
    for (auto& [recording, loss] : in_flight) recording.backward(roots_of(loss));
    Tensor want = any(n, 10) + any(n, 11) + any(n, 12);
    for (int r = 0; r < get_world_size(); ++r)
      if (r != get_rank()) want = want * any(n, r);
    expect_near(w.grad(), want, 1e-12);

    // Gradients go through a collective of all stages.
    w.set_grad({});
    auto recording = gm.record();
    gm.backward(sum(functional::all_reduce(square(w))));
    expect_near(w.grad(), 2.0 * get_world_size() * w, 1e-12);
  }
  destroy_process_group();
  return testing::Test::HasFailure();
}
const RankFunction pipeline{"pipeline", run_pipeline};

int run_until_killed() {
  join_job();
  const Tensor w = any(3, get_rank());
  GradManager gm;
  gm.attach(w);
  auto [recording, loss] = forward(gm, any(3, 10), w);
  if (get_rank() == 2) raise(SIGKILL);
  try {
    recording.backward(roots_of(loss));
  } catch (const PeerError& e) {
    std::cout << e.what() << std::endl;
    return 0;
  }
  return 1;
}
const RankFunction killed{"killed", run_until_killed};

TEST(PipelineProcesses, GiveTheGradientsOfOneProcess) {
  for (const bool shared_memory : {true, false})
    for (const RankEnd& end : run_processes("pipeline", 3, job_options(shared_memory)))
      EXPECT_EQ(end.exit_code, 0) << end.output;
}

TEST(PipelineProcesses, AStageThatIsKilledIsNamedByTheOthers) {
  for (const bool shared_memory : {true, false}) {
    const std::vector<RankEnd> ends = run_processes("killed", 3, job_options(shared_memory));
    EXPECT_EQ(ends[2].signal, SIGKILL);
    for (int r : {0, 1}) {
      EXPECT_EQ(ends[r].exit_code, 0) << ends[r].output;
      EXPECT_THAT(ends[r].output, HasSubstr("while running backward of remote_send: [remote_send] rank 2"));
    }
  }
}

}  // namespace
}  // namespace gradus::dist
