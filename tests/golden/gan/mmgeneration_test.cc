// tools/export_weights.py --from mmgeneration, run as a process: checkpoints with mmgeneration's names (in
// mmgeneration.safetensors, from mmgeneration.py) become weights with which Gradus computes the same, for RGB
// instead of BGR images. The script needs no PyTorch for safetensors files. Exit code 1: error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/io/weights.h"
#include "gradus/models/models.h"

namespace gradus::golden {
namespace {

using namespace models;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

// For a dozen layers in f64, summed in another order than PyTorch's; images and scores are near 1.
constexpr double kTolerance = 1e-12;

const io::SafetensorsFile& file() {
  static const io::SafetensorsFile f = io::load_safetensors("tests/golden/gan/mmgeneration.safetensors");
  return f;
}

// Returns the tensors whose names have the prefix, without it.
nn::StateDict below(const std::string& prefix) {
  nn::StateDict found;
  for (const auto& [name, t] : file().tensors)
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), t);
  return found;
}
// Returns the checkpoint of a GAN; the file's names without a dot are inputs and outputs.
nn::StateDict checkpoint(const std::string& name) {
  nn::StateDict state = below(name + "/");
  std::erase_if(state, [](const auto& entry) { return entry.first.find('.') == entry.first.npos; });
  return state;
}
Tensor value(const std::string& name) {
  for (const auto& [key, t] : file().tensors)
    if (key == name) return t;
  throw ValueError("value", name);
}
Tensor& at(nn::StateDict& state, const std::string& name) {
  for (auto& [key, t] : state)
    if (key == name) return t;
  throw ValueError("at", name);
}

struct Ended {
  int code;
  std::string output;
};
Ended run(const std::string& arguments) {
  FILE* pipe = popen(("python3 -B tools/export_weights.py " + arguments + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> part;
  while (const size_t n = fread(part.data(), 1, part.size(), pipe)) output.append(part.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

class Mmgeneration : public testing::Test {
 protected:
  Mmgeneration() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Mmgeneration() override { fs::remove_all(folder_); }
  std::string in() const { return folder_ + "/in.safetensors"; }
  std::string out() const { return folder_ + "/out.safetensors"; }

  Ended convert(const nn::StateDict& state, const std::string& options = "") {
    io::save_safetensors(in(), state);
    return convert(options);
  }
  Ended convert(const std::string& options = "") {
    fs::remove(out());
    return run("'" + in() + "' --from mmgeneration -o '" + out() + "' " + options);
  }
  // Converts a file of this header and `bytes` zeros.
  Ended convert_header(const std::string& header, size_t bytes) {
    const uint64_t length = header.size();
    std::string content(8, '\0');
    std::memcpy(content.data(), &length, 8);
    std::ofstream(in(), std::ios::binary) << content << header << std::string(bytes, '\0');
    return convert();
  }

  // Loads both networks, and compares their outputs with mmgeneration's. `flipped`: mmgeneration's
  // images are BGR.
  template <class G, class D>
  void expect_same(const std::string& name, typename G::Options g, typename D::Options d, bool flipped) {
    struct Gan : nn::Module {
      Gan(typename G::Options g, typename D::Options d) : gen(this, "gen", g), disc(this, "disc", d) {}
      G gen;
      D disc;
    } net(g, d);
    net.to(DType::kF64);
    net.eval();
    io::load_weights(net, out());
    const auto rgb = [&](const Tensor& bgr) { return flipped ? flip(bgr, {1}) : bgr; };
    EXPECT_LT(difference(net.gen(value(name + "/z")), rgb(value(name + "/images"))), kTolerance) << name;
    EXPECT_LT(difference(net.disc(rgb(value(name + "/x"))), value(name + "/scores")), kTolerance) << name;
  }
  static double difference(const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.shape(), b.shape());
    return max(abs(a - b)).item<double>();
  }

 private:
  const std::string folder_ = testing::TempDir() + "mmgeneration_test";
};

DCGANGeneratorOptions dcgan_gen(int64_t size, int64_t channels, int64_t width, int64_t latent) {
  DCGANGeneratorOptions o =
      mmgen(DCGANGeneratorOptions{.size = size, .channels = channels, .latent = latent});
  o.width = width;
  return o;
}
DCGANDiscriminatorOptions dcgan_disc(int64_t size, int64_t channels, int64_t outputs) {
  DCGANDiscriminatorOptions o =
      mmgen(DCGANDiscriminatorOptions{.size = size, .channels = channels, .outputs = outputs});
  o.width = 2;
  return o;
}

TEST_F(Mmgeneration, DcganIsRenamedAndBecomesRgb) {
  const Ended end = convert(checkpoint("dcgan"));
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("gen: DCGANGenerator, size 16, channels 3, width 2, latent 5\n"
                                    "disc: DCGANDiscriminator, size 16, channels 3, width 2, outputs 2\n"));
  expect_same<DCGANGenerator, DCGANDiscriminator>("dcgan", dcgan_gen(16, 3, 2, 5), dcgan_disc(16, 3, 2),
                                                  true);
}

TEST_F(Mmgeneration, GrayImagesHaveNoOrder) {
  const Ended end = convert(checkpoint("dcgan_gray"));
  ASSERT_EQ(end.code, 0) << end.output;
  expect_same<DCGANGenerator, DCGANDiscriminator>("dcgan_gray", dcgan_gen(32, 1, 2, 3), dcgan_disc(32, 1, 1),
                                                  false);
}

TEST_F(Mmgeneration, TheOthersKeepTheirNamesAndBecomeRgb) {
  Ended end = convert(checkpoint("lsgan"));
  ASSERT_EQ(end.code, 0) << end.output;
  expect_same<LSGANGenerator, LSGANDiscriminator>("lsgan", {.size = 32, .width = 4, .latent = 3},
                                                  {.size = 32, .width = 2}, true);
  end = convert(checkpoint("wgan_gp"));
  ASSERT_EQ(end.code, 0) << end.output;
  expect_same<WGANGPGenerator, WGANGPDiscriminator>(
      "wgan_gp", {.size = 8, .latent = 3, .channel_base = 16, .channel_max = 4},
      {.size = 8, .channel_base = 16, .channel_max = 4}, true);
  end = convert(checkpoint("pggan"));
  ASSERT_EQ(end.code, 0) << end.output;
  expect_same<PGGANGenerator, PGGANDiscriminator>(
      "pggan", mmgen(PGGANGeneratorOptions{.size = 8, .latent = 3, .channel_base = 16, .channel_max = 4}),
      mmgen(PGGANDiscriminatorOptions{.size = 8, .channel_base = 16, .channel_max = 4}), true);
}

// mmgeneration keeps no average of w, and makes blurs of buffers that Gradus does not have.
TEST_F(Mmgeneration, StyleganLosesItsBlurs) {
  const Ended end = convert(checkpoint("stylegan"));
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("gen: StyleGANGenerator\ndisc: StyleGANDiscriminator\n"));
  struct Gan : nn::Module {
    StyleGANGenerator gen{
        this, "gen",
        mmgen(StyleGANGeneratorOptions{
            .size = 8, .latent = 5, .style = 5, .mapping_layers = 2, .channel_base = 8, .channel_max = 4})};
    StyleGANDiscriminator disc{
        this, "disc", mmgen(StyleGANDiscriminatorOptions{.size = 8, .channel_base = 8, .channel_max = 4})};
  } net;
  net.to(DType::kF64);
  EXPECT_THAT(io::load_weights(net, out(), {.except = {"gen.w_avg"}}).missing, testing::IsEmpty());
  const Tensor images =
      net.gen.synthesis(net.gen.mapping(value("stylegan/z")), {.size = 8}, {.mode = nn::NoiseMode::kFixed});
  EXPECT_LT(difference(images, flip(value("stylegan/images"), {1})), kTolerance);
  EXPECT_LT(difference(net.disc(flip(value("stylegan/x"), {1})), value("stylegan/scores")), kTolerance);
}

TEST_F(Mmgeneration, ChannelsThatAreRgbAlreadyStay) {
  for (const std::string name : {"dcgan", "wgan_gp"}) {
    const Ended end = convert(checkpoint(name), "--channels rgb");
    ASSERT_EQ(end.code, 0) << end.output;
    if (name == "dcgan")
      expect_same<DCGANGenerator, DCGANDiscriminator>(name, dcgan_gen(16, 3, 2, 5), dcgan_disc(16, 3, 2),
                                                      false);
    else
      expect_same<WGANGPGenerator, WGANGPDiscriminator>(
          name, {.size = 8, .latent = 3, .channel_base = 16, .channel_max = 4},
          {.size = 8, .channel_base = 16, .channel_max = 4}, false);
  }
}

// The averaged generator of a whole training's checkpoint, and files of one network.
TEST_F(Mmgeneration, OneNetworkIsTakenOutOfATraining) {
  nn::StateDict state, alone;
  for (const auto& [name, t] : checkpoint("dcgan")) {
    const bool is_gen = name.starts_with("generator.");
    state.emplace_back(is_gen ? "generator_ema" + name.substr(9) : name, t);
    if (is_gen) alone.emplace_back(name.substr(10), t);
  }
  state.emplace_back("iteration", zeros({1}));
  const auto expect_generator = [&](const Ended& end) {
    ASSERT_EQ(end.code, 0) << end.output;
    DCGANGenerator gen(dcgan_gen(16, 3, 2, 5));
    gen.to(DType::kF64);
    gen.eval();
    io::load_weights(gen, out());
    EXPECT_LT(difference(gen(value("dcgan/z")), flip(value("dcgan/images"), {1})), kTolerance);
  };
  expect_generator(convert(state, "--part generator_ema"));
  expect_generator(convert(alone));
  for (auto& [name, t] : alone) name = "module." + name;
  expect_generator(convert(alone));

  const Ended end = convert(state, "--part generator");
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.output, HasSubstr("no names below 'generator.'"));
}

TEST_F(Mmgeneration, AllThatDoesNotFitIsListedAtOnce) {
  nn::StateDict state = checkpoint("dcgan");
  std::erase_if(state, [](const auto& entry) {
    return entry.first == "generator.upsampling.0.bn.running_var" ||
           entry.first == "discriminator.output_layer.conv.bias";
  });
  state.emplace_back("generator.to_hsv.weight", zeros({1}));
  state.emplace_back("generator.upsampling.99999999999999999999.conv.weight", zeros({1}));
  at(state, "generator.noise2feat.bn.bias") = zeros({7});
  at(state, "discriminator.downsamples.1.conv.weight") = zeros({4, 3, 4, 4});
  const Ended end = convert(state);
  EXPECT_EQ(end.code, 1);
  EXPECT_FALSE(fs::exists(out()));
  for (const char* text :
       {"in.safetensors: generator. is no DCGANGenerator of mmgeneration:",
        "\n  missing: generator.upsampling.0.bn.running_var", "\n  unexpected: generator.to_hsv.weight",
        "\n  unexpected: generator.upsampling.99999999999999999999.conv.weight",
        "\n  generator.noise2feat.bn.bias: expected [4], got [7]",
        "\ndiscriminator. is no DCGANDiscriminator of mmgeneration:",
        "\n  missing: discriminator.output_layer.conv.bias",
        "\n  discriminator.downsamples.1.conv.weight: expected [4, 2, 4, 4], got [4, 3, 4, 4]"})
    EXPECT_THAT(end.output, HasSubstr(text));
  EXPECT_THAT(end.output, Not(HasSubstr("Traceback")));
}

TEST_F(Mmgeneration, LayersOfImagesThatDoNotFitAreListedAtOnce) {
  nn::StateDict state = checkpoint("pggan");
  std::erase_if(state, [](const auto& entry) { return entry.first == "generator.torgb_layers.0.conv.bias"; });
  at(state, "generator.torgb_layers.1.conv.weight_orig") = zeros({3});
  at(state, "discriminator.fromrgb_layers.0.conv.weight_orig") = zeros({4, 5, 1, 1});
  Ended end = convert(state);
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.output,
              AllOf(HasSubstr("missing: generator.torgb_layers.0.conv.bias"),
                    HasSubstr("generator.torgb_layers.1.conv.weight_orig: expected a convolution"),
                    HasSubstr("one number of channels, got 3, 5")));
  at(state, "discriminator.fromrgb_layers.1.conv.weight_orig") = zeros({4, 5, 1, 1});
  end = convert(state, "--part discriminator");
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.output, HasSubstr("5 channels are neither gray nor BGR"));
}

TEST_F(Mmgeneration, OtherNetworksAreNoneOfIt) {
  const Ended end = convert({{"fc.weight", zeros({1})}, {"fc.\x1b[31mbias", zeros({1})}});
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.output,
              AllOf(HasSubstr("it is no DCGAN, LSGAN, WGAN-GP, PGGAN or StyleGAN of mmgeneration"),
                    HasSubstr("'fc.weight'"), Not(HasSubstr("\x1b"))));
}

TEST_F(Mmgeneration, HostileFilesAreErrorsThatSayWhy) {
  const std::string f32 = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string header = f32;
    return header.replace(header.find(from), from.size(), to);
  };
  struct Case {
    std::string header;
    const char* text;
    size_t bytes = 8;
  };
  const Case cases[] = {
      {f32, "is no DCGAN"},  // the other cases change one thing in it
      {f32, "describes 8 of 9 bytes", 9},
      {f32, "not as many of the 7 bytes behind it", 7},
      {replaced("F32", "F33"), "the dtype 'F33', which Gradus does not have"},
      {replaced("[2]", "[-2]"), "no shape"},
      {replaced("[2]", "[true,2]"), "no shape"},
      {replaced("[2]", "[2.0]"), "no shape"},
      {replaced("[2]", "[4611686018427387904,4611686018427387904]"), "no shape"},
      {replaced("[2]", "[" + std::string(5000, '9') + "]"), "its header"},
      {replaced("[0,8]", "[1,9]"), "not as many of the 8 bytes"},
      {replaced("[0,8]", "[0]"), "not as many of the 8 bytes"},
      {replaced("[0,8]", "[0,8],\"x\":1"), "does not give dtype, shape and data_offsets of 'a'"},
      {replaced("}}", "}, \"a\":{}}"), "has a name twice"},
      {replaced("}}", "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}"),
       "a hole or an overlap"},
      {replaced("{\"a\"", "{\"__metadata__\":{\"a\":1},\"a\""), "metadata other than strings"},
      {replaced("\"a\"", "\"\xff\""), "is no JSON"},
      {"{" + std::string(100'000, '['), "is no JSON"},
      {std::string("{\"a\":") + std::string(100'000, '['), "is no JSON"},
      {"{}", "has no tensors", 0},
  };
  for (const Case& c : cases) {
    const Ended end = convert_header(c.header, c.bytes);
    EXPECT_EQ(end.code, 1) << c.header.substr(0, 100);
    EXPECT_THAT(end.output,
                AllOf(HasSubstr("in.safetensors"), HasSubstr(c.text), Not(HasSubstr("Traceback"))))
        << c.header.substr(0, 100);
    EXPECT_FALSE(fs::exists(out()));
  }
  for (const std::string& content : {std::string(), std::string("\x09\0\0\0\0\0\0\0{", 9),
                                     std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)}) {
    std::ofstream(in(), std::ios::binary) << content;
    const Ended end = convert();
    EXPECT_EQ(end.code, 1) << content;
    EXPECT_THAT(end.output,
                AllOf(HasSubstr("is no safetensors file, or was cut off"), Not(HasSubstr("Traceback"))));
  }
}

TEST_F(Mmgeneration, WhatCannotBeWrittenOrFoundIsAnError) {
  io::save_safetensors(in(), checkpoint("dcgan"));
  for (const auto& [arguments, text] :
       {std::pair("'" + in() + "' --from mmgeneration -o '" + in() + ".d/out'", "No such file or directory"),
        std::pair("'" + in() + "' --from mmgeneration -o '" + in() + "'", "is the checkpoint itself"),
        std::pair("'" + in() + ".none' --from mmgeneration -o '" + out() + "'", "there is no file"),
        std::pair("'" + in() + "' --part generator -o '" + out() + "'", "--from mmgeneration"),
        std::pair("'" + in() + "' --from mmgeneration --key x -o '" + out() + "'", "--key and --trust")}) {
    const Ended end = run(arguments);
    EXPECT_EQ(end.code, 1) << arguments;
    EXPECT_THAT(end.output, AllOf(HasSubstr(text), Not(HasSubstr("Traceback"))));
    EXPECT_FALSE(fs::exists(out()));
  }
  EXPECT_EQ(io::load_safetensors(in()).tensors.size(), checkpoint("dcgan").size());
}

}  // namespace
}  // namespace gradus::golden
