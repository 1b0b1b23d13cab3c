#include "gradus/tensor/cuda/cudnn/choice_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "gradus convolution plans";
constexpr int64_t kVersion = 1;
constexpr std::array<std::string_view, 3> kPasses = {"forward", "input_grad", "weight_grad"};
constexpr std::array kDTypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

// What from_json looks at is bounded, whatever the file has.
constexpr int kDeepest = 8;
constexpr size_t kMostParts = kMostChoices * 256;

constexpr size_t kLongest = 200;  // of a name, and of a reason, in bytes

constexpr int64_t kMostSize = int64_t(1) << 59;    // of a tensor's elements
constexpr int64_t kMostAlignment = 16;             // bytes
constexpr int64_t kMostKnobType = 63;              // the library's enum has 44
constexpr int64_t kMostNumber = int64_t(1) << 31;  // of an engine, a knob's value, a version

std::vector<int64_t> list(const Dims& d) { return {d.begin(), d.end()}; }

// In the order in which one reads it.
nlohmann::ordered_json to_json(const ConvKey& key, const ConvChoice& choice) {
  auto knobs = nlohmann::ordered_json::array();
  for (const ConvChoice::Knob& k : choice.knobs) knobs.push_back({k.type, k.value});
  return {{"pass", kPasses[static_cast<size_t>(key.pass)]},
          {"dtype", name_of(key.dtype)},
          {"tf32", key.tf32},
          {"relu", key.relu},
          {"x", list(key.x)},
          {"w", list(key.w)},
          {"stride", list(key.stride)},
          {"padding", list(key.padding)},
          {"dilation", list(key.dilation)},
          {"alignments", list(key.alignments)},
          {"engine", choice.engine},
          {"knobs", std::move(knobs)}};
}
template <class AnyJson> std::string text_of(const AnyJson& json) {
  return json.dump(-1, ' ', false, AnyJson::error_handler_t::replace);
}

// Reads parts of a file, each of which may be anything.
class Reader {
 public:
  Reader(const char* op, const std::filesystem::path& path) : op_(op), path_(path) {}

  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const {
    throw FileError(op_, path_.string(), ": ", parts...);
  }

  Json parse(const std::string& text) const {
    size_t parts = 0;
    const auto bounded = [&](int depth, Json::parse_event_t, const Json&) {
      if (depth > kDeepest) fail("has more than ", kDeepest, " brackets within each other");
      if (++parts > kMostParts) fail("has more than ", kMostParts, " parts");
      return true;
    };
    try {
      return Json::parse(text, bounded);
    } catch (const Json::exception& e) {
      fail("is not JSON: ", std::string_view(e.what()).substr(0, kLongest));
    }
  }

  const Json& field(const Json& object, const char* name) const {
    if (!object.is_object()) fail("expected an object with \"", name, "\", given ", short_text(object));
    const auto found = object.find(name);
    if (found == object.end()) fail("has no \"", name, "\" in ", short_text(object));
    return *found;
  }
  const Json& array(const Json& object, const char* name, size_t most) const {
    const Json& a = field(object, name);
    if (!a.is_array()) fail("\"", name, "\": expected a list, given ", short_text(a));
    if (a.size() > most) fail("\"", name, "\": expected at most ", most, " entries, given ", a.size());
    return a;
  }
  bool flag(const Json& object, const char* name) const {
    const Json& v = field(object, name);
    if (!v.is_boolean()) fail("\"", name, "\": expected true or false, given ", short_text(v));
    return v.get<bool>();
  }
  std::string word(const Json& object, const char* name) const {
    const Json& v = field(object, name);
    if (!v.is_string()) fail("\"", name, "\": expected text, given ", short_text(v));
    return v.get<std::string>();
  }
  int64_t number(const Json& v, const char* name, int64_t least, int64_t most) const {
    const bool fits = v.is_number_unsigned()  ? v.get<uint64_t>() <= static_cast<uint64_t>(most)
                      : v.is_number_integer() ? v.get<int64_t>() <= most
                                              : false;
    if (!fits || v.get<int64_t>() < least)
      fail("\"", name, "\": expected a whole number from ", least, " to ", most, ", given ", short_text(v));
    return v.get<int64_t>();
  }
  // `size` entries.
  Dims dims(const Json& object, const char* name, size_t size, int64_t least, int64_t most) const {
    const Json& a = array(object, name, size);
    if (a.size() != size) fail("\"", name, "\": expected ", size, " numbers, given ", short_text(a));
    Dims d;
    for (const Json& v : a) d.push_back(number(v, name, least, most));
    return d;
  }
  // The place of a word among those that there are.
  template <class Words> size_t one_of(const Words& words, const Json& object, const char* name) const {
    const std::string given = word(object, name);
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i] == given) return i;
    fail("\"", name, "\": given ", short_text(field(object, name)));
  }

  ConvKey key(const Json& object) const {
    ConvKey k;
    k.pass = static_cast<ConvPass>(one_of(kPasses, object, "pass"));
    std::array<std::string_view, kDTypes.size()> dtypes;
    for (size_t i = 0; i < dtypes.size(); ++i) dtypes[i] = name_of(kDTypes[i]);
    k.dtype = kDTypes[one_of(dtypes, object, "dtype")];
    k.tf32 = flag(object, "tf32"), k.relu = flag(object, "relu");
    const size_t sizes = array(object, "x", kMaxDims).size();
    if (sizes < 3) fail("\"x\": expected 3 sizes or more, given ", sizes);
    k.x = dims(object, "x", sizes, 0, kMostSize);
    k.w = dims(object, "w", sizes, 0, kMostSize);
    k.stride = dims(object, "stride", sizes - 2, 1, kMostSize);
    k.padding = dims(object, "padding", sizes - 2, 0, kMostSize);
    k.dilation = dims(object, "dilation", sizes - 2, 1, kMostSize);
    k.alignments = dims(object, "alignments", 4, 0, kMostAlignment);
    return k;
  }
  ConvChoice choice(const Json& object) const {
    ConvChoice c;
    c.engine = number(field(object, "engine"), "engine", 0, kMostNumber);
    for (const Json& knob : array(object, "knobs", kMostKnobs)) {
      if (!knob.is_array() || knob.size() != 2)
        fail("\"knobs\": expected pairs of a type and a value, given ", short_text(knob));
      c.knobs.push_back(
          {number(knob[0], "knobs", 0, kMostKnobType), number(knob[1], "knobs", -kMostNumber, kMostNumber)});
    }
    return c;
  }
  DeviceModel model(const Json& object) const {
    DeviceModel m{word(object, "name")};
    if (m.name.size() > kLongest || std::ranges::any_of(m.name, [](unsigned char c) { return c < ' '; }))
      fail("\"name\": expected at most ", kLongest, " bytes of text, given ", short_text(object["name"]));
    const Dims capability = dims(object, "compute_capability", 2, 0, 1000);
    m.major = static_cast<int>(capability[0]), m.minor = static_cast<int>(capability[1]);
    return m;
  }

 private:
  static std::string short_text(const Json& json) {
    constexpr size_t kMost = 60;
    const std::string text = text_of(json);
    return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
  }

  const char* op_;
  const std::filesystem::path& path_;
};

}  // namespace

std::string to_json(const ConvChoices& choices, int64_t version) {
  std::string text = concat("{\"format\": \"", kFormat, "\", \"version\": ", kVersion,
                            ", \"cudnn\": ", version, ", \"devices\": [");
  const char* device = "\n";
  for (const auto& [model, list] : choices) {
    text += concat(device, "{\"name\": ", text_of(Json(model.name)), ", \"compute_capability\": [",
                   model.major, ", ", model.minor, "], \"convolutions\": [");
    const char* line = "\n";
    for (const auto& [key, choice] : list) text += line + text_of(to_json(key, choice)), line = ",\n";
    text += "]}", device = ",\n";
  }
  return text + "]}\n";
}

ConvChoices from_json(const char* op, const std::filesystem::path& path, const std::string& text,
                      int64_t version) {
  const Reader reader(op, path);
  if (text.size() > kMostBytesOfChoices) reader.fail("has more than ", kMostBytesOfChoices, " bytes");
  const Json all = reader.parse(text);
  if (const std::string format = reader.word(all, "format"); format != kFormat)
    reader.fail("expected \"format\": \"", kFormat, "\"");
  if (const int64_t given = reader.number(reader.field(all, "version"), "version", 0, kMostNumber);
      given != kVersion)
    reader.fail("has version ", given, " of the format; this program reads ", kVersion);
  if (const int64_t given = reader.number(reader.field(all, "cudnn"), "cudnn", 0, kMostNumber);
      given != version)
    reader.fail("is for cuDNN ", given, ", and this is ", version,
                ": engines of one are not those of another");
  ConvChoices choices;
  size_t lines = 0;
  for (const Json& device : reader.array(all, "devices", kMostChoices)) {
    auto& list = choices[reader.model(device)];
    for (const Json& line : reader.array(device, "convolutions", kMostChoices)) {
      if (++lines > kMostChoices) reader.fail("has more than ", kMostChoices, " convolutions");
      const ConvKey key = reader.key(line);
      if (!list.emplace(key, reader.choice(line)).second)
        reader.fail("has a convolution twice: line ", lines, " of the convolutions");
    }
  }
  return choices;
}

// The reader decides, so that what is written has no bounds of its own.
ConvChoices storable(const ConvChoices& choices, int64_t version) {
  const auto comes_back = [&](const ConvChoices& one) {
    try {
      return from_json("save_plans", {}, to_json(one, version), version) == one;
    } catch (const FileError&) {
      return false;
    }
  };
  ConvChoices result;
  for (const auto& [model, list] : choices)
    for (const auto& [key, choice] : list)
      if (comes_back({{model, {{key, choice}}}})) result[model].emplace(key, choice);
  return result;
}

}  // namespace gradus::cuda
