// Two, three and four ranks that wait for each other's messages in a circle, by hand-written receives: as
// processes, and under a simulation. A chain of ranks that wait for one that computes is no circle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/remote.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/simulation/simulation.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tests/distributed/rank_processes.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

constexpr Milliseconds kLate{300};  // the last rank waits so much later than the others
constexpr std::chrono::seconds kAtOnce{2}, kComputes{2};

using ReceiveFunction = void (*)(int from);
using SendFunction = void (*)(int to);

void by_recv(int from) { recv(zeros({4}), {.src = from}); }
void by_remote_recv(int from) { remote_recv({.src_rank = from}); }
void by_send(int to) { isend(ones({4}), {.dst = to}); }
void by_remote_send(int to) { remote_send(ones({4}), {.dest_rank = to}); }

int next() { return (get_rank() + 1) % get_world_size(); }
int previous() { return (get_rank() + get_world_size() - 1) % get_world_size(); }

// What a rank hears in the circle, and when. `sleep` and `clock` are of real or simulated time.
struct Heard {
  TimePoint waits, hears;
  std::string text;
};
Heard wait_in_circle(ReceiveFunction receive, void (*sleep)(Milliseconds), TimePoint (*clock)()) {
  Heard heard;
  barrier();
  if (get_rank() == get_world_size() - 1) sleep(kLate);
  heard.waits = clock();
  try {
    receive(next());
  } catch (const MismatchError& e) {
    heard.text = e.what();
  }
  heard.hears = clock();
  return heard;
}

void expect_circle(const std::vector<Heard>& heard, const std::string& call) {
  TimePoint all_wait = heard[0].waits;
  for (const Heard& h : heard) all_wait = std::max(all_wait, h.waits);
  for (const Heard& h : heard) {
    EXPECT_LT(h.hears - all_wait, kAtOnce) << h.text;
    EXPECT_GE(h.hears, all_wait) << h.text;
    EXPECT_THAT(h.text, HasSubstr("they wait for each other"));
    size_t at = h.text.find("they wait for each other");  // then the ranks in order, each with the next one
    for (size_t rank = 0; rank < heard.size() && at != h.text.npos; ++rank)
      at = h.text.find(concat("rank ", rank, ": it is in ", call, " from rank ", (rank + 1) % heard.size()),
                       at);
    EXPECT_NE(at, h.text.npos) << h.text;
  }
}

// ---- processes

int64_t nanoseconds(TimePoint time) { return time.time_since_epoch() / std::chrono::nanoseconds(1); }

const RankFunction circle{"circle", [] {
                            join_job();
                            const ReceiveFunction receive = std::getenv("REMOTE") ? by_remote_recv : by_recv;
                            const Heard h = wait_in_circle(
                                receive, [](Milliseconds time) { std::this_thread::sleep_for(time); },
                                std::chrono::steady_clock::now);
                            std::cout << nanoseconds(h.waits) << ' ' << nanoseconds(h.hears) << ' ' << h.text
                                      << std::endl;
                            destroy_process_group();
                            return 0;
                          }};

// The first rank computes. Then a message goes round.
const RankFunction chain{"chain", [] {
                           join_job();
                           const bool remote = std::getenv("REMOTE") != nullptr;
                           const ReceiveFunction receive = remote ? by_remote_recv : by_recv;
                           const SendFunction send = remote ? by_remote_send : by_send;
                           if (get_rank() > 0) receive(previous());
                           Tensor a = full({200, 200}, 1e-3);
                           if (get_rank() == 0)
                             for (const auto end = std::chrono::steady_clock::now() + kComputes;
                                  std::chrono::steady_clock::now() < end;)
                               a = raw::matmul(a, a);
                           send(next());
                           if (get_rank() == 0) receive(previous());
                           barrier();
                           destroy_process_group();
                           return 0;
                         }};

std::vector<RankEnd> run(const std::string& function, int world, bool shared_memory, bool remote) {
  return run_processes(function, world,
                       job_options(shared_memory, remote ? Variables{{"REMOTE", "1"}} : Variables()));
}

TEST(ReceiveCircle, IsNamedOnAllRanksAtOnce) {
  struct Case {
    int world;
    bool shared_memory, remote;
  };
  for (const auto& [world, shared_memory, remote] :
       {Case{2, true, false}, {4, true, true}, {3, false, false}, {2, false, true}}) {
    std::vector<Heard> heard;
    for (const RankEnd& end : run("circle", world, shared_memory, remote)) {
      EXPECT_EQ(end.exit_code, 0) << end.output;
      int64_t waits = 0, hears = 0;
      std::istringstream line(end.output);
      line >> waits >> hears;
      Heard& h = heard.emplace_back();
      h.waits = TimePoint(std::chrono::nanoseconds(waits));
      h.hears = TimePoint(std::chrono::nanoseconds(hears));
      std::getline(line >> std::ws, h.text);
    }
    expect_circle(heard, remote ? "remote_recv" : "recv");
  }
}

TEST(ReceiveCircle, IsNotSeenWhereARankComputes) {
  for (const bool remote : {false, true})
    for (const RankEnd& end : run("chain", 4, !remote, remote)) EXPECT_EQ(end.exit_code, 0) << end.output;
}

// ---- simulated time

void sleep_simulated(Milliseconds time) {
  const Membership& job = *internal::World::current()->membership;
  internal::Simulation::current()->block([&] { return job.failed(); }, now() + time, "asleep");
}

TEST(ReceiveCircleSimulation, IsNamedOnAllRanksAtOnce) {
  for (const int world : {2, 3, 4})
    for (const bool remote : {false, true})
      for (uint64_t seed = 0; seed < 8; ++seed) {
        SCOPED_TRACE(concat("seed ", seed));
        std::vector<Heard> heard(static_cast<size_t>(world));
        const SimulationReport report = simulate(
            world, {.seed = seed, .messages_only = seed % 2 == 0, .timeout = Milliseconds(600'000)}, [&] {
              heard[size_t(get_rank())] =
                  wait_in_circle(remote ? by_remote_recv : by_recv, sleep_simulated, now);
            });
        EXPECT_FALSE(report.hung);
        expect_circle(heard, remote ? "remote_recv" : "recv");
      }
}

TEST(ReceiveCircleSimulation, IsNotSeenWhereARankIsSlow) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SimulationReport report =
        simulate(4, {.seed = seed, .messages_only = seed % 2 == 0, .timeout = Milliseconds(600'000)}, [&] {
          const bool remote = seed % 4 < 2;
          if (get_rank() > 0) (remote ? by_remote_recv : by_recv)(previous());
          if (get_rank() == 0) sleep_simulated(Milliseconds(60'000));
          (remote ? by_remote_send : by_send)(next());
          if (get_rank() == 0) (remote ? by_remote_recv : by_recv)(previous());
          barrier();
        });
    EXPECT_FALSE(report.hung) << seed;
    for (const std::exception_ptr& error : report.errors) EXPECT_EQ(error, nullptr) << seed;
  }
}

}  // namespace
}  // namespace gradus::dist
