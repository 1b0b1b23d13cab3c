// Implementation of fault.h: the list of collected faults, shared by all threads.
#include "gradus/tools/cuda_emulator/fault.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus::cuda::emulated {
namespace {

std::mutex mutex;
bool collecting = false;
std::vector<Fault> collected;

}  // namespace

FaultScope::FaultScope() {
  const std::lock_guard lock(mutex);
  collecting = true;
  collected.clear();
}

FaultScope::~FaultScope() {
  const std::lock_guard lock(mutex);
  collecting = false;
}

std::vector<Fault> FaultScope::take() {
  const std::lock_guard lock(mutex);
  return std::exchange(collected, {});
}

std::string host_op_and_seed() {
  const char* const op = gradus::internal::called_op;
  return std::string("\n  op ") + (op ? op : "(none)") +
         "\n  repeat with GRADUS_EMULATED_SEED=" + std::to_string(seed());
}

void deliver(Fault fault) {
  {
    const std::lock_guard lock(mutex);
    if (collecting) return collected.push_back(std::move(fault));
  }
  std::fprintf(stderr, "%s\n", fault.text.c_str());
  std::abort();
}

}  // namespace gradus::cuda::emulated
