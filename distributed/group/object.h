// Collectives and messages of values, in place of pickled objects in torch.distributed: byte strings, and all
// types that gradus/distributed/base/wire.h can serialize. Receivers need not know the sizes. All calls block.
// src and dst are ranks in the job. Errors: those of collectives.h; ValueError with async_op; for values that
// are not strings, MismatchError if a rank sent another type, and StoreError for malformed bytes.
//
//   std::vector<std::string> names = dist::all_gather_object(hostname);
//   std::vector<std::map<std::string, double>> logs = dist::all_gather_object(log);
//   nlohmann::json settings = ...;
//   settings = nlohmann::json::parse(dist::broadcast_object(settings.dump(), {.src = 0}));  // JSON as text
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {

// Returns rank src's object. On other ranks the argument is ignored.
std::string broadcast_object(const std::string& object, const BroadcastOptions& options = {});
// Returns every rank's object, in the group's order.
std::vector<std::string> all_gather_object(const std::string& object, const CollectiveOptions& options = {});
// Returns every rank's object on rank dst, in the group's order, and an empty vector on other ranks.
std::vector<std::string> gather_object(const std::string& object, const GatherOptions& options = {});
// Returns rank src's objects[own group rank]. `objects` has one entry per rank of the group on rank src, and
// is empty on other ranks. Errors: also ValueError otherwise.
std::string scatter_object(const std::vector<std::string>& objects, const ScatterOptions& options = {});
// As send and recv: matched by peer and tag; recv_object by default from any rank.
void send_object(const std::string& object, const SendOptions& options);
std::string recv_object(const RecvOptions& options = {});

// ---- The same for values of other types. T is the same on all ranks. ----

template <class T>
concept Object = !std::convertible_to<const T&, std::string_view>;

namespace internal {
// The bytes of a value: the name of its type, a line feed, and the value's wire form.
std::string object_bytes(const std::type_info& type, std::string_view value);
// Returns the wire form. Errors: MismatchError if `bytes` are those of another type.
std::string_view object_value(const char* op, const std::type_info& type, std::string_view bytes);

template <class T> std::string to_object(const T& value) { return object_bytes(typeid(T), to_wire(value)); }
template <class T> T from_object(const char* op, std::string_view bytes) {
  return from_wire<T>(object_value(op, typeid(T), bytes));
}
template <class T> std::vector<T> from_objects(const char* op, const std::vector<std::string>& all) {
  std::vector<T> values;
  for (const std::string& bytes : all) values.push_back(from_object<T>(op, bytes));
  return values;
}
}  // namespace internal

template <Object T> T broadcast_object(const T& object, const BroadcastOptions& options = {}) {
  const bool is_source = get_rank() == options.src;
  return internal::from_object<T>("broadcast_object",
                                  broadcast_object(is_source ? internal::to_object(object) : "", options));
}
template <Object T> std::vector<T> all_gather_object(const T& object, const CollectiveOptions& options = {}) {
  return internal::from_objects<T>("all_gather_object",
                                   all_gather_object(internal::to_object(object), options));
}
template <Object T> std::vector<T> gather_object(const T& object, const GatherOptions& options = {}) {
  return internal::from_objects<T>("gather_object", gather_object(internal::to_object(object), options));
}
template <Object T> T scatter_object(const std::vector<T>& objects, const ScatterOptions& options = {}) {
  std::vector<std::string> all;
  for (const T& object : objects) all.push_back(internal::to_object(object));
  return internal::from_object<T>("scatter_object", scatter_object(all, options));
}
template <Object T> void send_object(const T& object, const SendOptions& options) {
  send_object(internal::to_object(object), options);
}
// recv_object<T>(options)
template <Object T> T recv_object(const RecvOptions& options = {}) {
  return internal::from_object<T>("recv_object", recv_object(options));
}

// broadcast_object from the group's first rank, as MegEngine's bcast_val.
template <class T> auto bcast_val(const T& value, const Group& group = {}) {
  return broadcast_object(value, {.src = group.ranks().front(), .group = group});
}

}  // namespace gradus::dist
