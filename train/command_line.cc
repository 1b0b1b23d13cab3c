// CommandLine on top of CLI11: registers the options of RunOptions, reads the file of --config, checks ranges, and
// collects the values of all options after parsing. Keeps references to the variables and the RunOptions.
#include "gradus/train/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <istream>
#include <limits>
#include <set>
#include <type_traits>

#include "gradus/tensor/base/error.h"

namespace gradus::training {
namespace {

// Returns a validator of numbers within o's bounds. Without a bound the range starts at 0, and ends at 2^40 for
// integers, or at the largest double. NaN is out of range.
template <class T> CLI::Validator interval(const ArgumentOptions& o) {
  const double min = o.above.value_or(o.at_least.value_or(0));
  const double max = o.at_most.value_or(std::is_integral_v<T> ? 0x1p40 : std::numeric_limits<double>::max());
  const bool open = o.above.has_value();
  std::string text = open ? "ABOVE " : "FROM ";
  text += CLI::detail::to_string(min);
  if (o.at_most) text += " TO " + CLI::detail::to_string(max);
  return CLI::Validator(
      [=](const std::string& got) -> std::string {
        T value{};
        const bool reads = CLI::detail::lexical_cast(got, value);
        const double v = double(value);
        return reads && (open ? v > min : v >= min) && v <= max
                   ? ""
                   : "expected a number " + text + ", got " + got;
      },
      text);
}

// Returns a validator that replaces a count with a unit by its digits: 60k becomes 60000. Texts that are no count
// stay unchanged, so that the error message shows them.
CLI::Validator in_digits() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text.ends_with('k') || text.ends_with('M'))
          if (const auto count = parse_count(text)) text = std::to_string(*count);
        return "";
      },
      "");
}

// Reads the file of --config. Errors: CLI::ConfigError with file and line.
class ConfigFile final : public CLI::ConfigTOML {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
    constexpr size_t kMaxBytes = 1 << 20;
    const std::string file = app_.get_config_ptr()->as<std::string>();
    std::string text(kMaxBytes + 1, 0), section, line;
    in.read(text.data(), std::streamsize(text.size()));
    text.resize(size_t(in.gcount()));
    if (in.bad() || text.size() > kMaxBytes)
      throw CLI::ConfigError(file + ": expected a readable file of at most 1 MiB");
    std::vector<CLI::ConfigItem> items;
    std::set<const CLI::Option*> seen;
    std::istringstream lines(text);
    for (int number = 1; std::getline(lines, line); ++number) {
      const auto check = [&](bool ok, const std::string& message) {
        if (!ok) throw CLI::ConfigError(file + ":" + std::to_string(number) + ": " + message);
      };
      CLI::detail::trim(line);
      if (line.empty() || line[0] == '#' || line[0] == ';') continue;
      if (line[0] == '[') {
        check(line.back() == ']', "expected [SECTION], got " + line);
        section = line.substr(1, line.size() - 2) + ".";
        continue;
      }
      const size_t equals = line.find('=');
      check(equals != std::string::npos, "expected NAME = VALUE, got " + line);
      const std::string name = section + CLI::detail::trim_copy(line.substr(0, equals));
      std::string value = CLI::detail::trim_copy(line.substr(equals + 1));
      const CLI::Option* option = app_.get_option_no_throw("--" + name);
      if (!option) option = app_.get_option_no_throw(name);  // positional
      check(option && option->get_configurable(), "there is no option " + name);
      check(seen.insert(option).second, name + " is set twice");
      const bool quoted = value.starts_with('"') || value.starts_with('\'');
      const size_t end = std::min(value.size(), quoted ? value.find(value[0], 1) : value.find('#'));
      const std::string rest = CLI::detail::trim_copy(value.substr(std::min(value.size(), end + quoted)));
      check(end < value.size() || !quoted, "expected a quote at the end, got " + value);
      check(rest.empty() || rest[0] == '#', "expected one text in quotes, got " + value);
      value = quoted ? value.substr(1, end - 1) : CLI::detail::trim_copy(value.substr(0, end));
      check(quoted || !(value.empty() || value[0] == '[' || value[0] == '{'),
            "expected a number, true, false or text, got " + value);
      items.push_back({.name = name, .inputs = {value}});
    }
    return items;
  }

 private:
  const CLI::App& app_;
};

constexpr ArgumentOptions at_least(double low) { return {.at_least = low}; }

}  // namespace

// The CLI11 parser, and the options with functions that return their values.
struct CommandLine::Impl {
  // Registers `read`, which returns the option's value after parsing, for RunOptions::values.
  template <class Read> void add_value(CLI::Option* option, Read read) { values.emplace_back(option, read); }

  CLI::App app;
  RunOptions& run;
  int local_rank = 0;              // not used
  CLI::Option* devices = nullptr;  // --devices; null: the program does not have it
  std::vector<std::pair<CLI::Option*, std::function<OptionValue()>>> values = {};
};

CommandLine::~CommandLine() = default;

template <OptionVariable T>
void CommandLine::add(const std::string& names, T& variable, const std::string& help,
                      const ArgumentOptions& o) {
  CLI::Option* option = impl_->app.add_option(names, variable, help);
  using Value = std::conditional_t<std::is_same_v<T, int>, int64_t, T>;
  impl_->add_value(option, [&variable] { return Value(variable); });
  if (variable != T()) option->capture_default_str();
  if (!o.value.empty()) option->type_name(o.value);
  if (!o.one_of.empty()) option->check(CLI::IsMember(o.one_of));
  if constexpr (std::is_same_v<T, int64_t>) option->transform(in_digits());
  if constexpr (std::is_arithmetic_v<T>) {
    if (o.at_least || o.at_most || o.above) option->check(interval<T>(o));
  }
}

template void CommandLine::add(const std::string&, int&, const std::string&, const ArgumentOptions&);
template void CommandLine::add(const std::string&, int64_t&, const std::string&, const ArgumentOptions&);
template void CommandLine::add(const std::string&, uint64_t&, const std::string&, const ArgumentOptions&);
template void CommandLine::add(const std::string&, double&, const std::string&, const ArgumentOptions&);
template void CommandLine::add(const std::string&, std::string&, const std::string&, const ArgumentOptions&);

void CommandLine::add(const std::string& names, bool& v, const std::string& help) {
  impl_->add_value(impl_->app.add_flag(names, v, help), [&v] { return v; });
}

CommandLine::CommandLine(const std::string& program, const std::string& about, RunOptions& o)
    : impl_(new Impl{CLI::App(about), o}) {
  const std::string file = "DIR/" + program + ".ckpt";
  add("--nproc", o.nproc, "ranks on this machine", {.at_least = 1, .at_most = 256});
  add("--max-restarts", o.max_restarts,
      "times that ranks are started again after a failure; they go on from " + file,
      {.at_least = 0, .at_most = 1e6});
  add("--epochs", o.epochs, "passes over the training data", at_least(0));
  add("--iterations", o.iterations, "instead: steps of training", {.at_least = 1, .value = "N"});
  add("--images", o.images, "instead: images to train on, of all ranks", {.at_least = 1, .value = "N"});
  add("--seed", o.seed, "seed of all random numbers");
  add("--diff-seed", o.diff_seed, "each rank draws other numbers in training: seed + rank");
  add("--no-validate", o.no_validate, "no tests in training");
  impl_->app.config_formatter(std::make_shared<ConfigFile>(impl_->app));
  impl_->app
      .set_config("--config", "",
                  "read options from a TOML or INI file; those of the command line have precedence")
      ->type_name("FILE");
  add("-p,--log-interval,--print-freq", o.log_interval, "batches between two lines of the log", at_least(1));
  add("--dry-run", o.dry_run, "one training step and one test step only");
  add("-j,--workers", o.workers, "threads of each rank that prepare batches ahead",
      {.at_least = 0, .at_most = 256});
  add("--threads", o.threads, "threads of each rank that compute [its share of the cores]",
      {.at_least = 1, .at_most = 4096});
  add("--resume", o.resume, "continue from this checkpoint", {.value = "FILE"});
  add("--checkpoint-dir", o.checkpoint_dir, "write " + file + " after every epoch", {.value = "DIR"});
  add("--checkpoint-interval", o.checkpoint_interval, "write it also every K batches",
      {.at_least = 1, .value = "K"});
  add("--summary", o.summary, "write the results as JSON", {.value = "FILE"});
  add("--tensorboard", o.tensorboard, "write event files for TensorBoard", {.value = "DIR"});
  if (o.device) {
    const auto read = [&o](const std::string& text) {
      try {
        o.device = Device::parse(text);
      } catch (const Error& e) {
        throw CLI::ValidationError("--device", e.what());
      }
      if (o.device->type == DeviceType::kMeta) throw CLI::ValidationError("--device", "meta has no data");
      o.device_by_rank = text == "cuda";
    };
    CLI::Option* device = impl_->app
                              .add_option_function<std::string>(
                                  "--device", read, "where to train: cpu, or cuda for a GPU of each rank")
                              ->default_str(to_string(*o.device));
    impl_->add_value(device, [&o] { return to_string(*o.device); });
    CLI::Option* accel = impl_->app.add_flag_function(
        "--accel,--cuda", [read](int64_t) { read("cuda"); }, "as --device cuda");
    accel->excludes(device);
    if (!o.devices.empty()) {
      const auto read_list = [&o](const std::string& text) {
        try {
          o.device_by_rank = text == "cuda";
          o.devices = parse_devices(text);
        } catch (const Error& e) {
          throw CLI::ValidationError("--devices", e.what());
        }
      };
      impl_->devices =
          impl_->app
              .add_option_function<std::string>("--devices", read_list,
                                                "instead: each runs its part of a batch: cuda:0,cuda:1")
              ->type_name("LIST")
              ->excludes(device)
              ->excludes(accel);
      impl_->add_value(impl_->devices, [&o] { return devices_text(o); });
    }
    add("--deterministic", o.deterministic, "on a GPU: the same bits in every run; slower convolutions");
    add("--tf32", o.tf32, "on a GPU: f32 products and convolutions round operands to TF32; faster");
    add("--cudnn-benchmark", o.cudnn_benchmark,
        "on a GPU: time algorithms of convolutions, and keep the fastest; --cudnn-benchmark=false: do not");
  }
  if (o.amp)
    impl_->add_value(
        impl_->app
            .add_option_function<std::string>(
                "--amp",
                [&o](const std::string& text) { o.amp = text == "bf16" ? DType::kBF16 : DType::kF32; },
                "compute products and convolutions in this dtype: bf16")
            ->check(CLI::IsMember({"f32", "bf16"}))
            ->type_name("DTYPE")
            ->default_str(std::string(name_of(*o.amp))),
        [&o] { return std::string(name_of(*o.amp)); });
  if (o.capture)
    add("--capture", *o.capture, "record a training step, and replay its kernels: faster small steps");
  // torch.distributed.launch passes it; ranks have it in LOCAL_RANK, too.
  impl_->app.add_option("--local-rank,--local_rank", impl_->local_rank)
      ->check(CLI::NonNegativeNumber)
      ->group("");
  add("--sample-log", o.sample_log, "write which samples each step used", {.value = "FILE"});
}

void CommandLine::parse_or_exit(int argc, char** argv) {
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(impl_->app.exit(e) == 0 ? 0 : 2);
  }
  RunOptions& run = impl_->run;
  if (impl_->devices && impl_->devices->count() > 0)
    run.device = run.devices.front();
  else if (run.device)
    run.devices = {*run.device};
  run.values.clear();
  for (const auto& [option, value] : impl_->values)
    run.values.emplace_back(option->get_single_name(), value());
}

std::vector<Device> parse_devices(std::string_view text) {
  std::vector<Device> devices;
  for (size_t begin = 0, end = 0; end < text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    const Device device = Device::parse(text.substr(begin, end - begin));
    if (device.type == DeviceType::kMeta) throw ValueError("devices", "expected devices with data, got meta");
    if (std::ranges::count(devices, device) > 0)
      throw ValueError("devices", "expected different devices, got ", device, " twice");
    devices.push_back(device);
  }
  if (devices.empty()) throw ValueError("devices", "expected at least one device, got none");
  return devices;
}

std::string devices_text(const RunOptions& run) {
  if (run.devices.empty()) return to_string(run.device.value_or(kCPU));
  std::string text;
  for (const Device device : run.devices) text += (text.empty() ? "" : ",") + to_string(device);
  return text;
}

std::optional<int64_t> parse_count(const std::string& text) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc()) return {};
  const std::string unit(end, last);
  if (!unit.empty() && unit != "k" && unit != "M") return {};
  number *= unit == "k" ? 1e3 : unit == "M" ? 1e6 : 1;
  const double count = std::round(number);
  if (!(std::abs(count - number) < 1e-6 && count >= 0 && count <= 0x1p40)) return {};  // NaN too
  return int64_t(count);
}

}  // namespace gradus::training
