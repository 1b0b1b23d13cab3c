// Job: rank and size of the distributed job of this process, or of this thread if ranks are threads. Code below
// distributed/ (data loading, random numbers) gets its rank from here. distributed/ creates jobs of several ranks.
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
  bool shared = false;  // shared memory of all ranks of this host; else private
};

// A model replica of data parallelism and the number of replicas. Replicas train on different samples; a replica
// may have several ranks (pipeline stages).
struct Replica {
  int index = 0, count = 1;
  bool operator==(const Replica&) const = default;
};

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
  // Returns replica(), which set_replica cannot change from then on. Loaders and samplers call this to choose
  // their samples.
  Replica freeze_replica();

  // Returns `bytes` bytes of read-only memory with the contents `key`, written by fill(). The ranks of a host have
  // one copy: the first rank that calls share(key) runs fill(), the others wait. Not collective: any rank may make
  // the call or not.
  // Errors: exceptions of fill(). Then the next waiting rank runs fill().
  using Fill = std::function<void(std::byte* memory)>;
  virtual HostMemory share(const std::string& key, size_t bytes, const Fill& fill);

  // Returns one value for all ranks: the n-th calls for `what` of all ranks return the `value` of the rank whose
  // n-th call came first. Not collective.
  virtual std::string first_value(const std::string& what, const std::string& value);

  // Returns the calling thread's job: its Context's, else the process's, else a job of one rank.
  static Ref<Job> current();
  // Returns the process's job; null if there is none.
  static Ref<Job> of_process();
  // Makes `job` (null: none) the process's job and returns the previous one.
  static Ref<Job> exchange_process_job(Ref<Job> job);

 private:
  mutable std::mutex replica_mutex_;
  std::optional<Replica> replica_;
  bool shared_ = false;  // freeze_replica() was called
};

}  // namespace gradus
