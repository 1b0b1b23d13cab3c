// Loads a checkpoint of the gpt program, whose settings define the network, and writes text with it.
#include "gradus/examples/text/sample.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "gradus/examples/text/args.h"

namespace gradus::examples {
namespace {

struct Loaded {
  data::Characters characters;
  std::unique_ptr<models::GPT> net;
};

// Checks shapes with a network on the meta device, which has no data: wrong options could require all memory.
void check_weights(const std::string& file, const models::GPTOptions& o, const io::Checkpoint& c) {
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>();
  context.device = Device{DeviceType::kMeta};
  const ContextScope scope(context);
  for (const auto& [name, x] : models::GPT(o).state_dict())
    if (const Tensor& saved = c.tensor("model." + name); saved.shape() != x.shape())
      throw FileError("gpt", file, ": its options make a network with ", name, ' ', describe(x),
                      ", but it holds ", describe(saved));
}

Loaded load(const std::string& file) {
  const io::LoadedCheckpoint loaded = io::load_checkpoint(file);
  const io::Checkpoint& c = loaded.checkpoint;
  if (!loaded.warning.empty()) std::cerr << "gpt: " << loaded.warning << std::endl;
  if (!c.contains("program") || c.get<std::string>("program") != "gpt")
    throw FileError("gpt", file, ": expected a checkpoint of ./run gpt");
  const auto number = [&](const char* name, int64_t max) {
    const std::string text = c.get<std::string>(concat("fixed.", name));
    const std::optional<int64_t> n = training::parse_count(text);
    if (!n || *n < 1 || *n > max)
      throw FileError("gpt", file, ": expected ", name, " from 1 to ", max, ", found ", text);
    return *n;
  };
  data::Characters characters(c.get<std::string>("fixed.characters"));
  const models::GPTOptions options = {.vocabulary = characters.size(),
                                      .context = number("context", kMaxContext),
                                      .layers = number("layers", kMaxLayers),
                                      .heads = number("heads", kMaxWidth),
                                      .width = number("width", kMaxWidth)};
  check_weights(file, options, c);
  Loaded result = {std::move(characters), std::make_unique<models::GPT>(options)};
  c.get("model", *result.net);
  return result;
}

std::string prompt_of(const WriteOptions& o, const data::Characters& characters) {
  return o.prompt.empty() ? characters.all().substr(0, 1) : o.prompt;
}

}  // namespace

std::string write_text(const std::function<Tensor(const Tensor&)>& logits_of, int64_t context,
                       const data::Characters& characters, const WriteOptions& o) {
  const auto off = no_record();
  std::string text = prompt_of(o, characters);
  for (int64_t i = 0; i < o.length; ++i) {
    const std::string_view all = text;
    const Tensor input = characters.encode(all.substr(all.size() - std::min(all.size(), size_t(context))));
    const Tensor logits = select(select(logits_of(unsqueeze(input, 0)), 0, 0), 0, -1);
    text += characters.decode(distributions::Categorical({.logits = logits / o.temperature}).sample());
  }
  return text;
}

int run_text_sample(int argc, char** argv) {
  WriteOptions o;
  std::string checkpoint, device = "cpu";
  uint64_t seed = 1;
  CLI::App line("Prints text that a trained model writes");
  line.add_option("--checkpoint", checkpoint, "of ./run gpt")->type_name("FILE")->required();
  line.add_option("--length,--max_new_tokens", o.length, "characters")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  line.add_option("--prompt,--start", o.prompt, "what goes before [the first of all characters]")
      ->type_name("TEXT");
  line.add_option("--temperature", o.temperature,
                  "below 1, likely characters come more often; 0: the likeliest")
      ->check(CLI::Range(0., 1e3))
      ->capture_default_str();
  line.add_option("--top-k,--top_k", o.top_k, "draw among the K likeliest characters alone [all]")
      ->check(CLI::Range(int64_t{1}, int64_t{256}))
      ->type_name("K");
  line.add_option("--seed", seed, "of what is drawn")->capture_default_str();
  line.add_option("--device", device, "where to compute: cpu, or cuda for a GPU")->capture_default_str();
  CLI11_PARSE(line, argc, argv);
  try {
    const Loaded loaded = load(checkpoint);
    models::GPT& net = *loaded.net;
    const Device where = Device::parse(device);
    net.to(where);
    net.eval();
    manual_seed(seed);
    const Tensor prompt = unsqueeze(loaded.characters.encode(prompt_of(o, loaded.characters)), 0);
    const Tensor text =
        net.generate(to(prompt, where), {.max_new_tokens = o.length,
                                         .temperature = o.temperature,
                                         .top_k = std::min(o.top_k, loaded.characters.size())});
    std::cout << loaded.characters.decode(select(text, 0, 0)) << std::endl;
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "gpt sample: " << e.what() << std::endl;
    return 1;
  }
}

}  // namespace gradus::examples
