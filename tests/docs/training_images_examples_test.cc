// The examples of docs/guide/training-images.md: that they compile, learn, and resume as the page says.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "gradus/gradus.h"
#include "gradus/io/save_image.h"
#include "gradus/models/resnet.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

// Writes `count` noisy pictures of each class: red and green.
void write_pictures(const fs::path& dir, int64_t count) {
  for (const int64_t label : {0, 1})
    for (int64_t i = 0; i < count; ++i) {
      const fs::path folder = dir / (label ? "red" : "green");
      fs::create_directories(folder);
      Tensor x = rand({3, 36, 40}) * 0.5;
      x[{1 - label}] = x[{1 - label}] + 0.3;
      io::save_image(folder / (std::to_string(i) + ".png"), x);
    }
}

class TrainingImagesPage : public testing::Test {
 protected:
  TrainingImagesPage() {
    fs::remove_all(pets);
    fs::create_directories("runs");
    manual_seed(1);
    set_num_threads(1);  // the steps are small
    write_pictures(pets / "train", 32);
    write_pictures(pets / "val", 10);
  }
  const fs::path pets = fs::path(testing::TempDir()) / "pets";
};

double mean(const std::vector<float>& values, size_t begin, size_t end) {
  return std::accumulate(values.begin() + long(begin), values.begin() + long(end), 0.0) / double(end - begin);
}

TEST_F(TrainingImagesPage, AProgramOfOnesOwnLearns) {
  const std::string arch = "resnet20";
  const int64_t size = 32;
  const int epochs = 4;
  std::vector<float> losses;
  const data::Normalize normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}});
  data::ImageFolder train(
      pets / "train",
      {.transform = data::Compose({data::RandomResizedCrop({.size = size}), data::RandomHorizontalFlip(),
                                   data::ToTensor(), normalize})});
  data::ImageFolder val(pets / "val", {.transform = data::Compose({data::Resize({.size = size * 256 / 224}),
                                                                   data::CenterCrop({.size = size}),
                                                                   data::ToTensor(), normalize})});
  data::DataLoader train_loader(train, {.batch_size = 16, .shuffle = true, .num_workers = 2, .seed = 1});
  data::DataLoader val_loader(val, {.batch_size = 16});

  const int64_t classes = int64_t(train.classes().size());
  models::ResNet net(models::resnet(arch, {.classes = classes}));
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4});
  optim::CosineAnnealingLR schedule(opt, {.t_max = epochs});

  for (int epoch = 0; epoch < epochs; ++epoch) {
    net.train();
    for (const data::Batch& b : train_loader) {
      auto recording = gm.record();
      Tensor loss = nn::cross_entropy(net(b.input), b.target);
      gm.backward(loss);
      opt.step().clear_grad();
      losses.push_back(loss.item<float>());
    }
    schedule.step();
  }
  ASSERT_EQ(losses.size(), 16u);
  const double first = mean(losses, 0, 4), last = mean(losses, 12, 16);
  EXPECT_LT(last, 0.6 * first);
  EXPECT_LT(last, 0.5);
  net.eval();
  const auto off = no_record();
  int64_t right = 0;
  for (const data::Batch& b : val_loader) {
    const auto best = argmax(net(b.input), 1).to_vector<int64_t>(), target = b.target.to_vector<int64_t>();
    for (int64_t i = 0; i < b.size() - b.padding; ++i) right += best[size_t(i)] == target[size_t(i)];
  }
  EXPECT_GE(right, 18);
}

// A network, and a batch to train it with.
struct Step {
  models::ResNet net{models::cifar_resnet(20, {.classes = 2})};
  optim::SGD opt{net.parameters(), {.lr = 0.05, .momentum = 0.9}};
  optim::StepLR schedule{opt, {.step_size = 1}};
  data::FakeData images{{.size = 32, .image_size = 32, .classes = 2}};
  data::DataLoader train_loader{images, {.batch_size = 16, .shuffle = true, .seed = 1}};
  const data::Batch b = *train_loader.begin();
};

TEST_F(TrainingImagesPage, WeightsOfANetworkForOtherClasses) {
  fs::current_path(testing::TempDir());
  models::ResNet other(models::cifar_resnet(20, {.classes = 10}));
  io::save_safetensors("resnet.safetensors", other.state_dict());
  models::ResNet net(models::cifar_resnet(20, {.classes = 2}));
  nn::StateDict weights = io::load_safetensors("resnet.safetensors").tensors;
  std::erase_if(weights, [](const auto& named) { return named.first.starts_with("fc."); });
  net.load_state_dict(weights, {.strict = false});
  const auto value = [](nn::Module& m, const char* name) {
    for (const auto& [key, tensor] : m.state_dict())
      if (key == name) return tensor.to_vector<float>();
    return std::vector<float>();
  };
  EXPECT_EQ(value(net, "conv1.weight"), value(other, "conv1.weight"));
  EXPECT_EQ(value(net, "fc.bias").size(), 2u);
}

TEST_F(TrainingImagesPage, OnePicture) {
  fs::current_path(testing::TempDir());
  const std::string arch = "resnet20";
  const int64_t size = 32;
  const std::vector<std::string> names = {"green", "red"};
  const data::Normalize normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}});
  fs::copy_file(pets / "val" / "red" / "0.png", "one.png", fs::copy_options::overwrite_existing);
  models::ResNet trained(models::resnet(arch, {.classes = int64_t(names.size())}));
  nn::init::zeros_(trained.parameter("fc.weight"));
  const Tensor bias = trained.parameter("fc.bias");
  copy_(bias, tensor({0.f, 1.f}));
  io::save_weights(trained, "pets.safetensors");
  testing::internal::CaptureStdout();
  {
    models::ResNet net(models::resnet(arch, {.classes = int64_t(names.size())}));
    io::load_weights(
        net, "pets.safetensors");  // io::save_weights(net, "pets.safetensors") at the end of the training
    net.eval();
    const data::Compose prepare({data::Resize({.size = size * 256 / 224}), data::CenterCrop({.size = size}),
                                 data::ToTensor(), normalize});

    const auto off = no_record();
    const Tensor x = prepare(data::decode_image("one.png")).tensor();  // f32[3,size,size]
    const Tensor p = softmax(net(unsqueeze(x, 0)), 1);
    const auto [likely, which] = topk(p, 2);
    for (int64_t i = 0; i < 2; ++i)
      std::cout << names[which[0][i].item<size_t>()] << ' ' << likely[0][i].item<float>() << '\n';
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "red 0.731059\ngreen 0.268941\n");
}

TEST_F(TrainingImagesPage, MixedPrecisionLearns) {
  Step s;
  auto& [net, opt, schedule, images, train_loader, b] = s;
  GradManager gm;
  gm.attach(net.parameters());
  std::vector<double> losses;
  for (int i = 0; i < 8; ++i) {
    auto recording = gm.record();
    Tensor loss = [&] {
      const auto amp = autocast(DType::kBF16);
      return nn::cross_entropy(net(b.input), b.target);
    }();
    gm.backward(loss);
    opt.step().clear_grad();
    losses.push_back(loss.item<double>());
  }
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST_F(TrainingImagesPage, RanksStayAlike) {
  dist::run_ranks(2, [] {
    manual_seed(1 + uint64_t(dist::get_rank()));
    Step s;
    auto& [net, opt, schedule, images, train_loader, b] = s;
    dist::DistributedDataParallel ddp(net);  // broadcasts rank 0's weights and running statistics
    GradManager gm;
    ddp.attach(gm);
    auto recording = gm.record();
    Tensor loss = nn::cross_entropy(ddp(b.input), b.target);
    gm.backward(loss);
    opt.step().clear_grad();
    dist::check_synchronized(net);
    EXPECT_GT(loss.item<double>(), 0);
  });
}

TEST_F(TrainingImagesPage, WritesTensorBoardEvents) {
  fs::current_path(testing::TempDir());
  Step s;
  auto& [net, opt, schedule, images, train_loader, b] = s;
  const std::vector<float> losses = {0.5};
  const int64_t step = 1;
  io::EventWriter log("runs/pets");
  log.add_scalar("train/loss", losses.back(), step);
  log.add_image("train/images", b.input, step, {.normalize = true});
  std::ifstream file(log.path(), std::ios::binary);
  const std::string events(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(events.find("train/loss"), std::string::npos);
  EXPECT_NE(events.find("train/images"), std::string::npos);
}

// Stopped after 5 and after 7 steps and started again, the program ends with the same bits as without stops.
TEST_F(TrainingImagesPage, GoesOnAfterACrash) {
  fs::current_path(testing::TempDir());
  struct Stopped {};
  const auto weights = [](int64_t stop_after) {
    Step s;
    auto& [net, opt, schedule, images, train_loader, last] = s;
    data::DataLoader small(images, {.batch_size = 4, .shuffle = true, .seed = 1});
    train_loader = std::move(small);
    struct Manager : GradManager {  // stops where a crash would
      int64_t left;
      void backward(const Tensor& loss) {
        if (left-- == 0) throw Stopped();
        GradManager::backward(loss);
      }
    } gm;
    gm.left = stop_after;
    gm.attach(net.parameters());
    int64_t steps = 0;
    TrainingState state{
        {"net", net}, {"opt", opt}, {"schedule", schedule}, {"loader", train_loader}, {"steps", steps}};
    if (state.resume("runs/pets.ckpt")) std::cout << "resumed after " << steps << " steps\n";
    while (train_loader.epoch() < 2) {
      for (const data::Batch& b : train_loader) {
        auto recording = gm.record();
        gm.backward(nn::cross_entropy(net(b.input), b.target));
        opt.step().clear_grad();
        if (++steps % 3 == 0) state.save("runs/pets.ckpt");
      }
      schedule.step();
      state.save("runs/pets.ckpt");
    }
    EXPECT_EQ(steps, 16);
    EXPECT_EQ(schedule.last_epoch(), 2);
    return net.parameters()[0].to_vector<float>();
  };
  const auto clear = [] {
    for (const char* name : {"runs/pets.ckpt", "runs/pets.ckpt.previous"}) fs::remove(name);
  };
  clear();
  manual_seed(1);
  const std::vector<float> through = weights(100);
  clear();
  manual_seed(1);
  EXPECT_THROW(weights(5), Stopped);  // after step 3 was saved
  manual_seed(2);                     // other weights and numbers, until they are loaded
  EXPECT_THROW(weights(7), Stopped);  // in the second epoch
  manual_seed(3);
  EXPECT_EQ(weights(100), through);
}

}  // namespace
}  // namespace gradus
