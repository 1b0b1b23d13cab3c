// Implementation of EventWriter: TFRecords with TensorFlow's Event messages, written with protobuf.h.
#include "gradus/io/event_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>

#include "crc32c.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/blocked_signals.h"
#include "protobuf.h"
#include "safetensors_format.h"

namespace gradus::io {
namespace {

namespace fs = std::filesystem;
using internal::ProtoWriter;

// Field numbers of TensorFlow's messages (event.proto, summary.proto, tensor.proto).
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1, kStart = 1;
}
namespace summary {
constexpr int kValue = 1;
}
namespace value {
constexpr int kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9;
}
namespace image {
constexpr int kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4;
}
namespace histogram {
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;
}
namespace tensor {
constexpr int kDType = 1, kShape = 2, kStringVal = 8, kDTString = 7, kDim = 2, kDimSize = 1;
}
namespace metadata {
constexpr int kPluginData = 1, kPluginName = 1, kContent = 2;
}
// Field numbers of TensorBoard's HParams plugin (plugins/hparams).
namespace hparams {
constexpr int kExperiment = 2, kSessionStart = 3;
constexpr int kInfos = 4, kMetrics = 5, kInfoName = 1, kInfoType = 4, kMetricName = 1, kMetricTag = 2;
constexpr int kEntry = 1, kKey = 1, kEntryValue = 2, kStartTime = 5;
constexpr int kTypeString = 1, kTypeBool = 2, kTypeF64 = 3;
constexpr int kNumber = 2, kString = 3, kFlag = 4;
}  // namespace hparams

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
  ProtoWriter v;
  v.bytes(value::kTag, tag);
  return v;
}

ProtoWriter event_at(int64_t step) {
  ProtoWriter e;
  e.f64(event::kWallTime, now()).varint(event::kStep, static_cast<uint64_t>(step));
  return e;
}

std::string summary_event(int64_t step, const ProtoWriter& v) {
  return event_at(step).message(event::kSummary, ProtoWriter().message(summary::kValue, v)).take();
}

ProtoWriter plugin(std::string_view name, std::string_view content) {
  ProtoWriter data;
  data.bytes(metadata::kPluginName, name).bytes(metadata::kContent, content);
  ProtoWriter m;
  return m.message(metadata::kPluginData, data);
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
    const uint32_t c = internal::crc32c(data);
    return (c >> 15 | c << 17) + 0xa282ead8u;
  };
  const std::string length = number(event.size(), 8);
  return length + number(masked(length), 4) + event + number(masked(event), 4);
}

// Note [Names of event files]
// Readers process a folder's files in the order of their names, and a purge affects only earlier files. So the
// time in the name of a new file is at least one second after those of existing files, even if another machine
// with a fast clock wrote them.
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
  h.f64(histogram::kMin, low).f64(histogram::kMax, high).f64(histogram::kNum, n);
  h.f64(histogram::kSum, sum).f64(histogram::kSumSquares, squares);
  h.f64s(histogram::kBucketLimit, {limits.data() + begin, end - begin});
  h.f64s(histogram::kBucket, {counts.data() + begin, end - begin});
  return h;
}

ProtoWriter hparam_value(const HParam& h) {
  ProtoWriter v;
  if (const auto* number = std::get_if<double>(&h.value))
    v.f64(hparams::kNumber, *number);
  else if (const auto* flag = std::get_if<bool>(&h.value))
    v.varint(hparams::kFlag, *flag);
  else
    v.bytes(hparams::kString, std::get<std::string>(h.value));
  return v;
}

int hparam_type(const HParam& h) {
  if (std::holds_alternative<double>(h.value)) return hparams::kTypeF64;
  return std::holds_alternative<bool>(h.value) ? hparams::kTypeBool : hparams::kTypeString;
}

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
    ProtoWriter first;
    append(first.f64(event::kWallTime, now()).bytes(event::kFileVersion, "brain.Event:2").take());
    if (options.purge_step) {
      ProtoWriter start;
      start.varint(session_log::kStatus, session_log::kStart);
      append(event_at(*options.purge_step).message(event::kSessionLog, start).take());
    }
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
// Each record is appended with one write. After a partial write the file is truncated to its previous size, since
// readers stop at an incomplete record.
void EventWriter::append(const std::string& event) {
  const std::string record = record_of(event);
  const std::lock_guard lock(mutex_);
  if (fd_ < 0) throw StateError(kOp, path_.string(), " is closed");
  const gradus::internal::BlockedSignals blocked;
  for (size_t done = 0; done < record.size();) {
    const ssize_t n = ::write(fd_, record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      if (::ftruncate(fd_, size_) != 0) fail("cannot write, nor cut off what was written", error);
      fail("cannot write", error);
    }
    done += static_cast<size_t>(n);
  }
  size_ += static_cast<int64_t>(record.size());
}

void EventWriter::add_scalar(const std::string& tag, double number, int64_t step) {
  append(summary_event(step, value_of(tag).f32(value::kSimpleValue, static_cast<float>(number))));
}

void EventWriter::add_image(const std::string& tag, const Tensor& images, int64_t step,
                            const GridOptions& grid) {
  ProtoWriter v = value_of(tag);
  const Tensor picture = make_grid(images, grid);
  ProtoWriter i;
  i.varint(image::kHeight, static_cast<uint64_t>(picture.size(1)));
  i.varint(image::kWidth, static_cast<uint64_t>(picture.size(2)));
  i.varint(image::kColorspace, static_cast<uint64_t>(picture.size(0)));
  append(summary_event(step, v.message(value::kImage, i.bytes(image::kEncoded, encode_png(picture)))));
}

void EventWriter::add_histogram(const std::string& tag, const Tensor& values, int64_t step) {
  ProtoWriter v = value_of(tag);
  if (values.numel() == 0)
    throw ValueError("add_histogram", tag, ": expected elements, got ", describe(values));
  append(summary_event(step, v.message(value::kHistogram, histogram_of(values))));
}

void EventWriter::add_text(const std::string& tag, const std::string& text, int64_t step) {
  ProtoWriter v = value_of(tag);
  check_text("the text", text);
  ProtoWriter dim, shape, t;
  shape.message(tensor::kDim, dim.varint(tensor::kDimSize, 1));
  t.varint(tensor::kDType, tensor::kDTString).message(tensor::kShape, shape).bytes(tensor::kStringVal, text);
  append(summary_event(step, v.message(value::kMetadata, plugin("text", "")).message(value::kTensor, t)));
}

void EventWriter::add_hparams(const std::vector<std::pair<std::string, HParam>>& hparams,
                              const std::vector<std::string>& metric_tags) {
  namespace hp = gradus::io::hparams;
  ProtoWriter experiment, start;
  for (const auto& [name, h] : hparams) {
    check_text("the name", name);
    if (const auto* word = std::get_if<std::string>(&h.value)) check_text(name, *word);
    ProtoWriter info, entry;
    info.bytes(hp::kInfoName, name).varint(hp::kInfoType, static_cast<uint64_t>(hparam_type(h)));
    experiment.message(hp::kInfos, info);
    start.message(hp::kEntry, entry.bytes(hp::kKey, name).message(hp::kEntryValue, hparam_value(h)));
  }
  for (const std::string& tag : metric_tags) {
    check_tag(tag);
    ProtoWriter metric, metric_name;
    metric.message(hp::kMetricName, metric_name.bytes(hp::kMetricTag, tag));
    experiment.message(hp::kMetrics, metric);
  }
  start.f64(hp::kStartTime, now());
  const auto add = [&](const char* tag, int field, const ProtoWriter& message) {
    ProtoWriter content;
    ProtoWriter v = value_of(tag);
    append(summary_event(
        0, v.message(value::kMetadata, plugin("hparams", content.message(field, message).take()))));
  };
  add("_hparams_/experiment", hp::kExperiment, experiment);
  add("_hparams_/session_start_info", hp::kSessionStart, start);
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
