// Kernels of searchsorted and histc against host loops, bit for bit, in sizes around a block and the bins
// that a block counts in shared memory (4096).
#include "gradus/tensor/cuda/kernels/sort/search.h"

#include "device_test.h"

namespace device_test {
namespace {

// Few different values, with -0, and NaN for every third `salt`.
template <class T> std::vector<T> values(int64_t count, uint64_t salt) {
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t z = mix(i + salt * 1000);
    x[i] = from_double<T>(z % 9 == 0 ? -0. : double(z % 7));
    if (gradus::is_floating(gradus::dtype_v<T>) && salt % 3 == 0 && z % 5 < 2) x[i] = from_double<T>(NAN);
  }
  return x;
}
// Whether a sorts before b: NaN last.
template <class T> bool is_less(T a, T b) {
  const auto v = widened(a), w = widened(b);
  return is_nan(b) ? !is_nan(a) : v < w;
}

template <class T> void test_searches(const char* name) {
  Group group(std::string("searches of ") + name);
  if (!group) return;
  for (const auto& [rows, n, m] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 0, 5}, {3, 0, 2}, {2, 3, 0}, {1, 7, 300}, {5, 64, 9}, {2, 1000, 257}, {300, 2, 3}})
    for (const bool right : {false, true}) {
      std::vector<T> sorted = values<T>(rows * n, 1);
      for (int64_t r = 0; r < rows; ++r)
        std::sort(sorted.begin() + r * n, sorted.begin() + (r + 1) * n, &is_less<T>);
      const std::vector<T> sought = values<T>(rows * m, 3);
      std::vector<int64_t> want;
      for (int64_t i = 0; i < rows * m; ++i) {
        const T v = sought[size_t(i)];
        const auto begin = sorted.begin() + i / m * n, end = begin + n;
        const auto at = right ? std::upper_bound(begin, end, v, &is_less<T>)
                              : std::lower_bound(begin, end, v, &is_less<T>);
        want.push_back(is_nan(v) ? n : at - begin);
      }
      const DType dtype = gradus::dtype_v<T>;
      const Elements<T> rows_of(sorted), from(sought);
      const Elements<int64_t> to(want.size());
      cuda::searchsorted("test", to.data(), {rows_of.data(), dtype}, {from.data(), dtype}, rows, n, m, right,
                         nullptr);
      group.check(to.take() == want && to.is_clean(), "[%lld, %lld] in [%lld, %lld], right %d",
                  (long long)rows, (long long)m, (long long)rows, (long long)n, right);
    }
}

// Histogram of x [n] in the range [low, high], which is in device memory if `in_memory`.
template <class T>
std::vector<T> histogram(Group& group, const std::vector<T>& x, int64_t bins, T low, T high, bool in_memory) {
  const DType dtype = gradus::dtype_v<T>;
  const auto size = static_cast<size_t>(bins);
  const Elements<T> from(x), bounds(std::vector<T>{low, high}), to(size);
  const Elements<int64_t> counts{std::vector<int64_t>(size)};
  cuda::HistogramRange range{double(low), double(high)};
  if (in_memory) range = {0, 0, bounds.data(), bounds.data() + 1};
  cuda::histc("test", {to.data(), dtype}, counts.data(), {from.data(), dtype}, int64_t(x.size()), bins, range,
              {}, nullptr);
  group.check(to.is_clean() && counts.is_clean(), "%zu elements, %lld bins: written outside", x.size(),
              (long long)bins);
  return to.take();
}

template <class T> void test_histograms(const char* name) {
  Group group(std::string("histograms of ") + name);
  if (!group) return;
  std::vector<std::array<int64_t, 2>> shapes = {{0, 3},       {1, 1},       {255, 10},
                                                {2048, 4095}, {2049, 4096}, {5000, 7},
                                                {300, 4097},  {9000, 5000}, {1, 100'000}};
  if (!options().small) shapes.insert(shapes.end(), {{9'000'001, 100}, {3'000'000, 100'000}});
  for (const auto& [n, bins] : shapes)
    for (const int range : {0, 1, 2}) {  // given; of x in memory; of a constant x
      std::vector<T> x(static_cast<size_t>(n)), want(static_cast<size_t>(bins));
      for (size_t i = 0; i < x.size(); ++i) x[i] = range == 2 ? T(3) : sample<T>(i, uint64_t(n), false);
      if (range == 0 && n > 100) x[7] = T(NAN), x[70] = T(INFINITY), x[71] = T(-0.5), x[72] = T(0.75);
      T low = range == 0 ? T(-0.5) : T(3), high = range == 0 ? T(0.75) : T(3);
      if (range == 1 && n > 0)
        low = *std::min_element(x.begin(), x.end()), high = *std::max_element(x.begin(), x.end());
      const std::vector<T> got = histogram(group, x, bins, low, high, range > 0);
      if (low == high) low -= 1, high += 1;
      for (const T v : x)
        if (v >= low && v <= high)
          ++want[size_t(std::min(int64_t((v - low) / (high - low) * T(bins)), bins - 1))];
      group.check(got == want, "%lld elements, %lld bins, range %d", (long long)n, (long long)bins, range);
    }
  const std::vector<T> x = {1, 2, 3, T(1e20)};
  // The width of [1e20 - 1, 1e20 + 1] is 0: values are in the last bin.
  group.check(histogram(group, x, 3, T(1e20), T(1e20), true) == std::vector<T>{0, 0, 1}, "bounds of 1e20");
  for (const auto& [low, high] : std::vector<std::pair<T, T>>{
           {T(NAN), T(NAN)}, {1, T(INFINITY)}, {T(-INFINITY), 1}, {T(INFINITY), T(INFINITY)}})
    for (const T v : histogram(group, x, 4, low, high, true))
      group.check(is_nan(v), "no NaN for a range from %g to %g", double(low), double(high));
}

}  // namespace

void test_search() {
  test_searches<float>("f32");
  test_searches<f16>("f16");
  test_searches<int64_t>("i64");
  test_histograms<float>("f32");
  test_histograms<double>("f64");
}

}  // namespace device_test
