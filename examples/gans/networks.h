// Networks: a generator and a discriminator, with one interface for the networks of all models.
#pragma once

#include <memory>
#include <string>

#include "gradus/gradus.h"

namespace gradus::examples {

// The options of both networks. Checkpoints contain them.
struct NetworkOptions {
  std::string model = "dcgan";
  int64_t size = 32, channels = 1;  // of the images
  int64_t width = 0;                // channels of the largest images; 0: the recipe's
  int64_t latent = 100;
  int64_t classes = 0;     // 0: no labels
  int64_t disc_width = 0;  // of the discriminator; 0: `width`

  static void each(auto& o, auto&& f) {
    f("model", o.model), f("size", o.size), f("channels", o.channels), f("width", o.width);
    f("latent", o.latent), f("classes", o.classes);
    f("disc_width", o.disc_width);
  }
};

// What images are generated from.
struct Latents {
  Tensor z;            // [N,latent]
  Tensor labels = {};  // i64[N]; undefined without classes
  // Style mixing: the styles of layers from `cut` on are those of mixed_z. Undefined: no mixing.
  Tensor mixed_z = {}, cut = {};   // [N,latent], i64[N]
  Tensor ws = {};                  // [N,layers,style], in place of all of the above
  std::vector<Tensor> noise = {};  // of a style-based generator: a plane [N,1,S,S] for each of noise_sizes()

  static void each(auto& o, auto&& f) {
    f(o.z), f(o.labels), f(o.mixed_z), f(o.cut), f(o.ws);
    for (auto& plane : o.noise) f(plane);
  }
};

struct Networks : nn::Module {
  nn::Module *gen = nullptr, *disc = nullptr;  // the children "gen" and "disc"; disc is null for a flow
  models::Scale scale = {.size = 0};           // of the current images of growing networks

  // Returns images [N,channels,S,S], about in [-1,1], S being the size or the scale's.
  virtual Tensor generate(const Latents& from) = 0;
  // Returns scores; larger ones for images that are classified as real.
  // Shapes: x [N,channels,S,S], labels i64[N] or undefined -> [N,1].
  virtual Tensor discriminate(const Tensor& x, const Tensor& labels) = 0;
};

// Networks of the generator class G and the discriminator class D, which may take a Scale or labels.
template <class G, class D> class NetworksOf final : public Networks {
 public:
  NetworksOf(typename G::Options g, typename D::Options d, int64_t size)
      : g_(this, "gen", g), d_(this, "disc", d) {
    gen = &g_, disc = &d_;
    scale.size = size;
  }
  Tensor generate(const Latents& from) override { return call(g_, from.z, from.labels); }
  Tensor discriminate(const Tensor& x, const Tensor& labels) override { return call(d_, x, labels); }

 private:
  template <class Net> Tensor call(Net& net, const Tensor& x, const Tensor& labels) const {
    if constexpr (requires { net(x, scale); })
      return net(x, scale);
    else if constexpr (requires { net(x, labels); })
      return labels.defined() ? net(x, labels) : net(x);
    else
      return net(x);
  }

  G g_;
  D d_;
};

template <class G, class D>
std::unique_ptr<Networks> networks_of(typename G::Options g, typename D::Options d, int64_t size) {
  return std::make_unique<NetworksOf<G, D>>(std::move(g), std::move(d), size);
}

}  // namespace gradus::examples
