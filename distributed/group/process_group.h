// Joining a job: init_process_group, ranks and groups.
//
// A program that calls dist::launcher does not call init_process_group. Every other program calls it once,
// whether gradus-run, torchrun, Slurm, Open MPI or Kubernetes starts it. If one of these has started the
// process as one of several ranks and it has not joined, its first collective or loader throws a StateError.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/store.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/base/device.h"

namespace gradus::dist {

struct InitOptions {
  // Between GPUs by NCCL where all members have it and a GPU of their own, else through host memory. "nccl" is the same;
  // "gloo": always through host memory.
  std::string backend = "cpu:gloo,cuda:nccl";
  //   env://            MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, or the variables of the scheduler
  //   tcp://host:port   rank 0 hosts the store there; "?rank=0&world_size=2" may follow
  //   file:///path      a file on a file system that all ranks see. The file must not exist before, and is
  //                     removed when all ranks have joined. FileError if other users may access the file, or
  //                     write its folder (unless the folder is sticky, as /tmp)
  // A port that is given is used, or the call fails. See also docs/guide/distributed.md.
  std::string init_method = "env://";
  int world_size = -1;                            // -1: from init_method or the environment
  int rank = -1;                                  // likewise
  std::shared_ptr<Store> store = {};              // instead of init_method; needs world_size and rank
  Milliseconds timeout{600'000};                  // default timeout of each later call
  std::optional<Milliseconds> init_timeout = {};  // timeout of init_process_group; default: `timeout`
  // The job's secret, by which ranks authenticate. "": GRADUS_TOKEN, else the secret in the file
  // ~/.gradus/token, which the first rank makes. Ranks on several hosts then need a shared home folder.
  std::string token = {};
  bool shared_memory = true;  // between ranks of one host; false: all data goes through sockets
};

// Joins the job and makes the default group. Collective over the job; returns when all ranks have joined.
// Errors: StateError if the process is in a job already; ValueError for options that contradict each other;
// ConnectionError and TimeoutError, which name the address or the missing ranks.
void init_process_group(const InitOptions& options = {});
// Leaves the job in order; a no-op without a job. Ranks that still wait for this rank then get a PeerError.
void destroy_process_group();
bool is_initialized();
bool is_available();  // true: Gradus is always built with distributed/

// Returns the default group; before init_process_group, a group of one.
Group world();
extern const Group WORLD;               // the default group of the job that is current where WORLD is used
int get_rank(const Group& group = {});  // 0 without a job; -1 when no member
int get_world_size(const Group& group = {});  // 1 without a job; -1 when no member
int get_local_rank();                         // index among the ranks of this host; 0 without a job
int get_local_world_size();
int get_node_rank();  // index of this host among the hosts of the job, ordered by their first rank; 0 without a job
// Returns cuda:(get_local_rank() % cuda_device_count()), or kCPU without a CUDA device. Initializes CUDA.
// Errors: those of cuda_device_count() (gradus/tensor/runtime/devices.h).
Device get_device();
std::string get_backend(const Group& group = {});
// Convert between ranks in the job and ranks in the group.
// Errors: ValueError if the rank is no member.
int get_group_rank(const Group& group, int global_rank);
int get_global_rank(const Group& group, int group_rank);
std::vector<int> get_process_group_ranks(const Group& group);
bool is_launched();  // whether dist::launcher, gradus-run or torchrun started this process

struct NewGroupOptions {
  std::optional<Milliseconds> timeout = {};  // of calls in the group; default: that of the default group
  std::string name = {};                     // for errors; default: "world" and a number
  // How the group's calls move data between GPUs, as in InitOptions; "": as in the default group. If any member
  // gives "gloo", all go through host memory.
  std::string backend = {};
};
// Makes a group. Collective over the whole job, in the same order on all ranks. Ranks that are no members get
// a group whose is_member() is false.
// Errors: ValueError for no ranks, or a rank that is outside of the job or named twice; MismatchError if
// `ranks` differ between ranks.
Group new_group(const std::vector<int>& ranks, const NewGroupOptions& options = {});
// Splits the job into groups of `size` consecutive ranks. Returns this rank's group.
// Errors: ValueError unless size divides the world's.
Group new_subgroups(int size, const NewGroupOptions& options = {});
// Makes one group per list. Returns this rank's group; if it is in none, a group whose is_member() is false.
// Errors: ValueError if lists overlap.
Group new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_group,
                                   const NewGroupOptions& options = {});
// Returns a new group of the ranks on this host. Collective over the job.
Group get_local_group();

// Groups that this thread makes during the object's lifetime use `backend`, unless their options name another:
//   auto scope = dist::override_backend("gloo");
//   dist::DistributedDataParallel ddp(net);  // its gradients go through host memory
// Errors: ValueError for an unknown backend.
class [[nodiscard]] OverrideBackend {
 public:
  explicit OverrideBackend(const std::string& backend);
  ~OverrideBackend();
  OverrideBackend(const OverrideBackend&) = delete;
  OverrideBackend& operator=(const OverrideBackend&) = delete;

 private:
  const std::optional<bool> previous_;
};
inline OverrideBackend override_backend(const std::string& backend) { return OverrideBackend(backend); }

}  // namespace gradus::dist
