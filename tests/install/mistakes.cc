// Code that must not compile: headers_test.sh defines MISTAKE as 1, 2, ... and expects an error that contains
// the text of the comment behind `#if`; with MISTAKE 0 the file compiles.
#include "gradus/autograd/ops/images/interpolate.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/nn/layers/linear.h"
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

// No overload can take a list with a wrong name: compilers show the line, and name the layer or its options.
#if MISTAKE == 7  // gradus::nn::LinearOptions
const nn::Linear layer({.inn = 3, .out = 4});
#endif

#if MISTAKE == 8  // nn::Linear
struct Net : nn::Layer {
  nn::Linear fc{this, "fc", {.inn = 3, .out = 4}};
  Tensor forward(const Tensor& x) override { return fc(x); }
};
#endif

#if MISTAKE == 9  // InterpolateOptions
Tensor twice(const Tensor& x) { return interpolate(x, {.sise = {4, 4}}); }
#endif

#if MISTAKE == 10  // Block
struct Block : nn::Layer {
  Tensor forward(const Tensor& x) override { return x; }
};
struct Tower : nn::Layer {
  Block first{this, "first"};
  Tensor forward(const Tensor& x) override { return first(x); }
};
#endif
