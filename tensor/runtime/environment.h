// What the environment says about this process's place in a job: the variables of gradus-run and torchrun, of
// Slurm, Open MPI (and MPICH's PMI), and of Kubernetes' indexed jobs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

struct Environment {
  std::string source;  // "RANK", "Slurm", "Open MPI", "PMI", "Kubernetes": for messages
  int rank = 0, world_size = 1;
  int local_rank = -1, local_world_size = -1;  // -1: not said
  int node = -1;                               // GROUP_RANK, SLURM_NODEID, ...
  std::string master_addr;                     // "" when not said
  int master_port = 29500;
  bool port_is_given = false;   // by MASTER_PORT
  bool torchrun_store = false;  // MASTER_PORT is that of torchrun's own store
  int restart_count = 0, max_restarts = 0;
  std::string job_id = "none";
  std::string token;       // GRADUS_TOKEN
  std::string store;       // GRADUS_STORE=host:port: where the launcher hosts the store; "" elsewhere
  std::string error_file;  // GRADUS_ERROR_FILE or TORCHELASTIC_ERROR_FILE
};

using GetVariable = std::function<const char*(const char* name)>;

// Returns nothing when no variable speaks of ranks. Values are checked: numbers, ranges, rank < world_size.
// Errors: ValueError that names the variable, its value and what is expected; or the one that is missing
// ("RANK is set but WORLD_SIZE is not").
std::optional<Environment> read_environment(const GetVariable& get = {});

// To be called by what ranks do together.
// Errors: StateError when a launcher started this process as one rank of several and it is in no job: each
// rank would train alone, and nobody would see it.
void check_joined(std::string_view op);

// The first host of a Slurm node list: "node[003-005,009]" -> "node003".
// Errors: ValueError.
std::string first_slurm_host(const std::string& node_list);

}  // namespace gradus
