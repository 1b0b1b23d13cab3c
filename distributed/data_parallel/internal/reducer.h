// Reducer: what stands behind an AllReduceCallback. It connects the parts: the attached tensors, the plan of
// buckets over them, the exchange of notes at the start of a backward, and the reduction of the buckets that
// some rank reached. Note [Bucket order] in bucket_plan.h.
//
// A step's way: begin opens a Backward and sends this rank's note. ready puts gradients into the Reduction,
// which launches full buckets. landed and finish deliver what has come. finish or abandon closes the
// Backward. In reducer.cc these come first; what they call follows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/internal/join_state.h"
#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"
#include "gradus/distributed/data_parallel/internal/reduction.h"

namespace gradus::dist::internal {

class Reducer final : public AllReduceCallback, public std::enable_shared_from_this<Reducer> {
 public:
  // Collective: `maker` is what the user called; ranks compare it.
  Reducer(ReduceOp op, AllReduceCallbackOptions options, Op maker);

  void attached_to(const Tensor& param) override;
  void recording_opened(GradManager&) override { config_.users_group.state().recording_opens(); }
  void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) override;
  std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) override;
  std::vector<Delivery> landed() override;
  std::vector<Delivery> finish() override;
  void abandon(std::exception_ptr error) noexcept override;

  NoSync no_sync() override { return NoSync({shared_from_this()}); }
  void drop_pending() override { params_.drop_kept(); }
  const ReducerStats& stats() const override { return stats_; }
  std::vector<std::string> unused_parameters(int backwards) const override;
  std::vector<std::string> locally_unused_parameters() const override;

  void enter_no_sync() { ++no_sync_; }
  void leave_no_sync() { --no_sync_; }
  bool keeps() const { return no_sync_ > 0; }

  // Of join(): between its begin and its end, ranks may end at different times.
  JoinState& join() { return join_; }
  // Takes part in the others' backwards until all have come here. Returns the index of a member
  // that came last.
  // Errors: PeerError with throw_on_early_termination when others go on.
  int serve_until_all_joined();

  const Group& group() const { return config_.group; }
  // Attached tensors that are alive, in the order of attaching.
  std::vector<Tensor> tensors() const { return params_.tensors(); }

 private:
  // The backward under way.
  struct Backward {
    Backward(TimePoint begun, bool keeping, bool check_finite)
        : begun(begun), keeping(keeping), finite(check_finite) {}
    bool canceled() const { return reduction && reduction->consensus() && reduction->consensus()->canceled; }

    const TimePoint begun;
    const bool keeping;  // within no_sync
    FiniteCheck finite;
    Gradients gradients;                 // of the attached tensors
    std::optional<Reduction> reduction;  // none when keeping, or alone
    std::optional<PackedBroadcast> broadcast;
    bool outer = false;         // an outer recording may see it
    int64_t tracked_bytes = 0;  // sent outside of buckets
    bool agreed_error = false;  // all ranks throw the same
    int owed_none = 0;          // recordings that were dropped meanwhile
  };

  bool alone() const { return group().size() == 1; }
  Backward& open_backward();
  void count_backward();
  void forget_dead();
  void plan();
  BackwardNote note(BackwardNote::Kind kind) const;
  void send(const BackwardNote& note);
  void start_reduction(Backward& b, const std::shared_ptr<BackwardExchange>& exchange);
  void post_none();

  void learn(Backward& b);
  bool learn_if_come(Backward& b);
  template <class F> void on_all(Backward& b, F check);
  void reduce_rest(Backward& b, std::vector<Delivery>* to);
  bool someone_tracks(const Backward& b) const;
  void deliver_tracked(Backward& b, std::vector<Delivery>& to);
  void start_broadcast(Backward& b);
  void conclude(Backward& b);
  void count(const Backward& b, TimePoint computed);

  const ReducerConfig config_;
  AttachedParams params_;
  std::shared_ptr<BucketPlan> plan_;  // null: to be made
  JoinState join_;
  int no_sync_ = 0;           // how many scopes are open
  int64_t number_ = 0;        // of the last backward that ranks have in common
  int64_t synchronized_ = 0;  // backwards
  std::shared_ptr<BackwardExchange> last_exchange_;
  std::shared_ptr<Backward> backward_;
  ReducerStats stats_;
};

inline Reducer& reducer_of(const std::shared_ptr<AllReduceCallback>& callback) {
  return static_cast<Reducer&>(*callback);
}

}  // namespace gradus::dist::internal
