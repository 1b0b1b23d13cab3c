// Processes that fork() makes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

namespace gradus::dist::internal {

// A process that runs `body` and ends with status 0 if that returns; killed at the end of the scope
// if it still runs.
class ForkedProcess {
 public:
  explicit ForkedProcess(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    int status = 1;
    try {
      body();
      status = ::testing::Test::HasFailure() ? 2 : 0;
    } catch (const std::exception& error) {
      fprintf(stderr, "forked process: %s\n", error.what());
    }
    _exit(status);
  }
  ~ForkedProcess() {
    if (pid_ > 0) kill();
  }
  ForkedProcess(ForkedProcess&& other) : pid_(std::exchange(other.pid_, 0)) {}

  // As waitpid says it.
  int wait() {
    int status = -1;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  int kill() {
    ::kill(pid_, SIGKILL);
    return wait();
  }

 private:
  pid_t pid_;
};

}  // namespace gradus::dist::internal
