// Job: the place of this process, or of this thread when ranks are threads, among the ranks of a job. Parts
// that know nothing of other ranks (data, random numbers) ask it who they are. distributed/ makes jobs of
// several.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "gradus/tensor/ref.h"

namespace gradus {

class Job : public Counted {
 public:
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host

  // Returns `bytes` bytes that fill() has written, read-only, of which the ranks of a host keep one copy: the
  // first that asks for `key` fills it, others wait for that. Not collective: any rank may ask, or not. `key`
  // names the contents. Errors: what fill() throws, on every rank that asks.
  using Fill = std::function<void(std::byte* memory)>;
  virtual std::shared_ptr<const std::byte> share(const std::string& key, size_t bytes, const Fill& fill);

  // The calling thread's job (its Context's, else the process's, else a job of one).
  static Ref<Job> current();
  // The process's, whatever the thread; null when there is none.
  static Ref<Job> of_process();
  // Makes `job` (null: none) the process's, and returns what was.
  static Ref<Job> exchange_process_job(Ref<Job> job);
};

}  // namespace gradus
