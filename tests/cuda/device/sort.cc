// Kernels of sort, topk and the order of rows against std::stable_sort, bit for bit, and of cumsum against host loops,
// in sizes around a warp, a tile of the sort (256), and the pieces of a running sum.
#include "gradus/tensor/cuda/kernels/sort.h"

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/cumsum.h"

namespace device_test {
namespace {

// Few different values, with NaN and -0, so that stability matters.
template <class T> std::vector<T> values(int64_t count) {
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 3 ? from_double<T>(double(mix(i) % 7)) : sample<T>(i, 1);
  return x;
}
// Whether a sorts before b: NaN last.
template <class T> bool is_less(T a, T b) {
  const auto v = widened(a), w = widened(b);
  return is_nan(b) ? !is_nan(a) : v < w;
}

template <class T> void check_sort(Group& group, const cuda::SortShape& s, bool descending) {
  const std::vector<T> x = values<T>(s.outer * s.n * s.inner);
  std::vector<T> want(size_t(s.outer * s.k * s.inner));
  std::vector<int64_t> want_index(want.size()), order(static_cast<size_t>(s.n));
  for (int64_t row = 0; row < s.outer * s.inner; ++row) {
    const auto at = [&](int64_t n, int64_t i) {
      return size_t((row / s.inner * n + i) * s.inner + row % s.inner);
    };
    for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? is_less(x[at(s.n, b)], x[at(s.n, a)]) : is_less(x[at(s.n, a)], x[at(s.n, b)]);
    });
    for (int64_t i = 0; i < s.k; ++i)
      want_index[at(s.k, i)] = order[size_t(i)], want[at(s.k, i)] = x[at(s.n, order[size_t(i)])];
  }
  const Elements<T> from(x), to(want.size());
  const Elements<int64_t> indices(want.size());
  const Buffer workspace(static_cast<size_t>(cuda::sort_workspace(s)));
  const DType dtype = gradus::dtype_v<T>;
  cuda::sort("test", {to.data(), dtype}, indices.data(), {from.data(), dtype}, s, descending,
             workspace.data(), nullptr);
  const std::vector<T> got = to.take();
  group.check(std::equal(got.begin(), got.end(), want.begin(), &same<T>) && indices.take() == want_index &&
                  to.is_clean() && indices.is_clean(),
              "[%lld, %lld, %lld] to %lld, descending %d", (long long)s.outer, (long long)s.n,
              (long long)s.inner, (long long)s.k, descending);
}

template <class T> void check_rows(Group& group, int64_t n, int64_t m) {
  const std::vector<T> x = values<T>(n * m);
  std::vector<int64_t> want(static_cast<size_t>(n));
  for (size_t i = 0; i < want.size(); ++i) want[i] = int64_t(i);
  std::stable_sort(want.begin(), want.end(), [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(x.begin() + a * m, x.begin() + a * m + m, x.begin() + b * m,
                                        x.begin() + b * m + m, &is_less<T>);
  });
  const Elements<T> from(x);
  const Elements<int64_t> order(want.size());
  const Buffer workspace(static_cast<size_t>(cuda::sort_rows_workspace(n)));
  cuda::sort_rows("test", order.data(), {from.data(), gradus::dtype_v<T>}, n, m, workspace.data(), nullptr);
  group.check(order.take() == want && order.is_clean(), "%lld rows of %lld", (long long)n, (long long)m);
}

template <class T> void test_sorts(const char* name) {
  Group group(std::string("sorts of ") + name);
  if (!group) return;
  std::vector<cuda::SortShape> shapes = {{1, 1, 1, 1},     {1, 255, 1, 255}, {2, 257, 1, 257}, {3, 33, 5, 33},
                                         {1, 600, 1, 600}, {2, 300, 3, 7},   {1, 1025, 1, 1},  {40, 6, 1, 6}};
  if (!options().small) shapes.insert(shapes.end(), {{1, 1'000'003, 1, 1'000'003}, {64, 5000, 7, 100}});
  for (const cuda::SortShape& s : shapes)
    for (const bool descending : {false, true}) check_sort<T>(group, s, descending);
  for (const int64_t n : {1, 37, 300})
    for (const int64_t m : {1, 2, 5}) check_rows<T>(group, n, m);
}

// Integers, so that sums are exact.
template <class T, class Out> void test_sums(const char* name) {
  Group group(std::string("running sums of ") + name);
  if (!group) return;
  std::vector<std::array<int64_t, 3>> shapes = {
      {1, 1, 1},   {1, 31, 1},   {2, 33, 1}, {1, 511, 1}, {1, 512, 1}, {1, 1025, 1}, {3, 700, 1},
      {2, 513, 3}, {1, 900, 33}, {5, 7, 40}, {1, 4, 300}, {300, 9, 1}, {1, 9000, 1}, {1, 4000, 2}};
  if (!options().small) shapes.insert(shapes.end(), {{1, 9'000'001, 1}, {20'000, 300, 1}, {7, 5000, 900}});
  for (const auto& [outer, n, inner] : shapes)
    for (const bool reverse : {false, true}) {
      std::vector<T> x(size_t(outer * n * inner));
      for (size_t i = 0; i < x.size(); ++i) x[i] = from_double<T>(double(mix(i) % 3));
      std::vector<Out> want(x.size());
      for (int64_t row = 0; row < outer * inner; ++row) {
        int64_t sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          const auto at = size_t((row / inner * n + (reverse ? n - 1 - i : i)) * inner + row % inner);
          want[at] = from_double<Out>(double(sum += int64_t(as_double(x[at]))));
        }
      }
      const Elements<T> from(x);
      const Elements<Out> to(x.size());
      const Buffer workspace(static_cast<size_t>(cuda::cumsum_workspace(outer, n, inner)));
      cuda::cumsum("test", {to.data(), gradus::dtype_v<Out>}, {from.data(), gradus::dtype_v<T>}, outer, n,
                   inner, reverse, workspace.data(), nullptr);
      const std::vector<Out> got = to.take();
      group.check(std::equal(got.begin(), got.end(), want.begin(), &same<Out>) && to.is_clean(),
                  "[%lld, %lld, %lld], reverse %d", (long long)outer, (long long)n, (long long)inner,
                  reverse);
    }
}

}  // namespace

void test_sort() {
  test_sorts<float>("f32");
  test_sorts<double>("f64");
  test_sorts<f16>("f16");
  test_sorts<int64_t>("i64");
  test_sorts<uint8_t>("u8");
  test_sums<float, float>("f32");
  test_sums<double, double>("f64");
  test_sums<bf16, bf16>("bf16");
  test_sums<int8_t, int64_t>("i8");
  test_sums<int64_t, int64_t>("i64");
}

}  // namespace device_test
