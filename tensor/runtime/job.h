// Job: the place of this process among the ranks of a job, or of this thread where ranks are threads.
// Parts that know nothing of other ranks (data, random numbers) ask it for their rank. distributed/ makes
// jobs of several ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gradus/tensor/base/ref.h"

namespace gradus {

// Read-only memory.
struct HostMemory {
  std::shared_ptr<const std::byte> bytes;
  bool shared = false;  // shared with the other ranks of this host; else this process's own
};

// One of the copies of a model that train on samples of their own, and how many copies there are.
struct Replica {
  int index = 0, count = 1;
  bool operator==(const Replica&) const = default;
};

class Job : public Counted {
 public:
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host

  // Returns the replica that this rank works for. Ranks of one replica get the same samples and drop the same
  // elements. Each rank is a replica of its own, unless set_replica said otherwise.
  Replica replica() const;
  // Says which replica this rank works for.
  // Errors: ValueError unless index is in [0, count) and count in [1, size]; StateError if another replica
  // was set before, or if samples were shared out by another one.
  void set_replica(Replica replica);
  // Returns replica(), and holds set_replica to it from now on. A loader calls this when it takes its share.
  Replica share_by_replica();

  // Returns `bytes` bytes of read-only memory that fill() has written. The ranks of a host keep one copy: the
  // first rank that asks for `key` fills it, and the others wait. `key` names the contents. The call is not
  // collective: any rank may make it or not.
  // Errors: what fill() throws. Then the next waiting rank tries.
  using Fill = std::function<void(std::byte* memory)>;
  virtual HostMemory share(const std::string& key, size_t bytes, const Fill& fill);

  // Returns one value for all ranks: if this is this rank's n-th call for `what`, the `value` of the first
  // rank that made its n-th call. The call is not collective.
  virtual std::string first_given(const std::string& what, const std::string& value);

  // Returns the calling thread's job: its Context's, else the process's, else a job of one rank.
  static Ref<Job> current();
  // Returns the process's job, whatever the thread; null when there is none.
  static Ref<Job> of_process();
  // Makes `job` (null: none) the process's job and returns the previous one.
  static Ref<Job> exchange_process_job(Ref<Job> job);

 private:
  mutable std::mutex replica_mutex_;
  std::optional<Replica> replica_;
  bool shared_ = false;  // samples were shared out by replica()
};

}  // namespace gradus
