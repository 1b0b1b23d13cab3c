// bcast_checkpoint takes two collectives. broadcast_object sends one serialized message: the exception of
// `load` (or ""), path, warning, and the names and values of all entries, for tensors dtype and shape.
// bcast_list_ then sends the tensors' elements. After an exception of `load` every rank throws before that.
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"

#include <exception>
#include <tuple>
#include <utility>

#include "gradus/distributed/base/error_wire.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist {
namespace {

constexpr const char* kOp = "bcast_checkpoint";

// The entries of a checkpoint by type: of tensors only dtype and shape; elements are broadcast separately.
template <class T> using Entries = std::vector<std::pair<std::string, T>>;
using AllEntries = std::tuple<Entries<std::pair<DType, Shape>>, Entries<bool>, Entries<int64_t>,
                              Entries<uint64_t>, Entries<double>, Entries<std::string>>;

// Serializes the checkpoint, and appends its tensors to `tensors`.
std::string serialize(const io::Checkpoint& checkpoint, std::vector<Tensor>& tensors) {
  AllEntries all;
  checkpoint.each([&]<class T>(const std::string& name, const T& value) {
    if constexpr (std::is_same_v<T, Tensor>) {
      std::get<0>(all).emplace_back(name, std::pair(value.dtype(), value.shape()));
      tensors.push_back(value);
    } else {
      std::get<Entries<T>>(all).emplace_back(name, value);
    }
  });
  WireWriter wire;
  std::apply([&](const auto&... entries) { wire.put(entries...); }, all);
  return wire.release();
}

// Returns the checkpoint with uninitialized host tensors, and appends these to `tensors`.
io::Checkpoint parse(WireReader& wire, std::vector<Tensor>& tensors) {
  io::Checkpoint checkpoint;
  const auto add_entries = [&]<class T>(const Entries<T>& entries) {
    for (const auto& [name, value] : entries)
      if constexpr (std::is_same_v<T, std::pair<DType, Shape>>) {
        tensors.push_back(empty(value.second, {.dtype = value.first}));
        checkpoint.put(name, tensors.back());
      } else {
        checkpoint.put(name, value);
      }
  };
  AllEntries all;
  std::apply([&](auto&... entries) { wire.get(entries...), (add_entries(entries), ...); }, all);
  if (wire.remaining()) WireReader::throw_malformed();
  return checkpoint;
}

}  // namespace

io::LoadedCheckpoint bcast_checkpoint(const std::function<io::LoadedCheckpoint()>& load,
                                      const BcastCheckpointOptions& options) {
  const Group& group = options.group;
  const int src = options.src < 0 ? group.ranks()[0] : options.src;
  get_group_rank(group, src);  // throws if src is not a member
  const bool is_src = get_rank() == src;
  io::LoadedCheckpoint loaded;
  std::vector<Tensor> tensors;
  std::string entries;
  std::exception_ptr error;
  if (is_src) {
    try {
      loaded = load();
      entries = serialize(loaded.checkpoint, tensors);
    } catch (...) {
      error = std::current_exception();
    }
  }
  WireWriter header;
  for (const std::string& text : {error ? internal::error_to_wire(error) : "", loaded.path, loaded.warning})
    header.put(text);
  const std::string message =
      broadcast_object(is_src ? header.release() + entries : "", {.src = src, .group = group});
  if (error) std::rethrow_exception(error);
  if (!is_src) {
    WireReader wire(message);
    std::string failure;
    for (std::string* text : {&failure, &loaded.path, &loaded.warning}) wire.get(*text);
    if (!failure.empty()) internal::throw_from_wire(failure, kOp, src, "failed to load");
    loaded.checkpoint = parse(wire, tensors);
  }
  for (Tensor& x : tensors) x = raw::to(x, kCPU);  // where the other ranks' are
  bcast_list_(tensors, {.group = group, .src = src});
  return loaded;
}

io::LoadedCheckpoint bcast_checkpoint(const std::filesystem::path& path,
                                      const BcastCheckpointOptions& options) {
  return bcast_checkpoint([&] { return io::load_checkpoint(path); }, options);
}

}  // namespace gradus::dist
