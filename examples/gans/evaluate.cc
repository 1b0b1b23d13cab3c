// `gan evaluate`: opens the generated images, compares them with reference images, and prints the metrics.
#include "gradus/examples/gans/evaluate.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "gradus/data/files/sha256.h"
#include "gradus/examples/gans/checkpoint.h"
#include "gradus/examples/gans/metrics.h"
#include "gradus/examples/gans/pretrained.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::examples {
namespace {

struct EvaluateArgs {
  std::string data, checkpoint, samples, classifier, summary;
  std::string metrics = "frechet,scores", resize = "tf", device = "cpu";
  PretrainedOptions pretrained;
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
  g.gan->net->to(a.pretrained.device);
  for (auto& [name, x] : g.gan->averaged) x = to(x, a.pretrained.device);
  g.images = source_of(*g.gan->net, latents(a.number, a.seed, g.gan->options), g.size,
                       a.plain ? nn::StateDict() : g.gan->averaged);
  return g;
}

// Removes "ppl" from a list of metrics. Returns whether the list had it.
bool take_ppl(std::string& list) {
  std::string others;
  bool found = false;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    if (name == "ppl" && !found)
      found = true;
    else
      others += (begin == 0 || (found && others.empty()) ? "" : ",") + name;
    begin = end + 1;
  }
  list = others;
  return found;
}

// Returns the perceptual path length in z, over full paths between --number pairs of latents.
Figure path_length(const EvaluateArgs& a, Generated& g) {
  if (!g.gan) throw ValueError("evaluate", "ppl: expected --checkpoint, whose generator makes the images");
  constexpr int64_t kBatch = 10;
  const std::unique_ptr<models::LPIPS> lpips = load_lpips(a.pretrained);
  Networks& net = *g.gan->net;
  const nn::StateDict weights = a.plain ? nn::StateDict() : g.gan->averaged;
  const Latents from = latents(a.number, a.seed, g.gan->options),
                until = latents(a.number, a.seed + 1, g.gan->options);
  metrics::PerceptualPathLength length;
  manual_seed(a.seed);
  const Tensor t = rand({a.number});
  for (int64_t i = 0; i < a.number; i += kBatch) {
    const auto part = [&](const Tensor& x) {
      return x.defined() ? slice(x, 0, i, std::min(i + kBatch, a.number)) : x;
    };
    const auto generator = [&](const Tensor& z) {
      return to(generate(net, {.z = z, .labels = part(from.labels)}, weights), a.pretrained.device);
    };
    length.update(generator, std::ref(*lpips), part(from.z), part(until.z), part(t));
  }
  return {.name = "ppl",
          .value = length.compute(),
          .n = a.number,
          .features_sha256 = data::sha256_of_file(a.pretrained.lpips)};
}

void write_json(const std::string& file, const std::vector<Figure>& figures, const Generated& g,
                const std::string& kind) {
  nlohmann::ordered_json j;
  if (!kind.empty()) j["data"] = kind;
  j["mode"] = g.mode, j["n"] = g.images.n;
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

// Returns the values of a list of metrics against reference images, and sets the kind of the images.
std::vector<Figure> compare(const EvaluateArgs& a, const std::string& list, const Generated& g,
                            std::string& kind) {
  const ImageMetrics metrics({.names = metric_names(list),
                              .images = {.dir = a.data, .size = g.size},
                              .n = g.images.n,
                              .classifier = a.classifier,
                              .features = a.pretrained.inception.empty()
                                              ? nullptr
                                              : std::make_shared<const Inception>(a.pretrained)});
  kind = metrics.kind();
  return metrics(g.images);
}

void evaluate_and_print(EvaluateArgs a) {
  if (a.checkpoint.empty() == a.samples.empty())
    throw ValueError("evaluate", "expected one of --checkpoint and --samples");
  if (!a.pretrained.inception.empty() && !a.classifier.empty())
    throw ValueError("evaluate", "expected one of --inception and --classifier");
  a.pretrained.device = Device::parse(a.device);
  if (a.resize == "clean") a.pretrained.resize = models::InceptionResize::kClean;
  std::string list = a.metrics, kind;
  const bool with_ppl = take_ppl(list);
  if (!list.empty()) metric_names(list);  // throws before the work
  Generated g = a.samples.empty() ? of_checkpoint(a) : of_file(a);
  std::vector<Figure> figures;
  if (!list.empty() || !with_ppl) figures = compare(a, list, g, kind);
  if (with_ppl) figures.push_back(path_length(a, g));
  for (const Figure& f : figures) std::cout << text_of(f, g.mode) << '\n';
  std::cout << std::flush;
  if (!a.summary.empty()) write_json(a.summary, figures, g, kind);
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
  line.add_option("--metrics", a.metrics, std::string(kMetricsHelp) + "; ppl: with --vgg and --lpips")
      ->type_name("LIST")
      ->capture_default_str();
  line.add_flag("--plain", a.plain, "the generator's last weights, instead of their average");
  line.add_option("--number", a.number, "images")
      ->check(CLI::Range(int64_t{10}, int64_t{1} << 20))
      ->capture_default_str();
  line.add_option("--seed", a.seed, "of the latents")->capture_default_str();
  line.add_option("--classifier", a.classifier, "its weights [the cache folder's]")->type_name("FILE");
  line.add_option("--inception", a.pretrained.inception,
                  "instead: weights of Inception v3, for FID, KID, ...")
      ->type_name("FILE");
  line.add_option("--resize", a.resize, "of images for Inception v3: as TensorFlow 1, or as clean-fid")
      ->check(CLI::IsMember({"tf", "clean"}))
      ->capture_default_str();
  line.add_option("--vgg", a.pretrained.vgg,
                  "weights of VGG16: for ppl, and with --inception for precision_recall")
      ->type_name("FILE");
  line.add_option("--lpips", a.pretrained.lpips, "weights of LPIPS' layers, for ppl")->type_name("FILE");
  line.add_option("--device", a.device, "of all networks but the classifier: cpu or cuda")
      ->capture_default_str();
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
