// The graph that recordings write: nodes (ops that were recorded) and leaves (attached tensors).
//
// The graph hangs on tensors: a tensor's slot is the node that made it, or the leaf that it is. Each node
// knows the open recordings it belongs to; when the last of them finishes, the node drops its rule and its
// edges, so a tensor that the user keeps (a loss in a vector) keeps no graph.
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

// Where a gradient goes: an output of a node, or a leaf; null where the input was a constant.
struct Edge {
  Ref<AutogradSlot> slot;
  uint32_t index = 0;
};

// What the engine needs of a value to bring its gradient into the value's own form.
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

// A recorded op. Subclasses hold the rule.
class Node : public AutogradSlot {
 public:
  explicit Node(const char* op);

  // Computes the gradients of the inputs marked in `needs`, into `dxs` (same length as edges()). `dys` holds
  // the outputs' gradients, undefined where none arrived; at least one did. May be called once per recording.
  virtual void run(std::span<Tensor> dys, std::span<const char> needs, std::span<Tensor> dxs) = 0;
  // Drops the rule and what it saved.
  virtual void drop_rule() = 0;
  // A node that others count on (other ranks, which exchange gradients with it): its recordings keep it
  // alive, and their backward runs it even when no gradient arrives, newest first as all nodes. For each of
  // its recordings exactly one of `run_for` (in that recording's own backward) and `skipped` is called.
  virtual bool runs_without_gradient() const { return false; }
  // `run`, and for whom: the recording whose backward this is; null when that recording goes on afterward.
  virtual void run_for(const RecordingState* ending, std::span<Tensor> dys, std::span<const char> needs,
                       std::span<Tensor> dxs) {
    (void)ending;
    run(dys, needs, dxs);
  }
  // `recording` ends without having run this node: it was released, or its backward threw `error` before.
  virtual void skipped(const RecordingState& recording, std::exception_ptr error) noexcept {
    (void)recording, (void)error;
  }
  // A node that stands for its input's op as well names that op's node, by sequence number. When the gradient
  // of the value between the two is asked for, the engine calls `split` with the edge to it, before the pass.
  virtual uint64_t passed_over() const { return 0; }
  virtual void split(const Edge& between) { (void)between; }

  // The dtype in which the engine passes an output's gradient on to the rule if it comes in that dtype; else
  // it comes in the output's.
  virtual DType gradient_dtype(size_t output) const { return outputs_[output].dtype; }

  // Set by an op that can rectify its own result: the rule reads it. See Note [Rectified batch norm].
  std::shared_ptr<bool> rectified;

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
  std::atomic<int> open_memberships_{0};  // whoever closes the last one drops the rule and the edges
  Node* next_dead_ = nullptr;             // chain of nodes that wait to be deleted
};

// An attached tensor: the end of a gradient's way. It may have been computed too (then `producer` leads on).
class Leaf final : public AutogradSlot {
 public:
  explicit Leaf(TensorImpl* owner) : AutogradSlot(true), owner_(owner) {}
  void owner_gone() override {
    std::lock_guard lock(mutex_);
    owner_ = nullptr;
  }
  // The tensor, or undefined once the user has dropped it.
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

// Returns x's leaf, made on first use.
// Errors: DTypeError unless x is floating point.
Ref<Leaf> leaf_of(const Tensor& x);

}  // namespace gradus::autograd
