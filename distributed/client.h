// What ranks tell each other by name (MegEngine's user_set / user_get), and the barrier on the store.
//
//   auto client = dist::get_client();
//   client.user_set("best", "0.98");                 // on one rank
//   std::string best = client.user_get("best");      // on others: waits for it
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gradus/distributed/group.h"
#include "gradus/distributed/store.h"

namespace gradus::dist {

// Keys are apart from those of the framework. Waits end with the job's failure, or a TimeoutError that names
// the key.
class Client {
 public:
  explicit Client(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Sets the key to a new version of its value; returns the version, counted from 1.
  int64_t user_set(const std::string& key, const std::string& value);
  // Waits for the key's version `version` or a later one, and returns the latest value. A loop that asks for
  // version 1, 2, 3... never reads a stale one. Default: any version.
  std::string user_get(const std::string& key, int64_t version = 1, std::optional<Milliseconds> timeout = {});
  // Puts a value at the end of the key's queue; user_pop waits for the front one and takes it. Each is taken
  // once.
  void user_push(const std::string& key, const std::string& value);
  std::string user_pop(const std::string& key, std::optional<Milliseconds> timeout = {});

  Store& store() const { return *store_; }

 private:
  std::shared_ptr<Store> store_;
};

// Errors: StateError "call init_process_group first".
Client get_client();

// Waits until every member of the group is here; through the store, so that it works where no collective can.
// Repeatable. Errors: TimeoutError that names the ranks that are missing.
void group_barrier(const Group& group = {}, std::optional<Milliseconds> timeout = {});
// PyTorch's name for it.
inline void monitored_barrier(const Group& group = {}, std::optional<Milliseconds> timeout = {}) {
  group_barrier(group, timeout);
}

}  // namespace gradus::dist
