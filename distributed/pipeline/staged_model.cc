// Implementation of StagedModel, one rank's copy of a model divided into pipeline stages. A StageSplit is the trace of
// the model's forward and its division into stages, for given input shapes; cuts are cached. The constructor
// builds the model twice, without communication: on the meta device (shapes without memory), to find which
// stages read each parameter and buffer; then for use, with memory for this rank's tensors only.
#include "gradus/distributed/pipeline/staged_model.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "gradus/autograd/ops/copy.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

constexpr Device kMeta{DeviceType::kMeta};
constexpr size_t kMaxCachedSplits = 64;  // a full cache drops its oldest entry

// Returns the cache key of a cut: shapes, dtypes and layouts of the inputs, and all modules' training modes.
std::string signature_of(const std::vector<nn::Module*>& modules, std::span<const Tensor> inputs) {
  std::ostringstream text;
  for (const Tensor& x : inputs)
    if (x.defined())
      text << x.dtype() << x.shape() << (x.is_channels_last() ? "c;" : ";");
    else
      text << "none;";
  for (const nn::Module* module : modules) text << module->is_training();
  return text.str();
}

}  // namespace

// Initializers draw from a copy of the caller's generator, so a second construction draws the same numbers.
// `names` receives the dotted names of all parameters and buffers in order of registration.
std::unique_ptr<nn::Module> make_on_meta(const StagedModel::Parts& parts, std::vector<std::string>* names) {
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>(*context.generator);
  const ContextScope in_context(context);
  nn::internal::Placement everything_on_meta;
  std::unique_ptr<nn::Module> model = parts.make();
  if (!model) throw ValueError("Pipeline", "the function that makes the model returned null");
  if (names) *names = everything_on_meta.names();
  return model;
}

void check_cuts(const std::vector<std::string>& cut_after, int stages) {
  if (int(cut_after.size()) != stages - 1)
    throw ValueError("Pipeline", "expected ", stages - 1, " cuts for ", stages, " stages, got ",
                     cut_after.size());
}

ModelTrace trace_model(nn::Module& model, const StagedModel::Parts& parts, std::span<const Tensor> inputs) {
  std::vector<Tensor> meta;
  for (const Tensor& x : inputs) meta.push_back(on_meta(x));
  return trace_model(model, meta, [&] { return parts.forward(model, meta); });
}

StagedModel::StagedModel(Parts parts) : parts_(std::move(parts)), devices_(parts_.device_of_stage) {
  if (devices_.empty()) devices_.assign(parts_.rank_of_stage.size(), Context::current().device);
  std::vector<std::string> names;
  {
    const std::unique_ptr<nn::Module> model = make_on_meta(parts_, &names);
    assign_owners(make_split(*model, parts_.inputs), *model);
  }
  std::map<std::string, Device> device_by_name;
  for (const StateEntry& entry : state_) device_by_name[entry.name] = entry.device;
  nn::internal::Placement placement(names, [&](const std::string& name) {
    // `names` also has tensors that the finished model lacks, because its constructor replaced them: spectral_norm
    // replaces weight by weight_orig. Such a tensor gets the device of the first final name that starts with
    // its own name, or meta.
    const auto found = device_by_name.lower_bound(name);
    return found != device_by_name.end() && found->first.starts_with(name) ? found->second : kMeta;
  });
  module_ = parts_.make();
  for (const auto& [name, module] : module_->named_modules()) modules_.push_back(module);
}

// Traces the forward of `model` on the meta device, and divides the calls into stages after the modules cut_after.
StageSplit StagedModel::make_split(nn::Module& model, std::span<const Tensor> inputs) const {
  StageSplit split{trace_model(model, parts_, inputs), {}};
  split.plan = plan_stages(split.trace, cuts_after(split.trace, parts_.cut_after));
  check_cuts(parts_.cut_after, stages());
  return split;
}

// Fills state_: assigns each parameter and buffer to the ranks of the stages that read it. A tensor that no op
// reads is assigned to the first stage of the preceding tensor that has readers, initially to stage 0.
void StagedModel::assign_owners(const StageSplit& split, const nn::Module& model) {
  const size_t parameters = model.named_parameters().size();  // the first tensors of the trace's state
  std::vector<int> last = {0};
  for (size_t i = 0; i < split.trace.state.size(); ++i) {
    StateEntry entry{split.trace.state[i], i < parameters, {}, kMeta};
    for (int stage : split.plan.owners[i].empty() ? last : split.plan.owners[i]) {
      const int rank = rank_of(stage);
      if (std::ranges::find(entry.ranks, rank) != entry.ranks.end()) continue;
      entry.ranks.push_back(rank);
      if (rank == parts_.rank) entry.device = device_of(stage);
    }
    if (!split.plan.owners[i].empty()) last = {split.plan.owners[i].front()};
    state_.push_back(std::move(entry));
  }
}

std::shared_ptr<const StageSplit> StagedModel::split_for(std::span<const Tensor> inputs) {
  const std::string signature = signature_of(modules_, inputs);
  const auto found = std::ranges::find(cached_splits_, signature, &CachedSplit::signature);
  if (found != cached_splits_.end()) return found->split;
  if (cached_splits_.size() == kMaxCachedSplits) cached_splits_.erase(cached_splits_.begin());
  cached_splits_.push_back({signature, std::make_shared<StageSplit>(make_split(*module_, inputs))});
  return cached_splits_.back().split;
}

nn::StateDict StagedModel::from_other_devices(const StageSplit& split, int stage) const {
  nn::StateDict copies;
  if (!has_devices()) return copies;
  const nn::StateDict all = named_tensors(*module_);
  for (size_t i = 0; i < split.trace.state.size(); ++i)
    if (split.plan.reads(stage, i))
      if (const Tensor& x = all.at(split.trace.state[i]); x.device() != device_of(stage))
        copies.emplace_back(split.trace.state[i], to(x, device_of(stage)));
  return copies;
}

nn::StateDict StagedModel::named_parameters() const {
  const nn::StateDict all = module_->named_parameters();
  nn::StateDict local;
  for (const StateEntry& entry : state_)
    if (entry.is_parameter && std::ranges::find(entry.ranks, parts_.rank) != entry.ranks.end())
      local.emplace_back(entry.name, all.at(entry.name));
  return local;
}

}  // namespace gradus::dist::internal
