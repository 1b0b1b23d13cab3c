// RecordingState: what stands behind an open recording; ops reach it through Context::recordings.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "gradus/autograd/graph/node.h"

namespace gradus::autograd {

class RecordingState final : public Counted {
 public:
  // Records what depends on `leaves`. Recordings of the same `level` see each other's backward; 0
  // takes a new level.
  explicit RecordingState(const std::vector<Ref<AutogradSlot>>& leaves, uint64_t level = 0);
  // A probe learns which graph inputs a function uses: it follows whatever `outer` follow and keeps
  // edges, not rules.
  static Ref<RecordingState> probe(std::vector<Ref<Counted>> outer);
  ~RecordingState() override;

  void add_leaf(const Ref<AutogradSlot>& leaf);
  // Whether an op on a tensor with this slot belongs to this recording.
  bool follows(const AutogradSlot* slot) const;
  bool has_leaf(const AutogradSlot* slot) const { return leaf_set_.count(slot) != 0; }
  const std::vector<Ref<AutogradSlot>>& leaves() const { return leaves_; }
  bool is_probe() const { return is_probe_; }

  // Age: a backward is seen by recordings of lower levels, and by others of its own.
  uint64_t level() const { return level_; }
  bool finished() const { return finished_; }
  // Forgets all nodes; those that belong to no other recording drop their rules and edges. Ops no longer
  // join. `error` is what its backward threw, for nodes that others count on.
  void finish(std::exception_ptr error = {});

  // The nodes now alive, oldest first.
  std::vector<Ref<Node>> nodes() const;
  // Nodes that run even without a gradient and have not run in this recording's backward yet, oldest first.
  std::vector<Ref<Node>> nodes_that_must_run() const;
  void has_run(const Node& node);  // one of them

  // What explain() is to tell besides; the same text once.
  void add_note(const std::string& text);
  std::vector<std::string> notes() const;

  // Of a probe: the function communicates, so its backward must run on every rank, with a
  // gradient or without.
  void set_communicates() { communicates_ = true; }
  bool communicates() const { return communicates_; }

 private:
  friend class Node;
  friend class Recorder;
  void enlist(Membership& m);
  void delist(Membership& m);
  void unlink(Membership& m);
  Ref<Node> take_newest();  // off the list; null when it is empty

  std::vector<Ref<AutogradSlot>> leaves_;
  std::unordered_set<const AutogradSlot*> leaf_set_;
  std::vector<Ref<Counted>> outer_;
  const uint64_t level_;
  bool is_probe_ = false;
  mutable std::mutex mutex_;  // guards the list of nodes
  Membership* nodes_ = nullptr;
  std::vector<Ref<Node>> must_run_;  // guarded as well
  std::vector<std::string> notes_;   // so are these
  std::atomic<bool> communicates_{false};
  std::atomic<bool> finished_{false};
};

// The recordings open on this thread, oldest first.
inline const std::vector<Ref<Counted>>& open_recordings() { return Context::current().recordings; }
inline RecordingState* as_recording(const Ref<Counted>& r) { return static_cast<RecordingState*>(r.get()); }

// Shows `state` to the calling thread's ops, in order of level.
void open_recording(const Ref<RecordingState>& state);
void close_recording(const RecordingState* state);
// The open recordings that see a backward of `state`: those opened before it, and its peers.
std::vector<Ref<Counted>> recordings_that_see(const RecordingState& state);
// The newest open recording that follows x, or null.
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
