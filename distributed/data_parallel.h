// DataParallel: one process, several devices. Each forward splits the batch, runs a copy of the model per device in a
// thread of its own, and joins the results; gradients of all copies add up in the one model's parameters.
//
//   dist::DataParallel<Net> net([] { return std::make_unique<Net>(); }, {.device_ids = {cpu1, cpu2}});
//   gm.attach(net->parameters());
//   Tensor y = net(x);                            // f32[N,...] on output_device
//
// For several cores of one machine DistributedDataParallel with a launcher is faster: this is for models that are
// simplest in one process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gradus/nn/layer.h"
#include "gradus/tensor/device.h"

namespace gradus::dist {

struct DataParallelOptions {
  std::vector<Device> device_ids = {};       // empty: all devices of the first parameter's type that the machine has
  std::optional<Device> output_device = {};  // default: device_ids[0]
  int64_t dim = 0;                           // of inputs and outputs: what is split and joined
};

namespace internal {
class Replicas;
}

// Parameters must be on device_ids[0]. Buffers: the copies start from the model's; what they write into theirs is
// lost, except the first copy's, which is the model's own. A batch with fewer samples than devices runs on fewer. A
// 0-dim result of a copy (a loss) becomes one element of a vector. Errors: DeviceError for parameters elsewhere,
// ValueError for repeated devices; what a copy throws, with its device, the first one of several.
class DataParallelBase {
 public:
  using Factory = std::function<std::unique_ptr<nn::Layer>()>;
  DataParallelBase(Factory make, DataParallelOptions options);
  ~DataParallelBase();
  nn::Layer& layer();
  Tensor operator()(const Tensor& x);

 private:
  std::unique_ptr<internal::Replicas> replicas_;
};

template <class M>
class DataParallel : public DataParallelBase {
 public:
  explicit DataParallel(std::function<std::unique_ptr<M>()> make, DataParallelOptions options = {})
      : DataParallelBase(std::move(make), std::move(options)) {}
  M* operator->() { return static_cast<M*>(&layer()); }
  M& module() { return static_cast<M&>(layer()); }
};

}  // namespace gradus::dist
