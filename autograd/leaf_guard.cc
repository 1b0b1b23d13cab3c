// Implements LeafGuard by a hash table of the process from leaf to guard, under one mutex. check_guard, which
// GradManager's attach and record call for each leaf, calls the guard without the mutex; the guard's owner
// ensures that it is alive (leaf_guard.h).
#include "gradus/autograd/leaf_guard.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace gradus::autograd {
namespace {

struct GuardedLeaf {
  Ref<Leaf> leaf;  // owned, so that no other leaf gets its address, the table's key
  const LeafGuard* guard;
};

// Shared by all threads, because ranks may be threads. Never destroyed, because wrappers may be static.
struct GuardTable {
  std::mutex mutex;
  std::unordered_map<const Leaf*, GuardedLeaf> guarded;
  std::atomic<bool> empty{true};  // lets check_guard return without the lock
};
GuardTable& table() {
  static auto& instance = *new GuardTable;
  return instance;
}

// Removes the entries for which matches(entry) is true. The caller has locked the mutex.
template <class F> void erase_guarded_if(GuardTable& table, F&& matches) {
  std::erase_if(table.guarded, [&](const auto& entry) { return matches(entry.second); });
  table.empty = table.guarded.empty();
}

}  // namespace

LeafGuard::~LeafGuard() {
  std::lock_guard lock(table().mutex);
  erase_guarded_if(table(), [this](const GuardedLeaf& g) { return g.guard == this; });
}

void LeafGuard::guard(const std::vector<Ref<Leaf>>& leaves) {
  GuardTable& guards = table();
  std::lock_guard lock(guards.mutex);
  erase_guarded_if(guards,
                   [this](const GuardedLeaf& g) { return g.guard == this && !g.leaf->tensor().defined(); });
  for (const Ref<Leaf>& leaf : leaves) guards.guarded[leaf.get()] = {leaf, this};
  guards.empty = guards.guarded.empty();
}

void check_guard(const Leaf& leaf, const std::vector<Callback>& callbacks) {
  GuardTable& guards = table();
  if (guards.empty) return;
  const LeafGuard* guard = nullptr;
  {
    std::lock_guard lock(guards.mutex);
    if (const auto it = guards.guarded.find(&leaf); it != guards.guarded.end()) guard = it->second.guard;
  }
  if (guard)
    if (const Tensor x = leaf.tensor(); x.defined()) guard->check_recording(x, callbacks);
}

}  // namespace gradus::autograd
