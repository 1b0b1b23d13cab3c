// Compares layers and networks with torch.nn, in f64 and f32, in training and evaluation. golden.py documents
// the file of PyTorch's values.
//
// The names of the state dict, in order, equal torch.nn's. In f64, |y - PyTorch's| is at most 1e-12 of the
// largest |y|. The same holds for gradients of inputs, and for buffers after a pass in training; gradients of
// parameters may differ by another 1e-12 of the largest of them all. In f32 the error is at most `single` of
// the tensor's scale, plus 1e-6, plus twice PyTorch's own error; of buffers, 2e-6 of the scale. Gradients that
// are 0 but for rounding have a tolerance of their own (golden_layers.cc).
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "gradus/io/safetensors.h"
#include "gradus/nn/nn.h"

namespace gradus::golden {

using X = const std::vector<Tensor>&;

struct GoldenLayer {
  std::string name;
  std::function<std::unique_ptr<nn::Module>()> make;
  std::function<std::vector<Tensor>(nn::Module&, X)> run;
  double single = 1e-6;  // the tolerance in f32, of the scale
};

// The case `name` of the file: an L with these options, run by call(layer, inputs); by default layer(x[0]).
template <class L, class Call> GoldenLayer golden(std::string name, typename L::Options options, Call call) {
  return {std::move(name), [options] { return std::make_unique<L>(options); },
          [call](nn::Module& m, X x) {
            if constexpr (std::is_same_v<std::invoke_result_t<Call, L&, X>, Tensor>)
              return std::vector<Tensor>{call(static_cast<L&>(m), x)};
            else
              return call(static_cast<L&>(m), x);
          }};
}
template <class L> GoldenLayer golden(std::string name, typename L::Options options = {}) {
  return golden<L>(std::move(name), options, [](L& layer, X x) { return layer(x[0]); });
}

// Expects the layer to give the results and gradients of the file's case of its name.
void expect_golden(const io::SafetensorsFile& file, const GoldenLayer& layer);
// Expects `names` to have all cases of the file.
void expect_all_tested(const io::SafetensorsFile& file, const std::set<std::string>& names);
// Registers the tests of a file's cases. Returns true, for static initializers.
bool add_golden_layers(const std::string& file, const std::vector<GoldenLayer>& layers);

}  // namespace gradus::golden
