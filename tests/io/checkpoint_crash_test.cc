// Whatever happens to a run while it saves, the next one finds a good checkpoint. Damage of every
// kind is noticed.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "gradus/io/checkpoint.h"
#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Step k's checkpoint: everything in it says k.
Checkpoint of_step(int64_t step, int64_t elements = 20) {
  Checkpoint c;
  c.put("step", step);
  c.put("name", "a run");
  c.put("lr", 0.1 * static_cast<double>(step));
  Tensor x = empty({elements}, {.dtype = DType::kI64});
  std::fill_n(x.ptr<int64_t>(), elements, step);
  c.put("model.w", x);
  c.put("model.mask", counted({3}, DType::kBool));
  return c;
}

// Returns the step of an intact checkpoint.
int64_t step_of(const Checkpoint& c) {
  const auto step = c.get<int64_t>("step");
  for (const int64_t v : c.tensor("model.w").to_vector<int64_t>()) EXPECT_EQ(v, step);
  EXPECT_EQ(c.get<double>("lr"), 0.1 * static_cast<double>(step));
  return step;
}

TEST(CheckpointCrash, ATruncatedNewestFallsBackAtEveryLength) {
  TempDir dir;
  save_checkpoint(dir / "c", of_step(1));
  save_checkpoint(dir / "c", of_step(2));
  const std::string content = slurp(dir / "c");
  for (size_t n = 0; n < content.size(); ++n) {
    spit(dir / "c", std::string_view(content).substr(0, n));
    const LoadedCheckpoint loaded = load_checkpoint(dir / "c");
    ASSERT_EQ(step_of(loaded.checkpoint), 1);
    ASSERT_THAT(loaded.warning, HasSubstr((dir / "c").string()));
  }
}

TEST(CheckpointCrash, EveryChangedByteIsNoticed) {
  TempDir dir;
  save_checkpoint(dir / "c", of_step(1));
  save_checkpoint(dir / "c", of_step(2));
  const std::string content = slurp(dir / "c");
  std::mt19937 random(1);
  for (size_t n = 0; n < content.size(); ++n) {
    std::string changed = content;
    changed[n] ^= static_cast<char>(1 + random() % 255);
    spit(dir / "c", changed);
    const LoadedCheckpoint loaded = load_checkpoint(dir / "c");
    ASSERT_EQ(step_of(loaded.checkpoint), 1) << "byte " << n;
  }
}

TEST(CheckpointCrash, AHalfWrittenNewOneIsNotSeen) {
  TempDir dir;
  save_checkpoint(dir / "new", of_step(2));
  const std::string content = slurp(dir / "new");
  save_checkpoint(dir / "c", of_step(1));
  for (size_t n = 0; n <= content.size(); n += 7) {
    spit(dir / "c.tmp", std::string_view(content).substr(0, n));
    const LoadedCheckpoint loaded = load_checkpoint(dir / "c");
    ASSERT_EQ(step_of(loaded.checkpoint), 1);
    ASSERT_EQ(loaded.warning, "");
  }
  save_checkpoint(dir / "c", of_step(3));
  EXPECT_EQ(step_of(load_checkpoint(dir / "c").checkpoint), 3);
  EXPECT_FALSE(std::filesystem::exists(dir / "c.tmp"));
}

TEST(CheckpointCrash, ADiskThatFillsUpAtAnyByteLosesNothing) {
  TempDir dir;
  save_checkpoint(dir / "c", of_step(1));
  save_checkpoint(dir / "c", of_step(2));
  const auto bytes = static_cast<int64_t>(slurp(dir / "c").size());
  for (int64_t n = 0; n < bytes; n += 5) {
    {
      FileSizeLimit limit(n);
      ASSERT_THROW(save_checkpoint(dir / "c", of_step(3)), FileError) << n;
    }
    ASSERT_THAT(dir.names(), ElementsAre("c", "c.previous"));
  }
  EXPECT_EQ(step_of(load_checkpoint(dir / "c").checkpoint), 2);
  EXPECT_EQ(step_of(load_checkpoint(dir / "c.previous").checkpoint), 1);
}

TEST(CheckpointCrash, ASecondNameLeftByACrashDoesNotDisturb) {
  TempDir dir;
  save_checkpoint(dir / "c", of_step(1));
  std::filesystem::create_hard_link(dir / "c", dir / "c.previous.tmp");  // it died between the two
  save_checkpoint(dir / "c", of_step(2));
  EXPECT_EQ(step_of(load_checkpoint(dir / "c").checkpoint), 2);
  EXPECT_EQ(step_of(load_checkpoint(dir / "c.previous").checkpoint), 1);
  EXPECT_THAT(dir.names(), ElementsAre("c", "c.previous"));
}

TEST(CheckpointCrash, AProcessKilledWhileSavingLeavesAGoodCheckpoint) {
  TempDir dir;
  save_checkpoint(dir / "c", of_step(0, 50'000));
  std::mt19937 random(3);
  int64_t last = 0;
  for (int round = 0; round < 25 || (last == 0 && round < 200); ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int64_t step = last + 1;; ++step) save_checkpoint(dir / "c", of_step(step, 50'000));
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds((1000 + random() % 30'000) * (1 + round / 25)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a save failed";

    const LoadedCheckpoint loaded = load_checkpoint(dir / "c");
    const int64_t step = step_of(loaded.checkpoint);
    ASSERT_GE(step, last);
    ASSERT_EQ(loaded.warning, "");
    last = step;
    ASSERT_THAT(
        dir.names().size(),
        AnyOf(1, 2, 3, 4, 5));  // c, c.previous, c.lock, c.tmp, c.previous.tmp: leftovers do not add up
  }
  EXPECT_GT(last, 0);
}

}  // namespace
}  // namespace gradus::io
