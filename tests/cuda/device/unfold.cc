// Kernels of unfold and fold against loops on the host, bit for bit, and twice. The sizes lie around a warp and a
// block of windows or pixels; strides and dilations have common factors and none.
#include "gradus/tensor/cuda/kernels/images/unfold.h"

#include "device_test.h"

namespace device_test {
namespace {

using cuda::UnfoldAxis;
using cuda::Unfolding;

UnfoldAxis axis(int image, int kernel, int stride = 1, int padding = 0, int dilation = 1) {
  return {image,   (image + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1, kernel, stride, padding,
          dilation};
}

std::vector<Unfolding> cases() {
  std::vector<Unfolding> all = {
      {1, axis(1, 1), axis(1, 1)},
      {3, axis(5, 3, 1, 1), axis(7, 3, 1, 1)},
      {2, axis(8, 2, 2), axis(9, 4, 4)},                // apart
      {2, axis(9, 3, 2, 1), axis(8, 2, 3, 2)},          // overlapping, and gaps
      {2, axis(11, 3, 2, 2, 2), axis(17, 4, 4, 3, 2)},  // common factors
      {2, axis(13, 3, 2, 1, 3), axis(12, 3, 3, 0, 2)},  // none
      {1, axis(3, 2, 1, 4, 6), axis(2, 1, 5, 7, 9)},    // windows of the padding alone
      {300, axis(4, 4), axis(3, 3)},                    // one window of each channel
      {1, axis(1, 1), axis(300, 5, 1, 2)},
  };
  for (const int n : {15, 16, 17}) all.push_back({1, axis(n, 3, 1, 1), axis(16, 3, 1, 1)});  // 240, 256, 272
  for (const int n : {31, 32, 33}) all.push_back({2, axis(8, 1), axis(n, 2, 2, 1)});
  if (!options().small) all.push_back({512, axis(65, 3, 1, 1), axis(129, 3, 2, 1)});
  return all;
}

// Calls f(offset in columns, offset in images; -1 in the padding) for all elements of columns, in ascending order.
template <class F> void for_each_column(const Unfolding& s, F&& f) {
  int64_t to = 0;
  for (int64_t c = 0; c < s.channels; ++c)
    for (int i = 0; i < s.h.kernel; ++i)
      for (int j = 0; j < s.w.kernel; ++j)
        for (int p = 0; p < s.h.blocks; ++p)
          for (int q = 0; q < s.w.blocks; ++q, ++to) {
            const int h = p * s.h.stride - s.h.padding + i * s.h.dilation,
                      w = q * s.w.stride - s.w.padding + j * s.w.dilation;
            const bool inside = h >= 0 && h < s.h.image && w >= 0 && w < s.w.image;
            f(size_t(to), inside ? (c * s.h.image + h) * s.w.image + w : -1);
          }
}

template <class T> std::vector<T> samples(size_t count, bool wild) {
  std::vector<T> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = sample<T>(i, 1, wild);
  return x;
}

template <class T> void check_case(Group& group, const Unfolding& s, size_t number) {
  const auto pixels = size_t(s.channels * s.h.image * s.w.image),
             elements = size_t(s.channels * s.h.kernel * s.w.kernel * s.h.blocks * s.w.blocks);
  const std::vector<T> x = samples<T>(pixels, true), x_columns = samples<T>(elements, number % 2);
  std::vector<T> want_columns(elements), want_images(pixels);
  for_each_column(s, [&](size_t column, int64_t pixel) {
    if (pixel < 0) return;
    want_columns[column] = x[size_t(pixel)];
    want_images[size_t(pixel)] += x_columns[column];
  });
  const Elements<T> images(x), columns(x_columns), to_columns(elements), to_images(pixels);
  for (int run = 0; run < 2; ++run) {
    cuda::unfold("test", to_columns.data(), images.data(), s, nullptr);
    cuda::fold("test", to_images.data(), columns.data(), s, nullptr);
    const std::vector<T> got_columns = to_columns.take(), got_images = to_images.take();
    group.check(std::equal(got_columns.begin(), got_columns.end(), want_columns.begin(), &same<T>),
                "unfold of case %zu", number);
    group.check(std::equal(got_images.begin(), got_images.end(), want_images.begin(), &same<T>),
                "fold of case %zu", number);
  }
  group.check(to_columns.is_clean() && to_images.is_clean(), "case %zu: written outside", number);
}

template <class T> void test_type(const char* name) {
  Group group(std::string("unfold and fold of ") + name);
  if (!group) return;
  const std::vector<Unfolding> all = cases();
  for (size_t i = 0; i < all.size(); ++i) check_case<T>(group, all[i], i);
}

}  // namespace

void test_unfold() {
  test_type<float>("f32");
  test_type<double>("f64");
}

}  // namespace device_test
