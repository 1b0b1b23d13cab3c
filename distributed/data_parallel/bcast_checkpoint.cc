#include "gradus/distributed/data_parallel/bcast_checkpoint.h"

#include <exception>
#include <utility>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {
namespace {

constexpr const char* kOp = "bcast_checkpoint";

// The errors of tensor/base/error.h, which keep their type on all ranks.
enum class ErrorKind : uint8_t { kNone, kShape, kDType, kDevice, kIndex, kValue, kState, kFile, kOther };

template <class E> bool is(const std::exception& error) { return dynamic_cast<const E*>(&error) != nullptr; }

ErrorKind kind_of(const std::exception& error) {
  if (is<ShapeError>(error)) return ErrorKind::kShape;
  if (is<DTypeError>(error)) return ErrorKind::kDType;
  if (is<DeviceError>(error)) return ErrorKind::kDevice;
  if (is<IndexError>(error)) return ErrorKind::kIndex;
  if (is<ValueError>(error)) return ErrorKind::kValue;
  if (is<StateError>(error)) return ErrorKind::kState;
  if (is<FileError>(error)) return ErrorKind::kFile;
  return ErrorKind::kOther;
}

struct Outcome {
  ErrorKind error = ErrorKind::kNone;
  std::string op, text;  // of the error
};

[[noreturn]] void rethrow(const Outcome& outcome, int src) {
  const std::string& op = outcome.op;
  const std::string& text = outcome.text;
  switch (outcome.error) {
    case ErrorKind::kShape:
      throw ShapeError(op, text);
    case ErrorKind::kDType:
      throw DTypeError(op, text);
    case ErrorKind::kDevice:
      throw DeviceError(op, text);
    case ErrorKind::kIndex:
      throw IndexError(op, text);
    case ErrorKind::kValue:
      throw ValueError(op, text);
    case ErrorKind::kState:
      throw StateError(op, text);
    case ErrorKind::kFile:
      throw FileError(op, text);
    case ErrorKind::kNone:
    case ErrorKind::kOther:
      break;
  }
  throw PeerError(kOp, src, "rank ", src, " failed to load: ", text);
}

// The types of a checkpoint's values. Everything but the tensors' elements travels as bytes.
enum class ValueKind : uint8_t { kTensor, kBool, kI64, kU64, kF64, kString };

struct Writer {
  WireWriter wire;
  std::vector<Tensor> tensors;

  void operator()(const std::string& name, const Tensor& x) {
    head(name, ValueKind::kTensor);
    wire.put(x.dtype());
    wire.put(std::vector<int64_t>(x.shape().begin(), x.shape().end()));
    tensors.push_back(x);
  }
  void operator()(const std::string& name, bool v) { head(name, ValueKind::kBool), wire.put(v); }
  void operator()(const std::string& name, int64_t v) { head(name, ValueKind::kI64), wire.put(v); }
  void operator()(const std::string& name, uint64_t v) { head(name, ValueKind::kU64), wire.put(v); }
  void operator()(const std::string& name, double v) { head(name, ValueKind::kF64), wire.put(v); }
  void operator()(const std::string& name, const std::string& v) {
    head(name, ValueKind::kString), wire.put(v);
  }
  void head(const std::string& name, ValueKind kind) { wire.put(name), wire.put(kind); }
};

template <class T> T take(WireReader& wire) {
  T value{};
  wire.get(value);
  return value;
}

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
  get_group_rank(group, src);  // throws if src is no member
  const bool mine = get_rank() == src;
  io::LoadedCheckpoint loaded;
  Outcome outcome;
  Writer writer;
  std::exception_ptr error;
  if (mine) {
    try {
      loaded = load();
      loaded.checkpoint.each(writer);
    } catch (const Error& e) {
      error = std::current_exception();
      outcome = {kind_of(e), e.op(), internal::text_of(e)};
    } catch (const std::exception& e) {
      error = std::current_exception();
      outcome = {ErrorKind::kOther, "", e.what()};
    }
  }
  WireWriter head;
  head.put(outcome.error);
  for (const std::string& text : {outcome.op, outcome.text, loaded.path, loaded.warning}) head.put(text);
  const std::string all = broadcast_object(mine ? head.take() + (error ? "" : writer.wire.take()) : "",
                                           {.src = src, .group = group});
  if (error) std::rethrow_exception(error);
  std::vector<Tensor> tensors = std::move(writer.tensors);
  if (!mine) {
    WireReader wire(all);
    wire.get(outcome.error);
    for (std::string* text : {&outcome.op, &outcome.text, &loaded.path, &loaded.warning}) wire.get(*text);
    if (outcome.error != ErrorKind::kNone) rethrow(outcome, src);
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
