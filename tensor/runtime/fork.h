// Support for fork(). A child has neither the threads nor the connections of its parent, but may compute: on one
// thread if the parent used OpenMP.
#pragma once

#include <atomic>
#include <thread>
#include <utility>

namespace gradus::internal {

// Returns the number of fork() calls between the start of the program and this process. An object that was created
// at a lower count belongs to a parent process.
int fork_count();

// Records that this thread starts an OpenMP team, whose threads will not exist in a child.
void record_team();
// Returns whether the threads of this thread's OpenMP team exist only in the parent. A parallel region would hang.
bool team_is_in_parent();

// Keeps an object of the parent alive in the child for ever: its destructor would act on resources of the parent.
template <class T> void abandon(T object) {
  struct Kept {
    T object;
    Kept* next;
  };
  static std::atomic<Kept*> all = nullptr;  // reachable, so that leak checkers accept it
  Kept* const kept = new Kept{std::move(object), all.load()};
  while (!all.compare_exchange_weak(kept->next, kept)) {
  }
}
// Abandons a thread of the parent, which the child can neither join nor detach.
inline void forget_thread(std::thread& thread) { abandon(std::move(thread)); }

}  // namespace gradus::internal
