// Deadlocks of ranks in calls of different groups or in receives: ranks get an error that names both calls
// long before the timeout, and slow ranks never do. Ranks are processes and threads; find_deadlock is also
// tested alone.
#include "gradus/distributed/health/deadlock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/remote.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/distributed/rank_processes.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Detection takes two heartbeats and an answer: about 1 s with a core per rank, about 10 s on a busy machine.
// The timeout is 60 s, so an error within 30 s comes from the detection.
constexpr std::chrono::seconds kAtOnce{30}, kSlow{2};

struct Gen : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 2, .out = 2}};
  nn::BatchNorm1d norm{this, "norm", {.features = 2}};
  std::unique_ptr<nn::Linear> grown;

  using nn::Layer::Layer;
  void grow() { grown = std::make_unique<nn::Linear>(this, "grown", nn::LinearOptions{.in = 2, .out = 2}); }
  Tensor forward(const Tensor& x) override {
    const Tensor h = norm(fc(x));
    return grown ? (*grown)(h) : h;
  }
};
struct Gan : nn::Module {
  Gen gen{this, "gen"};
  nn::Linear disc{this, "disc", {.in = 2, .out = 1}};
};

struct Training {
  Gan gan;
  std::unique_ptr<DistributedDataParallel<Gen>> ddp;
  GradManager gm;

  Training() {
    convert_sync_batchnorm(gan.gen);
    ddp = std::make_unique<DistributedDataParallel<Gen>>(gan.gen);
    ddp->attach(gm);
  }
  void step() {
    auto recording = gm.record();
    gm.backward(sum(gan.gen(ones({3, 2}))));
  }
};

// ---- programs: each ends, or throws the same error on all ranks.

void backward_or_barrier() {
  Training training;
  training.step();
  auto recording = training.gm.record();
  const Tensor y = sum(training.gan.gen.fc(ones({3, 2})));
  if (get_rank() == 0)
    training.gm.backward(y);
  else
    barrier();
}

void batch_norm_or_backward() {
  Training training;
  auto recording = training.gm.record();
  if (get_rank() == 0)
    training.gm.backward(sum(training.gan.gen.fc(ones({3, 2}))));
  else
    training.gan.gen(ones({3, 2}));
}

void one_model_grows() {
  Training training;
  training.step();
  if (get_rank() == 1) training.gan.gen.grow();
  training.step();
}

void one_has_more_data() {
  Training training;
  for (int i = 0; i < 2 + get_rank(); ++i) {
    auto recording = training.gm.record();
    training.gm.backward(sum(training.gan.gen.fc(ones({3, 2}))));
  }
  barrier();
}

void parts() {
  Gan gan;
  SeparateDistributedDataParallel ddp(gan);
  GradManager gm_g, gm_d;
  ddp.attach(gm_g, gan.gen);
  ddp.attach(gm_d, gan.disc);
  const auto step_g = [&] {
    auto recording = gm_g.record();
    gm_g.backward(sum(gan.gen.fc(ones({3, 2}))));
  };
  const auto step_d = [&] {
    auto recording = gm_d.record();
    gm_d.backward(sum(gan.disc(ones({3, 2}))));
  };
  if (get_rank() == 0) step_g();
  step_d();
  if (get_rank() != 0) step_g();
}

void one_sleeps() {
  const Group copy = world().duplicate();
  const Tensor x = ones({4}), y = ones({4});
  const Work posted = all_reduce(x, {.group = copy, .async_op = true});
  if (get_rank() == 1) std::this_thread::sleep_for(kSlow);
  barrier();
  all_reduce(y, {.group = copy});
  posted.wait();
}

void one_computes() {
  const Group copy = world().duplicate();
  const Tensor x = ones({4});
  // Rank 1 has a pending call that the others join only after it has computed.
  Work posted;
  if (get_rank() == 1) posted = all_reduce(x, {.group = copy, .async_op = true});
  Tensor a = ones({300, 300}) * 1e-3;
  if (get_rank() == 1)
    for (const auto end = std::chrono::steady_clock::now() + kSlow; std::chrono::steady_clock::now() < end;)
      a = matmul(a, a);
  barrier();
  if (get_rank() != 1) posted = all_reduce(x, {.group = copy, .async_op = true});
  posted.wait();
}

void receive_or_barrier() {
  const Tensor x = ones({4});
  if (get_rank() == 0) recv(x, {.src = 1});
  barrier();
  if (get_rank() != 0) send(x, {.dst = 0});
}

int next_rank() { return (get_rank() + 1) % get_world_size(); }
void receive_circle() { recv(ones({4}), {.src = next_rank()}); }
void remote_receive_circle() { remote_recv({.src_rank = next_rank()}); }

// Rank 0 receives a message of 64 MB, which is in flight while rank 1 waits for rank 0 in the barrier.
void a_message_is_under_way() {
  const Tensor x = ones({1 << 24});
  if (get_rank() == 1) {
    std::this_thread::sleep_for(kSlow);
    const Work sent = isend(x, {.dst = 0});
    barrier();
    sent.wait();
  } else {
    recv(x, {.src = 1});
    barrier();
  }
}

// Looks like a deadlock, but a thread of rank 1 that has made no call yet will make the awaited one.
void a_thread_comes_late() {
  const Group copy = world().duplicate();
  const Tensor x = ones({4});
  if (get_rank() == 0) {
    all_reduce(x, {.group = copy});
    barrier();
    return;
  }
  std::thread late([&, context = Context::current().snapshot()]() mutable {
    ContextScope scope(context);
    std::this_thread::sleep_for(kSlow);
    all_reduce(x, {.group = copy});
  });
  barrier();
  late.join();
}

const std::map<std::string, void (*)()> kPrograms = {
    {"backward_or_barrier", backward_or_barrier},
    {"batch_norm_or_backward", batch_norm_or_backward},
    {"one_model_grows", one_model_grows},
    {"one_has_more_data", one_has_more_data},
    {"parts", parts},
    {"one_sleeps", one_sleeps},
    {"one_computes", one_computes},
    {"a_thread_comes_late", a_thread_comes_late},
    {"receive_or_barrier", receive_or_barrier},
    {"receive_circle", receive_circle},
    {"remote_receive_circle", remote_receive_circle},
    {"a_message_is_under_way", a_message_is_under_way},
};

// Runs the program PROGRAM. Prints the error and "at once" or "late", or "it ends".
const RankFunction runs{"runs", [] {
                          join_job();
                          const auto begin = std::chrono::steady_clock::now();
                          try {
                            kPrograms.at(std::getenv("PROGRAM"))();
                            std::cout << "it ends" << std::endl;
                          } catch (const MismatchError& error) {
                            const auto time = std::chrono::steady_clock::now() - begin;
                            std::cout << error.what() << (time < kAtOnce ? " at once" : " late") << std::endl;
                          }
                          destroy_process_group();
                          return 0;
                        }};

struct Case {
  const char* program;
  bool shared_memory = true;
  std::vector<std::string> parts = {};  // of each rank's output; none: the program must end
  int world = 2;
};

// Runs the programs at the same time: the ranks wait more than they compute.
void expect_all(const std::vector<Case>& cases) {
  std::vector<std::thread> jobs;
  for (const Case& c : cases)
    jobs.emplace_back([&c] {
      const auto options = job_options(c.shared_memory, {{"PROGRAM", c.program}});
      for (const RankEnd& end : run_processes("runs", c.world, options)) {
        EXPECT_EQ(end.exit_code, 0) << end.output;
        for (const std::string& part : c.parts) EXPECT_THAT(end.output, HasSubstr(part)) << c.program;
        if (c.parts.empty()) {
          EXPECT_EQ(end.output, "it ends\n") << c.program;
        }
      }
    });
  for (std::thread& job : jobs) job.join();
}

const char* const kEachOther = "they wait for each other";

TEST(Deadlocks, AreNamedOnAllRanks) {
  std::vector<Case> cases;
  for (const bool shared_memory : {true, false})
    cases.push_back(
        {"backward_or_barrier",
         shared_memory,
         {kEachOther, "it is in backward #", "of group 'DDP of gen'", "it is in barrier #", "at once"}});
  for (const bool shared_memory : {true, false})
    cases.push_back({"receive_or_barrier",
                     shared_memory,
                     {kEachOther, "it is in recv from rank 1 (tag 0)", "it is in barrier #", "at once"}});
  for (const Case& c :
       {Case{"batch_norm_or_backward",
             true,
             {kEachOther, "of group 'DDP of gen'", "it is in all_gather #", "at once"}},
        Case{"one_model_grows", true, {kEachOther, "of group 'DDP of gen'", "of group 'world'", "at once"}},
        Case{"parts", true, {kEachOther, "of group 'DDP of gen'", "of group 'DDP of disc'", "at once"}},
        Case{"receive_circle",
             false,
             {kEachOther, "rank 0: it is in recv from rank 1", "rank 1: it is in recv from rank 2",
              "rank 2: it is in recv from rank 0", "at once"},
             3},
        Case{"remote_receive_circle",
             true,
             {kEachOther, "rank 0: it is in remote_recv from rank 1",
              "rank 3: it is in remote_recv from rank 0", "at once"},
             4},
        // Of three ranks, the error names the one in another call.
        Case{"backward_or_barrier",
             true,
             {"] rank 0 did not come to barrier #", "it is in backward #",
              "of group 'DDP of gen', where it waits for ranks 1, 2", "at once"},
             3}})
    cases.push_back(c);
  expect_all(cases);
}
TEST(Deadlocks, OfARankWithMoreBatchesSayWhatToDo) {
  const auto ends = run_processes("runs", 2, job_options(true, {{"PROGRAM", "one_has_more_data"}}));
  EXPECT_THAT(ends[1].output, AllOf(HasSubstr("of group 'DDP of gen'"), HasSubstr("join()")));
}
TEST(Deadlocks, AreNotSeenWhereARankIsSlow) {
  for (const bool shared_memory : {true, false})
    expect_all({{"one_sleeps", shared_memory},
                {"one_computes", shared_memory},
                {"a_thread_comes_late", shared_memory},
                {"a_message_is_under_way", shared_memory}});
}

TEST(DeadlocksOfThreads, AreNamedOnAllRanks) {
  for (const std::string& text : errors_of(2, backward_or_barrier))
    EXPECT_THAT(text, AllOf(HasSubstr("they wait for each other"), HasSubstr("of group 'DDP of gen'"),
                            HasSubstr("barrier #")));
}
TEST(DeadlocksOfThreads, AreNotSeenWhereARankIsSlow) {
  for (const char* program : {"one_computes", "a_thread_comes_late"})
    EXPECT_THAT(errors_of(2, kPrograms.at(program)), ElementsAre("", "")) << program;
}

// ---- find_deadlock, on statuses made by hand

// The status of a rank blocked in `calls` (with their members). `arrived`: the last call it has reached, by
// series.
RankStatus stuck(int rank, const std::vector<std::pair<CallId, std::vector<int>>>& calls,
                 const std::map<CallSeries, uint64_t>& arrived = {}) {
  RankStatus status{.rank = rank, .stuck = 1};
  for (const auto& [call, members] : calls) {
    status.waits.push_back({.call = call, .ranks = RankSet(members)});
    status.arrived[call.series] = call.sequence;
  }
  for (const auto& [series, number] : arrived) status.arrived[series] = number;
  return status;
}

// Call 3 of group 1, call 7 of group 2, call 1 of group 3.
constexpr auto kCollective = CallSeries::Kind::kCollective;
const CallId kOne{{kCollective, 1, 0}, 3}, kTwo{{kCollective, 2, 0}, 7}, kThree{{kCollective, 3, 0}, 1};

TEST(FindDeadlock, FindsRanksThatWaitForEachOther) {
  RankStatus left = stuck(1, {{kTwo, {0, 1}}});
  left.has_left = true;
  struct Case {
    const char* name;
    std::vector<RankStatus> statuses;
    std::vector<int> deadlocked;
  };
  const Case cases[] = {
      {"two ranks", {stuck(0, {{kOne, {0, 1}}}), stuck(1, {{kTwo, {0, 1}}})}, {0, 1}},
      {"three ranks",
       {stuck(0, {{kOne, {0, 1}}}), stuck(1, {{kTwo, {1, 2}}}), stuck(2, {{kThree, {0, 2}}})},
       {0, 1, 2}},
      {"two ranks while the third computes",
       {stuck(0, {{kOne, {0, 1, 2}}}), stuck(1, {{kTwo, {0, 1}}}), {.rank = 2}},
       {0, 1}},
      {"all in one call", {stuck(0, {{kOne, {0, 1}}}), stuck(1, {{kOne, {0, 1}}})}, {}},
      {"a rank that moves may come to all calls",
       {stuck(0, {{kOne, {0, 1}}}), stuck(1, {{kTwo, {1, 2}}}), {.rank = 2}},
       {}},
      {"rank 1 has left call 3, and what it sent to rank 0 is under way",
       {stuck(0, {{kOne, {0, 1}}}), stuck(1, {{kTwo, {0, 1}}}, {{kOne.series, 3}})},
       {}},
      {"rank 1 has left call 2 only",
       {stuck(0, {{kOne, {0, 1}}}), stuck(1, {{kTwo, {0, 1}}}, {{kOne.series, 2}})},
       {0, 1}},
      {"a thread of rank 1 continues, and may bring the call of the other thread",
       {stuck(0, {{kOne, {0, 1}}}), stuck(1, {{kTwo, {0, 1}}, {kThree, {1, 2}}}),
        stuck(2, {{kThree, {1, 2}}})},
       {}},
      {"rank 1 has left the job", {stuck(0, {{kOne, {0, 1}}}), left}, {}},
  };
  for (const Case& c : cases) EXPECT_EQ(find_deadlock(c.statuses), c.deadlocked) << c.name;
}

// A receive waits for the sender alone.
TEST(FindDeadlock, FindsRanksThatReceiveFromEachOther) {
  const auto receives = [](int rank, int from, int received, int sent) {
    const auto messages = [](int source, int destination) {
      return CallSeries{CallSeries::Kind::kMessage, uint32_t(destination), source};
    };
    return stuck(rank, {{CallId{messages(from, rank), uint64_t(received + 1)}, {from}}},
                 {{messages(rank, from), uint64_t(sent)}});
  };
  EXPECT_THAT(find_deadlock({receives(0, 1, 4, 2), receives(1, 0, 2, 4)}), ElementsAre(0, 1));
  EXPECT_THAT(find_deadlock({receives(0, 1, 4, 2), receives(1, 0, 2, 5)}), IsEmpty()) << "one is under way";
}

}  // namespace
}  // namespace gradus::dist
