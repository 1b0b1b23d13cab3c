// Event files, which TensorBoard shows: scalars, images, histograms and texts over the steps of a training.
//
//   io::EventWriter log("runs/resnet18");
//   log.add_scalar("train/loss", loss.item<float>(), step);
//   $ tensorboard --logdir runs
//
// A folder is a run. A tag is a chart; the part before its "/" names the group of the chart. Each writer has
// a file of its own, events.out.tfevents.<seconds>.<host>.<process>.<number>. With several ranks, write from
// one of them, or from each into its own folder.
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

// A hyperparameter of a run: a number, a word or a flag.
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
  // The run continues from this step. What earlier files of the folder say about this step and later ones is
  // no longer shown.
  std::optional<int64_t> purge_step = std::nullopt;
  std::string filename_suffix = {};
};

// Appends events to a new file. An event is complete in the file when add_... returns. So a process that ends
// at any moment loses no more than the event that it is writing, and readers pass over the incomplete one.
// Threads may share a writer.
//
// Errors: of all members, FileError naming the file when it cannot be created or written (no space,
// permission). Events written before stay readable, and a later call may succeed. ValueError for an empty
// tag, or a tag or text that is not UTF-8; StateError after close.
class EventWriter {
 public:
  // Creates the folder, with its parents, and the file.
  explicit EventWriter(const std::filesystem::path& folder, EventWriterOptions options = {});
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  const std::filesystem::path& path() const { return path_; }  // of the file

  // Adds one value of a curve. NaN and infinities are shown as such.
  void add_scalar(const std::string& tag, double value, int64_t step);

  // Adds one image [C,H,W] or [H,W], or a batch [N,C,H,W] as a grid.
  // Errors: as make_grid and encode_png.
  void add_image(const std::string& tag, const Tensor& images, int64_t step, const GridOptions& grid = {});

  // Adds the distribution of a tensor's elements, of any dtype. Elements that are not finite are left out.
  // Errors: ValueError for a tensor without elements.
  void add_histogram(const std::string& tag, const Tensor& values, int64_t step);

  // Adds a text, which is shown as Markdown.
  void add_text(const std::string& tag, const std::string& text, int64_t step);

  // Shows the run in the table of runs, with these hyperparameters and the last scalars of these tags.
  void add_hparams(const std::vector<std::pair<std::string, HParam>>& hparams,
                   const std::vector<std::string>& metric_tags);

  // Waits until all events are on the disk, so that they also survive a stop of the machine.
  void flush();
  // Flushes and closes the file. The destructor closes without waiting for the disk.
  void close();

 private:
  void append(const std::string& event);
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_;
  std::mutex mutex_;
  int fd_ = -1;
  int64_t size_ = 0;  // bytes of complete records in the file
};

}  // namespace gradus::io
