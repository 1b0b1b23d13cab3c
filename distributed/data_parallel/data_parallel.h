// DataParallel: one process, several devices. Each forward splits the batch, runs one copy of the model
// per device in a thread of its own, and joins the results. The gradients of all copies are summed in the
// one model's parameters.
//
//   dist::DataParallel<Net> net([] { return std::make_unique<Net>(); }, {.device_ids = {cpu1, cpu2}});
//   gm.attach(net->parameters());
//   Tensor y = net(x);                            // f32[N,...] on output_device
//
// DataParallel is for models that are simplest in one process. On several cores of one machine,
// DistributedDataParallel with a launcher is faster.
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
  int64_t dim = 0;                           // dim along which inputs are split and outputs joined
};

namespace internal {
class Replicas;
}

// Calls `make` once per device, with the Context's device set to it. So `make` creates what the model holds
// besides parameters and buffers on each device. In every forward, the copies take parameters, buffers and
// training mode from the first model. Hooks that are added to the first model later are not copied.
//
// What copies write into their buffers is lost. The first copy is the model itself and keeps its buffers. A
// batch with fewer samples than devices runs on fewer devices. 0-dim results of the copies (losses) are
// stacked into a vector. Random numbers differ between copies, and are the same in every run. With one
// device, a forward is a plain call.
//
// Errors: ValueError for repeated devices; DeviceError for the meta device, and for parameters or buffers
// that are not on device_ids[0]; ShapeError for x without dimensions; what a copy throws, with its device (if
// several copies throw, the first copy's exception).
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

template <class M> class DataParallel : public DataParallelBase {
 public:
  explicit DataParallel(std::function<std::unique_ptr<M>()> make, DataParallelOptions options = {})
      : DataParallelBase(std::move(make), std::move(options)) {}
  M* operator->() { return static_cast<M*>(&layer()); }
  M& module() { return static_cast<M&>(layer()); }
};

}  // namespace gradus::dist
