// CallRecorder: recording, replay, and the plan of memory: offsets in the arena by first fit, largest result
// first, as in Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020 (greedy by
// size).
#include "gradus/tensor/call_recorder.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/guarded_memory.h"

namespace gradus::internal {
namespace {

constexpr int64_t kAlignment = 64;  // of results in the arena, in bytes

// An intermediate result: entries [first, last] use it.
struct Intermediate {
  Ref<Storage> storage;
  size_t first, last;
  int64_t bytes, offset = 0;

  bool overlaps_in_time(const Intermediate& o) const { return first <= o.last && o.first <= last; }
};

// Sets the offsets of all results. Returns the bytes that they need together.
int64_t set_offsets(std::vector<Intermediate>& results) {
  std::ranges::stable_sort(results, std::greater(), &Intermediate::bytes);
  int64_t end = 0;
  std::vector<Intermediate*> placed;  // by offset
  for (Intermediate& r : results) {
    for (const Intermediate* other : placed) {
      if (!r.overlaps_in_time(*other)) continue;
      if (r.offset + r.bytes <= other->offset) break;
      r.offset = std::max(r.offset, other->offset + other->bytes);
    }
    placed.insert(std::ranges::upper_bound(placed, r.offset, {}, &Intermediate::offset), &r);
    end = std::max(end, r.offset + r.bytes);
  }
  return end;
}

}  // namespace

void CallRecorder::add(const KernelCall& call) {
  note_writes();
  const Context& context = Context::current();
  entries_.push_back({std::make_unique<const StoredCall>(call), {}, {}});
  Entry& entry = entries_.back();
  entry.in_training = !context.recordings.empty() || context.running_node;
  for (const Tensor* x : tensors_of(call)) {
    const Ref<Storage>& storage = x->storage();
    if (!seen_.insert(storage.get()).second) continue;
    known_.push_back({storage, storage->version()});
    // Replays reuse a result's storage. Its version must grow, because Storage::kernel_data belongs to one version.
    if (own_.contains(storage.get())) entry.written.push_back(storage);
  }
}

void CallRecorder::run_on_host(const char*, std::function<void()> f) {
  note_writes();
  {
    const CapturePause pause;
    f();
  }
  entries_.push_back({nullptr, std::move(f), {}});
  for (KnownStorage& known : known_) known.version = known.storage->version();  // f counts its own writes
}

// Adds the storages whose version has changed since the end of the last entry to that entry: ops increment
// versions after their kernel.
void CallRecorder::note_writes() {
  for (KnownStorage& known : known_)
    if (const uint32_t now = known.storage->version(); std::exchange(known.version, now) != now)
      entries_.back().written.push_back(known.storage);
}

void CallRecorder::finish() {
  if (!entries_.empty()) note_writes();
  plan_memory();
  known_.clear();
  seen_.clear();
  own_.clear();
}

// Removes the step's autograd graph, whose nodes keep saved tensors alive, from tensors that only the calls refer
// to. Returns whether there were any; their nodes may have held further tensors.
bool CallRecorder::drop_history() {
  std::unordered_map<TensorImpl*, uint32_t> references;
  for (const Entry& entry : entries_)
    if (entry.call)
      for (const Tensor* x : tensors_of(entry.call->call())) ++references[x->ref().get()];
  bool is_dropped = false;
  for (const auto& [impl, count] : references)
    if (impl->slot && !impl->slot->is_leaf() && impl->use_count() == count)
      impl->slot = nullptr, is_dropped = true;
  return is_dropped;
}

void CallRecorder::plan_memory() {
  while (drop_history()) {
  }
  // The references that the recorded calls hold, by tensor and by storage, and the entries that use a storage.
  std::unordered_map<TensorImpl*, uint32_t> references;
  std::unordered_map<const Storage*, Intermediate> uses;
  std::unordered_set<const Storage*> first_use_is_result;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].call) continue;
    const TensorPointers tensors = tensors_of(entries_[i].call->call());
    for (const Tensor* x : tensors) {
      ++references[x->ref().get()];
      const auto [use, is_new] = uses.try_emplace(x->storage().get(), Intermediate{x->storage(), i, i, 0});
      use->second.last = i;
      if (is_new && x == tensors.front()) first_use_is_result.insert(x->storage().get());
    }
  }
  std::unordered_map<const Storage*, uint32_t> tensors_of_storage;  // that only the calls refer to
  for (const auto& [impl, count] : references)
    if (impl->use_count() == count) ++tensors_of_storage[impl->storage.get()];
  std::unordered_map<const Storage*, uint32_t> written_references;  // of entries' lists of writes
  for (const Entry& entry : entries_)
    for (const Ref<Storage>& storage : entry.written) ++written_references[storage.get()];
  std::vector<Intermediate> results;
  for (auto& [storage, use] : uses) {
    constexpr uint32_t kHeldByKnown = 1, kHeldByUses = 1;
    const uint32_t held_here =
        kHeldByKnown + kHeldByUses + tensors_of_storage[storage] + written_references[storage];
    if (!own_.contains(storage)) persistent_.push_back(use.storage);
    if (storage->use_count() != held_here) continue;
    if (!own_.contains(storage) || !first_use_is_result.contains(storage) || storage->is_external()) continue;
    use.bytes = (storage->bytes() + kAlignment - 1) / kAlignment * kAlignment;
    intermediate_bytes_ += use.bytes;
    results.push_back(std::move(use));
  }
  if (results.empty() || is_guarding()) return;
  std::ranges::sort(results, {}, &Intermediate::first);  // the order must not depend on addresses
  arena_bytes_ = set_offsets(results);
  const Ref<Storage> arena = Storage::allocate(kCPU, arena_bytes_);
  for (const Intermediate& r : results) r.storage->move_into(arena, r.offset);
}

void CallRecorder::replay() const {
  const bool is_observed = observer() != nullptr;
  const struct Restore {
    bool& value;
    ~Restore() { value = false; }
  } in_training{Context::current().replays_training};
  for (const Entry& entry : entries_) {
    in_training.value = entry.in_training;
    if (!entry.call)
      entry.on_host();
    else if (is_observed)
      launch(entry.call->call());
    else
      entry.call->run();
    for (const Ref<Storage>& storage : entry.written) storage->bump_version();
  }
  in_training.value = false;
  for (const auto& f : after_replay_) f();
}

bool CallRecorder::is_current() const {
  return is_valid() && std::ranges::none_of(persistent_, [](const auto& s) { return s->is_replaced(); });
}

bool CallRecorder::uses(const Storage& storage) const {
  return std::ranges::any_of(persistent_, [&](const auto& known) { return known.get() == &storage; });
}

}  // namespace gradus::internal
