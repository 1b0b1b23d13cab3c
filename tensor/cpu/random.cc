#include "gradus/tensor/ops/random.h"

#include <cmath>
#include <numbers>

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/cpu/philox.h"
#include "gradus/tensor/cpu/pointwise.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/elementwise_functors.h"
#include "gradus/tensor/parallel.h"

namespace gradus::cpu {
namespace {

// Which numbers an element gets: Note [Draws]. Each function turns the words of 8 counters into its elements.

template <class T>
T uniform_at(const uint32_t* words, int i) {
  if constexpr (std::is_same_v<T, double>)
    return uniform_f64(words[2 * i], words[2 * i + 1]);
  else
    return uniform_f32(words[i]);
}

template <class T>
constexpr int elements_per_block = std::is_same_v<T, float> ? kPhiloxWords : kPhiloxWords / 2;

// Calls f(words, values) for blocks of elements of the row-major draw and stores the values in `out`, which may lie and
// be typed differently.
template <class T, int kElements, class F>
void draw(const Tensor& out, PhiloxKey key, F f) {
  if (!out.is_row_major() || out.dtype() != dtype_v<T>) {
    const Tensor values = empty(out.shape(), {dtype_v<T>, out.device()});
    draw<T, kElements>(values, key, f);
    raw::copy_kernel.cpu(out, values);
    return;
  }
  T* const to = out.ptr<T>();
  const int64_t n = out.numel(), blocks = (n + kElements - 1) / kElements;
  parallel_for(0, blocks, 16384 / kElements, [&](int64_t begin, int64_t end) {
    alignas(32) uint32_t words[kPhiloxWords];
    for (int64_t b = begin; b < end; ++b) {
      philox_words(key, static_cast<uint64_t>(b) * kPhiloxCounters, words);
      const int64_t at = b * kElements;
      if (n - at >= kElements) {
        f(words, to + at);
      } else {
        T values[kElements];
        f(words, values);
        std::copy_n(values, n - at, to + at);
      }
    }
  });
}

template <class F>
void with_draw_type(const Tensor& out, F&& f) {
  out.dtype() == DType::kF64 ? f.template operator()<double>() : f.template operator()<float>();
}

void uniform_cpu(const Tensor& out, double low, double high, PhiloxKey key) {
  with_draw_type(out, [&]<class T>() {
    constexpr int kElements = elements_per_block<T>;
    // Rounding may reach `high` itself, which does not belong to the interval.
    const T base = T(low), width = T(high - low), last = low < high ? std::nextafter(T(high), T(low)) : T(high);
    draw<T, kElements>(out, key, [=](const uint32_t* words, T* values) {
      for (int i = 0; i < kElements; ++i) {
        const T v = m::fma(width, uniform_at<T>(words, i), base);
        values[i] = v > last ? last : v;
      }
    });
  });
}

// Box-Muller.
void normal_cpu(const Tensor& out, double mean, double std, PhiloxKey key) {
  with_draw_type(out, [&]<class T>() {
    constexpr int kElements = elements_per_block<T>;
    const T centre = T(mean), scale = T(std);
    draw<T, kElements>(out, key, [=](const uint32_t* words, T* values) {
      T radius[kElements / 2];
      for (int j = 0; j < kElements / 2; ++j)
        radius[j] = scale * m::sqrt(T(-2) * m::log(T(1) - uniform_at<T>(words, 2 * j)));
      for (int j = 0; j < kElements / 2; ++j) {
        const T angle = T(2 * std::numbers::pi) * uniform_at<T>(words, 2 * j + 1);
        values[2 * j] = m::fma(radius[j], std::cos(angle), centre);
        values[2 * j + 1] = m::fma(radius[j], std::sin(angle), centre);
      }
    });
  });
}

void bernoulli_cpu(const Tensor& out, double p, PhiloxKey key) {
  // uniform_f32(word) < p, in integers.
  const uint32_t below = static_cast<uint32_t>(std::ceil(p * 0x1p24));
  draw<bool, kPhiloxWords>(out, key, [=](const uint32_t* words, bool* values) {
    for (int i = 0; i < kPhiloxWords; ++i) values[i] = (words[i] >> 8) < below;
  });
}

// The upper half of a 64 x 64 bit product maps 64 random bits onto the range.
uint64_t scaled_bits(const uint32_t* words, uint64_t range) {
  const uint64_t bits = uint64_t(words[0]) << 32 | words[1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * range) >> 64);
}

void randint_cpu(const Tensor& out, int64_t low, uint64_t range, PhiloxKey key) {
  constexpr int kElements = kPhiloxWords / 2;
  draw<int64_t, kElements>(out, key, [=](const uint32_t* words, int64_t* values) {
    for (int i = 0; i < kElements; ++i)
      values[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + scaled_bits(words + 2 * i, range));
  });
}

// Fisher-Yates: each place swaps with one at or after it.
void randperm_cpu(const Tensor& out, PhiloxKey key) {
  int64_t* const order = out.ptr<int64_t>();
  const int64_t n = out.numel();
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  uint32_t words[kPhiloxWords];
  for (int64_t i = 0; i + 1 < n; ++i) {
    constexpr int kElements = kPhiloxWords / 2;
    if (i % kElements == 0) philox_words(key, static_cast<uint64_t>(i / kElements) * kPhiloxCounters, words);
    std::swap(order[i], order[i + static_cast<int64_t>(scaled_bits(words + 2 * (i % kElements), uint64_t(n - i)))]);
  }
}

void masked_scale_cpu(const Tensor& out, const Tensor& x, const Tensor& mask, double scale) {
  const functors::MaskedScale f{{}, scale};
  with_compute_type<functors::MaskedScale>("masked_scale", out.dtype(), [&]<class T>() {
    const Tensor* in[] = {&x, &mask};
    run_pointwise({&pointwise_chunk<functors::MaskedScale, T, T, uint8_t>, &f, dtype_v<T>, {dtype_v<T>, DType::kBool}},
                  out, in);
  });
}

const RegisterKernel kernels[] = {
    {raw::uniform_kernel, DeviceType::kCPU, &uniform_cpu},
    {raw::normal_kernel, DeviceType::kCPU, &normal_cpu},
    {raw::bernoulli_kernel, DeviceType::kCPU, &bernoulli_cpu},
    {raw::randint_kernel, DeviceType::kCPU, &randint_cpu},
    {raw::randperm_kernel, DeviceType::kCPU, &randperm_cpu},
    {raw::masked_scale_kernel, DeviceType::kCPU, &masked_scale_cpu},
};

}  // namespace
}  // namespace gradus::cpu
