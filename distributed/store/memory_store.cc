#include "gradus/distributed/store/memory_store.h"

#include <mutex>
#include <type_traits>

#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/health/futex.h"

namespace gradus::dist {
namespace {

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    change("set", [&] { keys_.set(key, value); });
  }
  std::string get(std::string_view key, std::optional<Milliseconds> timeout) override {
    std::string value;
    wait_for("get", {std::string(key)}, timeout, [&] { value = *keys_.find(key); });
    return value;
  }
  std::string pop(std::string_view key, std::optional<Milliseconds> timeout) override {
    std::string value;
    wait_for("pop", {std::string(key)}, timeout, [&] {
      value = *keys_.find(key);
      keys_.erase(key);
    });
    return value;
  }
  int64_t add(std::string_view key, int64_t amount) override {
    return change("add", [&] { return keys_.add(key, amount); });
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    return change("compare_set", [&] { return std::string(keys_.compare_set(key, expected, desired)); });
  }
  int64_t append(std::string_view key, std::string_view value) override {
    return change("append", [&] { return keys_.append(key, value); });
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout) override {
    wait_for("wait", keys, timeout, [] {});
  }
  bool check(const std::vector<std::string>& keys) override {
    return look("check", [&] { return keys_.missing(keys).empty(); });
  }
  bool delete_key(std::string_view key) override {
    return change("delete_key", [&] { return keys_.erase(key); });
  }
  int64_t num_keys() override {
    return look("num_keys", [&] { return int64_t(keys_.size()); });
  }

 private:
  static void step(const char* what) {
    if (internal::Simulation* simulation = internal::Simulation::current()) simulation->step(what);
  }

  template <class F> std::invoke_result_t<F> change(const char* op, F&& f) {
    step(op);
    struct Notify {  // once the lock is free
      internal::Futex& changed;
      ~Notify() { changed.notify(); }
    } notify{changed_};
    std::lock_guard lock(mutex_);
    return f();
  }
  template <class F> std::invoke_result_t<F> look(const char* op, F&& f) {
    step(op);
    std::lock_guard lock(mutex_);
    return f();
  }

  // Waits for the keys, then runs `then` under the same lock.
  template <class Then>
  void wait_for(const char* op, const std::vector<std::string>& keys, std::optional<Milliseconds> timeout,
                Then&& then) {
    step(op);
    const internal::Watch watch{nobody_.get(), Deadline::after(timeout.value_or(default_timeout()))};
    const auto missing = [&] {
      std::lock_guard lock(mutex_);
      return keys_.missing(keys);
    };
    const auto try_once = [&] {
      std::lock_guard lock(mutex_);
      if (!keys_.missing(keys).empty()) return false;
      then();
      return true;
    };
    while (!try_once()) {
      if (changed_.wait(
              watch, [&] { return missing().empty(); }, op) != internal::WaitResult::kTimeout)
        continue;
      const std::vector<std::string> absent = missing();
      if (!absent.empty()) internal::throw_missing(op, absent, watch.deadline.timeout());
    }
  }

  std::mutex mutex_;
  internal::KeyTable keys_;
  internal::Futex changed_;
  const std::shared_ptr<Membership> nobody_ = make_local_memberships(1)[0];  // never fails
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace gradus::dist
