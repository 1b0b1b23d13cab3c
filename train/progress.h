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
  int64_t total = 0;  // units of work; 0: unknown
  int64_t done = 0;   // units that were done before this run; they do not count for the rate
  std::string unit = "images";
  bool shown = true;  // false: nothing is written. To be set on one rank only
};

// Writes to standard output. Redraws the bar at most ten times a second. A narrow terminal shows no bar, then
// no rate, then fewer values. Not thread-safe.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // leaves an unfinished bar on the terminal
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  static bool is_bar();  // whether standard output is a terminal that is not "dumb"; else nothing is written

  // Sets the completed units, and the values beside the bar ("loss 0.1234  accuracy 97.1 %").
  void update(int64_t done, const std::string& values);
  // Redraws a last time and ends the line.
  void finish(const std::string& values);

  double seconds() const;           // since construction
  double units_per_second() const;  // since construction

 private:
  void draw(const std::string& values);

  ProgressOptions options_;
  int64_t done_;
  std::chrono::steady_clock::time_point start_, drawn_;
  bool line_open_ = false;
};

// Returns a callback that shows the progress of downloads: data::download_mnist(dir,
// training::download_bar()).
std::function<void(const data::DownloadProgress&)> download_bar();

// "1:02:03" or "4:05".
std::string clock_text(double seconds);

}  // namespace gradus::training
