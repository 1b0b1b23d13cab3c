// Joining a job: init_process_group, ranks and groups.
//
// A program that calls dist::launcher needs none of this. Every other program calls init_process_group()
// once, under gradus-run, torchrun, Slurm, Open MPI and Kubernetes alike. If one of these has started a
// process as one rank of several and the process joins no job, its first collective, wrapper or loader
// throws a StateError.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/store.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist {

struct InitOptions {
  std::string backend = "gloo";
  //   env://            MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, or the variables of the scheduler
  //   tcp://host:port   rank 0 hosts the store there; "?rank=0&world_size=2" may follow
  //   file:///path      a file on a file system that all ranks see. It must not exist before, and is removed once
  //                     the ranks have met. It is this user's alone, in a folder that others may not write (or in
  //                     /tmp): else a FileError
  // If a port is given, that port is used or the call fails. docs/guide/distributed.md says how ranks find each
  // other.
  std::string init_method = "env://";
  int world_size = -1;  // -1: from init_method or the environment
  int rank = -1;
  std::shared_ptr<Store> store = {};              // instead of init_method; needs world_size and rank
  Milliseconds timeout{600'000};                  // of each call, unless it says otherwise
  std::optional<Milliseconds> init_timeout = {};  // for ranks to find each other; default: timeout
  // The job's secret. Default: GRADUS_TOKEN, else the secret in the user's own file ~/.gradus/token, which
  // the first rank makes. Ranks on several hosts then need a shared home folder.
  std::string token = {};
  bool shared_memory = true;  // between ranks of one host; false: all data goes through sockets
};

// Joins the job and makes the default group. Returns when all ranks are there.
// Errors: StateError if called twice; ValueError for options that do not fit; ConnectionError and
// TimeoutError naming the address or the missing ranks.
void init_process_group(const InitOptions& options = {});
// Leaves the job in order; a no-op without a job. Ranks that still wait for this rank get an
// error that says so.
void destroy_process_group();
bool is_initialized();
bool is_available();  // always true

// Returns the default group; before init_process_group, a group of one.
Group world();
int get_rank(const Group& group = {});        // 0 without a job; -1 when no member
int get_world_size(const Group& group = {});  // 1 without a job; -1 when no member
int get_local_rank();                         // on this host, 0 without a job
int get_local_world_size();
std::string get_backend(const Group& group = {});
// Convert between ranks in the job and ranks in the group.
// Errors: ValueError if the rank is no member.
int get_group_rank(const Group& group, int global_rank);
int get_global_rank(const Group& group, int group_rank);
std::vector<int> get_process_group_ranks(const Group& group);
bool is_launched();  // whether dist::launcher, gradus-run or torchrun started this process

struct NewGroupOptions {
  std::optional<Milliseconds> timeout = {};
  std::string name = {};
};
// Makes a group. Collective over the whole job, in the same order on all ranks. Ranks that are no members get
// a group whose is_member() is false.
// Errors: ValueError for a rank that is outside of the job or named twice.
Group new_group(const std::vector<int>& ranks, const NewGroupOptions& options = {});
// Cuts the job into groups of `size` neighbors. Returns this rank's group.
// Errors: ValueError unless size divides the world's.
Group new_subgroups(int size);
// Makes one group per list. Returns this rank's group; if it is in none, a group whose is_member() is false.
// Errors: ValueError if lists overlap.
Group new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_group);

}  // namespace gradus::dist
