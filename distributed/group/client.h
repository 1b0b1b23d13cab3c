// Client: named values that ranks share through the job's store (MegEngine's user_set, user_get and
// user_pop). Also group_barrier, a barrier on the store.
//
//   auto client = dist::get_client();
//   client.user_set("best", "0.98");                          // on one rank
//   std::string best = client.user_get("best");               // on others: waits for it
//   Shape shape = client.user_get<Shape>("shape");            // what user_set("shape", x.shape()) set
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>

#include "gradus/distributed/base/store.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist {

// A key has a queue of values. Each value has a version: 1 for the first one that was ever added to the key,
// then counted up. Keys cannot collide with those of the framework. T is a type that
// gradus/distributed/base/wire.h can serialize; a value that converts to a string_view is stored as a
// std::string. Any thread of a rank may call.
//
// Waits end with the job's failure, which they throw.
// Errors: TimeoutError that names the key, after `timeout` (default: the store's default_timeout());
// PeerError once no other rank is left that could set the key; ValueError if the value is of another type
// (the value then stays); StoreError for a value that is too large.
class Client {
 public:
  explicit Client(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Replaces all values of the key by `value`, its newest version. Returns the version.
  template <class T> int64_t user_set(const std::string& key, const T& value) {
    return put("user_set", key, typeid(ValueOf<T>), to_bytes(value), true);
  }
  // Appends `value` to the key's values, as its newest version.
  template <class T> void user_push(const std::string& key, const T& value) {
    put("user_push", key, typeid(ValueOf<T>), to_bytes(value), false);
  }
  // Waits until the key has a value of version `version` or later. Returns the newest value and does not
  // remove it. A loop over versions 1, 2, 3... never reads a stale value. Default: any version.
  template <class T = std::string>
  T user_get(const std::string& key, int64_t version = 1, std::optional<Milliseconds> timeout = {}) {
    return from_bytes<T>(get(key, typeid(T), version, timeout));
  }
  // Waits until the key has a value. Removes and returns the oldest value, which no other call returns.
  template <class T = std::string>
  T user_pop(const std::string& key, std::optional<Milliseconds> timeout = {}) {
    return from_bytes<T>(pop(key, typeid(T), timeout));
  }

  Store& store() const { return *store_; }

 private:
  template <class T>
  using ValueOf = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, std::string, T>;
  template <class T> static std::string to_bytes(const T& value) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>)
      return std::string(std::string_view(value));
    else
      return to_wire(value);
  }
  template <class T> static T from_bytes(std::string bytes) {
    if constexpr (std::is_same_v<T, std::string>)
      return bytes;
    else
      return from_wire<T>(bytes);
  }

  // replace: true for user_set, false for user_push. Returns the version.
  int64_t put(const char* op, const std::string& key, const std::type_info& type, const std::string& bytes,
              bool replace);
  std::string get(const std::string& key, const std::type_info& type, int64_t version,
                  std::optional<Milliseconds> timeout);
  std::string pop(const std::string& key, const std::type_info& type, std::optional<Milliseconds> timeout);

  std::shared_ptr<Store> store_;
};

// Returns a client of the job's store.
// Errors: StateError "call init_process_group first".
Client get_client();

// Blocks until every member of the group has called it. Uses the store alone.
// `timeout`: default Group::timeout().
// Errors: TimeoutError that names the missing ranks. Like any timeout, the error ends the job.
void group_barrier(const Group& group = {}, std::optional<Milliseconds> timeout = {});
// The name of group_barrier in PyTorch.
inline void monitored_barrier(const Group& group = {}, std::optional<Milliseconds> timeout = {}) {
  group_barrier(group, timeout);
}

}  // namespace gradus::dist
