// Reducer: the implementation of AllReduceCallback, the counterpart of PyTorch's c10d::Reducer. It combines
// AttachedParams, the BucketPlan, the BackwardExchange of notes and the Reduction of buckets. See Note
// [Bucket order] in bucket_plan.h.
//
// Calls during a step: begin() opens a Backward and sends this rank's note. ready() adds a gradient to the
// Reduction, which launches complete buckets. landed() and finish() return reduced gradients. finish() or
// abandon() closes the Backward.
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
  // Collective. `maker` is the function that the user called; ranks compare it.
  Reducer(ReduceOp op, AllReduceCallbackOptions options, Op maker);

  void attached_to(const Tensor& param) override;
  void recording_opened(GradManager&) override { config_.users_group.state().recording_opens(); }
  void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) override;
  std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) override;
  std::vector<Delivery> landed() override;
  std::vector<Delivery> finish() override;
  void abandon(std::exception_ptr error) noexcept override;

  NoSync no_sync() override { return NoSync({shared_from_this()}); }
  void drop_pending() override { params_.clear_accumulated(); }
  const ReducerStats& stats() const override { return stats_; }
  std::vector<std::string> unused_parameters(int backwards) const override;
  std::vector<std::string> locally_unused_parameters() const override;

  void enter_no_sync() { ++no_sync_; }
  void leave_no_sync() { --no_sync_; }
  bool in_no_sync() const { return no_sync_ > 0; }

  JoinState& join() { return join_; }
  // join(): takes part in the other members' backwards, with zeros, until all members have called this function.
  // Returns the group rank of a member with the most backwards.
  // Errors: PeerError with throw_on_early_termination if another member starts a backward.
  int serve_until_all_joined();

  const Group& group() const { return config_.group; }
  // Returns the attached tensors that still exist, in the order of attaching.
  std::vector<Tensor> tensors() const { return params_.tensors(); }

 private:
  // State of the current backward.
  struct Backward {
    Backward(TimePoint begun, bool keeping, bool check_finite)
        : begun(begun), keeping(keeping), finite(check_finite) {}
    bool canceled() const { return reduction && reduction->consensus() && reduction->consensus()->canceled; }

    const TimePoint begun;
    const bool keeping;  // within no_sync
    FiniteCheck finite;
    Gradients gradients;                       // by index of the attached tensor
    std::optional<Reduction> reduction;        // nullopt within no_sync and in a group of one rank
    std::optional<PackedBroadcast> broadcast;  // of broadcast_after
    bool outer = false;                        // an enclosing recording may record this backward
    int64_t tracked_bytes = 0;                 // size of gradients reduced one by one, outside of buckets
    bool agreed_error = false;                 // all ranks throw the same error, so no failure report is sent
    int pending_cancellations = 0;  // recordings that ended without a backward during this backward
  };

  bool is_single_rank() const { return group().size() == 1; }

  // Start of a backward. send_cancellation() sends the note of a recording that ended without a backward.
  Backward& open_backward();
  void count_backward();
  void remove_destroyed();
  void plan();
  BackwardNote note(BackwardNote::Kind kind) const;
  void send(const BackwardNote& note);
  void start_reduction(Backward& b, const std::shared_ptr<BackwardExchange>& exchange);
  void send_cancellation();

  // Exchange of notes. apply_consensus() waits for the consensus, throws its errors, and passes it to the
  // Reduction; try_apply_consensus() does so only if the exchange has completed. check_on_all_ranks() calls a
  // check that throws on all ranks or on none.
  void apply_consensus(Backward& b);
  bool try_apply_consensus(Backward& b);
  template <class F> void check_on_all_ranks(Backward& b, F check);

  // End of a backward. finish_reduction() launches and awaits the remaining buckets. any_rank_tracks() returns
  // whether an enclosing recording tracks a gradient on any rank; deliver_tracked() then uses differentiable
  // all-reduces.
  void finish_reduction(Backward& b, std::vector<Delivery>* to);
  bool any_rank_tracks(const Backward& b) const;
  void deliver_tracked(Backward& b, std::vector<Delivery>& to);
  void start_broadcast(Backward& b);
  void conclude(Backward& b);
  void count(const Backward& b, TimePoint computed);

  const ReducerConfig config_;
  AttachedParams params_;
  std::shared_ptr<BucketPlan> plan_;  // null: rebuilt by plan()
  JoinState join_;
  int no_sync_ = 0;           // number of open no_sync scopes
  int64_t number_ = 0;        // number of the last backward; BackwardNote::number
  int64_t synchronized_ = 0;  // number of completed synchronizing backwards
  std::shared_ptr<BackwardExchange> last_exchange_;
  std::shared_ptr<Backward> backward_;
  ReducerStats stats_;
};

inline Reducer& reducer_of(const std::shared_ptr<AllReduceCallback>& callback) {
  return static_cast<Reducer&>(*callback);
}

}  // namespace gradus::dist::internal
