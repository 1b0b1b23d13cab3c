// The graph that recordings write. Its nodes are recorded ops, its leaves are attached tensors.
//
// Tensors hold the graph: a tensor's slot is the node that made the tensor, or the tensor's own leaf. Each
// node knows the open recordings it belongs to. When the last of them finishes, the node drops its rule and
// its edges. So a tensor that the user keeps (a loss in a vector) keeps no graph.
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

// The destination of a gradient: an output of a node, or a leaf. Null where the input was a constant.
struct Edge {
  Ref<AutogradSlot> slot;
  uint32_t index = 0;
};

// The properties of a value that its gradient must share.
struct ValueInfo {
  Shape shape;
  DType dtype = DType::kF32;
  Device device;
  bool channels_last = false;

  ValueInfo() = default;
  explicit ValueInfo(const Tensor& x)
      : shape(x.shape()), dtype(x.dtype()), device(x.device()), channels_last(x.is_channels_last()) {}
};

// One node's place in one recording's list of nodes.
struct Membership {
  Ref<RecordingState> recording;
  Node* node = nullptr;
  Membership *previous = nullptr, *next = nullptr;
  std::unique_ptr<Membership> also;  // the same node in a further recording
};

// A recorded op. Subclasses hold the rule, which computes the gradients.
class Node : public AutogradSlot {
 public:
  explicit Node(const char* op);

  bool is_followed() const override;

  // Computes the gradients of the inputs marked in `needs`, into `dxs` (same length as edges()). `dys` holds
  // the outputs' gradients, undefined where none arrived; at least one did. May be called once per recording.
  virtual void run(std::span<Tensor> dys, std::span<const char> needs, std::span<Tensor> dxs) = 0;
  // Drops the rule and what it saved.
  virtual void drop_rule() = 0;
  // Whether `run` may be called for some inputs first and for others later: a backward in two parts. The
  // first of these runs is not the rule's last.
  virtual bool runs_in_parts() const { return false; }
  // Drops what only the gradients of these inputs need. For nodes that run in parts.
  virtual void drop_rules_of(std::span<const char> inputs) { (void)inputs; }
  // Whether other ranks count on this node because they exchange gradients with it. Such a node is kept alive
  // by its recordings. Their backward runs it even when no gradient arrives, in the order of all nodes
  // (newest first). For each of its recordings exactly one of `run_for` and `skipped` is called; `run_for` is
  // called in that recording's own backward.
  virtual bool runs_without_gradient() const { return false; }
  // Calls `run`. `ending` is the recording that this backward ends; null when that
  // recording continues afterward.
  virtual void run_for(const RecordingState* ending, std::span<Tensor> dys, std::span<const char> needs,
                       std::span<Tensor> dxs) {
    (void)ending;
    run(dys, needs, dxs);
  }
  // Called when `recording` ends without having run this node: it was released, or its backward
  // threw `error` earlier.
  virtual void skipped(const RecordingState& recording, std::exception_ptr error) noexcept {
    (void)recording, (void)error;
  }
  // Returns the sequence number of the input's node when this node also applies that node's rule (a fused
  // node), else 0. When the gradient of the value between the two ops is wanted, the engine calls `split`
  // before the pass, with the edge to that value.
  virtual uint64_t passed_over() const { return 0; }
  virtual void split(const Edge& between) { (void)between; }

  // Returns a dtype in which the rule takes an output's gradient. A gradient that arrives in this dtype
  // reaches the rule unchanged; any other is cast to the output's dtype.
  virtual DType gradient_dtype(size_t output) const { return outputs_[output].dtype; }

  // Set by an op that can apply leaky_relu to its own result: 1 if it does not. The rule reads it. See Note
  // [Rectified batch norm].
  std::shared_ptr<double> negative_slope;

  const char* op() const { return op_; }
  const std::string& module_path() const { return module_path_; }
  uint64_t sequence() const { return sequence_; }
  const Stream& stream() const { return stream_; }
  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<ValueInfo>& outputs() const { return outputs_; }
  bool belongs_to(const RecordingState* r) const {
    for (const Membership* m = &membership_; m; m = m->also.get())
      if (m->recording.get() == r) return true;
    return false;
  }
  bool belongs_to_others(const RecordingState* r) const;

 protected:
  ~Node() override;
  void set_edge(size_t i, Edge e) { edges_[i] = std::move(e); }
  void dispose() override;  // iterative: a chain of any depth is freed without recursion

 private:
  friend class RecordingState;
  friend class Recorder;
  void drop_edges();

  const char* op_;
  uint64_t sequence_;
  Stream stream_;
  std::vector<Edge> edges_;
  std::vector<ValueInfo> outputs_;
  std::string module_path_;
  Membership membership_;
  std::atomic<int> open_memberships_{0};  // closing the last one drops the rule and the edges
  Node* next_dead_ = nullptr;             // next in the chain of nodes to delete
};

// An attached tensor, where a gradient ends. When the tensor was itself computed by a recorded op, `producer`
// leads on to that op.
class Leaf final : public AutogradSlot {
 public:
  explicit Leaf(TensorImpl* owner) : AutogradSlot(true), owner_(owner) {}
  bool is_followed() const override;
  void owner_gone() override {
    std::lock_guard lock(mutex_);
    owner_ = nullptr;
  }
  // Returns the tensor; undefined once the user has dropped it.
  Tensor tensor() const {
    std::lock_guard lock(mutex_);
    return owner_ && owner_->try_retain() ? Tensor(Ref<TensorImpl>::adopt(owner_)) : Tensor();
  }

  Edge producer;
  Tensor grad;

 private:
  mutable std::mutex mutex_;
  TensorImpl* owner_;
};

// Returns x's leaf, and makes it on first use.
// Errors: DTypeError unless x is floating point.
Ref<Leaf> leaf_of(const Tensor& x);

}  // namespace gradus::autograd
