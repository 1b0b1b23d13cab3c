// Mistakes, one at a time, and what the compiler is to say of each.
#include "gradus/autograd/ops/reduce.h"
#include "gradus/nn/linear.h"
#include "gradus/nn/sequential.h"
#include "gradus/tensor/ops/random.h"

using namespace gradus;

#if MISTAKE == 1  // an option that must be given is missing
struct Net : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 3}};
  Tensor forward(const Tensor& x) override { return fc(x); }
};
Net net;
#endif

#if MISTAKE == 2  // an option that must be given is missing
const nn::Linear layer;
#endif

#if MISTAKE == 3  // write `using Layer::Layer;`
struct Block : nn::Layer {
  Tensor forward(const Tensor& x) override { return x; }
};
void add_to(nn::Sequential& net) { net.add<Block>(); }
#endif

#if MISTAKE == 4  // deleted
Tensor norm_of(const Tensor& x) { return norm(x, 1); }
#endif

#if MISTAKE == 5  // deleted
Tensor numbers() { return randint(0, 10); }
#endif

#if MISTAKE == 6  // inn
const nn::Linear::Options kOptions{.inn = 3, .out = 4};
#endif
