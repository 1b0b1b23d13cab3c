#include "gradus/distributed/base/store.h"

namespace gradus::dist {

const char* StoreRequest::name() const {
  constexpr const char* kNames[] = {"set",    "get",  "pop",   "add",        "compare_set",
                                    "append", "wait", "check", "delete_key", "num_keys"};
  return kNames[size_t(op)];
}

std::string Store::get(std::string_view key, std::optional<Milliseconds> timeout) {
  return execute({.op = Op::kGet, .keys = {key}, .timeout = timeout.value_or(default_timeout())}).value;
}

std::string Store::pop(std::string_view key, std::optional<Milliseconds> timeout) {
  return execute({.op = Op::kPop, .keys = {key}, .timeout = timeout.value_or(default_timeout())}).value;
}

void Store::wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout) {
  execute(
      {.op = Op::kWait, .keys = {keys.begin(), keys.end()}, .timeout = timeout.value_or(default_timeout())});
}

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

  StoreAnswer execute(const StoreRequest& request) override {
    std::vector<std::string> keys;
    for (const std::string_view key : request.keys) keys.push_back(concat(prefix_, key));
    StoreRequest prefixed = request;
    prefixed.keys.assign(keys.begin(), keys.end());
    return store_->execute(prefixed);
  }

 private:
  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

}  // namespace gradus::dist
