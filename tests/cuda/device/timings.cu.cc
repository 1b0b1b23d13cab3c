// Times of copy, add, fill and sum kernels by size, from 4 KiB to 1 GiB: prints microseconds and GB/s per
// kernel, and the launch overhead.
#include <algorithm>

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/copy.h"
#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/ops/arithmetic.h"

namespace device_test {
namespace {

using gradus::functors::Add;

// The median time of `work` in ms by CUDA events, of 11 measurements of 4 calls.
template <class F> double median_ms(F&& work) {
  cudaEvent_t from, to;
  MUST(cudaEventCreate(&from));
  MUST(cudaEventCreate(&to));
  std::vector<float> all;
  for (int i = 0; i < 3; ++i) work();
  for (int i = 0; i < 11; ++i) {
    constexpr int kTimes = 4;
    MUST(cudaEventRecord(from, nullptr));
    for (int k = 0; k < kTimes; ++k) work();
    MUST(cudaEventRecord(to, nullptr));
    MUST(cudaEventSynchronize(to));
    float ms;
    MUST(cudaEventElapsedTime(&ms, from, to));
    all.push_back(ms / kTimes);
  }
  MUST(cudaEventDestroy(from));
  MUST(cudaEventDestroy(to));
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

// bytes_moved: read and written by one call.
template <class F> void print(const char* what, int64_t bytes_moved, F&& work) {
  if (elapsed() > options().seconds) return;
  const double ms = median_ms(work);
  std::printf("time  %-44s %10.3f MiB moved  %10.2f us  %8.1f GB/s\n", what,
              static_cast<double>(bytes_moved) / (1 << 20), ms * 1e3,
              static_cast<double>(bytes_moved) / ms * 1e-6);
  std::fflush(stdout);
}

template <class T> cuda::StridedIndex flat(int64_t n, size_t operands) {
  const Sizes sizes = {n};
  const std::vector<cuda::Strides> strides(operands, {1});
  return cuda::make_strided_index(sizes, strides);
}

template <int each, class T> void time_add(const char* name, const Buffer* b, int64_t bytes) {
  using namespace cuda::elementwise_detail;  // NOLINT
  const int64_t n = bytes / static_cast<int64_t>(sizeof(T));
  const std::array<DenseInput, 2> in = {DenseInput{b[1].data(), gradus::dtype_v<T>, false},
                                        DenseInput{b[2].data(), gradus::dtype_v<T>, false}};
  constexpr int kVector = vector_size<Add, T>;
  print(name, 3 * bytes, [&] {
    cuda::launch("time", dense<Add, each, T, T, T>,
                 {cuda::blocks_for(n, int64_t(kThreads) * each * kVector), kThreads}, nullptr, Add{},
                 reinterpret_cast<T*>(b[0].data()), n, in);
  });
}

template <class T>
void time_rows(const char* name, const Buffer* b, int64_t outer, int64_t n, int64_t inner) {
  const auto* x = reinterpret_cast<const T*>(b[1].data());
  using Op = cuda::Sum<T>;
  const int64_t workspace = cuda::reduce_workspace<Op>(x, outer, n, inner);
  print(name, outer * n * inner * static_cast<int64_t>(sizeof(T)), [&] {
    cuda::reduce("time", Op{}, reinterpret_cast<T*>(b[0].data()), x, outer, n, inner, b[2].data(), nullptr);
  });
  if (workspace > static_cast<int64_t>(b[2].bytes()))
    std::printf("time  %s: the workspace is too small\n", name);
}

}  // namespace

void time_kernels() {
  int64_t most = int64_t(1) << 30;
  size_t unused = 0, total = 0;
  MUST(cudaMemGetInfo(&unused, &total));
  while (most > 4096 && static_cast<size_t>(3 * most) > unused / 10 * 9) most /= 2;
  if (options().small) most = 4096;
  const Buffer b[3]{Buffer(static_cast<size_t>(most)), Buffer(static_cast<size_t>(most)),
                    Buffer(static_cast<size_t>(most))};
  for (const Buffer& x : b) MUST(cudaMemset(x.data(), 0, x.bytes()));

  // Time to queue a launch on the host, and of a launch with synchronization.
  {
    const cuda::StridedIndex index = flat<float>(1024, 3);
    const cuda::View views[] = {
        {b[0].data(), DType::kF32}, {b[1].data(), DType::kF32}, {b[2].data(), DType::kF32}};
    const auto add = [&] {
      cuda::elementwise<float, float, float, float>("time", Add{}, index, views, nullptr);
    };
    add();
    MUST(cudaDeviceSynchronize());
    const double begin = elapsed();
    for (int i = 0; i < 1000; ++i) add();
    const double queued = elapsed();
    MUST(cudaDeviceSynchronize());
    const double end = elapsed();
    for (int i = 0; i < 200; ++i) add(), MUST(cudaDeviceSynchronize());
    std::printf(
        "time  launches of add: %.2f us of the host each, %.2f us each to the end of 1000, %.2f us with "
        "waiting\n",
        (queued - begin) * 1e3, (end - begin) * 1e3, (elapsed() - end) * 5e3);
  }
  for (int64_t bytes = 4096; bytes <= most; bytes *= 4) {
    const auto f32 = bytes / 4, bf = bytes / 2;
    const auto add = [&](const char* name, DType t, int64_t n, auto type) {
      (void)type;
      const cuda::StridedIndex index = flat<float>(n, 3);
      const cuda::View views[] = {{b[0].data(), t}, {b[1].data(), t}, {b[2].data(), t}};
      print(name, 3 * bytes,
            [&] { cuda::elementwise<float, float, float, float>("time", Add{}, index, views, nullptr); });
    };
    add("add f32, dense", DType::kF32, f32, 0.f);
    add("add bf16, dense", DType::kBF16, bf, 0.f);
    {
      const cuda::StridedIndex index = flat<float>(f32, 2);
      const cuda::View views[] = {{b[0].data(), DType::kF32}, {b[1].data(), DType::kF32}};
      print("copy f32, flat (cudaMemcpyAsync)", 2 * bytes,
            [&] { cuda::copy("time", index, views, nullptr); });
      const float one = 1;
      const cuda::StridedIndex single = flat<float>(f32, 1);
      print("fill f32", bytes, [&] { cuda::fill("time", single, views[0], &one, nullptr); });
    }
    {
      // Rows of 1000 out of rows of 1024.
      const Sizes sizes = {std::max<int64_t>(1, f32 / 1024), std::min<int64_t>(f32, 1000)};
      const cuda::Strides strides[] = {{1000, 1}, {1024, 1}};
      const cuda::StridedIndex index = cuda::make_strided_index(sizes, strides);
      const cuda::View views[] = {{b[0].data(), DType::kF32}, {b[1].data(), DType::kF32}};
      print("copy f32, rows with gaps", 2 * index.numel * 4,
            [&] { cuda::copy("time", index, views, nullptr); });
    }
    {
      // [N, 64, P] to channels last.
      const int64_t p = std::min<int64_t>(f32 / 64, 3136), images = std::max<int64_t>(1, f32 / 64 / p);
      const Sizes sizes = {images, 64, p};
      const cuda::Strides strides[] = {{64 * p, 1, 64}, {64 * p, p, 1}};
      const cuda::StridedIndex index = cuda::make_strided_index(sizes, strides);
      const cuda::View views[] = {{b[0].data(), DType::kF32}, {b[1].data(), DType::kF32}};
      print("copy f32, to channels last, 64 channels", 2 * index.numel * 4,
            [&] { cuda::copy("time", index, views, nullptr); });
      const cuda::Strides across[] = {{64 * p, p, 1}, {64 * p, p, 1}, {64 * p, 1, 64}};
      const cuda::StridedIndex three = cuda::make_strided_index(sizes, across);
      const cuda::View all[] = {
          {b[0].data(), DType::kF32}, {b[1].data(), DType::kF32}, {b[2].data(), DType::kF32}};
      print("add f32, one operand channels last", 3 * index.numel * 4,
            [&] { cuda::elementwise<float, float, float, float>("time", Add{}, three, all, nullptr); });
    }
    time_rows<float>("sum f32, one row", b, 1, f32, 1);
    if (f32 >= 1024) time_rows<float>("sum f32, rows of 1024", b, f32 / 1024, 1024, 1);
    if (f32 >= 16384) time_rows<float>("sum f32, rows of 16384", b, f32 / 16384, 16384, 1);
    time_rows<float>("sum f32, rows of 32", b, f32 / 32, 32, 1);
    time_rows<float>("sum f32, 64 columns", b, 1, f32 / 64, 64);
    if (f32 >= 4096) time_rows<float>("sum f32, 1024 columns", b, 1, f32 / 1024, 1024);
    time_rows<bf16>("sum bf16, 64 columns", b, 1, bf / 64, 64);
    if (bf >= 1024) time_rows<bf16>("sum bf16, rows of 1024", b, bf / 1024, 1024, 1);
  }
  // The dense kernel with 1, 2 and 4 vectors per thread.
  for (const int64_t bytes : {int64_t(1) << 20, int64_t(16) << 20, int64_t(256) << 20}) {
    if (bytes > most) break;
    time_add<1, float>("add f32, 1 vector a thread", b, bytes);
    time_add<2, float>("add f32, 2 vectors a thread", b, bytes);
    time_add<4, float>("add f32, 4 vectors a thread", b, bytes);
    time_add<1, bf16>("add bf16, 1 vector a thread", b, bytes);
    time_add<2, bf16>("add bf16, 2 vectors a thread", b, bytes);
    time_add<4, bf16>("add bf16, 4 vectors a thread", b, bytes);
  }
}

}  // namespace device_test
