// Resampling of 8-bit images, bit for bit as in Pillow 13: a horizontal and a vertical pass with fixed-point
// weights, each rounded to 8 bits. Picture::resized runs the vertical pass first if the height shrinks by
// more than twice as many pixels as the width.
#pragma once

#include <cstdint>
#include <vector>

namespace gradus::data {

// The filter of a resize. All except kNearest scale their support when downsampling (antialiasing).
enum class Interpolation { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos };

namespace internal {

// The weights of one axis: y[i] = sum_k weights[i * taps + k] * x[first + start[i] + k], for k < count[i].
struct AxisWeights {
  int64_t first = 0, last = 0;   // range [first, last) of the inputs that are read
  int taps = 0;                  // number of weights per result, including zeros at the end
  std::vector<int32_t> start;    // per result, relative to `first`
  std::vector<int32_t> count;    // per result, number of weights without zeros at the end
  std::vector<int32_t> weights;  // in fixed point with 22 fractional bits
};

// Returns the weights of results [begin, end) of a resize of inputs [low, high), out of `in_size`, to `out_size`
// results. Not for kNearest. Requires 0 <= low < high <= in_size and 0 <= begin < end <= out_size.
AxisWeights axis_weights(int64_t in_size, double low, double high, int64_t out_size, Interpolation filter,
                         int64_t begin, int64_t end);

// Returns the index of the input that each of the results [begin, end) copies, for kNearest.
std::vector<int32_t> nearest_inputs(int64_t in_size, int64_t out_size, int64_t begin, int64_t end);

// Pixels with interleaved channels, rows without gaps.
struct Pixels {
  const uint8_t* data;
  int64_t height, width, channels;
};

// Resamples rows: in [H,W,C], C 1 or 3 -> out [H,x.start.size(),C]. `in` is columns [x.first, x.last); `out`
// must not overlap it.
void resample_rows(Pixels in, const AxisWeights& x, uint8_t* out);
// Resamples columns: in [H,W,C] -> out [y.start.size(),W,C]. `in` is rows [y.first, y.last); no overlap
// either.
void resample_columns(Pixels in, const AxisWeights& y, uint8_t* out);

}  // namespace internal
}  // namespace gradus::data
