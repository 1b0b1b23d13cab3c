// `gan sample` and `gan interpolate`: load a checkpoint, generate images from seeded latents, and write them.
#include "gradus/examples/gans/show.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "gradus/examples/gans/checkpoint.h"
#include "gradus/examples/gans/samples.h"

namespace gradus::examples {
namespace {

struct ShowArgs {
  std::string out;
  std::string checkpoint = {};
  bool plain = false;
  int64_t number = 64, columns = 8;
  uint64_t seed = 1;
};

void add_options(CLI::App& line, ShowArgs& a) {
  line.add_option("--checkpoint", a.checkpoint, "of ./run gan")->type_name("FILE")->required();
  line.add_option("--out", a.out, "the picture, .png")->type_name("FILE")->capture_default_str();
  line.add_flag("--plain", a.plain, "the generator's last weights, instead of their average");
  line.add_option("--seed", a.seed, "of the latents")->capture_default_str();
}

int run(const char* command, const std::function<void()>& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    std::cerr << command << ": " << e.what() << std::endl;
    return 1;
  }
}

void write(const std::string& file, const Tensor& bytes, int64_t columns) {
  if (file.ends_with(".safetensors"))
    io::save_safetensors(file, {{"images", bytes}});
  else
    io::save_image(file, bytes, {.nrow = columns});
  std::cout << "Wrote " << file << std::endl;
}

// Returns spherical interpolations from latent i to latent i + 1 in `columns` steps, for 0 <= i < number.
Latents interpolations(const Latents& points, int64_t number, int64_t columns) {
  std::vector<Tensor> z, labels;
  for (int64_t i = 0; i < number; ++i)
    for (int64_t k = 0; k < columns; ++k) {
      const double t = columns > 1 ? double(k) / double(columns - 1) : 0;
      z.push_back(gan::slerp(select(points.z, 0, i), select(points.z, 0, i + 1), t));
      if (points.labels.defined()) labels.push_back(select(points.labels, 0, i));
    }
  return {.z = stack(z, 0), .labels = labels.empty() ? Tensor() : stack(labels, 0)};
}

}  // namespace

int run_sample(int argc, char** argv) {
  ShowArgs a = {.out = "samples.png"};
  CLI::App line("Writes images that a trained generator makes");
  add_options(line, a);
  line.add_option("--number", a.number, "images")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  CLI11_PARSE(line, argc, argv);
  return run("gan sample", [&] {
    const LoadedGan gan = load_gan(a.checkpoint);
    const Latents from = latents(a.number, a.seed, gan.options);
    write(a.out, to_bytes(generate(*gan.net, from, a.plain ? nn::StateDict() : gan.averaged)), a.columns);
  });
}

int run_interpolate(int argc, char** argv) {
  ShowArgs a = {.out = "walk.png", .number = 8, .columns = 10};
  CLI::App line("Writes walks between latents, a row each");
  add_options(line, a);
  line.add_option("--number", a.number, "walks")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  line.add_option("--steps", a.columns, "images of a walk")
      ->check(CLI::Range(int64_t{2}, int64_t{1000}))
      ->capture_default_str();
  CLI11_PARSE(line, argc, argv);
  return run("gan interpolate", [&] {
    const LoadedGan gan = load_gan(a.checkpoint);
    const Latents from = interpolations(latents(a.number + 1, a.seed, gan.options), a.number, a.columns);
    write(a.out, to_bytes(generate(*gan.net, from, a.plain ? nn::StateDict() : gan.averaged)), a.columns);
  });
}

}  // namespace gradus::examples
