// Runs element-wise functors over operands of many layouts and dtypes, on the device and on the host.
#pragma once

#include <memory>
#include <vector>

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/elementwise.h"

namespace device_test {

struct Layout {
  const char* name;
  Sizes sizes;
  std::vector<cuda::Strides> strides;  // of the output, then of the inputs
  std::vector<int64_t> start;          // first element of each operand
};

// Sizes around the kernels' block and vector sizes, and layouts for each kernel path.
inline std::vector<Layout> layouts(int inputs) {
  std::vector<Layout> all;
  const auto count = static_cast<size_t>(inputs) + 1;
  const auto zeros = std::vector<int64_t>(count, 0);
  const auto dense = [&](int64_t n, std::vector<int64_t> start, const char* name) {
    all.push_back({name, {n}, std::vector<cuda::Strides>(count, {1}), std::move(start)});
  };
  std::vector<int64_t> sizes = {0,  1,   2,   3,   4,   5,   7,   8,    9,    15,   16,   17,   31,  32,
                                33, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049};
  if (!options().small)
    for (const int64_t n : {4095, 4096, 4097, 8191, 8192, 8193, 16385, 65536 + 3}) sizes.push_back(n);
  for (const int64_t n : sizes) dense(n, zeros, "dense");
  for (const int64_t n : {1, 5, 64, 1025, 2051}) {
    dense(n, std::vector<int64_t>(count, 1), "all start at 1");
    dense(n, std::vector<int64_t>(count, 4), "all start at 4");
    for (size_t k = 0; k < count; ++k) {
      auto start = zeros;
      start[k] = 3;
      dense(n, start, "one starts at 3");
    }
  }
  for (size_t k = 1; k < count; ++k) {  // operand k is one element
    for (const int64_t n : {1, 6, 1031}) {
      std::vector<cuda::Strides> strides(count, {1});
      strides[k] = {0};
      all.push_back({"one is a scalar", {n}, strides, zeros});
    }
  }
  const auto general = [&](const char* name, const Sizes& sizes, std::vector<cuda::Strides> strides) {
    strides.resize(count, strides.back());
    all.push_back({name, sizes, strides, zeros});
  };
  general("rows with gaps", {7, 33}, {{33, 1}, {40, 1}, {33, 1}});
  general("output with gaps", {9, 130}, {{131, 1}, {130, 1}});
  general("second is transposed", {37, 41}, {{41, 1}, {41, 1}, {1, 37}});
  general("a row is broadcast", {19, 65}, {{65, 1}, {65, 1}, {0, 1}});
  general("a column is broadcast", {65, 19}, {{19, 1}, {19, 1}, {1, 0}});
  general("first is broadcast", {5, 12, 3}, {{36, 3, 1}, {0, 3, 0}, {36, 3, 1}});
  general("channels last and first", {2, 5, 6, 7}, {{210, 1, 35, 5}, {210, 42, 7, 1}, {210, 1, 35, 5}});
  general("every other", {100}, {{2}, {3}, {2}});
  general("reversed", {1, 77}, {{77, 1}, {77, 1}});
  general("eight dims", {2, 1, 3, 2, 2, 3, 1, 2},
          {row_major({2, 1, 3, 2, 2, 3, 1, 2}), {1, 0, 2, 6, 12, 24, 0, 72}});
  return all;
}

// Bit-equal to the host, or within 64 f64 epsilons, since the f64 math libraries differ: relative to max(1,
// |result|), or, where terms cancel, also to the inputs.
enum class Exact { kBits, kNearly, kNearlyOfInputs };

template <class C, class T> C element(const std::vector<unsigned char>& data, int64_t i) {
  T x;
  std::memcpy(&x, &data[static_cast<size_t>(i) * sizeof(T)], sizeof x);
  return static_cast<C>(widened(x));
}
// Calls a functor as the CPU's loops do, with its fallback.
template <class F, class... C> auto on_host(const F& f, C... x) {
  if constexpr (sizeof...(C) == 2 && (std::is_same_v<C, float> && ...) &&
                requires { f.needs_fallback(x...); })
    return f.needs_fallback(x...) ? f.fallback(x...) : f(x...);
  else
    return f(x...);
}

// Tests f, computed in C, with inputs InC and result OutC; operands of type C are stored as S.
template <class S, class C, class OutC, class... InC, class F>
void test_functor(Group& group, const F& f, Exact exact = Exact::kBits) {
  using cuda::elementwise_detail::Stored;
  using Out = Stored<S, C, OutC>;
  constexpr int kInputs = static_cast<int>(sizeof...(InC));
  constexpr size_t kMost = 1 << 17;  // elements
  std::vector<unsigned char> data[3];
  size_t k = 0;
  const auto make = [&]<class T>(T*) {
    data[k].resize(kMost * sizeof(T));
    for (size_t i = 0; i < kMost; ++i) {
      const T x = sample<T>(i, k + 1);
      std::memcpy(&data[k][i * sizeof(T)], &x, sizeof x);
    }
    ++k;
  };
  (make(static_cast<Stored<S, C, InC>*>(nullptr)), ...);
  for (const Layout& l : layouts(kInputs)) {
    const cuda::StridedIndex index = cuda::make_strided_index(l.sizes, l.strides);
    const auto span = [&](size_t operand) {
      int64_t n = l.start[operand] + 1;
      for (size_t d = 0; d < l.sizes.size(); ++d)
        n += std::max<int64_t>(0, l.sizes[d] - 1) * l.strides[operand][d];
      return static_cast<size_t>(n);
    };
    const Buffer output(span(0) * sizeof(Out));
    std::vector<cuda::View> views = {
        {output.data() + l.start[0] * static_cast<int64_t>(sizeof(Out)), gradus::dtype_v<Out>}};
    std::vector<std::unique_ptr<Buffer>> inputs;
    const auto view = [&]<class T>(T*) {
      const size_t j = inputs.size(), bytes = span(j + 1) * sizeof(T);
      inputs.push_back(std::make_unique<Buffer>(bytes));
      inputs[j]->put(data[j].data(), bytes);
      views.push_back(
          {inputs[j]->data() + l.start[j + 1] * static_cast<int64_t>(sizeof(T)), gradus::dtype_v<T>});
    };
    (view(static_cast<Stored<S, C, InC>*>(nullptr)), ...);
    cuda::elementwise<C, OutC, InC...>("test", f, index, views.data(), nullptr);

    const std::vector<unsigned char> got = output.take();
    std::vector<unsigned char> want(got.size(), 0xA5);
    // What is not written must be as before.
    for_each_position(l.sizes, l.strides, l.start, [&](const int64_t* at) {
      const auto w = [&]<size_t... I>(std::index_sequence<I...>) {
        return stored<Out>(on_host(f, element<InC, Stored<S, C, InC>>(data[I], at[I + 1])...));
      }(std::index_sequence_for<InC...>());
      Out g;
      const size_t place = Buffer::kMargin + static_cast<size_t>(at[0]) * sizeof(Out);
      std::memcpy(&g, &got[place], sizeof g);
      bool right = same(g, w);
      if (!right && exact != Exact::kBits) {
        const double a = as_double(g), b = as_double(w);
        double scale = std::max(1., std::abs(b));
        if (exact == Exact::kNearlyOfInputs)
          [&]<size_t... I>(std::index_sequence<I...>) {
            ((scale = std::max(scale, std::abs(double(element<InC, Stored<S, C, InC>>(data[I], at[I + 1]))))),
             ...);
          }(std::index_sequence_for<InC...>());
        right = std::abs(a - b) <= 64 * std::numeric_limits<double>::epsilon() * scale;
      }
      if (!right)
        group.check(false, "%s %s, position %lld: %.17g, the host has %.17g", l.name,
                    std::string(gradus::name_of(gradus::dtype_v<S>)).c_str(), static_cast<long long>(at[0]),
                    as_double(g), as_double(w));
      std::memcpy(&want[place], &g, sizeof g);
    });
    group.check(got == want, "%s, %lld elements of %s: something else was written", l.name,
                static_cast<long long>(index.numel),
                std::string(gradus::name_of(gradus::dtype_v<S>)).c_str());
  }
}

// In all float dtypes; `in_f64` is the tolerance in f64.
template <class F> void test_unary(const char* name, const F& f, Exact in_f64 = Exact::kBits) {
  Group group(std::string("element-wise ") + name);
  if (!group) return;
  test_functor<float, float, float, float>(group, f);
  test_functor<bf16, float, float, float>(group, f);
  test_functor<f16, float, float, float>(group, f);
  test_functor<double, double, double, double>(group, f, in_f64);
}
template <class F> void test_binary(const char* name, const F& f, Exact in_f64 = Exact::kBits) {
  Group group(std::string("element-wise ") + name);
  if (!group) return;
  test_functor<float, float, float, float, float>(group, f);
  test_functor<bf16, float, float, float, float>(group, f);
  test_functor<f16, float, float, float, float>(group, f);
  test_functor<double, double, double, double, double>(group, f, in_f64);
}

}  // namespace device_test
