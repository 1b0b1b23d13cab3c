// make_allreduce_cb: a GradManager callback that all-reduces gradients between ranks, as MegEngine's function
// of this name and PyTorch's c10d::Reducer.
//
//   gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
//
// When backward returns, grad() of every attached tensor is the sum or mean over the ranks. Each rank uses
// its callback from one thread, and all ranks give it the same tensors, in the same order, and options. All
// ranks must run the same number of backwards, but the backwards may reach different parameters: a parameter
// that one rank does not reach counts as zero on that rank, and a parameter that no rank reaches keeps its
// grad(). Callbacks attached after this one get the reduced gradient when its bucket has arrived. The time of
// arrival differs between ranks, so these callbacks must not communicate.
//
// Algorithm: at the start of a backward each rank sends a note, a message that lists the parameters that its
// backward will reach (BackwardNote). From all notes the ranks derive the same set of gradients to send
// (Consensus). Buckets of gradients are all-reduced in a fixed order while backward is running, each once its
// gradients are complete (Note [Bucket order] in internal/bucket_plan.h).
//
// A recording (the gradient tape of GradManager) that ends without a backward on some rank cancels the step
// on all ranks: no gradient is delivered, optimizers skip the step, and parameters stay equal. Gradients
// accumulated under no_sync stay accumulated. A rank whose backward throws fails the job, and the other
// ranks' errors name that rank. If an enclosing recording is open (double backward), gradients are reduced
// tensor by tensor with the differentiable all-reduce, and a comm hook is not called.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/base/reduce_op.h"
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist {

namespace internal {
class AttachedParams;
struct BackwardNote;
struct BucketPlan;
struct Consensus;
enum class Op : uint8_t;
}  // namespace internal

// Thrown by AllReduceCallbackOptions::check_finite.
struct NotFiniteError : ValueError {
  using ValueError::ValueError;
};

struct AllReduceCallbackOptions {
  Group group = {};                      // the ranks to reduce over; default: all ranks
  double bucket_cap_mb = 25;             // MiB; a bucket is closed once its gradients reach this size
  double first_bucket_mb = 1;            // cap of the first bucket; small, so that communication starts early
  bool overlap = true;                   // send during backward; false: after backward
  bool gradient_as_bucket_view = false;  // grad() shares memory with its bucket: no copy, less memory
  bool uneven_no_sync = false;           // ranks may run different numbers of backwards within no_sync
  // Every backward reaches the same parameters, so ranks exchange notes in the first backward only, and for
  // join() and check_divergence_every.
  // Errors: StateError in a backward that reaches other parameters.
  bool static_graph = false;
  // Assigns gradients to buckets again after the first synchronizing backward, in the order in which that
  // backward computed them on the first rank with data; again after tensors have been attached.
  bool rebuild_buckets = false;
  CommHook comm_hook = {};  // replaces the all-reduce
  // Compares the parameters of all ranks before every n-th synchronizing backward (0: never).
  // Errors: MismatchError naming the first tensor that differs, and the rank.
  int check_divergence_every = 0;
  // Searches every rank's gradients for NaN and infinity. After an error no gradient of that backward is
  // delivered, and training may continue.
  // Errors: NotFiniteError on all ranks naming rank and tensor.
  bool check_finite = false;
  // Returns a parameter's name for errors and reports. Default: parameters are numbered.
  std::function<std::string(const Tensor& param)> name_of = {};
  // Called in each synchronizing backward, after the gradients are computed. Returns tensors to broadcast
  // from the group's rank 0; within join(), from the first rank that still has data.
  std::function<std::vector<Tensor>()> broadcast_after = {};
  // Name in errors of the group that the callback creates. Default: "make_allreduce_cb" and a number.
  std::string group_name = {};
};

// Counters, and this rank's times in seconds of the last synchronizing backward (one outside of no_sync).
struct ReducerStats {
  int64_t backwards = 0;       // number of synchronizing backwards so far
  int64_t canceled = 0;        // skipped steps: some rank's recording ended without a backward
  double backward_s = 0;       // duration of the last backward, waiting included
  double communication_s = 0;  // time with at least one bucket in flight
  double exposed_s = 0;        // part of communication_s after the computation had ended
  int64_t bytes = 0;           // size of the communicated gradients, of the last backward
  int buckets = 0;             // number of buckets communicated in the last backward
  // Fraction of the communication time that overlapped with computation, in [0, 1].
  double overlap() const { return communication_s > 0 ? 1 - exposed_s / communication_s : 1; }
};

struct JoinOptions {
  // true: a mean divides by the size of the group. false: by the number of ranks that still have data.
  bool divide_by_initial_world_size = true;
  bool throw_on_early_termination = false;  // PeerError on all ranks once the first rank has no more data
  bool enable = true;                       // false: join() only calls the body
};

class AllReduceCallback;
class Joinable;

// Ends no_sync when it goes out of scope. Keeps the callbacks alive. Scopes nest.
// Movable: `std::optional<NoSync> off; off.emplace(ddp.no_sync());`.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks);

 private:
  std::vector<std::shared_ptr<void>> scopes_;  // the deleters end no_sync
};

// The result of make_allreduce_cb. One object may be attached to several managers. A backward that begins
// before the object's last backward has ended is a StateError.
class AllReduceCallback final : public GradCallback, public std::enable_shared_from_this<AllReduceCallback> {
 public:
  // See make_allreduce_cb. `maker` identifies the function that the user called. The ranks compare `maker`,
  // and errors contain its name.
  AllReduceCallback(ReduceOp op, AllReduceCallbackOptions options, internal::Op maker);
  ~AllReduceCallback() override;

  // Backwards within the scope accumulate their gradients without sending them; grad() does not change. The
  // next backward outside the scope adds the accumulated gradients to its own and reduces the sum. All ranks
  // must run the same number of backwards within no_sync, unless uneven_no_sync is set.
  NoSync no_sync();
  bool in_no_sync() const { return no_sync_ > 0; }
  // Discards the gradients accumulated under no_sync.
  void drop_pending();

  const ReducerStats& stats() const { return stats_; }
  // Returns the names of dead parameters: tensors that no rank reached in each of the last
  // `backwards` synchronizing backwards.
  std::vector<std::string> unused_parameters(int backwards = 1) const;
  // Returns the names of the parameters that only other ranks reached in the last synchronizing backward.
  std::vector<std::string> locally_unused_parameters() const;

  // The group whose collectives send notes and buckets: a duplicate of the group in the options.
  const Group& group() const { return group_; }

  // Called by GradManager in the order that GradCallback describes. begin() makes a Backward, the state of
  // one backward, and sends this rank's note. ready() adds a gradient to its bucket, and starts the
  // all-reduce of complete buckets. landed() returns the gradients of completed all-reduces without waiting.
  // finish() waits for all others and returns their gradients. finish() or abandon() ends the Backward.
  void attached_to(const Tensor& param) override;
  void recording_opened(GradManager& manager) override;
  void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) override;
  std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) override;
  std::vector<Delivery> landed() override;
  std::vector<Delivery> finish() override;
  void abandon(std::exception_ptr error) noexcept override;

 private:
  friend class NoSync;
  friend void join(const std::vector<std::shared_ptr<AllReduceCallback>>&, const std::function<void()>&,
                   const JoinOptions&, const std::vector<Tensor>&, const std::vector<Joinable*>&);
  class Backward;

  bool is_single_rank() const { return group_.size() == 1; }
  Backward& open_backward();
  void count_backward();
  void check_capture();
  // Makes plan_, the assignment of gradients to buckets, if plan_ is null.
  void plan();
  void report_plan() const;  // TORCH_DISTRIBUTED_DEBUG
  // Returns this rank's note of a BackwardNote::Kind. `backward` is null if the recording ended without one.
  internal::BackwardNote note(int64_t kind, const Backward* backward) const;
  void send(const internal::BackwardNote& note);
  // Sends the note of a recording that ended without a backward.
  void send_cancellation();
  // join(): takes part in the other members' backwards, with zeros, until all members have called this
  // function. Returns the group rank of a member with the most backwards.
  // Errors: PeerError with throw_on_early_termination if another member starts a backward.
  int serve_until_all_joined();

  const ReduceOp op_;
  const AllReduceCallbackOptions options_;
  const bool without_job_;  // this object was made before init_process_group
  // The group in the options. Carries the differentiable all-reduces of an enclosing recording, since the
  // program defines their order, unlike that of buckets.
  const Group user_group_;
  const Group group_;
  const std::unique_ptr<internal::AttachedParams> params_;
  std::shared_ptr<internal::BucketPlan> plan_;  // null: not made yet, or tensors have changed since
  std::optional<JoinOptions> join_;             // set during join()
  int no_sync_ = 0;                             // number of open no_sync scopes
  int64_t number_ = 0;                          // number of the last backward; BackwardNote::number
  int64_t synchronized_ = 0;                    // number of completed synchronizing backwards
  std::shared_ptr<const internal::Consensus> last_consensus_;
  std::shared_ptr<Backward> backward_;  // the current backward
  // The id of a capture, and whether its last backward was in no_sync.
  std::pair<uint64_t, std::shared_ptr<bool>> captured_;
  ReducerStats stats_;
};

// Collective over the group: duplicates the group for the gradients' traffic. All members must create their
// callbacks in the same order.
// Errors: ValueError for an op other than sum and mean, a cap that is not positive, or a rank outside the
// group; MismatchError if a member makes another call. Before init_process_group the group has one rank; a
// backward in a larger job is then a StateError.
std::shared_ptr<AllReduceCallback> make_allreduce_cb(ReduceOp op = ReduceOp::kMean,
                                                     AllReduceCallbackOptions options = {});
// As in MegEngine, `op` is "sum" or "mean"; upper case is accepted.
// Errors: also ValueError for another text.
std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op,
                                                     AllReduceCallbackOptions options = {});
std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, const Group& group);

// Runs body(), a training loop with uneven numbers of steps per rank, as PyTorch's Join. A rank whose body
// has returned joins the other ranks' backwards with zero gradients until all bodies have returned. Then the
// parameters, and the tensors in `also` (buffers), are broadcast from one of the ranks with the most steps. A
// joined rank (its body has returned) does not take part in other collectives of the body (SyncBatchNorm):
// use throw_on_early_termination for such models. Collective: all ranks pass the same callbacks in the same
// order. An exception of body() leaves join() at once. `joinables` (joinable.h) are served as well.
// Errors: PeerError with throw_on_early_termination, naming the rank that ended first; StateError for a
// callback within another join().
void join(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks, const std::function<void()>& body,
          const JoinOptions& options = {}, const std::vector<Tensor>& also = {},
          const std::vector<Joinable*>& joinables = {});

}  // namespace gradus::dist
