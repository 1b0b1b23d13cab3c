// Runs a reduction kernel over many shapes [outer, n, inner], reduced over n, and checks each result on the
// host.
#pragma once

#include <vector>

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"

namespace device_test {

struct Shape {
  int64_t outer, n, inner, start;  // start: first element, for misalignment
};

inline std::vector<Shape> shapes() {
  std::vector<Shape> all;
  const std::vector<int64_t> short_n = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17, 31,
                                        32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
  for (const int64_t n : short_n)
    for (const int64_t outer : {1, 9, 70}) all.push_back({outer, n, 1, outer % 2});
  std::vector<int64_t> long_n = {511, 512, 960, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8193};
  if (!options().small)
    for (const int64_t n : {65535, 65536, 65537, 1 << 20, (1 << 20) + 5}) long_n.push_back(n);
  for (const int64_t n : long_n)
    for (const int64_t start : {0, 1, 3}) all.push_back({start == 1 ? 3 : 1, n, 1, start});
  if (!options().small) all.push_back({3000, 1500, 1, 0});
  for (const int64_t inner : {2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 64, 127, 128, 130, 257})
    for (const int64_t n : {1, 2, 3, 5, 16, 17, 100})
      all.push_back({n % 3 == 0 ? 3 : 1, n, inner, n == 5 ? 1 : 0});
  // Inner sizes for loads of half a vector per thread, and for tiles of 32 such threads.
  for (const int64_t inner : {6, 12, 20, 24, 62, 66, 124, 132, 248, 256, 264})
    for (const int64_t n : {3, 16, 17}) all.push_back({1, n, inner, 0});
  for (const int64_t inner : {8, 24, 64})
    for (const int64_t start : {2, 4, 8}) all.push_back({2, 17, inner, start});
  for (const int64_t n : {255, 256, 257, 1000, 1016, 4100}) {
    all.push_back({1, n, 8, 0});
    all.push_back({2, n, 33, 0});
    if (!options().small) all.push_back({1, n * 16 + 1, 64, 0}), all.push_back({1, n, 1027, 0});
  }
  return all;
}

// Runs twice, and expects the same bits. Calls check(result, first input element, n, stride) or, if it takes
// five, check(..., index of the result).
template <class Op, class F> void run_reduction(Group& group, const Op& op, bool wild, F&& check) {
  using In = typename Op::In;
  using Out = typename Op::Out;
  for (const Shape& s : shapes()) {
    const auto count = static_cast<size_t>(s.outer * s.n * s.inner),
               results = static_cast<size_t>(s.outer * s.inner);
    std::vector<In> x(count);
    for (size_t i = 0; i < count; ++i) x[i] = sample<In>(i, 5, wild);
    const Buffer in((count + static_cast<size_t>(s.start)) * sizeof(In)), out(results * sizeof(Out));
    const auto* p = reinterpret_cast<const In*>(in.data()) + s.start;
    MUST(cudaMemcpy(in.data() + static_cast<size_t>(s.start) * sizeof(In), x.data(), count * sizeof(In),
                    cudaMemcpyHostToDevice));
    const int64_t bytes = cuda::reduce_workspace<Op>(p, s.outer, s.n, s.inner);
    const Buffer workspace(static_cast<size_t>(bytes));
    std::vector<unsigned char> runs[2];
    for (auto& r : runs) {
      MUST(cudaMemset(out.data(), 0xA5, results * sizeof(Out)));
      cuda::reduce("test", op, reinterpret_cast<Out*>(out.data()), p, s.outer, s.n, s.inner, workspace.data(),
                   nullptr);
      r = out.take();
    }
    group.check(runs[0] == runs[1], "[%lld, %lld, %lld]: two runs differ", static_cast<long long>(s.outer),
                static_cast<long long>(s.n), static_cast<long long>(s.inner));
    bool clean = true;
    for (size_t i = 0; i != Buffer::kMargin; ++i)
      clean = clean && runs[0][i] == 0xA5 && runs[0][runs[0].size() - 1 - i] == 0xA5;
    const auto around = workspace.take();
    for (size_t i = 0; i != Buffer::kMargin; ++i)
      clean = clean && around[i] == 0xA5 && around[around.size() - 1 - i] == 0xA5;
    group.check(clean, "[%lld, %lld, %lld]: written outside", static_cast<long long>(s.outer),
                static_cast<long long>(s.n), static_cast<long long>(s.inner));
    for (int64_t o = 0; o < s.outer; ++o)
      for (int64_t i = 0; i < s.inner; ++i) {
        Out got;
        std::memcpy(&got, &runs[0][Buffer::kMargin + static_cast<size_t>(o * s.inner + i) * sizeof(Out)],
                    sizeof got);
        const In* first = &x[static_cast<size_t>(o * s.n * s.inner + i)];
        bool right;
        if constexpr (std::is_invocable_v<F, Out, const In*, int64_t, int64_t, int64_t>)
          right = check(got, first, s.n, s.inner, o * s.inner + i);
        else
          right = check(got, first, s.n, s.inner);
        if (!right)
          group.check(false, "[%lld, %lld, %lld], start %lld, result %lld, %lld: %.17g",
                      static_cast<long long>(s.outer), static_cast<long long>(s.n),
                      static_cast<long long>(s.inner), static_cast<long long>(s.start),
                      static_cast<long long>(o), static_cast<long long>(i), as_double(got));
      }
    group.check(true, " ");
  }
}

// Value and index of the first maximum or minimum; a NaN counts as the extreme.
template <class T> void run_extremum(Group& group, bool largest) {
  const Elements<int64_t> indices(4096);
  std::vector<int64_t> found;
  const cuda::Extremum<T> op{largest, indices.data()};
  run_reduction(group, op, true, [&](T got, const T* x, int64_t n, int64_t stride, int64_t result) {
    if (result == 0) found = indices.take();
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i) {
      const T v = x[i * stride], b = x[best * stride];
      if (!is_nan(b) && (is_nan(v) || (largest ? widened(v) > widened(b) : widened(v) < widened(b))))
        best = i;
    }
    return found[static_cast<size_t>(result)] == best && same(got, x[best * stride]);
  });
}

}  // namespace device_test
