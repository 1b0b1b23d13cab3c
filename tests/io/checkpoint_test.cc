// Checkpoints: exact round trips, errors, partial writes and reads, and that the newest intact one survives
// truncation, damage, full disks and processes killed while they save.
#include "gradus/io/checkpoint.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "gradus/io/checkpoint_file.h"
#include "gradus/io/file.h"
#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Checkpoint round_trip(const Checkpoint& c) {
  Scratch dir;
  save_checkpoint(dir / "c", c);
  LoadedCheckpoint loaded = load_checkpoint(dir / "c");
  EXPECT_EQ(loaded.warning, "");
  EXPECT_EQ(loaded.path, (dir / "c").string());
  return std::move(loaded.checkpoint);
}

TEST(Checkpoint, KeepsIntegersExactly) {
  Checkpoint c;
  c.put("min", std::numeric_limits<int64_t>::min());
  c.put("max", std::numeric_limits<int64_t>::max());
  c.put("umax", std::numeric_limits<uint64_t>::max());
  c.put("int", 7);
  c.put("yes", true);
  c.put("no", false);
  c = round_trip(c);
  EXPECT_EQ(c.get<int64_t>("min"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(c.get<int64_t>("max"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(c.get<uint64_t>("umax"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(c.get<int>("int"), 7);
  EXPECT_EQ(c.get<uint8_t>("int"), 7);
  EXPECT_EQ(c.get<double>("int"), 7.0);
  EXPECT_TRUE(c.get<bool>("yes"));
  EXPECT_FALSE(c.get<bool>("no"));
}

TEST(Checkpoint, KeepsDoublesBitForBit) {
  std::mt19937_64 random(1);
  std::vector<double> values{0.0,
                             -0.0,
                             0.1,
                             1.0 / 3,
                             5e-324,
                             -1e308,
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()};
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bits = random();
    double v;
    std::memcpy(&v, &bits, 8);
    if (!std::isnan(v)) values.push_back(v);
  }
  Checkpoint c;
  for (size_t i = 0; i < values.size(); ++i) c.put(concat("v", i), values[i]);
  c.put("nan", std::nan(""));
  c.put("float", 0.1f);
  c = round_trip(c);
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = c.get<double>(concat("v", i));
    EXPECT_EQ(std::memcmp(&v, &values[i], 8), 0) << values[i];
  }
  EXPECT_TRUE(std::isnan(c.get<double>("nan")));
  EXPECT_EQ(c.get<float>("float"), 0.1f);
}

TEST(Checkpoint, KeepsStringsOfAnyBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  Checkpoint c;
  c.put("text", "StepLR");
  c.put("empty", "");
  c.put("colon", "i64:5");
  c.put("utf8", std::string("\u00e4\u2192\0\n", 7));
  c.put("binary", all);
  c = round_trip(c);
  EXPECT_EQ(c.get<std::string>("text"), "StepLR");
  EXPECT_EQ(c.get<std::string>("empty"), "");
  EXPECT_EQ(c.get<std::string>("colon"), "i64:5");
  EXPECT_EQ(c.get<std::string>("utf8"), std::string("\u00e4\u2192\0\n", 7));
  EXPECT_EQ(c.get<std::string>("binary"), all);
}

TEST(Checkpoint, KeepsTensorsInSections) {
  Checkpoint optimizer;
  optimizer.put("lr", 0.5);
  optimizer.put("group.0.momentum", counted({3}, DType::kF64));
  Checkpoint c;
  c.put("model",
        NamedTensors{{"fc.weight", counted({2, 3}, DType::kF32)}, {"fc.bias", counted({2}, DType::kF32)}});
  c.put("optimizer", optimizer);
  c.put("model2", counted({}, DType::kI32));
  c.put("rng", counted({16}, DType::kU8));
  c = round_trip(c);
  const NamedTensors model = c.tensors("model");
  ASSERT_EQ(model.size(), 2u);
  EXPECT_EQ(model[0].first, "fc.bias");
  EXPECT_EQ(model[1].first, "fc.weight");
  EXPECT_TRUE(same(model[1].second, counted({2, 3}, DType::kF32)));
  EXPECT_TRUE(same(c.tensor("model.fc.bias"), counted({2}, DType::kF32)));
  EXPECT_TRUE(same(c.section("optimizer").section("group").tensor("0.momentum"), counted({3}, DType::kF64)));
  EXPECT_EQ(c.section("optimizer").get<double>("lr"), 0.5);
  EXPECT_THAT(c.names("optimizer"), ElementsAre("optimizer.group.0.momentum", "optimizer.lr"));
  EXPECT_TRUE(c.section("model.fc.weight").empty());
  EXPECT_EQ(c.tensors().size(), 5u);
}

TEST(Checkpoint, AnEmptyOneIsACheckpointToo) { EXPECT_TRUE(round_trip({}).empty()); }

TEST(Checkpoint, PuttingAgainReplaces) {
  Checkpoint c;
  c.put("x", 1);
  c.put("x", counted({2}, DType::kF32));
  c.put("y", counted({2}, DType::kF32));
  c.put("y", "text");
  c = round_trip(c);
  EXPECT_TRUE(same(c.tensor("x"), counted({2}, DType::kF32)));
  EXPECT_EQ(c.get<std::string>("y"), "text");
}

TEST(Checkpoint, NamesWhatIsMissingOrOfAnotherKind) {
  Scratch dir;
  Checkpoint c;
  c.put("epoch", 300);
  c.put("w", counted({2}, DType::kF32));
  save_checkpoint(dir / "c", c);
  c = load_checkpoint(dir / "c").checkpoint;
  const std::string file = (dir / "c").string();
  EXPECT_ERROR(FileError, c.get<int>("epochs"), file, "has no integer 'epochs'; it has 'epoch', 'w'");
  EXPECT_ERROR(FileError, c.get<int>("w"), file, "expected 'w' as integer of 32 bits", "f32[2]");
  EXPECT_ERROR(FileError, c.tensor("epoch"), "as tensor, got 'i64:300'");
  EXPECT_ERROR(FileError, c.get<int8_t>("epoch"), "integer of 8 bits");
  EXPECT_ERROR(FileError, c.get<std::string>("epoch"), "as string");
  EXPECT_ERROR(FileError, c.section("a").get<bool>("b"), "section 'a': has no boolean");
}

TEST(Checkpoint, RefusesNamesOfTheFormatAndUndefinedTensors) {
  Checkpoint c;
  EXPECT_THROW(c.put("__crc32__", 1), ValueError);
  EXPECT_THROW(c.put("\xff", 1), ValueError);
  EXPECT_THROW(c.put("x", Tensor()), ValueError);
  EXPECT_TRUE(c.empty());
}

TEST(Checkpoint, IsASafetensorsFile) {
  Scratch dir;
  Checkpoint c;
  c.put("lr", 0.1);
  c.put("model.w", counted({2}, DType::kF32));
  save_checkpoint(dir / "c", c);
  const SafetensorsFile file = load_safetensors(dir / "c");
  EXPECT_TRUE(same(file.at("model.w"), counted({2}, DType::kF32)));
  EXPECT_EQ(file.metadata.at("lr"), "f64:0.1");
}

TEST(LoadCheckpoint, FallsBackToThePreviousOneAndSaysSo) {
  Scratch dir;
  for (int epoch : {1, 2, 3}) {
    Checkpoint c;
    c.put("epoch", epoch);
    save_checkpoint(dir / "c", c);
  }
  EXPECT_THAT(dir.names(), ElementsAre("c", "c.previous"));
  EXPECT_EQ(load_checkpoint(dir / "c").checkpoint.get<int>("epoch"), 3);

  std::filesystem::remove(dir / "c");
  const LoadedCheckpoint loaded = load_checkpoint(dir / "c");
  EXPECT_EQ(loaded.checkpoint.get<int>("epoch"), 2);
  EXPECT_EQ(loaded.path, (dir / "c.previous").string());
  EXPECT_THAT(loaded.warning, AllOf(StartsWith((dir / "c").string()), HasSubstr("No such file"),
                                    HasSubstr("continuing from " + loaded.path)));
}

TEST(InspectCheckpoint, ChecksTheFileAndKeepsNoElements) {
  Scratch dir;
  for (int epoch : {1, 2}) {
    Checkpoint c;
    c.put("epoch", epoch);
    c.put("model.w", counted({2, 3}, DType::kF32));
    save_checkpoint(dir / "c", c);
  }
  const LoadedCheckpoint found = inspect_checkpoint(dir / "c");
  EXPECT_EQ(found.checkpoint.get<int>("epoch"), 2);
  EXPECT_EQ(found.path, (dir / "c").string());
  EXPECT_EQ(found.checkpoint.tensor("model.w").shape(), Shape({2, 3}));
  EXPECT_EQ(found.checkpoint.tensor("model.w").device(), Device{DeviceType::kMeta});

  std::string content = slurp(dir / "c");
  content[content.size() - 8] ^= 1;  // an element
  spit(dir / "c", content);
  const LoadedCheckpoint previous = inspect_checkpoint(dir / "c");
  EXPECT_EQ(previous.checkpoint.get<int>("epoch"), 1);
  EXPECT_THAT(previous.warning, HasSubstr("checksum"));
}

TEST(LoadCheckpoint, NamesBothFilesWhenNeitherIsGood) {
  Scratch dir;
  spit(dir / "c", "short");
  save_safetensors(dir / "c.previous", {});
  EXPECT_THAT(
      error_of<FileError>([&] { load_checkpoint(dir / "c"); }),
      AllOf(StartsWith("[load_checkpoint] no usable checkpoint: "),
            HasSubstr((dir / "c").string() + ": has 5 bytes"),
            HasSubstr((dir / "c.previous").string() + ": is a safetensors file, but not a checkpoint")));
  EXPECT_ERROR(FileError, load_checkpoint(dir / "d"), (dir / "d").string(), (dir / "d.previous").string());
  EXPECT_THROW(load_checkpoint(dir.dir()), FileError);
}

// Limits this process's address space while alive.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

// Makes `path` a well-formed sparse file with one tensor of 2^38 bytes.
void make_huge(const std::filesystem::path& path) {
  constexpr int64_t kBytes = int64_t{1} << 38;
  std::string header =
      concat(R"({"__metadata__":{"__checkpoint__":"1"},"w":{"dtype":"U8","shape":[)", kBytes,
             R"(],"data_offsets":[0,)", kBytes, R"(]},"__crc32__":{"dtype":"U8","shape":[4],)",
             R"("data_offsets":[)", kBytes, ',', kBytes + 4, "]}}");
  const uint64_t length = header.size();
  spit(path, std::string(reinterpret_cast<const char*>(&length), 8) + header);
  std::filesystem::resize_file(path, 8 + length + kBytes + 4);
}

TEST(LoadCheckpoint, ANewestTooLargeForTheMemoryLeadsToThePreviousOne) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more address space than the limit";
#endif
  Scratch dir;
  Checkpoint c;
  c.put("epoch", 1);
  save_checkpoint(dir / "c.previous", c);
  make_huge(dir / "c");
  const MemoryLimit limit(rlim_t{1} << 36);
  const LoadedCheckpoint loaded = load_checkpoint(dir / "c");
  EXPECT_EQ(loaded.checkpoint.get<int>("epoch"), 1);
  EXPECT_THAT(loaded.warning, AllOf(HasSubstr((dir / "c").string() + ": "), HasSubstr("memory")));

  std::filesystem::rename(dir / "c", dir / "huge");
  EXPECT_ERROR(FileError, load_safetensors(dir / "huge"), "memory");
  EXPECT_ERROR(FileError, load_checkpoint(dir / "huge"), "no usable checkpoint");
}

TEST(LoadCheckpoint, RefusesAnotherVersion) {
  Scratch dir;
  save_safetensors(dir / "c", {}, {{"__checkpoint__", "2"}});
  EXPECT_ERROR(FileError, load_checkpoint(dir / "c"), "version '2'; expected 1");
}

// The same names, shapes and numbers with tensors on the meta device, as CheckpointWriter takes them.
Checkpoint without_data(const Checkpoint& c) {
  Checkpoint result = c;
  for (const auto& [name, x] : c.tensors())
    result.put(name, empty(x.shape(), {.dtype = x.dtype(), .device = {DeviceType::kMeta}}));
  return result;
}

Checkpoint of_tensors() {
  Checkpoint c;
  c.put("epoch", 3);
  c.put("a", counted({3, 5}, DType::kF32));
  c.put("b", counted({7}, DType::kBool));
  c.put("c.none", counted({0, 2}, DType::kF64));
  return c;
}

TEST(CheckpointWriter, WritesPiecesToTheSameFile) {
  Scratch dir;
  const Checkpoint c = of_tensors();
  save_checkpoint(dir / "whole", c);
  CheckpointWriter file(dir / "pieces", without_data(c));
  for (const auto& [name, x] : file.tensors()) {
    const Tensor data = c.tensor(name);
    for (int64_t at = 0; at < x.numel(); at += 2)
      file.write(view_as_strided(data, {std::min<int64_t>(2, x.numel() - at)}, {1}, at));
  }
  file.commit();
  EXPECT_EQ(slurp(dir / "pieces"), slurp(dir / "whole"));
}

TEST(CheckpointReader, ReadsSingleTensorsAndJoinsWhatOthersHaveRead) {
  Scratch dir;
  const Checkpoint c = of_tensors();
  save_checkpoint(dir / "c", c);
  CheckpointReader one(dir / "c"), other(dir / "c");
  EXPECT_EQ(one.content().names(), c.names());
  EXPECT_EQ(one.content().get<int>("epoch"), 3);
  EXPECT_EQ(one.content().tensor("a").device().type, DeviceType::kMeta);
  const int64_t header = one.bytes_read();
  EXPECT_TRUE(same(one.read("a"), c.tensor("a")));
  EXPECT_EQ(one.bytes_read(), header + 60);  // 3 x 5 floats
  EXPECT_TRUE(same(other.read("b"), c.tensor("b")));
  EXPECT_THROW(one.read("d"), FileError);
  EXPECT_THROW(one.read("epoch"), FileError);
  one.join(other.checksums());
  one.check();
  EXPECT_EQ(one.bytes_read(), header + 60 + 4);  // the checksum
  other.check();                                 // reads the rest itself
  EXPECT_EQ(other.bytes_read(), header + 60 + 7 + 4);

  std::string content = slurp(dir / "c");
  content[content.size() - 5] ^= 1;  // in "b"
  spit(dir / "c", content);
  CheckpointReader damaged(dir / "c"), partner(dir / "c");
  partner.read("b");
  damaged.join(partner.checksums());
  EXPECT_ERROR(FileError, damaged.check(), "is damaged");
  EXPECT_THROW(partner.join(other.checksums()), FileError);  // another "b"
}

TEST(SaveCheckpoint, SaysWhereItCannotWrite) {
  Scratch dir;
  EXPECT_THAT(error_of<FileError>([&] { save_checkpoint(dir / "no/c", {}); }),
              AllOf(StartsWith("[save_checkpoint] " + (dir / "no/c").string()), HasSubstr("does not exist")));
  EXPECT_THROW(save_checkpoint("/proc/c", {}), FileError);
  EXPECT_THROW(save_checkpoint(dir.dir(), {}), FileError);
}

TEST(SaveCheckpoint, DoesNotKeepADamagedOneInPlaceOfAGoodOne) {
  Scratch dir;
  Checkpoint c;
  for (int epoch : {1, 2}) {
    c.put("epoch", epoch);
    save_checkpoint(dir / "c", c);
  }
  std::string content = slurp(dir / "c");
  content.back() ^= 1;
  spit(dir / "c", content);
  c.put("epoch", 3);
  save_checkpoint(dir / "c", c);
  EXPECT_EQ(load_checkpoint(dir / "c").checkpoint.get<int>("epoch"), 3);
  EXPECT_EQ(load_checkpoint(dir / "c.previous").checkpoint.get<int>("epoch"), 1);
}

// ---- a run that ends while it saves leaves a good checkpoint ----

// Step k's checkpoint: its numbers and every element of model.w depend on k.
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
  Scratch dir;
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
  Scratch dir;
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
  Scratch dir;
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
  Scratch dir;
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
  Scratch dir;
  save_checkpoint(dir / "c", of_step(1));
  std::filesystem::create_hard_link(dir / "c",
                                    dir / "c.previous.tmp");  // the process died between link and rename
  save_checkpoint(dir / "c", of_step(2));
  EXPECT_EQ(step_of(load_checkpoint(dir / "c").checkpoint), 2);
  EXPECT_EQ(step_of(load_checkpoint(dir / "c.previous").checkpoint), 1);
  EXPECT_THAT(dir.names(), ElementsAre("c", "c.previous"));
}

TEST(CheckpointCrash, AProcessKilledWhileSavingLeavesAGoodCheckpoint) {
  Scratch dir;
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
        AnyOf(1, 2, 3, 4, 5));  // c, c.previous, c.lock, c.tmp, c.previous.tmp: leftovers do not accumulate
  }
  EXPECT_GT(last, 0);
}

}  // namespace
}  // namespace gradus::io
