// The table of oneDNN implementations and the convolutions for which they return wrong results, access memory
// out of bounds or crash, found by fuzzing; has_defect() makes conv_plan() skip them. A predicate is named
// after the convolutions for which it is true. Also the rules for matrix products.
#include "gradus/tensor/cpu/onednn/problems.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gradus::onednn {
namespace {

// One pass of a convolution: x [N, C, ...] and w [O, C / groups, ...], with 1 to 3 spatial dims from dim 2 on.
struct Problem {
  Pass pass;
  const Shape &x, &w;
  const raw::ConvGeometry& g;
  // The innermost spatial dim, along which rows extend.
  int last() const { return g.rank() - 1; }
};

constexpr unsigned bit(Pass p) { return 1u << unsigned(p); }
constexpr unsigned kForward = bit(Pass::kForward), kWeightGrad = bit(Pass::kWeightGrad),
                   kOfImages = kForward | bit(Pass::kInputGrad), kEvery = kOfImages | kWeightGrad;

bool always(const Problem&) { return true; }
bool volumes(const Problem& p) { return p.g.rank() == 3; }
bool with_a_stride(const Problem& p) { return p.g.stride.product() > 1; }
bool of_padding_of_at_least_the_stride(const Problem& p) {
  return p.g.rank() == 3 && p.g.stride[0] > 1 && p.g.padding[0] >= p.g.stride[0];
}
// Some pixels lie between the windows of the filter and are never read.
bool of_a_stride_beyond_the_filter(const Problem& p) {
  for (int d = 0; d < p.g.rank(); ++d)
    if (p.g.stride[d] > p.w[d + 2]) return true;
  return false;
}
// The number of channels that a forward pass or an input gradient sums over.
int64_t summed_channels(const Problem& p) { return p.pass == Pass::kForward ? p.w[1] : p.w[0] / p.g.groups; }
// The last pair of channels reaches into the next pixel.
bool of_odd_channels(const Problem& p) { return summed_channels(p) % 2 == 1; }
bool of_thousands_of_channels(const Problem& p) { return std::max(p.w[1], p.w[0] / p.g.groups) > 2048; }
// Beyond 1,024 channels the sum takes several iterations, the last of which loads weights of a whole block.
bool of_several_iterations(const Problem& p) {
  const int64_t channels = summed_channels(p);
  return channels > 2048 || (channels > 1024 && channels % 16 != 0);
}
// The channels of a row of taps fill whole vectors of 32, and the kernel sums over the row at once.
bool of_joined_taps(const Problem& p) {
  const int64_t taps = p.w[p.last() + 2], channels = summed_channels(p);
  return taps >= 4 && channels < 48 && taps * channels % 32 == 0;
}
// The taps of one channel are processed in pairs. The last pair of a row reads beyond the copied row.
bool of_one_channel_odd_taps_and_a_stride(const Problem& p) {
  return summed_channels(p) == 1 && p.w[p.last() + 2] % 2 == 1 && p.g.stride[p.last()] > 1;
}
// Rows of one channel are copied separately for each phase of the stride. The copy begins with the padding,
// in front of the image.
bool of_one_channel_padding_and_a_stride(const Problem& p) {
  return p.w[1] == 1 && p.g.padding[p.last()] > 0 && p.g.stride[p.last()] > 1;
}
// The kernel loads whole tiles of input rows, beyond the last row.
bool of_long_rows(const Problem& p) {
  const bool pointwise = p.w.product() == p.w[0] * p.w[1];
  return !pointwise && summed_channels(p) * p.g.stride[p.last()] > 256;
}
// Sums that take several iterations: later iterations load a whole block of channels, even at the last pixel.
bool of_many_filters_and_a_part_of_a_block(const Problem& p) {
  return summed_channels(p) > 256 && p.w[1] % 16 != 0;
}
bool of_narrow_or_dilated_images_and_volumes(const Problem& p) {
  return p.x[p.last() + 2] < p.g.stride[p.last()] || p.g.dilation[0] > 1 || p.g.rank() == 3;
}
bool of_few_channels(const Problem& p) { return std::min(p.w[0] / p.g.groups, p.w[1]) < 16; }
bool of_wide_images(const Problem& p) { return p.x[p.last() + 2] > 56; }
// Rows of more than 7 tiles of 32 pixels.
bool of_very_wide_images(const Problem& p) { return p.x[p.last() + 2] > 224; }
// The output size along spatial dim d.
int64_t output_size(const Problem& p, int d) {
  return (p.x[d + 2] + 2 * p.g.padding[d] - p.g.dilation[d] * (p.w[d + 2] - 1) - 1) / p.g.stride[d] + 1;
}
// Output rows of one pixel, for which the kernel uses the stride of longer rows.
bool of_narrow_results_and_a_stride(const Problem& p) {
  return output_size(p, p.last()) == 1 && p.g.stride[p.last()] > 1;
}
bool of_dilated_filters(const Problem& p) { return p.g.dilation.product() > 1; }
bool of_large_filters(const Problem& p) {
  for (int d = 0; d < p.g.rank(); ++d)
    if (p.w[d + 2] > 7) return true;
  return false;
}
bool of_large_filters_and_a_stride(const Problem& p) { return of_large_filters(p) && with_a_stride(p); }
// The last row may end before its padding does.
bool of_a_stride_beyond_the_padding(const Problem& p) {
  const int64_t padding = p.g.padding[p.last()];
  return padding > 0 && p.g.stride[p.last()] > 2 * padding;
}
// The last block of a row may have fewer pixels in the image than in the padding.
bool of_wide_padding(const Problem& p) { return p.g.padding[p.last()] > 3; }
bool of_outputs_that_read_only_padding(const Problem& p) {
  for (int d = 0; d < p.g.rank(); ++d)
    if (p.g.padding[d] > (p.w[d + 2] - 1) * p.g.dilation[d]) return true;
  return false;
}
// The gradient of taps that read only padding is zero, but the kernel does not write it.
bool of_taps_that_read_only_padding(const Problem& p) {
  const auto reads_image = [&](int d, int64_t tap) {
    for (int64_t i = 0; i < output_size(p, d); ++i) {
      const int64_t at = i * p.g.stride[d] - p.g.padding[d] + tap * p.g.dilation[d];
      if (at >= 0 && at < p.x[d + 2]) return true;
    }
    return false;
  };
  for (int d = 0; d < p.g.rank(); ++d)
    for (int64_t tap = 0; tap < p.w[d + 2]; ++tap)
      if (!reads_image(d, tap)) return true;
  return false;
}

// The conditions cover more than the observed failures: a slower kernel costs less than a wrong one.
const struct {
  std::string_view
      implementation;  // substring of its name; * matches anything, a final $ the end of the name
  unsigned passes;
  bool (*shapes)(const Problem&);
} kDefects[] = {
    {"amx", kEvery, volumes},
    {"jit_1x1:avx512_core_amx", kEvery, always},
    {"brgconv*amx", kEvery, of_a_stride_beyond_the_filter},
    {"brgconv:", kForward, of_a_stride_beyond_the_filter},
    {"brgconv*amx", kOfImages, of_long_rows},
    {"brgconv*amx", kOfImages, of_dilated_filters},
    {"brgconv*amx", kOfImages, of_joined_taps},
    {"brgconv*bf16", kForward, of_one_channel_odd_taps_and_a_stride},
    {"brgconv*amx", kForward, of_one_channel_odd_taps_and_a_stride},
    {"brgconv", kEvery, of_large_filters},
    {"brdgmm", kEvery, of_large_filters},
    {"brgconv*bf16", kOfImages, volumes},
    {"brgconv", kOfImages, of_several_iterations},
    {"brgconv", kForward, of_narrow_results_and_a_stride},
    {"brgconv", kForward, of_a_stride_beyond_the_padding},
    {"brgconv", kForward, of_wide_padding},
    {"brgconv", kEvery, of_outputs_that_read_only_padding},
    {"brgconv", kEvery, of_taps_that_read_only_padding},
    {"amx", kEvery, of_taps_that_read_only_padding},
    {"brgconv_bwd_w*amx", kWeightGrad, of_few_channels},
    {"brgconv_bwd_w*amx", kWeightGrad, of_thousands_of_channels},
    {"brgconv_bwd_w*amx", kWeightGrad, of_wide_images},
    {"jit:avx512_core$", bit(Pass::kInputGrad), of_many_filters_and_a_part_of_a_block},
    {"jit:avx512_core$", bit(Pass::kInputGrad), of_large_filters_and_a_stride},
    {"jit_bf16_1x1:avx512_core$", kOfImages, always},
    {"jit_bf16_1x1:", kOfImages, of_odd_channels},
    {"1x1:", kWeightGrad, with_a_stride},
    {"jit:", kWeightGrad, of_padding_of_at_least_the_stride},
    {"jit_bf16:", kWeightGrad, of_narrow_or_dilated_images_and_volumes},
    {"jit_bf16:", kWeightGrad, of_one_channel_padding_and_a_stride},
    {"jit:avx512_core_amx", kWeightGrad, of_narrow_or_dilated_images_and_volumes},
    {"jit:avx512_core_amx", kWeightGrad, of_very_wide_images},
};

// Returns the name of the implementation in oneDNN 2, if oneDNN 3 renamed it.
std::string common_name(std::string_view implementation) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"brg_conv_fwd:", "brgconv:"},
                                                                      {"brg_conv_bwd:", "brgconv:"},
                                                                      {"brg_matmul:", "brg:"},
                                                                      {"avx10_1_512_amx", "avx512_core_amx"}};
  std::string name(implementation);
  for (const auto& [newer, older] : kNames)
    if (const size_t at = name.find(newer); at != std::string::npos) name.replace(at, newer.size(), older);
  return name;
}

// Returns whether the name matches the pattern (see kDefects).
bool matches(std::string_view implementation, std::string_view pattern) {
  if (pattern.ends_with('$')) return implementation.ends_with(pattern.substr(0, pattern.size() - 1));
  const size_t star = std::min(pattern.find('*'), pattern.size());
  const size_t at = implementation.find(pattern.substr(0, star));
  if (at == std::string_view::npos || star == pattern.size()) return at != std::string_view::npos;
  return implementation.find(pattern.substr(star + 1), at + star) != std::string_view::npos;
}

}  // namespace

bool has_defect(std::string_view implementation, Pass pass, const Shape& x, const Shape& w,
                const raw::ConvGeometry& g) {
  const Problem problem{pass, x, w, g};
  const std::string name = common_name(implementation);
  for (const auto& d : kDefects)
    if ((d.passes & bit(pass)) && matches(name, d.implementation) && d.shapes(problem)) return true;
  return false;
}

bool has_matmul_defect(std::string_view implementation, const MatrixLayout& a, const MatrixLayout& b,
                       int64_t batch, int threads) {
  const std::string name = common_name(implementation);
  const int64_t inner = a.sizes.back(), columns = b.sizes.back();
  if (matches(name, "amx") && inner % 32 != 0) return true;
  // A strided row vector is read as a contiguous one.
  if (matches(name, "brg:") && a.sizes[a.sizes.size() - 2] == 1 && inner > 1 && a.strides.back() != 1)
    return true;
  // With more threads than products, threads divide the inner dim of a product.
  const bool threads_divide_products = matches(name, "brg:") && batch > 1 && batch < threads;
  const bool transposed = a.strides[a.strides.size() - 2] < a.strides.back();
  return threads_divide_products &&
         ((transposed && inner >= 1024) || (matches(name, "amx") && columns % 64 > 48));
}

}  // namespace gradus::onednn
