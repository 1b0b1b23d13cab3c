// Benchmark of image loading, compared with libjpeg-turbo alone.
//
//   ./run image-loader --data DIR
//     RandomResizedCrop, flip, normalization and batching of DIR's JPEGs (one folder per class), against
//     libjpeg-turbo decoding the same whole files at the scales that the crops use; per core, with 1 and 2 workers
//   ./run image-loader --data DIR --overlap
//     training steps of a ResNet-18 with and without a concurrent loader
//
// Sides run alternately; the order changes every round. Files are in the page cache, and each side reads them
// again.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

// jpeglib.h requires declarations of size_t and FILE.
#include <jpeglib.h>

#include "benchmarks/statistics.h"
#include "gradus/gradus.h"
#include "gradus/models/resnet.h"

namespace gradus::bench {
namespace {

namespace fs = std::filesystem;
using data::Box;
using nlohmann::ordered_json;

struct Args {
  std::string data, json_file;
  int64_t size = 224, batch = 32;
  int rounds = 15, passes = 4, threads = 0;
  bool exact = false, overlap = false;
};

Args parse(int argc, char** argv) {
  Args a;
  CLI::App app("Times the way of photographs into batches against libjpeg-turbo alone.");
  app.add_option("--data", a.data, "a folder with one folder of JPEGs per class")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--size", a.size, "of the square that crops are resized to")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--batch", a.batch)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--rounds", a.rounds)->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--passes", a.passes, "over the photographs in a round, per side")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--exact", a.exact, "never decode at a smaller scale: Pillow's bits");
  app.add_flag("--overlap", a.overlap, "instead: loading beside training");
  app.add_option("--threads", a.threads,
                 "with --overlap: of training; one core less than there are by default")
      ->check(CLI::Range(1, 1024));
  app.add_option("--json", a.json_file, "write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  return a;
}

// ---- libjpeg-turbo alone ----

std::vector<uint8_t> bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<uint8_t> bytes(fs::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// Decodes the whole image at 1/scale to RGB into `pixels`.
void decode_alone(const std::vector<uint8_t>& file, unsigned scale, std::vector<uint8_t>& pixels) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.scale_num = 1;
  info.scale_denom = scale;
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t row = size_t{3} * info.output_width;
  pixels.resize(row * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW to = pixels.data() + row * info.output_scanline;
    jpeg_read_scanlines(&info, &to, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

// Returns the scale denominator (1, 2, 4 or 8) with which the loader decodes a box.
unsigned scale_of(Box box, int64_t size) {
  unsigned scale = 8;
  while (scale > 1 && std::min(box.width, box.height) < int64_t{scale} * size) scale /= 2;
  return scale;
}

struct Photo {
  fs::path path;
  int64_t height, width;
};

// Decodes all photos, divided between `threads` threads.
void decode_all(const std::vector<Photo>& photos, const Args& args, int threads) {
  const data::RandomResizedCrop crop({.size = args.size});
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      std::vector<uint8_t> pixels;
      for (int pass = 0; pass < args.passes; ++pass)
        for (size_t i = static_cast<size_t>(t); i < photos.size(); i += static_cast<size_t>(threads)) {
          const Photo& p = photos[i];
          const unsigned scale = args.exact ? 1 : scale_of(crop.draw_box(p.height, p.width), args.size);
          decode_alone(bytes_of(p.path), scale, pixels);
        }
    });
  for (std::thread& worker : workers) worker.join();
}

// ---- the loader ----

data::Transform training_transform(const Args& args) {
  return data::Compose(
      {data::RandomResizedCrop({.size = args.size, .scaled_decoding = !args.exact}),
       data::RandomHorizontalFlip(), data::ToTensor(),
       data::Normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}})});
}

void load_all(data::DataLoader& loader) {
  for (const data::Batch& b : loader) static_cast<void>(b);
}

// ---- comparisons ----

void report(const char* name, const std::vector<double>& v, const char* unit) {
  std::printf("  %-52s %9.2f %s   (10%% %.2f, 90%% %.2f)\n", name, median(v), unit, quantile(v, .1),
              quantile(v, .9));
}

// Compares images per second and worker of the loader and of libjpeg-turbo.
ordered_json against_decoder(const data::Dataset& set, const std::vector<Photo>& photos, const Args& args,
                             int workers) {
  // One long epoch, so that the cost of starting and ending an epoch is negligible.
  std::vector<int64_t> indices;
  for (int pass = 0; pass < args.passes; ++pass)
    for (int64_t i = 0; i < set.size(); ++i) indices.push_back(i);
  const data::Subset repeated(set, std::move(indices));
  data::DataLoader loader(repeated, {.batch_size = args.batch, .shuffle = true, .num_workers = workers});
  std::vector<double> decoder_rates, loader_rates, ratio;
  const double images = static_cast<double>(photos.size()) * args.passes;
  for (int round = -1; round < args.rounds; ++round) {  // round -1 is a warm-up
    double a = 0, b = 0;
    for (int side = 0; side < 2; ++side) {
      if ((side + round) % 2 != 0) {
        a = images / seconds_of([&] { decode_all(photos, args, workers); }) / workers;
      } else {
        b = images / seconds_of([&] { load_all(loader); }) / workers;
      }
    }
    if (round < 0) continue;
    decoder_rates.push_back(a);
    loader_rates.push_back(b);
    ratio.push_back(b / a);
  }
  std::printf("%d worker%s, per core\n", workers, workers == 1 ? "" : "s");
  report("libjpeg-turbo, decoding alone", decoder_rates, "images/s");
  report("decoding, cropping, resizing, normalizing, batching", loader_rates, "images/s");
  report("ratio", ratio, "        ");
  return {{"workers", workers},
          {"decoder", median(decoder_rates)},
          {"loader", median(loader_rates)},
          {"ratio", median(ratio)}};
}

// Times training steps and loading, in ms per step: each alone, one after the other, and concurrently.
ordered_json beside_training(const data::Dataset& set, const Args& args) {
  set_num_threads(args.threads > 0 ? args.threads : std::max(1, num_threads() - 1));
  models::ResNet net(models::resnet18());
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 1e-3});
  const auto step = [&](const Tensor& input, const Tensor& target) {
    auto recording = gm.record();
    gm.backward(nn::cross_entropy(net(input), target));
    opt.step().clear_grad();
  };
  data::DataLoader none(set, {.batch_size = args.batch, .drop_last = true});
  data::DataLoader concurrent_loader(set, {.batch_size = args.batch, .num_workers = 1, .drop_last = true});
  const data::Batch first = *none.begin();
  const double steps = static_cast<double>(none.size());
  const auto milliseconds = [&](auto&& f) { return 1e3 * seconds_of(f) / steps; };
  const auto train = [&](data::DataLoader& loader) {
    for (const data::Batch& b : loader) step(b.input, b.target);
  };
  std::vector<double> step_alone, loading, in_turn, overlapped;
  for (int round = -1; round < args.rounds; ++round) {
    const double a = milliseconds([&] {
      for (int64_t i = 0; i < none.size(); ++i) step(first.input, first.target);
    });
    const double l = milliseconds([&] { load_all(none); });
    const double t = milliseconds([&] { train(none); }), o = milliseconds([&] { train(concurrent_loader); });
    if (round < 0) continue;
    step_alone.push_back(a), loading.push_back(l), in_turn.push_back(t), overlapped.push_back(o);
  }
  std::printf("ResNet-18, batch %lld, %d thread(s)\n", static_cast<long long>(args.batch), num_threads());
  report("a training step alone", step_alone, "ms");
  report("loading a batch alone", loading, "ms");
  report("both in turn (no workers)", in_turn, "ms");
  report("both at once (1 worker)", overlapped, "ms");
  return {{"threads", num_threads()},
          {"step_ms", median(step_alone)},
          {"load_ms", median(loading)},
          {"in_turn_ms", median(in_turn)},
          {"overlapped_ms", median(overlapped)}};
}

int run(int argc, char** argv) {
  const Args args = parse(argc, argv);
  const data::ImageFolder set(args.data, {.transform = training_transform(args)});
  ordered_json result;
  if (args.overlap) {
    result["overlap"] = beside_training(set, args);
  } else {
    std::vector<Photo> photos;
    for (int64_t i = 0; i < set.size(); ++i) {
      const data::Image image = set.image(i);
      photos.push_back({set.path(i), image.height(), image.width()});
    }
    std::printf("%zu photographs, %lld x %lld, batch %lld\n", photos.size(),
                static_cast<long long>(args.size), static_cast<long long>(args.size),
                static_cast<long long>(args.batch));
    for (int workers : {1, 2}) result["comparisons"].push_back(against_decoder(set, photos, args, workers));
  }
  if (!args.json_file.empty()) std::ofstream(args.json_file) << result.dump(2) << '\n';
  return 0;
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  try {
    return gradus::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
