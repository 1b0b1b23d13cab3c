// Interfaces of nodes whose rule also is the rule of a relu next to their op.
#pragma once

#include "gradus/autograd/graph/node.h"

namespace gradus::autograd {

// A node that can apply a relu to its op's result: relu(batch_norm(x)). Note [Rectified batch norm].
class FusesNextRelu {
 public:
  // Makes the node stand for both ops. Returns false if it applies an activation already.
  virtual bool fuse_relu() = 0;

 protected:
  ~FusesNextRelu() = default;
};

// A node that stands for its op and for the relu that made its input: max_pool2d(relu(x)). Its edge is the relu's.
class FusesPreviousRelu {
 public:
  // Returns the sequence number of the relu's node; 0 after unfuse.
  virtual uint64_t fused_relu_sequence() const = 0;
  // Makes the node stand for its own op alone, with an edge to the relu's result. The engine calls it if the gradient
  // of that result is a target.
  virtual void unfuse(const Edge& relu_result) = 0;

 protected:
  ~FusesPreviousRelu() = default;
};

// Lets the node of x apply a relu to x as well, if the node can and nothing else uses x. Returns true then: the
// result of the relu takes x's position in the graph.
bool fuse_relu_into_node_of(const Tensor& x);

}  // namespace gradus::autograd
