// `gan evaluate`: opens the generated images, compares them with reference images, and prints the metrics.
#include "gradus/examples/gans/evaluate.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "gradus/examples/gans/checkpoint.h"
#include "gradus/examples/gans/metrics.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::examples {
namespace {

struct EvaluateArgs {
  std::string data, checkpoint, samples, classifier, summary;
  std::string metrics = "frechet,scores";
  bool plain = false;
  int64_t number = 10'000;
  uint64_t seed = 1;
};

// The evaluated images: of a generator, which must outlive the source, or of a file.
struct Generated {
  std::optional<LoadedGan> gan = {};
  ImageSource images = {};
  int64_t size = 0;       // of the images
  std::string mode = {};  // the origin of the images, for the output
};

Generated of_file(const EvaluateArgs& a) {
  const auto file = io::load_safetensors(a.samples);
  const Tensor images = file.contains("images") ? file.at("images") : Tensor();
  if (!images.defined() || images.dtype() != DType::kU8 || images.dim() != 4 || images.size(0) < 10)
    throw FileError("gan", a.samples, ": expected a tensor \"images\", u8[N,C,H,W], of 10 images or more",
                    images.defined() ? concat(", found ", describe(images)) : "");
  const int64_t channels = images.size(1), size = images.size(2);
  if ((channels != 1 && channels != 3) || size < 4 || size > 1024 || images.size(3) != size)
    throw FileError("gan", a.samples,
                    ": expected images of 1 or 3 channels, square, of 4 to 1024 pixels, found ",
                    describe(images));
  return {.images = source_of(slice(images, 0, 0, std::min(a.number, images.size(0)))),
          .size = size,
          .mode = "images of a file"};
}

Generated of_checkpoint(const EvaluateArgs& a) {
  Generated g = {.gan = load_gan(a.checkpoint), .mode = a.plain ? "plain weights" : "averaged weights"};
  g.size = g.gan->options.size;
  g.images = source_of(*g.gan->net, latents(a.number, a.seed, g.gan->options), g.size,
                       a.plain ? nn::StateDict() : g.gan->averaged);
  return g;
}

void write_json(const std::string& file, const std::vector<Figure>& figures, const Generated& g,
                const std::string& kind) {
  nlohmann::ordered_json j = {{"data", kind}, {"mode", g.mode}, {"n", g.images.n}};
  for (const Figure& f : figures) {
    nlohmann::ordered_json& figure = j["metrics"][f.name];
    figure = {{"value", f.value}, {"n", f.n}};
    if (!std::isnan(f.floor)) figure["floor"] = f.floor;
    if (!f.features_sha256.empty()) figure["features_sha256"] = f.features_sha256;
  }
  const internal::BlockedSignals blocked;
  std::ofstream out(file);
  if (!(out << j.dump(2) << '\n').flush()) throw FileError("gan", file, ": cannot be written");
}

void evaluate_and_print(const EvaluateArgs& a) {
  if (a.checkpoint.empty() == a.samples.empty())
    throw ValueError("evaluate", "expected one of --checkpoint and --samples");
  const std::vector<std::string> names = metric_names(a.metrics);
  const Generated g = a.samples.empty() ? of_checkpoint(a) : of_file(a);
  const ImageMetrics metrics({.names = names,
                              .images = {.dir = a.data, .size = g.size},
                              .n = g.images.n,
                              .classifier = a.classifier});
  const std::vector<Figure> figures = metrics(g.images);
  for (const Figure& f : figures) std::cout << text_of(f, g.mode) << '\n';
  std::cout << std::flush;
  if (!a.summary.empty()) write_json(a.summary, figures, g, metrics.kind());
}

}  // namespace

int run_evaluate(int argc, char** argv) {
  EvaluateArgs a;
  CLI::App line("Says how good generated images are");
  line.add_option("--data", a.data, "folder with MNIST, CIFAR-10 or images [generated digits]")
      ->type_name("DIR");
  line.add_option("--checkpoint", a.checkpoint, "of ./run gan: its generator makes the images")
      ->type_name("FILE");
  line.add_option("--samples", a.samples, "instead: a safetensors file with \"images\", u8[N,C,H,W]")
      ->type_name("FILE");
  line.add_option("--metrics", a.metrics, kMetricsHelp)->type_name("LIST")->capture_default_str();
  line.add_flag("--plain", a.plain, "the generator's last weights, instead of their average");
  line.add_option("--number", a.number, "images")
      ->check(CLI::Range(int64_t{10}, int64_t{1} << 20))
      ->capture_default_str();
  line.add_option("--seed", a.seed, "of the latents")->capture_default_str();
  line.add_option("--classifier", a.classifier, "its weights [the cache folder's]")->type_name("FILE");
  line.add_option("--summary", a.summary, "write the numbers as JSON")->type_name("FILE");
  CLI11_PARSE(line, argc, argv);
  try {
    evaluate_and_print(a);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "gan: " << e.what() << std::endl;
    return 1;
  }
}

}  // namespace gradus::examples
