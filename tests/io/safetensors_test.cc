#include "gradus/io/safetensors.h"

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const std::filesystem::path kGolden = "tests/io/golden/interchange.safetensors";

template <class T, class F> Tensor made(const Shape& shape, F&& f) {
  Tensor x = empty(shape, {.dtype = dtype_v<T>});
  for (int64_t i = 0; i < x.numel(); ++i) x.ptr<T>()[i] = T(f(i));
  return x;
}

// The tensors of golden/interchange.py.
NamedTensors golden_tensors() {
  const auto half = [](int64_t i) { return static_cast<float>(i) * 0.5f - 1; };
  return {
      {"weights.f64", made<double>({2, 3}, [](int64_t i) { return static_cast<double>(i) * 0.125 - 0.25; })},
      {"weights.f32", made<float>({3, 2}, half)},
      {"weights.f16", made<f16>({6}, half)},
      {"weights.bf16", made<bf16>({6}, half)},
      {"counts.i64", made<int64_t>({6}, [](int64_t i) { return i * 1'000'000'007 - 5; })},
      {"counts.i32", made<int32_t>({6}, [](int64_t i) { return i * 1000 - 5; })},
      {"pixels", made<uint8_t>({1, 6}, [](int64_t i) { return i * 50; })},
      {"mask", made<bool>({6}, [](int64_t i) { return i % 2 == 1; })},
      {"scalar", made<float>({}, [](int64_t) { return 3.5f; })},
      {"empty", empty({0, 3})},
      {"name \"quoted\" \\ \u00e4\n\u0001", made<uint8_t>({1}, [](int64_t) { return 7; })}};
}

TEST(Safetensors, RoundTripsEveryDType) {
  TempDir dir;
  for (const DType t : kAllDTypes) {
    const Tensor x = counted({2, 3, 5}, t);
    save_safetensors(dir / "a", {{"x", x}});
    const SafetensorsFile file = load_safetensors(dir / "a");
    ASSERT_EQ(file.tensors.size(), 1u);
    EXPECT_TRUE(same(file.at("x"), x)) << name_of(t);
  }
}

TEST(Safetensors, RoundTripsScalarsEmptyTensorsAndNothingAtAll) {
  TempDir dir;
  const NamedTensors tensors{{"scalar", counted({}, DType::kF32)},
                             {"none", empty({0})},
                             {"none2", empty({3, 0, 2}, {.dtype = DType::kI64})},
                             {"deep", counted({1, 2, 1, 2, 1, 2, 1, 2}, DType::kU8)},
                             {"", counted({1}, DType::kU8)}};
  save_safetensors(dir / "a", tensors);
  const SafetensorsFile file = load_safetensors(dir / "a");
  EXPECT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, x] : tensors) EXPECT_TRUE(same(file.at(name), x)) << name;

  save_safetensors(dir / "b", {});
  EXPECT_THAT(load_safetensors(dir / "b").tensors, IsEmpty());
}

TEST(Safetensors, WritesAnyLayoutRowMajor) {
  TempDir dir;
  const Tensor x = counted({2, 3, 4, 5}, DType::kF32);
  const Tensor transposed = view_as_strided(x, {5, 4, 3, 2}, {1, 5, 20, 60}, 0);
  const Tensor part = view_as_strided(x, {2, 3, 2, 5}, {60, 20, 10, 1}, 5);
  const Tensor repeated = view_as_strided(x, {4, 5}, {0, 1}, 0);
  const Tensor images = raw::channels_last(x);
  ASSERT_FALSE(images.is_row_major());
  save_safetensors(dir / "a", {{"t", transposed}, {"p", part}, {"r", repeated}, {"i", images}});
  const SafetensorsFile file = load_safetensors(dir / "a");
  EXPECT_TRUE(same(file.at("t"), raw::contiguous(transposed)));
  EXPECT_TRUE(same(file.at("p"), raw::contiguous(part)));
  EXPECT_TRUE(same(file.at("r"), raw::contiguous(repeated)));
  EXPECT_TRUE(same(file.at("i"), x));
  EXPECT_TRUE(file.at("i").is_row_major());
}

TEST(Safetensors, WritesTensorsOfOtherDevices) {
  TempDir dir;
  const Tensor x = counted({100, 7}, DType::kF32);
  save_safetensors(dir / "a", {{"x", raw::to(x, Device::parse("cpu:1"))}});
  EXPECT_TRUE(same(load_safetensors(dir / "a").at("x"), x));
}

TEST(Safetensors, KeepsMetadata) {
  TempDir dir;
  const Metadata metadata{{"format", "gradus"}, {"note", "\"a\"\n\u00e4"}, {"", ""}};
  save_safetensors(dir / "a", {{"x", counted({2}, DType::kF32)}}, metadata);
  EXPECT_EQ(load_safetensors(dir / "a").metadata, metadata);
}

TEST(Safetensors, ReadsAFileOfThePythonLibrary) {
  const SafetensorsFile file = load_safetensors(kGolden);
  EXPECT_EQ(file.metadata, (Metadata{{"format", "gradus"}}));
  EXPECT_EQ(file.tensors.size(), golden_tensors().size());
  for (const auto& [name, x] : golden_tensors()) EXPECT_TRUE(same(file.at(name), x)) << name;
}

TEST(Safetensors, WritesTheSameBytesAsThePythonLibrary) {
  TempDir dir;
  save_safetensors(dir / "a", golden_tensors(), {{"format", "gradus"}});
  EXPECT_EQ(slurp(dir / "a"), slurp(kGolden));
}

TEST(Safetensors, AlignsEveryTensorToItsElements) {
  TempDir dir;
  NamedTensors tensors;
  for (const DType t : kAllDTypes) tensors.emplace_back(concat("x", name_of(t)), counted({3}, t));
  save_safetensors(dir / "a", tensors);
  uint64_t header_bytes = 0;
  slurp(dir / "a").copy(reinterpret_cast<char*>(&header_bytes), 8);
  EXPECT_EQ(header_bytes % 8, 0u);
  const SafetensorsReader reader(dir / "a");
  for (const SafetensorsEntry& e : reader.header().entries)
    EXPECT_EQ(e.begin % size_of(e.dtype), 0) << e.name;
}

TEST(Safetensors, ReadsTheHeaderAlone) {
  const SafetensorsHeader header = SafetensorsReader(kGolden).header();
  ASSERT_EQ(header.entries.size(), 11u);
  EXPECT_EQ(header.entries[0].name, "counts.i64");
  EXPECT_EQ(header.entries[0].dtype, DType::kI64);
  EXPECT_EQ(header.entries[1].shape, (Shape{2, 3}));
  EXPECT_EQ(header.entries[1].begin, 48);
  EXPECT_EQ(header.entries[1].end, 96);
}

TEST(Safetensors, NamesAMissingTensorAndThoseThereAre) {
  TempDir dir;
  save_safetensors(dir / "a", {{"fc.weight", empty({2})}, {"fc.bias", empty({2})}});
  const SafetensorsFile file = load_safetensors(dir / "a");
  EXPECT_TRUE(file.contains("fc.bias"));
  EXPECT_FALSE(file.contains("fc"));
  EXPECT_ERROR(FileError, file.at("fc1.weight"), (dir / "a").string(), "has no tensor 'fc1.weight'",
               "'fc.bias', 'fc.weight'");
}

TEST(Safetensors, RefusesWhatTheFormatCannotHoldAndKeepsTheOldFile) {
  TempDir dir;
  const Tensor x = counted({2}, DType::kF32);
  save_safetensors(dir / "a", {{"x", x}});
  const auto save = [&](const NamedTensors& tensors, const Metadata& metadata = {}) {
    return [&dir, tensors, metadata] { save_safetensors(dir / "a", tensors, metadata); };
  };
  EXPECT_ERROR(ValueError, save({{"y", Tensor()}})(), "tensor 'y' is undefined");
  EXPECT_ERROR(ValueError, save({{"y", x}, {"z", x}, {"y", x}})(), "two tensors are named 'y'");
  EXPECT_ERROR(ValueError, save({{"__metadata__", x}})(), "cannot be named '__metadata__'");
  EXPECT_ERROR(ValueError, save({{"\xff", x}})(), "is not UTF-8");
  EXPECT_ERROR(ValueError, save({{"y", x}}, {{"a", "\xff"}})(), "'a' are not UTF-8");
  EXPECT_ERROR(DeviceError, save({{"y", empty({2}, {.device = Device::parse("meta")})}})(),
               "tensor 'y' has no data");
  EXPECT_TRUE(same(load_safetensors(dir / "a").at("x"), x));
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(Safetensors, NamesAFileThatCannotBeWrittenOrRead) {
  TempDir dir;
  EXPECT_THAT(error_of<FileError>([&] { save_safetensors(dir / "no/a", {}); }),
              AllOf(StartsWith("[save_safetensors] "), HasSubstr((dir / "no/a").string())));
  EXPECT_ERROR(FileError, save_safetensors("/proc/a", {}), "/proc/a");
  EXPECT_THAT(error_of<FileError>([&] { load_safetensors(dir / "a"); }),
              AllOf(StartsWith("[load_safetensors] "), HasSubstr((dir / "a").string())));
  EXPECT_ERROR(FileError, load_safetensors(dir.path()), "got a folder");
}

}  // namespace
}  // namespace gradus::io
