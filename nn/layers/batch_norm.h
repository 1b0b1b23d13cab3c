// Batch normalization layers.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "gradus/nn/layer.h"
#include "gradus/nn/layers/statistics_reduction.h"

namespace gradus::nn {

struct BatchNormOptions {
  Required<int64_t, "features"> features;
  double eps = 1e-5;
  // Weight of the newest batch in the running statistics; none: all batches have the same weight.
  std::optional<double> momentum = 0.1;
  bool affine = true;               // learns weight and bias
  bool track_running_stats = true;  // false: evaluation also uses the batch's statistics
};
extern template class ModuleWith<BatchNormOptions, Layer>;

// Normalizes each channel as batch_norm does: by the batch in training, by the running statistics in
// evaluation. weight starts at 1, bias at 0, running_mean at 0, running_var at 1.
class BatchNorm : public LayerWith<BatchNormOptions> {
 public:
  Parameter weight{this, "weight", initial(options().affine, 1)};
  Parameter bias{this, "bias", initial(options().affine, 0)};
  Buffer running_mean{this, "running_mean", initial(options().track_running_stats, 0)};
  Buffer running_var{this, "running_var", initial(options().track_running_stats, 1)};
  Buffer num_batches_tracked{this, "num_batches_tracked", initial_count()};  // i64[]

  // In training, the batches of all layers that share `reduction` count as one batch. Null: only
  // this layer's batch.
  void set_reduction(std::shared_ptr<StatisticsReduction> reduction) { reduction_ = std::move(reduction); }
  const std::shared_ptr<StatisticsReduction>& reduction() const { return reduction_; }

  // Forgets the batches seen.
  void reset_running_stats();
  // While on, all batches have the same weight in the running statistics, whatever the momentum.
  void weigh_all_batches_alike(bool on) { all_alike_ = on; }
  // While on, the layer collects the batches that it sees in training, and leaves the running statistics as
  // they are. Turning it off forgets what was collected.
  void defer_statistics(bool on);
  // Moves the running statistics once: all batches collected count as one.
  void apply_deferred_statistics();

  Tensor forward(const Tensor& x) final;
  // Return relu(layer(x)), leaky_relu(layer(x), slope), and relu(layer(x) + residual). Computed in one pass
  // where possible: in training with one batch's statistics, and without hooks on the layer.
  Tensor relu(const Tensor& x);
  Tensor leaky_relu(const Tensor& x, double slope);
  Tensor add_relu(const Tensor& x, Tensor residual);
  // Takes a ReLU or a LeakyReLU.
  std::optional<Tensor> with_next(const Layer& next, const Tensor& x) override;

 protected:
  using LayerWith::LayerWith;
  // Errors: ShapeError unless x has a shape that the layer takes.
  virtual void check_input(const Tensor& x) const = 0;

 private:
  bool joins_batches() const;
  template <class Op> Tensor forward_by(Op op, const Tensor& x);
  Tensor forward_joined(const Tensor& x);
  Tensor initial(bool wanted, double value) const;
  Tensor initial_count() const;
  double next_momentum() const;
  void collect(const Tensor& mean, const Tensor& m2, int64_t rows);

  // Of several batches: elements per channel, their mean, and the sum of squared differences from it.
  struct Deferred {
    double rows = 0;
    Tensor mean, m2;  // f64[features]
  };
  std::shared_ptr<StatisticsReduction> reduction_;
  bool all_alike_ = false;
  std::optional<Deferred> deferred_;
};

// Shapes: x [N,features] or [N,features,L] -> the same.
class BatchNorm1d final : public BatchNorm {
 public:
  BatchNorm1d(Module* parent, std::string name, Options options)
      : BatchNorm(parent, std::move(name), options) {}
  explicit BatchNorm1d(Options options) : BatchNorm(options) {}

 private:
  void check_input(const Tensor& x) const override;
};

// Shapes: x [N,features,H,W] -> the same.
class BatchNorm2d final : public BatchNorm {
 public:
  BatchNorm2d(Module* parent, std::string name, Options options)
      : BatchNorm(parent, std::move(name), options) {}
  explicit BatchNorm2d(Options options) : BatchNorm(options) {}

 private:
  void check_input(const Tensor& x) const override;
};

// Shapes: x [N,features,D,H,W] -> the same.
class BatchNorm3d final : public BatchNorm {
 public:
  BatchNorm3d(Module* parent, std::string name, Options options)
      : BatchNorm(parent, std::move(name), options) {}
  explicit BatchNorm3d(Options options) : BatchNorm(options) {}

 private:
  void check_input(const Tensor& x) const override;
};

}  // namespace gradus::nn
