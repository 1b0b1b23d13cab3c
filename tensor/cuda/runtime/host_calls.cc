// HostCallScope: counts CUDA calls (launches, library calls, waits, allocations, copies) of all threads by
// op, in one process-wide map under a mutex. Calls are counted while the single scope exists.
#include "gradus/tensor/cuda/runtime/host_calls.h"

#include <algorithm>
#include <iomanip>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {
namespace {

// Guards counted(): the counts of the current scope, by op. Never destroyed: threads may count at exit.
std::mutex mutex;
std::map<std::string, HostCalls>& counted() {
  static auto& calls = *new std::map<std::string, HostCalls>;
  return calls;
}

// A column of the table, in the order of output.
struct Column {
  const char* title;
  int64_t HostCalls::*number;
};
constexpr Column kColumns[] = {{"launches", &HostCalls::launches},
                               {"library", &HostCalls::library_calls},
                               {"waits", &HostCalls::waits},
                               {"allocations", &HostCalls::allocations},
                               {"to device", &HostCalls::copies_to_device},
                               {"bytes", &HostCalls::bytes_to_device},
                               {"to host", &HostCalls::copies_to_host},
                               {"bytes", &HostCalls::bytes_to_host},
                               {"on device", &HostCalls::copies_on_device},
                               {"bytes", &HostCalls::bytes_on_device},
                               {"pageable", &HostCalls::pageable_copies}};

}  // namespace

HostCalls& HostCalls::operator+=(const HostCalls& other) {
  for (const Column& c : kColumns) this->*c.number += other.*c.number;
  return *this;
}

// `op`: the op that made the calls, or null. The name is the op that the user called, plus `op` if different.
void host_calls::add(const char* op, const HostCalls& calls) {
  const char* const called = gradus::internal::called_op;
  std::string name = called ? called : op ? op : "host";
  if (called && op && std::string_view(op) != called) name = concat(called, ": ", op);
  const std::lock_guard lock(mutex);
  counted()[name] += calls;
}

HostCallScope::HostCallScope() {
  if (host_calls::are_counted.exchange(true))
    throw StateError("HostCallScope", "there is another one: calls are counted for one at a time");
  restart();
}

HostCallScope::~HostCallScope() { host_calls::are_counted = false; }

HostCalls HostCallScope::total() const {
  HostCalls all;
  for (const auto& [op, calls] : by_op()) all += calls;
  return all;
}

std::map<std::string, HostCalls> HostCallScope::by_op() const {
  const std::lock_guard lock(mutex);
  return counted();
}

std::string HostCallScope::table() const {
  const auto calls = by_op();
  std::vector<std::pair<std::string, HostCalls>> lines(calls.begin(), calls.end());
  std::ranges::stable_sort(lines, std::greater(),
                           [](const auto& line) { return line.second.launches + line.second.library_calls; });
  lines.emplace_back("all", total());
  size_t width = 2;
  for (const auto& [op, c] : lines) width = std::max(width, op.size());
  std::ostringstream out;
  out << std::left << std::setw(int(width)) << "op" << std::right;
  for (const Column& c : kColumns) out << std::setw(13) << c.title;
  for (const auto& [op, c] : lines) {
    out << '\n' << std::left << std::setw(int(width)) << op << std::right;
    for (const Column& column : kColumns) out << std::setw(13) << c.*column.number;
  }
  return out.str() + '\n';
}

void HostCallScope::restart() {
  const std::lock_guard lock(mutex);
  counted().clear();
}

}  // namespace gradus::cuda
