// The autograd graph. Its nodes are recorded ops, its leaves are attached tensors, and its edges lead from an
// op to the producers of its inputs.
//
// Tensors own the graph: a tensor's slot is the node that computed the tensor, or the tensor's own leaf. A
// node has references to the open recordings it belongs to. When the last of them finishes, the node drops
// its rule and its edges, so a tensor that outlives its recording (a loss in a vector) keeps no graph alive.
//
// A recording (RecordingState) is a gradient tape: the list of ops recorded between its opening and its
// backward. Several recordings may be open; a node may belong to each of them.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

class Node;
class RecordingState;

// The destination of a gradient: output `index` of a node, or a leaf. The slot is null if the input is a
// constant.
struct Edge {
  Ref<AutogradSlot> slot;
  uint32_t index = 0;
};

// Properties of a tensor that its gradient must have too.
struct ValueInfo {
  Shape shape;
  DType dtype = DType::kF32;
  Device device;
  bool channels_last = false;

  ValueInfo() = default;
  explicit ValueInfo(const Tensor& x)
      : shape(x.shape()), dtype(x.dtype()), device(x.device()), channels_last(x.is_channels_last()) {}
};

// An entry in a recording's intrusive doubly linked list of nodes.
struct Membership {
  Ref<RecordingState> recording;
  Node* node = nullptr;
  Membership *previous = nullptr, *next = nullptr;
  std::unique_ptr<Membership> next_membership;  // the entry of the same node in another recording
};

// The arguments of one run of a node's rule.
struct RuleArgs {
  std::span<Tensor> dys;        // dense gradients of the outputs, free to move; undefined where none arrived
  std::span<const char> needs;  // per input: whether to compute its gradient
  std::span<Tensor> dxs;        // results, one per input; the engine sums and casts them to the input's form
  // The recording that this backward ends; null if the recording continues afterward.
  const RecordingState* ending = nullptr;
};

// Properties of a node. The engine reads them.
struct NodeTraits {
  // Whether the gradients of some inputs can be computed first and those of the others later. A backward that
  // defers weight gradients then runs the rule twice.
  bool deferrable = false;
  // Whether other ranks exchange gradients with this node. Its recordings keep such a node alive, and their
  // backward runs it even if no gradient arrives, in the order of all nodes (newest first).
  bool required = false;
};

// A recorded op. Subclasses have the op's backward rule, which computes the gradients of its inputs. The
// constructor keeps the pointer `op` (a string literal), and takes sequence() from a counter of the process
// and module_path() from the thread's Context. Any thread may drop the last reference.
class Node : public AutogradSlot {
 public:
  explicit Node(const char* op, NodeTraits traits = {});

  bool is_recorded() const override;

  // Computes the gradients of the inputs in args.needs, on the thread of the backward. Unless the node is
  // required, at least one of args.dys is defined. Called once per pass (up to twice if deferrable): the
  // backward of a recording, which ends it, and grad(ys, xs), which does not. For each recording of a
  // required node, `run` is called with that recording as args.ending, or `skipped`, or both if `run` throws.
  virtual void run(const RuleArgs& args) = 0;
  // Drops what only the gradients of these inputs need; `inputs` has a flag per input, or is empty for all
  // inputs. A part of the inputs is dropped for deferrable nodes alone. May be called again afterward.
  virtual void drop(std::span<const char> inputs = {}) = 0;
  // Called when `recording` ends without having run this node: the recording was released (`error` is null),
  // or its backward threw `error` earlier.
  virtual void skipped(const RecordingState& recording, std::exception_ptr error) noexcept {
    (void)recording, (void)error;
  }

  // Returns a dtype, besides the output's own, in which the rule accepts the output's gradient. A gradient in
  // this dtype reaches the rule unchanged; a gradient in another dtype is cast to the output's dtype.
  virtual DType gradient_dtype(size_t output) const { return outputs_[output].dtype; }

  bool is_deferrable() const { return traits_.deferrable; }
  bool is_required() const { return traits_.required; }
  const char* op() const { return op_; }
  const std::string& module_path() const { return module_path_; }
  uint64_t sequence() const { return sequence_; }   // increases with time of creation; starts at 1
  const Stream& stream() const { return stream_; }  // the stream of the forward; the rule runs on it
  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<ValueInfo>& outputs() const { return outputs_; }
  bool belongs_to(const RecordingState* r) const {
    for (const Membership* m = &membership_; m; m = m->next_membership.get())
      if (m->recording.get() == r) return true;
    return false;
  }
  bool belongs_to_others(const RecordingState* r) const;  // whether it belongs to a recording other than r

 protected:
  ~Node() override;
  void set_edge(size_t i, Edge e) { edges_[i] = std::move(e); }
  void dispose() override;  // frees a graph of any depth without recursion

 private:
  friend class RecordingState;
  friend class Recorder;
  void drop_edges();

  const char* op_;
  const NodeTraits traits_;
  uint64_t sequence_;
  Stream stream_;
  std::vector<Edge> edges_;
  std::vector<ValueInfo> outputs_;
  std::string module_path_;
  Membership membership_;
  std::atomic<int> open_memberships_{0};  // the end of the last one drops the rule and the edges
  Node* next_to_delete_ = nullptr;        // next in the list of nodes to delete
};

// The slot of an attached tensor, where its gradient is stored. If the tensor was computed by a recorded op,
// `producer` is the edge to that op.
class Leaf final : public AutogradSlot {
 public:
  explicit Leaf(TensorImpl* owner) : AutogradSlot(true), owner_(owner) {}
  bool is_recorded() const override;
  void on_owner_destroyed() override {
    std::lock_guard lock(mutex_);
    owner_ = nullptr;
  }
  // Returns the tensor; undefined once all handles to it are gone.
  Tensor tensor() const {
    std::lock_guard lock(mutex_);
    return owner_ && owner_->try_retain() ? Tensor(Ref<TensorImpl>::adopt(owner_)) : Tensor();
  }

  Edge producer;  // null if no recorded op computed the tensor
  Tensor grad;    // undefined until a backward or set_grad stores a gradient

 private:
  mutable std::mutex mutex_;
  TensorImpl* owner_;  // not owned; null once the tensor is destroyed
};

// In a step that is being recorded: checks that the gradient of the leaf, if there is one, is of this step. A replay
// would read the recording's gradient instead of later ones.
// Errors: StateError.
void check_gradient_of_step(const char* op, const Leaf& leaf);

// Returns x's leaf, created on first use.
// Errors: DTypeError unless x is floating point.
Ref<Leaf> leaf_of(const Tensor& x);

}  // namespace gradus::autograd
