// Checkpoints: the state of a training run in one file, which is replaced atomically.
//
//   io::Checkpoint c;
//   c.put("epoch", epoch);
//   c.put("model", net);                       // any Stateful object, as "model.fc1.weight", ...
//   c.put("optimizer", opt);
//   io::save_checkpoint("runs/last.ckpt", c);  // keeps the previous file as runs/last.ckpt.previous
//
//   io::LoadedCheckpoint loaded = io::load_checkpoint("runs/last.ckpt");
//   if (!loaded.warning.empty()) std::cerr << loaded.warning << '\n';  // the newest file was damaged
//   loaded.checkpoint.get("model", net);
//   loaded.checkpoint.get("optimizer", opt);
//   epoch = loaded.checkpoint.get<int>("epoch");
//
// See gradus/train/training_state.h for the state of all ranks in one call, and gradus/io/checkpoint_file.h
// for reading and writing single tensors.
//
// A checkpoint file is a safetensors file, so that other programs can read its tensors. Numbers and strings
// are in the metadata. The last tensor, "__crc32__", is the CRC-32 of all preceding bytes.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/io/safetensors.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/tensor.h"

namespace gradus::io {

namespace internal {
// Modules, optimizers, schedules, averages, scalers.
template <class T>
concept HasStateDict = requires(T& x) { x.load_state_dict(std::as_const(x).state_dict()); };
// Loaders.
template <class T>
concept HasState = requires(T& x) { x.set_state(std::as_const(x).state()); };
// The type of an optimizer's state_dict().
template <class T>
concept TensorsAndNumbers = requires(const T& x) { x.tensors.begin()->second, x.numbers.begin()->second; };
// An aggregate that lists its members: T::each(x, f) calls f("name", x.name) for each.
template <class T>
concept HasFields = requires(T& x) { T::each(x, [](const char*, const auto&) {}); };
template <class T>
concept IsState = TensorsAndNumbers<T> || HasFields<T>;
}  // namespace internal

// An object that Checkpoint::put and get accept in addition to tensors, numbers and strings. It has
// state_dict() and load_state_dict(), or state() and set_state(). The state of a user-defined class is
// NamedTensors, an optim::State, or an aggregate with `static void each(auto& x, auto&& f)`, such as
// data::LoaderState.
template <class T>
concept Stateful = internal::HasStateDict<T> || internal::HasState<T>;

struct SaveOptions {
  // Maximal time to wait for another process that is saving the file but writes nothing.
  std::chrono::milliseconds lock_timeout{120'000};
};

// Named tensors, integers, doubles, booleans and strings. A dot in a name separates sections: "optimizer.lr".
//
// Numbers keep their exact value; the bits of a NaN may change. Strings may contain any bytes. Tensors are
// shared, not copied: a save writes their values at the time of the save.
class Checkpoint {
 public:
  // Sets `name`, replacing its value.
  // Errors: ValueError for an undefined tensor, a name that is not UTF-8, or a name that starts with "__"
  // (reserved for the format).
  void put(const std::string& name, const Tensor& x);
  void put(const std::string& name, const std::string& text);
  void put(const std::string& name, const char* text) { put(name, std::string(text)); }
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(const std::string& name, T value) {
    if constexpr (std::same_as<T, bool>)
      set(name, value);
    else if constexpr (std::floating_point<T>)
      set(name, static_cast<double>(value));
    else if constexpr (std::is_signed_v<T>)
      set(name, static_cast<int64_t>(value));
    else
      set(name, static_cast<uint64_t>(value));
  }
  // Sets prefix.NAME for every element.
  void put(const std::string& prefix, const NamedTensors& tensors);
  void put(const std::string& prefix, const Checkpoint& section);
  // Sets prefix.NAME for all entries of an object's state: put("net", net), put("optimizer", opt).
  template <Stateful T> void put(const std::string& prefix, const T& object) {
    if constexpr (internal::HasStateDict<T>)
      put(prefix, object.state_dict());
    else
      put(prefix, object.state());
  }
  template <internal::IsState T> void put(const std::string& prefix, const T& state);
  void put(const std::string& prefix, const RandomGenerator& generator);

  bool contains(const std::string& name) const;
  bool empty() const { return values_.empty(); }
  // Returns the names below `prefix`, sorted: all names for "", those that start with "model." for "model".
  std::vector<std::string> names(std::string_view prefix = "") const;

  // Returns the tensor `name`.
  // Errors: FileError if there is none; the message lists the existing names.
  const Tensor& tensor(const std::string& name) const;
  // Returns the value `name` as an integer, float, double, bool or std::string. Floats accept integers too.
  // Errors: FileError if there is none, or the value has another type or is out of range of T.
  template <class T> T get(const std::string& name) const;
  // Loads the state below `prefix` into an object.
  // Errors: FileError if there is none; those of the object's load_state_dict or set_state.
  template <Stateful T> void get(const std::string& prefix, T& object) const;
  void get(const std::string& prefix, RandomGenerator& generator) const;
  // Sets x to the tensor or value `name`. A tensor is moved to the device of the tensor that it replaces; if
  // that is its own device, x shares the checkpoint's memory.
  // Errors: as tensor() and get<T>(); ShapeError, DTypeError if x is defined and has another shape or dtype.
  void get(const std::string& name, Tensor& x) const;
  template <class T>
    requires std::integral<T> || std::floating_point<T> || std::same_as<T, std::string>
  void get(const std::string& name, T& x) const {
    x = get<T>(name);
  }
  // Returns the tensors below `prefix`, with the prefix removed from their names, sorted; all tensors for "".
  NamedTensors tensors(std::string_view prefix = "") const;
  // Returns the entries below `prefix`, with the prefix removed from their names.
  Checkpoint section(std::string_view prefix) const;
  // Calls f(name, value) for each entry, sorted by name. A value is a Tensor, bool, int64_t, uint64_t, double
  // or std::string.
  template <class F> void each(F&& f) const {
    for (const auto& entry : values_) std::visit([&](const auto& v) { f(entry.first, v); }, entry.second);
  }

 private:
  using Value = std::variant<Tensor, bool, int64_t, uint64_t, double, std::string>;

  friend class CheckpointReader;
  friend class CheckpointWriter;

  static std::string join(std::string_view prefix, std::string_view name);
  // Convert a value that is not a tensor to a string of the file's metadata, and back: "i64:-3", "f64:0.1".
  static std::string to_text(const Value& value);
  static Value from_text(const FileReader& file, const std::string& name, std::string_view text);
  void set(const std::string& name, Value value);
  template <class T> T read_state(const std::string& prefix) const;
  // Throws FileError if there is no entry below `prefix`, unless `current`, the object's state, is empty.
  void check_section(const std::string& prefix, const Checkpoint& current) const;
  const Value& value(const std::string& name, std::string_view expected_type) const;
  [[noreturn]] void fail_type(const std::string& name, std::string_view expected_type) const;

  std::map<std::string, Value, std::less<>> values_;
  std::string source_ = "checkpoint";  // the file's name, if any, for errors
};

// Writes a checkpoint atomically and flushes it to the disk. An intact checkpoint at `path` is renamed to
// PATH.previous; a damaged one is deleted, so that an intact PATH.previous survives. A crash at any moment
// leaves an intact checkpoint.
//
// Errors: FileError if the file cannot be written, or if another process that is saving the file has stopped
// making progress; the message names the process, host and time. DeviceError for a tensor without data
// (meta). The old files are then unchanged.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint,
                     const SaveOptions& options = {});

struct LoadedCheckpoint {
  Checkpoint checkpoint;
  std::string path;        // the file that was loaded
  std::string warning;     // why PATH.previous was loaded; empty if PATH was loaded
  int64_t bytes_read = 0;  // number of bytes that this process has read from the file
};

// Reads PATH, or PATH.previous if PATH is missing, truncated, damaged or too large for memory. The tensors
// are in host memory.
//
// Errors: FileError naming both files and the defect of each.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& path);

template <class T> T Checkpoint::get(const std::string& name) const {
  if constexpr (std::same_as<T, std::string> || std::same_as<T, bool>) {
    constexpr std::string_view kExpectedType = std::same_as<T, bool> ? "boolean" : "string";
    if (const T* v = std::get_if<T>(&value(name, kExpectedType))) return *v;
    fail_type(name, kExpectedType);
  } else if constexpr (std::integral<T>) {
    const Value& v = value(name, "integer");
    if (const auto* i = std::get_if<int64_t>(&v); i && std::in_range<T>(*i)) return static_cast<T>(*i);
    if (const auto* u = std::get_if<uint64_t>(&v); u && std::in_range<T>(*u)) return static_cast<T>(*u);
    fail_type(name, "integer of " + std::to_string(8 * sizeof(T)) + " bits" +
                        (std::is_signed_v<T> ? "" : ", unsigned"));
  } else {
    static_assert(std::same_as<T, float> || std::same_as<T, double>,
                  "get an integer, float, double, bool or string");
    const Value& v = value(name, "number");
    if (const auto* d = std::get_if<double>(&v)) return static_cast<T>(*d);
    if (const auto* i = std::get_if<int64_t>(&v)) return static_cast<T>(*i);
    if (const auto* u = std::get_if<uint64_t>(&v)) return static_cast<T>(*u);
    fail_type(name, "number");
  }
}

template <internal::IsState T> void Checkpoint::put(const std::string& prefix, const T& state) {
  if constexpr (internal::TensorsAndNumbers<T>) {
    put(join(prefix, "tensors"), state.tensors);
    for (const auto& [name, value] : state.numbers) put(join(join(prefix, "numbers"), name), value);
  } else {
    T::each(state, [&](const char* name, const auto& value) { put(join(prefix, name), value); });
  }
}

template <Stateful T> void Checkpoint::get(const std::string& prefix, T& object) const {
  Checkpoint current;
  current.put(prefix, object);
  check_section(prefix, current);
  try {
    if constexpr (internal::HasStateDict<T>)
      object.load_state_dict(read_state<std::remove_cvref_t<decltype(object.state_dict())>>(prefix));
    else
      object.set_state(read_state<std::remove_cvref_t<decltype(object.state())>>(prefix));
  } catch (Error& e) {
    e.add_context("while loading '" + prefix + "'");
    throw;
  }
}

template <class T> T Checkpoint::read_state(const std::string& prefix) const {
  if constexpr (std::same_as<T, NamedTensors>) {
    return tensors(prefix);
  } else if constexpr (internal::TensorsAndNumbers<T>) {
    T state;
    state.tensors = tensors(join(prefix, "tensors"));
    const Checkpoint numbers = section(join(prefix, "numbers"));
    for (const std::string& name : numbers.names())
      state.numbers.emplace_back(name, numbers.get<double>(name));
    return state;
  } else {
    static_assert(internal::HasFields<T>,
                  "a state is NamedTensors, tensors and numbers, or lists its members by each()");
    T state;
    T::each(state, [&](const char* name, auto& value) { get(join(prefix, name), value); });
    return state;
  }
}

}  // namespace gradus::io
