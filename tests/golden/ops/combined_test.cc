// Ops followed by an activation, which Gradus can fuse, against PyTorch's separate ops: cases of combined.py
// by name, as golden_ops.h explains.
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {

static const bool added = add_golden_ops(
    "combined",
    {
        {"conv2d/relu", [](X x) { return relu(conv2d(x[0], x[1], x[2], {.padding = 1})); }},
        {"linear/relu", [](X x) { return relu(linear(x[0], x[1], x[2])); }},
        {"batch_norm/relu",
         [](X x) { return relu(batch_norm(x[0], x[1], x[2], {}, {}, {.training = true})); }},
        {"batch_norm/leaky_relu",
         [](X x) { return batch_norm_leaky_relu(x[0], 0.2, x[1], x[2], {}, {}, {.training = true}); }},
        {"batch_norm/add_relu",
         [](X x) { return batch_norm_add_relu(x[0], x[3], x[1], x[2], {}, {}, {.training = true}); }},
    });

}  // namespace gradus::golden
