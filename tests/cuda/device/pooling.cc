// Kernels for max and average pooling (up to 3 dims, channels last, adaptive too) and their gradients,
// against loops on the host: bit-equal, NaN included.
#include "gradus/tensor/cuda/kernels/images/pool.h"

#include <array>

#include "device_test.h"

namespace device_test {
namespace {

using PoolAxis = gradus::PoolAxis<int32_t>;
using Position = std::array<int64_t, 3>;

struct Case {
  const char* name;
  std::array<PoolAxis, 3> axes;  // d, h, w
  bool count_include_pad = true;
  int64_t divisor = 0;
};

// Windows along one axis; `hanging` adds windows that reach beyond the padding (ceil mode).
PoolAxis axis(int in, int kernel, int stride, int padding = 0, int dilation = 1, int hanging = 0) {
  const int out = (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1 + hanging;
  return {in, out, kernel, stride, padding, dilation, false};
}
PoolAxis even(int in, int out) { return {in, out, in / out + 2, 1, 0, 1, true}; }
const PoolAxis kOne = axis(1, 1, 1);

std::vector<Case> cases() {
  return {
      {"2 x 2", {kOne, axis(8, 2, 2), axis(6, 2, 2)}},
      {"3 x 3 by 2", {kOne, axis(9, 3, 2, 1), axis(8, 3, 2, 1)}, false},
      {"3 x 2 by 1, 3", {kOne, axis(7, 3, 1, 1), axis(8, 2, 3)}},
      {"dilated", {kOne, axis(9, 2, 1, 0, 2), axis(11, 3, 2, 2, 3)}},
      {"hanging", {kOne, axis(6, 3, 2, 0, 1, 1), axis(9, 2, 2, 0, 1, 1)}, true, 7},
      {"gaps", {kOne, axis(9, 2, 3), axis(10, 1, 4)}},
      {"signal", {kOne, kOne, axis(33, 4, 3, 2)}},
      {"volume", {axis(5, 3, 2), axis(5, 3, 2, 1), axis(6, 2, 1)}},
      {"all of 17 x 17", {kOne, axis(17, 17, 17), axis(17, 17, 17)}},
      {"adaptive", {even(3, 2), even(7, 3), even(5, 8)}, false},
      {"adaptive, one", {kOne, even(7, 1), even(7, 1)}},
      {"nothing of the image", {kOne, kOne, axis(2, 2, 1, 2, 4)}},
  };
}

// The position of a window's cell along an axis; -1 outside of the image.
int64_t place(const PoolAxis& a, int64_t window, int64_t cell) {
  int64_t at = window * a.stride - a.padding + cell * a.dilation;
  if (a.adaptive) {
    at = window * a.in / a.out + cell;
    if (at * a.out >= (window + 1) * a.in) return -1;
  }
  return cell < a.kernel && at >= 0 && at < a.in ? at : -1;
}

struct Host {
  const Case& c;
  int64_t images, channels;
  const PoolAxis& axis(size_t i) const { return c.axes[i]; }

  size_t at(int64_t image, const Position& p, int64_t channel, bool in) const {
    int64_t i = image;
    for (size_t d = 0; d < 3; ++d) i = i * (in ? axis(d).in : axis(d).out) + p[d];
    return static_cast<size_t>(i * channels + channel);
  }
  size_t inputs() const { return size(true); }
  size_t outputs() const { return size(false); }
  size_t size(bool in) const {
    int64_t n = images * channels;
    for (const PoolAxis& a : c.axes) n *= in ? a.in : a.out;
    return static_cast<size_t>(n);
  }
  // Calls f(output element, image, window, channel).
  template <class F> void for_each_window(F&& f) const {
    for (int64_t n = 0; n < images; ++n)
      for (int64_t d = 0; d < axis(0).out; ++d)
        for (int64_t h = 0; h < axis(1).out; ++h)
          for (int64_t w = 0; w < axis(2).out; ++w)
            for (int64_t k = 0; k < channels; ++k) f(at(n, {d, h, w}, k, false), n, Position{d, h, w}, k);
  }
  // Calls f(number of the cell, input element) for the cells of a window that are in the image.
  template <class F> void for_each_cell(int64_t n, const Position& window, int64_t channel, F&& f) const {
    for (int64_t i = 0; i < axis(0).kernel; ++i)
      for (int64_t j = 0; j < axis(1).kernel; ++j)
        for (int64_t k = 0; k < axis(2).kernel; ++k) {
          const Position p{place(axis(0), window[0], i), place(axis(1), window[1], j),
                           place(axis(2), window[2], k)};
          if (p[0] >= 0 && p[1] >= 0 && p[2] >= 0)
            f((i * axis(1).kernel + j) * axis(2).kernel + k, at(n, p, channel, true));
        }
  }
  int64_t divisor(int64_t n, const Position& window) const {
    int64_t inside = 0, padded = 1;
    for_each_cell(n, window, 0, [&](int64_t, size_t) { ++inside; });
    for (size_t d = 0; d < 3; ++d) {
      const PoolAxis& a = axis(d);
      const int64_t begin = window[d] * a.stride - a.padding;
      padded *= std::min<int64_t>(begin + a.kernel, a.in + a.padding) - begin;
    }
    return c.divisor ? c.divisor : c.count_include_pad && !c.axes[2].adaptive ? padded : inside;
  }
};

template <class T> std::vector<T> numbers(size_t n, uint64_t salt) {
  std::vector<T> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = sample<T>(i, salt, i % 3 == 0);
  return x;
}

// Runs twice; expects the bits of `want` both times.
template <class T, class F>
void expect(Group& group, const Host& host, const char* what, const Elements<T>& got,
            const std::vector<T>& want, F&& run) {
  std::vector<T> first;
  for (const bool again : {false, true}) {
    run();
    const std::vector<T> now = got.take();
    group.check(!again || same_bits(first, now), "%s of %s: two runs differ", what, host.c.name);
    first = now;
  }
  group.check(got.is_clean(), "%s of %s: written outside", what, host.c.name);
  for (size_t i = 0; i < want.size(); ++i)
    group.check(same(first[i], want[i]), "%s of %s, %lld channels: element %zu is %.17g, not %.17g", what,
                host.c.name, (long long)host.channels, i, as_double(first[i]), as_double(want[i]));
}

template <class T, class I> void check(Group& group, const Host& host, size_t start) {
  using C = decltype(widened(T()));
  const cuda::Pooling p{host.images,   host.channels, host.axis(0),
                        host.axis(1),  host.axis(2),  host.c.count_include_pad,
                        host.c.divisor};
  const auto view = [](const auto& e) {
    return cuda::View{e.data(), gradus::dtype_v<std::remove_pointer_t<decltype(e.data())>>};
  };
  const std::vector<T> x = numbers<T>(host.inputs(), 1), dy = numbers<T>(host.outputs(), 2);
  std::vector<T> y(host.outputs()), gathered(host.outputs());
  std::vector<I> index(host.outputs());
  std::vector<int64_t> positions(host.outputs());
  std::vector<C> sums(host.inputs());
  const int64_t image = host.axis(0).in * host.axis(1).in * host.axis(2).in;
  host.for_each_window([&](size_t o, int64_t n, const Position& window, int64_t channel) {
    C best = -INFINITY;
    int64_t number = -1;
    size_t from = 0;
    host.for_each_cell(n, window, channel, [&](int64_t cell, size_t i) {
      if (number < 0) number = cell, from = i;
      if (widened(x[i]) > best || is_nan(x[i])) best = widened(x[i]), number = cell, from = i;
    });
    y[o] = stored<T>(best), index[o] = static_cast<I>(std::max<int64_t>(0, number));
    gathered[o] = number < 0 ? T() : x[from];
    positions[o] = number < 0 ? 0 : static_cast<int64_t>(from) / host.channels % image;
    if (number >= 0) sums[from] += widened(dy[o]);
  });
  const Elements<T> in(x, start), out(y.size(), start), slopes(dy, start), dx(x.size(), start);
  const Elements<I> where(index.size(), start);
  expect(group, host, "max", out, y,
         [&] { cuda::max_pool("test", view(out), view(where), view(in), p, nullptr); });
  expect(group, host, "index", where, index, [] {});
  expect(group, host, "max alone", out, y, [&] {
    cuda::max_pool("test", view(out), {nullptr, DType::kU8}, view(in), p, nullptr);
  });
  std::vector<T> scattered;
  for (const C s : sums) scattered.push_back(stored<T>(s));
  expect(group, host, "scatter", dx, scattered,
         [&] { cuda::max_pool_scatter("test", view(dx), view(slopes), view(where), p, nullptr); });
  const Elements<int64_t> places(index.size());
  expect(group, host, "positions", places, positions,
         [&] { cuda::max_pool_positions("test", places.data(), view(where), p, nullptr); });
  expect(group, host, "gather", out, gathered,
         [&] { cuda::max_pool_gather("test", view(out), view(in), view(where), p, nullptr); });
}

// Both sides sum in the order of cells (forward) or windows (gradient), so bits are equal.
template <class T> void check_mean(Group& group, const Host& host, size_t start) {
  using C = decltype(widened(T()));
  const cuda::Pooling p{host.images,   host.channels, host.axis(0),
                        host.axis(1),  host.axis(2),  host.c.count_include_pad,
                        host.c.divisor};
  const std::vector<T> x = numbers<T>(host.inputs(), 3), dy = numbers<T>(host.outputs(), 4);
  std::vector<T> y(host.outputs()), spread;
  std::vector<C> sums(host.inputs());
  host.for_each_window([&](size_t o, int64_t n, const Position& window, int64_t channel) {
    const C weight = C(1) / static_cast<C>(host.divisor(n, window));
    C sum = 0;
    host.for_each_cell(n, window, channel, [&](int64_t, size_t i) {
      sum += widened(x[i]);
      sums[i] = std::fma(widened(dy[o]), weight, sums[i]);
    });
    y[o] = stored<T>(sum * weight);
  });
  for (const C s : sums) spread.push_back(stored<T>(s));
  const Elements<T> in(x, start), out(y.size(), start), slopes(dy, start), dx(x.size(), start);
  const DType t = gradus::dtype_v<T>;
  expect(group, host, "mean", out, y, [&] {
    cuda::avg_pool("test", {out.data(), t}, {in.data(), t}, p, nullptr);
  });
  expect(group, host, "spread", dx, spread, [&] {
    cuda::avg_pool_spread("test", {dx.data(), t}, {slopes.data(), t}, p, nullptr);
  });
}

// The kernel requires disjoint windows.
template <class T> void check_relu_grad(Group& group, const Host& host, size_t start) {
  for (const PoolAxis& a : host.c.axes)
    if (a.adaptive || a.stride < a.kernel || a.dilation != 1) return;
  const cuda::Pooling p{host.images, host.channels, host.axis(0), host.axis(1), host.axis(2), true, 0};
  const std::vector<T> x = numbers<T>(host.inputs(), 5), dy = numbers<T>(host.outputs(), 6);
  std::vector<T> want(host.inputs(), stored<T>(0.f));
  host.for_each_window([&](size_t o, int64_t n, const Position& window, int64_t channel) {
    double best = 0;
    size_t winner = want.size();
    host.for_each_cell(n, window, channel, [&](int64_t, size_t i) {
      if (as_double(x[i]) > best) best = as_double(x[i]), winner = i;
    });
    if (winner < want.size()) want[winner] = dy[o];
  });
  const Elements<T> in(x, start), slopes(dy, start);
  const DType t = gradus::dtype_v<T>;
  expect(group, host, "gradient after relu", in, want, [&] {
    MUST(cudaMemcpy(in.data(), x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
    cuda::max_pool_relu_grad("test", {in.data(), t}, {slopes.data(), t}, p, nullptr);
  });
}

template <class T> void test_type(const char* name) {
  Group group(std::string("pooling of ") + name);
  if (!group) return;
  for (const Case& c : cases())
    for (const int64_t channels : {1, 3, 8, 40}) {
      const Host host{c, channels == 40 ? 1 : 2, channels};
      const size_t start = channels == 40 ? 1 : 0;
      int64_t cells = 1;
      for (const PoolAxis& a : c.axes) cells *= a.kernel;
      if (cells <= 256) check<T, uint8_t>(group, host, start);
      check<T, int32_t>(group, host, start);
      check_mean<T>(group, host, start);
      check_relu_grad<T>(group, host, start);
    }
}

}  // namespace

void test_pooling() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<f16>("f16");
  test_type<bf16>("bf16");
}

}  // namespace device_test
