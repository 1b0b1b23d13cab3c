// Implementation of block.h: a scheduler that repeatedly enters the fiber of a random ready thread or starts
// the next thread, and the barriers and warp-wide operations at which threads leave their fibers.
#include "gradus/tools/cuda_emulator/block.h"

#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace gradus::cuda::emulated {

thread_local Block* Block::running_ = nullptr;

// A Block lives until the program exits, so its memory is never unmapped.
Block::Block()
    : shared_(static_cast<char*>(map_zeros(kMaxSharedBytes))),
      shared_state_(static_cast<Byte*>(map_zeros(kMaxSharedBytes))) {}

std::optional<Fault> Block::run(const Launch& launch, uint32_t stamp, uint32_t index, uint32_t number,
                                const std::vector<uint32_t>& blocks, Order* order) {
  launch_ = &launch;
  memory_ = memory_of(launch.device);
  blocks_ = &blocks;
  order_ = order;
  index_ = index, number_ = number, launch_stamp_ = stamp;
  ++shared_stamp_;
  const auto count = static_cast<uint32_t>(launch.threads);
  threads_.assign(count, {});
  for (uint32_t i = 0; i < count; ++i) threads_[i].index = static_cast<int>(i);
  order->shuffle(&start_order_, count);
  next_ = 0, gone_ = 0, time_ = 1, barrier_time_ = 0;
  meeting_.fill(0), left_.fill(0);
  const auto shared_bytes = static_cast<size_t>(launch.shared_bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(shared_, shared_bytes);
  __asan_poison_memory_region(shared_ + shared_bytes, static_cast<size_t>(kMaxSharedBytes) - shared_bytes);
#endif
  std::memset(shared_, 0xff, shared_bytes);
  std::memset(shared_state_, static_cast<int>(kFresh), shared_bytes);

  running_ = this;
  while (!fault_) {
    const bool can_start = next_ < start_order_.size();
    if (!ready_.empty() && (!can_start || order->below(4) != 0)) {
      Thread*& chosen = ready_[order->below(static_cast<uint32_t>(ready_.size()))];
      Thread* thread = chosen;
      chosen = ready_.back();
      ready_.pop_back();
      enter(thread->fiber, thread);
    } else if (can_start) {
      enter(idle_fiber(), nullptr);
    } else if (gone_ == launch.threads || !pass_barrier()) {
      break;
    }
  }
  running_ = nullptr;
  if (!fault_) return std::nullopt;
  ready_.clear(), at_barrier_.clear(), idle_.clear();
  for (const auto& fiber : fibers_) {
    fiber->restart();
    idle_.push_back(fiber.get());
  }
  std::optional<Fault> fault = std::move(fault_);
  fault_.reset();
  return fault;
}

// The entry of a fiber: runs threads of the block one after another. A thread that waits keeps its fiber, and
// the next thread starts on another one. A kernel without barriers needs one fiber.
void Block::run_threads() {
  Block& block = *running_;
  Fiber* const fiber = block.idle_.back();
  block.idle_.pop_back();
  fiber->begin();
  for (;;) {
    while (block.next_ < block.start_order_.size()) {
      Thread& thread = block.threads_[block.start_order_[block.next_++]];
      thread.fiber = fiber;
      thread.state = State::kRuns;
      block.self_ = &thread;
      block.launch_->call(block.launch_->arguments);
      thread.state = State::kGone;
      block.left_[static_cast<size_t>(thread.warp())] |= 1u << thread.lane();
      ++block.gone_;
    }
    block.idle_.push_back(fiber);
    fiber->leave();
    block.idle_.pop_back();
  }
}

Fiber* Block::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&run_threads));
    idle_.push_back(fibers_.back().get());
  }
  return idle_.back();
}

void Block::enter(Fiber* fiber, Thread* thread) {
  self_ = thread;
  if (thread) thread->state = State::kRuns;
  fiber->enter();
  self_ = nullptr;
}

void Block::leave(State state) {
  self_->state = state;
  self_->fiber->leave();
}

void Block::wait_for_block(const SourceLocation& location) {
  self_->location = location;
  at_barrier_.push_back(self_);
  leave(State::kAtBarrier);
}

// Called when no thread can run. Releases the threads at the barrier. If they can never be released, sets
// fault_ and returns false.
bool Block::pass_barrier() {
  for (const Thread& t : threads_)
    if (t.state == State::kMeets) {
      fault_ = describe(FaultKind::kMask, "lanes that the mask names never arrive", t.location, t);
      return false;
    }
  const Thread& first = *at_barrier_.front();
  if (gone_ > 0) {
    fault_ =
        describe(FaultKind::kBarrier,
                 "a barrier that not all threads of the block reach: " + std::to_string(gone_) + " have left",
                 first.location, first);
    return false;
  }
  for (const Thread* t : at_barrier_)
    if (!(t->location == first.location)) {
      fault_ = describe(FaultKind::kBarrier,
                        "threads wait at different barriers, others at " + emulated::describe(first.location),
                        t->location, *t);
      return false;
    }
  barrier_time_ = ++time_;
  for (Thread* t : at_barrier_) t->state = State::kReady;
  ready_.swap(at_barrier_);
  at_barrier_.clear();
  return true;
}

uint64_t Block::meet(Meeting meeting, uint32_t mask, uint64_t value, int from,
                     const SourceLocation& location) {
  Thread& self = *self_;
  const auto warp = static_cast<uint32_t>(self.warp());
  if (!(mask >> self.lane() & 1)) stop(FaultKind::kMask, "a lane that is not in its own mask", location);
  const int in_warp = launch_->threads - self.warp() * kLanes;
  if (in_warp < kLanes && mask >> in_warp)
    stop(FaultKind::kMask, "the mask names lanes that the block has not", location);
  if (left_[warp] & mask) stop(FaultKind::kMask, "the mask names lanes that have left", location);
  self.meeting = meeting, self.mask = mask, self.value = value, self.from = from, self.location = location;
  meeting_[warp] |= 1u << self.lane();
  if (!all_meet(mask, warp)) {
    leave(State::kMeets);
    return self.result;
  }
  complete(mask, warp);
  return self.result;
}

// Returns whether all lanes of the mask wait with this mask. A lane may still wait in an earlier operation
// with a different mask.
bool Block::all_meet(uint32_t mask, uint32_t warp) const {
  if ((meeting_[warp] & mask) != mask) return false;
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    if (threads_[warp * kLanes + static_cast<uint32_t>(__builtin_ctz(rest))].mask != mask) return false;
  return true;
}

// All lanes of the mask have arrived, the running thread last: exchanges their values and releases them.
void Block::complete(uint32_t mask, uint32_t warp) {
  Thread* const lanes = &threads_[warp * kLanes];
  uint64_t votes = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const Thread& t = lanes[__builtin_ctz(rest)];
    if (t.meeting != self_->meeting || !(t.location == self_->location))
      stop(FaultKind::kMask,
           "lanes meet at different locations, another at " + emulated::describe(t.location),
           self_->location);
    if (t.meeting == Meeting::kShuffle && !(mask >> (t.from & (kLanes - 1)) & 1))
      stop(FaultKind::kMask, "a shuffle reads a lane outside of its mask", self_->location);
    votes |= uint64_t(t.value != 0) << t.lane();
  }
  // Note [Order between threads] (shadow.h): every lane gets the maximum of the lanes' vector clocks.
  std::array<uint32_t, kLanes> seen{};
  if (mask != 0xffffffffu)
    for (uint32_t rest = mask; rest; rest &= rest - 1)
      for (int l = 0; l < kLanes; ++l) {
        const uint32_t known = lanes[__builtin_ctz(rest)].lanes_seen[static_cast<size_t>(l)];
        if (seen[static_cast<size_t>(l)] < known) seen[static_cast<size_t>(l)] = known;
      }
  ++time_;
  for (uint32_t rest = mask; rest; rest &= rest - 1) seen[static_cast<size_t>(__builtin_ctz(rest))] = time_;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Thread& t = lanes[__builtin_ctz(rest)];
    t.lanes_seen = seen;
    t.now = time_;
    t.result = t.meeting == Meeting::kBallot ? votes : lanes[t.from & (kLanes - 1)].value;
  }
  meeting_[warp] &= ~mask;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Thread& t = lanes[__builtin_ctz(rest)];
    if (&t == self_) continue;
    t.state = State::kReady;
    ready_.push_back(&t);
  }
}

void* Block::shared_memory(size_t bytes, const SourceLocation& location) {
  if (bytes > static_cast<size_t>(launch_->shared_bytes))
    stop(FaultKind::kSharedMemory,
         "the kernel wants " + std::to_string(bytes) + " bytes of shared memory, the launch gave " +
             std::to_string(launch_->shared_bytes),
         location);
  return shared_;
}

void Block::stop(FaultKind kind, const std::string& what, const SourceLocation& location,
                 const std::string& memory) {
  fault_ = describe(kind, what, location, *self_, memory);
  self_->fiber->leave();
  __builtin_unreachable();
}

Fault Block::describe(FaultKind kind, const std::string& what, const SourceLocation& location,
                      const Thread& thread, const std::string& memory) const {
  std::string text = "gradus emulated device: " + what + "\n  at " + emulated::describe(location) +
                     ", block " + std::to_string(index_) + ", thread " + std::to_string(thread.index) +
                     "\n  op " + launch_->op + ", kernel " + name_of_function(launch_->kernel) + ", " +
                     std::to_string(launch_->blocks) + " blocks of " + std::to_string(launch_->threads) +
                     " threads, " + std::to_string(launch_->shared_bytes) +
                     " bytes of shared memory, device " + std::to_string(launch_->device);
  if (!memory.empty()) text += "\n  memory " + memory;
  text += "\n  repeat with GRADUS_EMULATED_SEED=" + std::to_string(seed());
  return {kind, std::move(text)};
}

std::string Block::name_of_thread(uint32_t id) const {
  if (id == kNobody) return "other threads";
  const uint32_t number = id >> 10;
  const std::string block = number < blocks_->size() ? std::to_string((*blocks_)[number]) : "?";
  return "block " + block + ", thread " + std::to_string(id & 1023);
}

std::string Block::name_of_memory(const void* address) const {
  if (is_shared(address))
    return "shared memory, byte " + std::to_string(static_cast<const char*>(address) - shared_);
  const int device = device_whose_kernels_see(address);
  if (device < 0) return "";
  const DeviceMemory& memory = *memory_of(device);
  return "device " + std::to_string(device) + ", " + memory.describe(memory.offset(address));
}

}  // namespace gradus::cuda::emulated
