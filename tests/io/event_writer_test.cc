// EventWriter: fields of each event (numbered as in TensorFlow's event.proto and summary.proto), durability,
// file names, errors; TensorBoard reads the files, in the Python of TENSORBOARD_PYTHON or python3 if that has
// it.
#include "gradus/io/event_writer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <limits>
#include <thread>

#include "gradus/tests/io/event_reader.h"
#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;
using testing::StartsWith;

std::vector<Event> events_of(const EventWriter& writer) { return read_events(slurp(writer.path())); }

TEST(EventReader, KnowsTheCheckValueOfItsChecksum) { EXPECT_EQ(slow_crc32c("123456789"), 0xe3069283u); }

TEST(EventWriter, MakesTheFolderAndAFileThatStartsWithItsVersion) {
  Scratch dir;
  const double before =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EventWriter log(dir / "runs/a");
  EXPECT_EQ(log.path().parent_path(), dir / "runs/a");
  EXPECT_THAT(log.path().filename().string(),
              MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\.[0-9]+"));
  const std::vector<Event> events = events_of(log);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(only(events[0].fields, 3).bytes, "brain.Event:2");
  EXPECT_GE(events[0].wall_time, before);
  EXPECT_LT(events[0].wall_time, before + 60);
}

TEST(EventWriter, ScalarsAreInTheFileWhenTheCallReturns) {
  Scratch dir;
  EventWriter log(dir.dir());
  log.add_scalar("train/loss", 0.625, 7);
  log.add_scalar("train/loss", std::numeric_limits<double>::quiet_NaN(), 1'000'000'000'000);
  log.add_scalar("ä", -std::numeric_limits<double>::infinity(), -1);
  const std::vector<Event> events = events_of(log);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[1].tag(), "train/loss");
  EXPECT_EQ(only(events[1].value(), 2).f32(), 0.625f);
  EXPECT_EQ(events[2].step, 1'000'000'000'000);
  EXPECT_TRUE(std::isnan(only(events[2].value(), 2).f32()));
  EXPECT_EQ(events[3].step, -1);
  EXPECT_EQ(events[3].tag(), "ä");
  EXPECT_EQ(only(events[3].value(), 2).f32(), -std::numeric_limits<float>::infinity());
}

TEST(EventWriter, AnImageIsAPngWithItsSize) {
  Scratch dir;
  EventWriter log(dir.dir());
  log.add_image("one", counted({3, 4, 5}, DType::kU8), 1);
  log.add_image("grid", counted({4, 1, 4, 5}, DType::kU8), 2, {.nrow = 2});
  const std::vector<Event> events = events_of(log);
  ASSERT_THAT(events, SizeIs(3));
  const ProtoMessage one = parse_proto(only(events[1].value(), 4).bytes);
  EXPECT_EQ(only(one, 1).number, 4u);
  EXPECT_EQ(only(one, 2).number, 5u);
  EXPECT_EQ(only(one, 3).number, 3u);
  EXPECT_EQ(only(one, 4).bytes, encode_png(counted({3, 4, 5}, DType::kU8)));
  const ProtoMessage grid = parse_proto(only(events[2].value(), 4).bytes);
  EXPECT_EQ(only(grid, 1).number, 2u * (4 + 2) + 2);
  EXPECT_EQ(only(grid, 2).number, 2u * (5 + 2) + 2);
}

TEST(EventWriter, AHistogramCountsInBucketsThatGrowByATenth) {
  Scratch dir;
  EventWriter log(dir.dir());
  const float infinity = std::numeric_limits<float>::infinity();
  log.add_histogram("w", tensor({-1.f, 0.f, 0.5f, 0.5f, 2.f, infinity, std::nanf("")}), 3);
  const ProtoMessage h = parse_proto(only(events_of(log).at(1).value(), 5).bytes);
  EXPECT_EQ(only(h, 1).f64(), -1);
  EXPECT_EQ(only(h, 2).f64(), 2);
  EXPECT_EQ(only(h, 3).f64(), 5);
  EXPECT_EQ(only(h, 4).f64(), 2);
  EXPECT_EQ(only(h, 5).f64(), 1 + 0.25 + 0.25 + 4);
  const std::vector<double> limits = only(h, 6).f64s(), counts = only(h, 7).f64s();
  ASSERT_EQ(limits.size(), counts.size());
  EXPECT_EQ(counts.front(), 0);
  EXPECT_EQ(counts.back(), 1);
  const auto count_at = [&](double v) {  // of the bucket that v belongs to
    size_t i = 0;
    while (limits.at(i) <= v) ++i;
    EXPECT_LE(limits.at(i - 1), v);
    return counts[i];
  };
  EXPECT_EQ(count_at(-1), 1);
  EXPECT_EQ(count_at(0), 1);
  EXPECT_EQ(count_at(0.5), 2);
  EXPECT_EQ(count_at(2), 1);
  double all = 0;
  for (const double c : counts) all += c;
  EXPECT_EQ(all, 5);
  for (size_t i = 1; i < limits.size(); ++i)
    if (limits[i - 1] > 1e-12) {
      EXPECT_NEAR(limits[i] / limits[i - 1], 1.1, 1e-9);
    }
}

TEST(EventWriter, AHistogramTakesAnyDTypeLayoutAndSize) {
  Scratch dir;
  EventWriter log(dir.dir());
  for (const DType dtype : kAllDTypes) log.add_histogram("w", counted({3, 5}, dtype), 0);
  log.add_histogram("far", tensor({-1e300, 1e300}), 0);
  log.add_histogram("nothing finite", tensor({std::nan("")}), 0);
  const Tensor x = counted({4, 6}, DType::kU8);
  log.add_histogram("column", view_as_strided(x, {4}, {6}, 1), 0);  // 2, 8, 14, 20
  const std::vector<Event> events = events_of(log);
  ASSERT_THAT(events, SizeIs(1 + std::size(kAllDTypes) + 3));
  const auto histogram = [&](size_t i) { return parse_proto(only(events[i].value(), 5).bytes); };
  EXPECT_EQ(only(histogram(9), 4).f64(), 15 * 16 / 2);  // u8
  EXPECT_EQ(only(histogram(10), 4).f64(), 8);           // bool
  EXPECT_EQ(only(histogram(11), 2).f64(), 1e300);
  EXPECT_EQ(only(histogram(11), 7).f64s().back(), 1);
  EXPECT_EQ(only(histogram(12), 3).f64(), 0);
  EXPECT_EQ(only(histogram(13), 4).f64(), 2 + 8 + 14 + 20);
}

TEST(EventWriter, ATextIsATensorForThePluginOfTexts) {
  Scratch dir;
  EventWriter log(dir.dir());
  log.add_text("notes", "| a | b |\n| --- | --- |", 4);
  const ProtoMessage value = events_of(log).at(1).value();
  const ProtoMessage tensor = parse_proto(only(value, 8).bytes);
  EXPECT_EQ(only(tensor, 1).number, 7u);  // strings
  EXPECT_EQ(only(tensor, 8).bytes, "| a | b |\n| --- | --- |");
  EXPECT_EQ(only(parse_proto(only(parse_proto(only(value, 9).bytes), 1).bytes), 1).bytes, "text");
}

TEST(EventWriter, ARunThatGoesOnPurgesTheStepsThatItRepeats) {
  Scratch dir;
  EventWriter first(dir.dir());
  first.add_scalar("a", 1, 1);
  const EventWriter second(dir.dir(), {.purge_step = 1});
  EXPECT_LT(first.path(), second.path());
  const std::vector<Event> events = events_of(second);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(only(parse_proto(only(events[1].fields, 7).bytes), 1).number, 1u);  // START
}

TEST(EventWriter, ANewFileComesAfterThoseOfAClockThatWasAhead) {
  Scratch dir;
  spit(dir / "events.out.tfevents.4000000000.other.1.0", "");
  spit(dir / "events.out.tfevents.9999999999.absurd.1.0", "");
  spit(dir / "events.out.tfevents.99999999999999999999.long.1.0", "");
  spit(dir / "events.out.tfevents.x", "");
  const EventWriter log(dir.dir(), {.filename_suffix = ".tail"});
  EXPECT_THAT(log.path().filename().string(),
              AllOf(StartsWith("events.out.tfevents.4000000001."), testing::EndsWith(".tail")));
}

TEST(EventWriter, ManyWritersOfOneFolderHaveFilesOfTheirOwn) {
  Scratch dir;
  const EventWriter a(dir.dir()), b(dir.dir()), c(dir.dir());
  EXPECT_THAT(dir.names(), SizeIs(3));
}

TEST(EventWriter, ThreadsShareAWriter) {
  Scratch dir;
  EventWriter log(dir.dir());
  constexpr int kThreads = 4, kEvents = 100;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kEvents; ++i) log.add_scalar(concat("t", t), i, i);
    });
  for (std::thread& t : threads) t.join();
  std::map<std::string, int> next;
  const std::vector<Event> events = events_of(log);
  ASSERT_THAT(events, SizeIs(1 + kThreads * kEvents));
  for (size_t i = 1; i < events.size(); ++i) EXPECT_EQ(events[i].step, next[events[i].tag()]++);
}

TEST(EventWriter, AFullDiskIsAnErrorThatLeavesWholeRecords) {
  Scratch dir;
  EventWriter log(dir.dir());
  log.add_scalar("a", 1, 1);
  const std::string before = slurp(log.path());
  {
    const FileSizeLimit limit(static_cast<int64_t>(before.size()) + 20);  // a part of the next record fits
    EXPECT_THAT(error_of<FileError>([&] { log.add_scalar("a", 2, 2); }),
                AllOf(StartsWith("[event_writer] " + log.path().string()), HasSubstr("cannot write")));
    EXPECT_EQ(slurp(log.path()), before);
  }
  log.add_scalar("a", 3, 3);  // there is room again
  const std::vector<Event> events = events_of(log);
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[2].step, 3);
  EXPECT_EQ(read_records(slurp(log.path())).torn_bytes, 0u);
}

TEST(EventWriter, AKilledProcessLosesNoEventThatWasAdded) {
  Scratch dir;
  int added[2];
  ASSERT_EQ(::pipe(added), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    EventWriter log(dir.dir());
    for (int64_t step = 0;; ++step) {
      log.add_scalar("a", 0, step);
      if (::write(added[1], &step, sizeof step) != sizeof step) ::_exit(1);
    }
  }
  int64_t last = -1;
  while (last < 100) ASSERT_EQ(::read(added[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(added[1]);
  for (int64_t step; ::read(added[0], &step, sizeof step) == sizeof step;) last = step;
  ::close(added[0]);
  const std::vector<Event> events = read_events(slurp(dir / dir.names().at(0)));
  EXPECT_GE(events.size(), static_cast<size_t>(last) + 2);  // the version, and steps 0 ... last
}

TEST(EventWriter, SaysWhereItCannotWrite) {
  Scratch dir;
  spit(dir / "file", "");
  EXPECT_THAT(error_of<FileError>([&] { EventWriter log(dir / "file"); }),
              AllOf(StartsWith("[event_writer] " + (dir / "file").string()), HasSubstr("folder")));
  EXPECT_ERROR(FileError, EventWriter log("/proc/runs"), "/proc/runs");
  EXPECT_ERROR(FileError, EventWriter log("/proc/self"), "cannot create");
}

TEST(EventWriter, RefusesWhatReadersCouldNotShow) {
  Scratch dir;
  EventWriter log(dir.dir());
  EXPECT_THROW(log.add_scalar("", 1, 1), ValueError);
  EXPECT_ERROR(ValueError, log.add_scalar("\xff", 1, 1), "not UTF-8");
  EXPECT_THROW(log.add_text("a", "\xff", 1), ValueError);
  EXPECT_THROW(log.add_hparams({{"a", "\xff"}}, {}), ValueError);
  EXPECT_ERROR(ValueError, log.add_histogram("w", empty({0}), 1), "f32[0]");
  EXPECT_THROW(log.add_image("a", empty({2, 4, 4}), 1), ShapeError);
  EXPECT_THROW(log.add_image("a", empty({3, 4, 4}, {.dtype = DType::kI64}), 1), DTypeError);
  EXPECT_THAT(events_of(log), SizeIs(1));
  log.close();
  EXPECT_ERROR(StateError, log.add_scalar("a", 1, 1), log.path().string(), "closed");
  EXPECT_THROW(log.flush(), StateError);
}

// ---- TensorBoard reads the files ----

TEST(EventWriter, TensorBoardReadsARunThatWasResumed) {
  Scratch dir;
  {
    EventWriter log(dir.dir());
    log.add_hparams({{"lr", 0.1}, {"model", "resnet18"}, {"amp", true}}, {"train/loss"});
    for (int step = 0; step < 8; ++step) log.add_scalar("train/loss", step / 4., step);
    log.add_image("samples", counted({6, 3, 4, 4}, DType::kU8), 2, {.nrow = 4});
    log.add_text("notes", "# A run", 0);
    Tensor weights = empty({1000});
    for (int i = 0; i < 1000; ++i) weights.ptr<float>()[i] = static_cast<float>(i - 500);
    log.add_histogram("weights", weights, 3);
    log.add_histogram("nothing", tensor({std::nanf("")}), 3);
  }
  // Killed while it wrote a record.
  std::ofstream(dir / dir.names().at(0), std::ios::app | std::ios::binary).write("\x20\0\0\0\0", 5);
  EventWriter log(dir.dir(), {.purge_step = 5});
  for (int step = 5; step < 10; ++step) log.add_scalar("train/loss", 100 + step / 4., step);
  log.close();

  const char* python = std::getenv("TENSORBOARD_PYTHON");
  const std::string command = std::string(python ? python : "python3") + " tests/io/golden/read_events.py '" +
                              dir.dir().string() + "'";
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (!python && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127))
    GTEST_SKIP() << "tensorboard is not installed";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gradus::io
