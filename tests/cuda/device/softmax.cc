// Kernels for softmax and log-softmax over n of [outer, n, inner], forward and gradient, against f64 loops on
// the host within a bound on roundings; two runs must have the same bits. 16-bit results are rounded once.
#include "gradus/tensor/cuda/kernels/softmax.h"

#include "device_test.h"

namespace device_test {
namespace {

struct Lines {
  int64_t outer, n, inner;
  size_t start;  // first element of the operands, for misalignment
};

std::vector<Lines> shapes() {
  std::vector<Lines> all = {{70, 10, 1, 0}, {3, 32, 7, 0}, {2, 600, 40, 1}, {1, 17, 300, 0}};
  for (const int64_t n : {1, 2, 3, 4, 5, 16, 31, 32, 33, 64, 127, 128, 129, 255, 256, 257})
    for (const int64_t inner : {1, 9, 2, 33}) {
      if (options().small && inner == 2) break;
      all.push_back({inner == 1 ? 9 : 2, n, inner, size_t(n % 3 == 1)});
    }
  for (const int64_t n : {383, 384, 385, 388, 1023, 1024, 1028, 1536, 1538, 2048, 3072, 3073, 3076, 6000})
    for (const int64_t inner : {1, 3}) all.push_back({2, n, inner, size_t(n == 1028)});
  if (!options().small) all.push_back({1000, 1000, 1, 0}), all.push_back({1, 100'000, 1, 0});
  return all;
}

template <class T> constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;

// Numbers between -8 and 8; some lines have one of 1000, infinities or a NaN.
template <class T> std::vector<T> scores(const Lines& s) {
  std::vector<T> x(static_cast<size_t>(s.outer * s.n * s.inner));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto number = static_cast<int64_t>(i) / s.inner % s.n,
               line = static_cast<int64_t>(i) / s.inner / s.n * s.inner + static_cast<int64_t>(i) % s.inner;
    x[i] = from_double<T>(8 * as_double(sample<T>(i, 1, false)));
    if (line % 5 == 2 && number < s.n / 2) x[i] = from_double<T>(-INFINITY);
    if (line % 5 == 4 && number == s.n / 4) x[i] = from_double<T>(1000);  // nothing else counts
    if (line % 7 == 3 && number == s.n / 3) x[i] = from_double<T>(NAN);
    if (line == 6) x[i] = from_double<T>(-INFINITY);
    if (line == 8 && number == s.n - 1) x[i] = from_double<T>(INFINITY);
  }
  return x;
}

bool is_near(double got, double want, double allowed) {
  return std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= allowed;
}

// A sum rounds at most 16 times in T, exp by 2 units in the last place. In a long line a thread rescales its
// sum (online softmax) some ten times: 64 units in all.
template <class T> void check_forward(Group& group, const Lines& s, bool log) {
  const std::vector<T> x = scores<T>(s);
  const Elements<T> from(x, s.start);
  const Elements<T> to(x.size(), s.start);
  std::vector<T> y;
  for (const bool again : {false, true}) {
    cuda::softmax("test", to.data(), from.data(), s.outer, s.n, s.inner, log, nullptr);
    const std::vector<T> now = to.take();
    group.check(!again || same_bits(y, now), "[%lld, %lld, %lld]: two runs differ", (long long)s.outer,
                (long long)s.n, (long long)s.inner);
    y = now;
  }
  group.check(to.is_clean(), "[%lld, %lld, %lld]: written outside", (long long)s.outer, (long long)s.n,
              (long long)s.inner);
  for (int64_t line = 0; line < s.outer * s.inner; ++line) {
    const auto at = [&](int64_t i) {
      return static_cast<size_t>((line / s.inner * s.n + i) * s.inner + line % s.inner);
    };
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s.n; ++i) top = as_double(x[at(i)]) > top ? as_double(x[at(i)]) : top;
    for (int64_t i = 0; i < s.n; ++i) sum += std::exp(as_double(x[at(i)]) - top);
    for (int64_t i = 0; i < s.n; ++i) {
      const double above = as_double(x[at(i)]) - top,
                   want = log ? above - std::log(sum) : std::exp(above) / sum;
      const double allowed =
          kUnit<T> * (log ? 64 + 2 * std::abs(above) + 4 * std::log(sum) : (66 + std::abs(above)) * want) +
          1e-44;
      group.check(is_near(as_double(y[at(i)]), want, allowed + rounding_error<T>(std::abs(want) + allowed)),
                  "[%lld, %lld, %lld] log %d, line %lld, %lld: %.17g, not %.17g", (long long)s.outer,
                  (long long)s.n, (long long)s.inner, log, (long long)line, (long long)i, as_double(y[at(i)]),
                  want);
    }
  }
}

template <class T> void check_backward(Group& group, const Lines& s, bool log) {
  std::vector<T> y(static_cast<size_t>(s.outer * s.n * s.inner)), dy(y.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = sample<T>(i, 2, false), dy[i] = sample<T>(i, 3, false);
  const Elements<T> a(dy, s.start), b(y, s.start), to(y.size(), s.start);
  std::vector<T> dx;
  for (const bool again : {false, true}) {
    cuda::softmax_backward("test", to.data(), a.data(), b.data(), s.outer, s.n, s.inner, log, nullptr);
    const std::vector<T> now = to.take();
    group.check(!again || same_bits(dx, now), "[%lld, %lld, %lld]: two runs differ", (long long)s.outer,
                (long long)s.n, (long long)s.inner);
    dx = now;
  }
  group.check(to.is_clean(), "[%lld, %lld, %lld]: written outside", (long long)s.outer, (long long)s.n,
              (long long)s.inner);
  for (int64_t line = 0; line < s.outer * s.inner; ++line) {
    const auto at = [&](int64_t i) {
      return static_cast<size_t>((line / s.inner * s.n + i) * s.inner + line % s.inner);
    };
    double sum = 0, size = 0;
    for (int64_t i = 0; i < s.n; ++i) {
      const double term = log ? as_double(dy[at(i)]) : as_double(dy[at(i)]) * as_double(y[at(i)]);
      sum += term, size += std::abs(term);
    }
    for (int64_t i = 0; i < s.n; ++i) {
      const double g = as_double(dy[at(i)]), v = as_double(y[at(i)]);
      const double want = log ? g - std::exp(v) * sum : v * (g - sum);
      const double slope = log ? std::exp(v) : std::abs(v);
      const double allowed = kUnit<T> * (2 * std::abs(g) + 24 * slope * size + 4 * std::abs(want)) +
                             double(s.n) * 0x1p-53 * slope * size;
      group.check(is_near(as_double(dx[at(i)]), want, allowed + rounding_error<T>(std::abs(want) + allowed)),
                  "gradient, [%lld, %lld, %lld] log %d, line %lld, %lld: %.17g, not %.17g",
                  (long long)s.outer, (long long)s.n, (long long)s.inner, log, (long long)line, (long long)i,
                  as_double(dx[at(i)]), want);
    }
  }
}

template <class T> void test_type(const char* name) {
  Group group(std::string("softmax of ") + name);
  if (!group) return;
  for (const Lines& s : shapes())
    for (const bool log : {false, true}) {
      check_forward<T>(group, s, log);
      check_backward<T>(group, s, log);
    }
}

}  // namespace

void test_softmax() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<bf16>("bf16");
  test_type<f16>("f16");
}

}  // namespace device_test
