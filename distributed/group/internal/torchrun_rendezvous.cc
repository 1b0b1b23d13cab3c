#include <atomic>
#include <tuple>
#include <utility>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/internal/rendezvous.h"
#include "gradus/distributed/store/private_folder.h"
#include "gradus/distributed/store/torchrun_store.h"

namespace gradus::dist::internal {

// Rank 0 passes the port and the random name of the job's store through torchrun's store.
JobStore find_through_torchrun(const StoreAddress& torchrun_address, const JobPosition& position,
                               const Deadline& deadline) {
  constexpr const char* kOp = "init_process_group";
  static std::atomic<int> joins{0};  // a process may join one job after another
  const std::string key = concat("gradus/", torchrun_address.attempt, '/', joins++);
  JobStore store{.address = torchrun_address, .host = torchrun_address.host};
  use_user_token(store);
  TorchrunStore torchrun(kOp, torchrun_address.host, torchrun_address.port, deadline);
  StoreAddress& address = store.address;
  if (position.rank == 0) {
    address.port = 0;
    address.job_id = random_digits(kOp, 32);
    host_store(store, torchrun_address.host, position.size);
    torchrun.set(key, to_wire(std::pair(address.port, address.job_id)));
  } else {
    std::tie(address.port, address.job_id) = from_wire<std::pair<int, std::string>>(torchrun.get(key));
  }
  return store;
}

}  // namespace gradus::dist::internal
