// Implementation of bcast_list_ and check_synchronized: compares names, shapes and checksums over the ranks, and
// broadcasts packed tensors.
#include "gradus/distributed/data_parallel/bcast_list.h"

#include <algorithm>

#include "gradus/autograd/graph/record.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/group_state.h"
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

nn::StateDict state_of(const nn::Module& module) {
  nn::StateDict all = module.named_parameters();
  for (auto& buffer : module.named_buffers()) all.push_back(std::move(buffer));
  return all;
}

std::vector<Tensor> tensors_of(const nn::StateDict& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, x] : named) tensors.push_back(x);
  return tensors;
}

// Returns "ranks 1, 3".
std::string ranks_text(const Group& group, const std::vector<size_t>& members) {
  std::string text = members.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < members.size(); ++i) text += concat(i ? ", " : "", group.ranks()[members[i]]);
  return text;
}

// Returns the members whose entry `i` differs from that of member 0. Lists may be shorter than `i`.
template <class T> std::vector<size_t> mismatching_members(const std::vector<std::vector<T>>& all, size_t i) {
  const auto at = [&](size_t member) { return i < all[member].size() ? &all[member][i] : nullptr; };
  std::vector<size_t> mismatching;
  for (size_t m = 1; m < all.size(); ++m)
    if (bool(at(m)) != bool(at(0)) || (at(m) && *at(m) != *at(0))) mismatching.push_back(m);
  return mismatching;
}

// Returns the lists of all members.
template <class T>
std::vector<std::vector<T>> gather(Op op, const std::vector<T>& local, const Group& group) {
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : internal::gather_strings(group.state(), op, to_wire(local)))
    all.push_back(from_wire<std::vector<T>>(bytes));
  return all;
}

// Checks that all members have tensors of the same names, dtypes and shapes.
// Errors: MismatchError if they do not.
void check_specs(Op op, const nn::StateDict& tensors, const Group& group) {
  std::vector<std::string> local;
  for (const auto& [name, x] : tensors) local.push_back(concat(name, ' ', x.dtype(), x.shape()));
  const auto all = gather(op, local, group);
  size_t longest = 0;
  for (const auto& specs : all) longest = std::max(longest, specs.size());
  for (size_t i = 0; i < longest; ++i) {
    const std::vector<size_t> mismatching = mismatching_members(all, i);
    if (mismatching.empty()) continue;
    const auto text = [&](size_t member) {
      return i < all[member].size() ? all[member][i] : concat("only ", all[member].size(), " tensors");
    };
    throw MismatchError(name_of(op), group.ranks()[mismatching[0]], "the tensors differ between ranks: rank ",
                        group.ranks()[0], " has ", text(0), ", ", ranks_text(group, mismatching), " ",
                        text(mismatching[0]));
  }
}

// Checks that all members have bitwise equal tensors.
// Errors: MismatchError if they do not.
void check_values(Op op, const nn::StateDict& tensors, const Group& group) {
  std::vector<int64_t> local;
  for (const auto& [name, x] : tensors) local.push_back(internal::checksum_of(x));
  const auto all = gather(op, local, group);
  for (size_t i = 0; i < local.size(); ++i)
    if (const std::vector<size_t> mismatching = mismatching_members(all, i); !mismatching.empty())
      throw MismatchError(name_of(op), group.ranks()[mismatching[0]], tensors[i].first,
                          " differs between ranks: ", ranks_text(group, mismatching),
                          mismatching.size() == 1 ? " has" : " have", " another value than rank ",
                          group.ranks()[0]);
}

}  // namespace

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
  check_specs(Op::kBcastList, tensors, group);
  internal::PackedBroadcast(group, tensors_of(tensors), root).finish();
  if (options.verify) check_values(Op::kBcastList, tensors, group);
}

void bcast_list_(const std::vector<Tensor>& tensors, const BcastListOptions& options) {
  bcast_list_(with_numbers(tensors), options);
}

void bcast_list_(const nn::Module& module, const BcastListOptions& options) {
  bcast_list_(state_of(module), options);
}

void bcast_list_(optim::Optimizer& optimizer, const BcastListOptions& options) {
  const Group& group = options.group;
  if (get_world_size(group) == 1) return;
  const int src = options.src < 0 ? group.ranks()[0] : options.src;
  // Other ranks may have no state yet, so names, dtypes and shapes are sent first.
  optim::State state = get_rank() == src ? optimizer.state_dict() : optim::State();
  std::vector<std::pair<std::string, std::pair<DType, std::vector<int64_t>>>> specs;
  for (const auto& [name, x] : state.tensors)
    specs.push_back({name, {x.dtype(), {x.shape().begin(), x.shape().end()}}});
  using Text = std::pair<decltype(specs), decltype(state.numbers)>;
  const Text text =
      from_wire<Text>(broadcast_object(to_wire(Text{specs, state.numbers}), {.src = src, .group = group}));
  if (get_rank() != src) {
    state.numbers = text.second;
    for (const auto& [name, spec] : text.first)
      state.tensors.emplace_back(name, empty(Shape(std::span(spec.second)), {.dtype = spec.first}));
  }
  bcast_list_(state.tensors, options);
  if (get_rank() != src) optimizer.load_state_dict(state);
}

void check_synchronized(const nn::StateDict& tensors, const Group& group) {
  if (get_world_size(group) == 1) return;
  check_specs(Op::kCheckSynchronized, tensors, group);
  check_values(Op::kCheckSynchronized, tensors, group);
}

void check_synchronized(const nn::Module& module, const Group& group) {
  check_synchronized(state_of(module), group);
}

}  // namespace gradus::dist
