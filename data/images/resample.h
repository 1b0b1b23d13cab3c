// Resampling of 8-bit images, bit by bit as Pillow 13 does it: a horizontal and a vertical pass with weights in
// fixed point, each rounded to 8 bits. The vertical pass comes first where the height shrinks by more pixels than
// twice those of the width.
#pragma once

#include <cstdint>
#include <vector>

namespace gradus::data {

// The filter of a resize. All except kNearest use all pixels under a pixel of the result ("antialias").
enum class Interpolation { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos };

namespace internal {

// The resampling of one axis: result i is the weighted sum of the inputs from start[i] on.
struct AxisWeights {
  int64_t first = 0, last = 0;  // inputs that are needed: first .. last - 1
  int taps = 0;                 // weights per result; those that are not needed are 0
  std::vector<int32_t> start;   // per result, counted from `first`
  std::vector<int32_t> count;   // per result: weights that are needed
  std::vector<int32_t> weights;
};

// Returns the weights of results [begin, end). The `out_size` results cover the part [low, high) of `in_size`
// inputs. Not for kNearest.
AxisWeights axis_weights(int64_t in_size, double low, double high, int64_t out_size, Interpolation filter,
                         int64_t begin, int64_t end);

// Returns the input that each of the results [begin, end) copies, for kNearest.
std::vector<int32_t> nearest_inputs(int64_t in_size, double low, double high, int64_t out_size, int64_t begin,
                                    int64_t end);

// Pixels with interleaved channels, rows without gaps.
struct Pixels {
  const uint8_t* data;
  int64_t height, width, channels;
};

// Resamples rows: in [H,W,C] -> out [H,x.start.size(),C]. `in` begins with column x.first.
void resample_rows(Pixels in, const AxisWeights& x, uint8_t* out);
// Resamples columns: in [H,W,C] -> out [y.start.size(),W,C]. `in` begins with row y.first.
void resample_columns(Pixels in, const AxisWeights& y, uint8_t* out);

}  // namespace internal
}  // namespace gradus::data
