// NumaBinding: the CPUs and the memory of a rank, as torchrun's --numa-binding.
#pragma once

#include <sched.h>

#include <optional>
#include <string>

namespace gradus::dist::internal {

enum class NumaMode {
  kNode,         // all CPUs of the rank's NUMA node
  kSocket,       // those of all nodes in the node's package
  kExclusive,    // the rank's share of the node's physical cores; ranks of the node share no core
  kCoreComplex,  // CPUs of the node that share a last-level cache; the node's ranks take its caches in turn
};

struct NumaBinding {
  cpu_set_t cpus = {};
  int node = 0;  // preferred for allocations
};

// Returns the NUMA node of the rank's GPU, and CPUs that this process may use, by `mode`. Without GPUs, or if this process
// may use no CPU of the node, ranks are divided in order among the nodes of whose CPUs it may use some. Of one node,
// kExclusive and kCoreComplex bind parts; the others return nullopt, as all do if sysfs has no nodes. GPUs are numbered by their PCI addresses, as CUDA numbers equal ones; a container that sees only
// some of a machine's GPUs must set CUDA_VISIBLE_DEVICES to their numbers on the machine, or bind ranks by numactl.
// 0 <= local_rank < nproc. `sys` is the folder of sysfs. `usable`: the CPUs that this process may use, by default asked
// of the system.
// Errors: ValueError for kExclusive with more ranks than cores on a node.
std::optional<NumaBinding> numa_binding(NumaMode mode, int local_rank, int nproc,
                                        const std::string& sys = "/sys",
                                        std::optional<cpu_set_t> usable = {});

// Binds the calling thread. Async-signal-safe. What the kernel refuses (memory policies, in some containers) stays as it
// was.
void bind(const NumaBinding& binding);

}  // namespace gradus::dist::internal
