// dist::join, for training loops of different lengths (PyTorch's Join): a rank without data takes part in the
// collectives of the others with zeros. Ranks are threads.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/joinable.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/layers/linear.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using V = std::vector<double>;
V values(const Tensor& x) { return x.to_vector<double>(); }
Tensor f64(std::initializer_list<double> v) { return tensor(v); }
void on_ranks(int world, const std::function<void()>& body) {
  run_ranks(world, body, {.timeout = Milliseconds(20'000)});
}

// Gradient descent with learning rate 1. A step's gradient on a rank is rank + 1; `log` has the reduced
// gradients of x.
struct Walk {
  explicit Walk(AllReduceCallbackOptions options = {}, ReduceOp op = ReduceOp::kMean)
      : cb(make_allreduce_cb(op, std::move(options))) {
    gm.attach({x, y}, cb);
  }
  void step(bool with_y = false) {
    auto recording = gm.record();
    gm.backward(sum(with_y ? x + y : x) * (get_rank() + 1));
    log.push_back(values(x.grad())[0]);
    x.storage()->bump_version();
    x.mutable_data<double>()[0] -= log.back();
    x.set_grad({});
  }
  Tensor x = f64({0}), y = f64({0});
  std::shared_ptr<AllReduceCallback> cb;
  GradManager gm;
  V log;
};

// Rank r has 2 + r steps.
TEST(Join, ARankThatHasEndedCountsAsZerosInTheMeanByDefault) {
  on_ranks(3, [] {
    Walk walk;
    join({walk.cb}, [&] {
      for (int i = 0; i < 2 + get_rank(); ++i) walk.step();
    });
    const V all = {2, 2, 5 / 3., 3 / 3.};
    EXPECT_THAT(walk.log, testing::ElementsAreArray(all.begin(), all.begin() + 2 + get_rank()));
    EXPECT_THAT(values(walk.x), Each(testing::DoubleEq(-(2 + 2 + 5 / 3. + 1))))
        << "as on the rank that went on";
  });
}

TEST(Join, TheMeanMayCountOnlyThoseThatGoOn) {
  for (bool hook : {false, true})
    on_ranks(3, [&] {
      AllReduceCallbackOptions options;
      if (hook)
        options.comm_hook = [](const GradBucket& bucket) {
          const Work work = all_reduce(bucket.buffer, {.group = bucket.group, .async_op = true});
          return [=] {
            work.wait();
            mul_(bucket.buffer, 1.0 / bucket.divisor);
          };
        };
      Walk walk(options);
      const auto body = [&] {
        for (int i = 0; i < 2 + get_rank(); ++i) walk.step();
      };
      join({walk.cb}, body, {.divide_by_initial_world_size = false});
      const V all = {2, 2, 2.5, 3};
      EXPECT_THAT(walk.log, testing::ElementsAreArray(all.begin(), all.begin() + 2 + get_rank()));
      EXPECT_THAT(values(walk.x), ElementsAre(-9.5));
    });
}

TEST(Join, WorksForSumsStaticGraphsNoSyncAndRanksWithoutAnyData) {
  for (bool static_graph : {false, true})
    on_ranks(3, [&] {
      Walk walk({.static_graph = static_graph}, ReduceOp::kSum);
      walk.step();  // the first step fixes the static graph
      const Tensor extra = f64({double(get_rank())});
      join({walk.cb},
           [&] {
             if (get_rank() == 1) return;
             for (int i = 0; i < 1 + get_rank(); ++i) {
               {
                 const NoSync off = walk.cb->no_sync();
                 auto recording = walk.gm.record();
                 walk.gm.backward(sum(walk.x));
               }
               walk.step();
             }
           },
           {}, {extra});
      if (get_rank() == 2) {
        EXPECT_THAT(walk.log, ElementsAre(6, 6, 4, 4));
      }
      EXPECT_THAT(values(walk.x), ElementsAre(-20));
      EXPECT_THAT(values(extra), ElementsAre(2)) << "that of the rank that went on longest";
    });
}

TEST(Join, LoopsOfOneLengthChangeNothing) {
  on_ranks(2, [] {
    Walk walk;
    for (int epoch = 0; epoch < 2; ++epoch)
      join({walk.cb}, [&] {
        for (int i = 0; i < 3; ++i) walk.step();
      });
    EXPECT_THAT(walk.log, Each(1.5));
    walk.step();
    EXPECT_THAT(walk.log, testing::SizeIs(7));
  });
}

TEST(Join, InAGroupOfOneAndDisabledItRunsTheBody) {
  Walk walk;
  join({walk.cb}, [&] { walk.step(); });
  EXPECT_THAT(walk.log, ElementsAre(1));
  on_ranks(2, [] {
    Walk walk;
    join({walk.cb}, [&] { walk.step(); }, {.enable = false});
    EXPECT_THAT(walk.log, ElementsAre(1.5));
  });
}

// A rank without data receives from the others which callback they use next.
TEST(Join, ServesSeveralCallbacks) {
  on_ranks(3, [] {
    Walk d, g;
    join({d.cb, g.cb}, [&] {
      for (int i = 0; i < 1 + get_rank(); ++i) {
        d.step();
        if (i % 2) d.step(true);
        g.step();
      }
    });
    EXPECT_THAT(values(d.x), Each(testing::DoubleNear(-(2 + 2 * 5 / 3. + 1), 1e-12)));
    EXPECT_THAT(values(g.x), Each(testing::DoubleNear(-(2 + 5 / 3. + 1), 1e-12)));
  });
}

TEST(Join, ADroppedRecordingCancelsTheStepUnderItToo) {
  on_ranks(3, [] {
    Walk walk;
    join({walk.cb}, [&] {
      for (int i = 0; i < 2 + get_rank(); ++i) {
        if (i == 2) {
          auto recording = walk.gm.record();
          if (get_rank() == 2) walk.gm.backward(sum(walk.x) * 100);  // rank 1 drops the recording
        } else {
          walk.step();
        }
      }
    });
    EXPECT_THAT(values(walk.x), Each(testing::DoubleEq(-5)));
    if (get_rank() == 2) {
      EXPECT_THAT(walk.log, ElementsAre(2, 2, 1));
    }
  });
}

TEST(Join, MayEndAllWithTheFirstThatHasNoMoreData) {
  const auto errors = errors_of(3, [] {
    Walk walk;
    join({walk.cb},
         [&] {
           for (int i = 0; i < (get_rank() == 1 ? 1 : 4); ++i) walk.step();
         },
         {.throw_on_early_termination = true});
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 has no more data")));
}

// Ranks receive the end at different times, with different numbers of buckets in flight; all can continue.
TEST(Join, AnEarlyEndIsTheSameForSlowAndFastRanks) {
  on_ranks(3, [] {
    Walk walk({.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
    GradManager slow;
    slow.attach({walk.x, walk.y}, [](const Tensor&, const Tensor& g) {
      if (get_rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return g;
    });
    slow.attach({walk.x, walk.y}, walk.cb);
    const auto step = [&] {
      auto recording = slow.record();
      slow.backward(sum(walk.x * 2 + walk.y));
    };
    for (int ends = 1; ends < 3; ++ends) {
      const auto body = [&] {
        if (get_rank() != ends) step();
      };
      EXPECT_THROW(join({walk.cb}, body, {.throw_on_early_termination = true}), PeerError);
      EXPECT_FALSE(walk.x.grad().defined());
    }
    step();
    EXPECT_THAT(values(walk.x.grad()), ElementsAre(2));
  });
}

TEST(Join, AnEndOfAllAtOnceIsNoEarlyOne) {
  on_ranks(3, [] {
    Walk walk;
    join({walk.cb}, [&] { walk.step(); }, {.throw_on_early_termination = true});
    EXPECT_THAT(values(walk.x), ElementsAre(-2));
  });
}

TEST(Join, OnOneRankOnlyIsTheSameErrorOnAll) {
  const auto errors = errors_of(2, [] {
    Walk walk;
    const auto body = [&] {
      for (int i = 0; i < 2; ++i) walk.step();
    };
    if (get_rank() == 0)
      join({walk.cb}, body);
    else
      body();
  });
  EXPECT_THAT(errors, Each(HasSubstr("within join()")));
}

TEST(Join, WhatTheBodyThrowsEndsIt) {
  const auto errors = errors_of(2, [] {
    Walk walk;
    EXPECT_THROW(join({walk.cb}, [] { throw ValueError("test", "no"); }), ValueError);
    join({walk.cb}, [&] { walk.step(); });
    if (get_rank() == 1) throw ValueError("test", "enough");
    join({walk.cb}, [&] { walk.step(); });
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
}

// Buffers come from a rank that still has data.
TEST(Join, BroadcastsTheBuffersOfARankThatGoesOn) {
  on_ranks(2, [] {
    const Tensor buffer = f64({-1});
    Walk walk({.broadcast_after = [&] { return std::vector<Tensor>{buffer}; }});
    join({walk.cb}, [&] {
      for (int i = 0; i < 1 + get_rank(); ++i) {
        buffer.storage()->bump_version();
        Tensor(buffer).mutable_data<double>()[0] = 10 * get_rank() + i;
        walk.step();
      }
    });
    EXPECT_THAT(values(buffer), ElementsAre(11));
  });
}

// Sums a number over the ranks in each step; joined ranks add 100.
struct Counter final : Joinable {
  explicit Counter(Group group = {}) : group(std::move(group)) {}
  void step(double value) {
    notify();
    sums.push_back(reduce(value));
  }
  void shadow_step() override { shadowed.push_back(reduce(100)); }
  void after_join(bool is_last_joiner) override {
    last.push_back(is_last_joiner);
    step(7);  // all ranks take part
  }
  Group join_group() override { return group; }
  double reduce(double value) {
    const Tensor x = f64({value});
    all_reduce(x, {.group = group});
    return values(x)[0];
  }
  Group group;
  V sums, shadowed;
  std::vector<bool> last;
};

// Rank r has 1 + r steps.
TEST(Join, RanksThatHaveEndedShadowTheStepsOfObjects) {
  on_ranks(3, [] {
    Counter first, second;
    first.step(1);  // outside of join() all ranks step alike
    join({&first, &second}, [&] {
      for (int i = 0; i < 1 + get_rank(); ++i) {
        first.step(1);
        second.step(2);
      }
    });
    first.step(2);
    const V ones[] = {{3, 3, 21, 6}, {3, 3, 102, 21, 6}, {3, 3, 102, 201, 21, 6}};
    const V shadowed[] = {{102, 201}, {201}, {}}, shadowed2[] = {{104, 202}, {202}, {}};
    EXPECT_EQ(first.sums, ones[get_rank()]);
    EXPECT_EQ(first.shadowed, shadowed[get_rank()]);
    EXPECT_EQ(second.shadowed, shadowed2[get_rank()]);
    EXPECT_THAT(first.last, ElementsAre(get_rank() == 2));
    EXPECT_THAT(second.last, ElementsAre(get_rank() == 2));
  });
}

TEST(Join, ServesObjectsOfASubgroupTogetherWithAModel) {
  on_ranks(3, [] {
    const Group group = world().split(get_rank() == 0 ? -1 : 0);
    if (get_rank() == 0) return;
    nn::Linear net({.in = 1, .out = 1, .bias = false});
    DistributedDataParallel ddp(net, {.process_group = group});
    GradManager gm;
    ddp.attach(gm);
    Counter counter(group);
    ddp.join(
        [&] {
          for (int i = 0; i < 2 * get_rank(); ++i) {
            auto recording = gm.record();
            gm.backward(sum(ddp(ones({1, 1}))) * get_rank());
            if (i % 2) counter.step(1);
            EXPECT_FLOAT_EQ(net.weight.grad().item<float>(), i < 2 ? 1.5f : 1);
            net.weight.set_grad({});
          }
        },
        {}, {&counter});
    EXPECT_EQ(counter.sums, get_rank() == 1 ? (V{2, 14}) : (V{2, 101, 14}));
    EXPECT_THAT(counter.last, ElementsAre(get_rank() == 2));
  });
}

// The first object of a step ends the join; the ranks that serve the other object must end as well.
TEST(Join, AnEarlyEndOfOneObjectEndsTheOthers) {
  for (const bool notifies_first : {false, true})
    on_ranks(3, [&] {
      Walk walk;
      Counter counter;
      for (int ends = 1; ends < 3; ++ends) {
        const auto body = [&] {
          for (int i = 0; i < (get_rank() == ends ? 0 : 3); ++i) {
            if (notifies_first) counter.step(1);
            walk.step();
            if (!notifies_first) counter.step(1);
          }
        };
        try {
          join({walk.cb}, body, {.throw_on_early_termination = true}, {}, {&counter});
          ADD_FAILURE() << "no error";
        } catch (const PeerError& error) {
          EXPECT_THAT(error.what(), HasSubstr(concat("rank ", ends, " has no more data")));
        }
        EXPECT_EQ(counter.reduce(1), 3) << "ranks go on together";
      }
      walk.step();
      EXPECT_EQ(walk.log.back(), 2);
      EXPECT_THAT(counter.last, testing::IsEmpty());
    });
}

TEST(Join, AnErrorInShadowStepFailsTheJob) {
  struct Failing final : Joinable {
    void step() { notify(); }
    void shadow_step() override { throw ValueError("test", "no shadow"); }
  };
  const auto errors = errors_of(2, [] {
    Failing failing;
    Walk walk;  // rank 0 serves it until the job fails
    const auto body = [&] {
      for (int i = 0; i < 3 * get_rank(); ++i) failing.step();
    };
    join({walk.cb}, body, {}, {}, {&failing});
  });
  EXPECT_THAT(errors[0], HasSubstr("no shadow"));
  EXPECT_THAT(errors[1], HasSubstr("no shadow"));
}

TEST(Join, ObjectsAreChecked) {
  Counter counter;
  int runs = 0;
  join({&counter}, [&] {
    ++runs;
    counter.step(1);
    EXPECT_THROW(join({&counter}, [] {}), StateError);
  });
  join({&counter}, [&] { ++runs; }, {.enable = false});
  EXPECT_EQ(runs, 2);
  EXPECT_THAT(counter.last, ElementsAre(true)) << "in a group of one";
  EXPECT_THROW(join({&counter}, [] { throw ValueError("test", "no"); }), ValueError);
  join({&counter}, [] {});
  EXPECT_THROW(join({static_cast<Counter*>(nullptr)}, [] {}), ValueError);
  EXPECT_THROW(join({&counter, &counter}, [] {}), ValueError);
  on_ranks(2, [] {
    Counter all, own(world().split(get_rank()));
    EXPECT_THROW(join({&all, &own}, [] {}), ValueError);
  });
}

// A body that catches the error and goes on does not wait for ranks that have left the join.
TEST(Join, AnEarlyEndIsAnErrorOfLaterStepsToo) {
  on_ranks(2, [] {
    Counter counter;
    const auto body = [&] {
      for (int i = 0; i < 3 * get_rank(); ++i) EXPECT_THROW(counter.step(1), PeerError);
    };
    EXPECT_THROW(join({&counter}, body, {.throw_on_early_termination = true}), PeerError);
    EXPECT_EQ(counter.reduce(1), 2);
  });
}

}  // namespace
}  // namespace gradus::dist
