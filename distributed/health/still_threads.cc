// blocked_threads_id: detects, from /proc/self/task on Linux, that all other threads of this process block on
// a futex (mutex, condition variable, join) of this process. Such a process can make no call any more unless
// one of the `known` threads continues.
#include "gradus/distributed/health/still_threads.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/tensor/runtime/observer.h"

namespace gradus::dist::internal {
namespace {

// The prefix of the names of Gradus's threads. A thread inherits its program's file name, which has no slash,
// so no other thread has this prefix by chance.
constexpr std::string_view kOwn = "gradus/";

// Returns the thread's number of context switches; nullopt if unknown. `folder`: /proc/self/task/<tid>.
std::optional<uint64_t> switches(const std::string& folder) {
  const std::string status = read_file(folder + "/status");
  uint64_t sum = 0;
  int found = 0;
  for (const std::string_view name : {"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"}) {
    const size_t at = status.find(name);
    unsigned long long count = 0;
    if (at == status.npos) continue;
    found += std::sscanf(status.c_str() + at + name.size(), "%llu", &count) == 1;
    sum += count;
  }
  return found == 2 ? std::optional(sum) : std::nullopt;
}

// Returns whether the address is in a private mapping, which no other process sees. pthread_join waits on a
// futex without FUTEX_PRIVATE_FLAG, so the flag of the futex operation is not sufficient.
bool is_private(unsigned long long address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%llx-%llx %4s", &begin, &end, access) == 3 && begin <= address &&
        address < end)
      return access[3] == 'p';
  }
  return false;
}

// Returns whether the thread blocks in a futex wait without timeout, until another thread of this process
// wakes it. The file `syscall` has the call's number and arguments: "202 address operation value timeout
// ...", 202 for futex on x86-64; "running" if the thread runs.
bool waits_for_a_thread(const std::string& folder) {
  const std::string text = read_file(folder + "/syscall");
  long number = 0;
  unsigned long long address = 0, operation = 0, value = 0, timeout = 0;
  if (std::sscanf(text.c_str(), "%ld %llx %llx %llx %llx", &number, &address, &operation, &value, &timeout) !=
      5)
    return false;
  const int what = int(operation) & FUTEX_CMD_MASK;
  return number == SYS_futex && (what == FUTEX_WAIT || what == FUTEX_WAIT_BITSET) && timeout == 0 &&
         ((operation & FUTEX_PRIVATE_FLAG) || is_private(address));
}

}  // namespace

void name_framework_thread(const std::string& name) { name_thread(std::string(kOwn) + name); }

uint64_t blocked_threads_id(const std::vector<int>& known) {
  uint64_t hash = 1;
  std::error_code error;
  std::filesystem::directory_iterator threads("/proc/self/task", error), end;
  if (error) return 0;
  [[maybe_unused]] int position = 0;
  for (; threads != end; threads.increment(error)) {
    if (error) return 0;
    const std::string folder = threads->path().string(), name = threads->path().filename().string();
    int thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
#if defined(__SANITIZE_THREAD__)
    if (++position == 2) continue;  // the sanitizer's own thread, started before main
#endif
    if (std::ranges::count(known, thread) > 0) continue;
    const std::string comm = read_file(folder + "/comm");
    if (comm.starts_with(kOwn) || comm.starts_with("cuda"))
      continue;  // CUDA's driver polls in threads of its own
    // Reads the count first: if the thread runs between the two reads, the next call reads a higher count.
    const std::optional<uint64_t> count = switches(folder);
    if (!count || !waits_for_a_thread(folder)) return 0;
    hash = (hash ^ (uint64_t(thread) << 40) ^ *count) * 0x9E3779B97F4A7C15u + 1;
  }
  return error ? 0 : std::max<uint64_t>(hash, 1);
}

}  // namespace gradus::dist::internal
