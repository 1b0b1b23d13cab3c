// The table of metrics, their values from features and pixels (train/metrics), and the reference images: test
// images of a data set, or half of the image files.
#include "gradus/examples/gans/metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace gradus::examples {
namespace {

// Maximum numbers of images of metrics whose time grows faster than linearly.
constexpr int64_t kSwdImages = 2048, kPairImages = 10'000;

// The metrics, in the order of the output.
struct Metric {
  const char* name;
  const char* first;  // the value by which checkpoints are compared; null: none
  bool lower_is_better, needs_classifier;
  int64_t max_images = int64_t{1} << 40;
};
constexpr Metric kMetrics[] = {
    {.name = "frechet", .first = "frechet", .lower_is_better = true, .needs_classifier = true},
    {.name = "scores", .first = "score", .lower_is_better = false, .needs_classifier = true},
    {.name = "swd",
     .first = "swd",
     .lower_is_better = true,
     .needs_classifier = false,
     .max_images = kSwdImages},
    {.name = "ms_ssim",
     .first = nullptr,
     .lower_is_better = true,
     .needs_classifier = false,
     .max_images = kPairImages},
    {.name = "kid", .first = "kid", .lower_is_better = true, .needs_classifier = true},
    {.name = "precision_recall",
     .first = "precision",
     .lower_is_better = false,
     .needs_classifier = true,
     .max_images = kPairImages}};

const Metric& metric(const std::string& name) {
  std::string names;
  for (const Metric& m : kMetrics) {
    if (m.name == name) return m;
    names += std::string(names.empty() ? "" : ", ") + m.name;
  }
  throw ValueError("gan", "--metrics: expected ", names, ", got '", name, "'");
}

// Returns mean [D] and covariance [D, D] of features [N, D], in f64.
metrics::FeatureMoments moments(const Tensor& features) {
  const Tensor x = to(features, DType::kF64), middle = mean(x, {0}), d = x - middle;
  const Tensor covariance = matmul(transpose(d, 0, 1), d) / double(x.size(0) - 1);
  return {.mean = middle,
          .covariance = contiguous((covariance + transpose(covariance, 0, 1)) / 2),
          .count = x.size(0)};
}

Tensor first(const Tensor& x, int64_t n) { return slice(x, 0, 0, n); }

// The values of one metric.
using Values = std::vector<std::pair<std::string, double>>;

// `of_data`: whether the classes are those of the data set's labels; otherwise only the score has a meaning.
Values scores_of(const ClassifiedImages& a, const ClassifiedImages& reference, bool of_data) {
  if (!of_data) {
    const metrics::ClassScores s = metrics::class_scores(a.probabilities);
    return {{"score", s.score}, {"score_std", s.score_std}};
  }
  const Tensor counts = bincount(reference.labels, {.minlength = a.probabilities.size(1)});
  const metrics::ClassScores s =
      metrics::class_scores(a.probabilities, {.reference = to(counts, DType::kF64), .labels = a.labels});
  Values values = {{"score", s.score},
                   {"score_std", s.score_std},
                   {"confident", s.confident},
                   {"classes", double(s.covered)},
                   {"total_variation", s.total_variation}};
  if (!std::isnan(s.agreement)) values.emplace_back("agreement", s.agreement);
  return values;
}

Values swd_of(const Tensor& a, const Tensor& reference) {
  const metrics::SlicedWasserstein d = metrics::sliced_wasserstein(reference, a);
  Values values = {{"swd", d.mean}};
  int64_t size = a.size(2);
  for (const double level : d.levels) values.emplace_back(concat("swd_", size), level), size /= 2;
  return values;
}

Values values_of(const Metric& m, const ClassifiedImages& a, const ClassifiedImages& reference,
                 const ImageFeatures* network) {
  const std::string name = m.name;
  const int64_t n = std::min(a.n, m.max_images), others = std::min(reference.n, m.max_images),
                both = std::min(n, others);
  if (name == "frechet")
    return {{name, metrics::frechet_distance(moments(a.features), moments(reference.features))}};
  if (name == "scores") return scores_of(a, reference, network->has_classes_of_data());
  if (name == "swd") return swd_of(first(a.bytes, both), first(reference.bytes, both));
  if (name == "ms_ssim") return {{name, metrics::ms_ssim_diversity(first(a.bytes, n))}};
  if (name == "kid")
    return {{name, metrics::kernel_distance_of_subsets(a.features, reference.features).mean}};
  const auto p = metrics::precision_recall(first(reference.manifold, others), first(a.manifold, n));
  return {{"precision", p.precision}, {"recall", p.recall}};
}

// Returns `count` indices below `size` from a fixed random permutation, from position `begin`.
std::vector<int64_t> random_indices(int64_t size, int64_t begin, int64_t count) {
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>(0);
  const ContextScope scope(context);
  return slice(randperm(size), 0, begin, begin + count).to_vector<int64_t>();
}

// Returns up to n test or training images; of image files, one half is "test", the other "training".
ImageSource reference_of(ImagesOptions options, bool train, int64_t n) {
  options.train = train, options.flip = false;
  const Images images = open_images(options);
  const int64_t size = images.set->size();
  if (images.kind != "ImageFolder") {
    std::vector<int64_t> indices(size_t(std::min(n, size)));
    std::iota(indices.begin(), indices.end(), int64_t{0});
    return source_of(images.set, indices);
  }
  const int64_t half = size / 2;
  if (half < 10)
    throw ValueError("gan", options.dir, ": expected a folder of 20 images or more to compare with, got ",
                     size);
  return source_of(images.set, random_indices(size, train ? half : 0, std::min(n, half)));
}

}  // namespace

const char* const kMetricsHelp =
    "numbers to show: frechet, scores, swd, ms_ssim, kid, precision_recall. Of images, swd sees the first "
    "2048, "
    "ms_ssim and precision_recall 10000. Without Inception v3, only swd and ms_ssim take a folder of images";

std::vector<std::string> metric_names(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    if (std::ranges::count(names, metric(name).name))
      throw ValueError("gan", "--metrics: ", name, " occurs twice");
    names.push_back(name);
    begin = end + 1;
  }
  return names;
}

std::optional<std::pair<std::string, bool>> compared_by(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const Metric& m = metric(names.front());
  if (!m.first) return {};
  return std::pair(std::string(m.first), m.lower_is_better);
}

std::string text_of(const Figure& f, const std::string& mode) {
  std::string text = training::format_text("%s %.5g  (n %lld", f.name, f.value, f.n);
  if (!mode.empty()) text += ", " + mode;
  if (!std::isnan(f.floor)) text += training::format_text(", floor %.5g", f.floor);
  if (!f.features_sha256.empty()) text += ", features " + f.features_sha256.substr(0, 16);
  return text + ")";
}

ImageMetrics::ImageMetrics(ImageMetricsOptions options) : options_(std::move(options)) {
  kind_ = open_images(options_.images).kind;
  if (std::ranges::any_of(options_.names, [](const std::string& n) { return metric(n).needs_classifier; })) {
    network_ = options_.features;
    if (!network_)
      network_ = std::make_shared<Classifier>(
          kind_, options_.classifier.empty() ? Classifier::default_file(kind_) : options_.classifier);
    training::check_same_on_all_ranks("classifiers", network_->sha256() + network_->manifold_sha256());
  }
  reference_ = classify(reference_of(options_.images, false, options_.n));
  const ClassifiedImages others = classify(reference_of(options_.images, true, options_.n));
  floors_ = measure(others);
  for (Figure& f : floors_) f.floor = std::exchange(f.value, 0);
}

ClassifiedImages ImageMetrics::classify(const ImageSource& source) const {
  int64_t kept = 0;
  for (const std::string& name : options_.names)
    if (!metric(name).needs_classifier) kept = std::max(kept, metric(name).max_images);
  return classify_images(source, network_.get(), kept);
}

std::vector<Figure> ImageMetrics::measure(const ClassifiedImages& seen) const {
  nlohmann::ordered_json figures = nlohmann::ordered_json::array();
  if (training::is_first_rank())
    for (const std::string& name : options_.names) {
      const Metric& m = metric(name);
      const int64_t n = std::min({seen.n, m.max_images, name == "swd" ? reference_.n : seen.n});
      for (const auto& [key, value] : values_of(m, seen, reference_, network_.get()))
        figures.push_back({key, value, n, name});
    }
  if (dist::get_world_size() > 1)
    figures = nlohmann::ordered_json::parse(
        dist::broadcast_object(figures.dump(), {.timeout = std::chrono::hours(1)}));
  std::vector<Figure> result;
  for (const auto& f : figures) {
    const std::string name = f[3];
    result.push_back({.name = f[0],
                      .value = f[1].is_null() ? std::nan("") : f[1].get<double>(),
                      .n = f[2],
                      .features_sha256 = !metric(name).needs_classifier ? ""
                                         : name == "precision_recall"   ? network_->manifold_sha256()
                                                                        : network_->sha256()});
  }
  return result;
}

std::vector<Figure> ImageMetrics::operator()(const ImageSource& generated) const {
  std::vector<Figure> figures = measure(classify(generated));
  for (Figure& f : figures)
    if (const auto floor = std::ranges::find(floors_, f.name, &Figure::name); floor != floors_.end())
      f.floor = floor->floor;
  return figures;
}

}  // namespace gradus::examples
