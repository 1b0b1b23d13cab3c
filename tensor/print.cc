// Printing: values abridged the way PyTorch does, so that a large tensor is still readable.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "gradus/tensor/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus {
namespace {

constexpr int64_t kAbridgeAbove = 1000;
constexpr int64_t kEdge = 3;

// How numbers of one tensor are written: all alike, so that columns line up.
struct NumberFormat {
  bool integral = false, scientific = false, whole = false;
  int width = 0;

  std::string operator()(double v) const {
    char text[40];
    if (integral || (whole && std::isfinite(v))) std::snprintf(text, sizeof text, whole ? "%.0f." : "%.0f", v);
    else if (std::isnan(v)) std::snprintf(text, sizeof text, "nan");
    else if (std::isinf(v)) std::snprintf(text, sizeof text, v > 0 ? "inf" : "-inf");
    else std::snprintf(text, sizeof text, scientific ? "%.4e" : "%.4f", v);
    return std::string(std::max<int>(0, width - static_cast<int>(std::string_view(text).size())), ' ') + text;
  }
};

class Printer {
 public:
  explicit Printer(const Tensor& x) : x_(x), abridge_(x.numel() > kAbridgeAbove) {
    std::vector<double> shown;
    visit(0, 0, [&](double v) { shown.push_back(v); });
    format_.integral = is_integral(x.dtype());
    double largest = 0, smallest = HUGE_VAL;
    format_.whole = !format_.integral && !shown.empty();
    for (double v : shown) {
      if (!std::isfinite(v)) continue;
      if (v != std::trunc(v)) format_.whole = false;
      largest = std::max(largest, std::abs(v));
      if (v != 0) smallest = std::min(smallest, std::abs(v));
    }
    if (!format_.integral && largest > 0 && (largest > 1e8 || largest / smallest > 1e3 || smallest < 1e-4))
      format_.scientific = !format_.whole || largest > 1e8;
    if (format_.scientific) format_.whole = false;
    int width = 0;
    for (double v : shown) width = std::max(width, static_cast<int>(format_(v).size()));
    format_.width = width;
  }

  std::string text() const { return block(0, 0, 0); }

 private:
  template <class F>
  void visit(int d, int64_t offset, F&& f) const {
    if (d == x_.dim()) return f(value(offset));
    const int64_t n = x_.shape()[d];
    for (int64_t i = 0; i < n; ++i) {
      if (abridge_ && n > 2 * kEdge && i == kEdge) i = n - kEdge;
      visit(d + 1, offset + i * x_.strides()[d], f);
    }
  }

  double value(int64_t offset) const {
    return dispatch_all(x_.dtype(), [&]<class T>() { return static_cast<double>(x_.ptr<T>()[offset]); });
  }

  std::string block(int d, int64_t offset, int indent) const {
    if (d == x_.dim()) return format_(value(offset));
    const bool last = d == x_.dim() - 1;
    const std::string gap = last ? ", " : "," + std::string(x_.dim() - d - 1, '\n') + std::string(indent + 1, ' ');
    const int64_t n = x_.shape()[d];
    std::string out = "[";
    for (int64_t i = 0; i < n; ++i) {
      if (abridge_ && n > 2 * kEdge && i == kEdge) {
        out += gap + "...";
        i = n - kEdge;
      }
      if (i > 0) out += gap;
      out += block(d + 1, offset + i * x_.strides()[d], indent + 1);
    }
    return out + "]";
  }

  const Tensor& x_;
  bool abridge_;
  NumberFormat format_;
};

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "undefined";
  if (x.device().type != DeviceType::kCPU) return describe(x);
  synchronize(x.device());
  return Printer(x).text() + "\n" + describe(x);
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace gradus
