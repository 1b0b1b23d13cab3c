// RecordingState: the nodes and leaves of one recording (gradient tape). Ops find the open recordings of
// their thread in Context::recordings. Several threads may record into one recording; none may do so during
// add_leaf or finish.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "gradus/autograd/graph/node.h"

namespace gradus::autograd {

struct DeferredWeights;
struct ManagerState;

class RecordingState final : public Counted {
 public:
  // Set by GradManager for its own recordings; null for those of autograd::grad and of checkpoints.
  std::shared_ptr<ManagerState> manager;
  bool records_subset = false;                // opened with RecordOptions::only
  std::shared_ptr<DeferredWeights> deferred;  // set between backward_inputs and backward_weights, else null

  // Records the ops that depend on `leaves`: Leafs, or nodes of other recordings (of their outputs).
  // Recordings of the same `level` record each other's backward. 0: a new level, higher than all before.
  explicit RecordingState(const std::vector<Ref<AutogradSlot>>& leaves, uint64_t level = 0);
  // Returns a probe, a recording that determines which graph inputs a function uses. The probe follows every
  // tensor that one of the `outer` recordings follows, and its nodes have edges but no rules.
  static Ref<RecordingState> probe(std::vector<Ref<Counted>> outer);
  ~RecordingState() override;

  void add_leaf(const Ref<AutogradSlot>& leaf);
  // Returns whether this recording records an op on a tensor with this slot.
  bool follows(const AutogradSlot* slot) const;
  bool has_leaf(const AutogradSlot* slot) const { return leaf_set_.count(slot) != 0; }
  const std::vector<Ref<AutogradSlot>>& leaves() const { return leaves_; }
  bool is_probe() const { return is_probe_; }

  // Returns the nesting level, which increases in the order of opening. Recordings of lower levels, and other
  // recordings of the same level, record this recording's backward.
  uint64_t level() const { return level_; }
  bool finished() const { return finished_; }
  // Ends the recording: removes all nodes and records no further op. Nodes that belong to no other recording
  // drop their rules and edges. Required nodes that have not run get skipped(*this, error); `error` is the
  // exception of the recording's backward, or null.
  void finish(std::exception_ptr error = {});

  // Returns the live nodes, oldest first.
  std::vector<Ref<Node>> nodes() const;
  // Returns the required nodes (NodeTraits) that have not run in this recording's backward, oldest first.
  std::vector<Ref<Node>> required_nodes() const;
  void mark_run(const Node& node);  // removes a node from required_nodes()

  // Adds a line to the output of explain(). Equal lines appear once.
  void add_explanation(const std::string& text);
  std::vector<std::string> explanations() const;

  // Marks a probe whose function communicates. The checkpoint's backward then runs even without a gradient,
  // because other ranks take part in it.
  void set_communicates() { communicates_ = true; }
  bool communicates() const { return communicates_; }

 private:
  friend class Node;
  friend class Recorder;
  void add_node(Membership& m);
  void remove_node(Membership& m);
  void unlink(Membership& m);
  Ref<Node> pop_newest();  // removes it from the list; null when the list is empty

  std::vector<Ref<AutogradSlot>> leaves_;
  std::unordered_set<const AutogradSlot*> leaf_set_;
  std::vector<Ref<Counted>> outer_;  // of a probe: the recordings it follows
  const uint64_t level_;
  bool is_probe_ = false;
  mutable std::mutex mutex_;  // guards nodes_, required_ and explanations_
  Membership* nodes_ = nullptr;
  std::vector<Ref<Node>> required_;
  std::vector<std::string> explanations_;
  std::atomic<bool> communicates_{false};
  std::atomic<bool> finished_{false};
};

// Returns the recordings open on this thread, oldest first.
inline const std::vector<Ref<Counted>>& open_recordings() { return Context::current().recordings; }
inline RecordingState* as_recording(const Ref<Counted>& r) { return static_cast<RecordingState*>(r.get()); }

// Add a recording to the calling thread's open recordings, which are sorted by level, and remove it.
void open_recording(const Ref<RecordingState>& state);
void close_recording(const RecordingState* state);
// Returns the open recordings that record the backward of `state`: those of lower levels and the others of
// its level.
std::vector<Ref<Counted>> recordings_of_backward(const RecordingState& state);
// Returns the newest open recording that follows x, or null.
Ref<RecordingState> innermost_following(const Tensor& x);

// Replaces the calling thread's open recordings for a scope.
class RecordingsScope {
 public:
  explicit RecordingsScope(std::vector<Ref<Counted>> visible) : saved_(std::move(visible)) {
    saved_.swap(Context::current().recordings);
  }
  ~RecordingsScope() { saved_.swap(Context::current().recordings); }
  RecordingsScope(const RecordingsScope&) = delete;
  RecordingsScope& operator=(const RecordingsScope&) = delete;

 private:
  std::vector<Ref<Counted>> saved_;
};

}  // namespace gradus::autograd
