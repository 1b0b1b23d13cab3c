// A segment that fork() passes on: for tests with processes but without a store.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <new>

#include "gradus/distributed/transport/segment.h"

namespace gradus::dist::internal {

class SharedMapping : public Segment {
 public:
  explicit SharedMapping(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
  }
  ~SharedMapping() override { munmap(data_, bytes_); }
};

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
