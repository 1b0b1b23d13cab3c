// MemoryStore: a KeyTable under a mutex. A request that waits for keys sleeps on a futex, which every change
// of a key notifies, and tries again. In a simulation the futex waits in simulated time.
#include "gradus/distributed/store/memory_store.h"

#include <mutex>
#include <optional>

#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/health/futex.h"

namespace gradus::dist {
namespace {

class MemoryStore final : public Store {
 public:
  StoreAnswer execute(const StoreRequest& request) override {
    if (internal::Simulation* simulation = internal::Simulation::current()) simulation->step(request.name());
    const internal::WaitLimits watch{never_fails_.get(), Deadline::after(request.timeout)};
    const auto missing = [&] {
      std::lock_guard lock(mutex_);
      return keys_.missing(request);
    };
    for (;;) {
      if (const std::optional<StoreAnswer> answer = try_once(request)) {
        if (request.changes_key()) changed_.notify();
        return *answer;
      }
      if (changed_.wait(
              watch, [&] { return missing().empty(); }, request.name()) != internal::WaitResult::kTimeout)
        continue;
      const std::vector<std::string> absent = missing();
      if (!absent.empty()) internal::throw_missing(request.name(), absent, watch.deadline.timeout());
    }
  }

 private:
  // Executes the request. Returns nullopt if a key that the request waits for is missing.
  std::optional<StoreAnswer> try_once(const StoreRequest& request) {
    std::lock_guard lock(mutex_);
    if (!keys_.missing(request).empty()) return {};
    return keys_.execute(request);
  }

  std::mutex mutex_;
  internal::KeyTable keys_;
  internal::Futex changed_;
  const std::shared_ptr<Membership> never_fails_ = make_local_memberships(1)[0];  // required by WaitLimits
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace gradus::dist
