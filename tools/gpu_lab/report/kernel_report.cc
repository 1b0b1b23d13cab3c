// Reports the resources of each kernel without a GPU: registers, local and shared memory (from the compiler),
// occupancy (from NVIDIA's calculator), bytes moved and passes over banks of shared memory in the cases of
// cases.h (counted by the emulated device). Names the kernels that exceed a limit. Exit status 1 if one of
// them is not in known_exceptions.h, or an entry there is unused; 2 after an error.
//
//   kernel_report [--brief] RESOURCES...      files that bazel/nvcc.py writes; --brief omits the tables
//   kernel_report --counts                    memory traffic of each case, in the format of traffic.py
#include <cuda_occupancy.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cases.h"
#include "gradus/tools/cuda_emulator/counters.h"
#include "known_exceptions.h"

namespace report {
namespace {

using gradus::cuda::emulated::CounterScope;
using gradus::cuda::emulated::kSectorBytes;
using gradus::cuda::emulated::Launched;
using gradus::cuda::emulated::Traffic;

constexpr double kMinOccupancy = 50;  // percent
constexpr double kMaxPasses = 1.2;    // over banks of shared memory, of those without conflicts

enum Architecture { kA100, kH100, kArchitectures };
constexpr std::array<const char*, kArchitectures> kNames = {"sm_80", "sm_90"};

// Returns the properties for NVIDIA's occupancy calculator: recorded on an H100; for an A100, from its
// manual.
cudaOccDeviceProp device(Architecture a) {
  cudaOccDeviceProp p{};
  p.computeMajor = a == kA100 ? 8 : 9;
  p.maxThreadsPerBlock = 1024, p.maxThreadsPerMultiprocessor = 2048, p.warpSize = 32;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.sharedMemPerBlock = 48 << 10, p.reservedSharedMemPerBlock = 1 << 10;
  p.sharedMemPerBlockOptin = static_cast<size_t>(a == kA100 ? 163 : 227) << 10;
  p.sharedMemPerMultiprocessor = static_cast<size_t>(a == kA100 ? 164 : 228) << 10;
  p.numSms = a == kA100 ? 108 : 132;
  return p;
}

// A kernel's resources on one architecture: registers and bytes of local memory per thread, bytes of static
// shared memory, threads per block, and numbers of memory instructions.
struct Needs {
  int registers = 0, memory = 0, static_shared = 0, threads = 0;
  int vector_loads = 0, loads = 0, vector_stores = 0, stores = 0;
};
struct Kernel {
  std::array<Needs, kArchitectures> on;
  int64_t dynamic_shared = 0;
  bool ran = false;  // a case ran this kernel or another instance of its template

  int percent_occupied(Architecture a) const {
    const Needs& needs = on[a];
    cudaOccFuncAttributes f{};
    f.maxThreadsPerBlock = needs.threads, f.numRegs = needs.registers;
    f.sharedSizeBytes = static_cast<size_t>(needs.static_shared);
    f.partitionedGCConfig = PARTITIONED_GC_OFF, f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    f.maxDynamicSharedSizeBytes = device(a).sharedMemPerBlockOptin - f.sharedSizeBytes;
    f.numBlockBarriers = 1;
    const cudaOccDeviceProp p = device(a);
    const cudaOccDeviceState state{};
    cudaOccResult r{};
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &state, needs.threads,
                                                static_cast<size_t>(dynamic_shared)) != CUDA_OCC_SUCCESS)
      return 0;
    return 100 * r.activeBlocksPerMultiprocessor * needs.threads / p.maxThreadsPerMultiprocessor;
  }
};
using Kernels = std::map<std::string, Kernel>;

void erase_all(std::string* text, const std::string& part) {
  for (size_t at; (at = text->find(part)) != std::string::npos;) text->erase(at, part.size());
}

// Returns the name without return type, namespaces and parameters: "copy_words<...>".
std::string short_name(std::string name) {
  for (const char* part :
       {"(anonymous namespace)::", "gradus::cuda::", "channel_sums_detail::", "elementwise_detail::",
        "reduce_detail::", "optim_step_detail::", "loss_sum_detail::", "merge_sort_detail::",
        "row_scan_detail::", "gradus::functors::", "gradus::optim::", "gradus::", "report::"})
    erase_all(&name, part);
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<';
    depth -= name[i] == '>';
    if (name[i] == '(' && depth == 0) name.resize(i);
  }
  for (size_t at; (at = name.find("> >")) != std::string::npos;) name.erase(at + 1, 1);
  return name;
}
std::string template_of(const std::string& kernel) { return kernel.substr(0, kernel.find('<')); }

Kernels read_resources(const std::vector<std::string>& paths) {
  Kernels all;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("no file " + path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string architecture, name;
      std::getline(fields, architecture, '\t');
      std::getline(fields, name, '\t');
      Needs n;
      fields >> n.registers >> n.memory >> n.static_shared >> n.threads >> n.vector_loads >> n.loads >>
          n.vector_stores >> n.stores;
      const auto a = std::find(kNames.begin(), kNames.end(), architecture);
      if (!fields || a == kNames.end()) throw std::runtime_error(path + ": not as expected: " + line);
      all[short_name(name)].on[static_cast<size_t>(a - kNames.begin())] = n;
    }
  }
  return all;
}

struct Count {
  double times_needed = 0, passes = 1;  // bytes moved / minimal bytes; passes / passes without bank conflicts
  std::set<std::string> kernels;
};
// Runs a case, and raises the entries of its kernels and their templates in *shared_bytes (dynamic shared
// memory).
Count count(const Case& c, std::map<std::string, int64_t>* shared_bytes) {
  CounterScope counting;
  mark();
  c.run();
  double moved = 0, least = 0, passes = 0;
  for (const Traffic& t : counting.take()) {
    moved += static_cast<double>(t.sectors * kSectorBytes);
    least += static_cast<double>(t.least_passes), passes += static_cast<double>(t.passes);
  }
  Count result{moved / c.bytes, least > 0 ? passes / least : 1, {}};
  for (const Launched& l : counting.take_launches()) {
    const std::string name = short_name(l.kernel);
    result.kernels.insert(name);
    for (const std::string& key : {name, template_of(name)}) {
      int64_t& most = shared_bytes->try_emplace(key, 0).first->second;
      most = std::max(most, l.shared_bytes);
    }
  }
  return result;
}

void print_counts() {
  std::printf("case\tsectors read\tsectors written\trequests\tpasses\n");
  for (const Case& c : cases()) {
    CounterScope counting;
    c.run();
    uint64_t read = 0, written = 0, requests = 0, passes = 0;
    for (const Traffic& t : counting.take()) {
      (t.write ? written : read) += t.sectors;
      if (t.shared) requests += t.requests, passes += t.passes;
    }
    std::printf("%s\t%llu\t%llu\t%llu\t%llu\n", c.name.c_str(), static_cast<unsigned long long>(read),
                static_cast<unsigned long long>(written), static_cast<unsigned long long>(requests),
                static_cast<unsigned long long>(passes));
  }
}

// Checks limits. A value beyond its limit is a known exception or a fault.
class Bars {
 public:
  void check(bool holds, const std::string& who, const char* bar, const std::string& how) {
    const auto known = std::find_if(
        kKnownExceptions.begin(), kKnownExceptions.end(),
        [&](const Exception& e) { return who.rfind(e.who, 0) == 0 && std::strcmp(e.bar, bar) == 0; });
    if (holds) return;
    if (known == kKnownExceptions.end()) {
      std::printf("BEYOND THE BAR  %s: %s\n", who.c_str(), how.c_str());
      ++faults_;
    } else {
      used_[known - kKnownExceptions.begin()].push_back(who + ": " + how);
    }
  }
  // Prints the exceptions. Returns the number of faults; an unused exception is one.
  int finish(bool brief) {
    for (size_t i = 0; i < kKnownExceptions.size(); ++i) {
      const Exception& e = kKnownExceptions[i];
      const auto used = used_.find(static_cast<std::ptrdiff_t>(i));
      if (used == used_.end()) {
        std::printf("NO LONGER AN EXCEPTION  %s, %s\n", e.who, e.bar);
        ++faults_;
      } else if (!brief) {
        std::printf("exception  %s\n", e.reason);
        for (const std::string& what : used->second) std::printf("             %s\n", what.c_str());
      }
    }
    return faults_;
  }

 private:
  int faults_ = 0;
  std::map<std::ptrdiff_t, std::vector<std::string>> used_;
};

std::string text(const char* format, double value) {
  char buffer[100];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

int run(const std::vector<std::string>& paths, bool brief) {
  Kernels kernels = read_resources(paths);
  if (kernels.empty()) throw std::runtime_error("no kernels");
  std::map<std::string, int64_t> shared_bytes;
  Bars bars;

  const std::vector<Case> all = cases();
  if (!brief) std::printf("%-42s %12s %14s  kernels\n", "operands of 1 MiB", "bytes moved", "passes over");
  if (!brief) std::printf("%-42s %12s %14s\n", "", "over needed", "needed");
  for (const Case& c : all) {
    const Count n = count(c, &shared_bytes);
    if (!brief) {
      std::printf("%-42s %12.3f %14.3f ", c.name.c_str(), n.times_needed, n.passes);
      for (const std::string& k : n.kernels) std::printf(" %s", k.c_str());
      std::printf("\n");
    }
    bars.check(n.times_needed <= c.most, c.name, "bytes",
               text("%.2f times the bytes needed", n.times_needed) + text(", at most %.1f", c.most));
    bars.check(n.passes <= kMaxPasses, c.name, "passes",
               text("%.2f times the passes needed over shared memory", n.passes));
  }

  if (!brief)
    std::printf("\n%-110s %9s %7s %8s %9s %13s %13s\n%-110s %9s %7s %8s %9s %13s %13s\n", "", "registers",
                "memory", "shared", "occupied", "vector loads", "stores", "kernel", "sm_80 90", "bytes",
                "bytes", "sm_80 90", "of all", "");
  for (auto& [name, k] : kernels) {
    auto found = shared_bytes.find(name);
    if (found == shared_bytes.end()) found = shared_bytes.find(template_of(name));
    k.ran = found != shared_bytes.end();
    k.dynamic_shared = k.ran ? found->second : 0;
    bars.check(k.ran, name, "runs", "no case runs it");
    for (const Architecture a : {kA100, kH100}) {
      const std::string on = std::string(" on ") + kNames[a];
      bars.check(k.on[a].memory == 0, name, "memory",
                 text("%.0f bytes of memory a thread", k.on[a].memory) + on);
      bars.check(k.percent_occupied(a) >= kMinOccupancy, name, "occupancy",
                 text("%.0f %% occupied", k.percent_occupied(a)) + on);
    }
    if (brief) continue;
    const Needs &x = k.on[kA100], &y = k.on[kH100];
    std::printf("%-110s %5d %3d %7d %8lld %5d %3d %9d/%-3d %9d/%-3d\n", name.c_str(), x.registers,
                y.registers, x.memory + y.memory, static_cast<long long>(x.static_shared + k.dynamic_shared),
                k.percent_occupied(kA100), k.percent_occupied(kH100), y.vector_loads, y.loads,
                y.vector_stores, y.stores);
  }
  if (!brief) std::printf("\n");
  const int faults = bars.finish(brief);
  std::printf("%zu kernels, %zu cases, %zu known exceptions, %d faults\n", kernels.size(), all.size(),
              kKnownExceptions.size(), faults);
  return faults ? 1 : 0;
}

}  // namespace
}  // namespace report

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  const bool brief = std::erase(paths, "--brief") > 0;
  try {
    if (paths == std::vector<std::string>{"--counts"}) return report::print_counts(), 0;
    return report::run(paths, brief);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kernel_report: %s\n", e.what());
    return 2;
  }
}
