// The place of this process in a job, read from the environment variables of gradus-run and torchrun, of
// Slurm, of Open MPI (and MPICH's PMI), and of Kubernetes' indexed jobs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

struct Environment {
  std::string source;  // "RANK", "Slurm", "Open MPI", "PMI", "Kubernetes", for messages
  int rank = 0, world_size = 1;
  int local_rank = -1, local_world_size = -1;  // -1: unknown
  int node = -1;                               // GROUP_RANK, SLURM_NODEID, ...
  std::string master_addr;                     // "" when unknown
  int master_port = 29500;
  bool port_is_given = false;   // MASTER_PORT is set
  bool torchrun_store = false;  // MASTER_PORT is the port of torchrun's own store
  int restart_count = 0, max_restarts = 0;
  std::string job_id = "none";
  std::string token;       // GRADUS_TOKEN
  std::string store;       // GRADUS_STORE=host:port: the store that the launcher hosts; "" when unset
  std::string error_file;  // GRADUS_ERROR_FILE or TORCHELASTIC_ERROR_FILE
};

using GetVariable = std::function<const char*(const char* name)>;

// Returns the place, or nothing when no variable speaks of ranks. Checks numbers, ranges, and
// rank < world_size.
// Errors: ValueError. It names the variable, its value and the expected value, or a variable that is missing
// ("RANK is set but WORLD_SIZE is not").
std::optional<Environment> read_environment(const GetVariable& get = {});

// Checks that this process is in a job, if a launcher started it as one rank of several. Ops that ranks do
// together call this. Otherwise each rank would train alone, unnoticed.
// Errors: StateError.
void check_joined(std::string_view op);

// Returns the first host of a Slurm node list: "node[003-005,009]" -> "node003".
// Errors: ValueError.
std::string first_slurm_host(const std::string& node_list);

}  // namespace gradus
