// make_allreduce_cb: the callback that makes gradients those of all ranks together.
//
//   gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
//
// When backward returns, grad() of every attached tensor is the sum or mean over the ranks. All ranks run the
// same number of backwards; they need not reach the same parameters: what one rank does not reach counts as
// zero there, what nobody reaches keeps its grad(). Gradients travel in buckets while backward goes on (Note
// [Bucket order] in bucket_plan.h), and only those of parameters that some rank reached.
//
// A recording that ends without a backward on some rank cancels that step on all: no gradient is delivered,
// so optimizers skip it everywhere and parameters stay equal (what no_sync has kept back waits for the next
// one). A rank whose backward throws fails the job by name. Inside a recording opened before, the all-reduce
// is the differentiable one, tensor by tensor; a hook is not used there.
//
// Callbacks attached after this one get the reduced gradient when its bucket has come: at another moment on
// each rank, so they must not communicate.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/base/reduce_op.h"
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist {

namespace internal {
class Reducer;
enum class Op : uint8_t;
}  // namespace internal

// check_finite has found NaN or infinity.
struct NotFiniteError : ValueError {
  using ValueError::ValueError;
};

struct AllReduceCallbackOptions {
  Group group = {};
  double bucket_cap_mb = 25;             // MiB; a bucket is closed when it has reached the cap
  double first_bucket_mb = 1;            // of the first bucket, so that communication starts early
  bool overlap = true;                   // send while backward goes on; otherwise after it
  bool gradient_as_bucket_view = false;  // grad() is a part of the bucket: one copy less, one piece of memory
  bool uneven_no_sync = false;           // ranks may run different numbers of backwards within no_sync
  bool static_graph = false;  // ranks reach the same parameters every time: they agree on them once
  CommHook comm_hook = {};    // instead of the all-reduce
  // Every so many backwards, compares the parameters of all ranks (0: never).
  // Errors: MismatchError naming the first tensor that differs, and the rank.
  int check_divergence_every = 0;
  // Looks for NaN and infinity in every rank's gradient. Where there is one, no gradient of that backward is
  // delivered, and training may go on.
  // Errors: NotFiniteError on all ranks naming rank and tensor.
  bool check_finite = false;
  // The names of parameters, for messages and reports: net.named_parameters(). Else they are numbered.
  std::function<std::string(const Tensor& param)> name_of = {};
  // Called after each backward that synchronized: tensors that become rank 0's (of the group) on all ranks.
  std::function<std::vector<Tensor>()> broadcast_after = {};
  // Of the group that the callback makes, for messages. Default: "make_allreduce_cb" and a number.
  std::string group_name = {};
};

// Times of one backward, on this rank.
struct ReducerStats {
  int64_t backwards = 0;       // that synchronized, so far
  int64_t canceled = 0;        // steps that were skipped: some rank ended its recording without a backward
  double backward_s = 0;       // the last one, from its begin to its end, waiting included
  double communication_s = 0;  // with at least one bucket under way
  double exposed_s = 0;        // of that, while backward had nothing left to compute
  int64_t bytes = 0;           // of gradients handed to communication
  int buckets = 0;
  // Part of the communication that computation hid, 0 to 1.
  double overlap() const { return communication_s > 0 ? 1 - exposed_s / communication_s : 1; }
};

struct JoinOptions {
  // A mean counts ranks that have ended as zeros; else only the others.
  bool divide_by_initial_world_size = true;
  bool throw_on_early_termination = false;  // the first rank to end is an error on all
  bool enable = true;                       // false: only runs the body
};

class AllReduceCallback;

// Ends no_sync when it goes out of scope. Movable: `std::optional<NoSync> off; off.emplace(ddp.no_sync());`.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks);
  ~NoSync();
  NoSync(NoSync&& other) noexcept : reducers_(std::move(other.reducers_)) { other.reducers_.clear(); }
  NoSync& operator=(NoSync&& other) noexcept {
    reducers_.swap(other.reducers_);  // what was here ends with the other one
    return *this;
  }

 private:
  std::vector<std::shared_ptr<internal::Reducer>> reducers_;
};

// What make_allreduce_cb returns. One object may serve several managers, whose backwards come one after the
// other. internal::Reducer is the only class of this kind.
class AllReduceCallback : public GradCallback {
 public:
  // Gradients of backwards in the scope are kept back, not sent: grad() stays as it was. The next backward
  // outside adds them to its own, and sends once. All ranks must do the same, unless uneven_no_sync is set.
  virtual NoSync no_sync() = 0;
  // Forgets what no_sync has kept back.
  virtual void drop_pending() = 0;

  virtual const ReducerStats& stats() const = 0;
  // Returns the names of dead parameters: tensors that no rank reached in each of the last
  // `backwards` synchronizing backwards.
  virtual std::vector<std::string> unused_parameters(int backwards = 1) const = 0;
  // Returns what this rank's last synchronizing backward did not reach though another rank did.
  virtual std::vector<std::string> locally_unused_parameters() const = 0;

 private:
  friend class internal::Reducer;
  AllReduceCallback() = default;
};

// Collective over the group: it makes a group of its own for the gradients. All members make their callbacks
// in the same order.
// Errors: ValueError for an op other than sum and mean, or a cap that is not positive; MismatchError for a
// member that calls something else; to attach a tensor on a GPU, where there are several members, DeviceError.
std::shared_ptr<AllReduceCallback> make_allreduce_cb(ReduceOp op = ReduceOp::kMean,
                                                     AllReduceCallbackOptions options = {});
// MegEngine's form: "sum" or "mean", in any case.
std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op,
                                                     AllReduceCallbackOptions options = {});
std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, const Group& group);

// Runs body(), a training loop that may have more steps on one rank than on another. A rank whose body has
// returned takes part in the others' backwards with zeros until all have ended; then all take over the
// parameters (and `also`: buffers) of a rank that went on longest. Collectives of the body's own
// (SyncBatchNorm) are not taken part in: use throw_on_early_termination there.
// Errors: PeerError with throw_on_early_termination, naming the rank that ended first.
void join(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks, const std::function<void()>& body,
          const JoinOptions& options = {}, const std::vector<Tensor>& also = {});

}  // namespace gradus::dist
