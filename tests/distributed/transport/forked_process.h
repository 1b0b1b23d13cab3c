// Child processes that run a function of the test, made by fork() without exec.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

#include "gradus/distributed/transport/segment.h"

namespace gradus::dist::internal {

// Runs `body`. Exit code: 0, 1 if body threw, 2 if a GoogleTest check failed. The destructor kills it.
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

  // Returns the status of waitpid().
  int wait() {
    int status = -1;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  int kill() {
    signal(SIGKILL);
    return wait();
  }
  void signal(int number) const { ::kill(pid_, number); }
  // Returns when the process is stopped.
  void stop() const {
    signal(SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }

 private:
  pid_t pid_;
};

// A process that runs body(port) after start(port). So it can be forked before a server starts threads.
class ForkedClient {
 public:
  explicit ForkedClient(const std::function<void(int port)>& body)
      : process_([&, parent = getpid()] {
          while (port() == 0 && getppid() == parent) usleep(1000);
          if (port() != 0) body(port());
        }) {}
  void start(int number) { port() = number; }
  ForkedProcess* operator->() { return &process_; }

 private:
  std::atomic<int>& port() { return *reinterpret_cast<std::atomic<int>*>(memory_.data()); }
  Segment memory_{sizeof(std::atomic<int>)};
  ForkedProcess process_;
};

}  // namespace gradus::dist::internal
