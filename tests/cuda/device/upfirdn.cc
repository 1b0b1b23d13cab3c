// Kernels of upfirdn2d and of the gradient of its filter against loops on the host, twice: the values bit for bit, the
// gradient within a bound on roundings. The sizes lie around a block of elements and a piece of rows.
#include "gradus/tensor/cuda/kernels/images/upfirdn.h"

#include "device_test.h"

namespace device_test {
namespace {

using cuda::Upfirdn;
using cuda::UpfirdnAxis;

UpfirdnAxis axis(int in, int kernel, int up = 1, int down = 1, int before = 0, int after = 0) {
  return {in, (in * up + before + after - kernel) / down + 1, kernel, up, down, before};
}

std::vector<Upfirdn> cases() {
  std::vector<Upfirdn> all = {
      {1, 1, axis(1, 1), axis(1, 1), 0},
      {2, 3, axis(5, 3, 1, 1, 1, 1), axis(6, 2, 1, 1, 1, 0), 0},     // blur
      {2, 4, axis(5, 4, 2, 1, 2, 1), axis(6, 4, 2, 1, 2, 1), 1},     // up
      {2, 8, axis(8, 4, 1, 2, 1, 1), axis(9, 4, 1, 2, 1, 1), 0},     // down
      {1, 5, axis(7, 3, 2, 3, 3, 1), axis(6, 5, 3, 2, 0, 2), 1},     // both
      {1, 2, axis(7, 2, 1, 1, -1, -2), axis(9, 3, 2, 1, -3, 2), 0},  // cropped
      {1, 2, axis(2, 3, 1, 1, 8, 8), axis(2, 1, 4, 3, 5, 9), 0},     // windows of the padding alone
      {1, 1, axis(1, 1), axis(300, 5, 1, 1, 2, 2), 0},
  };
  for (const int n : {15, 16, 17})
    all.push_back({1, 4, axis(16, 3, 1, 1, 1, 1), axis(n, 3, 1, 1, 1, 1), n % 2});
  for (const int n : {31, 32, 33}) all.push_back({2, n, axis(3, 2), axis(8, 3, 1, 1, 1, 1), n % 2});
  // One piece of the rows, two, three. Then more partial sums of a tap than threads of a block.
  for (const int n : {3, 9, 13}) all.push_back({n, 3, axis(3, 2), axis(5, 2, 1, 1, 1, 0), n % 2});
  all.push_back({1, 1, axis(1, 1), axis(66'000, 1), 0});
  if (!options().small) {
    all.push_back({16, 64, axis(65, 4, 2, 1, 2, 1), axis(63, 4, 2, 1, 2, 1), 0});
    all.push_back({40, 12, axis(30, 9, 1, 1, 4, 4), axis(40, 8, 1, 1, 4, 3), 0});
  }
  return all;
}

// Returns the input at tap `tap` of output `out`, -1 if there is none.
int input_at(const UpfirdnAxis& a, int out, int tap) {
  const int at = out * a.down + tap - a.padding;
  return at >= 0 && at % a.up == 0 && at / a.up < a.in ? at / a.up : -1;
}

// Calls f(offset in y, offset in x, offset in the filter) for all products, for each y in ascending order of taps.
template <class F> void for_each_product(const Upfirdn& s, F&& f) {
  size_t to = 0;
  const int taps = s.h.kernel * s.w.kernel;
  for (int64_t n = 0; n < s.images; ++n)
    for (int p = 0; p < s.h.out; ++p)
      for (int q = 0; q < s.w.out; ++q, to += size_t(s.channels))
        for (int k = 0; k < taps; ++k) {
          const int h = input_at(s.h, p, k / s.w.kernel), w = input_at(s.w, q, k % s.w.kernel);
          if (h < 0 || w < 0) continue;
          const auto from = size_t(((n * s.h.in + h) * s.w.in + w) * s.channels);
          for (size_t c = 0; c < size_t(s.channels); ++c)
            f(to + c, from + c, size_t(s.flipped ? k : taps - 1 - k));
        }
}

template <class T> std::vector<T> samples(int64_t count, uint64_t salt, bool wild) {
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = sample<T>(i, salt, wild);
  return x;
}

// x_start and y_start: the first elements of the images, for misalignment.
template <class T>
void check_case(Group& group, const Upfirdn& s, size_t number, size_t x_start, size_t y_start) {
  const int64_t count = s.images * s.h.out * s.w.out * s.channels,
                pixels = s.images * s.h.in * s.w.in * s.channels, taps = int64_t{s.h.kernel} * s.w.kernel;
  const std::vector<T> x = samples<T>(pixels, 1, number % 2), filter = samples<T>(taps, 2, false),
                       calm = samples<T>(pixels, 1, false), dy = samples<T>(count, 3, false);
  std::vector<T> want(static_cast<size_t>(count));
  std::vector<double> want_df(filter.size()), size_df(filter.size());
  for_each_product(s, [&](size_t to, size_t from, size_t k) {
    want[to] += filter[k] * x[from];
    const double product = double(dy[to]) * double(calm[from]);
    want_df[k] += product, size_df[k] += std::abs(product);
  });
  const Elements<T> on_x(x, x_start), on_calm(calm, x_start), on_filter(filter), on_dy(dy, y_start),
      y(want.size(), y_start), df(filter.size());
  const Buffer workspace(static_cast<size_t>(cuda::upfirdn2d_filter_grad_workspace(s)));
  std::vector<T> first;
  for (int run = 0; run < 2; ++run) {
    cuda::upfirdn2d("test", y.data(), on_x.data(), on_filter.data(), s, nullptr);
    cuda::upfirdn2d_filter_grad("test", df.data(), on_dy.data(), on_calm.data(), s, workspace.data(),
                                nullptr);
    const std::vector<T> got = y.take(), got_df = df.take();
    group.check(std::equal(got.begin(), got.end(), want.begin(), &same<T>), "case %zu + %zu, %zu", number,
                x_start, y_start);
    for (size_t k = 0; k < got_df.size(); ++k) {
      const double rounding = std::is_same_v<T, double> ? 0x1p-52 * 1e4 : 0x1p-23;
      group.check(std::abs(double(got_df[k]) - want_df[k]) <= rounding * size_df[k],
                  "gradient of case %zu + %zu, %zu, tap %zu: %.17g, not %.17g", number, x_start, y_start, k,
                  double(got_df[k]), want_df[k]);
    }
    group.check(run == 0 || std::memcmp(first.data(), got_df.data(), sizeof(T) * first.size()) == 0,
                "case %zu: two runs differ", number);
    first = got_df;
  }
  group.check(y.is_clean() && df.is_clean(), "case %zu: written outside", number);
}

template <class T> void test_type(const char* name) {
  Group group(std::string("upfirdn2d of ") + name);
  if (!group) return;
  const std::vector<Upfirdn> all = cases();
  for (size_t i = 0; i < all.size(); ++i)
    for (const size_t start : {0, 1, 2}) check_case<T>(group, all[i], i, start == 1, start == 2);
}

}  // namespace

void test_upfirdn() {
  test_type<float>("f32");
  test_type<double>("f64");
}

}  // namespace device_test
