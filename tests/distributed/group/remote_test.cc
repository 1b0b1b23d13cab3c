// remote_send and remote_recv, differentiable messages: values and gradients (first and second order) of
// pipelines of stages against the same program in one process, to 1e-12 (1e-10) in f64; missing gradients,
// and errors. //tests/cuda/ranks runs the tests with "Device" in their names on emulated GPUs.
#include "gradus/distributed/group/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/simulation/simulation.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/distributed/late.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

Tensor any(const Shape& shape, int seed, DType dtype = DType::kF64) {
  return random_tensor(shape, dtype, 100 + seed);
}

// --- a pipeline of stages ---

Tensor weight_of(int stage) { return any({3}, 200 + stage); }
Tensor run_stage(const Tensor& h, const Tensor& w) { return sin(h * w) + h; }
Tensor micro_batch(int k) { return any({k + 1, 3}, k); }  // every one has another shape
Tensor loss_of(const Tensor& y) { return sum(square(y)); }

// The stages' gradients in one process.
std::vector<Tensor> joint_gradients(int stages, int micro_batches) {
  std::vector<Tensor> weights;
  for (int s = 0; s < stages; ++s) weights.push_back(weight_of(s));
  return autograd::grad(
      [&](const std::vector<Tensor>& w) {
        Tensor total = zeros({}, {.dtype = DType::kF64});
        for (int k = 0; k < micro_batches; ++k) {
          Tensor h = micro_batch(k);
          for (int s = 0; s < stages; ++s) h = run_stage(h, w[s]);
          total = total + loss_of(h);
        }
        return total;
      },
      weights);
}

// One rank's stage; a micro-batch goes forward, and later backward, as a recording of its own.
class Stage {
 public:
  Stage() : w_(weight_of(get_rank())) { gm_.attach(w_); }

  void forward(int k) {
    Recording recording = gm_.record();
    const Tensor h = get_rank() == 0 ? micro_batch(k) : remote_recv({.src_rank = get_rank() - 1});
    const Tensor y = run_stage(h, w_);
    Tensor loss;
    if (get_rank() == get_world_size() - 1)
      loss = loss_of(y);
    else
      remote_send(y, {.dest_rank = get_rank() + 1});
    in_flight_.push_back({std::move(recording).pause(), loss});
  }
  // Stages without a loss call backward without roots; their gradients arrive from the next stage.
  static TensorList roots_of(const Tensor& loss) { return loss.defined() ? TensorList(loss) : TensorList(); }
  void backward_oldest() {
    in_flight_.front().first.backward(roots_of(in_flight_.front().second));
    in_flight_.pop_front();
  }
  void backward_newest() {
    in_flight_.back().first.backward(roots_of(in_flight_.back().second));
    in_flight_.pop_back();
  }
  void expect_gradient(int micro_batches) const {
    expect_near(w_.grad(), joint_gradients(get_world_size(), micro_batches)[get_rank()], 1e-12);
  }

 private:
  Tensor w_;
  GradManager gm_;
  std::deque<std::pair<Recording, Tensor>> in_flight_;
};

TEST(Pipeline, OneForwardOneBackwardKeepsSeveralMicroBatchesInFlight) {
  for (int stages = 2; stages <= 4; ++stages)
    for (int micro_batches : {1, 3, 6})
      run_ranks(stages, [=] {
        Stage stage;
        const int warm_up = std::min(micro_batches, stages - get_rank());
        for (int k = 0; k < warm_up; ++k) stage.forward(k);
        for (int k = warm_up; k < micro_batches; ++k) {
          stage.backward_oldest();
          stage.forward(k);
        }
        for (int k = 0; k < warm_up; ++k) stage.backward_oldest();
        stage.expect_gradient(micro_batches);
      });
}

TEST(Pipeline, MicroBatchesMayEndInAnotherOrderOnEachStage) {
  run_ranks(3, [] {
    Stage stage;
    for (int k = 0; k < 4; ++k) stage.forward(k);
    // The last stage ends the newest one first. The first waits for the oldest meanwhile.
    for (int k = 0; k < 4; ++k) get_rank() == 0 ? stage.backward_oldest() : stage.backward_newest();
    stage.expect_gradient(4);
  });
}

TEST(Pipeline, WorksThroughMessagesAndOnSeveralHosts) {
  for (const RunRanksOptions& options : {RunRanksOptions{.messages_only = true}, RunRanksOptions{.hosts = 3}})
    run_ranks(
        3,
        [] {
          Stage stage;
          for (int k = 0; k < 3; ++k) stage.forward(k);
          for (int k = 0; k < 3; ++k) stage.backward_oldest();
          stage.expect_gradient(3);
        },
        options);
}

// In every order of events and for any killed rank, ranks get right gradients or an error.
TEST(Pipeline, UnderManySchedulesEndsWithGradientsOrErrors) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const SimulationOptions options{
        .seed = seed, .kill = seed % 3 ? 0.0 : 1.0, .messages_only = seed % 2 == 1};
    const SimulationReport report = simulate(3, options, [] {
      Stage stage;
      for (int k = 0; k < 2; ++k) stage.forward(k);
      stage.backward_oldest();
      stage.forward(2);
      for (int k = 0; k < 2; ++k) get_rank() == 0 ? stage.backward_oldest() : stage.backward_newest();
      functional::all_reduce(weight_of(0));
      stage.expect_gradient(3);
    });
    ASSERT_FALSE(report.hung) << "seed " << seed;
    for (int rank = 0; rank < 3; ++rank) {
      if (!report.errors[rank] || rank == report.killed) continue;
      EXPECT_GE(report.killed, 0) << "seed " << seed;
      EXPECT_THROW(std::rethrow_exception(report.errors[rank]), DistributedError) << "seed " << seed;
    }
  }
}

// Each stage on a device of its own.
TEST(Pipeline, TakesTensorsOfEveryDevice) {
  for (int stages = 2; stages <= 3; ++stages)
    run_ranks(stages, [] {
      const Device device = queued_device(get_rank() > 0);
      const int rank = get_rank(), last = get_world_size() - 1;
      const Tensor w = late(weight_of(rank), device);
      GradManager gm;
      gm.attach(w);
      for (int k = 0; k < 3; ++k) {
        auto recording = gm.record();
        const Tensor h =
            rank == 0 ? late(micro_batch(k), device) : remote_recv({.src_rank = rank - 1, .device = device});
        EXPECT_EQ(h.device(), device);
        const Tensor y = run_stage(h, w);
        if (rank < last) {
          remote_send(y, {.dest_rank = rank + 1});
          gm.backward();
        } else {
          gm.backward(loss_of(y));
        }
      }
      EXPECT_EQ(w.grad().device(), device);
      expect_near(w.grad(), joint_gradients(get_world_size(), 3)[size_t(rank)], 1e-12);
    });
  const Device meta = Device::parse("meta");
  run_ranks(2, [&] {
    expect_error<DeviceError>([&] { remote_recv({.src_rank = 1 - get_rank(), .device = meta}); },
                              {"[remote_recv]", "meta"});
    expect_error<DeviceError>(
        [&] { remote_send(empty({1}, {.device = meta}), {.dest_rank = 1 - get_rank()}); },
        {"[remote_send] x", "meta"});
  });
}

// The message is a copy of the tensor: a later write does not change it.
TEST(Remote, SendsWhatADeviceHasWrittenSoFar) {
  run_ranks(2, [] {
    const Device device = queued_device(0);
    if (get_rank() == 0) {
      const Tensor x = late(any({5}, 1), device);
      remote_send(x, {.dest_rank = 1});
      raw::fill_(x, 0);
    } else {
      const Tensor y = remote_recv({.src_rank = 0, .device = device});
      EXPECT_EQ(y.device(), device);
      expect_near(y, any({5}, 1), 0);
    }
  });
}

// --- one message ---

TEST(Remote, TakesMegEnginesShapesAndAllFloatingDtypes) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{2, 3}, Shape{8, 10}, Shape{99, 77}, Shape{0, 2}})
      run_ranks(2, [=] {
        const Tensor x = to(any(shape, 1), dtype);
        GradManager gm;
        auto recording = gm.attach(x).record();
        if (get_rank() == 0) {
          remote_send(x * 2, {.dest_rank = 1});
          gm.backward();
          expect_near(x.grad(), full_like(x, 8), 0);
        } else {
          const Tensor y = remote_recv({.src_rank = 0});
          EXPECT_EQ(y.dtype(), dtype);
          expect_near(y, x * 2, 0);
          gm.backward(sum(y * 4));
          EXPECT_FALSE(x.grad().defined());
        }
      });
}

TEST(Remote, CarriesIntegersAndWhatNeedsNoGradient) {
  run_ranks(2, [] {
    const Tensor w = any({2}, 1);
    GradManager gm;
    auto recording = gm.attach(w).record();
    if (get_rank() == 0) {
      remote_send(tensor({int64_t(3), int64_t(-4)}), {.dest_rank = 1});
      remote_send(detach(w), {.dest_rank = 1});
      remote_send(transpose(any({2, 3}, 5), 0, 1), {.dest_rank = 1});
    } else {
      EXPECT_THAT(remote_recv({.src_rank = 0}).to_vector<int64_t>(), testing::ElementsAre(3, -4));
      EXPECT_FALSE(autograd::is_tracked(remote_recv({.src_rank = 0})));
      expect_near(remote_recv({.src_rank = 0}), transpose(any({2, 3}, 5), 0, 1), 0);
    }
    gm.backward(sum(w));
  });
}

TEST(Remote, ImagesKeepTheirLayout) {
  run_ranks(2, [] {
    const Tensor x = channels_last(any({2, 3, 4, 5}, 1));
    if (get_rank() == 0) return remote_send(x, {.dest_rank = 1});
    const Tensor y = remote_recv({.src_rank = 0});
    EXPECT_TRUE(y.is_channels_last());
    expect_near(y, x, 0);
  });
}

TEST(Remote, AMessageIsWhatItWasWhenItWasSent) {
  run_ranks(2, [] {
    const Shape large{1 << 20};
    if (get_rank() == 0) {
      const Tensor x = full(large, 1);
      remote_send(x, {.dest_rank = 1});
      fill_(x, 2);  // and this rank ends at once
    } else {
      EXPECT_EQ(sum(remote_recv({.src_rank = 0})).item<float>(), 1 << 20);
    }
  });
}

TEST(Remote, BothDirectionsAtOnceDoNotWaitForEachOther) {
  for (const int64_t n : {3, 1 << 19})
    run_ranks(2, [=] {
      const int other = 1 - get_rank();
      const Tensor x = any({n}, get_rank());
      GradManager gm;
      gm.attach(x);
      for (int step = 0; step < 3; ++step) {
        auto recording = gm.record();
        remote_send(x, {.dest_rank = other});
        const Tensor y = remote_recv({.src_rank = other});
        gm.backward(sum(x * y));
      }
      expect_near(x.grad(), 3 * 2 * any({n}, other), 1e-12);  // both losses contain the product
    });
}

TEST(Remote, AConnectionMaySkipAStage) {
  run_ranks(3, [] {
    const Tensor x = any({4}, 0), w = any({4}, 1);
    GradManager gm;
    auto recording = gm.attach(get_rank() == 0 ? x : w).record();
    if (get_rank() == 0) {
      remote_send(square(x), {.dest_rank = 1});
      remote_send(x, {.dest_rank = 2});
      gm.backward();
      expect_near(x.grad(), 3 * square(x) * w, 1e-12);
    } else if (get_rank() == 1) {
      remote_send(remote_recv({.src_rank = 0}) * w, {.dest_rank = 2});
      gm.backward();
      expect_near(w.grad(), square(x) * x, 1e-12);
    } else {
      const Tensor skipped = remote_recv({.src_rank = 0}), h = remote_recv({.src_rank = 1});
      gm.backward(sum(skipped * h));
    }
  });
}

TEST(Remote, ARoundTripReachesTheSendersOwnLoss) {
  run_ranks(2, [] {
    const Tensor x = any({4}, 0), w = any({4}, 1);
    GradManager gm;
    auto recording = gm.attach(get_rank() == 0 ? x : w).record();
    if (get_rank() == 0) {
      remote_send(x, {.dest_rank = 1});
      gm.backward(sum(x * remote_recv({.src_rank = 1})));
      expect_near(x.grad(), 2 * x * w, 1e-12);
    } else {
      remote_send(remote_recv({.src_rank = 0}) * w, {.dest_rank = 0});
      gm.backward();
      expect_near(w.grad(), x * x, 1e-12);
    }
  });
}

TEST(Remote, GroupsHaveMessagesOfTheirOwn) {
  run_ranks(3, [] {
    const Group pair = new_group({2, 0});
    if (get_rank() == 1) return;
    const Tensor x = any({2}, 0);
    GradManager gm;
    auto recording = gm.attach(x).record();
    if (get_rank() == 0) {
      remote_send(x, {.dest_rank = 2});
      remote_send(2 * x, {.dest_rank = 2, .group = pair});
      gm.backward();
      expect_near(x.grad(), full_like(x, 1 + 2 * 10), 1e-12);
    } else {
      const Tensor twice = remote_recv({.src_rank = 0, .group = pair}), once = remote_recv({.src_rank = 0});
      expect_near(twice, 2 * once, 0);
      gm.backward(sum(once) + 10 * sum(twice));
    }
  });
}

TEST(Remote, AResultThatIsKeptDoesNotKeepTheGroup) {
  run_ranks(2, [] {
    const Ref<internal::GroupState> group(&Group().state());
    const uint32_t before = group->use_count();
    const Tensor x = any({3}, 0);
    GradManager gm;
    auto recording = gm.attach(x).record();
    remote_send(x, {.dest_rank = 1 - get_rank()});
    const Tensor y = remote_recv({.src_rank = 1 - get_rank()});
    EXPECT_GT(group->use_count(), before);
    gm.backward(sum(y));
    EXPECT_EQ(group->use_count(), before);
  });
}

// --- no gradient ---

// Expects that the sender gets no gradient if rank 1 runs `receiver`.
void expect_none(const std::function<void()>& receiver) {
  run_ranks(2, [&] {
    if (get_rank() == 1) return receiver();
    const Tensor x = any({2}, 0);
    GradManager gm;
    gm.attach(x);
    for (int step = 0; step < 2; ++step) {
      auto recording = gm.record();
      remote_send(x, {.dest_rank = 1});
      gm.backward();
      EXPECT_FALSE(x.grad().defined());
    }
  });
}

TEST(RemoteWithoutGradient, WhenTheReceiverDoesNotRecord) {
  expect_none([] {
    EXPECT_FALSE(autograd::is_tracked(remote_recv({.src_rank = 0})));
    GradManager gm;
    auto recording = gm.record();
    const auto off = no_record();
    remote_recv({.src_rank = 0});
  });
}

TEST(RemoteWithoutGradient, WhenTheLossDoesNotReachIt) {
  expect_none([] {
    const Tensor w = any({2}, 1);
    GradManager gm;
    gm.attach(w);
    for (int step = 0; step < 2; ++step) {
      auto recording = gm.record();
      remote_recv({.src_rank = 0}) * w;
      step == 0 ? gm.backward(sum(w)) : gm.backward();
    }
  });
}

TEST(RemoteWithoutGradient, WhenTheRecordingEndsWithoutABackward) {
  expect_none([] {
    GradManager gm;
    {
      auto recording = gm.record();
      remote_recv({.src_rank = 0});
    }
    auto recording = gm.record();
    const Tensor y = remote_recv({.src_rank = 0});
    gm.release();
  });
}

TEST(RemoteWithoutGradient, WhenTheSenderReleasesTheAnswerIsDropped) {
  run_ranks(2, [] {
    const Tensor x = any({2}, 0);
    GradManager gm;
    gm.attach(x);
    for (int step = 0; step < 6; ++step) {
      auto recording = gm.record();
      if (get_rank() == 0) {
        remote_send(x * step, {.dest_rank = 1});
        if (step % 2 == 0)
          gm.release();
        else
          gm.backward();
      } else {
        gm.backward(sum(remote_recv({.src_rank = 0})));
      }
    }
    if (get_rank() == 0) expect_near(x.grad(), full_like(x, 1 + 3 + 5), 1e-12);
  });
}

// --- several managers, higher orders ---

TEST(Remote, GradientsOfGradientsCrossRanks) {
  const Tensor x = any({2, 3}, 7);
  for (int stages = 2; stages <= 4; ++stages) {
    std::vector<Tensor> weights;
    for (int s = 0; s < stages; ++s) weights.push_back(weight_of(s));
    const auto loss = [&](const std::vector<Tensor>& w) {
      Tensor h = x;
      for (int s = 0; s < stages; ++s) h = run_stage(h, w[s]);
      return loss_of(h);
    };
    const std::vector<Tensor> want = autograd::grad(
        [&](const std::vector<Tensor>& w) {
          Tensor total = zeros({}, {.dtype = DType::kF64});
          for (const Tensor& g : autograd::grad(loss, w)) total = total + sum(square(g));
          return total;
        },
        weights);
    run_ranks(stages, [&] {
      const int rank = get_rank();
      const Tensor w = weight_of(rank);
      GradManager outer, inner;
      outer.attach(w);
      inner.attach(w);
      auto outer_recording = outer.record();
      auto inner_recording = inner.record();
      const Tensor h = rank == 0 ? x : remote_recv({.src_rank = rank - 1});
      const Tensor y = run_stage(h, w);
      if (rank < stages - 1) {
        remote_send(y, {.dest_rank = rank + 1});
        inner.backward();
      } else {
        inner.backward(loss_of(y));
      }
      const Tensor g = w.grad();
      w.set_grad({});
      outer.backward(sum(square(g)));
      expect_near(w.grad(), want[rank], 1e-10);
    });
  }
}

// --- misuse ---

TEST(RemoteErrors, AStageWhoseBackwardThrowsIsNamedOnAllRanks) {
  const auto errors = errors_of(3, [] {
    const Tensor w = weight_of(get_rank());
    GradManager gm;
    gm.attach(w, [](const Tensor&, const Tensor& g) -> Tensor {
      if (get_rank() == 2) throw ValueError("my_callback", "the stage is on fire");
      return g;
    });
    auto recording = gm.record();
    const Tensor h = get_rank() == 0 ? w : remote_recv({.src_rank = get_rank() - 1}) * w;
    if (get_rank() == 2) return gm.backward(sum(h));
    remote_send(h, {.dest_rank = get_rank() + 1});
    gm.backward();
  });
  EXPECT_THAT(errors[2], HasSubstr("on fire"));
  for (int r : {0, 1}) {
    EXPECT_THAT(errors[r], HasSubstr("rank 2 failed in its backward: "));
    EXPECT_THAT(errors[r], HasSubstr("on fire"));
  }
}

TEST(RemoteErrors, AMessageThatDoesNotComeNamesItsSender) {
  const auto errors = errors_of(2,
                                [] {
                                  if (get_rank() == 1)
                                    remote_recv({.src_rank = 0, .timeout = Milliseconds(100)});
                                  else
                                    remote_recv({.src_rank = 1});
                                },
                                {.timeout = Milliseconds(5000)});
  EXPECT_THAT(errors[1], HasSubstr("[remote_recv] rank 0"));
}

TEST(RemoteErrors, ASenderThatLeavesIsNamed) {
  const auto errors = errors_of(2, [] {
    if (get_rank() == 1) remote_recv({.src_rank = 0});
  });
  EXPECT_THAT(errors[1], HasSubstr("rank 0"));
}

TEST(RemoteErrors, AnotherNumberOfRecordingsNamesBothSides) {
  for (const std::string& e : errors_of(2, [] {
         const Tensor x = any({2}, 0);
         GradManager gm, other;
         auto recording = gm.attach(x).record();
         if (get_rank() == 0) {
           remote_send(x, {.dest_rank = 1});
           gm.backward();
         } else {
           auto second = other.record();
           remote_recv({.src_rank = 0});
         }
       })) {
    EXPECT_THAT(e, HasSubstr("rank 0 sent f64[2] with 1 open recordings, rank 1 received it with 2"));
  }
}

TEST(RemoteErrors, WrongRanksAndArguments) {
  EXPECT_THROW(remote_send(any({1}, 0), {.dest_rank = 0}), ValueError);
  run_ranks(2, [] {
    EXPECT_THROW(remote_send(any({1}, 0), {.dest_rank = get_rank()}), ValueError);
    EXPECT_THROW(remote_recv({.src_rank = 2}), ValueError);
    EXPECT_THROW(remote_send(Tensor(), {.dest_rank = 1 - get_rank()}), ValueError);
    const Tensor w = any({2}, 0);
    GradManager gm;
    auto recording = gm.attach(w).record();
    EXPECT_THROW(autograd::checkpoint(
                     [](const Tensor& x) {
                       remote_send(x, {.dest_rank = 1 - get_rank()});
                       return x;
                     },
                     w),
                 StateError);
  });
}

}  // namespace
}  // namespace gradus::dist
