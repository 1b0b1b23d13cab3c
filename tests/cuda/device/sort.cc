// Kernels of sort, topk, kthvalue, median, mode and the order of rows against std::stable_sort, bit for bit,
// in sizes around a warp and a tile of the sort (256).
#include "gradus/tensor/cuda/kernels/sort/sort.h"

#include "device_test.h"

namespace device_test {
namespace {

using gradus::raw::Selection;

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

// Returns the index of the selected element of `row`.
template <class T> size_t selected(const std::vector<T>& row, Selection what, int64_t k) {
  std::vector<size_t> order(row.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return is_less(row[a], row[b]); });
  if (what == Selection::kKth) return order[size_t(k)];
  if (what == Selection::kMode) {
    size_t best = 0, best_run = 0, run = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      run = i > 0 && !is_less(row[order[i - 1]], row[order[i]]) ? run + 1 : 1;
      if (run > best_run) best_run = run, best = i;
    }
    return order[best];
  }
  size_t numbers = 0;
  while (numbers < row.size() && !is_nan(row[order[numbers]])) ++numbers;
  if (what == Selection::kMedian && numbers < row.size()) return order[numbers];
  return order[numbers == 0 ? 0 : (numbers - 1) / 2];
}

// A NaN, or the largest integer, whose key in a sort is that of a NaN.
template <class T> T last_value() {
  if constexpr (gradus::is_floating(gradus::dtype_v<T>))
    return from_double<T>(NAN);
  else
    return std::numeric_limits<T>::max();
}

template <class T> void test_selections(const char* name) {
  Group group(std::string("selections of ") + name);
  if (!group) return;
  std::vector<std::array<int64_t, 3>> shapes = {{1, 1, 1},   {3, 2, 1},   {70, 7, 1},  {2, 33, 5},
                                                {1, 255, 1}, {2, 257, 1}, {1, 600, 1}, {1, 1025, 3},
                                                {3, 40, 70}, {2, 1030, 1}};
  if (!options().small) shapes.insert(shapes.end(), {{1, 1'000'003, 1}, {64, 5000, 7}});
  for (const auto& [outer, n, inner] : shapes)
    for (const Selection what :
         {Selection::kKth, Selection::kMedian, Selection::kNanMedian, Selection::kMode}) {
      const cuda::SelectShape s{outer, n, inner, what, n * 2 / 3};
      std::vector<T> x = values<T>(outer * n * inner);
      for (size_t i = 0; i < x.size(); ++i)
        if (n == 2 || (n % 3 == 0 && mix(i) % 5 < 2)) x[i] = last_value<T>();
      std::vector<T> want, row(static_cast<size_t>(n));
      std::vector<int64_t> want_index;
      for (int64_t r = 0; r < outer * inner; ++r) {
        for (size_t i = 0; i < row.size(); ++i)
          row[i] = x[size_t((r / inner * n + int64_t(i)) * inner + r % inner)];
        const size_t at = selected(row, what, s.k);
        want.push_back(row[at]), want_index.push_back(int64_t(at));
      }
      const DType dtype = gradus::dtype_v<T>;
      const Elements<T> from(x), to(want.size());
      const Elements<int64_t> indices(want.size());
      const Buffer workspace(static_cast<size_t>(cuda::select_workspace(s)));
      cuda::select("test", {to.data(), dtype}, indices.data(), {from.data(), dtype}, s, workspace.data(),
                   nullptr);
      const std::vector<T> got = to.take();
      group.check(std::equal(got.begin(), got.end(), want.begin(), &same<T>) &&
                      indices.take() == want_index && to.is_clean() && indices.is_clean(),
                  "[%lld, %lld, %lld], selection %d", (long long)outer, (long long)n, (long long)inner,
                  int(what));
    }
}

}  // namespace

void test_sort() {
  test_sorts<float>("f32");
  test_sorts<double>("f64");
  test_sorts<f16>("f16");
  test_sorts<int64_t>("i64");
  test_sorts<uint8_t>("u8");
  test_selections<float>("f32");
  test_selections<double>("f64");
  test_selections<bf16>("bf16");
  test_selections<int64_t>("i64");
  test_selections<uint8_t>("u8");
}

}  // namespace device_test
