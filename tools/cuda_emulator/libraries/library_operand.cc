// Implementation of library_operand.h: the checks of operands and workspaces.
#include "gradus/tools/cuda_emulator/libraries/library_operand.h"

#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/cuda_emulator/pinned.h"

namespace gradus::cuda::emulated {

Fault library_fault(const LibraryCall& call, FaultKind kind, const std::string& what,
                    const std::string& memory) {
  std::string text = std::string("gradus emulated device: ") + call.function + ": " + what + "\n  op " +
                     (call.op ? call.op : "(none)");
  if (!memory.empty()) text += "\n  memory " + memory;
  return {kind, text + "\n  repeat with GRADUS_EMULATED_SEED=" + std::to_string(seed())};
}

void stop(const LibraryCall& call, FaultKind kind, const std::string& what, const void* p) {
  const DeviceMemory* const memory = device_that_holds(p);
  deliver(library_fault(call, kind, what,
                        memory ? memory->describe(memory->offset(memory->for_kernels(p))) : ""));
  throw Stop();
}

const char* Operand::end_address() const {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return begin_address() + (last + 1) * element_size();
}

DeviceMemory& check_place(const LibraryCall& call, const Operand& x) {
  const std::string name = std::string("operand ") + x.name;
  DeviceMemory* const memory = device_that_holds(x.p);
  if (!memory)
    stop(call, FaultKind::kHostMemory,
         name + (is_pinned(x.p) ? " is pinned memory: not emulated" : " is not the device's memory"), x.p);
  if (!memory->is_within_a_block(x.p, static_cast<size_t>(x.end_address() - x.begin_address()))) {
    const bool begins = memory->is_within_a_block(x.p, 1);
    stop(call, FaultKind::kOutOfBounds, name + " reaches beyond its memory",
         begins ? x.end_address() - 1 : x.p);
  }
  if (reinterpret_cast<uintptr_t>(x.p) % static_cast<size_t>(size_of(x.type)) != 0)
    stop(call, FaultKind::kMisaligned, name + " is at no multiple of " + std::to_string(size_of(x.type)),
         x.p);
  return *memory;
}

void check_apart(const LibraryCall& call, const Operand& result, const std::vector<const Operand*>& sources) {
  const char* const begin = result.begin_address();
  std::vector<bool> bytes(static_cast<size_t>(result.end_address() - begin));
  const auto holds = [&](const char* p) {
    return p >= begin && static_cast<size_t>(p - begin) < bytes.size() &&
           bytes[static_cast<size_t>(p - begin)];
  };
  result.for_each([&](int64_t at) {
    if (holds(begin + at)) stop(call, FaultKind::kRace, "elements of the result overlap", begin + at);
    for (int64_t i = at; i < at + result.element_size(); ++i) bytes[static_cast<size_t>(i)] = true;
  });
  for (const Operand* x : sources) {
    if (x->end_address() <= begin || x->begin_address() >= begin + bytes.size()) continue;
    x->for_each([&](int64_t at) {
      if (holds(x->begin_address() + at))
        stop(call, FaultKind::kRace, std::string("operand ") + x->name + " is overwritten while it is read",
             x->begin_address() + at);
    });
  }
}

namespace {

bool is_in_place(const LibraryWorkspace& w) {
  const DeviceMemory* const memory = device_that_holds(w.p);
  return memory && memory->is_within_a_block(w.p, w.given);
}

// Calls f(word) for each whole 8-byte word of the workspace's `needed` bytes, then marks these bytes as
// written.
template <class F> void for_each_word(const LibraryWorkspace& w, F&& f) {
  DeviceMemory& memory = *device_that_holds(w.p);
  char* const bytes = memory.for_kernels(w.p);
  for (size_t at = 0; at + sizeof(uint64_t) <= w.needed; at += sizeof(uint64_t)) f(bytes + at);
  std::memset(memory.state(memory.offset(bytes)), static_cast<int>(Byte::kWritten), w.needed);
}

}  // namespace

void fill(const LibraryCall& call, const LibraryWorkspace& w) {
  if (!is_in_place(w)) {
    const FaultKind kind = device_that_holds(w.p) ? FaultKind::kOutOfBounds : FaultKind::kHostMemory;
    return deliver(
        library_fault(call, kind, "the workspace is no memory of the device, or reaches beyond it"));
  }
  for_each_word(w, [&](char* word) { std::memcpy(word, &w.stamp, sizeof w.stamp); });
}

bool check_unchanged(const LibraryCall& call, const LibraryWorkspace& w) {
  if (!is_in_place(w)) return false;
  for_each_word(w, [&](char* word) {
    if (std::memcmp(word, &w.stamp, sizeof w.stamp) != 0)
      stop(call, FaultKind::kRace, "the workspace was changed while the call used it", w.p);
  });
  return true;
}

}  // namespace gradus::cuda::emulated
