// Child processes of fork(): they compute, and any use of the parent's stream threads is an error.
#include "gradus/tensor/runtime/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tensor/tensor.h"

namespace gradus {
namespace {

// Runs `body` in a child process. Returns body's result (0: passed), or minus the signal that ended the
// child, which is SIGALRM if it hangs.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int64_t sum_in_parallel(int64_t n) {
  std::vector<int64_t> parts(static_cast<size_t>(n));
  parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) parts[static_cast<size_t>(i)] = i;
  });
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

// Without OpenMP, as in the build for ThreadSanitizer, plain threads share a range, also in a child.
#ifdef GRADUS_NO_OPENMP
constexpr bool kOpenMp = false;
#else
constexpr bool kOpenMp = true;
#endif

TEST(Fork, AChildComputesOnOneThread) {
  if (!kOpenMp) GTEST_SKIP() << "it is OpenMP whose threads do not outlive a fork";
  set_num_threads(4);
  const int64_t expected = sum_in_parallel(1000);
  EXPECT_EQ(num_threads(), 4);
  EXPECT_EQ(in_child([&] { return num_threads() == 1 && sum_in_parallel(1000) == expected ? 0 : 1; }), 0);
  // Also in a child of the child, and on another thread of it.
  EXPECT_EQ(in_child([&] {
              return in_child([&] {
                int64_t sum = 0;
                std::thread([&] { sum = sum_in_parallel(1000); }).join();
                return sum == expected && sum_in_parallel(1000) == expected ? 0 : 1;
              });
            }),
            0);
  EXPECT_EQ(sum_in_parallel(1000), expected);  // on the parent's threads, as before
}

TEST(Fork, AChildMultipliesMatrices) {
  set_num_threads(4);
  const auto filled = [](float v) {
    const Tensor x = empty({300, 300});
    std::fill_n(x.ptr<float>(), x.numel(), v);
    return x;
  };
  const auto product = [&] { return raw::matmul(filled(2), filled(3)).to_vector<float>(); };
  const std::vector<float> expected = product();
  EXPECT_EQ(expected[12345], 1800.f);
  EXPECT_EQ(in_child([&] { return product() == expected ? 0 : 1; }), 0);
}

TEST(Fork, AChildOfAThreadThatHasNotComputedHasItsOwnThreads) {
  if (!kOpenMp) GTEST_SKIP() << "ThreadSanitizer allows no new threads in a child";
  int status = -1;
  std::thread([&] {
    status = in_child([] {
      set_num_threads(3);
      return num_threads() == 3 && sum_in_parallel(1000) == 499'500 ? 0 : 1;
    });
  }).join();
  EXPECT_EQ(status, 0);
}

TEST(Fork, TheParentsStreamsAreErrorsInAChild) {
  const Device device{DeviceType::kCPU, 1};
  Stream own = Stream::create(device);
  own.enqueue([] {});
  own.synchronize();
  const auto throws = [](const auto& f) {
    try {
      f();
    } catch (const StateError&) {
      return true;
    }
    return false;
  };
  EXPECT_EQ(in_child([&] {
              const bool ok = throws([&] { own.enqueue([] {}); }) && throws([&] { own.synchronize(); });
              own = Stream::of(kCPU);  // destroys the last handle
              return ok ? 0 : 1;
            }),
            0);
}

TEST(Fork, AChildAllocatesWhateverOtherThreadsOfTheParentDo) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop) empty({16});
    });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(in_child([] {
                empty({16});
                return 0;
              }),
              0);
  stop = true;
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace gradus
