#include "gradus/examples/gans/evaluate.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "gradus/examples/gans/checkpoint.h"
#include "gradus/examples/gans/samples.h"

namespace gradus::examples {
namespace {

constexpr int64_t kBatch = 500;

struct EvaluateArgs {
  std::string data, checkpoint, samples, classifier, summary;
  bool plain = false;
  int64_t number = 10'000;
  uint64_t seed = 1;
};

// Images as bytes, and the classes that they were to show.
struct Generated {
  Tensor bytes;
  Tensor labels = {};
};

Generated generated(const EvaluateArgs& a) {
  if (!a.samples.empty()) {
    const auto file = io::load_safetensors(a.samples);
    const Tensor images = file.contains("images") ? file.at("images") : Tensor();
    if (!images.defined() || images.dtype() != DType::kU8 || images.dim() != 4 || images.size(0) < 10)
      throw FileError("gan", a.samples, ": expected a tensor \"images\", u8[N,C,H,W], of 10 images or more");
    return {.bytes = slice(images, 0, 0, std::min(a.number, images.size(0)))};
  }
  const LoadedGan gan = load_gan(a.checkpoint);
  const Latents from = latents(a.number, a.seed, gan.options);
  return {.bytes = to_bytes(generate(*gan.net, from, a.plain ? nn::StateDict() : gan.averaged)),
          .labels = from.labels};
}

void print(const Evaluation& e, const std::string& kind, const std::string& sha256) {
  const std::string name = kind == "CIFAR10" ? "FID-CIFAR" : kind == "MNIST" ? "FID-MNIST" : "FID-digits";
  std::cout << train::format("%s %.3f   (n %lld, floor %.3f, features %.16s)\n", name.c_str(), e.frechet,
                             static_cast<long long>(e.n), e.floor, sha256.c_str())
            << train::format("score %.3f +- %.3f   confident %.1f %%   classes %lld   total variation %.4f\n",
                             e.scores.score, e.scores.score_std, 100 * e.scores.confident,
                             static_cast<long long>(e.scores.covered), e.scores.total_variation);
  if (!std::isnan(e.scores.agreement))
    std::cout << train::format("label and classifier agree on %.1f %%\n", 100 * e.scores.agreement);
}

void write_json(const std::string& file, const Evaluation& e, const std::string& kind,
                const std::string& sha256) {
  nlohmann::ordered_json j = {{"data", kind},
                              {"n", e.n},
                              {"frechet", e.frechet},
                              {"floor", e.floor},
                              {"score", e.scores.score},
                              {"score_std", e.scores.score_std},
                              {"confident", e.scores.confident},
                              {"classes", e.scores.covered},
                              {"total_variation", e.scores.total_variation},
                              {"features_sha256", sha256}};
  if (!std::isnan(e.scores.agreement)) j["agreement"] = e.scores.agreement;
  std::ofstream out(file);
  if (!(out << j.dump(2) << '\n').flush()) throw FileError("gan", file, ": cannot be written");
}

void evaluate_and_print(const EvaluateArgs& a) {
  if (a.checkpoint.empty() == a.samples.empty())
    throw ValueError("evaluate", "expected one of --checkpoint and --samples");
  const Generated images = generated(a);
  const int64_t size = images.bytes.size(2);
  const std::string kind = open_images({.dir = a.data, .size = size}).kind;
  const Classifier classifier(
      kind, a.classifier.empty() ? Classifier::default_file(kind) : std::filesystem::path(a.classifier));
  const Evaluation e = evaluate(classifier, {.dir = a.data, .size = size}, images.bytes, images.labels);
  print(e, kind, classifier.sha256());
  if (!a.summary.empty()) write_json(a.summary, e, kind, classifier.sha256());
}

}  // namespace

SeenImages look_at(const Classifier& classifier, const Tensor& bytes) {
  metrics::FeatureStatistics statistics;
  std::vector<Tensor> probabilities;
  for (int64_t i = 0; i < bytes.size(0); i += kBatch) {
    const Classifier::Seen seen = classifier(slice(bytes, 0, i, std::min(i + kBatch, bytes.size(0))));
    statistics.update(seen.features);
    probabilities.push_back(seen.probabilities);
  }
  return {.moments = statistics.compute(), .probabilities = cat(probabilities, 0), .shares = {}};
}

SeenImages look_at(const Classifier& classifier, const data::DatasetRef& set, int64_t count) {
  const data::Subset part = data::Subset::first(set, count);
  std::vector<Tensor> bytes, labels;
  for (const data::Batch& b : data::DataLoader(part, {.batch_size = kBatch, .world_size = 1})) {
    bytes.push_back(to_bytes(b.input));
    labels.push_back(b.target);
  }
  SeenImages seen = look_at(classifier, cat(bytes, 0));
  seen.shares = to(bincount(cat(labels, 0), {.minlength = seen.probabilities.size(1)}), DType::kF64);
  return seen;
}

Evaluation evaluate(const Classifier& classifier, const ImagesOptions& options, const Tensor& bytes,
                    const Tensor& labels) {
  ImagesOptions test = options, train = options;
  test.train = false, train.train = true;
  const SeenImages seen = look_at(classifier, bytes);
  const SeenImages reference = look_at(classifier, open_images(test).set, bytes.size(0));
  const SeenImages others = look_at(classifier, open_images(train).set, bytes.size(0));
  return {
      .n = bytes.size(0),
      .frechet = metrics::frechet_distance(seen.moments, reference.moments),
      .floor = metrics::frechet_distance(others.moments, reference.moments),
      .scores = metrics::class_scores(seen.probabilities, {.reference = reference.shares, .labels = labels})};
}

int run_evaluate(int argc, char** argv) {
  EvaluateArgs a;
  CLI::App line("Says how good generated images are");
  line.add_option("--data", a.data, "folder with MNIST or CIFAR-10 [generated digits]")->type_name("DIR");
  line.add_option("--checkpoint", a.checkpoint, "of ./run gan: its generator makes the images")
      ->type_name("FILE");
  line.add_option("--samples", a.samples, "instead: a safetensors file with \"images\", u8[N,C,H,W]")
      ->type_name("FILE");
  line.add_flag("--plain", a.plain, "the generator's last weights, instead of their average");
  line.add_option("--number", a.number, "images")
      ->check(CLI::Range(int64_t{10}, int64_t{1} << 20))
      ->capture_default_str();
  line.add_option("--seed", a.seed, "of the latents")->capture_default_str();
  line.add_option("--classifier", a.classifier, "its weights [the cache folder's]")->type_name("FILE");
  line.add_option("--summary", a.summary, "write the figures as JSON")->type_name("FILE");
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
