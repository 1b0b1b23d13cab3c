// Batch normalization layers BatchNorm1d, BatchNorm2d and BatchNorm3d, and the exchange of their statistics
// with other ranks.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "gradus/nn/layer.h"
#include "gradus/tensor/tensor.h"

namespace gradus::nn {

// Interface of a differentiable all-gather over the ranks of a job. Implemented in distributed/. all_gather
// and sum are collective: every rank calls them, in the same order and with the same k.
class StatisticsReduction {
 public:
  virtual ~StatisticsReduction() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;  // this process's rank, in [0, size)
  // Returns the x of every rank, in order of rank.
  // Shapes: x [k] -> [size,k].
  virtual Tensor all_gather(const Tensor& x) = 0;
  // Returns the sum over the ranks of a number of the host, on which no device works.
  virtual int64_t sum(int64_t local) = 0;
};

struct BatchNormOptions {
  Required<int64_t, "features"> features;  // or kLazy
  double eps = 1e-5;
  // running = (1 - momentum) running + momentum batch; nullopt: running is the average over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;               // learns weight and bias
  bool track_running_stats = true;  // false: no running statistics; evaluation uses the batch's statistics
  bool freeze = false;  // true: training uses the running statistics too, and does not update them
};
extern template class ModuleWith<BatchNormOptions, Layer>;

// Normalizes each channel as batch_norm: by the statistics of the batch in training, by the running
// statistics in evaluation. The second run of a checkpoint does not update the running statistics. Initial
// values: weight 1, bias 0, running_mean 0, running_var 1.
// Errors: ValueError of the constructor for features < 1, and for freeze without running statistics; ShapeError of a call for another x; ValueError in
// training on one element per channel.
class BatchNorm : public LayerWith<BatchNormOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial(options().affine, 1)};
  Parameter bias{this, "bias", initial(options().affine, 0)};
  Buffer running_mean{this, "running_mean", initial(options().track_running_stats, 0)};
  Buffer running_var{this, "running_var", initial(options().track_running_stats, 1)};
  Buffer num_batches_tracked{this, "num_batches_tracked", initial_count()};  // i64[]

  // Whether a call normalizes by its batch: in training unless frozen, and without running statistics.
  bool uses_batch_statistics() const {
    return (is_training() && !options().freeze) || !running_mean.defined();
  }
  // If uses_batch_statistics(), normalizes over the batches of all ranks of
  // `reduction` together (SyncBatchNorm): calls then are collective, and the hosts of the ranks wait for each other. Null: over this
  // rank's batch alone.
  void set_reduction(std::shared_ptr<StatisticsReduction> reduction) { reduction_ = std::move(reduction); }
  const std::shared_ptr<StatisticsReduction>& reduction() const { return reduction_; }

  // Resets running mean, running variance and the number of batches to their initial values.
  void reset_running_stats();
  // While on, running statistics are averages over all batches, as with momentum nullopt.
  void use_cumulative_average(bool on) { use_cumulative_average_ = on; }
  // While on, the layer accumulates the statistics of its training batches and does not update the running
  // statistics. A call, on or off, discards the accumulated statistics.
  void defer_statistics(bool on);
  // Updates the running statistics once with the accumulated statistics, as if all batches were one.
  void apply_deferred_statistics();

  Tensor forward(const Tensor& x) final;
  // Return relu(layer(x)), leaky_relu(layer(x), slope), and relu(layer(x) + residual). In training, uses the
  // fused ops (batch_norm_relu, ...) unless the layer has hooks or normalizes over several ranks.
  Tensor relu(const Tensor& x);
  Tensor leaky_relu(const Tensor& x, double slope);
  Tensor add_relu(const Tensor& x, Tensor residual);
  // Fuses a ReLU or a LeakyReLU.
  std::optional<Tensor> fuse_next(const Layer& next, const Tensor& x) override;

 private:
  virtual int spatial_dims() const = 0;
  void check_input(const Tensor& x);
  bool reduces_statistics() const;
  template <class Op> Tensor forward_op(Op op, const Tensor& x);
  Tensor forward_synchronized(const Tensor& x);
  Tensor initial(bool enabled, double value);
  Tensor initial_count() const;
  double next_momentum() const;
  void accumulate(const Tensor& mean, const Tensor& m2, int64_t rows);

  // Accumulated: number of elements per channel, mean, and sum of squared differences from the mean.
  struct DeferredStats {
    double rows = 0;
    Tensor mean, m2;  // f64[features]
  };
  std::shared_ptr<StatisticsReduction> reduction_;
  bool use_cumulative_average_ = false;
  std::optional<DeferredStats> deferred_;
};

// Batch norm of inputs with kRank spatial dims; N is the name of the class.
template <int kRank, OptionName N> class BatchNormOf final : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;
  std::string type_name() const override { return N.name; }

 private:
  int spatial_dims() const override { return kRank; }
};
// Shapes: x [N,features] or [N,features,L] -> the same.
using BatchNorm1d = BatchNormOf<1, "BatchNorm1d">;
// Shapes: x [N,features,H,W] -> the same.
using BatchNorm2d = BatchNormOf<2, "BatchNorm2d">;
// Shapes: x [N,features,D,H,W] -> the same.
using BatchNorm3d = BatchNormOf<3, "BatchNorm3d">;

}  // namespace gradus::nn
