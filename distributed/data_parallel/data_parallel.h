// DataParallel: one process, several devices. Each forward splits the batch, runs a copy of the
// model per device in a thread of its own, and joins the results; gradients of all copies add up in
// the one model's parameters.
//
//   dist::DataParallel<Net> net([] { return std::make_unique<Net>(); }, {.device_ids = {cpu1, cpu2}});
//   gm.attach(net->parameters());
//   Tensor y = net(x);                            // f32[N,...] on output_device
//
// For several cores of one machine DistributedDataParallel with a launcher is faster: this is for models that
// are simplest in one process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gradus/nn/layer.h"
#include "gradus/tensor/base/device.h"

namespace gradus::dist {

struct DataParallelOptions {
  std::vector<Device> device_ids = {};       // empty: the Context's device alone
  std::optional<Device> output_device = {};  // default: device_ids[0]
  int64_t dim = 0;                           // of inputs and outputs: what is split and joined
};

namespace internal {
class Replicas;
}

// Calls `make` once per device, with the Context's device set to it: what the model holds besides parameters
// and buffers is made by it, on each device. Parameters, buffers and training mode of the copies are those of
// the first model in every forward; hooks that are added to it later are its own.
//
// What copies write into their buffers is lost, except the first one's, which is the model itself. A batch
// with fewer samples than devices runs on fewer. A 0-dim result of a copy (a loss) becomes one element of a
// vector. Random numbers differ between copies, and are the same in every run. One device is a plain call.
//
// Errors: ValueError for repeated devices; DeviceError for the meta device, and for parameters or buffers
// that are not on device_ids[0]; ShapeError for x without dimensions; what a copy throws, with its device,
// the first copy's of several.
class DataParallelBase {
 public:
  using Factory = std::function<std::unique_ptr<nn::Layer>()>;
  DataParallelBase(Factory make, DataParallelOptions options);
  ~DataParallelBase();
  nn::Layer& layer();
  // Shapes: x [..,N,..], with N at `dim`, on any device -> the model's result, joined at `dim`.
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
