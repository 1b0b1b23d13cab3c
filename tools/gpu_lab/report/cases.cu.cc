// The cases of kernel_report and traffic.py (cases.h): one or more per kernel, on operands of about 1 MiB. kernel_report compares the bytes
// that the kernels of a case move on the emulated device, in sectors of 32 bytes, with the minimum. mark() launches an empty kernel that
// separates the cases in a profiler's list. Minimal bytes count each operand once; the limit is 1.1 times these for dense
// operands (kDense) and 1.3 times for others (kStrided).
#include "cases.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>

#include "gradus/optim/rules/adam.h"
#include "gradus/optim/rules/lars.h"
#include "gradus/optim/rules/sgd.h"
#include "gradus/tensor/cuda/kernels/copy.h"
#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/kernels/gradients.h"
#include "gradus/tensor/cuda/kernels/images/direct_conv.h"
#include "gradus/tensor/cuda/kernels/images/pool.h"
#include "gradus/tensor/cuda/kernels/images/unfold.h"
#include "gradus/tensor/cuda/kernels/images/upfirdn.h"
#include "gradus/tensor/cuda/kernels/losses/cross_entropy.h"
#include "gradus/tensor/cuda/kernels/losses/loss_sum.h"
#include "gradus/tensor/cuda/kernels/multinomial.h"
#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"
#include "gradus/tensor/cuda/kernels/norm/layer_norm.h"
#include "gradus/tensor/cuda/kernels/optim_step.h"
#include "gradus/tensor/cuda/kernels/random.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/kernels/softmax.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"

namespace report {
namespace {

using namespace gradus::cuda;  // NOLINT
using gradus::bf16;
using gradus::DType;
using gradus::dtype_v;
using gradus::f16;
using PoolAxis = gradus::PoolAxis<int32_t>;

constexpr int64_t kBytes = int64_t(1) << 20;
constexpr double kAll = kBytes;
constexpr double kDense = 1.1, kStrided = 1.3;

__global__ void __launch_bounds__(256) case_begins() {}

// Device memory that holds zeros.
class Zeros {
 public:
  explicit Zeros(int64_t bytes = kBytes) {
    check("report", "cudaMalloc", cudaMalloc(&p_, static_cast<size_t>(bytes)));
    check("report", "cudaMemset", cudaMemset(p_, 0, static_cast<size_t>(bytes)));
  }
  ~Zeros() { cudaFree(p_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  char* data() const { return static_cast<char*>(p_); }

 private:
  void* p_ = nullptr;
};

using Sizes = std::vector<int64_t>;

// Operands of types T with sizes and strides; the first is the output. Each starts at element `start` of its
// own 1 MiB.
template <class... T> struct Operands {
  Sizes sizes;
  std::array<Strides, sizeof...(T)> strides;
  int64_t start = 0;

  template <class F> void run(F&& f) const {
    const std::array<Zeros, sizeof...(T)> memory;
    View views[sizeof...(T)];
    size_t k = 0;
    ((views[k] = {memory[k].data() + start * static_cast<int64_t>(sizeof(T)), dtype_v<T>}, ++k), ...);
    f(make_strided_index(sizes, strides), views);
    check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
  }
};
// Contiguous operands, with as many elements as 1 MiB has of the largest type.
template <class... T> Operands<T...> dense() {
  Operands<T...> o{{kBytes / static_cast<int64_t>(std::max({sizeof(T)...}))}, {}};
  for (Strides& s : o.strides) s = {1};
  return o;
}

template <class C, class OutC, class... InC, class F, class... T>
std::function<void()> computed(const F& f, const Operands<T...>& o) {
  return [=] {
    o.run([&](const StridedIndex& index, const View* views) {
      elementwise<C, OutC, InC...>("report", f, index, views, nullptr);
    });
  };
}
template <class... T> std::function<void()> copied(const Operands<T...>& o) {
  return [=] {
    o.run([](const StridedIndex& index, const View* views) { copy("report", index, views, nullptr); });
  };
}
template <class T> std::function<void()> filled(const Operands<T>& o) {
  return [=] {
    o.run([](const StridedIndex& index, const View* views) {
      const T zero{};
      fill("report", index, views[0], &zero, nullptr);
    });
  };
}

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
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}

template <class T> T* as(const Zeros& memory) { return reinterpret_cast<T*>(memory.data()); }

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
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}

// Mean cross entropy of scores [outer, classes, inner] that are 1 MiB large, or a little less. Samples have a
// target and two stats; the forward kernels also write and read the losses.
template <class T>
Case cross_entropies(const char* what, bool backward, int64_t classes, int64_t inner, double most = kDense) {
  const int64_t outer = kBytes / static_cast<int64_t>(sizeof(T)) / classes / inner, samples = outer * inner;
  const double bytes =
      static_cast<double>(samples * classes) * sizeof(T) * (backward ? 2 : 1) +
      static_cast<double>(samples) * (8 + 2 * sizeof(T) + (backward ? 0 : sizeof(T) + 2 * 16));
  return {what, bytes, most, [=] {
            const Zeros x, dx, target(samples * 8), stats(samples * 16), loss(16), total(16);
            const CrossEntropy<T> s{
                as<T>(x), as<int64_t>(target), nullptr, as<T>(stats), outer, classes, inner, -100, 0};
            const Zeros workspace(cross_entropy_workspace(s));
            if (backward)
              cross_entropy_grad("report", s, LossReduction::kMean, as<T>(dx), as<T>(loss), as<T>(total),
                                 workspace.data(), nullptr);
            else
              cross_entropy("report", s, LossReduction::kMean, as<T>(loss), as<T>(total), workspace.data(),
                            nullptr);
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}

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
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}

// 64 channels of 64 x 64 pixels, 1 MiB large, cut into 2 x 2 pixels. Calls f(sizes, images, columns).
template <class F> Case unfolded(const char* what, F&& f) {
  const UnfoldAxis side{64, 32, 2, 2, 0, 1};
  const Unfolding s{64, side, side};
  return {what, 2 * kAll, kDense, [=] {
            const Zeros images, columns;
            f(s, as<float>(images), as<float>(columns));
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}
// The same image, channels last, and a filter of 4 x 4 taps. Calls f(sizes, x, y, filter).
template <class F> Case filtered(const char* what, F&& f) {
  const UpfirdnAxis side{64, 64, 4, 1, 1, 2};
  const Upfirdn s{1, 64, side, side, 0};
  return {what, 2 * kAll, kDense, [=] {
            const Zeros x, y, filter(16 * sizeof(float));
            f(s, as<float>(x), as<float>(y), as<float>(filter));
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
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
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}

// Random numbers of shape [n] or [rows, columns], 1 MiB large.
template <class T, class F>
Case drawn(const char* what, F&& f, const Sizes& sizes = {kBytes / int64_t(sizeof(T))},
           const Strides& strides = {1}, double most = kDense) {
  return {what, kAll, most, [=] {
            const Zeros y;
            f(DrawOutput{{y.data(), dtype_v<T>}, sizes, strides});
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}
// Multinomial draws with equal weights. Without replacement, sorted candidates are written and read again.
Case drawn_by_weights(const char* what, int64_t rows, int64_t n, int64_t count, bool replacement,
                      double most = kDense) {
  const double weights = static_cast<double>(rows * n) * 8, drawn = static_cast<double>(rows * count) * 8;
  const double bytes = replacement ? 2 * weights + 2 * drawn : (3 + 4) * weights + drawn;
  return {what, bytes, most, [=] {
            const std::vector<double> ones(static_cast<size_t>(rows * n), 1);
            const Zeros w(rows * n * 8), u(rows * std::max(n, count) * 8), y(rows * count * 8);
            check("report", "cudaMemcpy",
                  cudaMemcpy(w.data(), ones.data(), ones.size() * 8, cudaMemcpyHostToDevice));
            const Multinomial m{as<int64_t>(y), as<double>(w), as<double>(u), rows, n, count};
            const Zeros workspace(multinomial_workspace(m, replacement));
            multinomial("report", m, replacement, workspace.data(), {}, nullptr);
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}
// Dropout of 1 MiB of f32, with a mask of a quarter of that.
Case dropped(const char* what, const Sizes& sizes, const Strides& strides, double most) {
  return {
      what, 2.25 * kAll, most, [=] {
        const Zeros y, mask, x;
        const View views[] = {{y.data(), DType::kF32}, {mask.data(), DType::kBool}, {x.data(), DType::kF32}};
        dropout("report", {sizes, {views[0], views[1], views[2]}, {strides, strides, strides}}, .5, 2, {},
                nullptr);
        check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
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
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
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
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}
// Arrays of `tensors` tensors that have 1 MiB together. They begin at element `start`.
template <class T> std::vector<T*> parts_of(const Zeros& memory, int64_t tensors, int64_t start) {
  std::vector<T*> parts;
  for (int64_t i = 0; i < tensors; ++i)
    parts.push_back(as<T>(memory) + i * (kBytes / tensors / int64_t(sizeof(T))) + start);
  return parts;
}

// A step of tensors whose widest array has 1 MiB. Each element moves `bytes` bytes.
template <class P, class F>
Case stepped(const char* what, double bytes, int64_t tensors, int64_t start, F&& f, double most = kDense) {
  using T = compute_t<P>;
  const int64_t n = kBytes / tensors / static_cast<int64_t>(sizeof(T)) - start;
  return {what, bytes * static_cast<double>(tensors * n), most, [=] {
            const std::array<Zeros, 5> memory;
            std::vector<StepArrays> items;
            for (int64_t i = 0; i < tensors; ++i) {
              const auto at = [&](size_t k) { return parts_of<T>(memory[k], tensors, start)[size_t(i)]; };
              const auto narrow = [&](size_t k) { return parts_of<P>(memory[k], tensors, start)[size_t(i)]; };
              items.push_back({narrow(0), narrow(1), {at(2), at(3), at(4)}, n});
            }
            const Zeros workspace(norms_workspace(items));
            f(items, workspace.data());
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}
template <class P, class Rule>
Case stepped_by(const char* what, const Rule& rule, int64_t tensors, int64_t start, double most = kDense) {
  constexpr int kStates = Rule::kUses[0] + Rule::kUses[1] + Rule::kUses[2];
  return stepped<P>(
      what, 3 * sizeof(P) + 2 * kStates * sizeof(compute_t<P>), tensors, start,
      [=](std::span<const StepArrays> items, void*) { step<P>("report", rule, 1, 0, items, nullptr); }, most);
}
template <class P, class Rule> Case stepped_by_norms(const char* what, const Rule& rule, double bytes) {
  return stepped<P>(what, bytes, 4, 0, [=](std::span<const StepArrays> items, void* workspace) {
    step_by_norms<P>("report", rule, items, workspace, nullptr);
  });
}

// Gradients of 1 MiB in four tensors, read and written `moves` times in all. Calls f(tensors, small memory).
template <class P, class F> Case of_gradients(const char* what, double moves, F&& f) {
  return {what, moves * kAll, kDense, [=] {
            const Zeros x, little;
            std::vector<ArraysOfTensor<1>> tensors;
            for (P* p : parts_of<P>(x, 4, 0)) tensors.push_back({{p}, kBytes / 4 / int64_t(sizeof(P))});
            f(Gradients(tensors), little);
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
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
            check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
          }};
}

}  // namespace

std::vector<Case> cases() {
  using namespace gradus::functors;  // NOLINT
  constexpr int64_t kFloats = kBytes / 4, kHalves = kBytes / 2, kPixels = kFloats / 64;
  return {
      {"add f32", 3 * kAll, kDense,
       computed<float, float, float, float>(Add{}, dense<float, float, float>())},
      {"add bf16", 3 * kAll, kDense,
       computed<float, float, float, float>(Add{}, dense<bf16, bf16, bf16>())},
      {"add f16", 3 * kAll, kDense, computed<float, float, float, float>(Add{}, dense<f16, f16, f16>())},
      {"add f64", 3 * kAll, kDense,
       computed<double, double, double, double>(Add{}, dense<double, double, double>())},
      {"div f64", 3 * kAll, kDense,
       computed<double, double, double, double>(Div{}, dense<double, double, double>())},
      {"add f32, one operand a scalar", 2 * kAll, kDense,
       computed<float, float, float, float>(
           Add{}, Operands<float, float, float>{{kFloats}, {{{1}, {1}, {0}}}})},
      {"a < b of f32", 2.25 * kAll, kDense,
       computed<float, bool, float, float>(Lt{}, dense<bool, float, float>())},
      {"where f32", 3.25 * kAll, kDense,
       computed<float, float, uint8_t, float, float>(Where{}, dense<float, uint8_t, float, float>())},
      {"add f32, rows with gaps", 3 * kAll * 63 / 64, kStrided,
       computed<float, float, float, float>(
           Add{}, Operands<float, float, float>{{kFloats / 64, 63}, {{{64, 1}, {64, 1}, {64, 1}}}})},
      {"add bf16, a row is broadcast", 2 * kAll, kStrided,
       computed<float, float, float, float>(
           Add{}, Operands<bf16, bf16, bf16>{{kHalves / 64, 64}, {{{64, 1}, {64, 1}, {0, 1}}}})},
      {"add f32, a column is broadcast", 2 * kAll + kAll / 64, kStrided,
       computed<float, float, float, float>(
           Add{}, Operands<float, float, float>{{kFloats / 64, 64}, {{{64, 1}, {64, 1}, {1, 0}}}})},
      {"add f32, one operand channels last", 3 * kAll, kStrided,
       computed<float, float, float, float>(
           Add{}, Operands<float, float, float>{{64, kPixels}, {{{kPixels, 1}, {kPixels, 1}, {1, 64}}}})},
      {"cast f32 to bf16", 1.5 * kAll, kDense, copied(dense<bf16, float>())},
      {"cast f16 to f32", 1.5 * kAll, kDense, copied(dense<float, f16>())},
      {"cast i32 to f32", 2 * kAll, kDense, copied(dense<float, int32_t>())},
      {"cast u8 to i64", 1.125 * kAll, kDense, copied(dense<int64_t, uint8_t>())},
      {"copy f32, rows with gaps", 2 * kAll * 1000 / 1024, kStrided,
       copied(Operands<float, float>{{kFloats / 1024, 1000}, {{{1000, 1}, {1024, 1}}}})},
      {"copy bf16, rows with gaps of one element", 2 * kAll * 1023 / 1024, kStrided,
       copied(Operands<bf16, bf16>{{kHalves / 1024, 1023}, {{{1023, 1}, {1024, 1}}}})},
      {"copy u8, misaligned rows", 2 * kAll * 1000 / 1024, kStrided,
       copied(Operands<uint8_t, uint8_t>{{kBytes / 1024, 1000}, {{{1024, 1}, {1024, 1}}}, 3})},
      {"copy f32, to channels last", 2 * kAll, kStrided,
       copied(Operands<float, float>{{64, kPixels}, {{{1, 64}, {kPixels, 1}}}})},
      {"copy bf16, transposed", 2 * kAll, kStrided,
       copied(Operands<bf16, bf16>{{512, 1024}, {{{1024, 1}, {1, 512}}}})},
      {"copy u8, transposed", 2 * kAll, kStrided,
       copied(Operands<uint8_t, uint8_t>{{1024, 1024}, {{{1024, 1}, {1, 1024}}}})},
      {"copy f64, transposed", 2 * kAll, kStrided,
       copied(Operands<double, double>{{256, 512}, {{{512, 1}, {1, 256}}}})},
      {"fill f32", kAll, kDense, filled(dense<float>())},
      {"fill bf16", kAll, kDense, filled(dense<bf16>())},
      {"fill f32, rows with gaps", kAll * 1000 / 1024, kStrided,
       filled(Operands<float>{{kFloats / 1024, 1000}, {{{1024, 1}}}})},
      {"arange f32", kAll, kDense,
       [] {
         const Zeros y;
         arange("report", {y.data(), DType::kF32}, kFloats, 0, 1, nullptr);
         check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
       }},
      {"linspace f64", kAll, kDense,
       [] {
         const Zeros y;
         linspace("report", {y.data(), DType::kF64}, kBytes / 8, 0, 1, nullptr);
         check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
       }},
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
      cross_entropies<float>("gradient of cross entropy f32, 10 classes", true, 10, 1),
      cross_entropies<float>("gradient of cross entropy f32, 1000 classes", true, 1000, 1),
      cross_entropies<float>("gradient of cross entropy f32, 21 classes of pixels", true, 21, 1024),
      pooled<float>("max pool f32, 2 x 2", 2, 2, kAll * (1 + 1. / 4 + 1. / 16), kDense,
                    [](const Pooling& p, View x, View y, View index) {
                      max_pool("report", y, index, x, p, nullptr);
                    }),
      pooled<bf16>("max pool bf16, 2 x 2", 2, 2, kAll * (1 + 1. / 4 + 1. / 8), kDense,
                   [](const Pooling& p, View x, View y, View index) {
                     max_pool("report", y, index, x, p, nullptr);
                   }),
      pooled<float>("max pool f32, 3 x 3 by 2", 3, 2, kAll * (1 + 1. / 4 + 1. / 16), kDense,
                    [](const Pooling& p, View x, View y, View index) {
                      max_pool("report", y, index, x, p, nullptr);
                    }),
      pooled<float>("max pool's gradient f32, 2 x 2", 2, 2, kAll * (1 + 1. / 4 + 1. / 16), kDense,
                    [](const Pooling& p, View x, View y, View index) {
                      max_pool_scatter("report", x, y, index, p, nullptr);
                    }),
      pooled<float>("max pool's gradient after relu f32, 2 x 2", 2, 2, kAll * (2 + 1. / 4), kDense,
                    [](const Pooling& p, View x, View y, View) {
                      max_pool_relu_grad("report", x, y, p, nullptr);
                    }),
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
      pooled<float>("mean pool's gradient f32, 2 x 2", 2, 2, kAll * (1 + 1. / 4), kDense,
                    [](const Pooling& p, View x, View y, View) {
                      avg_pool_spread("report", x, y, p, nullptr);
                    }),
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
                 check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
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
      drawn<float>("uniform numbers f32",
                   [](const DrawOutput& y) { uniform("report", y, 0, 1, {}, nullptr); }),
      drawn<float>("uniform numbers f32, channels last",
                   [](const DrawOutput& y) { uniform("report", y, 0, 1, {}, nullptr); }, {64, kPixels}, {1, 64},
                   kStrided),
      drawn<float>("uniform numbers f32, counted on the device",
                   [](const DrawOutput& y) {
                     const Zeros base(16);
                     uniform("report", y, 0, 1, {.base = as<uint64_t>(base)}, nullptr);
                     check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
                   }),
      drawn<double>("uniform numbers f64",
                    [](const DrawOutput& y) { uniform("report", y, 0, 1, {}, nullptr); }),
      drawn<float>("normal numbers f32", [](const DrawOutput& y) { normal("report", y, 0, 1, {}, nullptr); }),
      drawn<bf16>("normal numbers bf16", [](const DrawOutput& y) { normal("report", y, 0, 1, {}, nullptr); }),
      drawn<double>("normal numbers f64", [](const DrawOutput& y) { normal("report", y, 0, 1, {}, nullptr); }),
      drawn<bool>("bernoulli mask", [](const DrawOutput& y) { bernoulli("report", y, .5, {}, nullptr); }),
      drawn<bool>("dropout mask", [](const DrawOutput& y) { dropout_mask("report", y, .5, {}, nullptr); }),
      drawn<int64_t>("random integers", [](const DrawOutput& y) { randint("report", y, 0, 10, {}, nullptr); }),
      // The identity is written. Then each element, and the sector of the element that it is swapped with, is
      // read and written.
      {"random order", kAll * (1 + 2 + 2 * 32. / 8), kDense,
       [] {
         const Zeros y;
         randperm("report", as<int64_t>(y), kBytes / 8, {}, nullptr);
         check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
       }},
      drawn_by_weights("draws with replacement", 1, kBytes / 8, 64, true),
      drawn_by_weights("draws without replacement", 16, 512, 512, false),
      dropped("dropout f32", {kFloats}, {1}, kDense),
      dropped("dropout f32, channels last", {64, kPixels}, {1, 64}, kStrided),
      {"choices below p f32", 3 * kAll, kDense,
       [] {
         const Zeros u, p;
         const View views[] = {{u.data(), DType::kF32}, {p.data(), DType::kF32}};
         bernoulli_from_uniform("report", views[0], views[1], kBytes / 4, {}, nullptr);
         check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
       }},
      {"masked scale f32", 2.25 * kAll, kDense, [] {
         dense<float, float, bool>().run([](const StridedIndex& index, const View* views) {
           masked_scale("report", index, views, 2, nullptr);
         });
       }},
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
         check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
       }},
      stepped_by<float>("step of Adam, f32", gradus::optim::AdamRule<float, false>{}, 4, 0),
      stepped_by<double>("step of Adam, f64", gradus::optim::AdamRule<double, false>{}, 4, 0),
      stepped_by<bf16>("step of Adam, bf16", gradus::optim::AdamRule<float, false>{}, 4, 0),
      stepped_by<float>("step of Adam, f32, 128 tensors", gradus::optim::AdamRule<float, false>{}, 128, 0),
      stepped_by<float>("step of SGD, f32", gradus::optim::SGDRule<float>{}, 4, 0),
      stepped_by<float>("step of SGD, f32, misaligned", gradus::optim::SGDRule<float>{}, 4, 1, kStrided),
      stepped<float>("step of Adam, f32, decided on the device", 7 * 4, 4, 0,
                     [](std::span<const StepArrays> items, void*) {
                       using Rule = gradus::optim::AdamRule<float, false>;
                       const Zeros memory;
                       const float* const found = as<float>(memory);
                       Rule* const rules = as<Rule>(memory) + 1;
                       std::vector<void*> numbers;
                       for (size_t i = 1; i <= items.size(); ++i) numbers.push_back(memory.data() + 1024 * i);
                       begin_steps<float>("report", gradus::optim::AdamRuleFactory<false>{0.1, 0.9, 0.99, 1e-8, 0},
                                          rules, found, as<double>(memory) + 64, numbers, nullptr);
                       step<float>("report", Rule{}, 1, 0, items, nullptr, {rules, found});
                       check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
                     }),
      stepped_by_norms<float>("step of LARS, f32", gradus::optim::LARSRule<float>{}, 7 * 4),
      stepped_by_norms<float>("step of LAMB, f32", gradus::optim::LAMBRule<float>{}, 10 * 4),
      {"sums of gradients, f32", 3 * kAll, kDense,
       [=] {
         const Zeros sums, terms;
         const auto to = parts_of<float>(sums, 4, 0), from = parts_of<float>(terms, 4, 0);
         std::vector<ArraysOfTensor<2>> tensors;
         for (size_t i = 0; i < 4; ++i) tensors.push_back({{to[i], from[i]}, kFloats / 4});
         add_all("report", DType::kF32, tensors, nullptr);
         check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize());
       }},
      of_losses<float>("sum of losses, f32", false, false),
      of_losses<bf16>("sum of losses, bf16", false, false),
      of_losses<float>("sum of losses, f32, one target", true, false),
      of_losses<float>("sum of losses with slopes, f32", false, true),
      of_gradients<float>("norm of gradients, f32", 1,
                          [](Gradients x, const Zeros& sums) {
                            power_sums("report", as<double>(sums), DType::kF32, x, 2, nullptr);
                            norm_of_sums("report", {sums.data() + kBytes / 2, DType::kF32}, as<double>(sums),
                                         chunks_of(x), 2, nullptr);
                          }),
      of_gradients<bf16>("norm of gradients, bf16", 1,
                         [](Gradients x, const Zeros& sums) {
                           power_sums("report", as<double>(sums), DType::kBF16, x, 2, nullptr);
                         }),
      of_gradients<float>("clip by norm, f32", 2,
                          [](Gradients x, const Zeros& norm) {
                            clip_by_norm("report", {norm.data(), DType::kF32}, DType::kF32, x, 0, nullptr);
                          }),
      of_gradients<float>("clip by value, f32", 2,
                          [](Gradients x, const Zeros&) {
                            clip_by_value("report", DType::kF32, x, 1, nullptr);
                          }),
      of_gradients<float>("unscale, f32", 2,
                          [](Gradients x, const Zeros& bad) {
                            unscale("report", as<int32_t>(bad), DType::kF32, x, 1, nullptr, nullptr);
                            float* const found = as<float>(bad) + kFloats / 2;
                            any_nonfinite("report", found, as<int32_t>(bad), chunks_of(x), nullptr);
                            auto* const scales = as<gradus::raw::LossScale>(bad) + kFloats / 16;
                            move_scale("report", scales, scales + 1, nullptr, found, {2, 1, 1}, {}, nullptr);
                          }),
  };
}

void mark() { launch("report", case_begins, {1, 1}, nullptr); }

}  // namespace report
