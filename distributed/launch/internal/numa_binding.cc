// Reads NUMA nodes, cores, caches and GPUs from sysfs (Documentation/ABI of the Linux kernel). bind() calls sched_setaffinity(2) and
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
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = 1 << 16, kMaxNodes = 1024, kBits = 8 * sizeof(long);

// Returns the number at the beginning of the text, or -1.
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

using CpuSets = std::vector<cpu_set_t>;

std::string cpu_folder(const std::string& sys, int cpu) {
  return sys + "/devices/system/cpu/cpu" + std::to_string(cpu);
}

int package_of(const std::string& sys, const cpu_set_t& cpus) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &cpus))
      return number_in(read_file(cpu_folder(sys, cpu) + "/topology/physical_package_id", kMaxFile));
  return -1;
}

// Returns the file with the list of CPUs that share the CPU's last-level cache; "" if unknown.
std::string last_cache(const std::string& cpu) {
  std::string file;
  int last = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(cpu + "/cache", error))
    if (const int level = number_in(read_file(entry.path() / "level", kMaxFile)); level > last) {
      last = level;
      file = entry.path() / "shared_cpu_list";
    }
  return file;
}

// Divides CPUs into sets that share what the list in file_of(CPU's folder) says, in the order of their first CPUs. A CPU
// that is in no list is a set of its own.
template <class F> CpuSets divide(const std::string& sys, cpu_set_t cpus, const F& file_of) {
  CpuSets sets;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    cpu_set_t set = cpus_in(read_file(file_of(cpu_folder(sys, cpu)), kMaxFile));
    CPU_SET(cpu, &set);
    CPU_AND(&set, &set, &cpus);
    sets.push_back(set);
    CPU_XOR(&cpus, &cpus, &set);
  }
  return sets;
}

// Returns the CPUs of the `index`-th of `ranks` ranks on a node with these CPUs.
// Errors: ValueError.
cpu_set_t exclusive_cpus(const std::string& sys, const cpu_set_t& cpus, int index, int ranks) {
  const CpuSets cores =
      divide(sys, cpus, [](const std::string& cpu) { return cpu + "/topology/thread_siblings_list"; });
  const int count = int(cores.size());
  if (ranks > count)
    throw ValueError("--numa-binding exclusive", "a NUMA node has ", count,
                     " cores that may be used, expected at least ", ranks, ", one for each of its ranks");
  cpu_set_t result;
  CPU_ZERO(&result);
  for (int core = count * index / ranks; core < count * (index + 1) / ranks; ++core)
    CPU_OR(&result, &result, &cores[size_t(core)]);
  return result;
}

// Returns the CPUs of the `index`-th rank on a node with these CPUs: those of one last-level cache. Uses the caches with
// the most allowed CPUs only, because other programs may use the rest of the others' CPUs.
cpu_set_t core_complex(const std::string& sys, const cpu_set_t& cpus, int index) {
  CpuSets caches = divide(sys, cpus, last_cache);
  int largest = 0;
  for (const cpu_set_t& cache : caches) largest = std::max(largest, CPU_COUNT(&cache));
  std::erase_if(caches, [&](const cpu_set_t& cache) { return CPU_COUNT(&cache) < largest; });
  return largest > 1 ? caches[size_t(index) % caches.size()]
                     : cpus;  // no cache is shared, or sysfs lists none
}

}  // namespace

std::optional<NumaBinding> numa_binding(NumaMode mode, int local_rank, int nproc, const std::string& sys,
                                        std::optional<cpu_set_t> usable) {
  cpu_set_t allowed = usable.value_or(cpu_set_t{});
  if (!usable && sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::map<int, cpu_set_t> nodes;  // the allowed CPUs of those that have some
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(sys + "/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    const int node = name.starts_with("node") ? number_in(name.substr(4)) : -1;
    cpu_set_t cpus = cpus_in(read_file(entry.path() / "cpulist", kMaxFile));
    CPU_AND(&cpus, &cpus, &allowed);
    if (node >= 0 && size_t(node) < kMaxNodes && CPU_COUNT(&cpus) > 0) nodes[node] = cpus;
  }
  const bool binds_parts = mode == NumaMode::kExclusive || mode == NumaMode::kCoreComplex;
  if (nodes.size() < (binds_parts ? 1 : 2)) return {};
  const auto node_of = [&](int rank) {
    const auto found = nodes.find(node_of_gpu(sys, rank));
    return found != nodes.end() ? found : std::next(nodes.begin(), rank * int(nodes.size()) / nproc);
  };
  const auto own = node_of(local_rank);
  NumaBinding binding{.cpus = own->second, .node = own->first};
  if (mode == NumaMode::kSocket) {
    if (const int package = package_of(sys, own->second); package >= 0)
      for (const auto& [node, cpus] : nodes)
        if (package_of(sys, cpus) == package) CPU_OR(&binding.cpus, &binding.cpus, &cpus);
  } else if (binds_parts) {
    int index = 0, ranks = 0;  // of this rank among those of its node, and their number
    for (int rank = 0; rank < nproc; ++rank) {
      const bool is_neighbor = node_of(rank) == own;
      ranks += is_neighbor;
      index += is_neighbor && rank < local_rank;
    }
    binding.cpus = mode == NumaMode::kExclusive ? exclusive_cpus(sys, own->second, index, ranks)
                                                : core_complex(sys, own->second, index);
  }
  return binding;
}

void bind(const NumaBinding& binding) {
  sched_setaffinity(0, sizeof binding.cpus, &binding.cpus);
  unsigned long nodes[kMaxNodes / kBits] = {};
  nodes[size_t(binding.node) / kBits] = 1UL << (size_t(binding.node) % kBits);
  syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, kMaxNodes + 1);  // the kernel subtracts 1
}

}  // namespace gradus::dist::internal
