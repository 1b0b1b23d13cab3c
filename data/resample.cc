#include "gradus/data/resample.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradus::data::internal {
namespace {

constexpr int kPrecisionBits = 22;  // two bits of room: weights may be negative, and exceed 1

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double hamming(double x) {
  x = std::abs(x);
  if (x == 0) return 1;
  if (x >= 1) return 0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}

double filter_value(Interpolation filter, double x) {
  switch (filter) {
    case Interpolation::kBox:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Interpolation::kHamming:
      return hamming(x);
    case Interpolation::kBicubic:
      return bicubic(x);
    case Interpolation::kLanczos:
      return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    default:
      return std::max(0., 1 - std::abs(x));
  }
}

double filter_support(Interpolation filter) {
  switch (filter) {
    case Interpolation::kBox:
      return 0.5;
    case Interpolation::kBicubic:
      return 2;
    case Interpolation::kLanczos:
      return 3;
    default:
      return 1;
  }
}

uint8_t round_to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255)); }

}  // namespace

AxisWeights axis_weights(int64_t in_size, double low, double high, int64_t out_size, Interpolation filter,
                         int64_t begin, int64_t end) {
  const double scale = (high - low) / static_cast<double>(out_size), filter_scale = std::max(scale, 1.);
  const double support = filter_support(filter) * filter_scale, inverse = 1. / filter_scale;
  AxisWeights axis;
  axis.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  const size_t n = static_cast<size_t>(end - begin), taps = static_cast<size_t>(axis.taps);
  axis.start.resize(n);
  axis.count.resize(n);
  axis.weights.resize(n * taps);
  axis.first = in_size;
  std::vector<double> values(taps);
  for (size_t i = 0; i < n; ++i) {
    const double center = low + (static_cast<double>(begin + static_cast<int64_t>(i)) + 0.5) * scale;
    const int64_t from = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t to = std::min(static_cast<int64_t>(center + support + 0.5), in_size);
    double sum = 0;
    for (int64_t k = from; k < to; ++k) {
      const double x = (static_cast<double>(k) - center + 0.5) * inverse;
      sum += values[static_cast<size_t>(k - from)] = filter_value(filter, x);
    }
    for (int64_t k = 0; k < to - from; ++k) {
      double value = values[static_cast<size_t>(k)];
      if (sum != 0) value /= sum;
      value *= 1 << kPrecisionBits;
      axis.weights[i * taps + static_cast<size_t>(k)] =
          static_cast<int32_t>(value + (value < 0 ? -0.5 : 0.5));
    }
    axis.start[i] = static_cast<int32_t>(from);
    axis.count[i] = static_cast<int32_t>(to - from);
    axis.first = std::min(axis.first, from);
    axis.last = std::max(axis.last, to);
  }
  for (int32_t& start : axis.start) start -= static_cast<int32_t>(axis.first);
  return axis;
}

std::vector<int32_t> nearest_inputs(int64_t in_size, double low, double high, int64_t out_size, int64_t begin,
                                    int64_t end) {
  const double scale = (high - low) / static_cast<double>(out_size);
  std::vector<int32_t> inputs;
  double at = low + scale * 0.5;
  // Adds up, because Pillow does: rounding belongs to the result.
  for (int64_t i = 0; i < end; ++i, at += scale) {
    if (i < begin) continue;
    inputs.push_back(static_cast<int32_t>(std::clamp<int64_t>(static_cast<int64_t>(at), 0, in_size - 1)));
  }
  return inputs;
}

namespace {

template <int kChannels>
void resample_row(const uint8_t* in, const AxisWeights& x, uint8_t* out) {
  const int32_t* weights = x.weights.data();
  for (size_t i = 0; i < x.start.size(); ++i, weights += x.taps, out += kChannels) {
    const uint8_t* from = in + x.start[i] * kChannels;
    int32_t sum[kChannels];
    for (int c = 0; c < kChannels; ++c) sum[c] = 1 << (kPrecisionBits - 1);
    for (int32_t k = 0; k < x.count[i]; ++k, from += kChannels) {
      for (int c = 0; c < kChannels; ++c) sum[c] += from[c] * weights[k];
    }
    for (int c = 0; c < kChannels; ++c) out[c] = round_to_byte(sum[c]);
  }
}

}  // namespace

void resample_rows(Pixels in, const AxisWeights& x, uint8_t* out) {
  const int64_t out_row = static_cast<int64_t>(x.start.size()) * in.channels;
  for (int64_t y = 0; y < in.height; ++y, out += out_row) {
    const uint8_t* row = in.data + y * in.width * in.channels;
    in.channels == 3 ? resample_row<3>(row, x, out) : resample_row<1>(row, x, out);
  }
}

void resample_columns(Pixels in, const AxisWeights& y, uint8_t* out) {
  const int64_t row = in.width * in.channels;
  const int32_t* weights = y.weights.data();
  std::vector<int32_t> sums(static_cast<size_t>(row));
  for (size_t i = 0; i < y.start.size(); ++i, weights += y.taps, out += row) {
    std::fill(sums.begin(), sums.end(), 1 << (kPrecisionBits - 1));
    int32_t* sum = sums.data();
    for (int32_t k = 0; k < y.count[i]; ++k) {
      const uint8_t* from = in.data + (y.start[i] + k) * row;
      const int32_t weight = weights[k];
      for (int64_t j = 0; j < row; ++j) sum[j] += from[j] * weight;
    }
    for (int64_t j = 0; j < row; ++j) out[j] = round_to_byte(sum[j]);
  }
}

}  // namespace gradus::data::internal
