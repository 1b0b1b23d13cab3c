// Reads NUMA nodes and GPUs from sysfs (Documentation/ABI of the Linux kernel). bind() calls sched_setaffinity(2) and
// set_mempolicy(2).
#include "gradus/distributed/launch/internal/numa_binding.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/split.h"

namespace gradus::dist::internal {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = 1 << 16, kMaxNodes = 1024, kBits = 8 * sizeof(long);

// Returns the number at the begin of the text, or -1.
int number_in(const std::string& text) {
  int number = -1;
  return std::sscanf(text.c_str(), "%d", &number) == 1 ? number : -1;
}

// Parses a list of CPUs: "0-3,8-11".
cpu_set_t cpus_in(const std::string& list) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const std::string& range : split(list, ",\n")) {
    int first = 0, last = 0;
    const int numbers = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (numbers < 1 || first < 0) continue;
    for (int cpu = first; cpu <= std::min(numbers == 1 ? first : last, CPU_SETSIZE - 1); ++cpu)
      CPU_SET(cpu, &cpus);
  }
  return cpus;
}

// Returns the NUMA node of the rank's GPU, or -1. NVIDIA's display controllers (PCI class 03) in the order of their
// addresses are the GPUs.
int node_of_gpu(const std::string& sys, int local_rank) {
  int gpu = local_rank;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::vector<std::string> list = split(visible, ",");
    gpu = size_t(local_rank) < list.size() ? number_in(list[size_t(local_rank)]) : -1;
  }
  std::vector<fs::path> gpus;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(sys + "/bus/pci/devices", error))
    if (read_file(entry.path() / "vendor", kMaxFile).starts_with("0x10de") &&
        read_file(entry.path() / "class", kMaxFile).starts_with("0x03"))
      gpus.push_back(entry.path());
  std::ranges::sort(gpus);
  return gpu >= 0 && size_t(gpu) < gpus.size()
             ? number_in(read_file(gpus[size_t(gpu)] / "numa_node", kMaxFile))
             : -1;
}

}  // namespace

std::optional<NumaBinding> numa_binding(int local_rank, int nproc, const std::string& sys) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::map<int, cpu_set_t> nodes;  // the allowed CPUs of those that have some
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(sys + "/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    const int node = name.starts_with("node") ? number_in(name.substr(4)) : -1;
    cpu_set_t cpus = cpus_in(read_file(entry.path() / "cpulist", kMaxFile));
    CPU_AND(&cpus, &cpus, &allowed);
    if (node >= 0 && size_t(node) < kMaxNodes && CPU_COUNT(&cpus) > 0) nodes[node] = cpus;
  }
  if (nodes.size() < 2) return {};
  auto found = nodes.find(node_of_gpu(sys, local_rank));
  if (found == nodes.end()) found = std::next(nodes.begin(), local_rank * int(nodes.size()) / nproc);
  return NumaBinding{.cpus = found->second, .node = found->first};
}

void bind(const NumaBinding& binding) {
  sched_setaffinity(0, sizeof binding.cpus, &binding.cpus);
  unsigned long nodes[kMaxNodes / kBits] = {};
  nodes[size_t(binding.node) / kBits] = 1UL << (size_t(binding.node) % kBits);
  syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, kMaxNodes + 1);  // the kernel subtracts 1
}

}  // namespace gradus::dist::internal
