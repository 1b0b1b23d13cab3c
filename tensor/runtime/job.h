// Job: rank and size of the distributed job of this process, or of this thread if ranks are threads. Code on which
// distributed/ depends (data loading, random numbers) gets its rank from Job. Jobs of several ranks are created by
// distributed/, in a derived class.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gradus/tensor/base/ref.h"

namespace gradus {

// Read-only host memory.
struct HostMemory {
  std::shared_ptr<const std::byte> bytes;
  bool shared = false;  // true: memory shared by all ranks of this host; false: a copy of this process
};

// A model replica of data parallelism and the number of replicas. Replicas train on different samples; a replica
// may have several ranks (pipeline stages).
struct Replica {
  int index = 0, count = 1;
  bool operator==(const Replica&) const = default;
};

// The base class implements a job of one rank. Functions are thread-safe; the numbers are set by the creator.
class Job : public Counted {
 public:
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // within this host

  // Returns the replica of this rank. Ranks of one replica get the same samples and the same dropout masks. By
  // default each rank is a replica.
  Replica replica() const;
  // Sets the replica of this rank.
  // Errors: ValueError unless index is in [0, count) and count in [1, size]; StateError if a different replica was
  // set or was returned by freeze_replica() before.
  void set_replica(Replica replica);
  // Returns replica(). Afterward set_replica() cannot change the replica, because data loaders and samplers call
  // freeze_replica() to choose the samples that this rank reads.
  Replica freeze_replica();

  // Returns read-only memory of `bytes` bytes that fill(memory) has written, so that the ranks of a host keep one
  // copy of a data set. `key` identifies the contents: calls with the same key and size must have the same fill().
  // The first rank of a host that calls share(key) runs fill(); the others wait, and get the same memory. A rank
  // that cannot map the shared memory, and the only rank of a host, run fill() on memory of their own. Not
  // collective. The memory is freed with its last owner.
  // Errors: exceptions of fill(), after which the next waiting rank runs fill(). With several ranks on the host,
  // also ValueError for a key of more than 512 bytes, and the errors of waiting: timeout, failure of the job.
  using Fill = std::function<void(std::byte* memory)>;
  virtual HostMemory share(const std::string& key, size_t bytes, const Fill& fill);

  // Returns one value for all ranks: on every rank, the n-th call for `what` returns the `value` of the rank
  // that made its n-th call first. Not collective: the call does not wait for other ranks.
  virtual std::string value_of_first_caller(const std::string& what, const std::string& value);

  // Returns the calling thread's job: the one in the thread's Context (thread-local state, set if ranks are
  // threads), else the process's, else a job of one rank.
  static Ref<Job> current();
  // Returns the process's job; null if there is none.
  static Ref<Job> of_process();
  // Makes `job` (null: none) the process's job and returns the previous one.
  static Ref<Job> exchange_process_job(Ref<Job> job);

 private:
  mutable std::mutex replica_mutex_;
  std::optional<Replica> replica_;
  bool replica_frozen_ = false;  // freeze_replica() was called
};

}  // namespace gradus
