// The autograd graph. Its nodes are recorded ops, its leaves are attached tensors, and its edges lead from an op
// to the producers of its inputs.
//
// Tensors own the graph: a tensor's slot is the node that computed the tensor, or the tensor's own leaf. A node
// has references to the open recordings it belongs to. When the last of them finishes, the node drops its rule
// and its edges, so a tensor that outlives its recording (a loss in a vector) keeps no graph alive.
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

// The destination of a gradient: output `index` of a node, or a leaf. The slot is null if the input is a constant.
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
  std::unique_ptr<Membership> also;  // the entry of the same node in another recording
};

// A recorded op. Subclasses have the op's backward rule, which computes the gradients of its inputs.
class Node : public AutogradSlot {
 public:
  explicit Node(const char* op);

  bool is_followed() const override;

  // Computes the gradients dxs[i] of the inputs with needs[i] != 0; `needs` and `dxs` have the length of edges().
  // `dys` has the outputs' gradients; undefined ones did not arrive. At least one is defined, unless the node
  // runs_without_gradient. Called at most once per recording, or once per part of a pass in two parts.
  virtual void run(std::span<Tensor> dys, std::span<const char> needs, std::span<Tensor> dxs) = 0;
  // Drops the rule and its saved tensors.
  virtual void drop_rule() = 0;
  // Whether a backward in two parts may call `run` twice, each time for other inputs. The first of these runs must
  // not consume saved tensors.
  virtual bool runs_in_parts() const { return false; }
  // Drops the saved tensors that only the gradients of these inputs need. For nodes that run in parts.
  virtual void drop_rules_of(std::span<const char> inputs) { (void)inputs; }
  // Whether the node must run even if no gradient arrives, because its backward communicates with other ranks.
  // Recordings keep such a node alive, and their backward runs it in the order of all nodes (newest first). For
  // each of its recordings exactly one of `run_for` and `skipped` is called; `run_for` in that recording's own
  // backward.
  virtual bool runs_without_gradient() const { return false; }
  // Calls `run`. `ending` is the recording that this backward ends; null when that
  // recording continues afterward.
  virtual void run_for(const RecordingState* ending, std::span<Tensor> dys, std::span<const char> needs,
                       std::span<Tensor> dxs) {
    (void)ending;
    run(dys, needs, dxs);
  }
  // Called when `recording` ends without having run this node: the recording was released (`error` is null), or
  // its backward threw `error` earlier.
  virtual void skipped(const RecordingState& recording, std::exception_ptr error) noexcept {
    (void)recording, (void)error;
  }
  // For a fused node, which applies the rules of its own op and of the op that computed its input: the sequence
  // number of that op's node. Otherwise 0. If the value between the two ops is a target, the engine calls `split`
  // before the pass, with the edge to that value.
  virtual uint64_t passed_over() const { return 0; }
  virtual void split(const Edge& between) { (void)between; }

  // Returns a dtype, besides the output's own, in which the rule accepts the output's gradient. A gradient in this
  // dtype reaches the rule unchanged; a gradient in another dtype is cast to the output's dtype.
  virtual DType gradient_dtype(size_t output) const { return outputs_[output].dtype; }

  // Slope of a leaky_relu fused into this op; 1 if none is fused, null if the op cannot fuse one. The rule reads
  // the value. See Note [Rectified batch norm].
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
  void dispose() override;  // frees a graph of any depth without recursion

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
  std::atomic<int> open_memberships_{0};  // the end of the last one drops the rule and the edges
  Node* next_dead_ = nullptr;             // next in the list of nodes to delete
};

// The slot of an attached tensor, where its gradient is stored. If the tensor was computed by a recorded op,
// `producer` is the edge to that op.
class Leaf final : public AutogradSlot {
 public:
  explicit Leaf(TensorImpl* owner) : AutogradSlot(true), owner_(owner) {}
  bool is_followed() const override;
  void owner_gone() override {
    std::lock_guard lock(mutex_);
    owner_ = nullptr;
  }
  // Returns the tensor; undefined once all handles to it are gone.
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

// Returns x's leaf, created on first use.
// Errors: DTypeError unless x is floating point.
Ref<Leaf> leaf_of(const Tensor& x);

}  // namespace gradus::autograd
