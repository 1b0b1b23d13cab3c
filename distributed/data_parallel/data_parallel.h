// DataParallel: data parallelism in one process over several devices, as torch.nn.DataParallel. Each forward
// splits the batch, runs one replica of the model per device in a separate thread, and concatenates the
// results. The replicas' gradients are summed in the parameters of the first replica, the model.
//
//   dist::DataParallel<Net> net([] { return std::make_unique<Net>(); }, {.device_ids = {cpu1, cpu2}});
//   gm.attach(net->parameters());
//   Tensor y = net(x);                            // f32[N, ...] on output_device
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
  std::vector<Device> device_ids = {};  // empty: the Context's device, and if that is a GPU the other GPUs
  std::optional<Device> output_device = {};  // default: device_ids[0]
  int64_t dim = 0;  // of inputs, split as by chunk(), and of outputs; negative: from the end
};

// Calls `make` once per device, with the Context's device set to that device. In every forward, the other
// replicas get the parameters, buffers and training mode of the first replica. Hooks added to the model after
// the constructor run only in the first replica.
//
// GPUs whose memory or number of multiprocessors differs much give a warning.
//
// The first replica is the model itself and keeps its buffers; updates of the other replicas' buffers are
// lost. A batch with fewer samples than devices runs on fewer devices, an empty one on the first. 0-dim
// results of the replicas (losses) are stacked into a vector. Random numbers differ between replicas, and are
// reproducible from the Context's seed. With one device, a forward is a plain call.
//
// Replicas compute on the caller's current streams of their devices. The result is ready for the caller's current
// stream of output_device. On GPUs the host waits for none of them.
//
// One thread at a time may call a DataParallel. `make` runs in the constructor, in the caller's thread.
//
// Errors: ValueError for repeated devices, a null result of `make` or an undefined one of a replica;
// DeviceError for the meta device, and with several devices for parameters or buffers that are not on
// device_ids[0]; ShapeError for x without dimensions; IndexError for a dim that x lacks; the exception of a
// replica, with its device added (if several replicas throw, that of the first in device_ids). A std::exception
// other than gradus::Error and InternalError is nested in an Error.
class DataParallelBase {
 public:
  using Factory = std::function<std::unique_ptr<nn::Layer>()>;
  DataParallelBase(const Factory& make, DataParallelOptions options);
  nn::Layer& layer() { return *layers_[0]; }
  // Shapes: x [..., N, ...], N at `dim`, on any device -> the replicas' results, concatenated along `dim`.
  Tensor operator()(const Tensor& x);

 private:
  void check_devices() const;
  std::vector<Tensor> run(const std::vector<Tensor>& chunks);

  DataParallelOptions options_;
  std::vector<std::unique_ptr<nn::Layer>> layers_;  // the model, and its replicas on the other devices
};

template <class M> class DataParallel : public DataParallelBase {
 public:
  explicit DataParallel(std::function<std::unique_ptr<M>()> make, DataParallelOptions options = {})
      : DataParallelBase(std::move(make), std::move(options)) {}
  M* operator->() { return static_cast<M*>(&layer()); }
  M& module() { return static_cast<M&>(layer()); }
};

}  // namespace gradus::dist
