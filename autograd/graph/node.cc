// The vertices of the autograd graph: construction and destruction of Node (a recorded op), creation of Leaf
// (the slot of an attached tensor), and Tensor::grad and set_grad, which read and write the gradient in the
// leaf. Graphs of any depth are freed without recursion. See node.h for the ownership.
#include "gradus/autograd/graph/node.h"

#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/graph/sparse_gradient.h"

namespace gradus {

// Returns the stored gradient; undefined if there is none, or if this tensor is not attached.
Tensor Tensor::grad() const {
  const auto& slot = impl().slot;
  if (!slot || !slot->is_leaf()) return Tensor();
  const auto* const leaf = static_cast<const autograd::Leaf*>(slot.get());
  autograd::check_gradient_of_step("grad", *leaf);
  return leaf->grad;
}

// Attaches this tensor if needed. An undefined grad clears the gradient. A sparse grad is checked by the
// device of its elements.
void Tensor::set_grad(const Tensor& grad) const {
  if (grad.defined()) {
    if (grad.is_same(*this))  // would be a cycle of references
      throw ValueError("set_grad", "expected another tensor, got ", describe(*this), " itself: pass a clone");
    if (!(grad.shape() == shape()))
      throw ShapeError("set_grad", "expected a gradient like the tensor, got ", describe(grad), " for ",
                       describe(*this));
    if (grad.dtype() != dtype())
      throw DTypeError("set_grad", "expected ", dtype(), ", got ", describe(grad), " for ", describe(*this));
    if (!(autograd::elements_of(grad).device() == device()))
      throw DeviceError("set_grad", "expected ", device(), ", got ", describe(grad), " for ",
                        describe(*this));
  }
  const Ref<autograd::Leaf> leaf = autograd::leaf_of(*this);
  leaf->grad = grad;
  if (Capture* capture = recording_capture()) capture->add_leaf(leaf, false);
}

namespace autograd {

void check_gradient_of_step(const char* op, const Leaf& leaf) {
  const Capture* const capture = recording_capture();
  if (!capture || !leaf.grad.defined() || capture->has_leaf(leaf)) return;
  if (!capture->is_own(*elements_of(leaf.grad).storage()))
    throw StateError(op, "cannot be captured: the gradient of ", describe(leaf.tensor()),
                     " is from before the step; compute and clear gradients within the step");
}

namespace {
std::atomic<uint64_t> next_sequence{1};  // numbers nodes in the order of their creation, over all threads
}

Node::Node(const char* op, NodeTraits traits)
    : AutogradSlot(false),
      op_(op),
      traits_(traits),
      sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)) {
  const Context& context = Context::current();
  if (!context.module_path.empty()) module_path_ = context.module_path_text();
}

// Takes the node out of the lists of its recordings.
Node::~Node() {
  for (Membership* m = &membership_; m; m = m->next_membership.get())
    if (m->recording) m->recording->remove_node(*m);
}

// Called when the last reference is gone. Deleting a node releases its inputs' nodes, which calls dispose
// again: these inner calls only push their node on the thread's list, which the outermost call empties.
void Node::dispose() {
  static constinit thread_local bool deleting = false;
  static constinit thread_local Node* dead = nullptr;
  next_to_delete_ = dead;
  dead = this;
  if (deleting) return;
  deleting = true;
  while (dead) {
    Node* node = dead;
    dead = node->next_to_delete_;
    delete node;
  }
  deleting = false;
}

void Node::drop_edges() { std::vector<Edge>().swap(edges_); }

bool Node::belongs_to_others(const RecordingState* r) const {
  for (const Membership* m = &membership_; m; m = m->next_membership.get())
    if (m->recording && m->recording.get() != r) return true;
  return false;
}

Ref<Leaf> leaf_of(const Tensor& x) {
  TensorImpl& impl = x.impl();
  if (impl.slot && impl.slot->is_leaf()) return Ref<Leaf>(static_cast<Leaf*>(impl.slot.get()));
  if (!is_floating(x.dtype()))
    throw DTypeError("attach", "only floating-point tensors have gradients, got ", describe(x));
  // If x was computed by a recorded op, the op's slot becomes the leaf's producer.
  auto leaf = make_ref<Leaf>(&impl);
  leaf->producer = {std::move(impl.slot), impl.slot_index};
  impl.slot = leaf;
  impl.slot_index = 0;
  return leaf;
}

}  // namespace autograd
}  // namespace gradus
