// explain(loss): a text with one line per leaf (attached tensor) of a recording (gradient tape): whether the
// loss depends on the leaf, and the recorded ops on a path from the leaf. A depth-first search from the loss
// finds the slots (leaves and nodes, the vertices of the autograd graph) that lead to the loss; each leaf
// then follows its first consumers. Runs on the recording thread, between record() and backward.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/recording_state.h"

namespace gradus::autograd {
namespace {

std::string name_of_node(const Node& node) {
  return node.module_path().empty() ? node.op() : concat(node.op(), " (", node.module_path(), ")");
}

// Returns, for each slot, the recorded ops that use its value, oldest first.
std::unordered_map<const AutogradSlot*, std::vector<const Node*>> consumers(
    const std::vector<Ref<Node>>& nodes) {
  std::unordered_map<const AutogradSlot*, std::vector<const Node*>> map;
  for (const Ref<Node>& node : nodes)
    for (const Edge& e : node->edges())
      if (e.slot) map[e.slot.get()].push_back(node.get());
  return map;
}

// Returns all slots that lead to the loss within the recording.
std::unordered_set<const AutogradSlot*> slots_leading_to(const Tensor& loss, const RecordingState& state) {
  std::unordered_set<const AutogradSlot*> reached;
  std::vector<const AutogradSlot*> stack;
  if (loss.impl().slot) stack.push_back(loss.impl().slot.get());
  while (!stack.empty()) {
    const AutogradSlot* slot = stack.back();
    stack.pop_back();
    if (!reached.insert(slot).second || slot->is_leaf()) continue;
    const Node* node = static_cast<const Node*>(slot);
    if (!node->belongs_to(&state)) continue;
    for (const Edge& e : node->edges())
      if (e.slot) stack.push_back(e.slot.get());
  }
  return reached;
}

// Returns "op -> op -> ..."; of more than 8 ops, the first 4 and the last 3.
std::string joined(const std::vector<std::string>& ops) {
  std::string text;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops.size() > 8 && i == 4) {
      text += " -> ...";
      i = ops.size() - 3;
    }
    text += (i ? " -> " : "") + ops[i];
  }
  return text;
}

}  // namespace

// Uses the innermost recording that follows the loss, or else the innermost open one. A leaf without an
// element in `names` is called "tensor i". Lines of RecordingState::add_explanation follow the leaves'.
std::string explain(const Tensor& loss, const std::vector<std::string>& names) {
  Ref<RecordingState> state = innermost_following(loss);
  if (!state && !open_recordings().empty())
    state = Ref<RecordingState>(as_recording(open_recordings().back()));
  if (!state)
    throw StateError("explain", "no recording is open on this thread: call it between record() and backward");
  const std::vector<Ref<Node>> nodes = state->nodes();
  const auto consumers_of = consumers(nodes);

  const auto reached = slots_leading_to(loss, *state);

  // Returns the ops on a path forward from a slot, oldest first. With `toward_loss` the path leads to the
  // loss.
  auto path_from = [&](const AutogradSlot* from, bool toward_loss) {
    std::vector<std::string> ops;
    std::unordered_set<const AutogradSlot*> seen;
    for (const AutogradSlot* at = from; seen.insert(at).second;) {
      auto it = consumers_of.find(at);
      if (it == consumers_of.end()) break;
      auto next = std::find_if(it->second.begin(), it->second.end(),
                               [&](const Node* n) { return !toward_loss || reached.count(n); });
      if (next == it->second.end()) break;
      ops.push_back(name_of_node(**next));
      at = *next;
    }
    return ops;
  };
  std::string text = concat("loss ", describe(loss), "\n");
  for (size_t i = 0; i < state->leaves().size(); ++i) {
    const auto* leaf = static_cast<const Leaf*>(state->leaves()[i].get());
    const Tensor x = leaf->tensor();
    text += concat("  ", i < names.size() ? names[i] : concat("tensor ", i), " ", describe(x), ": ");
    if (reached.count(leaf)) {
      text += "reached: " + joined(path_from(leaf, true)) + "\n";
      continue;
    }
    const auto ops = path_from(leaf, false);
    if (ops.empty())
      text += "not reached: no recorded op uses it\n";
    else
      text += "not reached: used by " + joined(ops) +
              ", whose result goes no further (detached, rounded, or unused)\n";
  }
  for (const std::string& line : state->explanations()) text += "  " + line + "\n";
  return text;
}

}  // namespace gradus::autograd
