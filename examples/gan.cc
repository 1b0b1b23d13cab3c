// Trains GANs, from DCGAN to StyleGAN2 and R3GAN, and flow matching, on digits, CIFAR-10 or a folder of images.
//
//   ./run gan                                        DCGAN on generated digits
//   ./run gan --model pggan --data DIR --size 32     DIR has MNIST, CIFAR-10 or images of any sizes
//   ./run gan --capture                              steps are recorded and replayed
//   ./run gan --data DIR --nproc 4                   4 ranks; also under gradus-run, torchrun, ...
//   ./run gan --data DIR --checkpoint-dir runs/a     resumes if run again
//   ./run gan sample --checkpoint runs/a/gan.ckpt    a grid of images; `interpolate`: of interpolated latents
//   ./run gan classifier --data DIR                  trains the classifier of `evaluate`; once, before it
//   ./run gan evaluate --checkpoint runs/a/gan.ckpt --data DIR
//
// Training writes grids of samples to samples/, or to samples/ in --checkpoint-dir. `sample`, `interpolate` and
// `mix` (of StyleGANs) write samples.png, walk.png and mix.png, or the file of --out.
#include <string>

#include "gradus/examples/gans/classifier.h"
#include "gradus/examples/gans/evaluate.h"
#include "gradus/examples/gans/show.h"
#include "gradus/examples/gans/train.h"

using namespace gradus;

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "sample") return examples::run_sample(argc - 1, argv + 1);
  if (command == "interpolate") return examples::run_interpolate(argc - 1, argv + 1);
  if (command == "mix") return examples::run_mix(argc - 1, argv + 1);
  if (command == "evaluate") return examples::run_evaluate(argc - 1, argv + 1);
  if (command == "classifier") return examples::run_classifier(argc - 1, argv + 1);
  return training::run("gan", examples::parse(argc, argv), examples::train_gan);
}
