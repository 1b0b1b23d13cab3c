// Differentiable send and receive: remote_send sends a tensor to another rank, and the backward sends the
// gradient back. Shape, dtype and whether a gradient is needed are sent with the tensor.
//
//   if (dist::get_rank() == 0) { dist::remote_send(stage(x), {.dest_rank = 1}); gm.backward(); }
//   else                       { gm.backward(loss(stage(dist::remote_recv({.src_rank = 0})), y)); }
#pragma once

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist {

struct RemoteSendOptions {
  Required<int, "dest_rank"> dest_rank;
  Group group = {};
  std::optional<Milliseconds> timeout = {};  // of the message and its gradient; default: Group::timeout()
};
struct RemoteRecvOptions {
  Required<int, "src_rank"> src_rank;
  Group group = {};
  std::optional<Milliseconds> timeout = {};
  Device device = kCPU;  // of the result
};

// Sends x, of any shape and dtype, defined, to the rank dest_rank of the job. Returns without waiting for the
// receiver. If a recording (gradient tape) tracks x, x must not be written
// to before the backward, which blocks until dest_rank sends the gradient or "none", and needs no root:
// gm.backward().
void remote_send(const Tensor& x, const RemoteSendOptions& options);

// Blocks until the tensor of the next remote_send from src_rank arrives, and returns it. If the sender's i-th
// open recording tracks the tensor, this rank's i-th open recording tracks the result, and answers the sender
// once: with the gradient in its backward, or "none" if it ends without a backward or its backward does not
// reach the result. Without an open recording the answer is "none" at once.
// Errors: for remote_send and remote_recv, DeviceError for a meta tensor or the meta device; ValueError for
// this rank itself, or a rank that is no member; StateError inside of autograd::checkpoint; MismatchError if
// the two ranks have opened different numbers of recordings; PeerError if the other rank fails, also in its
// backward; TimeoutError.
// Grad: of any order. autograd::grad(ys, xs) does not end its recording, and sends none to other ranks.
Tensor remote_recv(const RemoteRecvOptions& options);

}  // namespace gradus::dist
