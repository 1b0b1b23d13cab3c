// Reads and writes the parts of a safetensors file (https://github.com/huggingface/safetensors):
//   u64 N, little endian | N bytes of JSON, padded with spaces | elements of all tensors, row-major, no gaps
// The parser treats the file as untrusted: a header whose structure, shapes or byte ranges are not consistent
// with the size of the file is a FileError (FileReader::fail) before any tensor is allocated. `op` names the
// public function in the errors of the writer.
#include "safetensors_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "gradus/tensor/ops/copy.h"

namespace gradus::io {
namespace internal {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // limit of Hugging Face's library
constexpr int64_t kMaxNumel = int64_t{1} << 62;
constexpr std::string_view kMetadata = "__metadata__";

struct FileDType {
  std::string_view name;
  DType dtype;
};
// The dtypes of Gradus with their names in files. Hugging Face's library writes tensors in descending order
// of its dtype enumeration (wide dtypes first), then by name. This is that order.
constexpr std::array<FileDType, 10> kFileDTypes{{{"I64", DType::kI64},
                                                 {"F64", DType::kF64},
                                                 {"F32", DType::kF32},
                                                 {"I32", DType::kI32},
                                                 {"BF16", DType::kBF16},
                                                 {"F16", DType::kF16},
                                                 {"I16", DType::kI16},
                                                 {"I8", DType::kI8},
                                                 {"U8", DType::kU8},
                                                 {"BOOL", DType::kBool}}};

// Returns the position of a dtype in kFileDTypes, which is its order in files.
size_t file_order_of(DType t) {
  size_t i = 0;
  while (kFileDTypes[i].dtype != t) ++i;
  return i;
}

// Returns the text, with each byte for which `is_escaped` returns true written in hexadecimal: \x1f.
template <class F> std::string escaped(std::string_view text, F is_escaped) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (is_escaped(u)) {
      constexpr char kHex[] = "0123456789abcdef";
      out += {'\\', 'x', kHex[u >> 4], kHex[u & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

std::string quote_bytes(std::string_view bytes) {
  return concat('\'', escaped(bytes, [](unsigned char u) { return u < 0x20 || u >= 0x7f; }), '\'');
}

std::string json_string(std::string_view text) { return nlohmann::json(text).dump(); }

// SAX parser of the JSON header, which fills `header`. Throws FileError for every structure other than that
// of a header, whose data_offsets are the first byte and the end of a tensor's elements, counted after the
// header:
//   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
// `state_` is the JSON object or array that the parser is in, `key_` the last key.
class HeaderParser final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderParser(const FileReader& file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool null() override {
    if (state_ == ParseState::kHeader && key_ == kMetadata) return true;
    return unexpected("null");
  }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(int64_t v) override { return unexpected(concat("the number ", v)); }
  bool number_float(double, const std::string& text) override {
    return unexpected("the number " + text.substr(0, 40));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(uint64_t v) override {
    if (state_ != ParseState::kShape && state_ != ParseState::kOffsets)
      return unexpected(concat("the number ", v));
    if (v > static_cast<uint64_t>(kMaxNumel))
      file_.fail(tensor(), " has ", v, " in its ", key_, ", more than fits");
    if (state_ == ParseState::kShape) {
      if (entry_.shape.size() == kMaxDims)
        file_.fail(tensor(), " has more than ", kMaxDims, " dimensions, the most Gradus has");
      entry_.shape.push_back(static_cast<int64_t>(v));
    } else {
      if (num_offsets_ == 2) file_.fail(tensor(), " has more than 2 data_offsets");
      (num_offsets_++ == 0 ? entry_.begin : entry_.end) = static_cast<int64_t>(v);
    }
    return true;
  }

  bool string(std::string& text) override {
    if (state_ == ParseState::kMetadata) {
      header_.metadata[key_] = std::move(text);
      return true;
    }
    if (state_ != ParseState::kTensor || key_ != "dtype") return unexpected("the string " + quote(text));
    const auto known = std::ranges::find(kFileDTypes, std::string_view(text), &FileDType::name);
    if (known == kFileDTypes.end())
      file_.fail(tensor(), " has dtype ", quote(text),
                 "; expected one of F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL");
    entry_.dtype = known->dtype;
    return true;
  }

  bool start_object(size_t) override {
    keys_[1].clear();
    if (state_ == ParseState::kOutside) {
      state_ = ParseState::kHeader;
    } else if (state_ == ParseState::kHeader && key_ == kMetadata) {
      state_ = ParseState::kMetadata;
    } else if (state_ == ParseState::kHeader) {
      state_ = ParseState::kTensor;
      entry_ = {};
      entry_.name = key_;
      num_offsets_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    if (!keys_[state_ == ParseState::kHeader ? 0 : 1].insert(text).second)
      file_.fail(state_ == ParseState::kTensor ? tensor() : "the header", " has ", quote(text), " twice");
    if (state_ == ParseState::kTensor && text != "dtype" && text != "shape" && text != "data_offsets")
      file_.fail(tensor(), " has the key ", quote(text), "; expected dtype, shape and data_offsets");
    key_ = std::move(text);
    return true;
  }

  bool end_object() override {
    if (state_ == ParseState::kTensor) {
      for (const char* name : {"dtype", "shape"})
        if (!keys_[1].contains(name)) file_.fail(tensor(), " has no ", name);
      if (num_offsets_ != 2) file_.fail(tensor(), " has ", num_offsets_, " data_offsets; expected 2");
      header_.entries.push_back(std::move(entry_));
    }
    state_ = state_ == ParseState::kHeader ? ParseState::kOutside : ParseState::kHeader;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ == ParseState::kTensor && key_ == "shape") {
      state_ = ParseState::kShape;
    } else if (state_ == ParseState::kTensor && key_ == "data_offsets") {
      state_ = ParseState::kOffsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    state_ = ParseState::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // Removes the library's error number, and truncates long tokens.
    const std::string_view text = e.what();
    const size_t start = text.find("] ");
    std::string shown(text.substr(start == text.npos ? 0 : start + 2, 160));
    file_.fail("its header is not valid JSON at byte ", position, ": ", shown);
  }

 private:
  enum class ParseState { kOutside, kHeader, kMetadata, kTensor, kShape, kOffsets };

  std::string tensor() const { return "tensor " + quote(entry_.name); }

  bool unexpected(const std::string& what) const {
    switch (state_) {
      case ParseState::kOutside:
        file_.fail("its header is ", what, "; expected a JSON object");
      case ParseState::kHeader:
        file_.fail("its header has ", what, " for ", quote(key_), "; expected an object");
      case ParseState::kMetadata:
        file_.fail("its metadata have ", what, " for ", quote(key_), "; expected a string");
      default:
        break;
    }
    const bool array = state_ == ParseState::kShape || state_ == ParseState::kOffsets;
    file_.fail(tensor(), " has ", what, array ? " in its " : " as its ", key_, "; expected ",
               array             ? "non-negative integers"
               : key_ == "dtype" ? "a string"
                                 : "an array of non-negative integers");
  }

  const FileReader& file_;
  SafetensorsHeader& header_;
  ParseState state_ = ParseState::kOutside;
  std::string key_;
  std::unordered_set<std::string> keys_[2];  // of the header so far, and of the object in it
  SafetensorsEntry entry_{};
  int num_offsets_ = 0;
};

// Returns the product of max(d, 1) over the dimensions d, or nullopt if the product exceeds kMaxNumel. The
// product bounds the element count, and also the strides of a tensor in which another dimension is 0.
std::optional<int64_t> bounded_extent(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t d : shape)
    if (__builtin_mul_overflow(n, std::max<int64_t>(d, 1), &n) || n > kMaxNumel) return std::nullopt;
  return n;
}

// Sorts the entries by byte range. Checks that the range of every tensor matches its shape and dtype, and
// that the ranges cover the rest of the file without gaps or overlaps.
void check_layout(const FileReader& file, std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t at = 0;
  for (const SafetensorsEntry& e : entries) {
    if (!bounded_extent(e.shape)) file.fail("tensor ", quote(e.name), " has an impossible shape ", e.shape);
    int64_t bytes = 0;
    const bool fits = !__builtin_mul_overflow(e.shape.product(), size_of(e.dtype), &bytes);
    if (e.begin > e.end || e.end > file.remaining())
      file.fail("tensor ", quote(e.name), " lies at bytes [", e.begin, ", ", e.end, ") of ", file.remaining(),
                " bytes of data");
    if (!fits || e.end - e.begin != bytes)
      file.fail("tensor ", quote(e.name), " has ", e.end - e.begin, " bytes; expected ",
                fits ? concat(bytes) : "far more", " for ", e.dtype, e.shape);
    if (e.begin != at)
      file.fail("tensor ", quote(e.name), " starts at byte ", e.begin, " of the data; expected ", at,
                e.begin < at ? " (it overlaps another)" : " (a gap lies before it)");
    at = e.end;
  }
  if (at != file.remaining()) file.fail("has ", file.remaining(), " bytes of data; its tensors fill ", at);
}

// First bytes and descriptions of other kinds of files that users mistake for safetensors files.
struct OtherFormat {
  std::string_view start, what;
};
constexpr OtherFormat kOtherFormats[] = {
    {"PK\x03\x04",
     "a zip archive, as torch.save writes: tools/export_weights.py makes a safetensors file of it"},
    {"\x80\x02",
     "a Python pickle, as torch.save wrote: tools/export_weights.py makes a safetensors file of it"},
    {"version https://git-lfs", "a pointer of Git LFS, in the place of the file"},
    {"<", "a web page, in the place of the file"},
};

// Throws the error for a file that does not begin with a valid header length. `length` holds the first 8
// bytes of the file, which the caller has read. The error names the actual kind of file if kOtherFormats has
// it.
[[noreturn]] void throw_not_safetensors(FileReader& file, uint64_t length) {
  constexpr int64_t kShown = 24;
  std::string start(8, '\0');
  std::memcpy(start.data(), &length, 8);
  const int64_t next_bytes = std::min(file.remaining(), kShown - 8);
  start.resize(static_cast<size_t>(8 + next_bytes));
  file.read(start.data() + 8, next_bytes);
  if (next_bytes > 0 && start[8] == '{') {
    if (length > static_cast<uint64_t>(kMaxHeaderBytes))
      file.fail("says that its header has ", length, " bytes; expected at most ", kMaxHeaderBytes);
    file.fail("says that its header has ", length, " bytes, but only ", file.size() - 8, " follow");
  }
  std::string_view what;
  for (const OtherFormat& f : kOtherFormats)
    if (what.empty() && start.starts_with(f.start)) what = f.what;
  file.fail("is no safetensors file: it begins with ", quote_bytes(start),
            ", not with the length of a header and '{'", what.empty() ? "" : concat("; it is ", what));
}

}  // namespace

bool is_utf8(std::string_view text) {
  try {
    json_string(text);
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::string quote(std::string_view name) {
  constexpr size_t kShown = 100;
  const auto is_control = [](unsigned char u) { return u < 0x20 || u == 0x7f; };
  return concat('\'', escaped(name.substr(0, kShown), is_control), name.size() > kShown ? "...'" : "'");
}

std::string quote_list(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i ? ", " : "") + quote(names[i]);
  if (names.size() > kShown) out += concat(", ... (", names.size(), " in all)");
  return names.empty() ? "nothing" : out;
}

SafetensorsHeader read_header(FileReader& file) {
  if (file.size() < 8) file.fail("has ", file.size(), " bytes, too few for a safetensors file");
  uint64_t length = 0;
  file.read(&length, 8);
  const auto max_length = static_cast<uint64_t>(std::min(kMaxHeaderBytes, file.remaining()));
  if (length == 0 || length > max_length) throw_not_safetensors(file, length);
  std::string text(length, '\0');
  file.read(text.data(), static_cast<int64_t>(length));
  SafetensorsHeader header;
  HeaderParser parser(file, header);
  nlohmann::json::sax_parse(text, &parser);  // every error throws
  check_layout(file, header.entries);
  header.data_begin = file.size() - file.remaining();
  return header;
}

Tensor read_tensor(FileReader& file, const SafetensorsHeader& header, const SafetensorsEntry& entry) {
  file.seek(header.data_begin + entry.begin);
  Tensor x = empty(entry.shape, {.dtype = entry.dtype, .device = kCPU});
  const int64_t bytes = x.nbytes();
  if (bytes == 0) return x;
  file.read(x.raw_ptr(), bytes);
  if (entry.dtype == DType::kBool) {
    const auto* p = static_cast<const uint8_t*>(x.raw_ptr());
    const auto* invalid = std::find_if(p, p + bytes, [](uint8_t v) { return v > 1; });
    if (invalid != p + bytes)
      file.fail("tensor ", quote(entry.name), " has a BOOL of ", int{*invalid}, "; expected 0 or 1");
  }
  return x;
}

NamedTensors in_file_order(NamedTensors tensors, std::string_view op) {
  for (const auto& [name, x] : tensors) {
    if (!x.defined()) throw ValueError(op, "tensor ", quote(name), " is undefined");
    if (name == kMetadata)
      throw ValueError(op, "a tensor cannot be named '", kMetadata, "': the format uses it");
    if (!is_utf8(name)) throw ValueError(op, "the name ", quote(name), " is not UTF-8");
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const size_t order_a = file_order_of(a.second.dtype()), order_b = file_order_of(b.second.dtype());
    return std::tie(order_a, a.first) < std::tie(order_b, b.first);
  });
  std::unordered_set<std::string_view> names;
  for (const auto& [name, x] : tensors)
    if (!names.insert(name).second) throw ValueError(op, "two tensors are named ", quote(name));
  return tensors;
}

void check_data(const NamedTensors& tensors, std::string_view op) {
  for (const auto& [name, x] : tensors)
    if (x.device().type == DeviceType::kMeta)
      throw DeviceError(op, "tensor ", quote(name), " has no data: ", describe(x));
}

void write_header(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata,
                  std::string_view op) {
  std::string text;
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value))
        throw ValueError(op, "the metadata for ", quote(key), " are not UTF-8");
      text += concat(text.empty() ? "" : ",", json_string(key), ':', json_string(value));
    }
    text = concat('"', kMetadata, "\":{", text, '}');
  }
  int64_t at = 0;
  for (const auto& [name, x] : tensors) {
    text += concat(text.empty() ? "" : ",", json_string(name), R"(:{"dtype":")",
                   kFileDTypes[file_order_of(x.dtype())].name, R"(","shape":)", to_string(x.shape()),
                   R"(,"data_offsets":[)", at, ',', at + x.nbytes(), "]}");
    at += x.nbytes();
  }
  text = '{' + text + '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the elements to 8 bytes
  const auto length = static_cast<int64_t>(text.size());
  if (length > kMaxHeaderBytes)
    throw ValueError(op, "names and metadata take ", length, " bytes; a file can have at most ",
                     kMaxHeaderBytes);
  file.write(&length, 8);
  file.write(text.data(), length);
}

void write_tensor(AtomicFile& file, const Tensor& x) {
  const Tensor rows = raw::contiguous(raw::to(x, kCPU));
  dispatch_all(rows.dtype(), [&]<class T>() { file.write(rows.data<T>(), rows.nbytes()); });
}

}  // namespace internal

bool SafetensorsFile::contains(std::string_view name) const {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == name; });
}

const Tensor& SafetensorsFile::at(std::string_view name) const {
  for (const auto& [n, x] : tensors)
    if (n == name) return x;
  std::vector<std::string> names;
  for (const auto& [n, x] : tensors) names.push_back(n);
  throw FileError("safetensors", path, ": has no tensor ", internal::quote(name), "; it has ",
                  internal::quote_list(names));
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata) {
  constexpr std::string_view kOp = "save_safetensors";
  const NamedTensors ordered = internal::in_file_order(tensors, kOp);
  internal::check_data(ordered, kOp);
  AtomicFile file(path, {.op = std::string(kOp)});
  internal::write_header(file, ordered, metadata, kOp);
  for (const auto& [name, x] : ordered) internal::write_tensor(file, x);
  file.commit();
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  SafetensorsReader file(path);
  SafetensorsFile result;
  result.path = path.string();
  result.metadata = file.header().metadata;
  for (const SafetensorsEntry& e : file.header().entries) result.tensors.emplace_back(e.name, file.read(e));
  return result;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  FileReader file(path, {.op = "read_safetensors_header"});
  return file.parse([&] { return internal::read_header(file); });
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : file_(path, {.op = "load_safetensors"}),
      header_(file_.parse([&] { return internal::read_header(file_); })) {}

Tensor SafetensorsReader::read(const SafetensorsEntry& entry) {
  return file_.parse([&] { return internal::read_tensor(file_, header_, entry); });
}

}  // namespace gradus::io
