// The direct convolution kernels (forward, input and weight gradient, channels last, up to 3 dims, groups)
// against loops on the host. Values are -1, 0 and 1, so results are exact and must be bit-equal.
#include "gradus/tensor/cuda/kernels/images/direct_conv.h"

#include <array>

#include "device_test.h"

namespace device_test {
namespace {

using cuda::ConvAxis;
using cuda::DirectConv;

ConvAxis axis(int64_t in, int64_t taps, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1) {
  return {in, (in + 2 * padding - dilation * (taps - 1) - 1) / stride + 1, taps, stride, padding, dilation};
}
const ConvAxis kOne = axis(1, 1);

struct Case {
  const char* name;
  int64_t images, groups, in, out;  // channels of a group
  std::array<ConvAxis, 3> axes;

  DirectConv problem() const {
    return {images, groups * in, groups * out, groups, axes[0], axes[1], axes[2]};
  }
  int64_t taps() const { return axes[0].taps * axes[1].taps * axes[2].taps; }
  int64_t inputs() const { return images * axes[0].in * axes[1].in * axes[2].in * groups * in; }
  int64_t outputs() const { return images * axes[0].out * axes[1].out * axes[2].out * groups * out; }
  int64_t weights() const { return groups * out * in * taps(); }

  // Where weight [channel, from, tap] is for a kernel; `channel` counts those of all groups.
  int64_t in_order(int64_t channel, int64_t from, int64_t tap) const {
    return (channel * in + from) * taps() + tap;
  }
  int64_t for_forward(int64_t channel, int64_t from, int64_t tap) const {
    return (tap * in + from) * groups * out + channel;
  }
  int64_t for_input_grad(int64_t channel, int64_t from, int64_t tap) const {
    return (tap * out + channel % out) * groups * in + channel / out * in + from;
  }

  // Calls f(element of y, element of x, channel of y, channel of x in its group, tap) for all products.
  template <class F> void for_each_product(F&& f) const {
    for (int64_t y = 0; y < outputs(); ++y) {
      const int64_t channel = y % (groups * out);
      for (int64_t tap = 0; tap < taps(); ++tap) {
        int64_t place = y / (groups * out), rest = tap, pixel = 0, pixels = 1;
        bool inside = true;
        for (size_t d = 3; d-- > 0;) {
          const ConvAxis& a = axes[d];
          const int64_t at = place % a.out * a.stride - a.padding + rest % a.taps * a.dilation;
          inside = inside && at >= 0 && at < a.in;
          pixel += at * pixels, pixels *= a.in, place /= a.out, rest /= a.taps;
        }
        if (!inside) continue;
        for (int64_t from = 0; from < in; ++from)
          f(y, ((place * pixels + pixel) * groups + channel / out) * in + from, channel, from, tap);
      }
    }
  }
};

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"3 x 3", 2, 1, 3, 5, {kOne, axis(5, 3, 1, 1), axis(6, 3, 1, 1)}},
      {"3 x 2 by 2, 3", 2, 1, 4, 3, {kOne, axis(8, 3, 2, 1), axis(9, 2, 3)}},
      {"dilated", 2, 1, 3, 4, {kOne, axis(9, 2, 1, 0, 2), axis(11, 3, 2, 2, 3)}},
      {"gaps", 2, 1, 2, 3, {kOne, axis(9, 2, 3), axis(10, 1, 4)}},
      {"mostly padding", 2, 1, 2, 3, {kOne, axis(3, 2, 1, 4), axis(3, 2, 2, 3)}},
      {"groups", 2, 2, 3, 2, {kOne, axis(4, 3, 1, 1), axis(4, 3, 1, 1)}},
      {"depthwise", 2, 35, 1, 2, {kOne, axis(4, 3, 1, 1), axis(5, 2, 2)}},
      {"signal", 3, 1, 2, 3, {kOne, kOne, axis(33, 4, 3, 2)}},
      {"volume", 2, 2, 2, 1, {axis(3, 2, 1, 1), axis(4, 3, 2, 1, 1), axis(5, 2, 1, 0, 2)}},
      {"one product", 1, 1, 1, 1, {kOne, kOne, kOne}},
      {"many places", 2, 1, 1, 1, {kOne, axis(12, 2), axis(11, 2)}},
  };
  for (const int64_t n : {255, 256, 257}) all.push_back({"elements", 1, 1, 1, 1, {kOne, kOne, axis(n, 1)}});
  for (const int64_t n : {31, 32, 33}) all.push_back({"pairs", 2, 1, 1, n, {kOne, axis(3, 2), kOne}});
  for (const int64_t n : {7, 8, 9}) all.push_back({"lines", 1, 1, 11, 3, {kOne, axis(n, 1), axis(3, 2)}});
  return all;
}

// -1, 0 and 1: sums of up to 256 products are exact in each dtype.
template <class T> std::vector<T> numbers(int64_t n, uint64_t salt) {
  std::vector<T> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = stored<T>(static_cast<float>(mix(i + salt * 1000003) % 3) - 1);
  return x;
}

template <class T> cuda::View view(const Elements<T>& e) { return {e.data(), gradus::dtype_v<T>}; }

template <class T, class F>
void expect(Group& group, const Case& c, const char* what, const std::vector<float>& want, size_t start,
            F&& run) {
  const Elements<T> result(want.size(), start);
  run(result);
  const std::vector<T> got = result.take();
  group.check(result.is_clean(), "%s, %s: written outside", what, c.name);
  for (size_t i = 0; i < want.size(); ++i)
    group.check(same(got[i], stored<T>(want[i])), "%s, %s: element %zu is %g, not %g", what, c.name, i,
                as_double(got[i]), static_cast<double>(want[i]));
}

template <class T> void check(Group& group, const Case& c, size_t start) {
  const std::vector<T> x = numbers<T>(c.inputs(), 1), w = numbers<T>(c.weights(), 2),
                       dy = numbers<T>(c.outputs(), 3), bias = numbers<T>(c.groups * c.out, 4);
  std::vector<T> forward(w.size()), backward(w.size());
  std::vector<float> y(dy.size()), with_bias(dy.size()), dx(x.size()), dw(w.size());
  const auto value = [](const std::vector<T>& v, int64_t i) {
    return static_cast<float>(widened(v[static_cast<size_t>(i)]));
  };
  for (int64_t channel = 0; channel < c.groups * c.out; ++channel)
    for (int64_t from = 0; from < c.in; ++from)
      for (int64_t tap = 0; tap < c.taps(); ++tap) {
        const T v = w[size_t(c.in_order(channel, from, tap))];
        forward[size_t(c.for_forward(channel, from, tap))] = v;
        backward[size_t(c.for_input_grad(channel, from, tap))] = v;
      }
  c.for_each_product([&](int64_t to, int64_t at, int64_t channel, int64_t from, int64_t tap) {
    const int64_t weight = c.in_order(channel, from, tap);
    y[size_t(to)] += value(x, at) * value(w, weight);
    dx[size_t(at)] += value(dy, to) * value(w, weight);
    dw[size_t(weight)] += value(dy, to) * value(x, at);
  });
  for (size_t i = 0; i < y.size(); ++i)
    with_bias[i] = y[i] + value(bias, static_cast<int64_t>(i) % (c.groups * c.out));
  const Elements<T> inputs(x, start), slopes(dy, start), biases(bias, start), filters(forward, start),
      turned(backward, start);
  const DirectConv p = c.problem();
  expect<T>(group, c, "forward", y, start, [&](const Elements<T>& to) {
    cuda::direct_conv("test", view(to), view(inputs), view(filters), {nullptr, gradus::dtype_v<T>}, p,
                      nullptr);
  });
  expect<T>(group, c, "forward with a bias", with_bias, start, [&](const Elements<T>& to) {
    cuda::direct_conv("test", view(to), view(inputs), view(filters), view(biases), p, nullptr);
  });
  expect<T>(group, c, "input gradient", dx, start, [&](const Elements<T>& to) {
    cuda::direct_conv_input_grad("test", view(to), view(slopes), view(turned), p, nullptr);
  });
  expect<T>(group, c, "weight gradient", dw, start, [&](const Elements<T>& to) {
    cuda::direct_conv_weight_grad("test", view(to), view(slopes), view(inputs), p, nullptr);
  });
}

template <class T> void test_type(const char* name) {
  Group group(std::string("convolutions of ") + name);
  if (!group) return;
  size_t start = 0;
  for (const Case& c : cases()) check<T>(group, c, start++ % 2);
}

}  // namespace

void test_direct_conv() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<f16>("f16");
  test_type<bf16>("bf16");
}

}  // namespace device_test
