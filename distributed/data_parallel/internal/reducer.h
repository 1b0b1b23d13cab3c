// Reducer: what stands behind an AllReduceCallback. It knows the tensors from attach, plans buckets
// over them, and in each backward sends the buckets of those that some rank reached. Note [Bucket
// order] in reducer.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradus/autograd/graph/node.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/internal/backward_exchange.h"
#include "gradus/distributed/data_parallel/internal/divergence.h"
#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"

namespace gradus::dist::internal {

class Reducer final : public AllReduceCallback, public std::enable_shared_from_this<Reducer> {
 public:
  // Collective: `maker` is what the user called; ranks compare it.
  Reducer(ReduceOp op, AllReduceCallbackOptions options, Op maker);
  ~Reducer() override;

  void attached_to(const Tensor& param) override;
  void recording_opened(GradManager&) override { users_group_.state().recording_opens(); }
  void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) override;
  std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) override;
  std::vector<Delivery> landed() override;
  std::vector<Delivery> finish() override;
  void abandon(std::exception_ptr error) noexcept override;

  NoSync no_sync() override { return NoSync({shared_from_this()}); }
  void drop_pending() override;
  const ReducerStats& stats() const override { return stats_; }
  std::vector<std::string> unused_parameters(int backwards) const override;
  std::vector<std::string> locally_unused_parameters() const override;

  void enter_no_sync() { ++no_sync_; }
  void leave_no_sync() { --no_sync_; }
  bool keeps() const { return no_sync_ > 0; }

  // ---- join(): between the two calls, ranks may end at different times.
  void begin_join(const JoinOptions& options);
  // Takes part in the others' backwards until all have come here. Returns the index of a member
  // that came last.
  // Errors: PeerError with throw_on_early_termination when others go on.
  int serve_until_all_joined();
  void end_join() noexcept;

  const Group& group() const { return group_; }
  // Attached tensors that are alive, in the order of attaching.
  std::vector<Tensor> tensors() const;

 private:
  // An attached tensor.
  struct Param {
    Ref<autograd::Leaf> leaf;
    size_t bucket = 0;
    Tensor kept;  // by no_sync
    // The last synchronizing backward in which some rank reached it, or the one before the first.
    int64_t last_use = 0;
    bool unused_here = false;  // in the last one, though another rank reached it

    // ---- of the backward under way
    Tensor tensor;          // defined: of the manager whose backward it is
    Tensor grad;            // this rank's
    bool mine = false;      // reached here, or kept
    bool used = false;      // on some rank
    bool is_ours = false;   // nobody else looks at `grad`
    bool in_place = false;  // it becomes the result itself
  };
  struct Times;
  struct Bucket {
    DType dtype;
    std::vector<size_t> params;  // in the order of sending
    Tensor memory;               // [elements of all]

    // ---- of the backward under way
    int waiting = 0;           // gradients that are still to come on this rank
    std::vector<size_t> used;  // of params
    Tensor buffer;             // of memory: the used ones, in a row (for a hook)
    int64_t sent = 0;          // bytes
    Work work;
    std::function<void()> complete;  // of a hook
    std::shared_ptr<Times> times;
  };

  bool alone() const { return group_.size() == 1; }
  std::string name_of(size_t param) const;
  size_t index_of(const Tensor& param) const;
  static Tensor tensor_of(const Param& p) { return p.tensor.defined() ? p.tensor : p.leaf->tensor(); }
  void forget_dead();
  void plan();
  BackwardNote note(BackwardNote::Kind kind) const;

  void clear_backward();
  void post_none();
  void learn();
  void use(const std::vector<BackwardNote>& notes);
  void check_static() const;
  void choose_used(const std::vector<bool>& used);
  void advance();
  void launch(size_t bucket, bool finishing);
  void make_room(Bucket& bucket);
  void pack(Bucket& bucket);
  Tensor host_gradient(size_t param);
  Tensor part_of(const Bucket& bucket, int64_t offset, const Shape& shape) const;
  void start_all_reduce(Bucket& bucket, bool async);
  void start_hook(Bucket& bucket);
  void unpack(Bucket& bucket, std::vector<Delivery>& to);
  void deliver_tracked(std::vector<Delivery>& to);
  bool someone_tracks();
  void start_broadcast();
  [[noreturn]] void throw_difference();
  void note_if_not_finite(size_t param, const Tensor& grad);
  void check_finite();
  void count(TimePoint computed);
  template <class E, class... Parts> [[noreturn]] void throw_on_all(int rank, const Parts&... parts);

  const ReduceOp op_;
  const AllReduceCallbackOptions options_;
  const bool without_job_;  // made before there was one
  // Collectives that an outer recording follows go through the user's group: their order is that of the
  // program, while buckets are sent when they are ready.
  const Group users_group_;
  Group group_;  // its own

  std::vector<Param> params_;
  std::unordered_map<const AutogradSlot*, size_t> index_;
  std::vector<Bucket> buckets_;
  bool planned_ = false;
  int64_t fingerprint_ = 0;
  std::shared_ptr<const std::vector<std::string>> plan_lines_;  // what it is of: options, then a tensor each
  bool static_known_ = false;  // static_graph: what is reached is settled, for this plan
  std::vector<bool> static_mine_, static_used_;

  int no_sync_ = 0;
  int64_t number_ = 0;        // of the last backward
  int64_t synchronized_ = 0;  // backwards
  std::optional<JoinOptions> join_;
  std::shared_ptr<BackwardExchange> last_exchange_;

  // ---- of the backward under way
  bool running_ = false;
  bool keeping_ = false;
  bool outer_ = false;
  bool agreed_error_ = false;  // all ranks throw the same
  int64_t attached_ = 0;       // fingerprint
  int owed_none_ = 0;          // recordings that were dropped meanwhile
  std::shared_ptr<BackwardExchange> exchange_;
  bool known_ = false;  // what the others reach
  bool canceled_ = false;
  int divisor_ = 1;
  int root_ = 0;                      // index of the member whose buffers count
  size_t launched_ = 0, landed_ = 0;  // buckets, in order
  size_t last_bucket_ = 0;            // that is not empty
  NotFinite not_finite_;              // in a gradient of this rank
  std::unique_ptr<PackedBroadcast> broadcast_;
  TimePoint begun_;

  int64_t tracked_bytes_ = 0;  // sent outside of buckets
  ReducerStats stats_;
};

inline Reducer& reducer_of(const std::shared_ptr<AllReduceCallback>& callback) {
  return static_cast<Reducer&>(*callback);
}

}  // namespace gradus::dist::internal
