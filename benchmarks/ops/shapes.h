// The shapes of the convolutions and matrix products that are timed in Gradus, LibTorch and oneDNN alike.
#pragma once

namespace gradus::bench {

// x [N, C, HW, HW], weight [O, C / groups, kernel, kernel]. Names: "NxCxHW, O KxK", s2 for a stride of 2.
struct ConvShape {
  const char* name;
  long N, C, HW, O, kernel, stride, padding, groups, dilation = 1;
  long out() const { return (HW + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; }
  double flops() const { return 2.0 * N * O * out() * out() * (C / groups) * kernel * kernel; }
};

inline constexpr ConvShape kConvShapes[] = {
    {"64x32x26, 64 3x3", 64, 32, 26, 64, 3, 1, 1, 1},
    {"16x3x224, 64 7x7 s2", 16, 3, 224, 64, 7, 2, 3, 1},
    {"16x64x56, 64 3x3", 16, 64, 56, 64, 3, 1, 1, 1},
    {"16x64x56, 256 1x1", 16, 64, 56, 256, 1, 1, 0, 1},
    {"16x256x56, 64 1x1", 16, 256, 56, 64, 1, 1, 0, 1},
    {"16x128x56, 128 3x3 s2", 16, 128, 56, 128, 3, 2, 1, 1},
    {"16x256x56, 512 1x1 s2", 16, 256, 56, 512, 1, 2, 0, 1},
    {"16x256x14, 256 3x3", 16, 256, 14, 256, 3, 1, 1, 1},
    {"16x512x7, 512 3x3", 16, 512, 7, 512, 3, 1, 1, 1},
    {"128x16x32, 16 3x3", 128, 16, 32, 16, 3, 1, 1, 1},
    {"16x128x28, 128 3x3 depthwise", 16, 128, 28, 128, 3, 1, 1, 128},
    {"16x128x28, 128 3x3 in 32 groups", 16, 128, 28, 128, 3, 1, 1, 32},
    {"16x64x28, 64 3x3 dilated", 16, 64, 28, 64, 3, 1, 2, 1, 2},
};

// Transposed convolutions from C to O channels. out() and flops() do not apply to them.
inline constexpr ConvShape kTransposedShapes[] = {
    {"16x256x8, 128 4x4 s2", 16, 256, 8, 128, 4, 2, 1, 1},
    {"16x64x32, 3 4x4 s2", 16, 64, 32, 3, 4, 2, 1, 1},
};

// `batch` products of [m, k] and [k, n].
struct GemmShape {
  const char* name;
  long batch, m, k, n;
  double flops() const { return 2.0 * batch * m * k * n; }
};

inline constexpr GemmShape kGemmShapes[] = {
    {"1024x1024x1024", 1, 1024, 1024, 1024}, {"64x9216x128", 1, 64, 9216, 128},
    {"128x1000x2048", 1, 128, 1000, 2048},   {"4096x256x64", 1, 4096, 256, 64},
    {"32 of 128x64x128", 32, 128, 64, 128},  {"2048x2048x1", 1, 2048, 2048, 1},
    {"1x2048x2048", 1, 1, 2048, 2048},       {"65536x16x16", 1, 65536, 16, 16},
    {"16x65536x16", 1, 16, 65536, 16},       {"8x8x8", 1, 8, 8, 8},
};

}  // namespace gradus::bench
