// write_trace(): the Chrome trace of a pipeline has each action once (ph "X"), an arrow per message ("s" to
// "f"), counters ("C"), and the idle fraction of the report.
#include "gradus/distributed/pipeline/pipeline_record.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/distributed/pipeline/pipeline_report.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string scratch_file() {
  std::string path = testing::TempDir() + "/trace-XXXXXX";
  close(mkstemp(path.data()));
  return path;
}

json events_of(const PipelineRecord& record) {
  const std::string path = scratch_file();
  write_trace(record, path);
  std::ifstream file(path);
  const json trace = json::parse(file);
  std::filesystem::remove(path);
  return trace["traceEvents"];
}

int64_t ns(const json& us) { return std::llround(us.get<double>() * 1000); }

// An action in the file; times in nanoseconds.
struct Span {
  int64_t begin = 0, end = 0;
  int stage = 0, micro_batch = 0;
  char kind = 0;
};
Span span_of(const json& e) {
  Span s{.begin = ns(e["ts"]), .end = ns(e["ts"]) + ns(e["dur"])};
  const std::string name = e["name"];
  EXPECT_EQ(std::sscanf(name.c_str(), "%d%c%d", &s.stage, &s.kind, &s.micro_batch), 3) << name;
  return s;
}

// Two steps of a U-Net on three ranks with `depth` stages each. Skip connections pass over a stage.
std::optional<PipelineRecord> record_unet(Schedule schedule, int depth) {
  std::optional<PipelineRecord> record;
  run_ranks(3, [&] {
    const std::vector<std::string> cuts =
        depth == 1 ? std::vector<std::string>{"norm", "middle"}
                   : std::vector<std::string>{"down0", "norm", "middle", "dropout", "up1"};
    Pipeline<UNet> pipe([] { return std::make_unique<UNet>(); }, zeros({1, 2, 8, 8}),
                        {.interleave = depth, .schedule = schedule, .micro_batches = 4, .cut_after = cuts});
    GradManager gm;
    pipe.attach(gm);
    pipe.record_steps(2);
    for (int i = 0; i < 2; ++i) pipe.step(gm, ones({8, 2, 8, 8}), zeros({8, 2, 8, 8}), nn::mse_loss);
    if (auto all = pipe.gather_records()) record = std::move(all);
  });
  return record;
}

class Trace : public testing::TestWithParam<std::pair<Schedule, int>> {};

TEST_P(Trace, HasEachActionOnceAndTheBubbleOfTheReport) {
  const auto [schedule, depth] = GetParam();
  const auto record = record_unet(schedule, depth);
  ASSERT_TRUE(record);
  const ActionLists lists =
      make_schedule(schedule, {.ranks = 3, .stages_per_rank = depth, .micro_batches = 4});
  std::map<std::tuple<int, int, std::string>, int> seen;  // by rank, step and name
  std::map<int, std::pair<int64_t, int64_t>> span_of;     // by step
  int64_t busy = 0, makespans = 0;
  for (const json& e : events_of(*record)) {
    if (e["ph"] != "X" || e["cat"] != "action") continue;
    const int step = e["args"]["step"];
    ++seen[{e["pid"], step, e["name"]}];
    const int64_t begin = ns(e["ts"]), end = begin + ns(e["dur"]);
    busy += end - begin;
    const auto [it, fresh] = span_of.try_emplace(step, begin, end);
    it->second = {std::min(it->second.first, begin), std::max(it->second.second, end)};
  }
  EXPECT_EQ(span_of.size(), 2u);
  size_t actions = 0;
  for (int rank = 0; rank < 3; ++rank)
    for (const Action& a : lists.of_rank[rank])
      for (const auto& [step, span] : span_of) {
        EXPECT_EQ((seen[{rank, step, to_string(a)}]), 1) << rank << " " << to_string(a);
        ++actions;
      }
  EXPECT_EQ(seen.size(), actions);
  for (const auto& [step, span] : span_of) makespans += span.second - span.first;
  const double bubble = 1 - double(busy) / double(3 * makespans);
  const PipelineReport report = make_report(*record);
  EXPECT_NEAR(report.idle_fraction, bubble, 0.001);
  char printed[64];
  std::snprintf(printed, sizeof printed, "idle %.2f %%; theory", 100 * report.idle_fraction);
  EXPECT_THAT(to_string(report), HasSubstr(printed));
}

TEST_P(Trace, FlowsLeadFromTheMakerToTheTaker) {
  const auto [schedule, depth] = GetParam();
  const auto record = record_unet(schedule, depth);
  ASSERT_TRUE(record);
  const json events = events_of(*record);
  std::map<int, std::vector<Span>> actions;  // by rank
  for (const json& e : events)
    if (e["ph"] == "X" && e["cat"] == "action") actions[e["pid"]].push_back(span_of(e));
  const auto at = [&](const json& e) {
    for (const Span& s : actions[e["pid"]])
      if (s.begin <= ns(e["ts"]) && ns(e["ts"]) <= s.end) return s;
    ADD_FAILURE() << "no action at " << e;
    return Span();
  };
  std::map<int64_t, json> starts, ends;
  std::map<std::string, int> messages;
  for (const json& e : events) {
    if (e["ph"] == "s" || e["ph"] == "f") {
      EXPECT_TRUE((e["ph"] == "s" ? starts : ends).emplace(e["id"], e).second) << e;
    }
    if (e["ph"] == "X") ++messages[e["cat"]];
  }
  // Steps, micro-batches, directions, cuts.
  EXPECT_GT(starts.size(), 2u * 4 * 2 * 2) << "skips besides neighbors";
  EXPECT_EQ(starts.size(), ends.size());
  EXPECT_EQ(messages["send"], int(starts.size()));
  EXPECT_EQ(messages["receive"], int(starts.size()));
  for (const auto& [id, start] : starts) {
    ASSERT_TRUE(ends.contains(id)) << start;
    const json& end = ends[id];
    EXPECT_NE(start["pid"], end["pid"]);
    EXPECT_LE(ns(start["ts"]), ns(end["ts"])) << start << end;
    const Span from = at(start), to = at(end);
    EXPECT_EQ(from.micro_batch, to.micro_batch);
    EXPECT_EQ(from.kind, to.kind);
    EXPECT_TRUE(from.kind == 'F' ? from.stage < to.stage : from.stage > to.stage) << start << end;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Trace,
                         testing::Values(std::pair(Schedule::k1F1B, 1), std::pair(Schedule::kZeroBubbleH1, 1),
                                         std::pair(Schedule::kInterleaved1F1B, 2),
                                         std::pair(Schedule::kZeroBubbleV, 2)));

TEST(PipelineTrace, CountsWhatIsHeld) {
  const auto record = record_unet(Schedule::k1F1B, 1);
  ASSERT_TRUE(record);
  std::map<int, int> most;
  for (const json& e : events_of(*record)) {
    if (e["ph"] != "C") continue;
    if (e["name"] == "held bytes") {
      EXPECT_GT(e["args"]["bytes"], 0);
    }
    if (e["name"] == "held micro-batches")
      most[e["pid"]] = std::max<int>(most[e["pid"]], e["args"]["micro-batches"]);
  }
  EXPECT_EQ(most, (std::map<int, int>{{0, 3}, {1, 2}, {2, 1}}));
}

TEST(PipelineTrace, SaysWhereItCannotWrite) {
  EXPECT_ERROR(FileError, write_trace({}, "/nowhere/trace.json"), "/nowhere/trace.json");
  EXPECT_THROW(write_trace({}, "/dev/full"), FileError);
}

}  // namespace
}  // namespace gradus::dist
