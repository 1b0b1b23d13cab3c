// StyleNetworks: networks whose generator makes images of styles, those of StyleGAN and StyleGAN2.
#pragma once

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

struct StyleNetworks : Networks {
  double truncation = 1;  // of styles in evaluation mode: w_avg + truncation (w - w_avg)

  // Returns the styles of the latents, one for each layer, mixed where the latents say so. In training mode moves
  // the average of styles by the mean over all ranks: collective.
  // Shapes: -> [N,layers,style].
  virtual Tensor styles(const Latents& from) = 0;
  // Returns images of styles. `noise` has a plane for each of noise_sizes(); if empty, the generator's fixed noise is
  // used.
  virtual Tensor synthesize(const Tensor& ws, const std::vector<Tensor>& noise) = 0;
  Tensor generate(const Latents& from) override {
    return synthesize(from.ws.defined() ? from.ws : styles(from), from.noise);
  }

  // Returns the number of layers, and the heights of their planes of noise, at the current scale.
  virtual int64_t layers() const = 0;
  virtual std::vector<int64_t> noise_sizes() const = 0;
};

// Networks of the generator class G and the discriminator class D.
template <class G, class D> class StyleNetworksOf final : public StyleNetworks {
 public:
  StyleNetworksOf(typename G::Options g, typename D::Options d, int64_t size)
      : g_(this, "gen", g), d_(this, "disc", d) {
    gen = &g_, disc = &d_;
    scale.size = size;
  }

  Tensor styles(const Latents& from) override {
    const Tensor ws = map(from.z, from.labels);
    if (is_training()) {
      const auto off = no_record();
      Tensor w = mean(select(ws, 1, 0), {0}, true);
      if (dist::get_world_size() > 1) w = dist::functional::all_reduce(w, dist::ReduceOp::kMean);
      if constexpr (kGrows)
        g_.update_w_avg(w);
      else
        g_.mapping.update_w_avg(w);
    }
    return from.mixed_z.defined() ? gan::mix_styles(ws, map(from.mixed_z, from.labels), from.cut) : ws;
  }
  Tensor synthesize(const Tensor& ws, const std::vector<Tensor>& noise) override {
    const models::SynthesisNoise n = {.mode = nn::NoiseMode::kFixed, .planes = noise};
    if constexpr (kGrows)
      return g_.synthesis(ws, scale, n);
    else
      return g_.synthesis(ws, n);
  }
  // The last layer of StyleGAN2, which makes colors, has a style and no noise.
  int64_t layers() const override { return int64_t(noise_sizes().size()) + !kGrows; }
  std::vector<int64_t> noise_sizes() const override {
    if constexpr (kGrows)
      return g_.noise_sizes(scale);
    else
      return g_.synthesis.noise_sizes();
  }
  Tensor discriminate(const Tensor& x, const Tensor& labels) override {
    if constexpr (kGrows)
      return d_(x, scale);
    else
      return labels.defined() ? d_(x, labels) : d_(x);
  }

 private:
  static constexpr bool kGrows = requires(D& d, const Tensor& x, models::Scale at) { d(x, at); };

  Tensor map(const Tensor& z, const Tensor& labels) {
    const models::Truncation t = {.truncation = is_training() ? 1 : truncation};
    if constexpr (!kGrows)
      if (labels.defined()) return g_.mapping(z, labels, t);
    return g_.mapping(z, t);
  }

  G g_;
  D d_;
};

}  // namespace gradus::examples
