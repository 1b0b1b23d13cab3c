// Tensors that cross ranks with their gradients: the base of pipelines. Shape, dtype and whether a gradient
// is wanted travel with the tensor.
//
//   if (dist::get_rank() == 0) { dist::remote_send(stage(x), {.dest_rank = 1}); gm.backward(); }
//   else                       { gm.backward(loss(stage(dist::remote_recv({.src_rank = 0})), y)); }
#pragma once

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist {

struct RemoteSendOptions {
  Required<int, "dest_rank"> dest_rank;
  Group group = {};
  std::optional<Milliseconds> timeout = {};
};
struct RemoteRecvOptions {
  Required<int, "src_rank"> src_rank;
  Group group = {};
  std::optional<Milliseconds> timeout = {};
  Device device = kCPU;  // of the result
};

// Sends x, of any shape and dtype, and returns at once (once its device has written it). A recording that
// follows x receives the gradient from dest_rank in its backward (also in one without roots: gm.backward()),
// or learns that there is none.
void remote_send(const Tensor& x, const RemoteSendOptions& options);

// Returns what the matching remote_send sends. Where a recording of the sender's follows it, this rank's
// corresponding one (the i-th open one here for the i-th there) follows the result and answers once: with the
// gradient, in its backward; or with "none", when it ends without a backward, or its backward does not reach
// the result. Without an open recording the answer is "none" at once.
// Grad: of any order; but autograd::grad(ys, xs), whose recording goes on, ends here.
// Errors of both: DeviceError off host memory; ValueError for this rank itself, or no member; StateError
// inside of autograd::checkpoint; MismatchError when the two ranks have opened different numbers of
// recordings; PeerError when the other rank fails, its backward included; TimeoutError.
Tensor remote_recv(const RemoteRecvOptions& options);

}  // namespace gradus::dist
