// Layers that normalize each sample over channels or positions: GroupNorm, InstanceNorm1d to InstanceNorm3d,
// LocalResponseNorm. Initial weights are 1, initial biases 0. Errors: ValueError of constructors for groups,
// channels or features below 1, or channels that `groups` does not divide; of a call ShapeError for another
// x, and those of the op (autograd/ops/norm/group_norm.h).
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct GroupNormOptions {
  Required<int64_t, "groups"> groups;
  Required<int64_t, "channels"> channels;
  double eps = 1e-5;
  bool affine = true;  // learns weight and bias
};
extern template class ModuleWith<GroupNormOptions, Layer>;

// Applies group_norm: normalizes each sample over groups of channels.
// Shapes: x [N,channels,...] of 2 to 5 dims -> the same; weight, bias [channels].
class GroupNorm final : public LayerWith<GroupNormOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial(1)};
  Parameter bias{this, "bias", initial(0)};
  Tensor forward(const Tensor& x) override;

 private:
  Tensor initial(double value) const;
};

struct InstanceNormOptions {
  Required<int64_t, "features"> features;  // or kLazy
  double eps = 1e-5;
  double momentum = 0.1;             // running = (1 - momentum) running + momentum batch
  bool affine = false;               // learns weight and bias
  bool track_running_stats = false;  // tracks running statistics and uses them in evaluation
};
extern template class ModuleWith<InstanceNormOptions, Layer>;

// Applies instance_norm: normalizes each channel of each sample over its positions.
class InstanceNorm : public LayerWith<InstanceNormOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial(options().affine, 1)};
  Parameter bias{this, "bias", initial(options().affine, 0)};
  Buffer running_mean{this, "running_mean", initial(options().track_running_stats, 0)};
  Buffer running_var{this, "running_var", initial(options().track_running_stats, 1)};
  Buffer num_batches_tracked{this, "num_batches_tracked", initial_count()};  // i64[]; stays 0, as in torch.nn

  Tensor forward(const Tensor& x) override;

 private:
  virtual int spatial_dims() const = 0;
  Tensor initial(bool enabled, double value);
  Tensor initial_count() const;
  void set_size(int64_t features);
};

// Instance norm of inputs with kRank spatial dims; N is the name of the class.
template <int kRank, OptionName N> class InstanceNormOf final : public InstanceNorm {
 public:
  using InstanceNorm::InstanceNorm;
  std::string type_name() const override { return N.name; }

 private:
  int spatial_dims() const override { return kRank; }
};
// Shapes: x [N,features,L] or [features,L] -> the same.
using InstanceNorm1d = InstanceNormOf<1, "InstanceNorm1d">;
// Shapes: x [N,features,H,W] or [features,H,W] -> the same.
using InstanceNorm2d = InstanceNormOf<2, "InstanceNorm2d">;
// Shapes: x [N,features,D,H,W] or [features,D,H,W] -> the same.
using InstanceNorm3d = InstanceNormOf<3, "InstanceNorm3d">;

struct LocalResponseNormOptions {
  Required<int64_t, "size"> size;  // number of channels in the sum
  double alpha = 1e-4, beta = 0.75, k = 1;
};
extern template class ModuleWith<LocalResponseNormOptions, Layer>;

// Applies local_response_norm: divides by a power of the sum of squares over neighboring channels.
// Shapes: x [N,C,...] -> the same.
class LocalResponseNorm final : public LayerWith<LocalResponseNormOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
