#include "gradus/distributed/store.h"

#include <charconv>
#include <functional>

#include "gradus/distributed/signal.h"

namespace gradus::dist {

std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys,
                                          std::optional<Milliseconds> timeout) {
  wait(keys, timeout);
  std::vector<std::string> values;
  for (const std::string& key : keys) values.push_back(get(key, timeout));
  return values;
}

void Store::multi_set(const std::vector<std::pair<std::string, std::string>>& entries) {
  for (const auto& [key, value] : entries) set(key, value);
}

namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {
    set_timeout(store_->default_timeout());
  }

  void set(std::string_view key, std::string_view value) override { store_->set(full(key), value); }
  std::string get(std::string_view key, std::optional<Milliseconds> timeout) override {
    return store_->get(full(key), limit(timeout));
  }
  std::string pop(std::string_view key, std::optional<Milliseconds> timeout) override {
    return store_->pop(full(key), limit(timeout));
  }
  int64_t add(std::string_view key, int64_t amount) override { return store_->add(full(key), amount); }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    return store_->compare_set(full(key), expected, desired);
  }
  int64_t append(std::string_view key, std::string_view value) override {
    return store_->append(full(key), value);
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout) override {
    store_->wait(full(keys), limit(timeout));
  }
  bool check(const std::vector<std::string>& keys) override { return store_->check(full(keys)); }
  bool delete_key(std::string_view key) override { return store_->delete_key(full(key)); }
  int64_t num_keys() override { return store_->num_keys(); }
  std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                     std::optional<Milliseconds> timeout) override {
    return store_->multi_get(full(keys), limit(timeout));
  }
  void multi_set(const std::vector<std::pair<std::string, std::string>>& entries) override {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [key, value] : entries) all.emplace_back(full(key), value);
    store_->multi_set(all);
  }

 private:
  std::string full(std::string_view key) const { return concat(prefix_, key); }
  std::vector<std::string> full(const std::vector<std::string>& keys) const {
    std::vector<std::string> all;
    for (const std::string& key : keys) all.push_back(full(key));
    return all;
  }
  Milliseconds limit(std::optional<Milliseconds> timeout) const {
    return timeout.value_or(default_timeout());
  }

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    change("set", [&] { put("set", key, std::string(value)); });
  }
  std::string get(std::string_view key, std::optional<Milliseconds> timeout) override {
    std::string value;
    wait_for("get", {std::string(key)}, timeout, [&] { value = values_.find(key)->second; });
    return value;
  }
  std::string pop(std::string_view key, std::optional<Milliseconds> timeout) override {
    std::string value;
    wait_for("pop", {std::string(key)}, timeout, [&] { value = take(values_.find(key)); });
    return value;
  }
  int64_t add(std::string_view key, int64_t amount) override {
    int64_t sum = 0;
    change("add", [&] {
      const std::string held = value_of(key);
      const auto [end, error] = std::from_chars(held.data(), held.data() + held.size(), sum);
      const bool number = held.empty() || (error == std::errc() && end == held.data() + held.size());
      if (!number || __builtin_add_overflow(sum, amount, &sum))
        throw StoreError("add", -1, "cannot add ", amount, " to key '", key, "', which holds '",
                         held.substr(0, 40), "'");
      put("add", key, std::to_string(sum));
    });
    return sum;
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    std::string held;
    change("compare_set", [&] {
      held = value_of(key);
      if (held == expected) put("compare_set", key, held = desired);
    });
    return held;
  }
  int64_t append(std::string_view key, std::string_view value) override {
    int64_t length = 0;
    change("append", [&] {
      const std::string joined = value_of(key).append(value);
      length = int64_t(joined.size());
      put("append", key, joined);
    });
    return length;
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout) override {
    wait_for("wait", keys, timeout, [] {});
  }
  bool check(const std::vector<std::string>& keys) override {
    step("store check");
    std::lock_guard lock(mutex_);
    return missing(keys).empty();
  }
  bool delete_key(std::string_view key) override {
    bool found = false;
    change("delete_key", [&] {
      const auto it = values_.find(key);
      found = it != values_.end();
      if (found) take(it);
    });
    return found;
  }
  int64_t num_keys() override {
    step("store num_keys");
    std::lock_guard lock(mutex_);
    return int64_t(values_.size());
  }

 private:
  using Values = std::map<std::string, std::string, std::less<>>;

  static void step(const char* what) {
    if (internal::Simulation* simulation = internal::Simulation::current()) simulation->step(what);
  }

  template <class F>
  void change(const char* op, F&& f) {
    step(op);
    {
      std::lock_guard lock(mutex_);
      f();
    }
    changed_.notify();
  }

  // Waits for the keys, then runs `then`, in one step with having seen them.
  template <class Then>
  void wait_for(const char* op, const std::vector<std::string>& keys, std::optional<Milliseconds> timeout,
                Then&& then) {
    step(op);
    const internal::Watch watch{nobody_.get(), Deadline::after(timeout.value_or(default_timeout()))};
    const auto try_once = [&] {
      std::lock_guard lock(mutex_);
      if (!missing(keys).empty()) return false;
      then();
      return true;
    };
    const auto there = [&] {
      std::lock_guard lock(mutex_);
      return missing(keys).empty();
    };
    while (!try_once())
      if (changed_.wait(watch, there, op) == internal::Wait::kTimeout) {
        std::lock_guard lock(mutex_);
        std::string names;
        for (const std::string& key : missing(keys)) names += concat(names.empty() ? "'" : ", '", key, "'");
        throw TimeoutError(op, -1, "nobody set ", names, " within ", watch.deadline.timeout().count(), " ms");
      }
  }

  // With the lock held:
  std::vector<std::string> missing(const std::vector<std::string>& keys) const {
    std::vector<std::string> missing;
    for (const std::string& key : keys)
      if (!values_.contains(key)) missing.push_back(key);
    return missing;
  }
  std::string value_of(std::string_view key) const {
    const auto it = values_.find(key);
    return it == values_.end() ? "" : it->second;
  }
  std::string take(Values::iterator it) {
    std::string value = std::move(it->second);
    total_ -= it->first.size() + value.size();
    values_.erase(it);
    return value;
  }
  void put(const char* op, std::string_view key, std::string value) {
    const auto check = [&](size_t size, size_t limit, const char* what) {
      if (size > limit)
        throw StoreError(op, -1, "key '", key.substr(0, 40), "': ", what, " ", size, " exceeds the limit of ",
                         limit);
    };
    const auto it = values_.find(key);
    const size_t before = it == values_.end() ? 0 : key.size() + it->second.size();
    const size_t total = total_ - before + key.size() + value.size();
    check(key.size(), StoreLimits::kKeyBytes, "its length in bytes");
    check(value.size(), StoreLimits::kValueBytes, "its value's size in bytes");
    check(total, StoreLimits::kTotalBytes, "the store's size in bytes");
    check(values_.size() + (it == values_.end()), StoreLimits::kKeys, "the number of keys");
    total_ = total;
    if (it == values_.end())
      values_.emplace(key, std::move(value));
    else
      it->second = std::move(value);
  }

  std::mutex mutex_;
  Values values_;
  size_t total_ = 0;  // bytes of keys and values
  internal::Signal changed_;
  const std::shared_ptr<Membership> nobody_ = make_local_memberships(1)[0];  // never fails
};

}  // namespace

std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace gradus::dist
