// Forward and backward of differentiable collectives: every rank sends, with its CallRecord, which of its
// open recordings (gradient tapes) follow an input, and the dtypes and shapes of a list of inputs. So all
// members agree on the recordings that the op must join (Note [Agreement] in agreement.h). Also reports a
// failed backward to the job. Runs on the thread whose recordings are open.
#include "gradus/distributed/group/agreement.h"

#include <utility>

#include "gradus/autograd/graph/recording_state.h"
#include "gradus/distributed/base/rank_error.h"

namespace gradus::dist::internal {
namespace {

using autograd::RecordingState;

// What a member sends beside its CallRecord, as integers (Collective::sizes): open, wants, then dtype, number
// of dims and dims of each spec. Empty if there are neither recordings nor specs.
struct Note {
  size_t open = 0;                // number of open recordings, at most 64
  uint64_t wants = 0;             // bit i: the i-th open recording, oldest first, follows an input
  std::vector<TensorSpec> specs;  // dtype and shape of each input, for ops whose input is a list
};

std::vector<int64_t> write(const Note& note) {
  if (note.open == 0 && note.specs.empty()) return {};
  std::vector<int64_t> text{int64_t(note.open), int64_t(note.wants)};
  for (const TensorSpec& spec : note.specs) {
    text.push_back(int64_t(spec.dtype));
    text.push_back(spec.shape.size());
    text.insert(text.end(), spec.shape.begin(), spec.shape.end());
  }
  return text;
}

// Parses the integers that write() makes. Returns nullopt for any others.
std::optional<Note> read(const std::vector<int64_t>& text) {
  Note note;
  if (text.empty()) return note;
  if (text.size() < 2 || text[0] < 0 || text[0] > 64) return std::nullopt;
  note.open = text[0];
  note.wants = text[1];
  for (size_t at = 2; at < text.size();) {
    if (text.size() - at < 2) return std::nullopt;
    const int64_t dtype = text[at], ndim = text[at + 1];
    at += 2;
    if (dtype < 0 || dtype > int64_t(DType::kBool) || ndim < 0 || ndim > kMaxDims ||
        size_t(ndim) > text.size() - at)
      return std::nullopt;
    TensorSpec& spec = note.specs.emplace_back();
    spec.dtype = DType(dtype);
    spec.shape = Shape(std::span(text).subspan(at, ndim));
    at += ndim;
  }
  return note;
}

// Returns whether the recording tracks one of the inputs, so that its backward will need a gradient for them.
bool follows_any(const RecordingState& r, std::span<const Tensor> inputs) {
  for (const Tensor& x : inputs)
    if (is_floating(x.dtype()) && x.ref()->slot && r.follows(x.ref()->slot.get())) return true;
  return false;
}

// Returns the first disagreement between the members' notes, or nullopt; the same on all members.
std::optional<Failure> find_disagreement(const MatchedCall& matched, const Group& group,
                                         const Forward& forward) {
  const std::vector<int>& ranks = group.ranks();
  const OpInfo& info = info_of(forward.op);
  const auto mismatch = [&](size_t i, const auto&... parts) {
    return Failure{Failure::Kind::kMismatch, ranks[i], concat("rank ", ranks[i], parts...)};
  };
  std::vector<Note> notes;
  uint64_t wants = 0;
  for (size_t i = 0; i < matched.sizes.size(); ++i) {
    std::optional<Note> note = read(matched.sizes[i]);
    if (!note) return mismatch(i, " sent a malformed note: do all ranks run the same program?");
    if (info.has_list && info.root == OpInfo::Root::kNone && note->specs.size() != ranks.size())
      return mismatch(i, " gave ", note->specs.size(), " tensors, for ", ranks.size(), " members");
    wants |= note->wants;
    notes.push_back(std::move(*note));
  }
  for (size_t i = 1; i < notes.size(); ++i) {
    if (info.reduces && notes[i].specs != notes[0].specs)
      return mismatch(i, " gave other shapes than rank ", ranks[0]);
    if (wants && notes[i].open != notes[0].open)
      return mismatch(i, " has ", notes[i].open, " open recordings and rank ", ranks[0], " has ",
                      notes[0].open, " in ", describe(matched.records[i]),
                      ": what one rank differentiates, all must record");
  }
  return std::nullopt;
}

}  // namespace

std::vector<RecordingState*> open_recording_states(std::string_view op) {
  std::vector<RecordingState*> open;
  for (const Ref<Counted>& r : autograd::open_recordings())
    if (!autograd::as_recording(r)->finished()) open.push_back(autograd::as_recording(r));
  if (open.size() > 64) throw StateError(op, "at most 64 recordings can be open, got ", open.size());
  return open;
}

Agreement run_forward(const Group& group, const Forward& forward) {
  const std::vector<RecordingState*> open = open_recording_states(name_of(forward.op));
  Note local;
  local.open = open.size();
  for (size_t i = 0; i < open.size(); ++i) {
    if (open[i]->is_probe()) open[i]->set_communicates();
    if (follows_any(*open[i], forward.inputs)) local.wants |= uint64_t{1} << i;
  }
  if (info_of(forward.op).has_list)
    for (const Tensor& x : forward.inputs) local.specs.emplace_back(x);

  Agreement agreed;
  CallRecord& record = agreed.record;
  if (forward.inputs.empty())
    record = {.op = forward.op, .reduce = forward.reduce, .root = forward.root};
  else
    record = make_record(forward.op, forward.inputs[0], forward.reduce, forward.root);
  record.part = Part::kForward;
  record.bytes = 0;
  for (const Tensor& x : forward.inputs) record.bytes += x.nbytes();

  const auto check = [&](const MatchedCall& matched) { return find_disagreement(matched, group, forward); };
  const auto move = [&](MatchedCall& matched) {
    uint64_t wants = 0;
    std::vector<std::vector<TensorSpec>> specs;
    for (const auto& text : matched.sizes) {
      Note note = read(text).value();
      wants |= note.wants;
      specs.push_back(std::move(note.specs));
    }
    for (size_t i = 0; i < open.size(); ++i)
      if (wants >> i & 1) agreed.recordings.push_back(open[i]);
    forward.move(matched, specs);
  };
  Collective call{name_of(forward.op).data(), record, write(local), check, move};
  call.device = forward.inputs.empty() ? forward.device : forward.inputs[0].device();
  call.tensors.assign(forward.inputs.begin(), forward.inputs.end());
  group.state().run(std::move(call), false, {});
  return agreed;
}

bool any_rank_has_gradient(const Group& group, CallRecord record, bool local) {
  bool any = false;
  record.part = Part::kBackward;
  record.flags = local;
  const auto move = [&](MatchedCall& matched) {
    for (const CallRecord& r : matched.records) any = any || r.flags;
  };
  Collective call{name_of(record.op).data(), record, {}, {}, move};
  call.is_agreement = true;
  group.state().run(std::move(call), false, {});
  return any;
}

namespace {
thread_local constinit const ReportedAction* reported_action = nullptr;  // the thread's innermost; null: none
}  // namespace

ReportedAction::ReportedAction(std::string action)
    : what_("failed in " + std::move(action)), outer_(std::exchange(reported_action, this)) {}
ReportedAction::~ReportedAction() { reported_action = outer_; }

void report_backward_failure(const World* world, const std::exception_ptr& error, const char* what) noexcept {
  if (reported_action) what = reported_action->what_.c_str();
  if (!error || !world || !world->membership || world->membership->failed()) return;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const DistributedError&) {
      // All ranks have this failure.
    } catch (const RankKilled&) {
      // A simulation kills this rank.
    } catch (...) {
      world->membership->report(failure_of(world->rank, error, what));
    }
  } catch (...) {
    // The failure cannot be reported.
  }
}

}  // namespace gradus::dist::internal
