// Cases of reductions, scans, softmax, losses and normalizations.
#include <array>

#include "case_operands.h"
#include "gradus/tensor/cuda/kernels/losses/cross_entropy.h"
#include "gradus/tensor/cuda/kernels/losses/loss_sum.h"
#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"
#include "gradus/tensor/cuda/kernels/norm/group_norm.h"
#include "gradus/tensor/cuda/kernels/norm/layer_norm.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/kernels/scans.h"
#include "gradus/tensor/cuda/kernels/softmax.h"

namespace report {
namespace {

// Reductions of [outer, n, inner] that is 1 MiB large, or a little less.
template <class Op>
Case reduced(const char* what, int64_t outer, int64_t n, int64_t inner, double most = kDense) {
  using In = typename Op::In;
  using Out = typename Op::Out;
  constexpr bool kNumbers = requires(Op op) { op.indices; };
  const double bytes = static_cast<double>(outer * n * inner) * sizeof(In) +
                       static_cast<double>(outer * inner) * (sizeof(Out) + (kNumbers ? sizeof(int64_t) : 0));
  return {what, bytes, most, [=] {
            const Zeros x, y(outer * inner * static_cast<int64_t>(sizeof(Out))), numbers(outer * inner * 8);
            const auto* p = reinterpret_cast<const In*>(x.data());
            const Zeros workspace(reduce_workspace<Op>(p, outer, n, inner));
            Op op{};
            if constexpr (kNumbers) op.indices = reinterpret_cast<int64_t*>(numbers.data());
            reduce("report", op, reinterpret_cast<Out*>(y.data()), p, outer, n, inner, workspace.data(),
                   nullptr);
            synchronize();
          }};
}

// Softmax of [outer, n, inner] that is 1 MiB large, or a little less.
template <class T>
Case softmaxed(const char* what, bool backward, int64_t n, int64_t inner, double most = kDense) {
  const int64_t outer = kBytes / static_cast<int64_t>(sizeof(T)) / n / inner;
  const double bytes = static_cast<double>(outer * n * inner) * sizeof(T) * (backward ? 3 : 2);
  return {what, bytes, most, [=] {
            const Zeros x, y, dx;
            if (backward)
              softmax_backward("report", as<T>(dx), as<T>(y), as<T>(x), outer, n, inner, false, nullptr);
            else
              softmax("report", as<T>(y), as<T>(x), outer, n, inner, true, nullptr);
            synchronize();
          }};
}

// Mean cross entropy of scores [outer, classes, inner] that are 1 MiB large, or a little less. Samples have a
// target and two stats; the forward kernels also write and read the losses.
template <class T>
Case cross_entropies(const char* what, bool backward, int64_t classes, int64_t inner, double most = kDense) {
  using C = compute_t<T>;
  const int64_t outer = kBytes / static_cast<int64_t>(sizeof(T)) / classes / inner, samples = outer * inner;
  const double bytes =
      static_cast<double>(samples * classes) * sizeof(T) * (backward ? 2 : 1) +
      static_cast<double>(samples) * (8 + 2 * sizeof(C) + (backward ? 0 : sizeof(C) + 2 * 16));
  return {what, bytes, most, [=] {
            const Zeros x, dx, target(samples * 8), stats(samples * 16), loss(16), total(16);
            const CrossEntropy<T> s{
                as<T>(x), as<int64_t>(target), nullptr, as<C>(stats), outer, classes, inner, -100, 0};
            const Zeros workspace(cross_entropy_workspace(s));
            if (backward)
              cross_entropy_grad("report", s, LossReduction::kMean, as<T>(dx), as<C>(loss), as<C>(total),
                                 workspace.data(), nullptr);
            else
              cross_entropy("report", s, LossReduction::kMean, as<C>(loss), as<C>(total), workspace.data(),
                            nullptr);
            synchronize();
          }};
}

// Batch norm of [rows, channels] that is 1 MiB large, or a little less, and moves `passes` times as much.
template <class T> struct Normalized {
  using A = compute_t<T>;
  const Zeros x, y, dy, dx, numbers{8 * 16 * kBytes / 64}, workspace{kBytes};
  int64_t channels;
  explicit Normalized(int64_t c) : channels(c) {}
  int64_t rows() const { return kBytes / static_cast<int64_t>(sizeof(T)) / channels; }
  A* by_channel(int i) const { return as<A>(numbers) + i * channels; }
  BatchNorm<T> problem() const {
    return {rows(), channels, as<T>(x), by_channel(0), by_channel(1), by_channel(2), by_channel(3), 1};
  }
};
template <class T, class F>
Case normalized(const char* what, double passes, F&& f, int64_t channels = 64, double most = kDense) {
  return {what, passes * kAll, most, [=] {
            const Normalized<T> n(channels);
            f(n);
            synchronize();
          }};
}
template <class T>
Case normalized_forward(const char* what, bool adds, int64_t channels = 64, double most = kDense) {
  return normalized<T>(
      what, adds ? 4 : 3,
      [=](const Normalized<T>& n) {
        batch_norm("report", n.problem(), as<T>(n.y), adds ? as<T>(n.dy) : nullptr, adds ? 0 : 1, {},
                   n.workspace.data(), nullptr);
      },
      channels, most);
}
template <class T>
Case normalized_backward(const char* what, bool rectified, int64_t channels = 64, double most = kDense) {
  return normalized<T>(
      what, 5,
      [=](const Normalized<T>& n) {
        batch_norm_backward("report", n.problem(), as<T>(n.dx), n.by_channel(4), n.by_channel(5),
                            static_cast<const T*>(as<T>(n.dy)), rectified ? 0 : 1, n.workspace.data(),
                            nullptr);
      },
      channels, most);
}
// Layer norm of [rows, n] that is 1 MiB large, or a little less. The backward reads x and dy twice, and stats.
template <class T>
Case layer_normalized(const char* what, bool backward, int64_t n, bool weighted, double most = kDense) {
  const int64_t rows = kBytes / static_cast<int64_t>(sizeof(T)) / n;
  const double bytes = static_cast<double>(rows * n) * sizeof(T) * (backward ? 5 : 2) +
                       static_cast<double>(rows) * 16 * (backward ? 2 : 1);
  return {what, bytes, most, [=] {
            const Zeros x, y, dy, stats(rows * 16), weight(n * 8), dweight(n * 8), dbias(n * 8);
            const T* const w = weighted ? as<T>(weight) : nullptr;
            const Zeros workspace(layer_norm_backward_workspace(rows, n));
            if (backward)
              layer_norm_backward<T>("report", as<T>(y), as<T>(dweight), as<T>(dbias), as<T>(dy), as<T>(x),
                                     as<double>(stats), w, rows, n, true, workspace.data(), nullptr);
            else
              layer_norm<T>("report", as<T>(y), as<double>(stats), as<T>(x), w, w, rows, n, 1, true, nullptr);
            synchronize();
          }};
}

// The sum of squared errors of 1 MiB of T, with one target (`alone`) or as many, and with gradients
// (`slopes`) or without.
template <class T> Case of_losses(const char* what, bool alone, bool slopes) {
  return {what, ((alone ? 1 : 2) + (slopes ? 1 : 0)) * kAll, kDense, [=] {
            using namespace gradus::functors;  // NOLINT
            const Zeros x, targets, out, slope, sums;
            sum_losses<T>("report", SquaredError{}, ScaledGradient<SquaredErrorBackward>{{}, 1}, as<T>(out),
                          slopes ? as<T>(slope) : nullptr, as<T>(x), alone ? nullptr : as<T>(targets), 1,
                          kBytes / int64_t(sizeof(T)), sums.data(), nullptr);
            synchronize();
          }};
}

// Scans along n of [outer, n, inner] f32. Each element moves `bytes` bytes. A row of one piece is read once, a row of
// several pieces twice. Calls f(x, out, indices, workspace, shape).
template <class F> Case scanned(const char* what, double bytes, const ScanShape& scan, F&& f) {
  return {what, bytes * static_cast<double>(scan.outer * scan.n * scan.inner), kDense, [=] {
            const Zeros x, out, indices(2 * kBytes), workspace(scans_workspace(scan));
            f(view_of<float>(x), view_of<float>(out), as<int64_t>(indices), workspace.data(), scan);
            synchronize();
          }};
}

// Group norm of 4 samples of 1024 rows, 64 channels and 8 groups, 1 MiB large, that moves `passes` times as much. Calls
// f(sizes, five arrays like x, gradients of the weight and bias, workspace).
template <class F> Case group_normalized(const char* what, double passes, F&& f) {
  return {what, passes * kAll, kDense, [=] {
            const Zeros x, stats, parameters;
            const std::array<Zeros, 5> arrays;
            const GroupNorm<float> s{
                4, 1024, 64, 8, as<float>(x), nullptr, as<double>(stats), as<double>(stats) + 32, 1};
            const Zeros workspace(group_norm_double_backward_workspace<float>(s.samples, s.rows, s.channels));
            float* like_x[5];
            for (size_t i = 0; i < 5; ++i) like_x[i] = as<float>(arrays[i]);
            f(s, like_x, as<float>(parameters), as<float>(parameters) + s.channels, workspace.data());
            synchronize();
          }};
}

// nll_loss of log-probabilities [samples, classes]: of each sample, the sector of its target's score is read.
Case nll_loss(const char* what, int64_t classes) {
  const int64_t samples = kFloats / classes;
  return {what, static_cast<double>(samples) * (8 + 32 + 2 * 16), kDense, [=] {
            const Zeros x, loss(16), total(16);
            const Elements<int64_t> target(shuffled<int64_t>(samples, classes));
            const CrossEntropy<float> s{
                as<float>(x), as<int64_t>(target), nullptr, nullptr, samples, classes, 1, -100, 0};
            const Zeros workspace(cross_entropy_workspace(s));
            cross_entropy("report", s, LossReduction::kMean, as<float>(loss), as<float>(total),
                          workspace.data(), nullptr);
            synchronize();
          }};
}

}  // namespace

std::vector<Case> reduction_cases() {
  const auto sum = [](View x, View out, int64_t*, void* workspace, const ScanShape& scan) {
    cumsum("report", out, x, scan, workspace, nullptr);
  };
  return {
      reduced<Sum<float>>("sum f32, rows of 4", kFloats / 4, 4, 1),
      reduced<Sum<float>>("sum f32, rows of 32", kFloats / 32, 32, 1),
      reduced<Sum<float>>("sum f32, rows of 33", kFloats / 33, 33, 1),
      reduced<Sum<float>>("sum f32, rows of 1001", kFloats / 1001, 1001, 1),
      reduced<Sum<float>>("sum f32, rows of 1024", kFloats / 1024, 1024, 1),
      reduced<Sum<float>>("sum f32, rows of 16384", kFloats / 16384, 16384, 1),
      reduced<Sum<float>>("sum f32, one row", 1, kFloats, 1),
      reduced<Sum<float>>("sum f32, 4 columns", 1, kFloats / 4, 4),
      reduced<Sum<float>>("sum f32, 33 columns", 1, kFloats / 33, 33),
      reduced<Sum<float>>("sum f32, 64 columns", 1, kFloats / 64, 64),
      reduced<Sum<float>>("sum f32, 1024 columns", 1, kFloats / 1024, 1024),
      reduced<Sum<bf16>>("sum bf16, rows of 1024", kHalves / 1024, 1024, 1),
      reduced<Sum<bf16>>("sum bf16, 64 columns", 1, kHalves / 64, 64),
      reduced<Sum<double>>("sum f64, rows of 1024", kBytes / 8 / 1024, 1024, 1),
      reduced<Sum<double>>("sum f64, 64 columns", 1, kBytes / 8 / 64, 64),
      reduced<Sum<uint8_t>>("sum u8, rows of 1024", kBytes / 1024, 1024, 1),
      reduced<Sum<uint8_t>>("sum u8, 64 columns", 1, kBytes / 64, 64),
      reduced<Extreme<float, true>>("amax f32, rows of 1024", kFloats / 1024, 1024, 1),
      reduced<Extreme<float, true>>("amax f32, 64 columns", 1, kFloats / 64, 64),
      reduced<Extreme<double, true>>("amax f64, 64 columns", 1, kBytes / 8 / 64, 64),
      reduced<Extreme<uint8_t, true>>("amax u8, 64 columns", 1, kBytes / 64, 64),
      reduced<Variance<float>>("variance f32, rows of 1024", kFloats / 1024, 1024, 1),
      reduced<Variance<float>>("variance f32, one row", 1, kFloats, 1),
      reduced<Variance<float>>("variance f32, 64 columns", 1, kFloats / 64, 64),
      reduced<Variance<double>>("variance f64, 64 columns", 1, kBytes / 8 / 64, 64),
      reduced<Extremum<float>>("max f32, rows of 1024", kFloats / 1024, 1024, 1),
      reduced<Extremum<float>>("max f32, one row", 1, kFloats, 1),
      reduced<Extremum<float>>("max f32, 64 columns", 1, kFloats / 64, 64),
      reduced<Extremum<uint8_t>>("max u8, rows of 1024", kBytes / 1024, 1024, 1),
      softmaxed<float>("softmax f32, rows of 10", false, 10, 1),
      softmaxed<float>("softmax f32, rows of 128", false, 128, 1),
      softmaxed<float>("softmax f32, rows of 1000", false, 1000, 1),
      softmaxed<float>("softmax f32, rows of 3072", false, 3072, 1),
      softmaxed<float>("softmax f32, rows of 16384", false, 16384, 1),
      softmaxed<float>("softmax f32, 21 of 256 columns", false, 21, 256),
      softmaxed<float>("softmax f32, 200 of 64 columns", false, 200, 64),
      softmaxed<double>("softmax f64, rows of 1000", false, 1000, 1),
      softmaxed<float>("gradient of softmax f32, rows of 10", true, 10, 1),
      softmaxed<float>("gradient of softmax f32, rows of 1000", true, 1000, 1),
      softmaxed<float>("gradient of softmax f32, rows of 16384", true, 16384, 1),
      softmaxed<float>("gradient of softmax f32, 21 of 256 columns", true, 21, 256),
      softmaxed<double>("gradient of softmax f64, rows of 1000", true, 1000, 1),
      cross_entropies<float>("cross entropy f32, 10 classes", false, 10, 1),
      cross_entropies<float>("cross entropy f32, 1000 classes", false, 1000, 1),
      cross_entropies<float>("cross entropy f32, 21 classes of pixels", false, 21, 1024),
      cross_entropies<bf16>("cross entropy bf16, 1000 classes", false, 1000, 1),
      nll_loss("nll loss f32, 10 classes", 10),
      cross_entropies<float>("gradient of cross entropy f32, 10 classes", true, 10, 1),
      cross_entropies<float>("gradient of cross entropy f32, 1000 classes", true, 1000, 1),
      cross_entropies<float>("gradient of cross entropy f32, 21 classes of pixels", true, 21, 1024),
      cross_entropies<bf16>("gradient of cross entropy bf16, 1000 classes", true, 1000, 1),
      normalized_forward<float>("batch norm f32", false),
      normalized_forward<float>("batch norm f32, of a sum, with relu", true),
      normalized_forward<float>("batch norm f32, 2048 channels", false, 2048),
      normalized_forward<float>("batch norm f32, 3 channels", false, 3),
      normalized_forward<float>("batch norm f32, 33 channels", false, 33),
      normalized_forward<double>("batch norm f64", false),
      normalized_forward<bf16>("batch norm bf16, of a sum, with relu", true),
      normalized<float>("batch norm f32, got statistics", 2,
                        [](const Normalized<float>& n) {
                          batch_norm_apply("report", n.problem(), as<float>(n.y), nullptr);
                        }),
      normalized_backward<float>("gradient of batch norm f32", false),
      normalized_backward<float>("gradient of batch norm f32, after relu", true),
      normalized_backward<float>("gradient of batch norm f32, 2048 channels", false, 2048),
      normalized_backward<float>("gradient of batch norm f32, after relu, 2048 channels", true, 2048),
      normalized_backward<double>("gradient of batch norm f64", false),
      normalized_backward<bf16>("gradient of batch norm bf16, after relu", true),
      normalized<float>("gradient of batch norm f32, of a sum, after relu", 7,
                        [](const Normalized<float>& n) {
                          float* const dy = as<float>(n.dy);
                          batch_norm_add_relu_backward<float>("report", n.problem(), as<float>(n.dx), dy,
                                                              n.by_channel(4), n.by_channel(5), dy,
                                                              as<float>(n.y), n.workspace.data(), nullptr);
                        }),
      normalized<float>("gradient of batch norm f32, its parts", 3,
                        [](const Normalized<float>& n) {
                          batch_norm_apply_backward<float>("report", n.problem(), as<float>(n.dx),
                                                           n.by_channel(4), n.by_channel(5), as<float>(n.dy),
                                                           n.workspace.data(), nullptr);
                        }),
      normalized<float>("batch statistics f32", 1,
                        [](const Normalized<float>& n) {
                          double* const mean = as<double>(n.dx);
                          batch_statistics<float>("report", mean, mean + n.channels, as<float>(n.x), n.rows(),
                                                  n.channels, n.workspace.data(), nullptr);
                        }),
      normalized<float>("gradient of batch statistics f32", 3,
                        [](const Normalized<float>& n) {
                          batch_statistics_backward<float>("report", as<float>(n.dx), as<float>(n.dy),
                                                           as<float>(n.x), n.by_channel(0), n.by_channel(1),
                                                           n.by_channel(2), n.rows(), n.channels, nullptr);
                        }),
      layer_normalized<float>("layer norm f32, rows of 768", false, 768, false),
      layer_normalized<float>("layer norm f32, rows of 16384", false, 16384, false),
      layer_normalized<float>("layer norm f32, with weight, rows of 768", false, 768, true),
      layer_normalized<double>("layer norm f64, rows of 768", false, 768, false),
      layer_normalized<float>("gradient of layer norm f32, rows of 64", true, 64, false),
      layer_normalized<float>("gradient of layer norm f32, rows of 768", true, 768, false),
      layer_normalized<float>("gradient of layer norm f32, rows of 16384", true, 16384, false),
      layer_normalized<float>("gradient of layer norm f32, with weight, rows of 768", true, 768, true),
      layer_normalized<double>("gradient of layer norm f64, rows of 768", true, 768, false),
      {"running statistics f32", 6 * kAll, kDense,
       [] {
         const Zeros mean, var, x, y;
         batch_norm_update<float>("report", {x.data(), y.data(), nullptr, 1, 0.1, 1, 1}, as<float>(mean),
                                  as<float>(var), kFloats, nullptr);
         synchronize();
       }},
      of_losses<float>("sum of losses, f32", false, false),
      of_losses<bf16>("sum of losses, bf16", false, false),
      of_losses<float>("sum of losses, f32, one target", true, false),
      of_losses<float>("sum of losses with slopes, f32", false, true),
      group_normalized("group norm f32", 3,
                       [](const GroupNorm<float>& s, float** like_x, float*, float*, void* workspace) {
                         group_norm<float>("report", s, like_x[0], nullptr, workspace, nullptr);
                       }),
      group_normalized(
          "gradient of group norm f32", 5,
          [](const GroupNorm<float>& s, float** like_x, float* dweight, float* dbias, void* workspace) {
            group_norm_backward<float>("report", s, like_x[0], dweight, dbias, like_x[1], workspace, nullptr);
          }),
      group_normalized(
          "second gradient of group norm f32", 8,
          [](const GroupNorm<float>& s, float** like_x, float* dweight, float*, void* workspace) {
            group_norm_double_backward<float>("report", s, like_x[0], like_x[1], dweight, like_x[2], nullptr,
                                              nullptr, like_x[3], workspace, nullptr);
          }),
      {"sum over 5 channels f32", 2 * kAll, kDense,
       [] {
         const Zeros x, y;
         channel_window_sum<float>("report", as<float>(y), as<float>(x), kFloats / 64, 64, 2, 2, nullptr);
         synchronize();
       }},
      scanned("cumsum f32, rows of 256", 2 * 4, {kFloats / 256, 256, 1}, sum),
      scanned("cumsum f32, rows of 1000, reverse", 2 * 4, {kFloats / 1000, 1000, 1, true}, sum),
      scanned("cumsum f32, one row", 3 * 4, {1, kFloats, 1}, sum),
      scanned("cumsum f32, 64 columns", 3 * 4, {1, kFloats / 64, 64}, sum),
      scanned("cumsum f32, 64 short columns", 2 * 4, {kFloats / 64 / 128, 128, 64}, sum),
      scanned("cumprod f32, rows of 256", 2 * 4, {kFloats / 256, 256, 1},
              [](View x, View out, int64_t*, void* workspace, const ScanShape& scan) {
                cumprod("report", out, x, scan, workspace, nullptr);
              }),
      scanned("logcumsumexp f32, rows of 256", 2 * 4, {kFloats / 256, 256, 1},
              [](View x, View out, int64_t*, void* workspace, const ScanShape& scan) {
                logcumsumexp("report", out, x, scan, workspace, nullptr);
              }),
      scanned("cummax f32, rows of 256", 2 * 4 + 8, {kFloats / 256, 256, 1},
              [](View x, View out, int64_t* indices, void* workspace, const ScanShape& scan) {
                running_extremes("report", out, indices, x, scan, true, workspace, nullptr);
              }),
      scanned("linear recurrence f32, rows of 256", 3 * 4, {kFloats / 256, 256, 1},
              [](View x, View out, int64_t* a, void* workspace, const ScanShape& scan) {
                linear_recurrence("report", out, {a, DType::kF32}, x, scan, workspace, nullptr);
              }),
  };
}

}  // namespace report
