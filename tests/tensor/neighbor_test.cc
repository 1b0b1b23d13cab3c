// has_cpu_contention: while other processes occupy both cores of a machine, one thread computes both halves
// of a parallel loop. The test pins itself to two cores; its busy child processes inherit that.
#include "gradus/tensor/runtime/neighbor.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using std::chrono::steady_clock;

// A static initializer: the number of cores is read once.
const bool on_two_cores = [] {
  cpu_set_t all, two;
  CPU_ZERO(&all);
  CPU_ZERO(&two);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return false;
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &two);
  return CPU_COUNT(&two) == 2 && sched_setaffinity(0, sizeof two, &two) == 0;
}();

class BusyProcess {
 public:
  BusyProcess() : pid_(fork()) {
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::atomic<unsigned> steps{0};;) steps.fetch_add(1);
  }
  ~BusyProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  BusyProcess(const BusyProcess&) = delete;
  BusyProcess& operator=(const BusyProcess&) = delete;

 private:
  pid_t pid_;
};

// Runs short loops until has_cpu_contention(2) equals `busy`. Returns false after 20 s.
bool computes_until(bool busy) {
  const auto end = steady_clock::now() + std::chrono::seconds(20);
  while (internal::has_cpu_contention(2) != busy) {
    if (steady_clock::now() > end) return false;
    parallel_for(0, 2, 1, [](int64_t, int64_t) {
      std::atomic<int> steps{0};
      while (steps.fetch_add(1) < 5'000) {
      }
    });
  }
  return true;
}

using Shares = std::vector<std::pair<int64_t, int64_t>>;

// The subranges [begin, end) that the calls of a parallel_for got.
Shares shares_of_loop(int64_t n) {
  std::mutex mutex;
  Shares shares;
  parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    shares.emplace_back(begin, end);
  });
  std::ranges::sort(shares);
  return shares;
}

class BesideABusyProcess : public testing::Test {
 protected:
  void SetUp() override {
#ifdef GRADUS_NO_OPENMP
    GTEST_SKIP() << "loops have threads of their own";
#endif
    if (!on_two_cores || usable_cores() != 2) GTEST_SKIP() << "needs two cores";
    if (!std::ifstream("/proc/thread-self/schedstat"))
      GTEST_SKIP() << "this system does not say how long threads wait";
    context_.threads = 2;
  }
  Context context_;
  ContextScope scope_{context_};
};

TEST_F(BesideABusyProcess, OneThreadDoesBothSharesAndTheyAreTheSame) {
  const Shares quiet = shares_of_loop(7);
  const BusyProcess one, other;
  ASSERT_TRUE(computes_until(true));
  EXPECT_EQ(shares_of_loop(7), quiet);
  const auto caller = std::this_thread::get_id();
  parallel_for(0, 7, 1, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(shares_of_loop(5), (Shares{{0, 5}})) << "a loop inside of a loop is not shared";
    EXPECT_LT(begin, end);
  });
}

TEST_F(BesideABusyProcess, AnExceptionOfAShareReachesTheCaller) {
  const BusyProcess one, other;
  ASSERT_TRUE(computes_until(true));
  const auto fails = [](int64_t begin, int64_t) {
    if (begin > 0) throw std::runtime_error("the second share");
  };
  EXPECT_THROW(parallel_for(0, 7, 1, fails), std::runtime_error);
  EXPECT_EQ(shares_of_loop(7).size(), 2u);
}

TEST_F(BesideABusyProcess, BothThreadsAreTriedAgain) {
  const BusyProcess one, other;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(computes_until(true)) << i;
    ASSERT_TRUE(computes_until(false)) << i;
  }
}

TEST_F(BesideABusyProcess, TimeWithoutLoopsDoesNotCount) {
  ASSERT_TRUE(computes_until(false));
  const BusyProcess one, two, three, four;
  const auto end = steady_clock::now() + std::chrono::milliseconds(300);
  while (steady_clock::now() < end) {
  }
  EXPECT_FALSE(internal::has_cpu_contention(2));
}

TEST_F(BesideABusyProcess, OtherNumbersOfThreadsAreLeftAlone) {
  const BusyProcess one, other;
  ASSERT_TRUE(computes_until(true));
  EXPECT_FALSE(internal::has_cpu_contention(1));
  EXPECT_FALSE(internal::has_cpu_contention(3));
}

}  // namespace
}  // namespace gradus
