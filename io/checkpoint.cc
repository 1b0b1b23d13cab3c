#include "gradus/io/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "gradus/io/file.h"
#include "gradus/tensor/ops/copy.h"
#include "safetensors_format.h"

namespace gradus::io {
namespace {

using internal::quote;

constexpr std::string_view kVersionKey = "__checkpoint__";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kChecksum = "__crc32__";
constexpr int64_t kChecksumBytes = 4;

template <class T> std::string number_text(T v) {
  std::array<char, 64> buffer;  // the shortest text that reads back as the same number
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), v).ptr};
}

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

// Returns the rest of `name` below `prefix`, if it lies there.
std::optional<std::string_view> below(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return name;
  if (name.size() <= prefix.size() + 1 || !name.starts_with(prefix) || name[prefix.size()] != '.')
    return std::nullopt;
  return name.substr(prefix.size() + 1);
}

}  // namespace

struct Checkpoint::File {
  // Returns a value that is not a tensor as a string of the file's metadata: "i64:-3",
  // "f64:0.1", "str:text", ...
  static std::string encode(const Value& value) {
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

  static Value decode(const FileReader& file, const std::string& name, std::string_view text) {
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

  static void write(AtomicFile& file, const Checkpoint& checkpoint, std::string_view op) {
    NamedTensors tensors;
    Metadata metadata{{std::string(kVersionKey), std::string(kVersion)}};
    for (const auto& [name, value] : checkpoint.values_) {
      if (const Tensor* x = std::get_if<Tensor>(&value)) {
        tensors.emplace_back(name, *x);
      } else {
        metadata.emplace(name, encode(value));
      }
    }
    tensors = internal::in_file_order(std::move(tensors), op);
    NamedTensors all = tensors;
    all.emplace_back(kChecksum, gradus::empty({kChecksumBytes}, {.dtype = DType::kU8, .device = kCPU}));
    internal::write_header(file, all, metadata, op);
    for (const auto& [name, x] : tensors) internal::write_tensor(file, x);
    const uint32_t crc = file.crc32();
    file.write(&crc, kChecksumBytes);
  }

  static void verify_checksum(FileReader& file) {
    const uint32_t expected = file.crc32();
    uint32_t stored = 0;
    file.read(&stored, kChecksumBytes);
    if (stored != expected) file.fail("is damaged: its checksum does not match its content");
  }

  // Reads the header, and removes the format's own entries from it: the version and the checksum.
  static SafetensorsHeader read_header(FileReader& file) {
    SafetensorsHeader header = internal::read_header(file);
    const auto version = header.metadata.find(std::string(kVersionKey));
    if (version == header.metadata.end()) file.fail("is a safetensors file, but not a checkpoint");
    if (version->second != kVersion)
      file.fail("is a checkpoint of version ", quote(version->second), "; expected ", kVersion);
    header.metadata.erase(version);
    if (header.entries.empty() || header.entries.back().name != kChecksum ||
        header.entries.back().end - header.entries.back().begin != kChecksumBytes)
      file.fail("has no checksum at its end");
    header.entries.pop_back();
    return header;
  }

  static Checkpoint read(FileReader& file, std::string source) {
    SafetensorsHeader header = read_header(file);
    Checkpoint result;
    result.source_ = std::move(source);
    for (const SafetensorsEntry& e : header.entries) result.values_[e.name] = internal::read_tensor(file, e);
    for (const auto& [name, text] : header.metadata) {
      const bool added = result.values_.emplace(name, decode(file, name, text)).second;
      if (!added) file.fail("has ", quote(name), " both as a tensor and as a value");
    }
    verify_checksum(file);
    return result;
  }

  // Returns whether `path` holds an intact checkpoint, without making its tensors.
  static bool is_good(const std::filesystem::path& path) {
    try {
      FileReader file(path, {.op = "save_checkpoint", .checksum = true});
      read_header(file);
      std::vector<char> buffer(1 << 20);
      while (file.remaining() > kChecksumBytes)
        file.read(buffer.data(), std::min<int64_t>(file.remaining() - kChecksumBytes, std::ssize(buffer)));
      verify_checksum(file);
      return true;
    } catch (const std::exception&) {  // std::bad_alloc for its header, too
      return false;
    }
  }
};

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

void Checkpoint::put(const std::string& prefix, const NamedTensors& tensors) {
  for (const auto& [name, x] : tensors) put(join(prefix, name), x);
}

void Checkpoint::put(const std::string& prefix, const Checkpoint& section) {
  for (const auto& [name, value] : section.values_) set(join(prefix, name), value);
}

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
    throw ShapeError("checkpoint", source_, ": expected ", quote(name), " as ", describe(x), ", given ",
                     describe(saved));
  if (x.dtype() != saved.dtype())
    throw DTypeError("checkpoint", source_, ": expected ", quote(name), " as ", describe(x), ", given ",
                     describe(saved));
  x = raw::to(saved, x.device());
}

void Checkpoint::check_section(const std::string& prefix, const Checkpoint& own) const {
  if (own.empty() || !names(prefix).empty()) return;
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
  fail_kind(name, "tensor");
}

const Checkpoint::Value& Checkpoint::value(const std::string& name, std::string_view wanted) const {
  const auto it = values_.find(name);
  if (it != values_.end()) return it->second;
  throw FileError("checkpoint", source_, ": has no ", wanted, ' ', quote(name), "; it has ",
                  internal::quote_list(names()));
}

void Checkpoint::fail_kind(const std::string& name, std::string_view wanted) const {
  const Value& v = values_.at(name);
  const Tensor* x = std::get_if<Tensor>(&v);
  throw FileError("checkpoint", source_, ": expected ", quote(name), " as ", wanted, ", given ",
                  x ? "the tensor " + describe(*x) : quote(File::encode(v)));
}

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint,
                     const SaveOptions& options) {
  constexpr std::string_view kOp = "save_checkpoint";
  AtomicFile file(path, {.op = std::string(kOp), .checksum = true, .patience = options.patience});
  Checkpoint::File::write(file, checkpoint, kOp);
  file.commit_keeping(Checkpoint::File::is_good(path) ? path.string() + ".previous" : "");
}

LoadedCheckpoint load_checkpoint(const std::filesystem::path& path) {
  constexpr std::string_view kOp = "load_checkpoint";
  const auto load = [&](const std::filesystem::path& p) {
    FileReader file(p, {.op = std::string(kOp), .checksum = true});
    return file.parse([&] { return Checkpoint::File::read(file, p.string()); });
  };
  // Returns an error's text without its "[load_checkpoint] ", because the final error starts with that.
  const auto defect = [&](const FileError& e) { return std::string(e.what()).substr(kOp.size() + 3); };

  std::string newest;
  try {
    return {load(path), path.string(), ""};
  } catch (const FileError& e) {
    newest = defect(e);
  }
  const std::filesystem::path previous = path.string() + ".previous";
  try {
    Checkpoint checkpoint = load(previous);
    return {std::move(checkpoint), previous.string(),
            concat(newest, "; continuing from ", previous.string())};
  } catch (const FileError& e) {
    throw FileError(kOp, "no usable checkpoint: ", newest, "; ", defect(e));
  }
}

}  // namespace gradus::io
