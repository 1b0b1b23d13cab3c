// ConditionalBatchNorm2d: batch norm whose scale and shift depend on the class of each image.
#pragma once

#include "gradus/nn/layers/batch_norm.h"
#include "gradus/nn/layers/embedding.h"

namespace gradus::nn {

struct ConditionalBatchNorm2dOptions {
  Required<int64_t, "features"> features;  // channels of x
  Required<int64_t, "classes"> classes;
  double eps = 1e-5;
  bool plus_one = false;  // true: 1 + weight is the scale
};
extern template class ModuleWith<ConditionalBatchNorm2dOptions>;

// y[n] = norm(x)[n] weight_embedding[labels[n]] + bias_embedding[labels[n]], where `norm` is a batch norm without
// weight and bias. Initial scale 1 and shift 0.
// Shapes: x [N,features,H,W], integer labels [N] -> [N,features,H,W]; both embeddings [classes,features].
// Errors: ValueError of the constructor for features or classes < 1; ShapeError; IndexError for a label outside of
// [0, classes).
// Source: Dumoulin et al., "A learned representation for artistic style", ICLR 2017; for GANs: Miyato and Koyama,
// "cGANs with projection discriminator", ICLR 2018.
class ConditionalBatchNorm2d final : public ModuleWith<ConditionalBatchNorm2dOptions> {
 public:
  explicit ConditionalBatchNorm2d(Options options) : ModuleWith(options) { set_initial_values(); }
  ConditionalBatchNorm2d(Module* parent, std::string name, Options options)
      : ModuleWith(parent, std::move(name), options) {
    set_initial_values();
  }

  BatchNorm2d norm{this, "norm", {.features = options().features, .eps = options().eps, .affine = false}};
  Embedding weight_embedding{
      this, "weight_embedding", {.num_embeddings = *options().classes, .embedding_dim = *options().features}};
  Embedding bias_embedding{
      this, "bias_embedding", {.num_embeddings = *options().classes, .embedding_dim = *options().features}};

  Tensor forward(const Tensor& x, const Tensor& labels);
  Tensor operator()(const Tensor& x, const Tensor& labels) { return forward(x, labels); }

 private:
  void set_initial_values();
};

}  // namespace gradus::nn
