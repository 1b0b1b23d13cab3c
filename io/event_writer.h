// EventWriter: writes TensorBoard event files with scalars, images, histograms and texts over training steps.
//
//   io::EventWriter log("runs/resnet18");
//   log.add_scalar("train/loss", loss.item<float>(), step);
//   $ tensorboard --logdir runs
//
// A folder is a run. A tag is a chart; the prefix before its "/" is the chart's group. Each writer creates a file
// events.out.tfevents.<seconds>.<host>.<process>.<number>. In a job of several ranks, write from one rank, or from
// each rank into a separate folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/io/save_image.h"
#include "gradus/tensor/tensor.h"

namespace gradus::io {

// A hyperparameter of a run: a number, a string or a bool.
struct HParam {
  HParam(bool flag) : value(flag) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  HParam(T number) : value(static_cast<double>(number)) {}
  HParam(std::string word) : value(std::move(word)) {}
  HParam(const char* word) : value(std::string(word)) {}
  std::variant<double, bool, std::string> value;
};

struct EventWriterOptions {
  // Set when a run resumes from this step: TensorBoard hides the events of earlier files in the folder for this
  // and later steps.
  std::optional<int64_t> purge_step = std::nullopt;
  std::string filename_suffix = {};
};

// Appends events to a new file. An event is complete in the file when add_... returns, so a process that ends at
// any moment loses at most the event that it is writing; readers skip an incomplete event. Thread-safe.
// Tensors may be on any device, which the host waits for.
//
// Errors of all member functions: FileError naming the file if it cannot be created or written (no space,
// permission); earlier events stay readable, and a later call may succeed. ValueError for an empty tag, or a tag
// or text that is not UTF-8; StateError after close.
class EventWriter {
 public:
  // Creates the folder, with its parents, and the file.
  explicit EventWriter(const std::filesystem::path& folder, EventWriterOptions options = {});
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  const std::filesystem::path& path() const { return path_; }  // the event file
  // Adds one value of a curve, stored as f32. NaN and infinity are allowed.
  void add_scalar(const std::string& tag, double value, int64_t step);

  // Adds one image [C,H,W] or [H,W], or a batch [N,C,H,W] as a grid.
  // Errors: as make_grid and encode_png.
  void add_image(const std::string& tag, const Tensor& images, int64_t step, const GridOptions& grid = {});

  // Adds a histogram of a tensor's elements, of any dtype. Elements that are not finite are ignored.
  // Errors: ValueError for a tensor without elements.
  void add_histogram(const std::string& tag, const Tensor& values, int64_t step);
  // Adds a text, which TensorBoard renders as Markdown.
  void add_text(const std::string& tag, const std::string& text, int64_t step);

  // Adds the run to the HParams dashboard, with these hyperparameters and the last scalars of these tags as
  // metrics.
  void add_hparams(const std::vector<std::pair<std::string, HParam>>& hparams,
                   const std::vector<std::string>& metric_tags);

  // Flushes all events to the disk (fsync), so that they survive a crash of the machine.
  void flush();
  // Flushes and closes the file. The destructor closes without flushing to the disk.
  void close();

 private:
  void append(const std::string& event);
  [[noreturn]] void fail(const char* what, int error) const;
  std::filesystem::path path_;
  std::mutex mutex_;
  int fd_ = -1;
  int64_t size_ = 0;  // size of the complete records in the file
};

}  // namespace gradus::io
