// Bar charts and line charts with error bars as SVG text, for browsers.
#pragma once

#include <string>
#include <vector>

namespace gradus::examples {

struct Labels {
  std::string title, x, y;
};

// A measured mean with its standard deviation.
struct Bar {
  std::string name;
  double value = 0, deviation = 0;
};

struct PlotPoint {
  double x = 0, y = 0, deviation = 0;
};
// Points joined by a line; those with a deviation get an error bar.
struct Curve {
  std::string name;
  std::vector<PlotPoint> points;
};

// A chart of bars or of curves. Its vertical axis begins at 0.
// Errors: ValueError for no bars or points, or for numbers that are negative or not finite.
struct Chart {
  Labels labels;
  std::vector<Bar> bars = {};
  std::vector<Curve> curves = {};
};

// Returns the content of an SVG file with the charts side by side.
std::string to_svg(const std::vector<Chart>& charts);

}  // namespace gradus::examples
