// Safetensors files: round trips, the bytes that the Python library writes (golden/interchange.py), and that
// any malformed file gives a FileError that names it.
#include "gradus/io/safetensors.h"

#include <iterator>
#include <random>
#include <sstream>

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
  Scratch dir;
  for (const DType t : kAllDTypes) {
    const Tensor x = counted({2, 3, 5}, t);
    save_safetensors(dir / "a", {{"x", x}});
    const SafetensorsFile file = load_safetensors(dir / "a");
    ASSERT_EQ(file.tensors.size(), 1u);
    EXPECT_TRUE(same(file.at("x"), x)) << name_of(t);
  }
}

TEST(Safetensors, RoundTripsScalarsEmptyTensorsAndNothingAtAll) {
  Scratch dir;
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
  Scratch dir;
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
  Scratch dir;
  const Tensor x = counted({100, 7}, DType::kF32);
  save_safetensors(dir / "a", {{"x", raw::to(x, Device::parse("cpu:1"))}});
  EXPECT_TRUE(same(load_safetensors(dir / "a").at("x"), x));
}

TEST(Safetensors, KeepsMetadata) {
  Scratch dir;
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
  Scratch dir;
  save_safetensors(dir / "a", golden_tensors(), {{"format", "gradus"}});
  EXPECT_EQ(slurp(dir / "a"), slurp(kGolden));
}

TEST(Safetensors, AlignsEveryTensorToItsElements) {
  Scratch dir;
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
  Scratch dir;
  save_safetensors(dir / "a", {{"fc.weight", empty({2})}, {"fc.bias", empty({2})}});
  const SafetensorsFile file = load_safetensors(dir / "a");
  EXPECT_TRUE(file.contains("fc.bias"));
  EXPECT_FALSE(file.contains("fc"));
  EXPECT_ERROR(FileError, file.at("fc1.weight"), (dir / "a").string(), "has no tensor 'fc1.weight'",
               "'fc.bias', 'fc.weight'");
}

TEST(Safetensors, RefusesWhatTheFormatCannotHoldAndKeepsTheOldFile) {
  Scratch dir;
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
  Scratch dir;
  EXPECT_THAT(error_of<FileError>([&] { save_safetensors(dir / "no/a", {}); }),
              AllOf(StartsWith("[save_safetensors] "), HasSubstr((dir / "no/a").string())));
  EXPECT_ERROR(FileError, save_safetensors("/proc/a", {}), "/proc/a");
  EXPECT_THAT(error_of<FileError>([&] { load_safetensors(dir / "a"); }),
              AllOf(StartsWith("[load_safetensors] "), HasSubstr((dir / "a").string())));
  EXPECT_ERROR(FileError, load_safetensors(dir.dir()), "got a folder");
}

// ---- files from outside: any bytes give a result or a FileError that names the file ----

std::string with_length(std::string_view header, std::string_view data = "") {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file.append(header).append(data);
}

class Malformed : public testing::Test {
 protected:
  std::filesystem::path path() const { return dir_ / "a.safetensors"; }

  SafetensorsFile load(std::string_view content) const {
    spit(path(), content);
    return load_safetensors(path());
  }

  std::string error(std::string_view content) const {
    std::string text = error_of<FileError>([&] { load(content); });
    EXPECT_THAT(text, StartsWith("[load_safetensors] " + path().string() + ": "));
    EXPECT_LT(text.size(), 1000u);
    return text;
  }
  std::string header_error(std::string_view header, std::string_view data = "") const {
    return error(with_length(header, data));
  }

  // Loads and reads every byte of the result, so that sanitizers see a bad pointer. False: a FileError.
  bool survives(std::string_view content) const {
    try {
      const SafetensorsFile file = load(content);
      size_t sum = 0;
      for (const auto& [name, x] : file.tensors) {
        sum += name.size();
        for (const unsigned char c : bytes_of(x)) sum += c;
      }
      volatile size_t sink = sum;
      (void)sink;
      return true;
    } catch (const FileError& e) {
      EXPECT_THAT(e.what(), HasSubstr(path().string()));
      return false;
    }
  }

  std::string valid() const {
    NamedTensors tensors;
    for (const DType t : kAllDTypes) tensors.emplace_back(concat("x.", name_of(t)), counted({2, 3}, t));
    tensors.emplace_back("scalar", counted({}, DType::kF32));
    tensors.emplace_back("empty", empty({0, 4}));
    save_safetensors(path(), tensors, {{"format", "gradus"}, {"note", "\u00e4 \"q\""}});
    return slurp(path());
  }

 private:
  Scratch dir_;
};

TEST_F(Malformed, EveryTruncationIsAnError) {
  const std::string content = valid();
  for (size_t n = 0; n < content.size(); ++n) error(std::string_view(content).substr(0, n));
  EXPECT_TRUE(survives(content));
}

TEST_F(Malformed, TrailingBytesAreAnError) {
  EXPECT_THAT(error(valid() + "x"), HasSubstr("bytes of data; its tensors fill"));
}

TEST_F(Malformed, RandomEditsOfTheHeaderNeverCrash) {
  const std::string content = valid();
  uint64_t header_bytes = 0;
  content.copy(reinterpret_cast<char*>(&header_bytes), 8);
  const std::string header = content.substr(8, header_bytes), data = content.substr(8 + header_bytes);
  std::istringstream words(
      R"({ } [ ] , : " \ \u0000 \ud800 null true -1 0 1 1e999 0.5 9223372036854775807 18446744073709551615
         99999999999999999999999999 4611686018427387904 "F32" "F8_E4M3" "shape" "dtype" "data_offsets"
         "__metadata__" [[[[[[ {"a":)");
  std::vector<std::string> pieces(std::istream_iterator<std::string>(words), {});
  pieces.emplace_back("\xff");
  pieces.emplace_back(" ");
  std::mt19937 random(2);
  int rejected = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string h = header;
    for (int k = 1 + static_cast<int>(random() % 3); k > 0; --k) {
      const size_t at = random() % h.size();
      const size_t cut = random() % 2 == 0 ? 0 : std::min<size_t>(random() % 12, h.size() - at);
      h.replace(at, cut, pieces[random() % pieces.size()]);
    }
    rejected += !survives(with_length(h, data));
  }
  EXPECT_GT(rejected, 17000);
}

TEST_F(Malformed, HeaderLengthsAreBounded) {
  EXPECT_THAT(error(""), HasSubstr("has 0 bytes, too few for a safetensors file"));
  EXPECT_THAT(error("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(error(std::string(8, '\xff') + "{}"),
              HasSubstr("says that its header has 18446744073709551615 bytes"));
  EXPECT_THAT(error(std::string("\x00\x00\x00\x00\x00\x00\x00\x80{}", 10)),
              HasSubstr("expected at most 100000000"));
  EXPECT_THAT(error(std::string("\x03\x00\x00\x00\x00\x00\x00\x00{}", 10)), HasSubstr("but only 2 follow"));
  EXPECT_THAT(error(std::string("\x02\x00\x00\x00\x00\x00\x00\x00{", 9)), HasSubstr("but only 1 follow"));
  EXPECT_THAT(error(std::string(8, '\0')), HasSubstr("is no safetensors file"));
}

// Common mistakes: the error quotes the file's first bytes and, if they tell its format, names it.
TEST_F(Malformed, AFileOfAnotherFormatIsNamed) {
  EXPECT_THAT(error("lots of text, which is no header"),
              HasSubstr("is no safetensors file: it begins with 'lots of text, which is n', not with"));
  EXPECT_THAT(error(std::string("PK\x03\x04\x00\x00\x08\x08\x00\x00", 10) + std::string(100, '\xe4')),
              AllOf(HasSubstr("it begins with 'PK\\x03\\x04\\x00\\x00\\x08\\x08\\x00\\x00\\xe4"),
                    HasSubstr("a zip archive, as torch.save writes: tools/export_weights.py")));
  EXPECT_THAT(error("\x80\x02\x8a\nl\xfc\x9c"
                    "F\xf9 j\xa8P\x19."),
              HasSubstr("a Python pickle"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a"),
              HasSubstr("a pointer of Git LFS"));
  EXPECT_THAT(error("<!DOCTYPE html>\n<html>404</html>"), HasSubstr("a web page"));
  EXPECT_THAT(error(std::string(1000, '\0')),
              HasSubstr("is no safetensors file: it begins with '\\x00\\x00"));
}

TEST_F(Malformed, DeepNestingIsRefusedAtOnce) {
  const size_t kDepth = 5'000'000;
  EXPECT_THAT(header_error(std::string(kDepth, '[')), HasSubstr("expected a JSON object"));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(header_error(objects), HasSubstr("tensor 'a' has the key 'a'"));
  EXPECT_THAT(header_error("{\"a\":{\"dtype\":\"U8\",\"shape\":" + std::string(kDepth, '[')),
              HasSubstr("an array"));
}

TEST_F(Malformed, AHeaderMustBeOneJsonObject) {
  EXPECT_THAT(header_error("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(header_error("7"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(header_error("null"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(header_error("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error("{"), HasSubstr("not valid JSON at byte 2"));
  EXPECT_THAT(header_error("{\"\xff\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error("{\"" + std::string(100'000, 'x')), HasSubstr("not valid JSON"));
}

TEST_F(Malformed, EntriesMustBeComplete) {
  const auto entry = [&](std::string_view body) {
    return header_error(concat("{\"w\":", body, "}"), "abcd");
  };
  const std::pair<const char*, const char*> cases[] = {
      // an entry, a part of its error
      {"1", "its header has the number 1 for 'w'; expected an object"},
      {"[]", "expected an object"},
      {"null", "expected an object"},
      {"{}", "tensor 'w' has no dtype"},
      {R"({"dtype":"U8"})", "tensor 'w' has no shape"},
      {R"({"dtype":"U8","shape":[4]})", "has 0 data_offsets; expected 2"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[0]})", "has 1 data_offsets"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[0,4,4]})", "more than 2 data_offsets"},
      {R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})", "the number 4 as its shape"},
      {R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})", "as its dtype; expected a string"},
      {R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})",
       "the number -4 in its shape; expected non-negative integers"},
      {R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})", "the number 4.0 in its shape"},
      {R"({"dtype":"U8","shape":["4"],"data_offsets":[0,4]})", "the string '4'"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1})", "has the key 'x'"},
      {R"({"dtype":"U8","shape":[4],"shape":[4]})", "tensor 'w' has 'shape' twice"}};
  for (const auto& [body, text] : cases) EXPECT_THAT(entry(body), HasSubstr(text));
}

TEST_F(Malformed, AnUnknownDTypeIsNamedWithItsTensor) {
  EXPECT_THAT(
      header_error(R"({"layer.w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", "abcd"),
      AllOf(HasSubstr("tensor 'layer.w' has dtype 'F8_E4M3'"), HasSubstr("expected one of F64, F32")));
}

TEST_F(Malformed, NamesMayNotRepeat) {
  EXPECT_THAT(header_error(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                           R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
              HasSubstr("the header has 'w' twice"));
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":"1","a":"2"}})"), HasSubstr("has 'a' twice"));
  EXPECT_THAT(header_error(R"({"__metadata__":{},"__metadata__":{}})"),
              HasSubstr("has '__metadata__' twice"));
}

TEST_F(Malformed, MetadataHoldOnlyStrings) {
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":1}})"),
              HasSubstr("the number 1 for 'a'; expected a string"));
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":{}}})"), HasSubstr("an object for 'a'"));
  EXPECT_THAT(header_error(R"({"__metadata__":"a"})"), HasSubstr("expected an object"));
  EXPECT_TRUE(survives(with_length(R"({"__metadata__":null})")));
  EXPECT_TRUE(survives(with_length(R"({"__metadata__":{}}   )")));
}

TEST_F(Malformed, ShapesAreBounded) {
  const auto shape = [&](std::string_view dims) {
    return header_error(concat(R"({"w":{"dtype":"F32","shape":)", dims, R"(,"data_offsets":[0,4]}})"),
                        "abcd");
  };
  EXPECT_THAT(shape("[2]"), HasSubstr("tensor 'w' has 4 bytes; expected 8 for f32[2]"));
  EXPECT_THAT(shape("[0]"), HasSubstr("expected 0 for f32[0]"));
  EXPECT_THAT(shape("[1,1,1,1,1,1,1,1,1]"), HasSubstr("more than 8 dimensions"));
  EXPECT_THAT(shape("[4611686018427387904]"), HasSubstr("expected far more"));
  EXPECT_THAT(shape("[4611686018427387905]"), HasSubstr("more than fits"));
  EXPECT_THAT(shape("[18446744073709551615]"), HasSubstr("more than fits"));
  EXPECT_THAT(shape("[18446744073709551617]"), HasSubstr("in its shape; expected non-negative integers"));
  EXPECT_THAT(shape("[4294967296,4294967296]"), HasSubstr("impossible shape"));
  EXPECT_THAT(shape("[4294967296,4294967296,0]"), HasSubstr("impossible shape"));
  EXPECT_THAT(shape("[0,4294967296,4294967296]"), HasSubstr("impossible shape"));
}

TEST_F(Malformed, TensorsMustFillTheDataExactly) {
  const auto two = [&](std::string_view a, std::string_view b) {
    return header_error(concat(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)", a,
                               R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)", b, "}}"),
                        "abcd");
  };
  EXPECT_TRUE(survives(with_length(R"({"b":{"data_offsets":[2,4],"shape":[2],"dtype":"U8"},)"
                                   R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                   "abcd")));
  EXPECT_THAT(two("[0,2]", "[1,3]"), HasSubstr("it overlaps another"));
  EXPECT_THAT(two("[0,2]", "[0,2]"), HasSubstr("it overlaps another"));
  EXPECT_THAT(two("[1,3]", "[3,5]"), HasSubstr("a gap lies before it"));
  EXPECT_THAT(two("[0,2]", "[3,5]"), HasSubstr("'b' lies at bytes [3, 5) of 4"));
  EXPECT_THAT(two("[2,0]", "[2,4]"), HasSubstr("'a' lies at bytes [2, 0)"));
  EXPECT_THAT(two("[0,3]", "[3,4]"), HasSubstr("'a' has 3 bytes; expected 2"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "abcd"),
              HasSubstr("has 4 bytes of data; its tensors fill 2"));
}

TEST_F(Malformed, BooleansMustBeZeroOrOne) {
  EXPECT_THAT(
      header_error(R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\0\1\2", 3)),
      HasSubstr("tensor 'm' has a BOOL of 2"));
}

TEST_F(Malformed, NamesInErrorsAreAbridgedAndPrintable) {
  const std::string name = "\\n\\u001b[2J" + std::string(100'000, 'x');
  EXPECT_THAT(header_error("{\"" + name + "\":1}"), HasSubstr("'\\x0a\\x1b[2Jxxx"));
}

}  // namespace
}  // namespace gradus::io
