// Trains the network of PyTorch's mnist example: to 99.0 % on MNIST's test set in 5 epochs, to 99.2 % in 14.
//
//   ./run mnist --download            without MNIST: generated digits; --device cuda: on a GPU
//   ./run mnist --devices cuda:0,cuda:1    on two GPUs, each with half of every batch
//   ./run mnist --capture             steps are recorded and replayed
//   ./run mnist --nproc 4             4 ranks, data parallel; also under gradus-run, torchrun, Slurm, ...;
//                                     with --device cuda each on a GPU
#include "gradus/gradus.h"
using namespace gradus;

// RunOptions: the options of all training programs, such as --epochs, --device, --nproc and --checkpoint-dir.
struct Args : training::RunOptions {
  Args() { epochs = 14, device = kCPU, devices = {kCPU}, amp = DType::kF32, capture = false; }
  int64_t batch_size = 64, global_batch_size = 0, test_batch_size = 1000, train_samples = 0, test_samples = 0;
  double lr = 1.0, gamma = 0.7;
  bool save_model = false, download = false;
  std::string data;
};

Args parse(int argc, char** argv) {
  Args a;
  training::CommandLine line("mnist", "Trains a convolutional network on MNIST", a);
  line.add("--batch-size", a.batch_size, "images per training step, of each rank", {.at_least = 1});
  line.add("--global-batch-size", a.global_batch_size, "instead: of all ranks together", {.at_least = 1});
  line.add("--test-batch-size", a.test_batch_size, "images per test step, of each rank", {.at_least = 1});
  line.add("--lr", a.lr, "learning rate", {.at_least = 0});
  line.add("--gamma", a.gamma, "factor of the learning rate after each epoch", {.at_least = 0});
  line.add("--save-model", a.save_model, "write the weights to mnist_cnn.safetensors");
  line.add("--data", a.data, "folder with the four files of MNIST, plain or .gz", {.value = "DIR"});
  line.add("--download", a.download, "fetch MNIST (11.6 MB) into the data folder if it is not there");
  line.add("--train-samples", a.train_samples, "use only the first N training images", {.at_least = 1});
  line.add("--test-samples", a.test_samples, "use only the first N test images", {.at_least = 1});
  line.parse_or_exit(argc, argv);
  return a;
}

// Returns MNIST, or generated digits if the default folder does not have MNIST.
data::DatasetRef images(const Args& a, bool train) {
  const std::string dir = a.data.empty() ? (data::cache_dir() / "mnist").string() : a.data;
  const int64_t samples = train ? a.train_samples : a.test_samples;
  if (a.download)
    training::on_one_rank_per_host([&] { data::download_mnist(dir, training::download_bar()); });
  if (a.data.empty() && !data::MNIST::available(dir)) {
    if (train) training::print("Training on generated digits: there is no MNIST in " + dir);
    return data::GeneratedDigits({.train = train, .size = samples ? std::optional(samples) : std::nullopt});
  }
  const data::DatasetRef all = data::MNIST(dir, {.train = train});
  return samples ? data::Subset::first(all, samples) : all;
}

// Trains the network. Every rank runs this function; data-parallel ranks average their gradients.
void fit(const Args& a) {
  manual_seed(a.seed);
  const auto amp = training::mixed_precision(a);
  data::DataLoader loader(images(a, true), {.batch_size = a.global_batch_size ? 1 : a.batch_size,
                                            .global_batch_size = a.global_batch_size,
                                            .shuffle = true,
                                            .num_workers = a.workers,
                                            .device = a.device});
  data::DataLoader test_loader(
      images(a, false), {.batch_size = a.test_batch_size, .num_workers = a.workers, .device = a.device});
  dist::DataParallel<models::MnistNet> replicas([] { return std::make_unique<models::MnistNet>(); },
                                                {.device_ids = a.devices});
  models::MnistNet& net = replicas.module();  // on the first device
  dist::bcast_list_(net);                     // all ranks start with the weights of rank 0
  GradManager gm;
  gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
  optim::Adadelta opt(net.parameters(), {.lr = a.lr});
  optim::StepLR schedule(opt, {.step_size = 1, .gamma = a.gamma});
  training::Training training(
      "mnist", a, loader, {{"model", net}, {"optimizer", opt}, {"schedule", schedule}},
      {.count_by = training::CountBy::kEpochs,
       .on_epoch = [&] { schedule.step(); },
       .test = [&] { return training::evaluate(training, net, test_loader, std::ref(replicas)); }});
  training::describe(training, net, test_loader);
  using Tensors = std::vector<Tensor>;
  const auto step = training::training_step(a, [&](const Tensors& in) -> Tensors {
    auto recording = gm.record();
    const Tensor logits = replicas(in[0]), loss = nn::cross_entropy(logits, in[1]);
    gm.backward(loss);
    opt.step().clear_grad();
    return {loss, logits};
  });
  for (training::Step& s : training) {
    const Tensors results = step({s.batch().input, s.batch().target});
    s.log(training::score(results[0], results[1], s.batch()));
  }
  training::report(training);
  if (a.save_model && training::is_first_rank())
    io::save_safetensors("mnist_cnn.safetensors", net.state_dict());
}

int main(int argc, char** argv) { return training::run("mnist", parse(argc, argv), fit); }
