// ConvBlock's constructor and forward. Batch norm followed by ReLU runs as one op (BatchNorm::relu).
#include "gradus/models/gan/internal/conv_block.h"

#include "gradus/autograd/ops/activations.h"

namespace gradus::models::internal {

ConvBlock::ConvBlock(nn::Module* parent, std::string name, const ConvBlockOptions& options)
    : Layer(parent, std::move(name)),
      conv_(options.conv(this, "conv")),
      norm_(options.norm ? options.norm(this, options.norm_name) : nullptr),
      slope_(options.slope) {}

Tensor ConvBlock::forward(const Tensor& x) {
  Tensor h = (*conv_)(x);
  if (auto* batch_norm = dynamic_cast<nn::BatchNorm*>(norm_.get()); batch_norm && slope_ == 0)
    return batch_norm->relu(h);
  if (norm_) h = (*norm_)(h);
  if (!slope_) return h;
  return *slope_ == 0 ? relu(std::move(h)) : leaky_relu(h, *slope_);
}

}  // namespace gradus::models::internal
