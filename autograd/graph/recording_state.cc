// RecordingState, one recording (gradient tape): its intrusive list of live nodes, newest first; the test
// whether it records ops on a tensor; and its end, which drops the backward rules of its nodes. A slot is a
// tensor's position in the graph: a Leaf or the Node that computed it. Node lists are guarded by mutex_,
// since nodes may be destroyed on any thread; the list of open recordings (Context::recordings) is per
// thread.
#include "gradus/autograd/graph/recording_state.h"

#include <algorithm>

namespace gradus::autograd {
namespace {

uint64_t next_level() {
  static std::atomic<uint64_t> level{1};
  return level.fetch_add(1);
}

}  // namespace

RecordingState::RecordingState(const std::vector<Ref<AutogradSlot>>& leaves, uint64_t level)
    : level_(level ? level : next_level()) {
  for (const auto& leaf : leaves) add_leaf(leaf);
}

Ref<RecordingState> RecordingState::probe(std::vector<Ref<Counted>> outer) {
  auto state = make_ref<RecordingState>(std::vector<Ref<AutogradSlot>>{});
  state->is_probe_ = true;
  state->outer_ = std::move(outer);
  return state;
}

RecordingState::~RecordingState() = default;  // nodes_ is empty: each node has a reference to the recording

void RecordingState::add_leaf(const Ref<AutogradSlot>& leaf) {
  if (leaf_set_.insert(leaf.get()).second) leaves_.push_back(leaf);
}

// A recording follows its leaves, the outputs of its nodes, and leaves whose producer it follows. A probe
// also follows whatever its outer recordings follow.
bool RecordingState::follows(const AutogradSlot* slot) const {
  if (finished_.load(std::memory_order_relaxed)) return false;
  if (has_leaf(slot)) return true;
  if (slot->is_leaf()) {
    const AutogradSlot* producer = static_cast<const Leaf*>(slot)->producer.slot.get();
    if (producer && follows(producer)) return true;
  } else if (static_cast<const Node*>(slot)->belongs_to(this)) {
    return true;
  }
  return std::any_of(outer_.begin(), outer_.end(),
                     [&](const auto& r) { return as_recording(r)->follows(slot); });
}

// Prepends the node to the list. A required node (NodeTraits) is also kept alive.
void RecordingState::add_node(Membership& m) {
  std::lock_guard lock(mutex_);
  m.previous = nullptr;
  m.next = nodes_;
  if (nodes_) nodes_->previous = &m;
  nodes_ = &m;
  if (m.node->is_required()) required_.push_back(Ref<Node>(m.node));
}

void RecordingState::unlink(Membership& m) {
  (m.previous ? m.previous->next : nodes_) = m.next;
  if (m.next) m.next->previous = m.previous;
  m.previous = m.next = nullptr;
}

void RecordingState::remove_node(Membership& m) {
  std::lock_guard lock(mutex_);
  unlink(m);
}

std::vector<Ref<Node>> RecordingState::nodes() const {
  std::vector<Ref<Node>> alive;
  std::lock_guard lock(mutex_);
  for (Membership* m = nodes_; m; m = m->next)
    if (m->node->try_retain()) alive.push_back(Ref<Node>::adopt(m->node));
  std::reverse(alive.begin(), alive.end());
  return alive;
}

void RecordingState::add_explanation(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (std::find(explanations_.begin(), explanations_.end(), text) == explanations_.end())
    explanations_.push_back(text);
}

std::vector<std::string> RecordingState::explanations() const {
  const std::lock_guard lock(mutex_);
  return explanations_;
}

std::vector<Ref<Node>> RecordingState::required_nodes() const {
  std::lock_guard lock(mutex_);
  return required_;
}

void RecordingState::mark_run(const Node& node) {
  Ref<Node> gone;  // may be the last reference; destroyed after the lock is released
  std::lock_guard lock(mutex_);
  const auto it =
      std::find_if(required_.rbegin(), required_.rend(), [&](const auto& n) { return n.get() == &node; });
  if (it == required_.rend()) return;
  gone = std::move(*it);
  required_.erase(std::next(it).base());
}

Ref<Node> RecordingState::pop_newest() {
  Ref<RecordingState> hold;  // the node's reference to this; destroyed after the lock is released
  std::lock_guard lock(mutex_);
  for (Membership* m = nodes_; m; m = m->next) {
    // A node with a count of zero is being deleted and removes itself from the list.
    if (!m->node->try_retain()) continue;
    unlink(*m);
    hold = std::move(m->recording);
    return Ref<Node>::adopt(m->node);
  }
  return {};
}

// Allocates nothing: recordings also end in destructors and when memory has run out.
void RecordingState::finish(std::exception_ptr error) {
  if (finished_.exchange(true)) return;
  const Ref<RecordingState> self(this);  // keeps this alive while the nodes release their references
  std::vector<Ref<Node>> skipped;        // may be the last references; destroyed after the lock is released
  {
    std::lock_guard lock(mutex_);
    skipped.swap(required_);
  }
  for (auto node = skipped.rbegin(); node != skipped.rend(); ++node) (*node)->skipped(*this, error);
  // Newest first, so that nodes are destroyed before their inputs. Another recording that is still open keeps
  // the rule of a node that both have.
  while (const Ref<Node> node = pop_newest()) {
    if (node->open_memberships_.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    node->drop();
    node->drop_edges();
  }
}

void open_recording(const Ref<RecordingState>& state) {
  auto& open = Context::current().recordings;
  std::erase_if(open, [](const auto& r) { return as_recording(r)->finished(); });  // closed on another thread
  // After the recordings of the same level.
  auto at = std::upper_bound(
      open.begin(), open.end(), state->level(),
      [](uint64_t level, const Ref<Counted>& r) { return level < as_recording(r)->level(); });
  open.insert(at, state);
}

void close_recording(const RecordingState* state) {
  std::erase_if(Context::current().recordings, [&](const auto& r) { return r.get() == state; });
}

std::vector<Ref<Counted>> recordings_of_backward(const RecordingState& state) {
  std::vector<Ref<Counted>> visible;
  for (const Ref<Counted>& r : open_recordings())
    if (as_recording(r)->level() <= state.level() && r.get() != &state) visible.push_back(r);
  return visible;
}

Ref<RecordingState> innermost_following(const Tensor& x) {
  const auto& slot = x.impl().slot;
  const auto& open = open_recordings();
  if (slot)
    for (auto it = open.rbegin(); it != open.rend(); ++it)
      if (as_recording(*it)->follows(slot.get())) return Ref<RecordingState>(as_recording(*it));
  return nullptr;
}

namespace {

bool is_recorded(const AutogradSlot* slot) {
  for (const Ref<Counted>& r : open_recordings())
    if (as_recording(r)->follows(slot)) return true;
  return false;
}

}  // namespace

bool Node::is_recorded() const { return autograd::is_recorded(this); }
bool Leaf::is_recorded() const { return autograd::is_recorded(this); }

}  // namespace gradus::autograd
