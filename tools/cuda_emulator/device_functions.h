// Device functions and try_launch of tensor/cuda/kernels/kernel.h for the emulated device. The host's compiler
// compiles kernels with -fsanitize=thread, whose hooks (hooks.cc) report every access to the checker.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradus/tools/cuda_emulator/queued_launch.h"

#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif

namespace gradus::cuda::emulated {

// Indices and sizes of the running kernel thread, which are constant while it runs.
[[gnu::const]] unsigned thread_index();
[[gnu::const]] unsigned block_index();
[[gnu::const]] unsigned block_threads();
[[gnu::const]] unsigned grid_blocks();

// The type of threadIdx, blockIdx, blockDim and gridDim: x calls `read`.
template <unsigned (*read)()> struct Index {
  struct X {
    operator unsigned() const { return read(); }
  } x;
};

// Calls of the running block (block.h). A fault, located at `at`, ends the block.
void* shared_memory(size_t bytes, const std::source_location& at);
void sync_block(const std::source_location& at);
void sync_warp(uint32_t mask, const std::source_location& at);
// Returns the value of lane from % 32.
uint64_t shuffle(uint32_t mask, uint64_t value, int from, const std::source_location& at);
uint32_t ballot(uint32_t mask, bool value, const std::source_location& at);
void vector_access(const void* p, size_t bytes, bool write, const std::source_location& at);
void need_global(const void* p, const std::source_location& at);
void atomic_access(const void* p, size_t bytes, const std::source_location& at);

template <class T> T shuffle_of(uint32_t mask, T value, int from, const std::source_location& at) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  word = shuffle(mask, word, from, at);
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

}  // namespace gradus::cuda::emulated

#define GRADUS_AT std::source_location at = std::source_location::current()
// For functions that report their accesses to the checker themselves.
#define GRADUS_UNSEEN [[gnu::noinline, gnu::no_sanitize("thread")]]

// ---- CUDA's own names

inline constexpr gradus::cuda::emulated::Index<gradus::cuda::emulated::thread_index> threadIdx{};
inline constexpr gradus::cuda::emulated::Index<gradus::cuda::emulated::block_index> blockIdx{};
inline constexpr gradus::cuda::emulated::Index<gradus::cuda::emulated::block_threads> blockDim{};
inline constexpr gradus::cuda::emulated::Index<gradus::cuda::emulated::grid_blocks> gridDim{};

inline void __syncthreads(GRADUS_AT) { gradus::cuda::emulated::sync_block(at); }
inline void __syncwarp(unsigned mask = 0xffffffffu, GRADUS_AT) {
  gradus::cuda::emulated::sync_warp(mask, at);
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane, GRADUS_AT) {
  return gradus::cuda::emulated::shuffle_of(mask, value, lane & 31, at);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lanes, GRADUS_AT) {
  return gradus::cuda::emulated::shuffle_of(mask, value, (threadIdx.x & 31) ^ lanes, at);
}
inline unsigned __ballot_sync(unsigned mask, bool value, GRADUS_AT) {
  return gradus::cuda::emulated::ballot(mask, value, at);
}

// Plain accesses are atomic here: threads run one at a time, and switch only at barriers and warp-wide
// operations.
template <class T> GRADUS_UNSEEN T atomicAdd(T* p, std::type_identity_t<T> value, GRADUS_AT) {
  static_assert(std::is_integral_v<T>);  // sums of floats would depend on the order of threads
  gradus::cuda::emulated::atomic_access(p, sizeof(T), at);
  const T old = *p;
  *p = old + value;
  return old;
}
template <class T> GRADUS_UNSEEN T atomicMin(T* p, std::type_identity_t<T> value, GRADUS_AT) {
  gradus::cuda::emulated::atomic_access(p, sizeof(T), at);
  const T old = *p;
  *p = value < old ? value : old;
  return old;
}
template <class T>
GRADUS_UNSEEN T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value, GRADUS_AT) {
  gradus::cuda::emulated::atomic_access(p, sizeof(T), at);
  const T old = *p;
  if (old == expected) *p = value;
  return old;
}

// ---- functions that kernel.h declares

namespace gradus::cuda {

template <class T> T& shared_memory(GRADUS_AT) {
  static_assert(alignof(T) <= 16);
  return *static_cast<T*>(emulated::shared_memory(sizeof(T), at));
}

template <class V> GRADUS_UNSEEN V load_vector(const void* p, GRADUS_AT) {
  emulated::vector_access(p, sizeof(V), false, at);
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}
template <class V> GRADUS_UNSEEN void store_vector(void* p, V v, GRADUS_AT) {
  emulated::need_global(p, at);
  emulated::vector_access(p, sizeof(V), true, at);
  std::memcpy(p, &v, sizeof(V));
}

// Conversions of 16-bit floats, with the results of a GPU, which converts every NaN to 0x7fff.
inline float f16_to_float(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline uint16_t float_to_f16(float x) {
  return x != x ? uint16_t(0x7fff) : std::bit_cast<uint16_t>(static_cast<_Float16>(x));
}
inline uint16_t float_to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return x != x ? uint16_t(0x7fff) : uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

#undef GRADUS_AT
#undef GRADUS_UNSEEN

// Queues a launch with a copy of the arguments, in which host addresses of device memory are replaced with
// the kernels' addresses (memory.h).
template <class... P, class... A>
cudaError_t try_launch(const char* op, void (*kernel)(P...), const Grid& grid, cudaStream_t stream,
                       A... args) {
  static_assert(sizeof...(P) == sizeof...(A) && (std::is_trivially_copyable_v<P> && ...));
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  };
  static_assert(sizeof(Call) <= 32764, "a kernel's arguments are too large");
  auto call = std::make_shared<Call>(Call{kernel, {static_cast<P>(args)...}});
  std::apply([](auto&... a) { (emulated::show_to_kernels(&a, sizeof a), ...); }, call->arguments);
  const auto run = [](const void* c) {
    const Call& queued = *static_cast<const Call*>(c);
    std::apply(queued.kernel, queued.arguments);
  };
  return emulated::enqueue_launch({op, reinterpret_cast<const void*>(kernel), run, std::move(call),
                                   sizeof(Call), grid.blocks, grid.threads, grid.shared_bytes},
                                  stream);
}

}  // namespace gradus::cuda
