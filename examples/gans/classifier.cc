// The classifier of metrics, and its training (`gan classifier`) with Adam and a one-cycle learning rate.
#include "gradus/examples/gans/classifier.h"

#include <functional>

#include "gradus/data/files/sha256.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;

// One of the two networks, with the normalization of its input.
struct Network {
  explicit Network(const std::string& kind) {
    if (kind == "CIFAR10")
      make<models::ResNet>({0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}, cifar());
    else
      make<models::MnistNet>({0.1307f}, {0.3081f});
  }

  // Normalizes bytes; crops digits of 32x32 pixels. Shapes: u8[N,C,H,W] -> f32[N,C,28,28] or [N,C,32,32].
  Tensor input(const Tensor& bytes) const {
    Tensor x = bytes;
    if (channels() == 1 && x.size(2) == 32) x = slice(slice(x, 2, 2, 30), 3, 2, 30);
    const int64_t expected = channels() == 1 ? 28 : 32;
    if (x.dim() != 4 || x.size(1) != channels() || x.size(2) != expected || x.size(3) != expected)
      throw ShapeError("classifier", "expected images of ", channels(), " channels, ", expected, " by ",
                       expected, " pixels, got ", gradus::describe(bytes));
    return (to(x, DType::kF32) / 255 - mean) / std;
  }
  // Applies the network's last layer to features.
  Tensor logits(const Tensor& x) const { return dynamic_cast<nn::Layer&>(*net->children().back())(x); }

  std::unique_ptr<nn::Layer> net;
  std::function<Tensor(const Tensor&)> features;
  Tensor mean, std;  // f32[C,1,1]

 private:
  static models::ResNetOptions cifar() {
    models::ResNetOptions o = models::cifar_resnet(20);
    o.stem = models::ResNetOptions::Stem::kCifar;
    return o;
  }
  template <class Net, class... Options>
  void make(const std::vector<float>& means, const std::vector<float>& stds, Options... options) {
    auto new_net = std::make_unique<Net>(options...);
    features = [p = new_net.get()](const Tensor& x) { return p->features(x); };
    net = std::move(new_net);
    const auto count = int64_t(means.size());
    mean = tensor(means, {count, 1, 1}), std = tensor(stds, {count, 1, 1});
  }
  int64_t channels() const { return mean.size(0); }
};

}  // namespace

struct Classifier::Net : Network {
  using Network::Network;
};

Classifier::~Classifier() = default;

fs::path Classifier::default_file(const std::string& kind) {
  return data::cache_dir() / "gan" / ("classifier_" + kind + ".safetensors");
}

Classifier::Classifier(const std::string& kind, const fs::path& file) {
  if (kind == "ImageFolder")
    throw ValueError(
        "gan", "this metric looks through a classifier, which there is for MNIST, CIFAR-10 and generated ",
        "digits, not for a folder of images: --metrics swd,ms_ssim needs none, and gan evaluate takes ",
        "--inception FILE");
  if (std::error_code error; !fs::exists(file, error))
    throw FileError("gan", file.string(), ": no such file. Train it once: ./run gan classifier",
                    kind == "GeneratedDigits" ? "" : " --data DIR");
  net_ = std::make_unique<Net>(kind);
  io::load_weights(*net_->net, file);
  net_->net->eval();
  sha256_ = data::sha256_of_file(file);
}

Classifier::Output Classifier::operator()(const Tensor& bytes) const {
  const auto off = no_record();
  const Tensor features = net_->features(net_->input(bytes));
  return {.features = features, .probabilities = softmax(net_->logits(features), 1)};
}

// ---- its training ----

namespace {

struct ClassifierArgs : training::RunOptions {
  std::string data, out;
  int64_t batch = 64;
};

// Images of the native size, as bytes, like the samples that the classifier will see.
data::DataLoader loader(const ClassifierArgs& a, bool train) {
  return data::DataLoader(open_images({.dir = a.data, .train = train}).set,
                          {.global_batch_size = train ? a.batch : 1000,
                           .shuffle = train,
                           .num_workers = a.workers,
                           .seed = a.seed});
}

void train_classifier(const ClassifierArgs& given) {
  ClassifierArgs a = given;
  const std::string kind = open_images({.dir = a.data}).kind;
  if (kind == "ImageFolder")
    throw ValueError("classifier", a.data, ": expected a folder with MNIST or CIFAR-10, found images");
  if (a.epochs == 0) a.epochs = kind == "CIFAR10" ? 20 : 3;
  const fs::path file = a.out.empty() ? Classifier::default_file(kind) : fs::path(a.out);
  manual_seed(a.seed);
  Network network(kind);
  nn::Layer& net = *network.net;
  data::DataLoader images = loader(a, true), test_images = loader(a, false);
  const auto input = [&](const data::Batch& b) {
    return network.input(to(round((b.input + 1) * 127.5), DType::kU8));
  };
  dist::bcast_list_(net);
  GradManager gm;
  gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
  optim::Adam opt(net.parameters(), {.lr = 1e-3});
  const int64_t epochs = a.epochs;
  optim::OneCycleLR schedule(opt,
                             {.max_lr = 4e-3, .total_steps = std::max<int64_t>(1, epochs * images.size())});
  const auto test = [&] {
    const nn::ModeScope mode(net, false);
    const auto off = no_record();
    training::Tally tally;
    for (const data::Batch& b : test_images) {
      const Tensor logits = net(input(b));
      tally.add(training::score(nn::cross_entropy(logits, b.target), logits, b));
    }
    return tally.reduce();
  };
  training::Training training("classifier", a, images,
                              {{"model", net}, {"optimizer", opt}, {"schedule", schedule}},
                              {.count_by = training::CountBy::kEpochs, .test = test});
  for (training::Step& s : training) {
    const data::Batch& b = s.batch();
    auto recording = gm.record();
    const Tensor logits = net(input(b)), loss = nn::cross_entropy(logits, b.target);
    gm.backward(loss);
    opt.step().clear_grad();
    schedule.step();
    s.log(training::score(loss, logits, b));
  }
  if (!training::is_first_rank()) return;
  fs::create_directories(file.parent_path().empty() ? fs::path(".") : file.parent_path());
  io::save_weights(net, file);
  training::print(concat("Wrote ", file.string()));
}

}  // namespace

int run_classifier(int argc, char** argv) {
  ClassifierArgs a;
  a.epochs = 0, a.log_interval = 200;
  training::CommandLine line(
      "classifier", "Trains the classifier that metrics look through: in 3 epochs, of CIFAR-10 in 20", a);
  line.add("--data", a.data, "folder with MNIST or CIFAR-10 [generated digits]", {.value = "DIR"});
  line.add("--batch", a.batch, "images of a step, of all ranks", {.at_least = 1, .at_most = 1 << 20});
  line.add("--out", a.out, "where its weights are written [the cache folder]", {.value = "FILE"});
  line.parse_or_exit(argc, argv);
  return training::run("classifier", a, train_classifier);
}

}  // namespace gradus::examples
