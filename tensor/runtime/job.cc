// The job of a process or thread (Job::current), and Job's base class: a job of one rank, in which share()
// allocates memory of this process, and value_of_first_caller() returns its argument. Jobs of several ranks
// override both. Also the data-parallel replica of a rank, which selects its samples: each rank is a replica until
// set_replica(). Thread-safe.
#include "gradus/tensor/runtime/job.h"

#include <mutex>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus {
namespace {

// Guards slot(). Both are never destroyed, because code that runs at exit uses them.
std::mutex& mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
Ref<Job>& slot() {
  static auto& job = *new Ref<Job>;
  return job;
}

}  // namespace

Replica Job::replica() const {
  std::lock_guard lock(replica_mutex_);
  return replica_.value_or(Replica{rank, size});
}

void Job::set_replica(Replica replica) {
  if (replica.count < 1 || replica.count > size || replica.index < 0 || replica.index >= replica.count)
    throw ValueError("set_replica", "a job of ", size, " ranks has no replica ", replica.index, " of ",
                     replica.count);
  std::lock_guard lock(replica_mutex_);
  const Replica now = replica_.value_or(Replica{rank, size});
  if (replica != now && (replica_ || replica_frozen_))
    throw StateError("set_replica", "rank ", rank, " works for replica ", now.index, " of ", now.count,
                     ", and cannot change to ", replica.index, " of ", replica.count,
                     replica_frozen_
                         ? ": a loader or sampler has taken its share already; make the grid before it"
                         : ": a job has one number of replicas");
  replica_ = replica;
}

Replica Job::freeze_replica() {
  std::lock_guard lock(replica_mutex_);
  replica_frozen_ = true;
  return replica_.value_or(Replica{rank, size});
}

HostMemory Job::share(const std::string&, size_t bytes, const Fill& fill) {
  const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  fill(memory.get());
  return {.bytes = {memory, memory.get()}};
}

std::string Job::value_of_first_caller(const std::string&, const std::string& value) { return value; }

Ref<Job> Job::current() {
  if (const Ref<Job>& job = Context::current().job) return job;
  if (Ref<Job> job = of_process()) return job;
  static const auto& alone = *new Ref<Job>(make_ref<Job>());
  return alone;
}

Ref<Job> Job::of_process() {
  std::lock_guard lock(mutex());
  return slot();
}

Ref<Job> Job::exchange_process_job(Ref<Job> job) {
  std::lock_guard lock(mutex());
  std::swap(slot(), job);
  return job;
}

}  // namespace gradus
