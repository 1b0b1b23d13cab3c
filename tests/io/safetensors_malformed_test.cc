// Files from outside: for any bytes, reading gives a result or a FileError that names the file. Run it
// with --config=asan too.
#include <iterator>
#include <random>
#include <sstream>

#include "gradus/io/safetensors.h"
#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

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

  // Reads every byte of what comes back, so that sanitizers see a bad pointer. Returns whether
  // there was a result.
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
  TempDir dir_;
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

// What people load by mistake: the error says how the file begins and, where that tells, what it is.
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
