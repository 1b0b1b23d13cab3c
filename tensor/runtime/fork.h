// Support for fork(). Threads and connections stay with the parent. A child may go on to compute. Where the
// parent used OpenMP, the child computes on one thread.
#pragma once

#include <atomic>
#include <thread>
#include <utility>

namespace gradus::internal {

// Returns the number of forks between the program's start and this process. An object made at another count
// belongs to the parent.
int fork_count();

// Notes that this thread starts an OpenMP team. Its threads will not exist in a child.
void use_team();
// Returns whether this thread's team belongs to the parent. OpenMP would wait for its threads forever.
bool has_lost_team();

// Keeps an object of the parent's until the child ends. Its destructor would act on what is not the child's.
template <class T> void abandon(T object) {
  struct Kept {
    T object;
    Kept* next;
  };
  static std::atomic<Kept*> all = nullptr;  // a list, so that it is no leak
  Kept* const kept = new Kept{std::move(object), all.load()};
  while (!all.compare_exchange_weak(kept->next, kept)) {
  }
}
// Abandons a thread of the parent. In the child it can be neither joined nor detached.
inline void forget_thread(std::thread& thread) { abandon(std::move(thread)); }

}  // namespace gradus::internal
