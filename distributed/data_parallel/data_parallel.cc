#include "gradus/distributed/data_parallel/data_parallel.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::dist {
namespace {

constexpr const char* kOp = "DataParallel";

void check_options(const DataParallelOptions& o) {
  for (size_t i = 0; i < o.device_ids.size(); ++i) {
    if (o.device_ids[i].type == DeviceType::kMeta)
      throw DeviceError(kOp, "expected devices that compute, given ", o.device_ids[i]);
    if (std::find(o.device_ids.begin(), o.device_ids.begin() + i, o.device_ids[i]) !=
        o.device_ids.begin() + i)
      throw ValueError(kOp, "device_ids has ", o.device_ids[i], " twice");
  }
  if (o.output_device && o.output_device->type == DeviceType::kMeta)
    throw DeviceError(kOp, "expected an output_device that holds data, given ", *o.output_device);
}

std::unique_ptr<nn::Layer> make_on(const DataParallelBase::Factory& make, Context context, Device device) {
  context.device = device;
  const ContextScope scope(context);
  std::unique_ptr<nn::Layer> model = make();
  if (!model) throw ValueError(kOp, "the factory made no model");
  return model;
}

void check_devices(const nn::StateDict& tensors, Device device) {
  for (const auto& [name, t] : tensors)
    if (t.device() != device)
      throw DeviceError(kOp, "expected all parameters and buffers on ", device,
                        ", the first of device_ids, but '", name, "' is ", describe(t));
}

// Copies every module's own mode, since parts of a model may be in evaluation mode.
void copy_mode(nn::Module& from, nn::Module& to) {
  const auto all = from.named_modules(), copies = to.named_modules();
  for (size_t i = 0; i < std::min(all.size(), copies.size()); ++i)
    copies[i].second->train(all[i].second->is_training());
}

// A copy of the model on another device.
class Replica {
 public:
  Replica(const DataParallelBase::Factory& make, const Context& context, Device device)
      : device_(device), model_(make_on(make, context, device)) {
    model_->to(Device{DeviceType::kMeta});  // its own weights are never used
  }

  // Takes the original's mode, parameters and buffers. Parameters are copied differentiably, so gradients
  // reach the original's parameters.
  void take_over(nn::Layer& original) {
    copy_mode(original, *model_);
    std::vector<Tensor> parameters;
    for (const Tensor& p : original.parameters()) parameters.push_back(to(p, device_));
    nn::StateDict buffers;
    for (const auto& [name, b] : original.named_buffers()) buffers.emplace_back(name, raw::to(b, device_));
    parameters_.emplace(*model_, parameters);
    buffers_.emplace(*model_, buffers, nn::ParameterScopeOptions{.partial = true});
  }
  void give_up() {
    buffers_.reset();
    parameters_.reset();
  }

  nn::Layer& model() { return *model_; }

 private:
  const Device device_;
  const std::unique_ptr<nn::Layer> model_;
  std::optional<nn::ParameterScope> parameters_, buffers_;
};

}  // namespace

namespace internal {

class Replicas {
 public:
  Replicas(const DataParallelBase::Factory& make, DataParallelOptions options)
      : options_(std::move(options)) {
    Context& caller = Context::current();
    if (options_.device_ids.empty()) options_.device_ids = {caller.device};
    check_options(options_);
    model_ = make_on(make, caller.snapshot(), device(0));
    check_model();
    // Making copies must not advance the caller's random numbers, since only the copies' structure is used.
    Context apart = caller.snapshot();
    apart.recordings.clear();
    apart.generator = std::make_shared<RandomGenerator>();
    for (size_t i = 1; i < options_.device_ids.size(); ++i)
      others_.push_back(std::make_unique<Replica>(make, apart, device(i)));
  }

  nn::Layer& model() { return *model_; }

  Tensor forward(const Tensor& x) {
    check_model();
    if (x.dim() == 0) throw ShapeError(kOp, "expected x with a dimension to split, given ", describe(x));
    const Device target = options_.output_device.value_or(device(0));
    if (others_.empty()) return to((*model_)(to(x, device(0))), target);

    const bool is_empty = x.size(options_.dim) == 0;
    std::vector<Tensor> parts = chunk(x, is_empty ? 1 : int64_t(options_.device_ids.size()), options_.dim);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = to(parts[i], device(i));
    const Standing standing(*this, parts.size());
    std::vector<Tensor> results = run(parts);
    bool scalars = true;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined()) throw ValueError(kOp, "the model returned no tensor on ", device(i));
      scalars = scalars && results[i].dim() == 0;
      results[i] = to(results[i], target);
    }
    return scalars ? stack(results) : cat(results, options_.dim);
  }

 private:
  // While one lives, the copies have the model's parameters and buffers.
  class Standing {
   public:
    Standing(Replicas& all, size_t count) : all_(all) {
      try {
        for (size_t i = 1; i < count; ++i) all.others_[i - 1]->take_over(*all.model_);
      } catch (...) {
        end();
        throw;
      }
    }
    ~Standing() { end(); }

   private:
    void end() {
      for (auto& replica : all_.others_) replica->give_up();
    }
    Replicas& all_;
  };

  Device device(size_t i) const { return options_.device_ids[i]; }
  nn::Layer& layer(size_t i) { return i == 0 ? *model_ : others_[i - 1]->model(); }

  void check_model() const {
    check_devices(model_->named_parameters(), device(0));
    check_devices(model_->named_buffers(), device(0));
  }

  std::vector<Tensor> run(const std::vector<Tensor>& parts) {
    const size_t n = parts.size();
    std::vector<Tensor> results(n);
    std::vector<std::exception_ptr> errors(n);
    Context& caller = Context::current();
    const PhiloxKey key = caller.generator->next();
    std::vector<Context> contexts(n, caller.snapshot());
    for (size_t i = 0; i < n; ++i) {
      const auto bits = philox(key.seed, key.stream, i);
      contexts[i].generator = std::make_shared<RandomGenerator>(uint64_t(bits[1]) << 32 | bits[0]);
      contexts[i].device = device(i);
      contexts[i].threads = std::max(1, num_threads() / int(n));
    }
    const auto run_one = [&](size_t i) {
      const ContextScope scope(contexts[i]);
      try {
        results[i] = layer(i)(parts[i]);
      } catch (Error& e) {
        e.add_context(concat(kOp, " on ", device(i)));
        errors[i] = std::current_exception();
      } catch (const InternalError&) {
        errors[i] = std::current_exception();
      } catch (const std::exception& e) {
        try {
          std::throw_with_nested(Error(kOp, "on ", device(i), ": ", e.what()));
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

  DataParallelOptions options_;
  std::unique_ptr<nn::Layer> model_;
  std::vector<std::unique_ptr<Replica>> others_;
};

}  // namespace internal

DataParallelBase::DataParallelBase(Factory make, DataParallelOptions options)
    : replicas_(std::make_unique<internal::Replicas>(make, std::move(options))) {}
DataParallelBase::~DataParallelBase() = default;

nn::Layer& DataParallelBase::layer() { return replicas_->model(); }
Tensor DataParallelBase::operator()(const Tensor& x) { return replicas_->forward(x); }

}  // namespace gradus::dist
