// Implementation of memory.h. The memory of a device is a memfd that is mapped twice: without access rights
// for the host, and readable and writable for kernels.
#include "gradus/tools/cuda_emulator/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/queued_launch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace gradus::cuda::emulated {
namespace {

constexpr int kDevices = 2;
constexpr size_t kBytes = size_t(1) << 30;
// Allocation restarts at address 0 once it is this many bytes past the number of bytes in use. Later reuse
// would find more accesses to freed memory, but each byte ever used takes 7 bytes of the host for the
// checker's state, and 31 where kernels access parts of words.
constexpr size_t kRound = size_t(64) << 20;

std::vector<std::unique_ptr<DeviceMemory>>& devices() {
  static auto& list = *new std::vector<std::unique_ptr<DeviceMemory>>([] {
    std::vector<std::unique_ptr<DeviceMemory>> made;
    for (int i = 0; i < kDevices; ++i) made.push_back(std::make_unique<DeviceMemory>(kBytes));
    return made;
  }());
  return list;
}

void* map(size_t bytes, int protection, int flags, int file) {
  void* p = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, file, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return p;
}

struct sigaction handler_before;

// Handles SIGSEGV: reports an access of the host to device memory; other faults go to the previous handler.
void on_fault(int signal_number, siginfo_t* info, void* context) {
  if (const DeviceMemory* memory = device_that_holds(info->si_addr)) {
    const std::string text = "gradus emulated device: the host touched device memory: " +
                             memory->describe(memory->offset(memory->for_kernels(info->si_addr))) +
                             host_op_and_seed() + "\n";
    if (write(2, text.data(), text.size()) < 0) _exit(4);
    std::abort();
  }
  if (handler_before.sa_flags & SA_SIGINFO) return handler_before.sa_sigaction(signal_number, info, context);
  signal(SIGSEGV, SIG_DFL);  // happens again, and ends the program
}

void catch_the_host() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &handler_before);
}

void poison([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(p, bytes);
#endif
}
void unpoison([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(p, bytes);
#endif
}

constexpr size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void* map_zeros(size_t bytes) { return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(rounded(bytes, 1 << 16)), shadow_(bytes_) {
  static std::once_flag once;
  std::call_once(once, catch_the_host);
  const int file = memfd_create("gradus-emulated-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0) throw std::bad_alloc();
  closed_ = static_cast<char*>(map(bytes_, PROT_NONE, MAP_SHARED, file));
  open_ = static_cast<char*>(map(bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file));
  close(file);
  state_ = static_cast<Byte*>(map_zeros(bytes_));
  poison(open_, bytes_);
}

DeviceMemory::~DeviceMemory() {
  unpoison(open_, bytes_);
  munmap(closed_, bytes_);
  munmap(open_, bytes_);
  munmap(state_, bytes_);
}

void* DeviceMemory::allocate(size_t bytes, const char* op) {
  if (bytes == 0 || bytes > bytes_) return nullptr;
  const size_t wanted = rounded(bytes, kAlignment) + kGap;
  // First fit after the last allocation, then from the beginning.
  for (const size_t from : {next_, size_t(0)}) {
    size_t at = from;
    auto block = blocks_.lower_bound(from);
    if (block != blocks_.begin()) {
      const auto before = std::prev(block);
      at = std::max(at, rounded(before->first + before->second.bytes, kAlignment) + kGap);
    }
    for (; block != blocks_.end() && block->first < at + wanted; ++block)
      at = rounded(block->first + block->second.bytes, kAlignment) + kGap;
    if (at + wanted > bytes_) continue;
    blocks_[at] = {bytes, "allocation " + std::to_string(++allocations_) + " of " + std::to_string(bytes) +
                              " bytes" + (op ? std::string(" for ") + op : "")};
    used_ += bytes;
    next_ = at + wanted < kRound + used_ ? at + wanted : 0;
    unpoison(open_ + at, bytes);
    std::memset(open_ + at, 0xff, bytes);
    std::memset(state_ + at, static_cast<int>(kFresh), bytes);
    return closed_ + at;
  }
  return nullptr;
}

bool DeviceMemory::free(void* p) {
  const auto block = blocks_.find(static_cast<size_t>(static_cast<char*>(p) - closed_));
  if (block == blocks_.end()) return false;
  const size_t at = block->first, bytes = block->second.bytes;
  std::memset(state_ + at, static_cast<int>(Byte::kFree), bytes);
  poison(open_ + at, bytes);
  freed_.push_back({at, std::move(block->second)});
  if (freed_.size() > 1000) freed_.pop_front();
  used_ -= bytes;
  blocks_.erase(block);
  return true;
}

bool DeviceMemory::is_within_a_block(const void* p, size_t bytes) const {
  const auto at = static_cast<size_t>(static_cast<const char*>(p) - closed_);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return false;
  --block;
  return at - block->first <= block->second.bytes && bytes <= block->second.bytes - (at - block->first);
}

void DeviceMemory::copy(void* to, const void* from, size_t bytes) {
  DeviceMemory *target = device_that_holds(to), *source = device_that_holds(from);
  std::memmove(target ? target->for_kernels(to) : to, source ? source->for_kernels(from) : from, bytes);
  if (!target) return;
  Byte* known = target->state(target->offset(target->for_kernels(to)));
  if (source)
    std::memmove(known, source->state(source->offset(source->for_kernels(from))), bytes);
  else
    std::memset(known, static_cast<int>(Byte::kWritten), bytes);
}

void DeviceMemory::set(void* to, int value, size_t bytes) {
  std::memset(for_kernels(to), value, bytes);
  std::memset(state_ + offset(for_kernels(to)), static_cast<int>(Byte::kWritten), bytes);
}

std::string DeviceMemory::describe(size_t offset) const {
  auto block = blocks_.upper_bound(offset);
  const auto behind = block;
  if (block != blocks_.begin()) {
    --block;
    if (offset < block->first + block->second.bytes)
      return block->second.name + ", byte " + std::to_string(offset - block->first);
  }
  for (auto freed = freed_.rbegin(); freed != freed_.rend(); ++freed)
    if (offset >= freed->offset && offset < freed->offset + freed->block.bytes)
      return freed->block.name + ", which was freed, byte " + std::to_string(offset - freed->offset);
  if (block != blocks_.end() && block->first < offset)
    return std::to_string(offset - block->first - block->second.bytes + 1) + " bytes beyond " +
           block->second.name;
  if (behind != blocks_.end())
    return std::to_string(behind->first - offset) + " bytes before " + behind->second.name;
  return "no allocation";
}

DeviceMemory* device_that_holds(const void* p) {
  for (const auto& memory : devices())
    if (memory->contains(p)) return memory.get();
  return nullptr;
}

int device_whose_kernels_see(const void* p) {
  for (int i = 0; i < device_count(); ++i)
    if (memory_of(i)->is_seen_by_kernels(p)) return i;
  return -1;
}

DeviceMemory* memory_of(int device) {
  return device >= 0 && device < device_count() ? devices()[static_cast<size_t>(device)].get() : nullptr;
}

int device_number(const DeviceMemory* memory) {
  for (int i = 0; i < device_count(); ++i)
    if (memory_of(i) == memory) return i;
  return -1;
}

int device_count() { return static_cast<int>(devices().size()); }

void set_devices(int count, size_t bytes_each) {
  devices().clear();
  for (int i = 0; i < count; ++i) devices().push_back(std::make_unique<DeviceMemory>(bytes_each));
}

void show_to_kernels(void* bytes, size_t n) {
  for (size_t i = 0; i + sizeof(void*) <= n; i += sizeof(void*)) {
    void* word;
    std::memcpy(&word, static_cast<char*>(bytes) + i, sizeof word);
    if (const DeviceMemory* memory = device_that_holds(word)) {
      word = memory->for_kernels(word);
      std::memcpy(static_cast<char*>(bytes) + i, &word, sizeof word);
    }
  }
}

}  // namespace gradus::cuda::emulated
