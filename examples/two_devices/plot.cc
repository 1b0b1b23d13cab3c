// Writes SVG elements: axes with ticks at 1, 2 or 5 times a power of ten, bars, and curves with error bars.
#include "gradus/examples/two_devices/plot.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "gradus/tensor/base/error.h"

namespace gradus::examples {
namespace {

// Size and margins of a chart, and half the width of an error bar's caps, in pixels.
constexpr double kWidth = 560, kHeight = 380, kLeft = 64, kRight = 16, kTop = 40, kBottom = 56, kCap = 5;
constexpr const char* kColors[] = {"#4c72b0", "#dd8452", "#55a868", "#c44e52"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// Returns 1, 2 or 5 times a power of ten, so that at most six ticks reach `max`.
double tick_step(double max) {
  const double power = std::pow(10, std::floor(std::log10(max / 5)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (max <= 6 * factor * power) return factor * power;
  return 10 * power;
}

// Draws a chart whose left edge is at x = `left` pixels.
class Drawing {
 public:
  Drawing(std::ostream& out, const Chart& chart, double left) : out_(out), chart_(chart), left_(left) {
    for (const Bar& b : chart.bars) include(0, b.value, b.deviation);
    for (const Curve& c : chart.curves)
      for (const PlotPoint& p : c.points) include(p.x, p.y, p.deviation);
    if (max_y_ == 0) throw ValueError("plot", "'", chart.labels.title, "' has nothing above 0 to show");
    max_y_ *= 1.05;
    max_x_ *= 1.05;
  }

  void draw() {
    axes();
    for (size_t i = 0; i < chart_.bars.size(); ++i) bar(i);
    for (size_t i = 0; i < chart_.curves.size(); ++i) curve(i);
  }

 private:
  void include(double x, double y, double deviation) {
    for (const double v : {x, y, deviation})
      if (!std::isfinite(v) || v < 0)
        throw ValueError("plot", "'", chart_.labels.title, "' has the number ", v,
                         ": expected numbers of at least 0");
    max_x_ = std::max(max_x_, x);
    max_y_ = std::max(max_y_, y + deviation);
  }

  // Positions of values, in pixels.
  double x_of(double x) const { return left_ + kLeft + x / max_x_ * (kWidth - kLeft - kRight); }
  double y_of(double y) const { return kHeight - kBottom - y / max_y_ * (kHeight - kTop - kBottom); }

  void line(double x1, double y1, double x2, double y2, const char* color = "black") {
    out_ << "<line x1='" << x1 << "' y1='" << y1 << "' x2='" << x2 << "' y2='" << y2 << "' stroke='" << color
         << "'/>\n";
  }
  void text(double x, double y, const std::string& words, const char* anchor = "middle",
            const std::string& more = "") {
    out_ << "<text x='" << x << "' y='" << y << "' text-anchor='" << anchor << "'" << more << ">"
         << escaped(words) << "</text>\n";
  }
  void error_bar(double x, double y, double deviation) {
    if (deviation == 0) return;
    const double top = y_of(y + deviation), bottom = y_of(std::max(0.0, y - deviation));
    out_ << "<g class='error-bar'>\n";
    line(x, top, x, bottom);
    line(x - kCap, top, x + kCap, top);
    line(x - kCap, bottom, x + kCap, bottom);
    out_ << "</g>\n";
  }

  void axes() {
    const double x0 = left_ + kLeft, x1 = left_ + kWidth - kRight, y0 = kHeight - kBottom;
    out_ << "<g class='axes'>\n";
    for (double y = 0, step = tick_step(max_y_); y <= max_y_; y += step) {
      line(x0, y_of(y), x1, y_of(y), "#dddddd");
      text(x0 - 6, y_of(y) + 4, concat(y), "end");
    }
    line(x0, y0, x1, y0);
    line(x0, y0, x0, kTop);
    if (chart_.bars.empty())
      for (double x = 0, step = tick_step(max_x_); x <= max_x_; x += step) {
        line(x_of(x), y0, x_of(x), y0 + 4);
        text(x_of(x), y0 + 18, concat(x));
      }
    out_ << "</g>\n";
    const double middle = (kTop + y0) / 2;
    text((x0 + x1) / 2, kTop - 16, chart_.labels.title, "middle", " font-weight='bold'");
    text((x0 + x1) / 2, kHeight - 12, chart_.labels.x);
    text(left_ + 16, middle, chart_.labels.y, "middle",
         concat(" transform='rotate(-90 ", left_ + 16, " ", middle, ")'"));
  }

  void bar(size_t i) {
    const Bar& b = chart_.bars[i];
    const double room = (kWidth - kLeft - kRight) / static_cast<double>(chart_.bars.size());
    const double middle = left_ + kLeft + room * (static_cast<double>(i) + 0.5);
    out_ << "<rect x='" << middle - room / 4 << "' y='" << y_of(b.value) << "' width='" << room / 2
         << "' height='" << y_of(0) - y_of(b.value) << "' fill='" << color_of(i) << "'/>\n";
    error_bar(middle, b.value, b.deviation);
    text(middle, kHeight - kBottom + 18, b.name);
  }

  void curve(size_t i) {
    const Curve& c = chart_.curves[i];
    out_ << "<polyline fill='none' stroke='" << color_of(i) << "' points='";
    for (const PlotPoint& p : c.points) out_ << x_of(p.x) << ',' << y_of(p.y) << ' ';
    out_ << "'/>\n";
    for (const PlotPoint& p : c.points) error_bar(x_of(p.x), p.y, p.deviation);
    const double y = kTop + 14 + 18 * static_cast<double>(i), x = left_ + kWidth - kRight;
    text(x, y, c.name, "end", concat(" fill='", color_of(i), "'"));
  }

  static const char* color_of(size_t i) { return kColors[i % std::size(kColors)]; }

  std::ostream& out_;
  const Chart& chart_;
  const double left_;
  double max_x_ = 0, max_y_ = 0;
};

}  // namespace

std::string to_svg(const std::vector<Chart>& charts) {
  std::ostringstream out;
  const double width = kWidth * static_cast<double>(charts.size());
  out << "<?xml version='1.0' encoding='UTF-8'?>\n<svg xmlns='http://www.w3.org/2000/svg' width='" << width
      << "' height='" << kHeight << "' font-family='sans-serif' font-size='12'>\n"
      << "<rect width='100%' height='100%' fill='white'/>\n";
  for (size_t i = 0; i < charts.size(); ++i) Drawing(out, charts[i], kWidth * static_cast<double>(i)).draw();
  out << "</svg>\n";
  return out.str();
}

}  // namespace gradus::examples
