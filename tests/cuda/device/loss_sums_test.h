// Kernels that sum a point-wise loss and compute its gradient, against loops on the host: gradients are
// bit-equal.
#pragma once

#include <string>
#include <vector>

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/losses/loss_sum.h"
#include "gradus/tensor/ops/arithmetic.h"

namespace device_test {

// A made-up gradient without a fusible multiply-add, so that host and device have equal bits.
struct Slope : gradus::functors::OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const { return dy * (t - x); }
};

// The loss is x * target. Its sum in f64 rounds n times at most, and once more to T.
template <class T> void test_loss_sums_in(const char* name) {
  Group group(std::string("sums of losses in ") + name);
  if (!group) return;
  constexpr int kBits = std::is_same_v<T, double>  ? 53
                        : std::is_same_v<T, float> ? 24
                        : std::is_same_v<T, f16>   ? 11
                                                   : 8;
  const gradus::functors::Mul loss;
  std::vector<size_t> sizes = {1, 2, 7, 31, 32, 255, 257, 2049, 4095, 4096, 4097, 8192, 8195, 20'000};
  if (!options().small) sizes.push_back(3'000'001);
  for (const size_t n : sizes)
    for (const size_t start : {0, 1})
      for (const bool alone : {false, true}) {  // one target for all
        std::vector<T> x(n), t(n);
        for (size_t i = 0; i < n; ++i) x[i] = sample<T>(i, 1, false), t[i] = sample<T>(i, 2, false);
        const double target = 0.3, factor = 0.7;
        const gradus::functors::ScaledGradient<Slope> gradient{{}, factor};
        double sum = 0, magnitude = 0;
        std::vector<T> slopes(n);
        for (size_t i = 0; i < n; ++i) {
          using C = cuda::compute_t<T>;
          const C element = widened(x[i]), wanted = alone ? static_cast<C>(target) : widened(t[i]);
          const auto y = static_cast<double>(loss(element, wanted));
          sum += y, magnitude += std::abs(y);
          slopes[i] = static_cast<T>(gradient(C(1), element, wanted));
        }
        const Elements<T> there(x, start), targets(t, start), out(1), slopes_there(n, start);
        const auto chunks = static_cast<size_t>(cuda::loss_sum_workspace(static_cast<int64_t>(n)) / 8);
        const Elements<double> workspace(chunks);
        T got[2];
        for (const bool with_slopes : {false, true}) {
          cuda::sum_losses<T>("test", loss, gradient, out.data(), with_slopes ? slopes_there.data() : nullptr,
                              there.data(), alone ? nullptr : targets.data(), target, static_cast<int64_t>(n),
                              workspace.data(), nullptr);
          got[with_slopes] = out.take()[0];
        }
        const std::vector<T> got_slopes = slopes_there.take();
        size_t wrong = 0;
        for (size_t i = 0; i < n; ++i) wrong += !same(got_slopes[i], slopes[i]);
        group.check(wrong == 0, "%zu elements from %zu: %zu slopes are wrong", n, start, wrong);
        const double want = factor * sum;
        const double allowed = static_cast<double>(n + 2) * 0x1p-52 * magnitude +
                               std::ldexp(1.01 * std::max(std::abs(want), 6.2e-5), -kBits);
        group.check(std::abs(as_double(got[0]) - want) <= allowed, "%zu elements from %zu: %.17g, not %.17g",
                    n, start, as_double(got[0]), want);
        group.check(same(got[0], got[1]), "%zu elements: two runs differ", n);
        group.check(out.is_clean() && workspace.is_clean() && slopes_there.is_clean(),
                    "%zu elements: written outside", n);
      }
}

}  // namespace device_test
