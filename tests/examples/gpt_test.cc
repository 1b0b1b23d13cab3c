// examples/gpt as a process: what it learns, that a pipeline trains as one process does, that a killed and
// resumed run ends as an uninterrupted one, its text. Exit codes: 1 error, 2 bad option, 130 interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gradus/data/sets/generated_text.h"
#include "gradus/io/checkpoint.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

Result gpt(const fs::path& dir, const Arguments& args, int signal = 0, const std::string& text = "") {
  return examples::run("gpt", dir, args, signal, text);
}

// Arguments of a network with a context of 16 characters, and `steps` steps of 32 sequences.
Arguments small(const std::string& steps, const Arguments& more = {}) {
  Arguments args = {"--heads",   "2",  "--width",   "48",     "--context",    "16",
                    "--warmup",  "20", "--batch",   "32",     "--lr",         "1e-2",
                    "--threads", "1",  "--summary", "s.json", "--iterations", steps};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(GptProgram, LearnsMoreThanASingleCharacterTells) {
  Scratch s;
  const Result r = gpt(s.dir(), small("800", {"--layers", "1", "--validation-interval", "300"}));
  ASSERT_EQ(r.status, 0) << r.output;
  const nlohmann::json j = summary(s.dir() / "s.json");
  const data::MarkovSource source;
  const data::GeneratedText text({.context = 16});
  EXPECT_EQ(j.at("entropy"), source.entropy());
  EXPECT_EQ(j.at("least_loss"), text.least_loss());
  // Of 16,000 characters, each with a deviation of about 1: 4 / sqrt(16,000) = 0.03.
  EXPECT_GT(j.at("validation_loss"), text.least_loss() - 0.03);
  EXPECT_LT(j.at("validation_loss"), text.least_loss() + 0.1) << r.output;
  const double of_order_one = source.entropy(2) - source.entropy(1);
  EXPECT_LT(j.at("validation_loss").get<double>() + 0.2, of_order_one);
  EXPECT_EQ(j.at("history").size(), 3u);  // after 300, 600 and 800 steps
  EXPECT_EQ(count_of("Validation loss", r.output), 3);
  EXPECT_EQ(j.at("parameters"), 27 * 48 + 16 * 48 + 12 * 48 * 48 + 13 * 48 + 2 * 48);
  EXPECT_EQ(j.at("ranks"), 1);
  EXPECT_EQ(j.at("characters"), 27);
}

TEST(GptProgram, TakesTheNamesOfMinGptAndNanoGpt) {
  Scratch s;
  ASSERT_EQ(gpt(s.dir(), small("6", {"--layers", "1", "--clip", "0.5", "--seed", "2"})).status, 0);
  const double loss = summary(s.dir() / "s.json").at("validation_loss");
  const Arguments names = {"--n_layer=1",       "--model.n_head=2",
                           "--n_embd=48",       "--data.block_size=16",
                           "--warmup_iters=20", "--trainer.batch_size=32",
                           "--threads=1",       "--learning_rate=1e-2",
                           "--max_iters=6",     "--trainer.grad_norm_clip=0.5",
                           "--system.seed=2",   "--weight_decay=0.1",
                           "--beta1=0.9",       "--out_dir=c",
                           "--summary=s.json",  "--eval_interval=6",
                           "--log_interval=3"};
  const Result r = gpt(s.dir(), names);
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(summary(s.dir() / "s.json").at("validation_loss"), loss);
  EXPECT_TRUE(fs::exists(s.dir() / "c/gpt.ckpt"));
  EXPECT_THAT(r.output, HasSubstr("step 3 "));

  const Result nano =
      gpt(s.dir(), {"--model_type=gpt-nano", "--block_size=16", "--max_iters=1", "--summary=s.json"});
  ASSERT_EQ(nano.status, 0) << nano.output;
  EXPECT_EQ(summary(s.dir() / "s.json").at("parameters"),
            27 * 48 + 16 * 48 + 3 * (12 * 48 * 48 + 13 * 48) + 2 * 48);
}

// f32 rounds a loss of 3 by 2e-7, and each of up to 30 steps adds to that.
constexpr double kSameLoss = 1e-5;

TEST(GptProgram, TrainsInAPipelineAsInOneProcess) {
  Scratch s;
  const Result alone = gpt(s.dir(), small("12"));
  ASSERT_EQ(alone.status, 0) << alone.output;
  const nlohmann::json want = summary(s.dir() / "s.json");
  const auto expect_same = [&](const Arguments& more, int ranks) {
    const std::string what = testing::PrintToString(more);
    const Result r = gpt(s.dir(), small("12", more));
    ASSERT_EQ(r.status, 0) << what << r.output;
    const nlohmann::json j = summary(s.dir() / "s.json");
    EXPECT_EQ(j.at("ranks"), ranks) << what;
    for (const char* loss : {"loss", "validation_loss"})
      EXPECT_NEAR(j.at(loss), want.at(loss).get<double>(), kSameLoss) << loss << what;
    EXPECT_EQ(j.at("parameters"), want.at("parameters")) << what;
  };
  expect_same({"--micro-batches", "3"}, 1);
  expect_same({"--device", "cpu:1", "--interleave", "2"}, 1);
  expect_same({"--replicas", "2"}, 2);
  expect_same({"--pipeline", "2", "--micro-batches", "auto"}, 2);
  expect_same({"--pipeline", "2", "--schedule", "zb-h1", "--micro-batches", "3"}, 2);
  expect_same({"--pipeline", "2", "--recompute", "every-1"}, 2);
  expect_same({"--pipeline", "2", "--recompute", "auto-1e9"}, 2);
  expect_same({"--pipeline", "2", "--interleave", "2", "--schedule", "zb-v"}, 2);
  expect_same({"--pipeline", "2", "--replicas", "2"}, 4);
}

TEST(GptProgram, LearnsTheSameInMixedPrecision) {
  Scratch s;
  ASSERT_EQ(gpt(s.dir(), small("30")).status, 0);
  const double want = summary(s.dir() / "s.json").at("validation_loss");
  const Result r = gpt(s.dir(), small("30", {"--amp", "bf16", "--pipeline", "2"}));
  ASSERT_EQ(r.status, 0) << r.output;
  // bf16 rounds a number by up to 2^-9 of it; in a mean over many, most of that cancels.
  EXPECT_NEAR(summary(s.dir() / "s.json").at("validation_loss"), want, 0.01);
}

// Expects the losses and the checkpoint (without times) of the uninterrupted training `straight`.
void expect_same(const fs::path& resumed, const fs::path& straight) {
  const nlohmann::json a = summary(resumed / "s.json"), b = summary(straight / "s.json");
  for (const char* loss : {"loss", "validation_loss"}) EXPECT_EQ(a.at(loss), b.at(loss)) << loss;
  std::vector<std::string> bytes;
  for (const fs::path& dir : {resumed, straight}) {
    io::Checkpoint c = io::load_checkpoint(dir / "c/gpt.ckpt").checkpoint, own;
    c.each([&](const std::string& name, const auto& value) {
      const bool is_time = name == "seconds" || name.ends_with(".seconds") || name == "job";
      if (!is_time) own.put(name, value);
    });
    io::save_checkpoint(dir / "own", own);
    bytes.push_back(bytes_of(dir / "own"));
  }
  EXPECT_GT(bytes[0].size(), 500'000u);
  EXPECT_TRUE(bytes[0] == bytes[1]) << "the checkpoints differ";
}

const Arguments kSaving = {"--dropout",      "0.1", "--checkpoint-dir", "c", "--checkpoint-interval", "4",
                           "--log-interval", "1"};

TEST(GptProgram, GoesOnWhereItWasKilled) {
  const Arguments args = small("30", kSaving);
  Scratch straight, s;
  ASSERT_EQ(gpt(straight.dir(), args).status, 0);
  EXPECT_EQ(gpt(s.dir(), args, SIGKILL, "step 10 ").status, 128 + SIGKILL);
  const Result more = gpt(s.dir(), args);
  ASSERT_EQ(more.status, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("Resuming from c/gpt.ckpt: epoch 1, "));
  expect_same(s.dir(), straight.dir());
}

// Steps 5 to 12 are replays; a validation in between does not end the recording.
TEST(GptProgram, TrainsToTheSameBitsWithCapturedSteps) {
  const Arguments args = with(small("12", kSaving), {"--validation-interval", "8"});
  Scratch plain, captured;
  for (const auto& [s, more] : {std::pair<Scratch*, Arguments>(&plain, {}), {&captured, {"--capture"}}}) {
    Arguments all = args;
    all.insert(all.end(), more.begin(), more.end());
    const Result r = gpt(s->dir(), all);
    ASSERT_EQ(r.status, 0) << r.output;
  }
  expect_same(captured.dir(), plain.dir());
}

// Ranks that are killed, interrupted, or restarted because one was killed end as uninterrupted ones.
TEST(GptInAPipeline, GoesOnWhereItsRanksWereKilledOrInterrupted) {
  const Arguments args = with(small("30", kSaving), {"--pipeline", "2", "--replicas", "2"});
  Scratch straight, killed, interrupted, restarted;
  ASSERT_EQ(gpt(straight.dir(), args).status, 0);
  const auto ranks = start_ranks("gpt", killed.dir(), std::vector<Arguments>(4, args));
  ASSERT_TRUE(ranks[0]->wait_for("step 10 "));
  for (const auto& rank : ranks) rank->kill(SIGKILL);
  for (const auto& rank : ranks) EXPECT_EQ(rank->end().status, 128 + SIGKILL);
  const Result first = gpt(interrupted.dir(), args, SIGINT, "step 10 ");
  EXPECT_EQ(first.status, 130) << first.output;
  EXPECT_THAT(first.output, HasSubstr("continue with --resume c/gpt.ckpt"));
  for (const Scratch* s : {&killed, &interrupted}) {
    const Result r = gpt(s->dir(), args);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_THAT(r.output, HasSubstr("Resuming from c/gpt.ckpt: epoch 1, "));
    expect_same(s->dir(), straight.dir());
  }

  Program program("gpt", restarted.dir(), with(args, {"--max-restarts", "1"}));
  ASSERT_TRUE(program.wait_for("step 10 "));
  EXPECT_TRUE(program.kill_rank(1, SIGKILL));
  const Result r = program.end();
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("all ranks start again"));
  EXPECT_THAT(r.output, HasSubstr("Resuming from c/gpt.ckpt"));
  expect_same(restarted.dir(), straight.dir());
}

TEST(GptInAPipeline, AnyDivisionGoesOnFromAnyOther) {
  Scratch straight;
  ASSERT_EQ(gpt(straight.dir(), small("30", {"--log-interval", "1"})).status, 0);
  const nlohmann::json want = summary(straight.dir() / "s.json");
  const Arguments one = {}, four = {"--pipeline", "4"}, square = {"--pipeline", "2", "--replicas", "2"};
  const std::pair<Arguments, Arguments> pairs[] = {{four, one}, {one, square}, {square, four}};
  for (const auto& [before, after] : pairs) {
    Scratch s;
    const std::string what = testing::PrintToString(before) + testing::PrintToString(after);
    const auto run = [&](const Arguments& division, int signal) {
      Arguments args = small("30", {"--checkpoint-dir", "c", "--log-interval", "1"});
      args.insert(args.end(), division.begin(), division.end());
      return gpt(s.dir(), args, signal, "step 10 ");
    };
    EXPECT_EQ(run(before, SIGINT).status, 130) << what;
    const Result r = run(after, 0);
    ASSERT_EQ(r.status, 0) << what << r.output;
    EXPECT_THAT(r.output, HasSubstr("Resuming from")) << what;
    for (const char* loss : {"loss", "validation_loss"})
      EXPECT_NEAR(summary(s.dir() / "s.json").at(loss), want.at(loss).get<double>(), kSameLoss) << what;
  }
}

TEST(GptInAPipeline, RefusesTheCheckpointOfAnotherTraining) {
  Scratch s;
  ASSERT_EQ(gpt(s.dir(), small("4", {"--pipeline", "2", "--checkpoint-dir", "c"})).status, 0);
  const std::string before = bytes_of(s.dir() / "c/gpt.ckpt");
  for (const char* ranks : {"1", "2"}) {
    const auto expect_refused = [&](const std::string& steps, const Arguments& more,
                                    const std::string& text) {
      Arguments args = small(steps, {"--pipeline", ranks});
      args.insert(args.end(), more.begin(), more.end());
      const Result r = gpt(s.dir(), args);
      EXPECT_EQ(r.status, 1) << r.output;
      EXPECT_THAT(r.output, HasSubstr(text));
      EXPECT_THAT(r.output, Not(HasSubstr("step ")));
    };
    expect_refused("40", {"--checkpoint-dir", "c"},
                   "c/gpt.ckpt was trained with number of steps 4, not with 40");
    expect_refused("4", {"--checkpoint-dir", "c", "--layers", "5"}, "was trained with layers 4, not with 5");
    expect_refused("4", {"--resume", "c/none.ckpt"}, "none.ckpt");
    io::Checkpoint other;
    other.put("program", "mnist");
    io::save_checkpoint(s.dir() / "mnist.ckpt", other);
    expect_refused("4", {"--resume", "mnist.ckpt"}, "expected a checkpoint of gpt, got one of mnist");
  }
  EXPECT_EQ(bytes_of(s.dir() / "c/gpt.ckpt"), before);
}

TEST(GptInAPipeline, ACheckpointThatCannotBeWrittenIsAnError) {
  Scratch s;
  const Arguments args = small("12", {"--pipeline", "2", "--checkpoint-dir", "c", "--log-interval", "1"});
  EXPECT_EQ(gpt(s.dir(), args, SIGINT, "step 5 ").status, 130);
  const std::string before = bytes_of(s.dir() / "c/gpt.ckpt");
  fs::rename(s.dir() / "c", s.dir() / "d");
  std::ofstream(s.dir() / "c") << "no folder";
  const Result r = gpt(s.dir(), with(args, {"--resume", "d/gpt.ckpt"}));
  EXPECT_EQ(r.status, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("failed: FileError: [save_checkpoint] c/gpt.ckpt"));
  EXPECT_EQ(bytes_of(s.dir() / "d/gpt.ckpt"), before);
}

// Writes a text in which each character determines the next.
fs::path write_rhyme(const fs::path& dir, int64_t times = 300) {
  std::ofstream out(dir / "rhyme.txt", std::ios::binary);
  while (times-- > 0) out << "to be\n";
  return dir / "rhyme.txt";
}

TEST(GptProgram, WritesTextLikeThatOfItsFile) {
  Scratch s;
  write_rhyme(s.dir());
  const Result r =
      gpt(s.dir(),
          small("120", {"--data", "rhyme.txt", "--layers", "1", "--sample", "40", "--checkpoint-dir", "c"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("sequences of 6 characters, rhyme.txt; cpu, 1 threads; seed 1"));
  EXPECT_LT(summary(s.dir() / "s.json").at("validation_loss"), 0.05);
  EXPECT_THAT(r.output, HasSubstr("\nto be\nto be\n"));

  const Arguments sample = {"sample", "--checkpoint", "c/gpt.ckpt", "--length", "50", "--temperature", "0.1"};
  std::string want = "be\n";
  while (want.size() < 50 + 2) want += "to be\n";
  EXPECT_EQ(gpt(s.dir(), with(sample, {"--prompt", "be"})).output, want.substr(0, 52) + "\n");
  // At this temperature characters are equally likely, so that one alone must be among the K.
  EXPECT_EQ(gpt(s.dir(), {"sample", "--checkpoint", "c/gpt.ckpt", "--max_new_tokens", "50", "--temperature",
                          "1000", "--top_k", "1", "--start", "be"})
                .output,
            want.substr(0, 52) + "\n");
  const Result unknown = gpt(s.dir(), with(sample, {"--prompt", "x"}));
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.output, HasSubstr("gpt sample: [Characters] the byte 120 is not among the 6"));
}

TEST(GptInAPipeline, WritesTextAndACheckpointThatSampleReads) {
  Scratch s;
  write_rhyme(s.dir());
  const Arguments args = small("120", {"--data", "rhyme.txt", "--layers", "2", "--sample", "40",
                                       "--checkpoint-dir", "c", "--pipeline", "2", "--replicas", "2"});
  const Result r = gpt(s.dir(), args);
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("\nto be\nto be\n"));
  std::string want = "be\n";
  while (want.size() < 50 + 2) want += "to be\n";
  const Arguments sample = {"sample", "--checkpoint", "c/gpt.ckpt", "--length", "50", "--temperature", "0.1"};
  EXPECT_EQ(gpt(s.dir(), with(sample, {"--prompt", "be"})).output, want.substr(0, 52) + "\n");
}

TEST(GptProgram, MistakesAreErrorsBeforeTheFirstStep) {
  Scratch s;
  write_rhyme(s.dir(), 5);
  const auto expect_mistake = [&](const Arguments& args, int status, const std::string& text) {
    const Result r = gpt(s.dir(), args);
    EXPECT_EQ(r.status, status) << testing::PrintToString(args) << r.output;
    EXPECT_THAT(r.output, HasSubstr(text));
    EXPECT_THAT(r.output, Not(HasSubstr("step ")));
  };
  expect_mistake({"--layers", "0"}, 2, "--layers");
  expect_mistake({"--schedule", "fastest"}, 2, "zb-h1");
  expect_mistake({"--amp", "f8"}, 2, "--amp");
  expect_mistake({"--heads", "5"}, 1, "a multiple of the 5 heads");
  expect_mistake({"--data", "nowhere.txt"}, 1, "nowhere.txt");
  expect_mistake({"--data", "rhyme.txt"}, 1, "expected a text longer than the context of 64 characters");
  expect_mistake({"--micro-batches", "0"}, 1, "expected auto, or a number from 1 to 2^20, got 0");
  expect_mistake({"--recompute", "every-0"}, 1, "expected never, always, except-last, every-N");
  expect_mistake({"--recompute", "auto"}, 1, "or auto-BYTES, got auto");
  expect_mistake({"--pipeline", "5"}, 1, "as many stages as the 4 blocks");
  expect_mistake({"--pipeline", "2", "--device", "cpu:1"}, 1, "--pipeline trains on CPUs");
  expect_mistake({"--pipeline", "2", "--nproc", "3"}, 1, "3 ranks cannot be cut into");
  expect_mistake({"--replicas", "2", "--nproc", "3"}, 1, "expected 2 ranks, got 3");
  expect_mistake({"--pipeline", "2", "--schedule", "zb-v"}, 1, "zb-v");
  for (const char* ranks : {"--pipeline", "--replicas", "--nproc"})
    expect_mistake(
        {"--capture", ranks, "2"}, 1,
        "--capture on the CPU goes with one rank alone, got 2: a replay does not call other ranks");
  for (const char* option : {"--interleave", "--micro-batches"})
    expect_mistake({"--capture", option, "2"}, 1, "or several ranks: a replay runs no schedule");
  expect_mistake({"sample", "--checkpoint", "nothing.ckpt"}, 1, "nothing.ckpt");
  expect_mistake({"sample", "--checkpoint", "rhyme.txt"}, 1, "rhyme.txt");
}

}  // namespace
}  // namespace gradus::examples
