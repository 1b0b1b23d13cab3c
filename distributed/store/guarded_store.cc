#include <algorithm>
#include <thread>

#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist {
namespace {

// How soon a wait ends after the job has failed, or after all other ranks have left.
constexpr Milliseconds kSlice{200};

class GuardedStore final : public Store {
 private:
  // If the store is gone, throws the job's failure instead, which becomes known soon after.
  template <class F> auto checked(const char* op, F&& f) {
    membership_->check(op);
    try {
      return f();
    } catch (const ConnectionError&) {
      for (const Deadline soon = Deadline::after(kSlice); !membership_->failed() && !soon.passed();)
        std::this_thread::sleep_for(Milliseconds(1));
      membership_->check(op);
      throw;
    }
  }

  template <class F>
  auto sliced(const char* op, const std::vector<std::string>& keys, std::optional<Milliseconds> timeout,
              F&& f) {
    const Deadline deadline = Deadline::after(timeout.value_or(default_timeout()));
    for (;;) {
      try {
        return checked(op, [&] { return f(std::min(kSlice, deadline.left())); });
      } catch (const TimeoutError&) {
        membership_->check(op);
        const bool alone = membership_->others_left();
        if (!alone && !deadline.passed()) continue;
        std::vector<std::string> missing;
        for (const std::string& key : keys)
          if (!store_->check({key})) missing.push_back(key);
        // The keys came at the last moment.
        if (missing.empty()) return f(Milliseconds(0));
        if (alone)
          throw PeerError(op, -1, internal::missing_text(missing), ", and all other ranks have left the job");
        internal::throw_missing(op, missing, deadline.timeout());
      }
    }
  }

 public:
  GuardedStore(std::shared_ptr<Store> store, std::shared_ptr<Membership> membership)
      : store_(std::move(store)), membership_(std::move(membership)) {
    set_timeout(store_->default_timeout());
  }

  void set(std::string_view key, std::string_view value) override {
    checked("set", [&] { store_->set(key, value); });
  }
  std::string get(std::string_view key, std::optional<Milliseconds> timeout) override {
    return sliced("get", {std::string(key)}, timeout,
                  [&](Milliseconds slice) { return store_->get(key, slice); });
  }
  std::string pop(std::string_view key, std::optional<Milliseconds> timeout) override {
    return sliced("pop", {std::string(key)}, timeout,
                  [&](Milliseconds slice) { return store_->pop(key, slice); });
  }
  int64_t add(std::string_view key, int64_t amount) override {
    return checked("add", [&] { return store_->add(key, amount); });
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    return checked("compare_set", [&] { return store_->compare_set(key, expected, desired); });
  }
  int64_t append(std::string_view key, std::string_view value) override {
    return checked("append", [&] { return store_->append(key, value); });
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout) override {
    sliced("wait", keys, timeout, [&](Milliseconds slice) { store_->wait(keys, slice); });
  }
  bool check(const std::vector<std::string>& keys) override {
    return checked("check", [&] { return store_->check(keys); });
  }
  bool delete_key(std::string_view key) override {
    return checked("delete_key", [&] { return store_->delete_key(key); });
  }
  int64_t num_keys() override {
    return checked("num_keys", [&] { return store_->num_keys(); });
  }

 private:
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<Membership> membership_;
};

}  // namespace

std::shared_ptr<Store> guarded_store(std::shared_ptr<Store> store, std::shared_ptr<Membership> membership) {
  return std::make_shared<GuardedStore>(std::move(store), std::move(membership));
}

}  // namespace gradus::dist
