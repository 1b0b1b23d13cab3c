// NumaBinding: the CPUs and the memory of a rank, as torchrun's --numa-binding node.
#pragma once

#include <sched.h>

#include <optional>
#include <string>

namespace gradus::dist::internal {

struct NumaBinding {
  cpu_set_t cpus = {};
  int node = 0;  // preferred for allocations
};

// Returns the NUMA node of the rank's GPU, and its CPUs that this process may use. Without GPUs, or if this process may
// use no CPU of the node, ranks are divided in order among the nodes of whose CPUs it may use some. Returns nullopt if
// that is one node. GPUs are numbered by their PCI addresses, as CUDA numbers equal ones; a container that sees only
// some of a machine's GPUs must set CUDA_VISIBLE_DEVICES to their numbers on the machine, or bind ranks by numactl.
// 0 <= local_rank < nproc. `sys` is the folder of sysfs.
std::optional<NumaBinding> numa_binding(int local_rank, int nproc, const std::string& sys = "/sys");

// Binds the calling thread. Async-signal-safe. What the kernel refuses (memory policies, in some containers) stays as it
// was.
void bind(const NumaBinding& binding);

}  // namespace gradus::dist::internal
