// Implementation of neighbor.h: times training steps while a busy child process is alternately running and
// stopped.
#include "benchmarks/neighbor.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <vector>

#include "benchmarks/statistics.h"

namespace gradus::bench {
namespace {

// A child process with a busy loop, initially stopped.
class Neighbor {
 public:
  Neighbor() : pid_(fork()) {
    if (pid_ < 0) throw std::runtime_error("neighbor: cannot fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (std::atomic<unsigned> steps{0};;) steps.fetch_add(1, std::memory_order_relaxed);
    }
    set_running(false);
  }
  ~Neighbor() { kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0); }
  Neighbor(const Neighbor&) = delete;
  Neighbor& operator=(const Neighbor&) = delete;
  void set_running(bool on) { kill(pid_, on ? SIGCONT : SIGSTOP); }

 private:
  pid_t pid_;
};

// Runs steps for at least `seconds`. Returns the mean time of a step.
double seconds_of_step(const Workload& w, double seconds) {
  int steps = 0;
  const double start = seconds_now();
  do {
    w.run(), ++steps;
  } while (seconds_now() < start + seconds);
  return (seconds_now() - start) / steps;
}

// Gradus checks periodically whether its cores are shared. After a change, wait longer than that period; then
// measure for one period, so that the cost of the check is included.
constexpr double kSettleSeconds = 3;
constexpr double kMeasureSeconds = 2;

NeighborTimes measure(Side side, const Entry& entry, int threads, int rounds) {
  Neighbor neighbor;  // forks before threads exist
  (side == Side::kGradus ? set_up_gradus : set_up_libtorch)(threads);
  const Workload w = entry.make();
  std::vector<double> quiet, busy, ratios;
  for (int r = 0; r < rounds; ++r) {
    double seconds[2];
    for (const bool on : {r % 2 == 0, r % 2 != 0}) {
      neighbor.set_running(on);
      seconds_of_step(w, kSettleSeconds);
      seconds[on] = seconds_of_step(w, kMeasureSeconds);
    }
    quiet.push_back(seconds[0]), busy.push_back(seconds[1]), ratios.push_back(seconds[1] / seconds[0]);
  }
  return {median(quiet), median(busy), median(ratios), quantile(ratios, .1), quantile(ratios, .9)};
}

}  // namespace

NeighborTimes time_beside_busy_process(Side side, const Entry& entry, int threads, int rounds) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("neighbor: no pipe");
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const NeighborTimes b = measure(side, entry, threads, rounds);
    _exit(write(ends[1], &b, sizeof b) == sizeof b ? 0 : 1);
  }
  close(ends[1]);
  NeighborTimes b;
  const bool whole = child > 0 && read(ends[0], &b, sizeof b) == sizeof b;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  if (!whole) throw std::runtime_error("neighbor: the process that measures " + entry.name + " failed");
  return b;
}

}  // namespace gradus::bench
