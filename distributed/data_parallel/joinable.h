// Joinable: an object with collectives in each step of a loop that some ranks end before others, as PyTorch's
// torch.distributed.algorithms.join.Joinable. A rank whose loop has ended (it has joined) calls shadow_step() in each
// step of the others, which runs the same collectives without data.
//
//   struct Counter final : dist::Joinable {
//     void add(int64_t n) { notify(), total += sum_of_ranks(n); }        // a step
//     void shadow_step() override { total += sum_of_ranks(0); }
//   };
//   dist::join({&counter}, body);     // ddp.join(body, {}, {&counter}) together with a model
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist {

namespace internal {
struct JoinedObjects;
}

class Joinable {
 public:
  Joinable() = default;
  virtual ~Joinable() = default;
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;

  // Called on a rank whose body has returned, once for each step of the other ranks. Runs the collectives of
  // the object's step. An exception of another type than DistributedError fails the job.
  virtual void shadow_step() = 0;
  // Called once on each rank when all ranks have joined. `is_last_joiner`: this rank has not shadowed a step.
  virtual void after_join(bool is_last_joiner) { (void)is_last_joiner; }
  // The ranks that join. Default: all ranks of the job.
  virtual Group join_group() { return {}; }

 protected:
  // To be called once in each step of the body, before all collectives of the step: joined ranks then shadow
  // the step. Does nothing outside of join(), and for all objects of a join() but the first: a step uses each
  // object of the join() once, in their order. Collective.
  // Errors: PeerError with throw_on_early_termination if a rank has joined, also of later calls.
  void notify();

 private:
  friend struct internal::JoinedObjects;
  internal::JoinedObjects* joined_ = nullptr;  // not null during join()
};

// Runs body(), as join() of callbacks. A rank whose body has returned calls shadow_step() of all objects, in
// their order, once for each step of the other ranks, in the thread of the call. The objects must outlive the
// call. Collective: all ranks pass the same objects in the same order.
// Errors: those of join() of callbacks; ValueError for a null pointer, an object given twice, objects of groups of
// different ranks, and on a rank outside of the group.
void join(std::initializer_list<Joinable*> objects, const std::function<void()>& body,
          const JoinOptions& options = {});

namespace internal {

// The objects of one join(); may be none.
struct JoinedObjects {
  JoinedObjects(const std::vector<Joinable*>& objects, const JoinOptions& options);
  ~JoinedObjects();
  // Exchanges which ranks have joined. Returns whether all have. Collective over the first object's group.
  // Errors: PeerError with throw_on_early_termination if some have and some have not.
  bool exchange(bool has_joined);
  void serve_until_all_joined();
  void after_join();

  const std::vector<Joinable*>& objects;
  const JoinOptions& options;
  Group group;
  bool has_shadowed = false;         // this rank has shadowed a step
  std::optional<int> ended_by = {};  // the rank that exchange()'s PeerError names
};

}  // namespace internal
}  // namespace gradus::dist
