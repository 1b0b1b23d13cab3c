// Tensors that cross ranks with their gradients: the base of pipelines. Shape, dtype and whether a gradient
// is wanted travel with the tensor.
//
//   if (dist::get_rank() == 0) { dist::remote_send(stage(x), {.dest_rank = 1}); gm.backward(); }
//   else                       { gm.backward(nn::cross_entropy(stage(dist::remote_recv({.src_rank = 0})),
//   y)); }
#pragma once

#include "gradus/distributed/collectives.h"

namespace gradus::dist {

struct RemoteSendOptions {
  Required<int> dest_rank;
  Group group;
  std::optional<Milliseconds> timeout;
};
struct RemoteRecvOptions {
  Required<int> src_rank;
  Group group;
  std::optional<Milliseconds> timeout;
};

// Sends x, of any shape. In a recording that follows x, backward receives its gradient from dest_rank (also a
// backward without roots: gm.backward()).
void remote_send(const Tensor& x, const RemoteSendOptions& options);
// Returns what the matching remote_send sends. Under a recording the result is followed when the sender wants
// its gradient; it is sent back exactly once: by backward, or as "none" when the recording ends without one
// or does not reach it.
Tensor remote_recv(const RemoteRecvOptions& options);

}  // namespace gradus::dist
