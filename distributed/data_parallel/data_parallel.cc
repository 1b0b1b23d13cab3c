// DataParallel: each call splits x [..., N, ...] along options.dim, copies the parameters, buffers and mode
// of layers_[0], the model, to the replicas on the other devices, runs one replica per device in its own
// thread, and concatenates the results on output_device. The copies of parameters are recorded ops, so the
// backward sums all gradients in the model's parameters. Replicas are on the meta device between calls.
#include "gradus/distributed/data_parallel/data_parallel.h"

#include <algorithm>
#include <exception>
#include <list>
#include <thread>

#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/internal/device_imbalance.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/warning.h"

namespace gradus::dist {
namespace {

constexpr const char* kOp = "DataParallel";

void check_options(const DataParallelOptions& o) {
  for (size_t i = 0; i < o.device_ids.size(); ++i) {
    if (o.device_ids[i].type == DeviceType::kMeta)
      throw DeviceError(kOp, "expected devices that compute, got ", o.device_ids[i]);
    if (std::ranges::count(o.device_ids, o.device_ids[i]) > 1)
      throw ValueError(kOp, "device_ids has ", o.device_ids[i], " twice");
  }
  if (o.output_device && o.output_device->type == DeviceType::kMeta)
    throw DeviceError(kOp, "expected an output_device that holds data, got ", *o.output_device);
}

// The GPUs beginning with `first`, or `first` alone if it is none.
std::vector<Device> all_devices(Device first) {
  std::vector<Device> devices = {first};
  for (int i = 0; first.type == DeviceType::kCUDA && i < cuda_device_count(); ++i)
    if (i != first.index) devices.push_back({DeviceType::kCUDA, int16_t(i)});
  return devices;
}

void warn_of_imbalance(const std::vector<Device>& devices) {
  std::vector<DeviceProperties> gpus;
  for (const Device device : devices)
    if (device.type == DeviceType::kCUDA) gpus.push_back(device_properties(device));
  if (const std::string text = internal::imbalance_of(gpus); !text.empty()) warn_once(text);
}

// Calls the factory with `context` as the Context and `device` as its device.
std::unique_ptr<nn::Layer> make_on(const DataParallelBase::Factory& make, Context context, Device device) {
  context.device = device;
  const ContextScope scope(context);
  std::unique_ptr<nn::Layer> model = make();
  if (!model) throw ValueError(kOp, "the factory made no model");
  return model;
}

// Copies the training mode of each module, since single modules may be in evaluation mode.
void copy_mode(nn::Module& from, nn::Module& to) {
  const auto modules = from.named_modules(), copies = to.named_modules();
  for (size_t i = 0; i < std::min(modules.size(), copies.size()); ++i)
    copies[i].second->train(modules[i].second->is_training());
}

std::vector<Tensor> parameters_on(const nn::Module& model, Device device) {
  std::vector<Tensor> copies;
  for (const Tensor& p : model.parameters()) copies.push_back(to(p, device));
  return copies;
}

nn::StateDict buffers_on(const nn::Module& model, Device device) {
  nn::StateDict copies;
  for (const auto& [name, b] : model.named_buffers()) copies.emplace_back(name, raw::to(b, device));
  return copies;
}

// Gives a replica copies of the original's training mode, parameters and buffers, for a scope. The copy of
// parameters is recorded, so gradients reach the original's parameters.
struct ReplicaScope {
  ReplicaScope(nn::Module& original, nn::Module& replica, Device device)
      : parameters(replica, parameters_on(original, device)),
        buffers(replica, buffers_on(original, device), {.partial = true}) {
    copy_mode(original, replica);
  }
  nn::ParameterScope parameters, buffers;
};

}  // namespace

std::string internal::imbalance_of(const std::vector<DeviceProperties>& devices) {
  const auto compare = [&](auto size, const char* name) -> std::string {
    if (devices.empty()) return "";
    const auto [least, most] = std::ranges::minmax(devices, {}, size);
    if (double(least.*size) >= 0.75 * double(most.*size)) return "";
    return concat(kOp, ": a ", least.name, " has ", least.*size, ' ', name, ", a ", most.name, ' ',
                  most.*size, ": the others wait for the slowest; device_ids names those to use");
  };
  const std::string text = compare(&DeviceProperties::memory_bytes, "bytes of memory");
  return text.empty() ? compare(&DeviceProperties::multiprocessors, "multiprocessors") : text;
}

DataParallelBase::DataParallelBase(const Factory& make, DataParallelOptions options)
    : options_(std::move(options)) {
  Context& caller = Context::current();
  if (options_.device_ids.empty()) options_.device_ids = all_devices(caller.device);
  check_options(options_);
  if (options_.device_ids.size() > 1) warn_of_imbalance(options_.device_ids);
  layers_.push_back(make_on(make, caller.snapshot(), options_.device_ids[0]));
  check_devices();
  // Replicas are made with a separate generator: only their structure is used, so the caller's random
  // numbers must not depend on the number of devices.
  Context replica_context = caller.snapshot();
  replica_context.recordings.clear();
  replica_context.generator = std::make_shared<RandomGenerator>();
  for (size_t i = 1; i < options_.device_ids.size(); ++i) {
    layers_.push_back(make_on(make, replica_context, options_.device_ids[i]));
    layers_[i]->to(Device{DeviceType::kMeta});  // frees the weights that `make` initialized
  }
}

void DataParallelBase::check_devices() const {
  const Device device = options_.device_ids[0];
  for (const auto& [name, t] : internal::named_tensors(*layers_[0]))
    if (t.device() != device)
      throw DeviceError(kOp, "expected all parameters and buffers on ", device,
                        ", the first of device_ids, but '", name, "' is ", describe(t));
}

Tensor DataParallelBase::operator()(const Tensor& x) {
  if (x.dim() == 0) throw ShapeError(kOp, "expected x with a dimension to split, got ", describe(x));
  const std::vector<Device>& devices = options_.device_ids;
  const Device target = options_.output_device.value_or(devices[0]);
  if (layers_.size() == 1) return to(layer()(to(x, devices[0])), target);
  check_devices();
  const bool empty_batch = x.size(options_.dim) == 0;
  std::vector<Tensor> chunks = chunk(x, empty_batch ? 1 : int64_t(devices.size()), options_.dim);
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i] = to(chunks[i], devices[i]);
  std::list<ReplicaScope> scopes;
  for (size_t i = 1; i < chunks.size(); ++i) scopes.emplace_back(layer(), *layers_[i], devices[i]);
  std::vector<Tensor> results = run(chunks);
  bool scalars = true;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) throw ValueError(kOp, "the model returned no tensor on ", devices[i]);
    scalars = scalars && results[i].dim() == 0;
    results[i] = to(results[i], target);
  }
  return scalars ? stack(results) : cat(results, options_.dim);
}

// Runs replica i on chunks[i], one thread each, and returns results[i]. Waits for all replicas, then throws
// the exception of the lowest i that threw. Each replica has a generator derived from the caller's and i.
std::vector<Tensor> DataParallelBase::run(const std::vector<Tensor>& chunks) {
  const size_t n = chunks.size();
  std::vector<Tensor> results(n);
  std::vector<std::exception_ptr> errors(n);
  Context& caller = Context::current();
  const PhiloxKey key = caller.generator->next();
  std::vector<Context> contexts(n, caller.snapshot());
  for (size_t i = 0; i < n; ++i) {
    const auto bits = philox(key.seed, key.stream, i);
    contexts[i].generator = std::make_shared<RandomGenerator>(uint64_t(bits[1]) << 32 | bits[0]);
    contexts[i].device = options_.device_ids[i];
    contexts[i].threads = std::max(1, num_threads() / int(n));
  }
  const auto run_one = [&](size_t i) {
    const ContextScope scope(contexts[i]);
    try {
      results[i] = (*layers_[i])(chunks[i]);
    } catch (Error& e) {
      e.add_context(concat(kOp, " on ", options_.device_ids[i]));
      errors[i] = std::current_exception();
    } catch (const InternalError&) {
      errors[i] = std::current_exception();
    } catch (const std::exception& e) {
      try {
        std::throw_with_nested(Error(kOp, "on ", options_.device_ids[i], ": ", e.what()));
      } catch (...) {
        errors[i] = std::current_exception();
      }
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < n; ++i) threads.emplace_back(run_one, i);
    run_one(0);
  }
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
  return results;
}

}  // namespace gradus::dist
