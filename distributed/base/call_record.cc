#include "gradus/distributed/base/call_record.h"

#include <algorithm>

namespace gradus::dist::internal {
namespace {

// Which fields an op's records have, and which must agree.
struct Form {
  std::string_view name;
  bool tensor = false;  // has a dtype and a shape; the dtype must agree
  bool shape = false;   // and so must the shape
  bool reduce = false;
  bool root = false;
};

// In the order of Op.
constexpr Form kForms[] = {
    {.name = "none"},
    {.name = "barrier"},
    {.name = "all_reduce", .tensor = true, .shape = true, .reduce = true},
    {.name = "reduce", .tensor = true, .shape = true, .reduce = true, .root = true},
    {.name = "broadcast", .tensor = true, .shape = true, .root = true},
    {.name = "scatter", .tensor = true, .root = true},
    {.name = "gather", .tensor = true, .root = true},
    {.name = "all_gather", .tensor = true},
    {.name = "reduce_scatter", .tensor = true, .shape = true, .reduce = true},
    {.name = "all_to_all", .tensor = true},
    {.name = "broadcast_object", .root = true},
    {.name = "all_gather_object"},
    {.name = "gather_object", .root = true},
    {.name = "scatter_object", .root = true},
    {.name = "bcast_list_"},
    {.name = "check_synchronized"},
    {.name = "new_group"},
    {.name = "new_subgroups"},
    {.name = "new_subgroups_by_enumeration"},
    {.name = "Grid"},
    {.name = "split"},
    {.name = "duplicate"},
    {.name = "make_allreduce_cb"},
    {.name = "DistributedDataParallel"},
    {.name = "SeparateDistributedDataParallel"},
    {.name = "TrainingState::save"},
    {.name = "backward"},
};
static_assert(std::size(kForms) == size_t(Op::kBackward) + 1);

const Form& form_of(Op op) { return kForms[size_t(op)]; }

std::span<const int64_t> dims_of(const CallRecord& r) { return {r.dims, size_t(r.ndim)}; }

bool agree(const CallRecord& a, const CallRecord& b) {
  if (a.sequence != b.sequence || a.op != b.op || a.part != b.part) return false;
  const Form& form = form_of(a.op);
  // In a differentiable broadcast or scatter, the root tells the others what it sends.
  if (a.part != Part::kPlain && (a.op == Op::kBroadcast || a.op == Op::kScatter)) return a.root == b.root;
  return (!form.tensor || a.dtype == b.dtype) && (!form.reduce || a.reduce == b.reduce) &&
         (!form.root || a.root == b.root) && (!form.shape || std::ranges::equal(dims_of(a), dims_of(b)));
}

bool valid(const CallRecord& r) {
  return r.op <= Op::kBackward && r.dtype <= DType::kBool && r.reduce <= ReduceOp::kBxor && r.ndim >= 0 &&
         r.ndim <= kMaxDims && r.part <= Part::kBackward;
}

// Like describe, with the root as a rank in the job, which is how users name it.
std::string describe_in_job(CallRecord record, const std::vector<int>& ranks) {
  if (record.root >= 0 && record.root < int(ranks.size())) record.root = ranks[record.root];
  return describe(record);
}

}  // namespace

std::string_view name_of(Op op) { return form_of(op).name; }

std::string describe(const CallRecord& record) {
  const Form& form = form_of(record.op);
  std::string arguments;
  const auto add = [&](const auto&... parts) {
    arguments += concat(arguments.empty() ? "" : ", ", parts...);
  };
  if (form.tensor) add(name_of(record.dtype), to_string(Shape(dims_of(record))));
  if (form.reduce) add(name_of(record.reduce));
  if (form.root && record.root >= 0) add("root ", record.root);
  const char* const before[] = {"", "functional::", "the gradient of functional::"};
  return concat(before[size_t(record.part)], form.name, '(', arguments, ')');
}

std::optional<Failure> find_mismatch(const std::vector<CallRecord>& records, const std::vector<int>& ranks,
                                     const std::string& group) {
  const auto mismatch = [](int rank, std::string text) {
    return Failure{Failure::Kind::kMismatch, rank, std::move(text)};
  };
  for (size_t i = 0; i < records.size(); ++i)
    if (!valid(records[i]))
      return mismatch(ranks[i], concat("rank ", ranks[i], " sent a malformed record in group '", group,
                                       "': do all ranks run the same program?"));

  const auto rank_of = [&](auto it) { return ranks[it - records.begin()]; };
  const auto votes = [&](const CallRecord& record) {
    return std::ranges::count_if(records, [&](const CallRecord& other) { return agree(record, other); });
  };
  for (auto ahead = records.begin(); ahead != records.end(); ++ahead) {
    if (!ahead->dropped) continue;
    const auto other = std::ranges::find_if(records, [&](const CallRecord& r) {
      return (ahead->dropped > 1 && int32_t(r.backwards - ahead->backwards) < 0) ||
             (!agree(r, *ahead) && votes(r) >= votes(*ahead));
    });
    if (other != records.end())
      return mismatch(
          rank_of(ahead),
          concat("rank ", rank_of(ahead),
                 " ended a recording without its backward (has it caught an exception?) ", "and went on to ",
                 describe_in_job(*ahead, ranks), " as call ", ahead->sequence, " of group '", group,
                 "', where rank ", rank_of(other), " called ", describe_in_job(*other, ranks)));
  }

  // The record that the most members agree with; on a tie, the first.
  const auto usual = std::ranges::max_element(records, {}, votes);
  const auto odd =
      std::ranges::find_if(records, [&](const CallRecord& record) { return !agree(record, *usual); });
  if (odd == records.end()) return std::nullopt;

  std::string text = concat("rank ", rank_of(odd), " called ", describe_in_job(*odd, ranks), " as call ",
                            odd->sequence, " of group '", group, "', where rank ", rank_of(usual), " called ",
                            describe_in_job(*usual, ranks));
  if (odd->sequence != usual->sequence) text += concat(" as call ", usual->sequence);
  return mismatch(rank_of(odd), std::move(text));
}

}  // namespace gradus::dist::internal
