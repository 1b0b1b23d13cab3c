// Implementation of bcast_list_ and check_synchronized: compares names, shapes and checksums over the ranks, and
// broadcasts packed tensors.
#include "gradus/distributed/data_parallel/bcast_list.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/compare.h"
#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {
namespace {

using internal::Op;
constexpr const char* kOp = "bcast_list_";

nn::StateDict with_numbers(const std::vector<Tensor>& tensors) {
  nn::StateDict named;
  for (const Tensor& x : tensors) named.emplace_back(concat("tensor ", named.size()), x);
  return named;
}

// Checks that all members have tensors of the same names, dtypes and shapes, and bitwise equal elements if
// `values` is set.
// Errors: MismatchError if they do not.
void check_tensors(Op op, const nn::StateDict& tensors, bool values, const Group& group) {
  std::vector<std::string> lines;
  for (const auto& [name, x] : tensors) {
    lines.push_back(concat(name, ' ', x.dtype(), x.shape()));
    if (values) lines.back() += concat(" with checksum ", internal::checksum_of(x));
  }
  internal::check_equal(op, "the tensors", lines, group);
}

}  // namespace

nn::StateDict internal::named_tensors(const nn::Module& module) {
  nn::StateDict all = module.named_parameters();
  for (auto& buffer : module.named_buffers()) all.push_back(std::move(buffer));
  return all;
}

void bcast_list_(const nn::StateDict& tensors, const BcastListOptions& options) {
  for (const auto& [name, x] : tensors) {
    if (!x.defined()) throw ValueError(kOp, name, " is undefined");
    if (autograd::is_tracked(x))
      throw StateError(kOp, "would overwrite ", name, ", which an open recording follows: ", describe(x));
  }
  const Group& group = options.group;
  const int size = get_world_size(group);
  if (size < 0) throw ValueError(kOp, "this rank is no member of the group");
  const int src = options.src < 0 ? group.ranks()[0] : options.src;
  const int root = get_group_rank(group, src);
  if (size == 1) return;
  check_tensors(Op::kBcastList, tensors, false, group);
  std::vector<Tensor> list;
  for (const auto& [name, x] : tensors) list.push_back(x);
  internal::PackedBroadcast(group, list, root).finish();
  if (options.verify) check_tensors(Op::kBcastList, tensors, true, group);
}

void bcast_list_(const std::vector<Tensor>& tensors, const BcastListOptions& options) {
  bcast_list_(with_numbers(tensors), options);
}

void bcast_list_(const nn::Module& module, const BcastListOptions& options) {
  bcast_list_(internal::named_tensors(module), options);
}

void bcast_list_(optim::Optimizer& optimizer, const BcastListOptions& options) {
  const Group& group = options.group;
  if (get_world_size(group) == 1) return;
  const int src = options.src < 0 ? group.ranks()[0] : options.src;
  // Other ranks may have no state yet, so names, dtypes and shapes are sent first.
  optim::State state = get_rank() == src ? optimizer.state_dict() : optim::State();
  std::vector<std::pair<std::string, std::pair<DType, Shape>>> specs;
  for (const auto& [name, x] : state.tensors) specs.push_back({name, {x.dtype(), x.shape()}});
  using Text = std::pair<decltype(specs), decltype(state.numbers)>;
  const Text text =
      from_wire<Text>(broadcast_object(to_wire(Text{specs, state.numbers}), {.src = src, .group = group}));
  if (get_rank() != src) {
    state.numbers = text.second;
    for (const auto& [name, spec] : text.first)
      state.tensors.emplace_back(name, empty(spec.second, {.dtype = spec.first}));
  }
  bcast_list_(state.tensors, options);
  if (get_rank() != src) optimizer.load_state_dict(state);
}

void check_synchronized(const nn::StateDict& tensors, const Group& group) {
  if (get_world_size(group) == 1) return;
  check_tensors(Op::kCheckSynchronized, tensors, true, group);
}

void check_synchronized(const nn::Module& module, const Group& group) {
  check_synchronized(internal::named_tensors(module), group);
}

}  // namespace gradus::dist
