// Cases of element-wise ops, copies, random numbers, and of steps of optimizers and their gradients.
#include <array>
#include <functional>
#include <memory>
#include <span>

#include "case_operands.h"
#include "gradus/optim/rules/adam.h"
#include "gradus/optim/rules/lars.h"
#include "gradus/optim/rules/sgd.h"
#include "gradus/tensor/cuda/kernels/copy.h"
#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/kernels/gradients.h"
#include "gradus/tensor/cuda/kernels/multinomial.h"
#include "gradus/tensor/cuda/kernels/optim_step.h"
#include "gradus/tensor/cuda/kernels/random.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"

namespace report {
namespace {

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
    synchronize();
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

// Random numbers of shape [n] or [rows, columns], 1 MiB large.
template <class T, class F>
Case drawn(const char* what, F&& f, const Sizes& sizes = {kBytes / int64_t(sizeof(T))},
           const Strides& strides = {1}, double most = kDense) {
  return {what, kAll, most, [=] {
            const Zeros y;
            f(DrawOutput{{y.data(), dtype_v<T>}, sizes, strides});
            synchronize();
          }};
}
// Multinomial draws with equal weights. Without replacement, sorted candidates are written and read again.
Case drawn_by_weights(const char* what, int64_t rows, int64_t n, int64_t count, bool replacement,
                      double most = kDense) {
  const double weights = static_cast<double>(rows * n) * 8, drawn = static_cast<double>(rows * count) * 8;
  const double bytes = replacement ? 2 * weights + 2 * drawn : (3 + 4) * weights + drawn;
  return {what, bytes, most, [=] {
            const Elements<double> w(std::vector<double>(static_cast<size_t>(rows * n), 1));
            const Zeros u(rows * std::max(n, count) * 8), y(rows * count * 8);
            const Multinomial m{as<int64_t>(y), as<double>(w), as<double>(u), rows, n, count};
            const Zeros workspace(multinomial_workspace(m, replacement));
            multinomial("report", m, replacement, workspace.data(), {}, nullptr);
            synchronize();
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
        synchronize();
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
            synchronize();
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
            synchronize();
          }};
}

// Rounds 1 MiB of f32 in four tensors, which begin at element `start`, to P.
template <class P> Case rounded(const char* what, int64_t start, double most) {
  const int64_t n = kFloats / 4 - start;
  return {what, static_cast<double>(4 * n) * (sizeof(float) + sizeof(P)), most, [=] {
            const Zeros x, y;
            const auto to = parts_of<P>(y, 4, start);
            const auto from = parts_of<float>(x, 4, start);
            std::vector<ArraysOfTensor<2>> tensors;
            for (size_t i = 0; i < 4; ++i) tensors.push_back({{to[i], from[i]}, n});
            copy_each("report", dtype_v<P>, DType::kF32, tensors, nullptr);
            synchronize();
          }};
}

// Copies four arrays [rows, columns] of f32 side by side to one of 1 MiB.
Case joined(const char* what, int64_t columns, double most) {
  const int64_t rows = kFloats / 4 / columns;
  return {what, 2. * static_cast<double>(4 * rows * columns) * 4, most, [=] {
            const Zeros x, y;
            const Strides strides[] = {{4 * columns, 1}, {columns, 1}};
            std::vector<StridedCopy> copies;
            for (int64_t i = 0; i < 4; ++i)
              copies.push_back({make_strided_index(Sizes{rows, columns}, strides),
                                {View{as<float>(y) + i * columns, DType::kF32},
                                 View{as<float>(x) + i * rows * columns, DType::kF32}}});
            copy_all("report", copies, nullptr);
            synchronize();
          }};
}

}  // namespace

std::vector<Case> elementwise_cases() {
  using namespace gradus::functors;  // NOLINT
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
      joined("four copies f32, rows of 64", 64, kDense),
      joined("four copies f32, rows of 1000", 1000, kDense),
      {"fill f32", kAll, kDense, filled(dense<float>())},
      {"fill bf16", kAll, kDense, filled(dense<bf16>())},
      {"fill f32, rows with gaps", kAll * 1000 / 1024, kStrided,
       filled(Operands<float>{{kFloats / 1024, 1000}, {{{1024, 1}}}})},
      {"arange f32", kAll, kDense,
       [] {
         const Zeros y;
         arange("report", {y.data(), DType::kF32}, kFloats, 0, 1, nullptr);
         synchronize();
       }},
      {"linspace f64", kAll, kDense,
       [] {
         const Zeros y;
         linspace("report", {y.data(), DType::kF64}, kBytes / 8, 0, 1, nullptr);
         synchronize();
       }},
      drawn<float>("uniform numbers f32",
                   [](const DrawOutput& y) { uniform("report", y, 0, 1, {}, nullptr); }),
      drawn<float>("uniform numbers f32, channels last",
                   [](const DrawOutput& y) { uniform("report", y, 0, 1, {}, nullptr); }, {64, kPixels}, {1, 64},
                   kStrided),
      drawn<float>("uniform numbers f32, counted on the device",
                   [](const DrawOutput& y) {
                     const Zeros base(16);
                     uniform("report", y, 0, 1, {.base = as<uint64_t>(base)}, nullptr);
                     synchronize();
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
         synchronize();
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
         synchronize();
       }},
      {"masked scale f32", 2.25 * kAll, kDense, [] {
         dense<float, float, bool>().run([](const StridedIndex& index, const View* views) {
           masked_scale("report", index, views, 2, nullptr);
         });
       }},
      rounded<bf16>("round f32 to bf16", 0, kDense),
      rounded<f16>("round f32 to f16, misaligned", 1, kStrided),
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
                       synchronize();
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
         synchronize();
       }},
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

}  // namespace report
