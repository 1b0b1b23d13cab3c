// dist::join: training loops with different numbers of steps per rank.
#include <exception>
#include <thread>

#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"
#include "gradus/distributed/data_parallel/internal/reducer.h"

namespace gradus::dist {
namespace {

using internal::Reducer, internal::reducer_of;

// Takes part in the other ranks' backwards until all ranks have joined. Each reducer has its own thread,
// since the order in which the other ranks use the reducers is unknown. Returns the group rank of a member with
// the most backwards in the first reducer's group.
int serve(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks) {
  std::vector<std::exception_ptr> errors(callbacks.size());
  std::vector<std::thread> threads;
  int last = 0;
  const auto serve_one = [&](size_t i) {
    try {
      const int member = reducer_of(callbacks[i]).serve_until_all_joined();
      if (i == 0) last = member;
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  for (size_t i = 1; i < callbacks.size(); ++i)
    threads.push_back(internal::start_thread([&, i] { serve_one(i); }));
  serve_one(0);
  for (std::thread& thread : threads) internal::join_thread(thread);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return last;
}

}  // namespace

void join(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks, const std::function<void()>& body,
          const JoinOptions& options, const std::vector<Tensor>& also) {
  if (callbacks.empty() || !options.enable) return body();
  struct Scope {
    const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks;
    size_t begun = 0;
    ~Scope() {
      for (size_t i = 0; i < begun; ++i) reducer_of(callbacks[i]).join().end();
    }
  } scope{callbacks};
  for (; scope.begun < callbacks.size(); ++scope.begun)
    reducer_of(callbacks[scope.begun]).join().begin(options);
  body();
  if (reducer_of(callbacks[0]).group().size() == 1) return;
  const int last = serve(callbacks);
  for (size_t i = 0; i < callbacks.size(); ++i) {
    const Reducer& reducer = reducer_of(callbacks[i]);
    std::vector<Tensor> tensors = reducer.tensors();
    if (i == 0) tensors.insert(tensors.end(), also.begin(), also.end());
    internal::PackedBroadcast(reducer.group(), tensors, last).finish();
  }
}

}  // namespace gradus::dist
