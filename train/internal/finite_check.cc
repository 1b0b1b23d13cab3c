// Handles NaN and infinity in a training: a logged value that is not finite is an error; gradients that are
// not finite skip the network's step if that is allowed; kMaxSkippedInRow such steps in a row are an error.
// Logged values on a GPU are kept there and checked in batches, so that a step does not wait for the GPU.
// Calls per step, by one thread: begin_step, skip_step for each affected network (collective), end_step.
#include "gradus/train/internal/finite_check.h"

#include <cmath>

#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/train/ranks.h"

namespace gradus::training::internal {
namespace {

constexpr int64_t kMaxSkippedInRow = 100;

const char* name_of(double value) { return std::isnan(value) ? "NaN" : "infinite"; }

std::vector<Tensor> buffers_of(const std::vector<nn::Module*>& modules) {
  std::vector<Tensor> all;
  for (const nn::Module* module : modules)
    for (const Tensor& buffer : module->buffers()) all.push_back(buffer);
  return all;
}

}  // namespace

// Copies the buffers (running statistics) of the modules, which the forward of a skipped step would change.
void FiniteCheck::begin_step(int64_t step) {
  step_ = step;
  buffers_.clear();
  for (const Tensor& buffer : buffers_of(modules_)) buffers_.push_back(raw::clone(buffer));
}

void FiniteCheck::skip_step(const std::string& network, const std::string& cause, const Values& values,
                            Tally& tally) {
  read_values(tally);
  std::string local;
  for (const auto& [name, tensor] : values)
    if (const double value = tensor.item<double>(); !std::isfinite(value))
      local += concat("; ", name, " is ", name_of(value), " on rank ", dist::get_rank());
  std::string text = concat("step ", step_, ", ", network, ": ", cause);
  if (dist::get_world_size() == 1)
    text += local;
  else
    for (const std::string& of_rank : dist::all_gather_object(local)) text += of_rank;
  if (!last_values_.empty()) text += "; before";
  for (const auto& [name, value] : last_values_) text += concat(' ', name, " was ", value);
  if (skipped_step_ != step_) ++skipped_in_row_;  // several networks of one step count once
  if (modules_.empty() || skipped_in_row_ >= kMaxSkippedInRow) {
    if (skipped_in_row_ > 1) text += concat("; ", skipped_in_row_, " steps in a row were left out");
    throw ValueError(program_, text, kept_checkpoint());
  }
  ++skipped_, skipped_step_ = step_;
  const std::vector<Tensor> now = buffers_of(modules_);
  for (size_t i = 0; i < now.size(); ++i) raw::copy_(now[i], buffers_[i]);
  print(concat("Left out: ", text));
}

Sums FiniteCheck::end_step(const Values& values, Tally& tally) {
  Sums sums;
  const bool was_skipped = skipped_step_ == step_;
  for (const auto& [name, tensor] : values) {
    if (is_on_gpu(tensor)) {
      unread_.push_back({step_, name, to_f64_scalar(tensor), was_skipped});
      continue;
    }
    const double value = tensor.item<double>();
    if (was_skipped && !std::isfinite(value)) continue;
    check(step_, name, value);
    sums += {.of = {{name, value}}, .counts = {{name, 1}}};
  }
  if (unread_.size() >= kMaxUnread) read_values(tally);
  if (!was_skipped) skipped_in_row_ = 0;
  return sums;
}

void FiniteCheck::read_values(Tally& tally) {
  const std::vector<Unread> unread = std::exchange(unread_, {});
  std::vector<Tensor> numbers;
  for (const Unread& u : unread) numbers.push_back(u.number);
  const std::vector<double> values = read_scalars(numbers);
  for (size_t i = 0; i < values.size(); ++i) {
    const Unread& u = unread[i];
    if (u.was_skipped && !std::isfinite(values[i])) continue;
    check(u.step, u.name, values[i]);
    tally.add({.of = {{u.name, values[i]}}, .counts = {{u.name, 1}}});
  }
}

// Records a finite value as the last one of `name`; throws ValueError for another value.
void FiniteCheck::check(int64_t step, const std::string& name, double value) {
  if (std::isfinite(value)) {
    last_values_[name] = value;
    return;
  }
  const auto before = last_values_.find(name);
  throw ValueError(program_, "step ", step, ": ", name, " is ", name_of(value), " on rank ", dist::get_rank(),
                   before == last_values_.end() ? "" : concat("; before it was ", before->second),
                   kept_checkpoint());
}

// Returns the part of an error that names the latest checkpoint, "" without one.
std::string FiniteCheck::kept_checkpoint() const {
  return checkpoint_.empty() ? "" : concat("; ", checkpoint_, " stays as it was before");
}

}  // namespace gradus::training::internal
