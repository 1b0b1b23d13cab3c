// EventWriter: encodes TensorFlow's Event protocol buffers by hand, and appends each as a TFRecord to the
// event file, which TensorBoard reads. Tensors are copied to the host, which waits for their device.
// Thread-safe.
#include "gradus/io/event_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>

#include "gradus/io/file.h"
#include "gradus/tensor/ops/copy.h"
#include "safetensors_format.h"

namespace gradus::io {
namespace {

namespace fs = std::filesystem;

// Encodes the subset of the protocol buffers wire format that event files use. Fields may be in any order:
//   ProtoWriter value;
//   value.bytes(1, "loss").f32(2, 0.25f);  // field numbers and values
//   std::string record = ProtoWriter().message(5, value).take();
class ProtoWriter {
 public:
  ProtoWriter& varint(int field, uint64_t value) { return key(field, 0).number(value); }
  ProtoWriter& f64(int field, double value) {
    return key(field, 1).little_endian(std::bit_cast<uint64_t>(value), 8);
  }
  ProtoWriter& f32(int field, float value) {
    return key(field, 5).little_endian(std::bit_cast<uint32_t>(value), 4);
  }
  ProtoWriter& bytes(int field, std::string_view value) {
    key(field, 2).number(value.size());
    out_ += value;
    return *this;
  }
  ProtoWriter& message(int field, const ProtoWriter& m) { return bytes(field, m.out_); }
  // Writes a repeated field of doubles, packed.
  ProtoWriter& f64s(int field, std::span<const double> values) {
    key(field, 2).number(8 * values.size());
    for (const double v : values) little_endian(std::bit_cast<uint64_t>(v), 8);
    return *this;
  }

  std::string take() { return std::move(out_); }

 private:
  ProtoWriter& key(int field, int wire_type) { return number(static_cast<uint64_t>(field) << 3 | wire_type); }
  ProtoWriter& number(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_ += static_cast<char>(v | 0x80);
    out_ += static_cast<char>(v);
    return *this;
  }
  ProtoWriter& little_endian(uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(v >> 8 * i);
    return *this;
  }

  std::string out_;
};

// Field numbers of TensorFlow's messages (event.proto, summary.proto, tensor.proto).
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSessionLogStatus = 1, kSessionLogStart = 1;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1, kValueSimpleValue = 2, kValueImage = 4, kValueHistogram = 5, kValueTensor = 8,
              kValueMetadata = 9;
constexpr int kImageHeight = 1, kImageWidth = 2, kImageColorspace = 3, kImageEncoded = 4;
constexpr int kHistogramMin = 1, kHistogramMax = 2, kHistogramNum = 3, kHistogramSum = 4,
              kHistogramSumSquares = 5, kHistogramBucketLimit = 6, kHistogramBucket = 7;
constexpr int kTensorDType = 1, kTensorShape = 2, kTensorStringVal = 8, kTensorDTString = 7, kTensorDim = 2,
              kTensorDimSize = 1;
constexpr int kMetadataPluginData = 1, kMetadataPluginName = 1, kMetadataContent = 2;
// Field numbers of TensorBoard's HParams plugin (plugins/hparams).
constexpr int kHparamsExperiment = 2, kHparamsSessionStart = 3;
constexpr int kHparamsInfos = 4, kHparamsMetrics = 5, kHparamsInfoName = 1, kHparamsInfoType = 4,
              kHparamsMetricName = 1, kHparamsMetricTag = 2;
constexpr int kHparamsEntry = 1, kHparamsKey = 1, kHparamsEntryValue = 2, kHparamsStartTime = 5;
constexpr int kHparamsTypeString = 1, kHparamsTypeBool = 2, kHparamsTypeF64 = 3;
constexpr int kHparamsNumber = 2, kHparamsString = 3, kHparamsFlag = 4;

constexpr char kOp[] = "event_writer";

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void check_text(std::string_view what, const std::string& text) {
  if (!internal::is_utf8(text)) throw ValueError(kOp, what, " ", internal::quote(text), " is not UTF-8");
}

void check_tag(const std::string& tag) {
  if (tag.empty()) throw ValueError(kOp, "expected a tag, got an empty one");
  check_text("the tag", tag);
}

ProtoWriter value_of(const std::string& tag) {
  check_tag(tag);
  return ProtoWriter().bytes(kValueTag, tag);
}

ProtoWriter event_at(int64_t step) {
  return ProtoWriter().f64(kEventWallTime, now()).varint(kEventStep, static_cast<uint64_t>(step));
}

// Returns an encoded Event with one summary value v.
std::string summary_event(int64_t step, const ProtoWriter& v) {
  return event_at(step).message(kEventSummary, ProtoWriter().message(kSummaryValue, v)).take();
}

// Returns the SummaryMetadata that assigns a value to a TensorBoard plugin.
ProtoWriter plugin(std::string_view name, std::string_view content) {
  return ProtoWriter().message(
      kMetadataPluginData, ProtoWriter().bytes(kMetadataPluginName, name).bytes(kMetadataContent, content));
}

// CRC-32C (Castagnoli polynomial) by table lookup; zlib's crc32 uses another polynomial.
constexpr std::array<uint32_t, 256> kCrc32cTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0x82f63b78u ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  return table;
}();

uint32_t crc32c(std::string_view data) {
  uint32_t c = ~0u;
  for (const char byte : data) c = kCrc32cTable[(c ^ static_cast<unsigned char>(byte)) & 0xff] ^ c >> 8;
  return ~c;
}

// Returns a TFRecord: length, CRC of the length, event, CRC of the event. Numbers are little-endian.
std::string record_of(const std::string& event) {
  const auto number = [](uint64_t v, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(v >> 8 * i);
    return text;
  };
  // The format masks checksums, since the CRC of data that contain their own CRC is a constant.
  const auto masked = [](std::string_view data) {
    const uint32_t c = crc32c(data);
    return (c >> 15 | c << 17) + 0xa282ead8u;
  };
  const std::string length = number(event.size(), 8);
  return length + number(masked(length), 4) + event + number(masked(event), 4);
}

// Note [Names of event files]
// Readers process a folder's files in the order of their names, and a purge_step affects only earlier files.
// So the time in the name of a new file is at least one second after those of existing files, even if another
// machine with a fast clock wrote them.
int64_t seconds_for(const fs::path& folder) {
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  constexpr size_t kDigits = 10;
  int64_t seconds = static_cast<int64_t>(now());
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.compare(0, kPrefix.size(), kPrefix) != 0 || name.size() <= kPrefix.size() + kDigits) continue;
    const std::string digits = name.substr(kPrefix.size(), kDigits);
    if (name[kPrefix.size() + kDigits] != '.' || digits.find_first_not_of("0123456789") != std::string::npos)
      continue;
    const int64_t existing = std::stoll(digits);
    if (existing < 9'999'999'999) seconds = std::max(seconds, existing + 1);
  }
  return seconds;
}

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
}

// Returns the upper limits of histogram buckets, which grow by a factor of 1.1 on both sides of zero, as in
// TensorFlow.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double v = 1e-12; v < 1e20; v *= 1.1) positive.push_back(v);
    std::vector<double> all;
    for (auto v = positive.rbegin(); v != positive.rend(); ++v) all.push_back(-*v);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

// Returns TensorFlow's HistogramProto of the finite elements.
ProtoWriter histogram_of(const Tensor& values) {
  const std::vector<double>& limits = bucket_limits();
  std::vector<double> counts(limits.size(), 0.);
  double low = std::numeric_limits<double>::infinity(), high = -low, n = 0, sum = 0, squares = 0;
  const Tensor x = raw::contiguous(raw::to(raw::to(values, kCPU), DType::kF64));
  const double* const p = x.data<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = p[i];
    if (!std::isfinite(v)) continue;
    low = std::min(low, v), high = std::max(high, v);
    ++n, sum += v, squares += v * v;
    const auto bucket = std::upper_bound(limits.begin(), limits.end() - 1, v);  // [previous limit, limit)
    ++counts[static_cast<size_t>(bucket - limits.begin())];
  }
  // Writes the range of nonempty buckets, and one empty bucket before it, whose limit is the lower end of the
  // range.
  size_t begin = 0, end = 1;
  if (n > 0) {
    while (counts[begin] == 0) ++begin;
    for (end = counts.size(); counts[end - 1] == 0;) --end;
    if (begin > 0) --begin;
  } else {
    low = high = 0;
  }
  ProtoWriter h;
  h.f64(kHistogramMin, low).f64(kHistogramMax, high).f64(kHistogramNum, n);
  h.f64(kHistogramSum, sum).f64(kHistogramSumSquares, squares);
  h.f64s(kHistogramBucketLimit, {limits.data() + begin, end - begin});
  h.f64s(kHistogramBucket, {counts.data() + begin, end - begin});
  return h;
}

ProtoWriter hparam_value(const HParam& h) {
  ProtoWriter v;
  if (const auto* number = std::get_if<double>(&h.value))
    v.f64(kHparamsNumber, *number);
  else if (const auto* flag = std::get_if<bool>(&h.value))
    v.varint(kHparamsFlag, *flag);
  else
    v.bytes(kHparamsString, std::get<std::string>(h.value));
  return v;
}

// By the index of HParam::value.
constexpr uint64_t kHparamTypes[] = {kHparamsTypeF64, kHparamsTypeBool, kHparamsTypeString};

}  // namespace

EventWriter::EventWriter(const fs::path& folder, EventWriterOptions options) {
  static std::atomic<int> number{0};
  path_ = folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("cannot create the folder", error.value());
  const std::string host = host_name();
  do {
    path_ = folder / concat("events.out.tfevents.", seconds_for(folder), ".", host, ".", ::getpid(), ".",
                            number++, options.filename_suffix);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) fail("cannot create", errno);
  try {
    append(ProtoWriter().f64(kEventWallTime, now()).bytes(kEventFileVersion, "brain.Event:2").take());
    const ProtoWriter start = ProtoWriter().varint(kSessionLogStatus, kSessionLogStart);
    if (options.purge_step) append(event_at(*options.purge_step).message(kEventSessionLog, start).take());
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

EventWriter::~EventWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void EventWriter::fail(const char* what, int error) const {
  throw FileError(kOp, path_.string(), ": ", what, ": ", std::generic_category().message(error));
}

// Note [Complete records]
// Each record is appended with one write. After a partial write the file is truncated to its previous size,
// since readers stop at an incomplete record.
void EventWriter::append(const std::string& event) {
  const std::string record = record_of(event);
  const std::lock_guard lock(mutex_);
  if (fd_ < 0) throw StateError(kOp, path_.string(), " is closed");
  if (!internal::write_all(fd_, record.data(), static_cast<int64_t>(record.size()))) {
    const int error = errno;
    if (::ftruncate(fd_, size_) != 0) fail("cannot write, nor cut off what was written", error);
    fail("cannot write", error);
  }
  size_ += static_cast<int64_t>(record.size());
}

void EventWriter::add_scalar(const std::string& tag, double number, int64_t step) {
  append(summary_event(step, value_of(tag).f32(kValueSimpleValue, static_cast<float>(number))));
}

void EventWriter::add_image(const std::string& tag, const Tensor& images, int64_t step,
                            const GridOptions& grid) {
  ProtoWriter v = value_of(tag);
  const Tensor picture = make_grid(images, grid);
  ProtoWriter i;
  i.varint(kImageHeight, static_cast<uint64_t>(picture.size(1)));
  i.varint(kImageWidth, static_cast<uint64_t>(picture.size(2)));
  i.varint(kImageColorspace, static_cast<uint64_t>(picture.size(0)));
  append(summary_event(step, v.message(kValueImage, i.bytes(kImageEncoded, encode_png(picture)))));
}

void EventWriter::add_histogram(const std::string& tag, const Tensor& values, int64_t step) {
  ProtoWriter v = value_of(tag);
  if (values.numel() == 0)
    throw ValueError("add_histogram", tag, ": expected elements, got ", describe(values));
  append(summary_event(step, v.message(kValueHistogram, histogram_of(values))));
}

void EventWriter::add_text(const std::string& tag, const std::string& text, int64_t step) {
  ProtoWriter v = value_of(tag);
  check_text("the text", text);
  const ProtoWriter shape = ProtoWriter().message(kTensorDim, ProtoWriter().varint(kTensorDimSize, 1));
  ProtoWriter t;
  t.varint(kTensorDType, kTensorDTString).message(kTensorShape, shape).bytes(kTensorStringVal, text);
  append(summary_event(step, v.message(kValueMetadata, plugin("text", "")).message(kValueTensor, t)));
}

void EventWriter::add_hparams(const std::vector<std::pair<std::string, HParam>>& hparams,
                              const std::vector<std::string>& metric_tags) {
  ProtoWriter experiment, start;
  for (const auto& [name, h] : hparams) {
    check_text("the name", name);
    if (const auto* word = std::get_if<std::string>(&h.value)) check_text(name, *word);
    ProtoWriter info, entry;
    info.bytes(kHparamsInfoName, name).varint(kHparamsInfoType, kHparamTypes[h.value.index()]);
    experiment.message(kHparamsInfos, info);
    start.message(kHparamsEntry, entry.bytes(kHparamsKey, name).message(kHparamsEntryValue, hparam_value(h)));
  }
  for (const std::string& tag : metric_tags) {
    check_tag(tag);
    const ProtoWriter name = ProtoWriter().bytes(kHparamsMetricTag, tag);
    experiment.message(kHparamsMetrics, ProtoWriter().message(kHparamsMetricName, name));
  }
  start.f64(kHparamsStartTime, now());
  const auto add = [&](const char* tag, int field, const ProtoWriter& message) {
    const std::string content = ProtoWriter().message(field, message).take();
    append(summary_event(0, value_of(tag).message(kValueMetadata, plugin("hparams", content))));
  };
  add("_hparams_/experiment", kHparamsExperiment, experiment);
  add("_hparams_/session_start_info", kHparamsSessionStart, start);
}

void EventWriter::flush() {
  const std::lock_guard lock(mutex_);
  if (fd_ < 0) throw StateError(kOp, path_.string(), " is closed");
  // Pipes and some file systems do not support fsync.
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) fail("cannot flush", errno);
}

void EventWriter::close() {
  flush();
  const std::lock_guard lock(mutex_);
  if (::close(std::exchange(fd_, -1)) != 0) fail("cannot close", errno);
}

}  // namespace gradus::io
