// Runs test code in a child process: it may lose its device, or call CUDA for the first time.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace gradus {

// Calls f in a forked child, which then calls exit(). Returns whether all of the child's checks passed and it
// exited within `limit`. The calling process must not have used a device.
template <class F> bool holds_in_child(F&& f, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const pid_t child = fork();
  if (child == 0) {
    f();
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      ADD_FAILURE() << "the child hangs";
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace gradus
