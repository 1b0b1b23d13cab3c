// Implementation of bcast_checkpoint: broadcasts names, values and shapes as one serialized message, then the
// tensors' elements with bcast_list_.
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"

#include <exception>
#include <utility>

#include "gradus/distributed/base/error_wire.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {
namespace {

constexpr const char* kOp = "bcast_checkpoint";

// The types of a checkpoint's entries. Names, values, dtypes and shapes are serialized; tensors' elements are
// broadcast separately.
enum class ValueKind : uint8_t { kTensor, kBool, kI64, kU64, kF64, kString };

// A visitor for Checkpoint::each: serializes the entries, and collects the tensors.
struct CheckpointWriter {
  WireWriter wire;
  std::vector<Tensor> tensors;

  void operator()(const std::string& name, const Tensor& x) {
    header(name, ValueKind::kTensor);
    wire.put(x.dtype());
    wire.put(std::vector<int64_t>(x.shape().begin(), x.shape().end()));
    tensors.push_back(x);
  }
  void operator()(const std::string& name, bool v) { header(name, ValueKind::kBool), wire.put(v); }
  void operator()(const std::string& name, int64_t v) { header(name, ValueKind::kI64), wire.put(v); }
  void operator()(const std::string& name, uint64_t v) { header(name, ValueKind::kU64), wire.put(v); }
  void operator()(const std::string& name, double v) { header(name, ValueKind::kF64), wire.put(v); }
  void operator()(const std::string& name, const std::string& v) {
    header(name, ValueKind::kString), wire.put(v);
  }
  void header(const std::string& name, ValueKind kind) { wire.put(name), wire.put(kind); }
};

template <class T> T take(WireReader& wire) {
  T value{};
  wire.get(value);
  return value;
}

// Deserializes the output of CheckpointWriter. Appends an uninitialized tensor to `tensors` per tensor entry.
void read(WireReader& wire, io::Checkpoint& checkpoint, std::vector<Tensor>& tensors) {
  while (wire.left()) {
    const auto name = take<std::string>(wire);
    switch (take<ValueKind>(wire)) {
      case ValueKind::kTensor: {
        const auto dtype = take<DType>(wire);
        const auto shape = take<std::vector<int64_t>>(wire);
        tensors.push_back(empty(Shape(std::span(shape)), {.dtype = dtype}));
        checkpoint.put(name, tensors.back());
        break;
      }
      case ValueKind::kBool:
        checkpoint.put(name, take<bool>(wire));
        break;
      case ValueKind::kI64:
        checkpoint.put(name, take<int64_t>(wire));
        break;
      case ValueKind::kU64:
        checkpoint.put(name, take<uint64_t>(wire));
        break;
      case ValueKind::kF64:
        checkpoint.put(name, take<double>(wire));
        break;
      case ValueKind::kString:
        checkpoint.put(name, take<std::string>(wire));
        break;
      default:
        WireReader::fail();
    }
  }
}

}  // namespace

io::LoadedCheckpoint bcast_checkpoint(const std::function<io::LoadedCheckpoint()>& load,
                                      const BcastCheckpointOptions& options) {
  const Group& group = options.group;
  const int src = options.src < 0 ? group.ranks()[0] : options.src;
  get_group_rank(group, src);  // throws if src is not a member
  const bool is_src = get_rank() == src;
  io::LoadedCheckpoint loaded;
  CheckpointWriter writer;
  std::exception_ptr error;
  if (is_src) {
    try {
      loaded = load();
      loaded.checkpoint.each(writer);
    } catch (...) {
      error = std::current_exception();
    }
  }
  WireWriter header;
  for (const std::string& text : {error ? internal::error_to_wire(error) : "", loaded.path, loaded.warning})
    header.put(text);
  const std::string message = broadcast_object(
      is_src ? header.take() + (error ? "" : writer.wire.take()) : "", {.src = src, .group = group});
  if (error) std::rethrow_exception(error);
  std::vector<Tensor> tensors = std::move(writer.tensors);
  if (!is_src) {
    WireReader wire(message);
    std::string failure;
    for (std::string* text : {&failure, &loaded.path, &loaded.warning}) wire.get(*text);
    if (!failure.empty()) internal::throw_from_wire(failure, kOp, src, "failed to load");
    read(wire, loaded.checkpoint, tensors);
  }
  bcast_list_(tensors, {.group = group, .src = src});
  return loaded;
}

io::LoadedCheckpoint bcast_checkpoint(const std::filesystem::path& path,
                                      const BcastCheckpointOptions& options) {
  return bcast_checkpoint([&] { return io::load_checkpoint(path); }, options);
}

}  // namespace gradus::dist
