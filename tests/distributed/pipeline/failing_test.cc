// The errors that all ranks of a pipeline get, within 2 s, when one rank throws, stops early or runs another
// step. They name the rank and the action, such as 1F0: stage 1, forward, micro-batch 0.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "gradus/autograd/graph/record.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

// Linear layers. The second may throw in the forward or backward of one call, or return a column less.
struct Fragile : nn::Layer {
  struct Middle : nn::Layer {
    using Layer::Layer;
    int calls = 0, throw_in_forward = -1, throw_in_backward = -1;
    bool is_narrow = false;
    nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
    Tensor forward(const Tensor& x) override {
      const int call = calls++;
      if (call == throw_in_forward) throw ValueError("Middle", "does not like it");
      const Tensor y = fc(x);
      const Tensor z = detach(y);
      if (Recorder r{"middle", y})
        r.record(z, wrt(y, [call, bad = throw_in_backward](const Tensor& dy) {
                   if (call == bad) throw ValueError("Middle", "does not like it");
                   return dy;
                 }));
      return is_narrow ? narrow(z, 1, 0, 5) : z;
    }
  };
  nn::Linear in{this, "in", {.in = 6, .out = 6}};
  Middle middle{this, "middle"};
  nn::Linear out{this, "out", {.in = 6, .out = 3}};
  Tensor forward(const Tensor& x) override { return out(middle(in(x))); }
};

// The error of a rank, and the time until it was thrown.
struct Heard {
  std::string text;
  double seconds = 0;
};

// Trains two steps on three ranks, a stage each. body(options) changes a rank's options; body(pipe, gm, step)
// replaces a step. Returns the ranks' errors.
template <class F> std::vector<Heard> hear(const F& body, PipelineOptions options = {.micro_batches = 4}) {
  std::vector<Heard> heard(3);
  options.cut_after = {"in", "middle"};
  try {
    run_ranks(3, [&] {
      Heard& mine = heard[get_rank()];
      PipelineOptions own = options;
      if constexpr (std::is_invocable_v<F, PipelineOptions&>) body(own);
      const auto begin = std::chrono::steady_clock::now();
      try {
        Pipeline<Fragile> pipe([] { return std::make_unique<Fragile>(); }, random_tensor({2, 6}), own);
        GradManager gm;
        pipe.attach(gm);
        for (int step = 0; step < 2; ++step) {
          if constexpr (std::is_invocable_v<F, Pipeline<Fragile>&, GradManager&, int>)
            body(pipe, gm, step);
          else
            pipe.step(gm, random_tensor({8, 6}), random_tensor({8, 3}), nn::mse_loss);
        }
        mine.text = "no error";
      } catch (const std::exception& e) {
        mine.text = e.what();
        mine.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return heard;
}

void train(Pipeline<Fragile>& pipe, GradManager& gm) {
  pipe.step(gm, random_tensor({8, 6}), random_tensor({8, 3}), nn::mse_loss);
}

TEST(FailingPipeline, AnExceptionIsNamedOnAllRanks) {
  for (const bool forward : {true, false})
    for (const int call : {0, 2, 5})
      for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1}) {
        const auto heard = hear(
            [&](Pipeline<Fragile>& pipe, GradManager& gm, int step) {
              auto& middle = pipe.module().middle;
              if (step == 0 && get_rank() == 1)
                // The first call traces the model.
                (forward ? middle.throw_in_forward : middle.throw_in_backward) = call + 1;
              train(pipe, gm);
              if (step == 1) barrier();  // a rank whose step is over gets the error here
            },
            {.schedule = schedule, .micro_batches = 4});
        const char* const backward = schedule == Schedule::kZeroBubbleH1 ? "I" : "B";
        const std::string action = concat(1, forward ? "F" : backward, call % 4);
        for (int rank = 0; rank < 3; ++rank) {
          EXPECT_THAT(heard[rank].text, HasSubstr("does not like it")) << rank;
          EXPECT_THAT(heard[rank].text, HasSubstr("in " + action)) << rank;
          EXPECT_THAT(heard[rank].text, HasSubstr(rank == 1 ? "Middle" : "rank 1 failed in its step"));
          EXPECT_LT(heard[rank].seconds, 2);
        }
      }
}

TEST(FailingPipeline, ATensorThatAStageRefusesIsNamedWithItsSender) {
  const auto heard = hear([](Pipeline<Fragile>& pipe, GradManager& gm, int step) {
    pipe.module().middle.is_narrow = step == 1;
    train(pipe, gm);
  });
  for (const Heard& h : heard) {
    EXPECT_THAT(h.text, HasSubstr("in 2F0, where rank 1 sent [2,5] in place of [2,6]: "));
    EXPECT_THAT(h.text, HasSubstr("[linear]"));
    EXPECT_LT(h.seconds, 2);
  }
}

// If broken: throws in the third micro-batch, and takes 300 ms to free what each micro-batch saved.
struct SlowToForget : nn::Layer {
  using Layer::Layer;
  int calls = 0;
  bool is_broken = false;
  nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
  Tensor forward(const Tensor& x) override {
    if (++calls == 4 && is_broken)  // the first call traces the model
      throw ValueError("SlowToForget", "does not like it");
    const Tensor y = fc(x);
    const Tensor z = detach(y);
    const std::shared_ptr<int> slow(new int, [slow = is_broken](int* p) {
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      delete p;
    });
    if (Recorder r{"slow", y}) r.record(z, wrt(y, [slow](const Tensor& dy) { return dy; }));
    return z;
  }
};

struct TwoStages : nn::Layer {
  nn::Linear first{this, "first", {.in = 6, .out = 6}};
  SlowToForget second{this, "second"};
  Tensor forward(const Tensor& x) override { return second(first(x)); }
};

// A failed step frees its recordings. The other replica must report the failure, not a missing backward.
TEST(FailingPipeline, TheOtherReplicaHearsTheFailureToo) {
  std::vector<std::string> heard(4);
  try {
    run_ranks(4, [&] {
      Pipeline<TwoStages> pipe(
          [] { return std::make_unique<TwoStages>(); }, random_tensor({2, 6}),
          {.stages = 2, .schedule = Schedule::kGPipe, .micro_batches = 4, .cut_after = {"first"}});
      pipe.module().second.is_broken = get_rank() == 3;
      GradManager gm;
      pipe.attach(gm);
      try {
        pipe.step(gm, random_tensor({8, 6}), random_tensor({8, 6}), nn::mse_loss);
      } catch (const std::exception& e) {
        heard[get_rank()] = e.what();
        throw;
      }
      barrier();
    });
  } catch (const std::exception&) {
  }
  for (const std::string& text : heard) {
    EXPECT_THAT(text, HasSubstr("does not like it"));
    EXPECT_THAT(text, HasSubstr("in 1F2"));
  }
}

TEST(FailingPipeline, RanksThatRunSomethingElseAreNamed) {
  const std::function<void(PipelineOptions&)> others[] = {
      [](PipelineOptions& o) { o.micro_batches = get_rank() == 1 ? 2 : 4; },
      [](PipelineOptions& o) { o.schedule = get_rank() == 2 ? Schedule::k1F1B : Schedule::kGPipe; },
  };
  for (const auto& other : others)
    for (const Heard& h : hear(other)) {
      EXPECT_THAT(h.text, HasSubstr("runs another step than rank"));
      EXPECT_THAT(h.text, HasSubstr("training by "));
      EXPECT_LT(h.seconds, 2);
    }
  const auto heard = hear([](Pipeline<Fragile>& pipe, GradManager& gm, int) {
    if (get_rank() == 0)
      pipe.eval_step(random_tensor({8, 6}), random_tensor({8, 3}), nn::mse_loss);
    else
      train(pipe, gm);
  });
  for (const Heard& h : heard) EXPECT_THAT(h.text, HasSubstr("runs another step than rank")) << h.text;
}

TEST(FailingPipeline, ARankThatStopsEarlyIsNamed) {
  for (int early = 0; early < 3; ++early) {
    const auto heard = hear([&](Pipeline<Fragile>& pipe, GradManager& gm, int step) {
      if (step == 0 || get_rank() != early) train(pipe, gm);
    });
    for (int rank = 0; rank < 3; ++rank)
      if (rank != early) {
        EXPECT_THAT(heard[rank].text, HasSubstr("rank " + std::to_string(early))) << heard[rank].text;
        EXPECT_LT(heard[rank].seconds, 2);
      }
  }
}

}  // namespace
}  // namespace gradus::dist
