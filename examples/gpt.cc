// Trains a transformer to predict the next character of a text, as nanoGPT does.
//
//   ./run gpt                                        on generated text of known entropy
//   ./run gpt --data input.txt --sample 500          then generates 500 characters
//   ./run gpt --device cuda --amp bf16               on a GPU, products in 16 bits
//   ./run gpt --capture                              steps are recorded and replayed
//   ./run gpt --replicas 2                           data parallel; also --nproc 2, gradus-run, torchrun, ...
//   ./run gpt --pipeline 4 --schedule zb-h1          the network's blocks on four ranks
//   ./run gpt --pipeline 2 --replicas 2 --amp bf16
//   ./run gpt --checkpoint-dir runs/a                resumes if run again
//   ./run gpt sample --checkpoint runs/a/gpt.ckpt --prompt "the "
#include <string_view>

#include "gradus/examples/text/sample.h"
#include "gradus/examples/text/train.h"

using namespace gradus;

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "sample") return examples::run_text_sample(argc - 1, argv + 1);
  return training::run("gpt", examples::parse_text_args(argc, argv), examples::train_gpt);
}
