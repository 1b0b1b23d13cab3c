// Store, the key-value store of a job: the calls that are more than one line on top of the virtual execute(), and
// prefix_store. In these calls a timeout of nullopt means default_timeout().
#include "gradus/distributed/base/store.h"

namespace gradus::dist {

const char* StoreRequest::name() const {
  // In the order of StoreRequest::Op.
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

// Not atomic: a key that another rank deletes after wait() is waited for again. The timeout applies to wait() and
// to each get() on its own.
std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys,
                                          std::optional<Milliseconds> timeout) {
  wait(keys, timeout);
  std::vector<std::string> values;
  for (const std::string& key : keys) values.push_back(get(key, timeout));
  return values;
}

// Not atomic: other ranks may see some of the entries before the rest.
void Store::multi_set(const std::vector<std::pair<std::string, std::string>>& entries) {
  for (const auto& [key, value] : entries) set(key, value);
}

namespace {

// Passes each request to the underlying store with "prefix/" before its keys; values, answers and errors pass
// unchanged. num_keys() therefore counts all keys of the underlying store. The default timeout is copied from the
// underlying store at construction. As thread-safe as the underlying store, which it keeps alive.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {
    set_timeout(store_->default_timeout());
  }

  StoreAnswer execute(const StoreRequest& request) override {
    std::vector<std::string> keys;  // outlive the call; the request has views of them
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
