// Progress bar on stdout, redrawn in place with a carriage return, if stdout is a terminal; otherwise the bar
// writes nothing, and callers print lines. One thread uses a Progress. Rates and times count from its
// construction.
#include "gradus/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gradus/train/text.h"

namespace gradus::training {
namespace {

// Returns the width of the terminal at stdout, or 80 if it is unknown.
int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Joins the parts to a line of at most `columns` characters: head, bar, values, rate, time left. Drops the
// bar if it does not fit, then the rate, then values from the last one. `values`, `rate` and `left` begin
// with two spaces, which also separate the values. fraction: the filled part of the bar, 0 to 1.
std::string fitted_line(const std::string& head, std::string values, std::string rate,
                        const std::string& left, double fraction, size_t columns) {
  const auto length = [&] { return head.size() + values.size() + rate.size() + left.size(); };
  if (length() > columns) rate.clear();
  while (length() > columns && !values.empty()) values.resize(values.rfind("  "));
  std::string bar;
  if (columns >= length() + 8) {
    const size_t width = std::min<size_t>(columns - length() - 3, 40);
    bar = std::string(static_cast<size_t>(fraction * static_cast<double>(width)), '#');
    bar = " [" + bar + std::string(width - bar.size(), '.') + "]";
  }
  return (head + bar + values + rate + left).substr(0, columns);
}

}  // namespace

std::string clock_text(double seconds) {
  const int64_t s = std::max<int64_t>(0, static_cast<int64_t>(std::min(seconds, 3.6e8) + 0.5));
  if (s < 3600) return format_text("%d:%02d", int(s / 60), int(s % 60));
  return format_text("%lld:%02d:%02d", s / 3600, int(s / 60 % 60), int(s % 60));
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      done_(options_.done),
      start_(std::chrono::steady_clock::now()),
      drawn_(start_) {}

Progress::~Progress() {
  if (line_open_) std::cout << std::endl;  // the terminal keeps an unfinished bar
}

bool Progress::is_bar() {
  static const bool bar = [] {
    const char* term = std::getenv("TERM");
    return isatty(STDOUT_FILENO) && term && std::string_view(term) != "dumb";
  }();
  return bar;
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double Progress::units_per_second() const {
  const double s = seconds();
  return s > 0 ? static_cast<double>(done_ - options_.done) / s : 0;
}

void Progress::update(int64_t done, const std::string& values) {
  done_ = done;
  if (!is_bar() || !options_.shown) return;
  const auto now = std::chrono::steady_clock::now();
  if (line_open_ && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  draw(values);
}

void Progress::finish(const std::string& values) {
  if (!is_bar() || !options_.shown) return;
  draw(values);
  std::cout << std::endl;
  line_open_ = false;
}

void Progress::draw(const std::string& values) {
  const double rate = units_per_second();
  const double fraction =
      options_.total > 0 ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(options_.total))
                         : 0;
  const std::string head = format_text("%s %3d %%", options_.title, static_cast<int>(fraction * 100));
  const std::string speed = format_text("  %.0f %s/s", rate, options_.unit);
  const std::string left = done_ >= options_.total ? "  in " + clock_text(seconds())
                           : rate > 0
                               ? "  ETA " + clock_text(static_cast<double>(options_.total - done_) / rate)
                               : "  ETA -";
  // A character in the last column would make some terminals wrap.
  const auto columns = static_cast<size_t>(terminal_columns() - 1);
  // \033[K clears the rest of the line.
  std::cout << '\r'
            << fitted_line(head, values.empty() ? values : "  " + values, speed, left, fraction, columns)
            << "\033[K" << std::flush;
  line_open_ = true;
}

std::function<void(const data::DownloadProgress&)> download_bar() {
  struct State {
    std::string file;
    std::unique_ptr<Progress> bar;
  };
  return [state = std::make_shared<State>()](const data::DownloadProgress& p) {
    if (p.file != state->file) {
      if (state->bar) state->bar->finish("");
      state->file = p.file;
      if (!Progress::is_bar()) std::cout << "Downloading " << p.file << std::endl;
      state->bar =
          std::make_unique<Progress>(ProgressOptions{.title = p.file, .total = p.total, .unit = "bytes"});
    }
    state->bar->update(p.done, "");
  };
}

}  // namespace gradus::training
