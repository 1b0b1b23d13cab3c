// Reduction kernels of all ops and dtypes against loops on the host: integers and extremes exactly, float
// sums within a bound on roundings of the kernel's order of summation.
#include "reductions_test.h"

namespace device_test {
namespace {

// Compensated f64 sum.
// Source: Neumaier, Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen.
class ExactSum {
 public:
  void operator+=(double x) {
    const double next = sum_ + x;
    lost_ += std::abs(sum_) >= std::abs(x) ? (sum_ - next) + x : (x - next) + sum_;
    sum_ = next;
  }
  double get() const { return sum_ + lost_; }

 private:
  double sum_ = 0, lost_ = 0;
};

// A little more than half a unit in the last place of T at x.
template <class T> double rounding(double x) {
  constexpr int kBits = std::is_same_v<T, double>  ? 53
                        : std::is_same_v<T, float> ? 24
                        : std::is_same_v<T, f16>   ? 11
                                                   : 8;
  return std::max(std::abs(x), std::is_same_v<T, f16> ? 6.2e-5 : 1e-30) * std::ldexp(1.01, -kBits);
}

// The kernel sums 16 elements per lane in f32, then lanes in f64: 16 roundings, and n / 16 + 64 of f64.
template <class T> void test_float_sum(const char* name) {
  Group group(std::string("sum of ") + name);
  if (!group) return;
  const double scale = 0.25;
  run_reduction(group, cuda::Sum<T>{scale}, false, [&](T got, const T* x, int64_t n, int64_t stride) {
    ExactSum sum, magnitude;
    for (int64_t i = 0; i < n; ++i)
      sum += as_double(x[i * stride]), magnitude += std::abs(as_double(x[i * stride]));
    const double want = sum.get() * scale, size = magnitude.get() * scale;
    const double lanes = std::is_same_v<T, double> ? 0. : 16 * 0x1p-24 * size;
    const double wide = (64 + static_cast<double>(n) / 16) * 0x1p-53 * size;
    return std::abs(as_double(got) - want) <= lanes + wide + rounding<T>(want);
  });
}
template <class T> void test_integer_sum(const char* name) {
  Group group(std::string("sum of ") + name);
  if (!group) return;
  run_reduction(group, cuda::Sum<T>{}, true, [&](int64_t got, const T* x, int64_t n, int64_t stride) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<uint64_t>(x[i * stride]);
    return got == static_cast<int64_t>(sum);
  });
}
template <class T, bool largest> void test_extreme(const char* name) {
  Group group(std::string(largest ? "amax of " : "amin of ") + name);
  if (!group) return;
  run_reduction(group, cuda::Extreme<T, largest>{}, true, [&](T got, const T* x, int64_t n, int64_t stride) {
    T best = x[0];
    for (int64_t i = 1; i < n; ++i) {
      const T v = x[i * stride];
      if (!is_nan(best) && (is_nan(v) || (largest ? v > best : v < best))) best = v;
    }
    return same(got, best) || got == best;  // either zero
  });
}

template <class T> void test_extremum(const char* name) {
  Group group(std::string("max and min of ") + name);
  if (!group) return;
  run_extremum<T>(group, true);
  run_extremum<T>(group, false);
}

// A lane rounds 16 times, and the power once.
template <cuda::Power power> void test_norm(const char* name, double p) {
  Group group(std::string("norm of ") + name);
  if (!group) return;
  run_reduction(group, cuda::Norm<float, power>{{1.}, p, true}, false,
                [&](float got, const float* x, int64_t n, int64_t stride) {
                  ExactSum sum;
                  for (int64_t i = 0; i < n; ++i)
                    sum += p == 0 ? double(x[i * stride] != 0) : std::pow(std::abs(double(x[i * stride])), p);
                  const double want = p == 0 ? sum.get() : std::pow(sum.get(), 1 / p);
                  return std::abs(got - want) <=
                         (20 * 0x1p-24 + static_cast<double>(n) * 0x1p-53) * want + rounding<float>(want);
                });
}
// A lane sums squared distances from its first element, at most 4 each for numbers between -1 and 1, with 16
// roundings.
template <class T> void test_variance(const char* name) {
  Group group(std::string("variance of ") + name);
  if (!group) return;
  run_reduction(group, cuda::Variance<T>{0.5}, false, [](T got, const T* x, int64_t n, int64_t stride) {
    ExactSum sum, squares;
    for (int64_t i = 0; i < n; ++i) sum += double(x[i * stride]);
    const double mean = sum.get() / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i)
      squares += (double(x[i * stride]) - mean) * (double(x[i * stride]) - mean);
    const double want = squares.get() * 0.5, unit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
    const double most = static_cast<double>(n) * 4 * 0.5;
    return std::abs(double(got) - want) <=
           18 * unit * most + (64 + static_cast<double>(n) / 16) * 0x1p-53 * most + rounding<T>(want);
  });
}

template <class T> void test_largest_magnitude(const char* name) {
  Group group(std::string("largest |x| of ") + name);
  if (!group) return;
  run_reduction(group, cuda::ExtremeAbs<T, true>{}, false, [](T got, const T* x, int64_t n, int64_t stride) {
    T best = 0;
    for (int64_t i = 0; i < n; ++i) best = std::max(best, std::abs(x[i * stride]));
    return got == best;
  });
}

}  // namespace

void test_reductions() {
  test_float_sum<float>("f32");
  test_float_sum<bf16>("bf16");
  test_float_sum<f16>("f16");
  test_float_sum<double>("f64");
  test_integer_sum<int64_t>("i64");
  test_integer_sum<int32_t>("i32");
  test_integer_sum<int16_t>("i16");
  test_integer_sum<int8_t>("i8");
  test_integer_sum<uint8_t>("u8");
  test_extreme<float, true>("f32");
  test_extreme<float, false>("f32");
  test_extreme<double, true>("f64");
  test_extreme<int32_t, false>("i32");
  test_extreme<int8_t, false>("i8");
  test_extreme<uint8_t, true>("u8");
  test_extremum<float>("f32");
  test_extremum<double>("f64");
  test_extremum<bf16>("bf16");
  test_extremum<uint8_t>("u8");
  test_extremum<int64_t>("i64");
  {
    Group group("any");
    if (group)
      run_reduction(group, cuda::Logical<true>{}, false,
                    [](uint8_t got, const uint8_t* x, int64_t n, int64_t stride) {
                      bool any = false;
                      for (int64_t i = 0; i < n; ++i) any = any || x[i * stride];
                      return got == any;
                    });
  }
  test_norm<cuda::Power::kZero>("f32, p = 0", 0);
  test_norm<cuda::Power::kOne>("f32, p = 1", 1);
  test_norm<cuda::Power::kTwo>("f32, p = 2", 2);
  test_norm<cuda::Power::kAny>("f32, p = 3", 3);
  test_variance<float>("f32");
  test_variance<double>("f64");
  test_largest_magnitude<float>("f32");
  test_largest_magnitude<double>("f64");
  {
    Group group("prod of i64");
    if (group)
      run_reduction(group, cuda::Prod<int64_t>{}, true,
                    [](int64_t got, const int64_t* x, int64_t n, int64_t stride) {
                      uint64_t product = 1;
                      for (int64_t i = 0; i < n; ++i) product *= static_cast<uint64_t>(x[i * stride]);
                      return got == static_cast<int64_t>(product);
                    });
  }
}

}  // namespace device_test
