// `gan sample`, `gan interpolate` and `gan mix`: load a checkpoint, generate images from seeded latents, and write
// them.
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
  double truncation = 1;
  int64_t cut = 0;
};

void add_options(CLI::App& line, ShowArgs& a) {
  line.add_option("--checkpoint", a.checkpoint, "of ./run gan")->type_name("FILE")->required();
  line.add_option("--out", a.out, "the picture, .png")->type_name("FILE")->capture_default_str();
  line.add_flag("--plain", a.plain, "the generator's last weights, instead of their average");
  line.add_option("--seed", a.seed, "of the latents")->capture_default_str();
  line.add_option("--truncation", a.truncation, "stylegan1, stylegan2: distance of styles from their average")
      ->check(CLI::Range(-2.0, 2.0))
      ->capture_default_str();
}

// A generator from a checkpoint, with the weights and the truncation of the command line.
struct Shown {
  LoadedGan gan;
  StyleNetworks* styles;  // the same networks; null if their generator has no styles
  nn::StateDict weights;  // in place of the last ones; {}: those

  Tensor images(const Latents& from) { return generate(*gan.net, from, weights); }
};

// Errors: ValueError for a truncation of a generator without styles.
Shown load(const ShowArgs& a) {
  Shown s = {.gan = load_gan(a.checkpoint)};
  s.styles = dynamic_cast<StyleNetworks*>(s.gan.net.get());
  if (!a.plain) s.weights = s.gan.averaged;
  if (s.styles)
    s.styles->truncation = a.truncation;
  else if (a.truncation != 1)
    throw ValueError("gan", "--truncation: ", s.gan.options.model,
                     " has no styles; stylegan1 and stylegan2 do");
  return s;
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

// Returns interpolations from point i to point i + 1 in `columns` steps, for 0 <= i < number.
Tensor interpolations(const Tensor& points, int64_t number, int64_t columns,
                      Tensor (*between)(const Tensor& a, const Tensor& b, double t)) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < number; ++i)
    for (int64_t k = 0; k < columns; ++k) {
      const double t = columns > 1 ? double(k) / double(columns - 1) : 0;
      all.push_back(between(select(points, 0, i), select(points, 0, i + 1), t));
    }
  return stack(all, 0);
}

// Styles are interpolated linearly, other latents spherically. A walk has the class of its first point.
Latents walks(Shown& s, const Latents& points, const ShowArgs& a) {
  if (s.styles)
    return {.ws = interpolations(styles(*s.styles, points, s.weights), a.number, a.columns,
                                 [](const Tensor& x, const Tensor& y, double t) { return lerp(x, y, t); })};
  Latents all = {.z = interpolations(points.z, a.number, a.columns, gan::slerp)};
  if (points.labels.defined())
    all.labels = repeat_interleave(slice(points.labels, 0, 0, a.number), a.columns, 0);
  return all;
}

// Returns images in rows of 1 + number: the first row and the first column are those of the sources, the others
// have the styles of their row's source before layer `cut`, and of their column's from there on.
Tensor mixing_table(Shown& s, int64_t number, int64_t cut, uint64_t seed) {
  const Latents sources = latents(2 * number, seed, s.gan.options);
  const Tensor of_rows = slice(sources.z, 0, 0, number), of_columns = slice(sources.z, 0, number, 2 * number);
  const Tensor same = full({number * number}, 0, {.dtype = DType::kI64});
  Latents mixed = {.z = repeat_interleave(of_rows, number, 0),
                   .mixed_z = repeat(of_columns, {number, 1}),
                   .cut = same + cut};
  if (sources.labels.defined()) mixed.labels = same;
  const auto alone = [&](const Tensor& z) {
    return s.images({.z = z, .labels = sources.labels.defined() ? slice(same, 0, 0, number) : Tensor()});
  };
  const Tensor rows = alone(of_rows), columns = alone(of_columns), table = s.images(mixed);
  std::vector<Tensor> all = {ones_like(slice(rows, 0, 0, 1)), columns};
  for (int64_t i = 0; i < number; ++i) {
    all.push_back(slice(rows, 0, i, i + 1));
    all.push_back(slice(table, 0, i * number, (i + 1) * number));
  }
  return cat(all, 0);
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
    Shown shown = load(a);
    write(a.out, to_bytes(shown.images(latents(a.number, a.seed, shown.gan.options))), a.columns);
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
    Shown shown = load(a);
    const Latents points = latents(a.number + 1, a.seed, shown.gan.options);
    write(a.out, to_bytes(shown.images(walks(shown, points, a))), a.columns);
  });
}

int run_mix(int argc, char** argv) {
  ShowArgs a = {.out = "mix.png", .number = 6};
  CLI::App line("Writes a table of images with mixed styles: coarse ones of a row, fine ones of a column");
  add_options(line, a);
  line.add_option("--number", a.number, "rows, and columns")
      ->check(CLI::Range(int64_t{1}, int64_t{100}))
      ->capture_default_str();
  line.add_option("--cut", a.cut, "the first layer with a column's styles [half of the layers]")
      ->check(CLI::Range(int64_t{1}, int64_t{18}));
  CLI11_PARSE(line, argc, argv);
  return run("gan mix", [&] {
    Shown shown = load(a);
    if (!shown.styles)
      throw ValueError("gan", "mix: ", shown.gan.options.model, " has no styles; stylegan1 and stylegan2 do");
    const int64_t cut = a.cut ? a.cut : shown.styles->layers() / 2;
    write(a.out, to_bytes(mixing_table(shown, a.number, cut, a.seed)), a.number + 1);
  });
}

}  // namespace gradus::examples
