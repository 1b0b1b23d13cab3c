// Progress of long work: a bar that redraws itself on a terminal, plain lines anywhere else.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "gradus/data/files/download.h"

namespace gradus::training {

struct ProgressOptions {
  std::string title;  // "Epoch 3/14"
  int64_t total = 0;  // units of work in all
  int64_t done = 0;   // of them before this run
  std::string unit = "images";
  bool shown = true;  // false: nothing is written, for all ranks but one
};

// Reports on standard output. `update` often; the bar redraws ten times a second at most. Where the terminal is
// narrow, the bar, the rate and the last figures are left out.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // leaves an unfinished bar as it stands
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // True on a terminal: lines for a log are then not wanted.
  static bool is_bar();

  // Says that `done` units are done; `figures` is shown beside the bar ("loss 0.1234  accuracy 97.1 %").
  void update(int64_t done, const std::string& figures);
  // Redraws a last time and ends the line.
  void finish(const std::string& figures);

  double seconds() const;           // since construction
  double units_per_second() const;  // of the units done since construction

 private:
  void draw(const std::string& figures);

  ProgressOptions options_;
  int64_t done_;
  std::chrono::steady_clock::time_point start_, drawn_;
  bool line_open_ = false;
};

// Returns what shows a download's progress, file by file: data::download_mnist(dir, training::download_bar()).
std::function<void(const data::DownloadProgress&)> download_bar();

// "1:02:03" or "4:05".
std::string clock_text(double seconds);

}  // namespace gradus::training
