// The process-wide table of guarded leaves.
#include "gradus/autograd/leaf_guard.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace gradus::autograd {
namespace {

struct Guarded {
  Ref<Leaf> leaf;  // keeps the address, which is the table's key, from being reused
  const LeafGuard* guard;
};

// Shared by all threads, because ranks may be threads. Never destroyed, because wrappers may be static.
struct Table {
  std::mutex mutex;
  std::unordered_map<const Leaf*, Guarded> guarded;
  std::atomic<bool> empty{true};  // lets check_guard return without the lock
};
Table& table() {
  static auto& table = *new Table;
  return table;
}

template <class F> void erase_guarded(Table& table, F&& expired) {
  std::erase_if(table.guarded, [&](const auto& entry) { return expired(entry.second); });
  table.empty = table.guarded.empty();
}

}  // namespace

LeafGuard::~LeafGuard() {
  std::lock_guard lock(table().mutex);
  erase_guarded(table(), [this](const Guarded& g) { return g.guard == this; });
}

void LeafGuard::guard(const std::vector<Ref<Leaf>>& leaves) {
  Table& all = table();
  std::lock_guard lock(all.mutex);
  erase_guarded(all, [this](const Guarded& g) { return g.guard == this && !g.leaf->tensor().defined(); });
  for (const Ref<Leaf>& leaf : leaves) all.guarded[leaf.get()] = {leaf, this};
  all.empty = all.guarded.empty();
}

void check_guard(const Leaf& leaf, const std::vector<Callback>& callbacks) {
  Table& all = table();
  if (all.empty) return;
  const LeafGuard* guard = nullptr;
  {
    std::lock_guard lock(all.mutex);
    if (const auto it = all.guarded.find(&leaf); it != all.guarded.end()) guard = it->second.guard;
  }
  if (guard)
    if (const Tensor x = leaf.tensor(); x.defined()) guard->check_recording(x, callbacks);
}

}  // namespace gradus::autograd
