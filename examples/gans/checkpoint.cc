#include "gradus/examples/gans/checkpoint.h"

#include <charconv>
#include <iostream>

#include "gradus/examples/gans/recipe.h"

namespace gradus::examples {
namespace {

void read(const std::string& text, std::string& value, const char*) { value = text; }
void read(const std::string& text, int64_t& value, const char* name) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 1 << 20)
    throw FileError("gan", name, ": expected a number from 0 to 2^20, given ", text);
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
    read(c.get<std::string>(std::string("fixed.") + name), value, name);
  });
  gan.net = recipe(gan.options.model).make(gan.options);
  c.get("model", *gan.net);
  gan.net->scale = {.size = c.get<int64_t>("scale_size"), .fade = c.get<double>("scale_fade")};
  gan::Ema ema(*gan.net->gen, {.decay = 0.5});
  c.get("ema", ema);
  gan.averaged = ema.weights();
  return gan;
}

}  // namespace gradus::examples
