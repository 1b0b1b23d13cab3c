// Joining a job: init_process_group, and who and where one is.
//
// A program that calls dist::launcher needs none of this, whoever starts it. Every other one calls
// init_process_group() once: under gradus-run, torchrun, Slurm, Open MPI and Kubernetes alike. A process that
// one of them has started as one rank of several, and that joins no job, gets a StateError from the first
// collective, wrapper or loader.
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
  // env://            MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, or what the scheduler sets (environment.h)
  // tcp://host:port   rank 0 hosts the store there; "?rank=0&world_size=2" may follow
  // file:///path      a file on a file system that all ranks see; must not exist before, and is removed once
  //                   they have met. It is this user's alone, in a folder that others may not write (or in
  //                   /tmp): else a FileError
  // A port that was asked for is that port, or an error. (docs/distributed.md says who finds whom.)
  std::string init_method = "env://";
  int world_size = -1;  // -1: from init_method or the environment
  int rank = -1;
  std::shared_ptr<Store> store = {};  // instead of init_method; then world_size and rank are needed
  Milliseconds timeout{600'000};      // of each call, unless it says otherwise
  std::optional<Milliseconds> init_timeout = {};  // to find each other; default: timeout
  // The job's secret; default: GRADUS_TOKEN, else that of the user's own file ~/.gradus/token, which the
  // first rank makes (ranks on several hosts need a home folder that they share).
  std::string token = {};
  bool shared_memory = true;  // between ranks of one host; false: everything through the sockets
};

// Makes the default group. Returns when all ranks are there.
// Errors: StateError when called twice; ValueError for what does not fit; ConnectionError and TimeoutError
// naming the address, or the ranks that are missing.
void init_process_group(const InitOptions& options = {});
// Leaves the job in order; no-op without one. Others that still wait for this rank get an error that says so.
void destroy_process_group();
bool is_initialized();
bool is_available();  // true: for programs that ask

// The default group; a group of one before init_process_group.
Group world();
int get_rank(const Group& group = {});        // 0 without a job; -1 when no member
int get_world_size(const Group& group = {});  // 1 without a job; -1 when no member
int get_local_rank();                         // on this host, 0 without a job
int get_local_world_size();
std::string get_backend(const Group& group = {});
// Between ranks in the job and in the group.
// Errors: ValueError for no member.
int get_group_rank(const Group& group, int global_rank);
int get_global_rank(const Group& group, int group_rank);
std::vector<int> get_process_group_ranks(const Group& group);
bool is_launched();  // by dist::launcher, gradus-run or torchrun

struct NewGroupOptions {
  std::optional<Milliseconds> timeout = {};
  std::string name = {};
};
// Collective over the whole job, in the same order on all ranks. Ranks that are no members get a
// group that says so.
// Errors: ValueError for a rank outside of the job, or named twice.
Group new_group(const std::vector<int>& ranks, const NewGroupOptions& options = {});
// Cuts the job into groups of `size` neighbors; returns this rank's.
// Errors: ValueError unless size divides the world's.
Group new_subgroups(int size);
// One group per list; returns this rank's (a group of no member when it is in none).
// Errors: ValueError when lists overlap.
Group new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_group);

}  // namespace gradus::dist
