// Moves the children of ResNet to their devices.
#include "gradus/examples/two_devices/networks.h"

namespace gradus::examples {

ModelParallelResNet50::ModelParallelResNet50(models::ResNetOptions options) : ResNet(std::move(options)) {
  for (nn::Module* layer : children()) {
    const bool last = layer->name() == "layer3" || layer->name() == "layer4" || layer->name() == "fc";
    layer->to(last ? kSecond : kFirst);
  }
}

}  // namespace gradus::examples
