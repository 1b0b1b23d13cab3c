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

// Of the running thread. They do not change while it runs.
[[gnu::const]] int thread_index();
[[gnu::const]] int64_t block_index();
[[gnu::const]] int block_threads();
[[gnu::const]] int64_t grid_blocks();

void* shared_memory(size_t bytes, const std::source_location& at);
void sync_block(const std::source_location& at);
void sync_warp(uint32_t mask, const std::source_location& at);
uint64_t shuffle(uint32_t mask, uint64_t value, int from, const std::source_location& at);
uint32_t ballot(uint32_t mask, bool value, const std::source_location& at);
void vector_access(const void* p, size_t bytes, bool write, const std::source_location& at);
void need_shared(const void* p, bool shared, const std::source_location& at);
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

namespace gradus::cuda {

#define GRADUS_AT std::source_location at = std::source_location::current()
// What reaches memory here was told to the checker before.
#define GRADUS_UNSEEN [[gnu::noinline, gnu::no_sanitize("thread")]]

inline int thread_index() { return emulated::thread_index(); }
inline int64_t block_index() { return emulated::block_index(); }
inline int block_threads() { return emulated::block_threads(); }
inline int64_t grid_blocks() { return emulated::grid_blocks(); }

template <class T> T& shared_memory(GRADUS_AT) {
  static_assert(alignof(T) <= 16);
  return *static_cast<T*>(emulated::shared_memory(sizeof(T), at));
}

inline void sync_block(GRADUS_AT) { emulated::sync_block(at); }
inline void sync_warp(uint32_t mask = 0xffffffffu, GRADUS_AT) { emulated::sync_warp(mask, at); }
template <class T> T shuffle(uint32_t mask, T value, int lane, GRADUS_AT) {
  return emulated::shuffle_of(mask, value, lane & 31, at);
}
template <class T> T shuffle_xor(uint32_t mask, T value, int lanes, GRADUS_AT) {
  return emulated::shuffle_of(mask, value, (emulated::thread_index() & 31) ^ lanes, at);
}
template <class T> T shuffle_down(uint32_t mask, T value, int lanes, GRADUS_AT) {
  const int lane = emulated::thread_index() & 31;
  return emulated::shuffle_of(mask, value, lane + lanes > 31 ? lane : lane + lanes, at);
}
template <class T> T shuffle_up(uint32_t mask, T value, int lanes, GRADUS_AT) {
  const int lane = emulated::thread_index() & 31;
  return emulated::shuffle_of(mask, value, lane < lanes ? lane : lane - lanes, at);
}
inline uint32_t ballot(uint32_t mask, bool value, GRADUS_AT) { return emulated::ballot(mask, value, at); }

template <class V> GRADUS_UNSEEN V load_vector(const void* p, GRADUS_AT) {
  emulated::vector_access(p, sizeof(V), false, at);
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}
template <class V> GRADUS_UNSEEN void store_vector(void* p, V v, GRADUS_AT) {
  emulated::need_shared(p, false, at);
  emulated::vector_access(p, sizeof(V), true, at);
  std::memcpy(p, &v, sizeof(V));
}
template <class V> GRADUS_UNSEEN void store_shared(V* p, V v, GRADUS_AT) {
  emulated::need_shared(p, true, at);
  emulated::vector_access(p, sizeof(V), true, at);
  *p = v;
}

template <class T> GRADUS_UNSEEN T atomic_add(T* p, T value, GRADUS_AT) {
  static_assert(std::is_integral_v<T>);  // sums of floats would depend on the order of threads
  emulated::atomic_access(p, sizeof(T), at);
  const T old = *p;
  *p = old + value;
  return old;
}

GRADUS_UNSEEN inline uint64_t atomic_min(uint64_t* p, uint64_t value, GRADUS_AT) {
  emulated::atomic_access(p, sizeof *p, at);
  const uint64_t old = *p;
  *p = value < old ? value : old;
  return old;
}
GRADUS_UNSEEN inline uint64_t atomic_cas(uint64_t* p, uint64_t expected, uint64_t value, GRADUS_AT) {
  emulated::atomic_access(p, sizeof *p, at);
  const uint64_t old = *p;
  if (old == expected) *p = value;
  return old;
}

// 16-bit floats: as a GPU converts them, NaN apart, of which a GPU has one.
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
