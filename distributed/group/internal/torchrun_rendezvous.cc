#include <atomic>
#include <tuple>
#include <utility>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/internal/rendezvous.h"
#include "gradus/distributed/store/torchrun_store.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";

// Rank 0 passes the port and the random name of the job's store through torchrun's store.
class TorchrunRendezvous final : public Rendezvous {
 public:
  explicit TorchrunRendezvous(StoreAddress address) : address_(std::move(address)) {}

  JobStore find_store(const JobPosition& position, const Deadline& deadline) override {
    static std::atomic<int> joins{0};  // a process may join one job after another
    const std::string key = concat("gradus/", address_.attempt, '/', joins++);
    JobStore store{.address = address_, .host = address_.host};
    use_user_token(store);
    TorchrunStore torchrun(kOp, address_.host, address_.port, deadline);
    StoreAddress& address = store.address;
    if (position.rank == 0) {
      address.port = 0;
      address.job_id = random_digits(kOp, 32);
      host_store(store, address_.host, position.size);
      torchrun.set(key, to_wire(std::pair(address.port, address.job_id)));
    } else {
      std::tie(address.port, address.job_id) = from_wire<std::pair<int, std::string>>(torchrun.get(key));
    }
    return store;
  }

 private:
  const StoreAddress address_;
};

}  // namespace

std::unique_ptr<Rendezvous> make_torchrun_rendezvous(StoreAddress address) {
  return std::make_unique<TorchrunRendezvous>(std::move(address));
}

}  // namespace gradus::dist::internal
