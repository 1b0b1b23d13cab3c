// Comparison of the call records that the members of a group exchange before a collective moves data: finds
// the member whose call differs from that of the majority, and describes both calls for the MismatchError.
// Every member compares the same list of records, so all members report the same failure. A recording is a
// gradient tape; a rank that ends one without a backward has dropped it.
#include "gradus/distributed/base/call_record.h"

#include <algorithm>

namespace gradus::dist::internal {
namespace {

std::span<const int64_t> dims_of(const CallRecord& r) { return {r.dims, size_t(r.ndim)}; }

// Whether two ranks' calls match: sequence number, op, part, and the fields that must be equal by OpInfo.
bool agree(const CallRecord& a, const CallRecord& b) {
  if (a.sequence != b.sequence || a.op != b.op || a.part != b.part) return false;
  const OpInfo& info = info_of(a.op);
  if (info.has_tensor && a.device != b.device) return false;
  if (info.root != OpInfo::Root::kNone && a.root != b.root) return false;
  // In a differentiable broadcast or scatter, the root sends dtype and shape too, so they need not agree.
  if (a.part != Part::kPlain && info.root == OpInfo::Root::kSource) return true;
  return (!info.has_tensor || a.dtype == b.dtype) && (!info.reduces || a.reduce == b.reduce) &&
         (!info.same_shape || std::ranges::equal(dims_of(a), dims_of(b)));
}

// Returns whether the enumerators and ndim of a received record are in range.
bool valid(const CallRecord& r) {
  return size_t(r.op) < std::size(kOps) && r.dtype <= DType::kBool && r.reduce <= ReduceOp::kPremulSum &&
         r.ndim >= 0 && r.ndim <= kMaxDims && r.part <= Part::kBackward && r.device <= DeviceType::kMeta;
}

// Like describe, with the root as a rank in the job, which is how users name it.
std::string describe_in_job(CallRecord record, const std::vector<int>& ranks) {
  if (record.root >= 0 && record.root < int(ranks.size())) record.root = ranks[record.root];
  return describe(record);
}

}  // namespace

std::string describe(const CallRecord& record) {
  const OpInfo& info = info_of(record.op);
  std::string arguments;
  const auto add = [&](const auto&... parts) {
    arguments += concat(arguments.empty() ? "" : ", ", parts...);
  };
  if (info.has_tensor)
    add(name_of(record.dtype), to_string(Shape(dims_of(record))),
        record.device == DeviceType::kCUDA ? " on cuda" : "");
  if (info.reduces) add(name_of(record.reduce));
  if (info.root != OpInfo::Root::kNone && record.root >= 0) add("root ", record.root);
  const char* const before[] = {"", "functional::", "the gradient of functional::"};
  return concat(before[size_t(record.part)], info.name, '(', arguments, ')');
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
  // Note [Dropped steps] (call_record.h): a rank that dropped a recording is at fault if it has opened
  // another one and counted more backwards than some rank, or if it differs from a call that at least
  // as many ranks made.
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

  const auto usual = std::ranges::max_element(records, {}, votes);  // on a tie, the first
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
