// Implementation of write_trace: converts a PipelineRecord to JSON in the Trace Event Format, streamed event
// by event to a file. A rank is a process (pid) with a track (tid) of actions and one of messages. Phases
// used: X (duration), C (counter), s and f (start and end of a flow arrow from a send to its receive). Times
// are in microseconds.
#include "gradus/distributed/pipeline/pipeline_record.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/profile/trace_file.h"

namespace gradus::dist {
namespace {

using gradus::internal::TraceFile;

constexpr int kActions = 0, kMessages = 1;  // thread ids of a rank's tracks

// Returns the fields that all events have. `row` is kActions or kMessages; `time` is in nanoseconds.
std::string event_head(const char* phase, int rank, int row, int64_t time) {
  return concat("\"ph\":\"", phase, "\",\"pid\":", rank, ",\"tid\":", row,
                ",\"ts\":", TraceFile::microseconds(time));
}

std::string duration_event(const std::string& name, int rank, int row, int64_t begin, int64_t end) {
  return concat(event_head("X", rank, row, begin), ",\"dur\":", TraceFile::microseconds(end - begin),
                ",\"name\":", TraceFile::quoted(name));
}

void write_counter(TraceFile& file, const char* name, const char* unit, int rank, int64_t time,
                   int64_t value) {
  file.event(concat(event_head("C", rank, kActions, time), ",\"name\":\"", name, "\",\"args\":{\"", unit,
                    "\":", value, '}'));
}

// Flow ids of messages, by replica, step, stage, micro-batch, slot and gradient: the send and the receive of
// a message have the same id.
using Flows = std::map<std::tuple<int, uint64_t, int, int, int, bool>, int64_t>;

// Writes the actions of one step, and counters of the micro-batches in flight (`held`: forward done, backward
// or weight gradient not yet) and of the bytes of live tensors.
void write_actions(TraceFile& file, int rank, const StepRecord& step) {
  struct MessageTotals {
    int64_t sent = 0, received = 0, waited = 0;
  };
  std::vector<MessageTotals> totals(step.actions.size());
  for (const MessageRecord& m : step.messages) {
    MessageTotals& of_action = totals.at(size_t(m.action));
    (m.received ? of_action.received : of_action.sent) += m.bytes;
    if (m.received) of_action.waited += m.end - m.begin;
  }
  int64_t held = 0;
  for (size_t i = 0; i < step.actions.size(); ++i) {
    const ActionRecord& a = step.actions[i];
    if (a.action.kind == ActionKind::kForward)
      ++held;
    else if (a.action.kind != ActionKind::kInputGradient)
      --held;
    file.event(concat(duration_event(to_string(a.action), rank, kActions, a.begin, a.end),
                      ",\"cat\":\"action\",\"args\":{\"step\":", step.number, ",\"held\":", held,
                      ",\"received bytes\":", totals[i].received, ",\"sent bytes\":", totals[i].sent,
                      ",\"waited us\":", TraceFile::microseconds(totals[i].waited), '}'));
    write_counter(file, "held micro-batches", "micro-batches", rank, a.end, held);
    write_counter(file, "held bytes", "bytes", rank, a.end, a.held_bytes);
  }
}

// Writes the messages of one step, with one end of each flow arrow. The arrow leads from the send to the action that
// receives the message, to its beginning or to the end of its wait; "bp":"e" binds it to that action.
void write_messages(TraceFile& file, const RankRecord& rank, const StepRecord& step, Flows& flows) {
  for (const MessageRecord& m : step.messages) {
    const std::string name = concat(m.gradient ? "gradient of input " : "input ", m.slot, " of stage ",
                                    m.stage, ", micro-batch ", m.micro_batch);
    const int64_t flow =
        flows
            .try_emplace({rank.replica, step.number, m.stage, m.micro_batch, m.slot, m.gradient},
                         int64_t(flows.size()))
            .first->second;
    file.event(concat(duration_event(name, rank.rank, kMessages, m.begin, m.end), ",\"cat\":\"",
                      m.received ? "receive" : "send", "\",\"args\":{\"step\":", step.number,
                      ",\"message\":", flow, ",\"bytes\":", m.bytes, ",\"peer\":", m.peer, '}'));
    const ActionRecord& action = step.actions.at(size_t(m.action));
    const int64_t time = m.received ? std::clamp(m.end, action.begin, action.end) : m.begin;
    file.event(concat(event_head(m.received ? "f" : "s", rank.rank, kActions, time),
                      ",\"name\":\"message\",\"cat\":\"message\",\"id\":", flow,
                      m.received ? ",\"bp\":\"e\"" : ""));
  }
}

}  // namespace

void write_trace(const PipelineRecord& record, const std::filesystem::path& path) {
  TraceFile file("write_trace", path);
  Flows flows;
  for (const RankRecord& rank : record.ranks) {
    file.name_process(rank.rank, concat("rank ", rank.rank));
    file.name_thread(rank.rank, kActions, "actions");
    file.name_thread(rank.rank, kMessages, "messages");
    for (const StepRecord& step : rank.steps) {
      write_actions(file, rank.rank, step);
      write_messages(file, rank, step, flows);
    }
  }
  file.close();
}

}  // namespace gradus::dist
