// Separable resampling of 8-bit images, bit for bit as in Pillow (Resample.c): filter weights per output
// position, normalized to sum 1 and rounded to 22-bit fixed point; one pass over rows and one over columns,
// with 32-bit sums rounded to 8 bits after each pass. RGB rows have an AVX2 path with the same results.
// Callers check arguments: sizes >= 1, nonempty ranges inside them, 1 or 3 channels.
#include "gradus/data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace gradus::data::internal {
namespace {

constexpr int kPrecisionBits = 22;  // fixed point; leaves two bits of headroom for weights outside [0, 1]

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

// The filter's radius in input pixels at scale 1, by Interpolation. kNearest has no filter.
constexpr double kSupport[] = {0, 0.5, 1, 1, 2, 3};

uint8_t round_to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255)); }

}  // namespace

// `low` and `high` are positions in input pixels, in [0, in_size]. When downsampling, the filter is widened
// by the scale (antialiasing).
AxisWeights axis_weights(int64_t in_size, double low, double high, int64_t out_size, Interpolation filter,
                         int64_t begin, int64_t end) {
  const double scale = (high - low) / static_cast<double>(out_size), filter_scale = std::max(scale, 1.);
  const double support = kSupport[int(filter)] * filter_scale, inverse = 1. / filter_scale;
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

std::vector<int32_t> nearest_inputs(int64_t in_size, int64_t out_size, int64_t begin, int64_t end) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  std::vector<int32_t> inputs;
  double at = scale * 0.5;
  // Accumulates the position like Pillow, since its rounding affects the result.
  for (int64_t i = 0; i < end; ++i, at += scale) {
    if (i < begin) continue;
    inputs.push_back(static_cast<int32_t>(std::clamp<int64_t>(static_cast<int64_t>(at), 0, in_size - 1)));
  }
  return inputs;
}

namespace {

// out[i, c] = round(sum_k weights[i, k] * in[start[i] + k, c]), for k < count[i].
template <int kChannels> void resample_row(const uint8_t* in, const AxisWeights& x, uint8_t* out) {
  const int32_t* weights = x.weights.data();
  for (size_t i = 0; i < x.start.size(); ++i, weights += x.taps, out += kChannels) {
    const uint8_t* from = in + x.start[i] * kChannels;
    int32_t sum[kChannels];
    for (int c = 0; c < kChannels; ++c) sum[c] = 1 << (kPrecisionBits - 1);
    for (int32_t k = 0; k < x.count[i]; ++k, from += kChannels)
      for (int c = 0; c < kChannels; ++c) sum[c] += from[c] * weights[k];
    for (int c = 0; c < kChannels; ++c) out[c] = round_to_byte(sum[c]);
  }
}

#ifdef __AVX2__

// Note [RGB rows with AVX2]
// Processes four RGB inputs at a time with _mm256_madd_epi16, which multiplies 16-bit numbers and adds
// adjacent products. A byte shuffle puts the pairs (r0,r1) (g0,g1) (b0,b1) into one half of a register, and
// the same pairs of inputs 2 and 3 into the other half. A weight w has 24 bits, which exceed 16, so w = 2^11
// high + low. The sum modulo 2^32 is the same as with undivided weights.
constexpr int kLowBits = 11, kGroup = 4;

// The weights of each result, in groups of four inputs: low 0 and 1, low 2 and 3, high 0 and 1, high 2 and 3.
struct SplitWeights {
  int groups = 0;  // number of groups per result
  std::vector<int16_t> parts;
  int64_t reach = 0;  // number of bytes from a row's start that the loads may read

  explicit SplitWeights(const AxisWeights& x) {
    const int most = *std::max_element(x.count.begin(), x.count.end());
    groups = std::max(1, (most + kGroup - 1) / kGroup);
    parts.resize(x.start.size() * static_cast<size_t>(groups) * 2 * kGroup);
    for (size_t i = 0; i < x.start.size(); ++i) {
      int16_t* to = parts.data() + i * static_cast<size_t>(groups) * 2 * kGroup;
      for (int k = 0; k < x.count[i]; ++k) {
        const int32_t w = x.weights[i * static_cast<size_t>(x.taps) + static_cast<size_t>(k)];
        int16_t* group = to + k / kGroup * 2 * kGroup + k % kGroup;
        group[0] = static_cast<int16_t>(w & ((1 << kLowBits) - 1));
        group[kGroup] = static_cast<int16_t>(w >> kLowBits);
      }
      reach = std::max<int64_t>(reach, 3 * x.start[i] + (groups - 1) * 3 * kGroup + 16);
    }
  }
};

// The same formula for three channels. Reads up to weights.reach bytes from `in`, and writes one byte beyond
// the end of the row, so the caller pads the input and resamples rows from top to bottom.
void resample_rgb_row(const uint8_t* in, const AxisWeights& x, const SplitWeights& weights, uint8_t* out) {
  const __m256i pairs = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                         6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i of_low = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  const __m256i of_high = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
  const __m128i half = _mm_set1_epi32(1 << (kPrecisionBits - 1));
  const auto load = [](const void* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  };
  const int16_t* w = weights.parts.data();
  for (int32_t start : x.start) {
    const uint8_t* from = in + 3 * start;
    __m256i low = _mm256_setzero_si256(), high = low;
    for (int g = 0; g < weights.groups; ++g, from += 3 * kGroup, w += 2 * kGroup) {
      const __m256i inputs = _mm256_shuffle_epi8(load(from), pairs), parts = load(w);
      low = _mm256_add_epi32(low, _mm256_madd_epi16(inputs, _mm256_permutevar8x32_epi32(parts, of_low)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(inputs, _mm256_permutevar8x32_epi32(parts, of_high)));
    }
    const __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits));
    const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    const __m128i words = _mm_srai_epi32(_mm_add_epi32(both, half), kPrecisionBits);
    const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(words, words), words);
    const int32_t pixel = _mm_cvtsi128_si32(bytes);
    std::memcpy(out, &pixel, sizeof pixel);
    out += 3;
  }
}

void resample_rgb_rows(Pixels in, const AxisWeights& x, uint8_t* out) {
  const SplitWeights weights(x);
  const int64_t in_row = 3 * in.width, out_row = 3 * static_cast<int64_t>(x.start.size());
  std::vector<uint8_t> padded(static_cast<size_t>(std::max(in_row, weights.reach)));
  std::vector<uint8_t> last(static_cast<size_t>(out_row) + 1);
  for (int64_t y = 0; y < in.height; ++y) {
    const uint8_t* from = in.data + y * in_row;
    if (weights.reach > (in.height - y) * in_row) {  // loads would read beyond the image
      std::memcpy(padded.data(), from, static_cast<size_t>(in_row));
      from = padded.data();
    }
    uint8_t* to = out + y * out_row;
    resample_rgb_row(from, x, weights, y + 1 < in.height ? to : last.data());
  }
  std::memcpy(out + (in.height - 1) * out_row, last.data(), static_cast<size_t>(out_row));
}

#endif

}  // namespace

void resample_rows(Pixels in, const AxisWeights& x, uint8_t* out) {
#ifdef __AVX2__
  if (in.channels == 3) return resample_rgb_rows(in, x, out);
#endif
  const int64_t out_row = static_cast<int64_t>(x.start.size()) * in.channels;
  for (int64_t y = 0; y < in.height; ++y, out += out_row) {
    const uint8_t* row = in.data + y * in.width * in.channels;
    in.channels == 3 ? resample_row<3>(row, x, out) : resample_row<1>(row, x, out);
  }
}

// out[i, j] = round(sum_k weights[i, k] * in[start[i] + k, j]), j over width * channels.
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
