#include "gradus/nn/layers/dropout.h"

#include "gradus/autograd/ops/dropout.h"

namespace gradus::nn {
namespace {

std::string repr(const DropoutOptions& o) { return concat("p=", o.p); }

}  // namespace

Tensor Dropout::forward(const Tensor& x) { return dropout(x, options().p, is_training()); }
Tensor Dropout::forward_temporary(Tensor&& x) { return dropout(std::move(x), options().p, is_training()); }
std::string Dropout::extra_repr() const { return repr(options()); }

Tensor Dropout1d::forward(const Tensor& x) { return dropout1d(x, options().p, is_training()); }
std::string Dropout1d::extra_repr() const { return repr(options()); }
Tensor Dropout2d::forward(const Tensor& x) { return dropout2d(x, options().p, is_training()); }
std::string Dropout2d::extra_repr() const { return repr(options()); }
Tensor Dropout3d::forward(const Tensor& x) { return dropout3d(x, options().p, is_training()); }
std::string Dropout3d::extra_repr() const { return repr(options()); }

Tensor AlphaDropout::forward(const Tensor& x) { return alpha_dropout(x, options().p, is_training()); }
std::string AlphaDropout::extra_repr() const { return repr(options()); }
Tensor FeatureAlphaDropout::forward(const Tensor& x) {
  return feature_alpha_dropout(x, options().p, is_training());
}
std::string FeatureAlphaDropout::extra_repr() const { return repr(options()); }

}  // namespace gradus::nn
