// Rank, world size and rendezvous address of this process, read from the environment variables of gradus-run and
// torchrun, Slurm, Open MPI, MPICH (PMI), and Kubernetes indexed jobs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

struct Environment {
  std::string source;  // "RANK", "Slurm", "Open MPI", "PMI" or "Kubernetes", for messages
  int rank = 0, world_size = 1;
  int local_rank = -1, local_world_size = -1;  // -1: unknown
  int node = -1;                               // GROUP_RANK, SLURM_NODEID, ...
  std::string master_addr;                     // "" when unknown
  int master_port = 29500;
  bool master_port_is_set = false;  // MASTER_PORT is set
  bool torchrun_store = false;      // MASTER_PORT is the port of torchrun's TCPStore
  int restart_count = 0, max_restarts = 0;
  std::string job_id = "none";
  std::string token;       // GRADUS_TOKEN: the secret with which ranks prove that they belong to the job
  std::string store;       // GRADUS_STORE=host:port, the launcher's store; "" when unset
  std::string error_file;  // GRADUS_ERROR_FILE or TORCHELASTIC_ERROR_FILE
};

// Reads an environment variable; null if it is not set.
using GetVariable = std::function<const char*(const char* name)>;

// Returns the environment, or nullopt if no launcher has set a rank. `get` defaults to getenv. Checks numbers,
// ranges, and rank < world_size.
// Errors: ValueError with the variable, its value and the expected value, or with the missing variable.
std::optional<Environment> read_environment(const GetVariable& get = {});

// Checks that this process has joined a job if a launcher started it as one of several ranks. Ops that are
// collective call this; without the check each rank would silently train alone. Errors: StateError.
void check_joined(std::string_view op);

// Returns the first host of a Slurm node list: "node[003-005,009]" -> "node003".
// Errors: ValueError.
std::string first_slurm_host(const std::string& node_list);

}  // namespace gradus
