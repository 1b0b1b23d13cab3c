// Operands and workspaces of emulated library calls, when the calls run in their stream. Errors that a real
// device may not report are faults: operands beyond their allocation, uninitialized or in host memory, and
// results that overlap operands.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/memory.h"

namespace gradus::cuda::emulated {

struct LibraryCall {
  const char* function;  // name of the library's function
  const char* op;        // the Gradus op that was called, a string literal; null: none
};

Fault library_fault(const LibraryCall& call, FaultKind kind, const std::string& what,
                    const std::string& memory = "");

// Thrown after a fault was delivered, to end the call.
struct Stop {};
[[noreturn]] void stop(const LibraryCall& call, FaultKind kind, const std::string& what, const void* p);

// Calls f(T()) with an element's type.
template <class F> auto with_element(DType type, F&& f) {
  if (type == DType::kF64) return f(double());
  if (type == DType::kF32) return f(float());
  return type == DType::kF16 ? f(f16()) : f(bf16());
}

// A tensor of floating-point elements at an address of the host's view (memory.h).
struct Operand {
  const char* name;  // in messages
  const void* p;
  DType type;
  std::vector<int64_t> sizes, strides;  // in elements; strides of at least 0

  int64_t element_size() const { return size_of(type); }
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t s : sizes) n *= s;
    return n;
  }
  const char* begin_address() const { return static_cast<const char*>(p); }
  const char* end_address() const;  // behind the last element
  // Calls f(bytes from p) for each element, in row-major order.
  template <class F> void for_each(F&& f) const {
    if (count() > 0) walk(0, 0, f);
  }

 private:
  template <class F> void walk(size_t d, int64_t at, F& f) const {
    if (d == sizes.size()) return f(at * element_size());
    for (int64_t i = 0; i < sizes[d]; ++i) walk(d + 1, at + i * strides[d], f);
  }
};

// Checks that an operand lies within one allocation, and is aligned to the size of its elements.
DeviceMemory& check_place(const LibraryCall& call, const Operand& x);

// Rounds to TF32 (10 bits of mantissa, to nearest even), as tensor cores do with f32 operands.
template <class T> T as_tf32(T v) {
  if (!std::isfinite(v)) return v;
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(v));
  return static_cast<T>(std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu));
}
template <class T> T rounded(T v, DType type) {
  return with_element(type, [&](auto zero) { return static_cast<T>(static_cast<decltype(zero)>(v)); });
}

// Returns the elements in row-major order. Elements that were not written are a fault.
template <class T> std::vector<T> read(const LibraryCall& call, const Operand& x, bool tf32 = false) {
  DeviceMemory& memory = *device_that_holds(x.p);
  const char* const bytes = memory.for_kernels(x.p);
  const Byte* const known = memory.state(memory.offset(bytes));
  std::vector<T> elements;
  elements.reserve(static_cast<size_t>(x.count()));
  with_element(x.type, [&](auto v) {
    x.for_each([&](int64_t at) {
      for (int64_t byte = at; byte < at + x.element_size(); ++byte)
        if (known[byte] != Byte::kWritten)
          stop(call, FaultKind::kUnwritten, std::string("operand ") + x.name + " was not written",
               x.begin_address() + at);
      std::memcpy(&v, bytes + at, sizeof v);
      elements.push_back(tf32 ? as_tf32(static_cast<T>(v)) : static_cast<T>(v));
    });
  });
  return elements;
}
template <class T> void write(const Operand& x, const std::vector<T>& elements) {
  DeviceMemory& memory = *device_that_holds(x.p);
  char* const bytes = memory.for_kernels(x.p);
  Byte* const known = memory.state(memory.offset(bytes));
  with_element(x.type, [&](auto v) {
    auto next = elements.begin();
    x.for_each([&](int64_t at) {
      v = static_cast<decltype(v)>(*next++);
      std::memcpy(bytes + at, &v, sizeof v);
      std::memset(known + at, static_cast<int>(Byte::kWritten), sizeof v);
    });
  });
}

// Checks that elements of a result overlap neither each other nor those of an operand.
void check_apart(const LibraryCall& call, const Operand& result, const std::vector<const Operand*>& sources);

// The workspace of a call, which is filled when the call begins and checked when it ends. Work of other
// streams may run in between.
struct LibraryWorkspace {
  void* p;
  size_t given, needed;  // bytes; needed <= given
  uint64_t stamp;        // the pattern that fills it
};
// Delivers a fault, without throwing Stop, if the workspace is not valid device memory.
void fill(const LibraryCall& call, const LibraryWorkspace& w);
// Delivers a fault and throws Stop if the pattern was changed. Returns false if the workspace is not valid
// device memory, which fill() has reported.
bool check_unchanged(const LibraryCall& call, const LibraryWorkspace& w);

}  // namespace gradus::cuda::emulated
