// Interfaces of nodes that fuse their op with a relu before or after the op: one node and one rule for both.
#pragma once

#include "gradus/autograd/graph/node.h"

namespace gradus::autograd {

// A node that can apply a relu to its op's result: relu(batch_norm(x)). See Note [Rectified batch norm] in
// autograd/ops/norm/batch_norm.cc.
class FusesNextRelu {
 public:
  // Makes the node stand for both ops. Returns false if it applies an activation already.
  virtual bool fuse_relu() = 0;

 protected:
  ~FusesNextRelu() = default;
};

// A node that stands for its op and for the relu that computed its input: max_pool2d(relu(x)). Its edge leads
// to the relu's input. See Note [Pooling a relu] in autograd/ops/images/pool.cc.
class FusesPreviousRelu {
 public:
  // Returns the sequence number of the relu's node; 0 after unfuse.
  virtual uint64_t fused_relu_sequence() const = 0;
  // Makes the node stand for its own op alone, with an edge to the relu's result. The engine calls unfuse if
  // the gradient of the relu's result is requested.
  virtual void unfuse(const Edge& relu_result) = 0;

 protected:
  ~FusesPreviousRelu() = default;
};

// Fuses a relu of x into the node of x and returns true, if that node is a FusesNextRelu and nothing else
// uses x. The caller has written relu(x) into x's buffer; x then is the result of both ops in the graph.
bool fuse_relu_into_node_of(const Tensor& x);

}  // namespace gradus::autograd
