// Support for children of fork(). A child has neither the threads nor the connections of its parent. A child may
// compute, but a thread that has used OpenMP in the parent runs loops without other threads in the child.
#pragma once

#include <atomic>
#include <utility>

namespace gradus::internal {

// Returns the generation of this process: 0 in the program's first process, n + 1 in a child of generation n. An
// object that stores the generation of its creation can thus detect that it was copied from a parent process.
// Thread-safe; counted by pthread_atfork.
int fork_count();

// Records that the calling thread starts an OpenMP team. Must be called before each parallel region. The team's
// other threads will not exist in a child.
void record_openmp_team();
// Returns whether the calling thread last called record_openmp_team() in a parent process: the threads of its
// OpenMP team then exist only in that parent, and a parallel region would wait for them forever.
bool openmp_team_is_in_parent();

// Takes ownership of an object of the parent and never destroys it, because its destructor would act on resources
// of the parent: a std::thread, for example, which the child can neither join nor detach. Thread-safe.
template <class T> void abandon(T object) {
  struct Node {
    T object;
    Node* next;
  };
  static std::atomic<Node*> all = nullptr;  // reachable, so that leak checkers accept it
  Node* const node = new Node{std::move(object), all.load()};
  while (!all.compare_exchange_weak(node->next, node)) {
  }
}

}  // namespace gradus::internal
