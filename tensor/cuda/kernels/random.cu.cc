// CUDA kernels of random numbers by the counter-based generator Philox4x32-10: uniform, normal, Bernoulli,
// integers, dropout, random permutation. Element i (row-major) depends only on the key and i: Note [Draws]
// (tensor/ops/random.h). For a row-major result, a thread computes a 16-byte vector from the words of its own
// counters. For a strided result, a thread computes one element, so that stores of neighboring threads
// coalesce; a counter is then computed once per element.
#include "gradus/tensor/cuda/kernels/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "gradus/tensor/cuda/kernels/copy.h"
#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/cuda/kernels/strided.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/formulas/random.h"

namespace gradus::cuda {
namespace {

constexpr int kDrawThreads = 256;

// out[i] = element i of the draw, for i < count. One thread per vector, of n elements from n / each counters.
template <class T, class Draw>
__global__ void __launch_bounds__(kDrawThreads, 4)
    draw_rows(T* out, int64_t count, Draw draw, DeviceKey from) {
  using Element = typename Draw::Element;
  constexpr int n = kVectorSize<T>, each = draws::kPerCounter<Draw>, counters = n / each;
  const int64_t item = int64_t{blockIdx.x} * kDrawThreads + threadIdx.x, at = item * n, left = count - at;
  const PhiloxKey key = read(from);
  Element elements[n];
#pragma unroll
  for (int c = 0; c < counters; ++c) {
    uint32_t words[4];
    draws::philox(key, static_cast<uint64_t>(item * counters + c), words);
    draws::make_elements<1>(draw, words, elements + c * each);
  }
  Vector<T, n> v;
#pragma unroll
  for (int i = 0; i < n; ++i) v.v[i] = convert<T>(elements[i]);
  store_first(out + at, v, left);
}

// The four words of a counter as two 64-bit numbers: word(i) is a shift, while an array with a variable index
// would be in local memory.
struct Counted {
  uint64_t low, high;

  __device__ __forceinline__ uint32_t word(int i) const {
    return static_cast<uint32_t>((i & 2 ? high : low) >> (i & 1) * 32);
  }
};
__device__ __forceinline__ Counted counted(PhiloxKey key, uint64_t counter) {
  uint32_t words[4];
  draws::philox(key, counter, words);
  return {uint64_t{words[1]} << 32 | words[0], uint64_t{words[3]} << 32 | words[2]};
}

// Element `number` of a draw.
template <class Draw>
__device__ __forceinline__ typename Draw::Element element_of(const Draw& draw, PhiloxKey key,
                                                             uint64_t number) {
  const int in_counter = static_cast<int>(number % draws::kPerCounter<Draw>);
  const Counted words = counted(key, number / draws::kPerCounter<Draw>);
  uint32_t chosen[Draw::kWords];
#pragma unroll
  for (int k = 0; k < Draw::kWords; ++k)
    chosen[k] = words.word(in_counter / Draw::kElements * Draw::kWords + k);
  typename Draw::Element elements[Draw::kElements];
  draw(chosen, elements);
  return Draw::kElements == 1 || in_counter % 2 == 0 ? elements[0] : elements[Draw::kElements - 1];
}

// out[i] = element i of the draw, for positions i of a strided index space. One thread per element. Operand 1
// is not a tensor: its offsets, plus `first`, are the row-major element numbers.
template <class Draw>
__global__ void __launch_bounds__(kDrawThreads, 4)
    draw_strided(StridedOperands<2> o, int64_t first, Draw draw, DeviceKey key) {
  const uint32_t i = blockIdx.x * kDrawThreads + threadIdx.x;
  if (i >= o.count) return;
  int64_t at[2];
  o.locate(i, at);
  store_as(o.data[0], o.dtype[0], at[0], element_of(draw, read(key), static_cast<uint64_t>(first + at[1])));
}

// Returns row-major strides, at which the offsets are the element numbers.
Strides numbers_of(std::span<const int64_t> sizes) {
  Strides numbers{};
  int64_t next = 1;
  for (size_t d = sizes.size(); d-- > 0; next *= sizes[d]) numbers[d] = next;
  return numbers;
}

// Fills `out` with the draw's elements, stored as the one of the types T that is out's dtype.
template <class... T, class Draw>
void run(const char* op, const DrawOutput& out, const Draw& draw, const DeviceKey& key, cudaStream_t stream) {
  const StridedIndex index =
      make_strided_index(out.sizes, std::array<Strides, 2>{out.strides, numbers_of(out.sizes)});
  if (index.numel == 0) return;
  const bool in_rows = index.numel == 1 || (index.dims == 1 && index.stride[0][0] == 1);
  if (in_rows && is_aligned(out.view.data, 16)) {
    const auto draw_as = [&]<class Stored>(Stored*) {
      if (out.view.dtype != dtype_v<Stored>) return;
      launch(op, draw_rows<Stored, Draw>,
             {blocks_for(index.numel, kDrawThreads * kVectorSize<Stored>), kDrawThreads}, stream,
             out.view.as<Stored>(), index.numel, draw, key);
    };
    return (draw_as(static_cast<T*>(nullptr)), ...);
  }
  const View views[2] = {out.view, out.view};
  for_each_part(index, kMaxDividend, {}, [&](const StridedIndex& part, const auto& offsets) {
    launch(op, draw_strided<Draw>, {blocks_for(part.numel, kDrawThreads), kDrawThreads}, stream,
           strided_operands<2>(part, views, {offsets[0]}), offsets[1], draw, key);
  });
}

// mask[i] = element i of the draw, y[i] = mask[i] ? scale * x[i] : 0, for i < count. One thread per vector of
// elements, whose bits are those of one Philox counter (8 elements) or a part of it.
template <class T>
__global__ void __launch_bounds__(kDrawThreads, 4)
    drop_rows(T* y, bool* mask, const T* x, int64_t count, draws::DropoutMask draw, double scale,
              DeviceKey key) {
  constexpr int n = kVectorSize<T>, each = draws::kPerCounter<draws::DropoutMask>;
  const int64_t at = (int64_t{blockIdx.x} * kDrawThreads + threadIdx.x) * n, left = count - at;
  uint32_t words[4], chosen[n / 2] = {};
  draws::philox(read(key), static_cast<uint64_t>(at / each), words);
  const int first = static_cast<int>(at % each) / 2;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (k >= first && k - first < n / 2) chosen[k % (n / 2)] = words[k];
  bool kept[n];
#pragma unroll
  for (int k = 0; k < n / 2; ++k) draw(chosen + k, kept + 2 * k);
  const functors::MaskedScale scaled{{}, scale};
  auto v = load_first<n>(x + at, left);
  Vector<bool, n> keeps;
#pragma unroll
  for (int k = 0; k < n; ++k) v.v[k] = convert<T>(scaled(widen(v.v[k]), kept[k])), keeps.v[k] = kept[k];
  store_first(y + at, v, left);
  store_first(mask + at, keeps, left);
}

// The same for positions i of a strided index space. One thread per element. Operands: y, mask, x. The fourth
// is not a tensor: its offsets, plus `number`, are the row-major element numbers. C: compute type.
template <class C>
__global__ void __launch_bounds__(kDrawThreads, 4)
    drop_strided(StridedOperands<4> o, int64_t number, draws::DropoutMask draw, double scale, DeviceKey key) {
  const uint32_t i = blockIdx.x * kDrawThreads + threadIdx.x;
  if (i >= o.count) return;
  int64_t at[4];
  o.locate(i, at);
  const bool kept = element_of(draw, read(key), static_cast<uint64_t>(number + at[3]));
  const functors::MaskedScale scaled{{}, scale};
  store_as(o.data[0], o.dtype[0], at[0], scaled(load_as<C>(o.data[2], o.dtype[2], at[2]), kept));
  store_as(o.data[1], o.dtype[1], at[1], kept);
}

// Fisher-Yates shuffle: swaps order[i] with order[partner_of(i)] for i = 0 .. count - 1. One warp gives the
// result of one thread, 32 positions at a time, one per lane. Swaps without a common position run at once: a
// lane's turn is one more than the largest of earlier lanes whose partner is its position or its partner.
__global__ void __launch_bounds__(kWarp) swap_places(int64_t* order, int64_t count, DeviceKey from) {
  const PhiloxKey key = read(from);
  const int lane = threadIdx.x;
  for (int64_t left = count; left > 1; left -= kWarp) {
    const int64_t place = count - left + lane;
    uint32_t words[4];
    draws::philox(key, static_cast<uint64_t>(place) / 2, words);
    const uint32_t local[2] = {place % 2 ? words[2] : words[0], place % 2 ? words[3] : words[1]};
    const int64_t partner = draws::partner_of(place, count, local);
    int turn = 0;
#pragma unroll
    for (int l = 0; l < kWarp - 1; ++l) {
      const int64_t other = __shfl_sync(kAllLanes, partner, l);
      const int before = __shfl_sync(kAllLanes, turn, l);
      if (l < lane && (other == place || other == partner)) turn = std::max(turn, before + 1);
    }
    int last = turn;
#pragma unroll
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
      last = std::max(last, __shfl_xor_sync(kAllLanes, last, lanes));
    for (int later = last; later >= 0; --later) {
      if (last - later == turn && lane < left) {
        const int64_t mover = order[place];
        order[place] = order[partner];
        order[partner] = mover;
      }
      __syncwarp(kAllLanes);
    }
  }
}

// u[i] = u[i] < p[i] ? 1 : 0; NaN, and an error report, if p[i] is not in [0, 1]. One thread per element.
template <class T>
__global__ void __launch_bounds__(kDrawThreads)
    choose_below(T* u, const T* probabilities, int64_t count, ValueReports reports) {
  const int64_t i = int64_t{blockIdx.x} * kDrawThreads + threadIdx.x;
  if (i < count) {
    const T p = probabilities[i];
    const bool is_probability = p >= 0 && p <= 1;
    u[i] = !is_probability ? std::numeric_limits<T>::quiet_NaN() : u[i] < p ? T(1) : T(0);
    if (!is_probability) report(reports, i, std::bit_cast<uint64_t>(static_cast<double>(p)));
  }
}

}  // namespace

void uniform(const char* op, const DrawOutput& out, double low, double high, const DeviceKey& key,
             cudaStream_t stream) {
  if (out.view.dtype == DType::kF64)
    return run<double>(op, out, draws::Uniform<double>(low, high), key, stream);
  run<float, f16, bf16>(op, out, draws::Uniform<float>(low, high), key, stream);
}
void normal(const char* op, const DrawOutput& out, double mean, double std, const DeviceKey& key,
            cudaStream_t stream) {
  if (out.view.dtype == DType::kF64)
    return run<double>(op, out, draws::Normal<double>(mean, std), key, stream);
  run<float, f16, bf16>(op, out, draws::Normal<float>(mean, std), key, stream);
}
void bernoulli(const char* op, const DrawOutput& out, double p, const DeviceKey& key, cudaStream_t stream) {
  run<bool>(op, out, draws::Bernoulli(p), key, stream);
}
void dropout_mask(const char* op, const DrawOutput& out, double p, const DeviceKey& key,
                  cudaStream_t stream) {
  run<bool>(op, out, draws::DropoutMask(p), key, stream);
}
void randint(const char* op, const DrawOutput& out, int64_t low, uint64_t range, const DeviceKey& key,
             cudaStream_t stream) {
  run<int64_t>(op, out, draws::Integers{low, range}, key, stream);
}

void randperm(const char* op, int64_t* order, int64_t count, const DeviceKey& key, cudaStream_t stream) {
  arange(op, {order, DType::kI64}, count, 0, 1, stream);
  launch(op, swap_places, {1, kWarp}, stream, order, count, key);
}

void dropout(const char* op, const Dropout& d, double p, double scale, const DeviceKey& key,
             cudaStream_t stream) {
  const draws::DropoutMask draw(p);
  const auto& [y, mask, x] = d.views;
  const StridedIndex index = make_strided_index(
      d.sizes, std::array<Strides, 4>{d.strides[0], d.strides[1], d.strides[2], numbers_of(d.sizes)});
  if (index.numel == 0) return;
  bool in_rows = index.dims == 1 && y.dtype == x.dtype;
  for (size_t k = 0; k < 3; ++k) {
    in_rows = in_rows && (index.stride[k][0] == 1 || index.numel == 1);
    in_rows = in_rows && is_aligned(d.views[k].data, 16);
  }
  if (in_rows)
    return with_float(x.dtype, [&]<class T>(T) {
      launch(op, drop_rows<T>, {blocks_for(index.numel, kDrawThreads * kVectorSize<T>), kDrawThreads}, stream,
             y.as<T>(), mask.as<bool>(), x.as<const T>(), index.numel, draw, scale, key);
    });
  const View views[4] = {y, mask, x, x};
  for_each_part(index, kMaxDividend, {}, [&](const StridedIndex& part, const auto& offsets) {
    launch(op, x.dtype == DType::kF64 ? drop_strided<double> : drop_strided<float>,
           {blocks_for(part.numel, kDrawThreads), kDrawThreads}, stream,
           strided_operands<4>(part, views, {offsets[0], offsets[1], offsets[2]}), offsets[3], draw, scale,
           key);
  });
}

void masked_scale(const char* op, const StridedIndex& index, const View* views, double scale,
                  cudaStream_t stream) {
  const functors::MaskedScale f{{}, scale};
  if (views[0].dtype == DType::kF64)
    elementwise<double, double, double, uint8_t>(op, f, index, views, stream);
  else
    elementwise<float, float, float, uint8_t>(op, f, index, views, stream);
}
void bernoulli_from_uniform(const char* op, View u, View p, int64_t count, const ValueReports& reports,
                            cudaStream_t stream) {
  if (count == 0) return;
  const auto choose = [&]<class T>(T) {
    launch(op, choose_below<T>, {blocks_for(count, kDrawThreads), kDrawThreads}, stream, u.as<T>(),
           p.as<const T>(), count, reports);
  };
  u.dtype == DType::kF64 ? choose(double()) : choose(float());
}

}  // namespace gradus::cuda
