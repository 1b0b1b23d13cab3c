// Reads the networks' options from a checkpoint, checks them and the shapes, and loads weights and average.
#include "gradus/examples/gans/checkpoint.h"

#include <bit>
#include <charconv>
#include <iostream>

#include "gradus/examples/gans/recipe.h"

namespace gradus::examples {
namespace {

// Parse an option's text into `value`. Errors: FileError naming the option.
void read(const std::string& text, std::string& value, const char*) { value = text; }
void read(const std::string& text, int64_t& value, const char* name) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 1 << 22)
    throw FileError("gan", name, ": expected a number from 0 to 4194304, got ", text);
}

void check(const std::string& file, const NetworkOptions& o) {
  if (o.size < 4 || o.size > 1024 || (o.channels != 1 && o.channels != 3) || o.width > 4096 ||
      o.disc_width > 4096)
    throw FileError("gan", file,
                    ": expected a network for images of 4 to 1024 pixels, 1 or 3 channels and a width ",
                    "of at most 4096, found size ", o.size, ", channels ", o.channels, ", width ", o.width);
}

// Checks shapes with networks on the meta device, which has no data: wrong options could require all memory.
void check_weights(const std::string& file, const Recipe& r, const NetworkOptions& o,
                   const io::Checkpoint& c) {
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>();
  context.device = Device{DeviceType::kMeta};
  const ContextScope scope(context);
  for (const auto& [name, x] : r.make(o)->state_dict())
    if (const Tensor& saved = c.tensor("model." + name); saved.shape() != x.shape())
      throw FileError("gan", file, ": its options make a network with ", name, ' ', gradus::describe(x),
                      ", but it holds ", gradus::describe(saved));
}

// Returns the resolution and the fade at the time of the checkpoint.
models::Scale read_scale(const std::string& file, const Recipe& r, const NetworkOptions& o,
                         const io::Checkpoint& c) {
  const models::Scale s = {.size = c.get<int64_t>("scale_size"), .fade = c.get<double>("scale_fade")};
  const bool fits = r.grows ? s.size >= 4 && s.size <= o.size && std::has_single_bit(uint64_t(s.size)) &&
                                  s.fade >= 0 && s.fade <= 1
                            : s.size == o.size && s.fade == 1;
  if (!fits)
    throw FileError("gan", file, ": the network has no scale of ", s.size, " pixels, fade ", s.fade,
                    "; it makes images of ", o.size, " pixels");
  return s;
}

}  // namespace

LoadedGan load_gan(const std::string& file) {
  const io::LoadedCheckpoint loaded = io::load_checkpoint(file);
  const io::Checkpoint& c = loaded.checkpoint;
  if (!loaded.warning.empty()) std::cerr << "gan: " << loaded.warning << std::endl;
  if (!c.contains("program") || c.get<std::string>("program") != "gan")
    throw FileError("gan", file, ": expected a checkpoint of ./run gan");
  LoadedGan gan;
  NetworkOptions::each(gan.options, [&](const char* name, auto& value) {
    const std::string key = std::string("fixed.") + name;
    if (c.contains(key) || std::string(name) != "disc_width") read(c.get<std::string>(key), value, name);
  });
  check(file, gan.options);
  const Recipe& r = recipe(gan.options.model);
  check_weights(file, r, gan.options, c);
  gan.net = r.make(gan.options);
  c.get("model", *gan.net);
  gan.net->scale = read_scale(file, r, gan.options, c);
  gan::Ema ema(*gan.net->gen, {.decay = 0.5});
  c.get("ema", ema);
  gan.averaged = ema.weights();
  return gan;
}

}  // namespace gradus::examples
