// Sends tensors between ranks, and their gradients back: the base of pipelines. Shape, dtype, and whether a
// gradient is wanted travel with the tensor.
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

// Sends x, of any shape and dtype. Returns at once after x's device has written it. A recording that
// follows x gets the gradient from dest_rank in its backward, or learns that there is none. The backward
// may have no root: gm.backward().
void remote_send(const Tensor& x, const RemoteSendOptions& options);

// Returns what the matching remote_send sends. If a recording of the sender follows the tensor, this rank's
// corresponding recording follows the result (the i-th open recording here corresponds to the i-th one
// there). It answers the sender once. In its backward it sends the gradient. If it ends without a backward,
// or its backward does not reach the result, it sends "none". Without an open recording the answer is
// "none" at once.
// Errors: for remote_send and remote_recv, DeviceError off host memory; ValueError for this rank
// itself, or for a rank that is no member; StateError inside of autograd::checkpoint; MismatchError if
// the two ranks have opened different numbers of recordings; PeerError if the other rank fails, also in
// its backward; TimeoutError.
// Grad: of any order. autograd::grad(ys, xs) does not end its recording, and its gradients stop here.
Tensor remote_recv(const RemoteRecvOptions& options);

}  // namespace gradus::dist
