// Reads and writes the text file of cuDNN engine choices, one line per convolution; the grammar is in the
// header. The file is untrusted input: sizes have bounds, and any malformed line is an error, so that the
// file is used as a whole or not at all. Whether cuDNN accepts an engine and its knobs (tuning parameters) is
// checked when it is used.
#include "gradus/tensor/cuda/cudnn/plan_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kPasses = {"forward", "input_grad", "weight_grad"};
constexpr std::array<std::string_view, 4> kDTypeNames = {"f32", "f64", "f16", "bf16"};
constexpr std::array kDTypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
constexpr int64_t kMaxKnobs = 32;     // engines of cuDNN 9.19 have some 10
constexpr int64_t kMaxKnobType = 63;  // cuDNN's enum has 44
constexpr uintmax_t kMaxBytes = 16 << 20;

// Thrown by the parser; read_plan_file converts it to a FileError with the number of the line.
struct Malformed {};

void write(std::ostream& out, const char* name, const Dims& d) {
  out << ' ' << name << ' ' << d.size();
  for (const int64_t v : d) out << ' ' << v;
}
void write(std::ostream& out, const ConvKey& k, const ConvChoice& choice) {
  out << kPasses[static_cast<size_t>(k.pass)] << ' ' << name_of(k.dtype) << " tf32 " << k.tf32 << " relu "
      << k.relu << " deterministic " << k.deterministic;
  write(out, "x", k.x), write(out, "w", k.w), write(out, "stride", k.stride);
  write(out, "padding", k.padding), write(out, "dilation", k.dilation);
  write(out, "alignments", k.alignments);
  out << " engine " << choice.engine << " knobs " << choice.knobs.size();
  for (const ConvChoice::Knob& knob : choice.knobs) out << ' ' << knob.type << ' ' << knob.value;
  out << '\n';
}

// Parses a line of words separated by blanks. Every function consumes the next words, and throws Malformed
// unless they have the expected form.
class Line {
 public:
  explicit Line(const std::string& text) : in_(text) {}

  std::string word() {
    std::string w;
    if (!(in_ >> w)) throw Malformed();
    return w;
  }
  void expect(std::string_view name) {
    if (word() != name) throw Malformed();
  }
  int64_t number(int64_t min = std::numeric_limits<int64_t>::min(),
                 int64_t max = std::numeric_limits<int64_t>::max()) {
    int64_t v = 0;
    if (!(in_ >> v) || v < min || v > max) throw Malformed();
    return v;
  }
  template <size_t n> size_t index_in(const std::array<std::string_view, n>& words) {
    const auto found = std::ranges::find(words, word());
    if (found == words.end()) throw Malformed();
    return static_cast<size_t>(found - words.begin());
  }
  Dims dims(const char* name) {
    expect(name);
    Dims d;
    for (int64_t n = number(0, kMaxDims); n > 0; --n) d.push_back(number(0));
    return d;
  }
  bool flag(const char* name) {
    expect(name);
    return number(0, 1) == 1;
  }
  // Returns the rest of the line, without leading blanks.
  std::string rest() {
    std::string text;
    std::getline(in_ >> std::ws, text);
    return text;
  }

 private:
  std::istringstream in_;
};

void read_header(Line line, PlanFile& file) {
  line.expect("gradus_conv_plans");
  line.number(2, 2);
  line.expect("cudnn");
  file.cudnn_version = line.number(0);
  line.expect("device");
  file.model.major = static_cast<int>(line.number(0, 1000));
  file.model.minor = static_cast<int>(line.number(0, 1000));
  file.model.name = line.rest();
}

// Adds the choice of a line to `choices`. A repeated key, or more than kMaxChoices lines, are Malformed.
void read_choice(Line line, ConvChoices& choices) {
  ConvKey k;
  k.pass = static_cast<ConvPass>(line.index_in(kPasses));
  k.dtype = kDTypes[line.index_in(kDTypeNames)];
  k.tf32 = line.flag("tf32"), k.relu = line.flag("relu");
  k.deterministic = line.flag("deterministic");
  k.x = line.dims("x"), k.w = line.dims("w");
  k.stride = line.dims("stride"), k.padding = line.dims("padding"), k.dilation = line.dims("dilation");
  k.alignments = line.dims("alignments");
  ConvChoice choice;
  line.expect("engine");
  choice.engine = line.number(0);
  line.expect("knobs");
  for (int64_t n = line.number(0, kMaxKnobs); n > 0; --n) {
    const int64_t type = line.number(0, kMaxKnobType);
    choice.knobs.push_back({type, line.number()});
  }
  if (!line.rest().empty() || choices.size() == kMaxChoices || !choices.emplace(k, choice).second)
    throw Malformed();
}

}  // namespace

void write_plan_file(const char* op, const fs::path& path, const PlanFile& file) {
  // The temporary name is random instead of a process id, which processes of several containers may share.
  const fs::path temporary = concat(path.string(), '.', std::random_device()(), ".tmp");
  std::ofstream out(temporary);
  out << "gradus_conv_plans 2 cudnn " << file.cudnn_version << " device " << file.model.major << ' '
      << file.model.minor << ' ' << file.model.name << '\n';
  for (const auto& [key, choice] : file.choices) write(out, key, choice);
  out.close();
  std::error_code error(out ? 0 : errno ? errno : EIO, std::generic_category());
  if (!error) fs::rename(temporary, path, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  throw FileError(op, path.string(), ": cannot be written: ", error.message());
}

PlanFile read_plan_file(const char* op, const fs::path& path) {
  std::error_code error;
  const bool is_file = fs::is_regular_file(path, error);
  std::ifstream in;
  if (is_file) in.open(path);
  if (!in.is_open()) throw FileError(op, path.string(), ": cannot be read: expected a regular file");
  if (const uintmax_t size = fs::file_size(path, error); size > kMaxBytes)
    throw FileError(op, path.string(), ": expected at most ", kMaxBytes, " bytes, got ", size);
  PlanFile file;
  int64_t number = 0;
  try {
    for (std::string line; std::getline(in, line);)
      ++number == 1 ? read_header(Line(line), file) : read_choice(Line(line), file.choices);
    if (number == 0) throw Malformed();
  } catch (const Malformed&) {
    throw FileError(op, path.string(), ": line ", std::max<int64_t>(number, 1),
                    " is not one of a file of convolution plans");
  }
  return file;
}

}  // namespace gradus::cuda
