// guarded_store: a store whose calls also throw when the job has failed, or if they wait for keys that no
// other rank is left to set. A request that waits (get, pop, wait) is executed in slices of 200 ms, and the
// job's Membership is checked between slices. Thread-safe if the store is.
#include <algorithm>
#include <thread>

#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist {
namespace {

// Maximum delay between the job's failure, or the exit of the last other rank, and the end of a wait.
constexpr Milliseconds kSlice{200};

class GuardedStore final : public Store {
 public:
  GuardedStore(std::shared_ptr<Store> store, std::shared_ptr<Membership> membership)
      : store_(std::move(store)), membership_(std::move(membership)) {
    set_timeout(store_->default_timeout());
  }

  StoreAnswer execute(const StoreRequest& request) override {
    if (!request.waits()) return checked(request);
    const Deadline deadline = Deadline::after(request.timeout);
    StoreRequest slice = request;
    for (;;) {
      try {
        slice.timeout = std::min(kSlice, deadline.remaining());
        return checked(slice);
      } catch (const TimeoutError&) {
        membership_->check(request.name());  // throws the job's failure
        const bool alone = membership_->others_left();
        if (!alone && !deadline.passed()) continue;
        std::vector<std::string> missing;
        for (const std::string_view key : request.keys)
          if (!store_->check({std::string(key)})) missing.emplace_back(key);
        slice.timeout = Milliseconds(0);
        if (missing.empty()) return store_->execute(slice);  // the keys were set at the last moment
        if (alone)
          throw PeerError(request.name(), -1, internal::missing_text(missing),
                          ", and all other ranks have left the job");
        internal::throw_missing(request.name(), missing, deadline.timeout());
      }
    }
  }

 private:
  // Executes the request. If the store's connection breaks, waits briefly for the job's failure to become
  // known, and throws the failure instead.
  StoreAnswer checked(const StoreRequest& request) {
    membership_->check(request.name());
    try {
      return store_->execute(request);
    } catch (const ConnectionError&) {
      for (const Deadline soon = Deadline::after(kSlice); !membership_->failed() && !soon.passed();)
        std::this_thread::sleep_for(Milliseconds(1));
      membership_->check(request.name());
      throw;
    }
  }

  const std::shared_ptr<Store> store_;
  const std::shared_ptr<Membership> membership_;
};

}  // namespace

std::shared_ptr<Store> guarded_store(std::shared_ptr<Store> store, std::shared_ptr<Membership> membership) {
  return std::make_shared<GuardedStore>(std::move(store), std::move(membership));
}

}  // namespace gradus::dist
