// Statistics of the measured times, and their presentation.
#include "gradus/examples/two_devices/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gradus/train/text.h"

namespace gradus::examples {
namespace {

using Json = nlohmann::ordered_json;
using training::format_text;

Json to_json(const Timing& t) {
  Json json = {{"name", t.name}, {"mean", t.mean()}, {"deviation", t.deviation()}, {"seconds", t.seconds}};
  if (t.split_size) json["split_size"] = t.split_size;
  if (t.predicted > 0) json["predicted"] = t.predicted;
  return json;
}

Json to_json(const LinearTime& t) { return {{"fixed", t.fixed}, {"per_image", t.per_image}}; }
Json to_json(const HalfTimes& t) {
  return {{"forward", to_json(t.forward)}, {"backward", to_json(t.backward)}, {"step", t.step}};
}

Bar bar_of(const Timing& t) { return {t.name, t.mean(), t.deviation()}; }

}  // namespace

double Timing::mean() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

double Timing::deviation() const {
  double sum = 0;
  for (const double s : seconds) sum += (s - mean()) * (s - mean());
  return std::sqrt(sum / static_cast<double>(seconds.size() - 1));
}

double ratio(const Timing& a, const Timing& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size(); ++i) ratios.push_back(a.seconds[i] / b.seconds[i]);
  std::ranges::sort(ratios);
  return (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
}

const Timing& Report::chosen() const {
  return *std::ranges::find(pipelined, chosen_split, &Timing::split_size);
}

const Timing& Report::best() const { return *std::ranges::min_element(pipelined, {}, &Timing::mean); }

std::string Report::table() const {
  std::string text = format_text("\n%-28s %9s %10s %10s\n", "", "seconds", "deviation", "predicted");
  const auto add = [&](const Timing& t) {
    text += format_text("%-28s %9.3f %10.3f", t.name, t.mean(), t.deviation());
    text += t.predicted > 0 ? format_text(" %10.3f\n", t.predicted) : "\n";
  };
  for (const Timing* t : {&one_device, &model_parallel, &data_parallel}) add(*t);
  for (const Timing& t : pipelined) add(t);
  return text;
}

std::string Report::conclusions() const {
  return format_text("\nModel parallel takes %.3f times as long as one device.\n",
                     ratio(model_parallel, one_device)) +
         format_text(
             "The fastest are splits of %d images: %.3f times as fast as model parallel; predicted: %.3f.\n",
             int(best().split_size), ratio(model_parallel, best()),
             model_parallel.predicted / best().predicted) +
         format_text("Splits of %d images, the predicted choice, take %.3f times as long as the fastest.\n",
                     int(chosen_split), ratio(chosen(), best()));
}

std::vector<Chart> Report::charts() const {
  Curve measured{.name = "measured"}, predicted{.name = "predicted"};
  for (const Timing& t : pipelined) {
    const auto x = static_cast<double>(t.split_size);
    measured.points.push_back({x, t.mean(), t.deviation()});
    predicted.points.push_back({x, t.predicted});
  }
  const std::string seconds =
      format_text("seconds (mean and deviation of %d)", int(one_device.seconds.size()));
  return {{.labels = {"ResNet-50 on two devices", "how it is trained", seconds},
           .bars = {bar_of(one_device), bar_of(model_parallel), bar_of(chosen()), bar_of(data_parallel)}},
          {.labels = {"Pipelined, by split size", "images in a split", seconds},
           .curves = {measured, predicted}}};
}

std::string Report::json() const {
  Json splits;
  for (const Timing& t : pipelined) splits.push_back(to_json(t));
  const Json json = {{"one_device", to_json(one_device)},
                     {"model_parallel", to_json(model_parallel)},
                     {"data_parallel", to_json(data_parallel)},
                     {"pipelined", splits},
                     {"chosen_split", chosen_split},
                     {"best_split", best().split_size},
                     {"model_parallel_over_one_device", ratio(model_parallel, one_device)},
                     {"speedup_of_best_split", ratio(model_parallel, best())},
                     {"predicted_speedup_of_best_split", model_parallel.predicted / best().predicted},
                     {"chosen_over_best_split", ratio(chosen(), best())},
                     {"halves", {{"first", to_json(halves.first)}, {"second", to_json(halves.second)}}}};
  return json.dump(2) + "\n";
}

}  // namespace gradus::examples
