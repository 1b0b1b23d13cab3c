#include "gradus/distributed/base/store.h"

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

}  // namespace

std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

}  // namespace gradus::dist
