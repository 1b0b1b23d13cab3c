// to_string and operator<< of tensors, in PyTorch's format: nested brackets, aligned columns, one number
// format per tensor, dims of tensors of more than 1000 elements abridged to 3 elements at either end; then
// dtype, shape and device on a last line. Tensors of other devices are copied to the host, which waits for
// them; meta tensors have only the last line. Bools, integers and floats of any strides.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "gradus/tensor/host_copy.h"
#include "gradus/tensor/tensor.h"

namespace gradus {
namespace {

constexpr int64_t kMaxPrinted = 1000;  // maximum number of elements that are printed completely
constexpr int64_t kEdge = 3;           // elements printed at either end of an abridged dim
constexpr int kLineWidth = 80;

// The number format, the same for all elements of a tensor: 3, true, 3., 3.1416 or 3.1416e+00.
enum class Style { kInteger, kTruth, kWhole, kFixed, kScientific };

// Returns the text of a float, in Style kWhole, kFixed or kScientific.
std::string format_number(double v, Style style) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char text[40];
  std::snprintf(text, sizeof text,
                style == Style::kWhole   ? "%.0f."
                : style == Style::kFixed ? "%.4f"
                                         : "%.4e",
                v);
  return text;
}

// Formats one tensor in host memory. Passes over its printed elements: the style, the column width, the text.
class Printer {
 public:
  explicit Printer(const Tensor& x) : x_(x), abridge_(x.numel() > kMaxPrinted), style_(choose_style()) {
    visit(0, 0, [&](int64_t at) { width_ = std::max(width_, element(at).size()); });
  }

  std::string text() const { return x_.numel() == 0 ? "[]" : block(0, 0); }

 private:
  // Calls f with the offset of each printed element of dims [d, dim()).
  template <class F> void visit(int d, int64_t offset, F&& f) const {
    if (x_.numel() == 0) return;
    if (d == x_.dim()) return f(offset);
    for (int64_t i = 0; i < x_.shape()[d]; ++i) {
      if (starts_gap(d, i)) i = x_.shape()[d] - kEdge;
      visit(d + 1, offset + i * x_.strides()[d], f);
    }
  }
  // Returns whether element i of dim d is the first of those that are replaced by "...".
  bool starts_gap(int d, int64_t i) const { return abridge_ && x_.shape()[d] > 2 * kEdge && i == kEdge; }

  // Whole numbers print as 3., others with four decimals, or in scientific notation if the range is too large
  // for four decimals.
  Style choose_style() const {
    if (x_.dtype() == DType::kBool) return Style::kTruth;
    if (is_integral(x_.dtype())) return Style::kInteger;
    bool whole = true;
    double largest = 0, smallest = HUGE_VAL;
    visit(0, 0, [&](int64_t at) {
      const double v = std::abs(value(at));
      if (!std::isfinite(v)) return;
      whole = whole && v == std::trunc(v);
      largest = std::max(largest, v);
      if (v != 0) smallest = std::min(smallest, v);
    });
    if (largest > 1e8) return Style::kScientific;
    if (whole) return Style::kWhole;
    return largest / smallest > 1e3 || smallest < 1e-4 ? Style::kScientific : Style::kFixed;
  }

  double value(int64_t offset) const {
    return dispatch_all(x_.dtype(), [&]<class T>() { return static_cast<double>(x_.ptr<T>()[offset]); });
  }

  std::string element(int64_t offset) const {
    if (style_ == Style::kTruth) return x_.ptr<bool>()[offset] ? "true" : "false";
    if (style_ == Style::kInteger)
      return dispatch_all(
          x_.dtype(), [&]<class T>() { return std::to_string(static_cast<int64_t>(x_.ptr<T>()[offset])); });
    return format_number(value(offset), style_);
  }

  // Returns the text of the slice at `offset` that spans dims [d, dim()). Elements of the last dim fill lines
  // of kLineWidth; outer dims are separated by newlines.
  std::string block(int d, int64_t offset) const {
    if (d == x_.dim()) {
      const std::string number = element(offset);
      return std::string(width_ - number.size(), ' ') + number;
    }
    const int inner_dims = x_.dim() - d - 1;
    const std::string margin(d + 1, ' ');
    const std::string next_line = ',' + std::string(std::max(inner_dims, 1), '\n') + margin;
    int per_line = 1;
    if (inner_dims == 0)
      per_line =
          starts_gap(d, kEdge) ? 2 * kEdge + 1 : std::max(1, (kLineWidth - d) / static_cast<int>(width_ + 2));
    std::string out = "[";
    int shown = 0;
    auto put = [&](const std::string& part) {
      if (shown > 0) out += shown % per_line == 0 ? next_line : ", ";
      out += part;
      ++shown;
    };
    for (int64_t i = 0; i < x_.shape()[d]; ++i) {
      if (starts_gap(d, i)) {
        put("...");
        i = x_.shape()[d] - kEdge;
      }
      put(block(d + 1, offset + i * x_.strides()[d]));
    }
    return out + "]";
  }
  const Tensor& x_;
  const bool abridge_;
  const Style style_;
  size_t width_ = 0;  // characters of the longest element
};

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "undefined";
  if (x.device().type == DeviceType::kMeta) return describe(x);
  const Tensor host = internal::in_host_memory(x, "to_string");
  return Printer(host).text() + "\n" + describe(x);
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace gradus
