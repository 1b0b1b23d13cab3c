// RecordingState: the state of an open recording. Ops reach it through Context::recordings.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "gradus/autograd/graph/node.h"

namespace gradus::autograd {

class RecordingState final : public Counted {
 public:
  // Records the ops that depend on `leaves`. Recordings of the same `level` record each other's backward.
  // Level 0 assigns a new level.
  explicit RecordingState(const std::vector<Ref<AutogradSlot>>& leaves, uint64_t level = 0);
  // Makes a probe, a recording that finds out which graph inputs a function uses. The probe follows every
  // tensor that `outer` follow, and keeps edges but no rules.
  static Ref<RecordingState> probe(std::vector<Ref<Counted>> outer);
  ~RecordingState() override;

  void add_leaf(const Ref<AutogradSlot>& leaf);
  // Returns whether an op on a tensor with this slot belongs to this recording.
  bool follows(const AutogradSlot* slot) const;
  bool has_leaf(const AutogradSlot* slot) const { return leaf_set_.count(slot) != 0; }
  const std::vector<Ref<AutogradSlot>>& leaves() const { return leaves_; }
  bool is_probe() const { return is_probe_; }

  // Returns the recording's age. Recordings of lower levels, and the others of the same level,
  // record its backward.
  uint64_t level() const { return level_; }
  bool finished() const { return finished_; }
  // Forgets all nodes; no op joins the recording any more. Nodes that belong to no other recording drop their
  // rules and edges. `error` is what the recording's backward threw; it is passed to the nodes that must run
  // and have not run.
  void finish(std::exception_ptr error = {});

  // Returns the nodes now alive, oldest first.
  std::vector<Ref<Node>> nodes() const;
  // Returns the nodes that run even without a gradient and have not run in this recording's backward
  // yet, oldest first.
  std::vector<Ref<Node>> nodes_that_must_run() const;
  void has_run(const Node& node);  // `node` is one of nodes_that_must_run

  // Adds a line to the output of explain(). Equal lines appear once.
  void add_note(const std::string& text);
  std::vector<std::string> notes() const;

  // Marks a probe: its function communicates, so the function's backward must run on every rank, with a
  // gradient or without.
  void set_communicates() { communicates_ = true; }
  bool communicates() const { return communicates_; }

 private:
  friend class Node;
  friend class Recorder;
  void enlist(Membership& m);
  void delist(Membership& m);
  void unlink(Membership& m);
  Ref<Node> take_newest();  // removes it from the list; null when the list is empty

  std::vector<Ref<AutogradSlot>> leaves_;
  std::unordered_set<const AutogradSlot*> leaf_set_;
  std::vector<Ref<Counted>> outer_;
  const uint64_t level_;
  bool is_probe_ = false;
  mutable std::mutex mutex_;  // guards nodes_, must_run_ and notes_
  Membership* nodes_ = nullptr;
  std::vector<Ref<Node>> must_run_;
  std::vector<std::string> notes_;
  std::atomic<bool> communicates_{false};
  std::atomic<bool> finished_{false};
};

// Returns the recordings open on this thread, oldest first.
inline const std::vector<Ref<Counted>>& open_recordings() { return Context::current().recordings; }
inline RecordingState* as_recording(const Ref<Counted>& r) { return static_cast<RecordingState*>(r.get()); }

// Makes the calling thread's ops record into `state`; recordings are kept in order of level.
void open_recording(const Ref<RecordingState>& state);
void close_recording(const RecordingState* state);
// Returns the open recordings that record a backward of `state`: those opened before it, and
// those of its level.
std::vector<Ref<Counted>> recordings_that_see(const RecordingState& state);
// Returns the newest open recording that follows x, or null.
Ref<RecordingState> innermost_following(const Tensor& x);

// Replaces the open recordings for a scope.
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
