// has_cpu_contention: decides whether a loop on a machine with two cores should run on one thread, because
// another process occupies a core. A ContentionMonitor per calling thread reads the run-queue wait times
// (schedstat of the Linux scheduler) of its team's two OpenMP threads every 20 ms. If they waited for more
// than 35% of the time, the loops run on one thread for a pause of 250 ms, which doubles up to 2 s while
// contention persists; then both threads are tried again.
#include "gradus/tensor/runtime/neighbor.h"

#ifdef GRADUS_NO_OPENMP

namespace gradus::internal {
bool has_cpu_contention(int) { return false; }
}  // namespace gradus::internal

#else

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/team.h"

namespace gradus::internal {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kMeasureInterval = 20 * kMillisecond;  // interval between measurements
constexpr double kBusyThreshold = 0.35;             // run-queue wait, added over both threads / elapsed time
constexpr int64_t kMaxLoopGap = 50 * kMillisecond;  // pause between loops that invalidates a measurement
constexpr int64_t kMinPause = 250 * kMillisecond;   // until both threads run again; doubles up to kMaxPause
constexpr int64_t kMaxPause = 2'000 * kMillisecond;

// Returns the time in nanoseconds with the resolution of the kernel's tick, 1 to 10 ms. Cheaper than an exact
// clock.
int64_t coarse_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// Scheduler statistics and attributes of one thread.
class ThreadSchedule {
 public:
  ThreadSchedule() = default;
  ~ThreadSchedule() { close(); }
  ThreadSchedule(const ThreadSchedule&) = delete;
  ThreadSchedule& operator=(const ThreadSchedule&) = delete;

  void attach_to_calling_thread() {
    close();
    thread_ = pid_t(::syscall(SYS_gettid));
    file_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  }

  // Returns the total run-queue wait of the thread in nanoseconds, nullopt if the thread has ended or the
  // system has no schedstat.
  std::optional<int64_t> waited() const {
    char text[96];
    const ssize_t n = file_ < 0 ? -1 : ::pread(file_, text, sizeof text, 0);
    if (n <= 0) return {};
    const char* second = std::find(text, text + n, ' ');  // "run time, wait time, time slices"
    int64_t waited = 0;
    if (second == text + n || std::from_chars(second + 1, text + n, waited).ec != std::errc()) return {};
    return waited;
  }

  // Sets the time slice of the thread (EEVDF, Linux 6.12 and later; ignored before). A thread with a short
  // slice is scheduled sooner. 0: the system's default.
  void set_slice(uint64_t nanoseconds) const {
    struct {
      uint32_t size, policy;
      uint64_t flags;
      int32_t nice;
      uint32_t priority;
      uint64_t runtime, deadline, period;
    } attributes{};
    if (file_ < 0 || ::syscall(SYS_sched_getattr, thread_, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER) return;  // `runtime` has another meaning for other policies
    attributes.size = sizeof attributes;
    attributes.runtime = nanoseconds;
    ::syscall(SYS_sched_setattr, thread_, &attributes, 0);
  }

 private:
  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  pid_t thread_ = 0;
  int file_ = -1;
};

// Note [Waiting asleep]
// A libgomp thread that waits for another thread first spins for 300,000 rounds (some milliseconds) and then
// sleeps. While another process occupies a core, this spinning blocks the core to which the other thread
// could move, and uses up the thread's share of the core before there is work.
//
// libgomp spins for only 100 rounds while the process has more managed threads than cores. This class causes
// that by a second team, whose threads sleep; libgomp's settings cannot be changed in a running program. On
// an idle machine sleeping would cost up to twice the time of a small training step.
//
// begin() and end() are counted: the team exists while at least one thread wants it.
class SleepWhileIdle {
 public:
  static SleepWhileIdle& get() {
    static auto* one = new SleepWhileIdle;  // its thread may outlive static variables
    return *one;
  }
  void begin() {
    std::lock_guard lock(mutex_);
    if (users_++ > 0) return;
    try {
      std::thread([this, generation = generation_] { keep_extra_team(generation); }).detach();
    } catch (const std::system_error&) {  // no thread: idle threads keep spinning
    }
  }
  void end() {
    {
      std::lock_guard lock(mutex_);
      if (--users_ > 0) return;
      ++generation_;
    }
    ended_.notify_all();
  }

 private:
  // Creates a team and blocks until end(). libgomp destroys the team when this thread exits.
  void keep_extra_team(int64_t generation) {
    run_on_team(2, [] {});
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return generation_ != generation; });
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  int users_ = 0;
  int64_t generation_ = 0;
};

// The state of has_cpu_contention for one calling thread: measurements of the two threads of its team.
class ContentionMonitor {
 public:
  ContentionMonitor() = default;
  ~ContentionMonitor() {
    if (busy_ && process_ == fork_count()) SleepWhileIdle::get().end();  // a child has no sleeping team
  }
  ContentionMonitor(const ContentionMonitor&) = delete;
  ContentionMonitor& operator=(const ContentionMonitor&) = delete;

  bool busy() {
    const int64_t now = coarse_now();
    if (now - last_call_ > kMaxLoopGap) last_wait_.reset();
    last_call_ = now;
    if (now < next_) return busy_;
    if (busy_)
      resume_parallel(now);
    else
      measure(now);
    return busy_;
  }

 private:
  static constexpr uint64_t kShortSlice = 100'000;  // ns, the minimum of Linux

  // Measures the wait since the last measurement, and begins a pause if it exceeds the threshold.
  void measure(int64_t now) {
    next_ = now + kMeasureInterval;
    const std::optional<int64_t> waited = total_wait();
    if (waited && last_wait_ &&
        double(*waited - *last_wait_) > kBusyThreshold * double(now - last_measured_)) {
      const bool still_busy = now - last_resumed_ < kMaxPause;
      pause_ = still_busy ? std::min(2 * pause_, kMaxPause) : kMinPause;
      next_ = now + pause_;
      busy_ = true;
      SleepWhileIdle::get().begin();
      for (const ThreadSchedule& thread : threads_) thread.set_slice(kShortSlice);
    }
    last_wait_ = waited;
    last_measured_ = now;
  }

  void resume_parallel(int64_t now) {
    for (const ThreadSchedule& thread : threads_) thread.set_slice(0);
    SleepWhileIdle::get().end();
    busy_ = false;
    next_ = now + kMeasureInterval;
    last_wait_ = total_wait();
    last_measured_ = last_resumed_ = now;
  }

  // Returns the waits of both threads since their start in nanoseconds; nullopt without schedstat.
  std::optional<int64_t> total_wait() {
    const auto sum = [&]() -> std::optional<int64_t> {
      const auto one = threads_[0].waited(), other = threads_[1].waited();
      if (!one || !other) return {};
      return *one + *other;
    };
    if (!has_schedstat_) return {};
    if (const auto waited = sum()) return waited;
    // On the first call, and if the threads of the team have changed.
    run_on_team(2, [&] { threads_[omp_get_thread_num()].attach_to_calling_thread(); });
    last_wait_.reset();
    const auto waited = sum();
    has_schedstat_ = waited.has_value();
    return waited;
  }

  std::array<ThreadSchedule, 2> threads_;
  std::optional<int64_t> last_wait_;  // at the last measurement; nullopt after a gap
  int64_t last_call_ = 0, last_measured_ = 0, last_resumed_ = 0, next_ = 0, pause_ = kMinPause;
  bool busy_ = false, has_schedstat_ = true;
  const int process_ = fork_count();
};

}  // namespace

bool has_cpu_contention(int threads) {
  if (threads != 2 || usable_cores() > 2) return false;
  thread_local ContentionMonitor monitor;
  return monitor.busy();
}

}  // namespace gradus::internal

#endif
