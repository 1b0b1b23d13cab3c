// Implementation of Checkpoint, a sorted map from names to tensors and values, and of save_checkpoint and
// load_checkpoint. Values other than tensors are stored as text with a type tag ("i64:-3") in the metadata of
// the safetensors file. Names are hierarchical: a section is the set of names with a common prefix up to a
// dot. Writing, checksums and atomic replacement are in checkpoint_file.h and file.h.
#include "gradus/io/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "gradus/io/checkpoint_file.h"
#include "gradus/tensor/ops/copy.h"
#include "safetensors_format.h"

namespace gradus::io {
namespace {

using internal::quote;

template <class T> std::string number_text(T v) {
  std::array<char, 64> buffer;  // to_chars writes the shortest text that parses to the same number
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), v).ptr};
}

// Returns the number that all of `text` represents, or nullopt.
template <class T> std::optional<T> parse_number(std::string_view text) {
  T v{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : bytes) out += {kDigits[c >> 4], kDigits[c & 15]};
  return out;
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < text.size(); i += 2) {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    if (error != std::errc() || end != text.data() + i + 2) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

// Returns `name` without "prefix."; nullopt if `name` is not below `prefix`.
std::optional<std::string_view> below(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return name;
  if (name.size() <= prefix.size() + 1 || !name.starts_with(prefix) || name[prefix.size()] != '.')
    return std::nullopt;
  return name.substr(prefix.size() + 1);
}

}  // namespace

std::string Checkpoint::to_text(const Value& value) {
  struct Encoder {
    std::string operator()(const Tensor&) const { throw InternalError("a tensor among the metadata"); }
    std::string operator()(bool v) const { return v ? "bool:true" : "bool:false"; }
    std::string operator()(int64_t v) const { return "i64:" + number_text(v); }
    std::string operator()(uint64_t v) const { return "u64:" + number_text(v); }
    std::string operator()(double v) const { return "f64:" + number_text(v); }
    std::string operator()(const std::string& v) const {
      return internal::is_utf8(v) ? "str:" + v : "hex:" + to_hex(v);
    }
  };
  return std::visit(Encoder{}, value);
}

// Parses the result of to_text. `file` and `name` are for errors.
// Errors: FileError for an unknown tag, or a number that is malformed or out of range.
Checkpoint::Value Checkpoint::from_text(const FileReader& file, const std::string& name,
                                        std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon);
  const std::string_view rest = text.substr(std::min(colon + 1, text.size()));
  if (kind == "str") return std::string(rest);
  if (kind == "i64") {
    if (const auto v = parse_number<int64_t>(rest)) return *v;
  } else if (kind == "u64") {
    if (const auto v = parse_number<uint64_t>(rest)) return *v;
  } else if (kind == "f64") {
    if (const auto v = parse_number<double>(rest)) return *v;
  } else if (kind == "hex") {
    if (auto v = from_hex(rest)) return *std::move(v);
  } else if (text == "bool:true" || text == "bool:false") {
    return text == "bool:true";
  }
  file.fail("has an unreadable value ", quote(text), " for ", quote(name));
}

// Joins "model" and "fc.weight" to "model.fc.weight".
std::string Checkpoint::join(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : concat(prefix, '.', name);
}

void Checkpoint::set(const std::string& name, Value value) {
  if (name.starts_with("__")) throw ValueError("checkpoint", "the name ", quote(name), " starts with '__'");
  if (!internal::is_utf8(name)) throw ValueError("checkpoint", "the name ", quote(name), " is not UTF-8");
  values_[name] = std::move(value);
}

void Checkpoint::put(const std::string& name, const Tensor& x) {
  if (!x.defined()) throw ValueError("checkpoint", "tensor ", quote(name), " is undefined");
  set(name, x);
}

void Checkpoint::put(const std::string& name, const std::string& text) { set(name, text); }

void Checkpoint::put(const std::string& prefix, const NamedTensors& tensors) {
  for (const auto& [name, x] : tensors) put(join(prefix, name), x);
}

void Checkpoint::put(const std::string& prefix, const Checkpoint& section) {
  for (const auto& [name, value] : section.values_) set(join(prefix, name), value);
}

bool Checkpoint::contains(const std::string& name) const { return values_.contains(name); }

void Checkpoint::put(const std::string& prefix, const RandomGenerator& generator) {
  const auto [seed, draws] = generator.state();
  put(join(prefix, "seed"), seed);
  put(join(prefix, "draws"), draws);
}

void Checkpoint::get(const std::string& prefix, RandomGenerator& generator) const {
  generator.set_state({get<uint64_t>(join(prefix, "seed")), get<uint64_t>(join(prefix, "draws"))});
}

void Checkpoint::get(const std::string& name, Tensor& x) const {
  const Tensor& saved = tensor(name);
  if (!x.defined()) {
    x = saved;
    return;
  }
  if (x.shape() != saved.shape())
    throw ShapeError("checkpoint", source_, ": expected ", quote(name), " as ", describe(x), ", got ",
                     describe(saved));
  if (x.dtype() != saved.dtype())
    throw DTypeError("checkpoint", source_, ": expected ", quote(name), " as ", describe(x), ", got ",
                     describe(saved));
  x = raw::to(saved, x.device());
}

void Checkpoint::check_section(const std::string& prefix, const Checkpoint& current) const {
  if (current.empty() || !names(prefix).empty()) return;
  throw FileError("checkpoint", source_, ": has nothing below ", quote(prefix), "; it has ",
                  internal::quote_list(names()));
}

std::vector<std::string> Checkpoint::names(std::string_view prefix) const {
  std::vector<std::string> result;
  for (const auto& [name, value] : values_)
    if (below(prefix, name)) result.push_back(name);
  return result;
}

NamedTensors Checkpoint::tensors(std::string_view prefix) const {
  NamedTensors result;
  for (const auto& [name, value] : values_)
    if (const Tensor* x = std::get_if<Tensor>(&value))
      if (const auto rest = below(prefix, name)) result.emplace_back(*rest, *x);
  return result;
}

Checkpoint Checkpoint::section(std::string_view prefix) const {
  Checkpoint result;
  result.source_ = prefix.empty() ? source_ : concat(source_, ", section ", quote(prefix));
  for (const auto& [name, value] : values_)
    if (const auto rest = below(prefix, name)) result.values_.emplace(*rest, value);
  return result;
}

const Tensor& Checkpoint::tensor(const std::string& name) const {
  if (const Tensor* x = std::get_if<Tensor>(&value(name, "tensor"))) return *x;
  fail_type(name, "tensor");
}

const Checkpoint::Value& Checkpoint::value(const std::string& name, std::string_view expected_type) const {
  const auto it = values_.find(name);
  if (it != values_.end()) return it->second;
  throw FileError("checkpoint", source_, ": has no ", expected_type, ' ', quote(name), "; it has ",
                  internal::quote_list(names()));
}

void Checkpoint::fail_type(const std::string& name, std::string_view expected_type) const {
  const Value& v = values_.at(name);
  const Tensor* x = std::get_if<Tensor>(&v);
  throw FileError("checkpoint", source_, ": expected ", quote(name), " as ", expected_type, ", got ",
                  x ? "the tensor " + describe(*x) : quote(to_text(v)));
}

// The writer streams the tensors into a temporary file; commit() renames it to `path`.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint,
                     const SaveOptions& options) {
  CheckpointWriter file(path, checkpoint, options);
  internal::check_data(file.tensors(), "save_checkpoint");
  for (const auto& [name, x] : file.tensors()) file.write(x);
  file.commit();
}

LoadedCheckpoint load_checkpoint(const std::filesystem::path& path) {
  return load_newest(path, [](const std::filesystem::path& p) {
    CheckpointReader file(p);
    LoadedCheckpoint loaded;
    loaded.checkpoint = file.read();
    file.check();  // throws for a wrong checksum, so that load_newest tries the previous file
    loaded.bytes_read = file.bytes_read();
    return loaded;
  });
}

}  // namespace gradus::io
