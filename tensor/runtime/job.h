// Job: the place of this process, or of this thread when ranks are threads, among the ranks of a job.
// Parts that know nothing of other ranks (data, random numbers) ask it who they are. distributed/ makes
// jobs of several.
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
  bool shared = false;  // with the other ranks of this host; else it is this process's own
};

class Job : public Counted {
 public:
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host

  // Returns `bytes` bytes that fill() has written, read-only, of which the ranks of a host keep one copy: the
  // first that asks for `key` fills it, others wait for that. Not collective: any rank may ask, or not. `key`
  // names the contents.
  // Errors: what fill() throws; then the next rank that waits tries.
  using Fill = std::function<void(std::byte* memory)>;
  virtual HostMemory share(const std::string& key, size_t bytes, const Fill& fill);

  // What ranks should do alike: returns the `value` that the first rank to get there gave in its n-th call
  // for `what`, where this is this rank's n-th. Not collective.
  virtual std::string first_given(const std::string& what, const std::string& value);

  // The calling thread's job (its Context's, else the process's, else a job of one).
  static Ref<Job> current();
  // The process's, whatever the thread; null when there is none.
  static Ref<Job> of_process();
  // Makes `job` (null: none) the process's, and returns what was.
  static Ref<Job> exchange_process_job(Ref<Job> job);
};

}  // namespace gradus
