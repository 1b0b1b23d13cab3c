// Job: the place of this process among the ranks of a job, or of this thread where ranks are threads.
// Parts that know nothing of other ranks (data, random numbers) ask it for their rank. distributed/ makes
// jobs of several ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "gradus/tensor/base/ref.h"

namespace gradus {

// Read-only memory.
struct HostMemory {
  std::shared_ptr<const std::byte> bytes;
  bool shared = false;  // shared with the other ranks of this host; else this process's own
};

class Job : public Counted {
 public:
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host

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
};

}  // namespace gradus
