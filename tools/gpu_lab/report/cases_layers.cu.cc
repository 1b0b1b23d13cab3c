// Cases of layers: images (pooling, unfold, filters, convolution, interpolation), attention, recurrent cells.
#include <algorithm>
#include <array>

#include "case_operands.h"
#include "gradus/tensor/cuda/kernels/attention.h"
#include "gradus/tensor/cuda/kernels/images/direct_conv.h"
#include "gradus/tensor/cuda/kernels/images/pool.h"
#include "gradus/tensor/cuda/kernels/images/resample.h"
#include "gradus/tensor/cuda/kernels/images/unfold.h"
#include "gradus/tensor/cuda/kernels/images/upfirdn.h"
#include "gradus/tensor/cuda/kernels/recurrent.h"

namespace report {
namespace {

using PoolAxis = gradus::PoolAxis<int32_t>;

// Pooling of an image of 64 channels, 1 MiB large, by square windows. Calls f(pooling, input, output, index).
template <class T, class F>
Case pooled(const char* what, int kernel, int stride, double bytes, double most, F&& f) {
  const PoolAxis one{1, 1, 1, 1, 0, 1, false};
  const auto side = [&](int in) {
    return PoolAxis{in, (in - kernel) / stride + 1, kernel, stride, 0, 1, false};
  };
  const Pooling p{1, 64, one, side(64), side(static_cast<int>(kBytes / sizeof(T) / 64 / 64)), true, 0};
  return {what, bytes, most, [=] {
            const Zeros x, y, index;
            f(p, View{x.data(), dtype_v<T>}, View{y.data(), dtype_v<T>}, View{index.data(), DType::kU8});
            synchronize();
          }};
}

// 64 channels of 64 x 64 pixels, 1 MiB large, cut into 2 x 2 pixels. Calls f(sizes, images, columns).
template <class F> Case unfolded(const char* what, F&& f) {
  const UnfoldAxis side{64, 32, 2, 2, 0, 1};
  const Unfolding s{64, side, side};
  return {what, 2 * kAll, kDense, [=] {
            const Zeros images, columns;
            f(s, as<float>(images), as<float>(columns));
            synchronize();
          }};
}
// The same image, channels last, and a filter of 4 x 4 taps. Calls f(sizes, x, y, filter).
template <class F> Case filtered(const char* what, F&& f) {
  const UpfirdnAxis side{64, 64, 4, 1, 1, 2};
  const Upfirdn s{1, 64, side, side, 0};
  return {what, 2 * kAll, kDense, [=] {
            const Zeros x, y, filter(16 * sizeof(float));
            f(s, as<float>(x), as<float>(y), as<float>(filter));
            synchronize();
          }};
}

// Depthwise convolution of an image of 64 channels, 1 MiB large, by 3 x 3 taps. Calls f(sizes, input, output,
// filters) for it.
template <class F> Case convolved_directly(const char* what, F&& f) {
  const ConvAxis one{1, 1, 1, 1, 0, 1}, side{64, 64, 3, 1, 1, 1};
  const DirectConv c{1, 64, 64, 64, one, side, side};
  return {what, 2 * kAll, kDense, [=] {
            const Zeros x, y, filters;
            const auto view = [](const Zeros& memory) { return View{memory.data(), DType::kF32}; };
            f(c, view(x), view(y), view(filters));
            synchronize();
          }};
}

// Bilinear interpolation of an image of `channels` channels to `side` x `side` pixels, twice as many along each axis.
Case interpolated(const char* what, int32_t side, int64_t channels) {
  const auto y_bytes = static_cast<double>(side * side * channels * int64_t{sizeof(float)});
  const double matrices = 2 * (8 * (side + 1) + 16 * 2 * side);
  return {what, y_bytes * (1 + 1. / 4) + matrices, kDense, [=] {
            std::vector<int64_t> first, pixels;
            for (int64_t i = 0; i <= side; ++i) first.push_back(2 * i);
            for (int64_t i = 0; i < side; ++i)
              for (const int64_t tap : {0, 1}) pixels.push_back(std::min<int64_t>(i / 2 + tap, side / 2 - 1));
            const Elements<int64_t> start(first), from(pixels);
            const Elements<double> weights(std::vector<double>(pixels.size(), .5));
            const ResampledAxis axis{side / 2, side, as<int64_t>(start), as<int64_t>(from),
                                     as<double>(weights)},
                one{1, 1, nullptr, nullptr, nullptr};
            const Zeros x, y;
            resample<float>("report", as<float>(y), as<float>(x), {1, channels, one, axis, axis}, nullptr);
            synchronize();
          }};
}

// Attention in 4 matrices of n queries and n keys, E = V = head. Stats are two numbers for each query. The first launch
// of the gradient reads q, k, v, y, dy and stats and writes dq and dy_y, the second reads q, k, v, dy, stats and dy_y
// and writes dk and dv.
template <class T>
Case attended(const char* what, bool backward, int64_t n, int64_t head, bool causal = false) {
  using C = compute_t<T>;
  constexpr int64_t kMatrices = 4;
  const double bytes = static_cast<double>(kMatrices * n * head) * sizeof(T) * (backward ? 12 : 4) +
                       static_cast<double>(kMatrices * n) * sizeof(C) * (backward ? 6 : 2);
  return {what, bytes, kDense, [=] {
            const Zeros q, k, v, dy, y, dq, dk, dv, stats, dy_y;
            const auto operand = [&](const Zeros& x) {
              return AttentionOperand{x.data(), head, 1, {n * head}};
            };
            Attention a{};
            a.L = a.S = n, a.E = a.V = head, a.causal = causal;
            a.matrices = kMatrices, a.dims = 1, a.batch[0] = kMatrices;
            a.q = operand(q), a.k = operand(k), a.v = operand(v), a.y = operand(y);
            a.dy = operand(dy), a.dq = operand(dq), a.dk = operand(dk), a.dv = operand(dv);
            if (backward)
              attention_backward<T>("report", as<C>(dy_y), {as<C>(stats)}, a, nullptr);
            else
              attention<T>("report", as<C>(stats), a, nullptr);
            synchronize();
          }};
}

// A step of a recurrent cell with states [N, H] of f32, of which all operands have `states` times the size. Calls
// f(operands, shape); an operand has up to four states.
template <class F> Case stepped_cell(const char* what, double states, int64_t H, double most, F&& f) {
  const StateShape s{kFloats / 4 / H, H};
  return {what, states * static_cast<double>(s.N * s.H) * sizeof(float), most, [=] {
            const std::array<Zeros, 7> memory;
            float* operands[7];
            for (size_t i = 0; i < 7; ++i) operands[i] = as<float>(memory[i]);
            f(operands, s);
            synchronize();
          }};
}

}  // namespace

std::vector<Case> layer_cases() {
  const auto lstm = [](float** x, const StateShape& s) {
    lstm_cell<float>("report", x[0], x[1], x[2], x[3], s, nullptr);
  };
  return {
      pooled<float>(
          "max pool f32, 2 x 2", 2, 2, kAll * (1 + 1. / 4 + 1. / 16), kDense,
          [](const Pooling& p, View x, View y, View index) { max_pool("report", y, index, x, p, nullptr); }),
      pooled<bf16>(
          "max pool bf16, 2 x 2", 2, 2, kAll * (1 + 1. / 4 + 1. / 8), kDense,
          [](const Pooling& p, View x, View y, View index) { max_pool("report", y, index, x, p, nullptr); }),
      pooled<float>(
          "max pool f32, 3 x 3 by 2", 3, 2, kAll * (1 + 1. / 4 + 1. / 16), kDense,
          [](const Pooling& p, View x, View y, View index) { max_pool("report", y, index, x, p, nullptr); }),
      pooled<float>("max pool's gradient f32, 2 x 2", 2, 2, kAll * (1 + 1. / 4 + 1. / 16), kDense,
                    [](const Pooling& p, View x, View y, View index) {
                      max_pool_scatter("report", x, y, index, p, nullptr);
                    }),
      pooled<float>(
          "max pool's gradient after relu f32, 2 x 2", 2, 2, kAll * (2 + 1. / 4), kDense,
          [](const Pooling& p, View x, View y, View) { max_pool_relu_grad("report", x, y, p, nullptr); }),
      pooled<float>("max pool's gather f32, 2 x 2", 2, 2, kAll * (2. / 4 + 1. / 16), kStrided,
                    [](const Pooling& p, View x, View y, View index) {
                      max_pool_gather("report", y, x, index, p, nullptr);
                    }),
      pooled<float>("max pool's positions f32, 2 x 2", 2, 2, kAll * (2. / 4 + 1. / 16), kDense,
                    [](const Pooling& p, View, View y, View index) {
                      max_pool_positions("report", static_cast<int64_t*>(y.data), index, p, nullptr);
                    }),
      pooled<float>("mean pool f32, 2 x 2", 2, 2, kAll * (1 + 1. / 4), kDense,
                    [](const Pooling& p, View x, View y, View) { avg_pool("report", y, x, p, nullptr); }),
      pooled<float>(
          "mean pool's gradient f32, 2 x 2", 2, 2, kAll * (1 + 1. / 4), kDense,
          [](const Pooling& p, View x, View y, View) { avg_pool_spread("report", x, y, p, nullptr); }),
      unfolded("unfold f32, 2 x 2",
               [](const Unfolding& s, float* x, float* y) { unfold<float>("report", y, x, s, nullptr); }),
      unfolded("fold f32, 2 x 2",
               [](const Unfolding& s, float* x, float* y) { fold<float>("report", x, y, s, nullptr); }),
      filtered("upfirdn2d f32, 4 x 4",
               [](const Upfirdn& s, float* x, float* y, float* filter) {
                 upfirdn2d<float>("report", y, x, filter, s, nullptr);
               }),
      filtered("gradient of upfirdn2d's filter f32, 4 x 4",
               [](const Upfirdn& s, float* x, float* y, float* filter) {
                 const Zeros workspace(upfirdn2d_filter_grad_workspace(s));
                 upfirdn2d_filter_grad<float>("report", filter, y, x, s, workspace.data(), nullptr);
                 synchronize();
               }),
      convolved_directly("direct convolution f32",
                         [](const DirectConv& c, View x, View y, View filters) {
                           direct_conv("report", y, x, filters, {nullptr, DType::kF32}, c, nullptr);
                         }),
      convolved_directly("direct convolution's input gradient f32",
                         [](const DirectConv& c, View x, View y, View filters) {
                           direct_conv_input_grad("report", x, y, filters, c, nullptr);
                         }),
      convolved_directly("direct convolution's weight gradient f32",
                         [](const DirectConv& c, View x, View y, View filters) {
                           direct_conv_weight_grad("report", filters, y, x, c, nullptr);
                         }),
      interpolated("bilinear f32", 64, 64),
      interpolated("bilinear f32, 3 channels", 256, 3),
      attended<float>("attention f32", false, 256, 64),
      attended<float>("attention f32, heads of 128", false, 128, 128),
      attended<float>("attention f32, heads of 256", false, 64, 256),
      attended<double>("attention f64", false, 128, 64),
      attended<bf16>("attention bf16, causal, heads of 50", false, 256, 50, true),
      attended<float>("gradient of attention f32", true, 256, 64),
      attended<float>("gradient of attention f32, heads of 128", true, 128, 128),
      attended<float>("gradient of attention f32, heads of 256", true, 64, 256),
      attended<double>("gradient of attention f64", true, 128, 64),
      attended<bf16>("gradient of attention bf16, causal, heads of 50", true, 256, 50, true),
      stepped_cell("LSTM cell f32", 4 + 3, 256, kDense, lstm),
      stepped_cell("LSTM cell f32, 50 units", 4 + 3, 50, kStrided, lstm),
      stepped_cell("gradient of LSTM cell f32", 2 * 4 + 4, 256, kDense,
                   [](float** x, const StateShape& s) {
                     lstm_cell_backward<float>("report", x[0], x[1], x[2], x[3], x[4], x[5], s, nullptr);
                   }),
      stepped_cell("GRU cell f32", 2 * 3 + 2, 256, kDense,
                   [](float** x, const StateShape& s) {
                     gru_cell<float>("report", x[0], x[1], x[2], x[3], s, nullptr);
                   }),
      stepped_cell("gradient of GRU cell f32", 4 * 3 + 3, 256, kDense,
                   [](float** x, const StateShape& s) {
                     gru_cell_backward<float>("report", x[0], x[1], x[2], x[3], x[4], x[5], x[6], s, nullptr);
                   }),
  };
}

}  // namespace report
