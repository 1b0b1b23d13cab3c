// run_ranks: one thread per rank (local_world.h); after the end of all, rethrows the exception of the rank
// that ended the job, or of the lowest rank with one.
#include "gradus/distributed/group/run_ranks.h"

#include <exception>

#include "gradus/distributed/group/local_world.h"

namespace gradus::dist {

void run_ranks(int world_size, const std::function<void()>& body, const RunRanksOptions& options) {
  const std::vector<Ref<internal::World>> worlds = internal::make_local_worlds(world_size, options);
  internal::Futex::set_ranks_on_host(world_size);
  std::vector<std::exception_ptr> errors(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.push_back(internal::start_thread([&, rank] {
      try {
        internal::run_as_rank(worlds[rank], body);
      } catch (const internal::RankKilled&) {
        throw;
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    }));
  for (std::thread& thread : threads) internal::join_thread(thread);
  const Membership& job = *worlds[0]->membership;
  if (!job.failed()) return;
  // The rank that failed has the exception itself; the other ranks have an error with its text.
  const int first = job.failure().rank;
  if (first >= 0 && errors[first]) std::rethrow_exception(errors[first]);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace gradus::dist
