// Implementation of fiber.h: switches of stacks in assembly for x86-64 and AArch64, which save the
// callee-saved registers only.
#include "gradus/tools/cuda_emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// ThreadSanitizer is not informed of switches: it considers all fibers of a host thread to be that thread.
// Its depth of calls is correct again when all fibers have ended.

// Pushes the callee-saved registers on the current stack, stores its pointer in *from, and continues on stack
// `to`.
extern "C" void gradus_emulated_switch(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.globl gradus_emulated_switch
.type gradus_emulated_switch, @function
gradus_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gradus_emulated_switch, .-gradus_emulated_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl gradus_emulated_switch
.type gradus_emulated_switch, %function
gradus_emulated_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
.size gradus_emulated_switch, .-gradus_emulated_switch
)");
#else
#error "fibers need a switch of stacks for this processor"
#endif

namespace gradus::cuda::emulated {

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  void* p =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  // A guard page: a kernel that overflows its stack faults.
  mprotect(p, 4096, PROT_NONE);
  stack_ = static_cast<char*>(p);
  restart();
}

Fiber::~Fiber() { munmap(stack_, kStackBytes); }

// Writes the registers that the first switch to this stack restores, and the address of `entry`, to which it
// returns.
void Fiber::restart() {
  void** top = reinterpret_cast<void**>(stack_ + kStackBytes);
#if defined(__x86_64__)
  *--top = nullptr;                              // entry's return address: none
  *--top = reinterpret_cast<void*>(entry_);      // where the switch returns to
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // rbp, rbx, r12 to r15
#else
  top -= 20;
  for (int i = 0; i < 20; ++i) top[i] = nullptr;
  top[1] = reinterpret_cast<void*>(entry_);  // x30
#endif
  here_ = top;
  fake_here_ = nullptr;
}

void Fiber::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_caller_, stack_, kStackBytes);
#endif
  gradus_emulated_switch(&caller_, here_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_caller_, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_here_, caller_bottom_, caller_bytes_);
#endif
  gradus_emulated_switch(&here_, caller_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_here_, &caller_bottom_, &caller_bytes_);
#endif
}

void Fiber::begin() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &caller_bottom_, &caller_bytes_);
#endif
}

}  // namespace gradus::cuda::emulated
