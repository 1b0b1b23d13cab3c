// Kernels of cumsum, cumprod, logcumsumexp, cummax, cummin and linear recurrences against host loops, in
// sizes around a warp, the elements that a thread loads at once, and the pieces of a scan. Two runs must have
// the same bits.
#include "gradus/tensor/cuda/kernels/scans.h"

#include "device_test.h"

namespace device_test {
namespace {

std::vector<cuda::ScanShape> shapes() {
  std::vector<cuda::ScanShape> all = {
      {1, 1, 1},   {2, 31, 1},  {1, 32, 1},      {3, 33, 1},   {1, 63, 1},   {2, 65, 1},   {1, 127, 1},
      {1, 128, 1}, {2, 129, 1}, {1, 1023, 1},    {1, 2047, 1}, {2, 2048, 1}, {1, 6144, 1}, {300, 3, 1},
      {2, 1, 3},   {1, 2, 5},   {2, 3, 2},       {1, 5, 7},    {1, 511, 2},  {2, 512, 3},  {1, 777, 33},
      {5, 7, 40},  {1, 4, 300}, {1, 140'000, 2}, {0, 4, 2},    {3, 0, 1}};
  if (!options().small)
    for (const cuda::ScanShape& s :
         {cuda::ScanShape{1, 9'000'001, 1}, {20'000, 300, 1}, {7, 5000, 900}, {1, 1'000'000, 5}})
      all.push_back(s);
  return all;
}

size_t size_of(const cuda::ScanShape& s) { return size_t(s.outer * s.n * s.inner); }
std::string name_of(const cuda::ScanShape& s) {
  return "[" + std::to_string(s.outer) + ", " + std::to_string(s.n) + ", " + std::to_string(s.inner) + "]" +
         (s.reverse ? " in reverse" : "");
}
// Calls f(offset, i) for each element i of each row, in the order of the scan.
template <class F> void for_each_element(const cuda::ScanShape& s, F&& f) {
  for (int64_t row = 0; row < s.outer * s.inner; ++row)
    for (int64_t i = 0; i < s.n; ++i)
      f(size_t((row / s.inner * s.n + (s.reverse ? s.n - 1 - i : i)) * s.inner + row % s.inner), i);
}

// Runs the scan twice, run(result, workspace). Returns the result.
template <class T, class F>
std::vector<T> twice(Group& group, const char* what, const cuda::ScanShape& s, F&& run) {
  const Elements<T> out(size_of(s));
  const Buffer workspace(static_cast<size_t>(cuda::scans_workspace(s)));
  run(out.data(), workspace.data());
  const std::vector<T> first = out.take();
  run(out.data(), workspace.data());
  group.check(same_bits(first, out.take()) && out.is_clean(), "%s of %s: two runs differ, or written outside",
              what, name_of(s).c_str());
  return first;
}

// Compares each element with `want` within the roundings of a scan in f64 and of a result of type T, relative
// to `size`, or to the element where `size` is 0.
template <class T>
void check_near(Group& group, const char* what, const cuda::ScanShape& s, const std::vector<T>& got,
                const std::vector<T>& want, double size) {
  const double unit = std::is_same_v<T, double> ? 0x1p-52 : 0x1p-23;
  const double allowed = unit + 0x1p-51 * double(s.n + 8);
  for (size_t i = 0; i < want.size(); ++i) {
    const double g = double(got[i]), w = double(want[i]);
    group.check(same(got[i], want[i]) || std::abs(g - w) <= allowed * (size > 0 ? size : std::abs(w)),
                "%s of %s at %zu: %.17g, not %.17g", what, name_of(s).c_str(), i, g, w);
  }
}

// Factors near 1, and in every second shape a 0 before factors whose product overflows: their products are 0,
// not NaN.
template <class T> void check_products(Group& group, const cuda::ScanShape& s) {
  const DType dtype = gradus::dtype_v<T>;
  std::vector<T> x(size_of(s)), want(x.size());
  double product = 1;
  for_each_element(s, [&](size_t at, int64_t i) {
    x[at] = T(1 + 0.01 * double(sample<T>(at, 1, false)));
    if (s.n % 2 == 0 && i >= s.n / 3) x[at] = i == s.n / 3 ? T(0) : T(1e30);
    product = i == 0 ? double(x[at]) : product * double(x[at]);
    want[at] = T(product);
  });
  const Elements<T> from(x);
  const std::vector<T> got = twice<T>(group, "cumprod", s, [&](T* out, void* workspace) {
    cuda::cumprod("test", {out, dtype}, {from.data(), dtype}, s, workspace, nullptr);
  });
  check_near(group, "cumprod", s, got, want, 0);
}

// Factors between -1 and 1, or of 2 in every third shape, where b is 0 and so is the solution. The first
// factor is NaN.
template <class T> void check_recurrence(Group& group, const cuda::ScanShape& s) {
  const DType dtype = gradus::dtype_v<T>;
  const bool grows = s.n % 3 == 0;
  std::vector<T> a(size_of(s)), b(a.size()), want(a.size());
  double last = 0;
  for_each_element(s, [&](size_t at, int64_t i) {
    a[at] = i == 0 ? T(NAN) : grows ? T(2) : sample<T>(at, 2, false);
    b[at] = grows ? T(0) : T(2 + double(sample<T>(at, 3, false)));
    last = i == 0 ? double(b[at]) : double(b[at]) + double(a[at]) * last;
    want[at] = T(last);
  });
  const Elements<T> factors(a), terms(b);
  const std::vector<T> got = twice<T>(group, "linear recurrence", s, [&](T* out, void* workspace) {
    cuda::linear_recurrence("test", {out, dtype}, {factors.data(), dtype}, {terms.data(), dtype}, s,
                            workspace, nullptr);
  });
  check_near(group, "linear recurrence", s, got, want, 10);
}

// Rows that begin with -infinity, and rows with infinities and a NaN at the end.
template <class T> void check_log_sums(Group& group, const cuda::ScanShape& s) {
  const DType dtype = gradus::dtype_v<T>;
  std::vector<T> x(size_of(s)), want(x.size());
  double sum = 0;
  for_each_element(s, [&](size_t at, int64_t i) {
    x[at] = T(20 * double(sample<T>(at, 4, false)));
    if (s.n % 4 == 1 && i < 3) x[at] = T(-INFINITY);
    if (s.n % 4 == 3 && i > s.n / 2) x[at] = i == s.n - 1 ? T(NAN) : T(INFINITY);
    const double v = double(x[at]), high = std::max(v, sum), low = std::min(v, sum);
    sum = i == 0                             ? v
          : std::isnan(v) || std::isnan(sum) ? NAN
          : std::isinf(high)                 ? high
                                             : high + std::log1p(std::exp(low - high));
    want[at] = T(sum);
  });
  const Elements<T> from(x);
  const std::vector<T> got = twice<T>(group, "logcumsumexp", s, [&](T* out, void* workspace) {
    cuda::logcumsumexp("test", {out, dtype}, {from.data(), dtype}, s, workspace, nullptr);
  });
  check_near(group, "logcumsumexp", s, got, want, 40);
}

template <class T> void test_floats(const char* name) {
  Group group(std::string("scans of ") + name);
  if (!group) return;
  for (cuda::ScanShape s : shapes()) {
    check_log_sums<T>(group, s);
    for (const bool reverse : {false, true}) {
      s.reverse = reverse;
      check_products<T>(group, s);
      check_recurrence<T>(group, s);
    }
  }
}

// Integers, so that sums are exact. Results are in place in every second shape, where x has their dtype.
template <class T, class Out> void test_sums(const char* name) {
  Group group(std::string("running sums of ") + name);
  if (!group) return;
  for (cuda::ScanShape s : shapes())
    for (const bool reverse : {false, true}) {
      s.reverse = reverse;
      std::vector<T> x(size_of(s));
      std::vector<Out> want(x.size());
      int64_t sum = 0;
      for_each_element(s, [&](size_t at, int64_t i) {
        x[at] = from_double<T>(double(mix(at) % 3));
        sum = (i == 0 ? 0 : sum) + int64_t(as_double(x[at]));
        want[at] = from_double<Out>(double(sum));
      });
      const Elements<T> from(x);
      const std::vector<Out> got = twice<Out>(group, "cumsum", s, [&](Out* out, void* workspace) {
        cuda::View source{from.data(), gradus::dtype_v<T>};
        if constexpr (std::is_same_v<T, Out>) {
          if (s.n % 2 && !x.empty()) {
            MUST(cudaMemcpy(out, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
            source.data = out;
          }
        }
        cuda::cumsum("test", {out, gradus::dtype_v<Out>}, source, s, workspace, nullptr);
      });
      group.check(std::equal(got.begin(), got.end(), want.begin(), &same<Out>), "%s", name_of(s).c_str());
    }
}

// Few different values, so that there are equal ones, and NaN in floats.
template <class T> void test_extremes(const char* name) {
  Group group(std::string("running extremes of ") + name);
  if (!group) return;
  const DType dtype = gradus::dtype_v<T>;
  for (const cuda::ScanShape& s : shapes())
    for (const bool largest : {false, true}) {
      std::vector<T> x(size_of(s)), want(x.size());
      std::vector<int64_t> want_index(x.size());
      T best{};
      int64_t index = 0;
      for_each_element(s, [&](size_t at, int64_t i) {
        const double drift = double(largest ? i : s.n - i) / double(s.n);
        x[at] = from_double<T>(std::floor(double(mix(at) % 5) + 100 * drift));
        if (gradus::is_floating(dtype) && s.n % 2 && mix(at + 9) % size_t(s.n) == 1)
          x[at] = from_double<T>(NAN);
        if constexpr (std::is_same_v<T, int64_t>) x[at] += int64_t{1} << 62;  // f64 would round these
        const auto v = widened(x[at]), earlier = widened(best);
        if (i == 0 || is_nan(x[at]) || (largest ? v >= earlier : v <= earlier)) best = x[at], index = i;
        want[at] = best, want_index[at] = index;
      });
      const Elements<T> from(x);
      const Elements<int64_t> indices(x.size());
      const std::vector<T> got = twice<T>(group, "extremes", s, [&](T* out, void* workspace) {
        cuda::running_extremes("test", {out, dtype}, indices.data(), {from.data(), dtype}, s, largest,
                               workspace, nullptr);
      });
      group.check(std::equal(got.begin(), got.end(), want.begin(), &same<T>) &&
                      indices.take() == want_index && indices.is_clean(),
                  "%s, largest %d", name_of(s).c_str(), largest);
    }
}

// Modulo 2^64.
void test_integer_products() {
  Group group("running products of i64");
  if (!group) return;
  for (const cuda::ScanShape& s : shapes()) {
    std::vector<int64_t> x(size_of(s)), want(x.size());
    uint64_t product = 1;
    for_each_element(s, [&](size_t at, int64_t i) {
      x[at] = int64_t(mix(at) | 1);
      product = i == 0 ? uint64_t(x[at]) : product * uint64_t(x[at]);
      want[at] = int64_t(product);
    });
    const Elements<int64_t> from(x);
    const std::vector<int64_t> got = twice<int64_t>(group, "cumprod", s, [&](int64_t* out, void* workspace) {
      cuda::cumprod("test", {out, DType::kI64}, {from.data(), DType::kI64}, s, workspace, nullptr);
    });
    group.check(got == want, "%s", name_of(s).c_str());
  }
}

}  // namespace

void test_scans() {
  test_sums<float, float>("f32");
  test_sums<double, double>("f64");
  test_sums<bf16, bf16>("bf16");
  test_sums<int8_t, int64_t>("i8");
  test_sums<int64_t, int64_t>("i64");
  test_floats<float>("f32");
  test_floats<double>("f64");
  test_integer_products();
  test_extremes<float>("f32");
  test_extremes<double>("f64");
  test_extremes<bf16>("bf16");
  test_extremes<int64_t>("i64");
  test_extremes<uint8_t>("u8");
}

}  // namespace device_test
