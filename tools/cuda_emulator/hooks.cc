// The functions that code compiled with `g++ -fsanitize=thread` calls for each memory access. Kernel files
// are compiled that way and linked with these functions, which report to the checker, instead of the
// sanitizer's library.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gradus/tools/cuda_emulator/block.h"

#if !defined(__SANITIZE_THREAD__)

namespace {

using gradus::cuda::emulated::Access;
using gradus::cuda::emulated::Block;
using gradus::cuda::emulated::SourceLocation;

// Reports an access by the instruction before return address `code` to the running block.
inline void tell(const void* address, size_t bytes, Access access, const void* code) {
  if (Block* block = Block::running()) block->access(address, bytes, access, false, SourceLocation::of(code));
}
// A struct is copied in words of 8 bytes, as nvcc does.
void tell_range(void* address, size_t bytes, Access access, const void* code) {
  char* p = static_cast<char*>(address);
  for (size_t at = 0; at < bytes; at += 8) tell(p + at, std::min<size_t>(8, bytes - at), access, code);
}

}  // namespace

extern "C" {

#define GRADUS_HOOK(name, bytes, access) \
  void __tsan_##name(void* a) { tell(a, bytes, Access::access, __builtin_return_address(0)); }

GRADUS_HOOK(read1, 1, kRead)
GRADUS_HOOK(read2, 2, kRead)
GRADUS_HOOK(read4, 4, kRead)
GRADUS_HOOK(read8, 8, kRead)
GRADUS_HOOK(read16, 16, kRead)
GRADUS_HOOK(write1, 1, kWrite)
GRADUS_HOOK(write2, 2, kWrite)
GRADUS_HOOK(write4, 4, kWrite)
GRADUS_HOOK(write8, 8, kWrite)
GRADUS_HOOK(write16, 16, kWrite)
GRADUS_HOOK(unaligned_read2, 2, kRead)
GRADUS_HOOK(unaligned_read4, 4, kRead)
GRADUS_HOOK(unaligned_read8, 8, kRead)
GRADUS_HOOK(unaligned_read16, 16, kRead)
GRADUS_HOOK(unaligned_write2, 2, kWrite)
GRADUS_HOOK(unaligned_write4, 4, kWrite)
GRADUS_HOOK(unaligned_write8, 8, kWrite)
GRADUS_HOOK(unaligned_write16, 16, kWrite)
#undef GRADUS_HOOK

void __tsan_read_range(void* a, size_t bytes) {
  tell_range(a, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* a, size_t bytes) {
  tell_range(a, bytes, Access::kWrite, __builtin_return_address(0));
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// The host's code in kernel files has atomics (of std::shared_ptr, of statics); kernels use atomicAdd().
#define GRADUS_ATOMICS(bits, T)                                                                           \
  T __tsan_atomic##bits##_load(const volatile T* a, int) { return __atomic_load_n(a, __ATOMIC_SEQ_CST); } \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int) { __atomic_store_n(a, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                                             \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                       \
  T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) {                                            \
    return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) {                                            \
    return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* c, T v, int, int) {                \
    return __atomic_compare_exchange_n(a, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);               \
  }
GRADUS_ATOMICS(8, uint8_t)
GRADUS_ATOMICS(32, uint32_t)
GRADUS_ATOMICS(64, uint64_t)
#undef GRADUS_ATOMICS

}  // extern "C"

#endif
