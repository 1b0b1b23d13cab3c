// Lists and dictionaries of modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const nn::Module& m) {
  std::vector<std::string> all;
  for (const auto& [name, t] : m.state_dict()) all.push_back(name);
  return all;
}

struct Block final : nn::Layer {
  Block(nn::Module* parent, std::string name, int64_t width)
      : Layer(parent, std::move(name)), fc(this, "fc", {.in = width, .out = width, .bias = false}) {}
  nn::Linear fc;
  Tensor forward(const Tensor& x) override { return fc(x); }
};

struct Net final : nn::Module {
  nn::ModuleList<> layers{this, "layers"};
  nn::ModuleList<Block> blocks{this, "blocks"};
  nn::ModuleDict<nn::Module> cells{this, "cells"};
  nn::ParameterList scales{this, "scales"};
  Net() {
    layers.add<nn::Linear>({.in = 2, .out = 3, .bias = false});
    layers.add<nn::ReLU>();
    blocks.add(3);
    blocks.add(3);
    cells.add<nn::GRUCell>("gru", {.input_size = 1, .hidden_size = 1, .bias = false});
    scales.add(ones({2}));
  }
};

TEST(Containers, NameWhatTheyHoldAsTorchDoes) {
  Net net;
  EXPECT_THAT(names(net), ElementsAre("layers.0.weight", "blocks.0.fc.weight", "blocks.1.fc.weight",
                                      "cells.gru.weight_ih", "cells.gru.weight_hh", "scales.0"));
  EXPECT_THAT(to_string(net), HasSubstr("(blocks): ModuleList("));
  EXPECT_THAT(to_string(net), HasSubstr("(cells): ModuleDict("));
}

TEST(Containers, AreIndexedAndIterated) {
  Net net;
  Tensor h = ones({4, 2});
  for (const auto& layer : net.layers) h = (*layer)(h);
  EXPECT_EQ(h.shape(), (Shape{4, 3}));
  EXPECT_EQ(net.blocks[1](h).shape(), (Shape{4, 3}));
  EXPECT_EQ(net.blocks[1].path(), "blocks.1");
  EXPECT_THROW(net.blocks[2], IndexError);
  EXPECT_TRUE(net.cells.contains("gru"));
  EXPECT_FALSE(net.cells.contains("lstm"));
  EXPECT_THAT(net.cells.keys(), ElementsAre("gru"));
  EXPECT_EQ(net.cells["gru"].name(), "gru");
  EXPECT_THROW(net.cells["lstm"], IndexError);
  EXPECT_THROW(net.cells.add<nn::Identity>("gru"), ValueError);
  EXPECT_EQ(net.scales[0].shape(), (Shape{2}));
  EXPECT_THROW(net.scales[1], IndexError);
}

TEST(Sequential, TakesNamesToo) {
  nn::Sequential net;
  net.add("fc", nn::layer<nn::Linear>({.in = 2, .out = 3, .bias = false}));
  net.add("act", nn::layer<nn::Tanh>());
  net.add<nn::Linear>({.in = 3, .out = 1, .bias = false});
  EXPECT_THAT(names(net), ElementsAre("fc.weight", "2.weight"));
  EXPECT_EQ(net["act"].type_name(), "Tanh");
  EXPECT_EQ(net(ones({5, 2})).shape(), (Shape{5, 1}));
  EXPECT_THROW(net["none"], IndexError);
  EXPECT_THROW(net.add("fc", nn::layer<nn::Tanh>()), ValueError);
}

}  // namespace
}  // namespace gradus
