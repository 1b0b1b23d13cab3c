// bcast_list_ and check_synchronized. A broadcast first compares names, dtypes and shapes over the ranks, so
// that a mismatch changes no tensor; then copies the tensors into buffers ("packs") of at most 25 MiB on a GPU or the host (a
// larger tensor has one of its own), broadcasts the packs asynchronously, and copies them back; then compares
// checksums. Collective over the group; ranks pass tensors of equal names, dtypes and shapes.
#include "gradus/distributed/data_parallel/bcast_list.h"

#include <algorithm>
#include <functional>

#include "gradus/autograd/graph/record.h"
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/compare.h"
#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist {
namespace {

using internal::Op;
constexpr const char* kOp = "bcast_list_";
constexpr int64_t kMaxPackBytes = int64_t(25) << 20;
// Names the tensors "tensor 0", "tensor 1", ..., for errors.
nn::StateDict with_numbers(const std::vector<Tensor>& tensors) {
  nn::StateDict named;
  for (const Tensor& x : tensors) named.emplace_back(concat("tensor ", named.size()), x);
  return named;
}

// Checks that all members have tensors of the same names, dtypes, shapes and, if `values`, elements.
// Errors: MismatchError if they do not.
void check_tensors(Op op, const nn::StateDict& tensors, bool values, const Group& group) {
  std::vector<std::string> lines;
  std::vector<Tensor> list;
  for (const auto& [name, x] : tensors) {
    lines.push_back(concat(name, ' ', x.dtype(), x.shape()));
    list.push_back(x);
  }
  if (values) {
    const std::vector<int64_t> checksums = internal::checksums_of(list);
    for (size_t i = 0; i < lines.size(); ++i) lines[i] += concat(" with checksum ", checksums[i]);
  }
  internal::check_equal(op, "the tensors", lines, group);
}

}  // namespace

namespace internal {

nn::StateDict named_tensors(const nn::Module& module) {
  nn::StateDict all = module.named_parameters();
  for (auto& buffer : module.named_buffers()) all.push_back(std::move(buffer));
  return all;
}

PackedBroadcast::PackedBroadcast(const Group& group, const std::vector<Tensor>& tensors, int root)
    : is_root_(group.rank() == root) {
  const auto on_gpu = [](const Tensor& x) { return x.device().type == DeviceType::kCUDA; };
  for (const Tensor& x : tensors) {
    const auto has_room = [&](const Pack& pack) {
      return on_gpu(pack.tensors[0]) == on_gpu(x) && pack.bytes + x.nbytes() <= kMaxPackBytes;
    };
    auto pack = std::ranges::find_if(packs_, has_room);
    if (pack == packs_.end()) pack = packs_.insert(packs_.end(), Pack());
    pack->tensors.push_back(x);
    pack->bytes += x.nbytes();
  }
  for (Pack& pack : packs_) {
    // So each tensor lies at a multiple of its elements' size.
    std::ranges::stable_sort(pack.tensors, std::greater(),
                             [](const Tensor& x) { return size_of(x.dtype()); });
    const Tensor& first = pack.tensors[0];
    pack.flat = empty({pack.bytes}, {.dtype = DType::kU8, .device = on_gpu(first) ? first.device() : kCPU});
    if (is_root_) raw::copy_each_(pack.views(), readable(pack.tensors));
    pack.work = broadcast(pack.flat, {.src = group.ranks()[root], .group = group, .async_op = true});
  }
}

std::vector<Tensor> PackedBroadcast::Pack::views() const {
  std::vector<Tensor> all;
  int64_t offset = 0;  // in bytes
  for (const Tensor& x : tensors) {
    all.push_back(Tensor(make_ref<TensorImpl>(flat.storage(), offset / size_of(x.dtype()), x.shape(),
                                              row_major_strides(x.shape()), x.dtype())));
    offset += x.nbytes();
  }
  return all;
}

void PackedBroadcast::finish() {
  for (Pack& pack : packs_) {
    pack.work.wait();
    if (!is_root_) raw::copy_each_(pack.tensors, pack.views());
  }
  packs_.clear();
}

}  // namespace internal

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
  const int root = get_group_rank(group, src);  // src is a rank in the job, root the rank in the group
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
  if (get_world_size(options.group) == 1) return;
  const int src = options.src < 0 ? options.group.ranks()[0] : options.src;
  const auto save = [&] {
    io::LoadedCheckpoint state;
    state.checkpoint.put("optimizer", optimizer);
    return state;
  };
  // Other ranks may have no state yet, so names, dtypes and shapes are sent as well.
  const io::LoadedCheckpoint state = bcast_checkpoint(save, {.group = options.group, .src = src});
  if (get_rank() != src) state.checkpoint.get("optimizer", optimizer);
}

void check_synchronized(const nn::StateDict& tensors, const Group& group) {
  if (get_world_size(group) == 1) return;
  check_tensors(Op::kCheckSynchronized, tensors, true, group);
}

void check_synchronized(const nn::Module& module, const Group& group) {
  check_synchronized(internal::named_tensors(module), group);
}

}  // namespace gradus::dist
