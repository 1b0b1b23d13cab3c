// Probability distributions with tensors as parameters. They can be sampled; log_prob, entropy and
// kl_divergence are differentiable in the parameters. Names and results are those of torch.distributions.
//
//   const distributions::Normal posterior(mean, exp(0.5 * log_variance));  // a VAE
//   const Tensor z = posterior.rsample();  // gradients flow to mean and log_variance
//   const Tensor kl = sum(kl_divergence(posterior, distributions::Normal(0, 1)), {1});
//
//   const distributions::Categorical policy({.logits = net(state)});  // a policy gradient
//   const Tensor action = policy.sample();
//   const Tensor loss = -mean(policy.log_prob(action) * reward + 0.01 * policy.entropy());
//
// A distribution is a batch of independent distributions, of shape batch_shape(). log_prob, entropy and
// kl_divergence return one element for each. The constructor checks parameters, and log_prob checks values,
// so a NaN is reported there and not first seen in the loss.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::distributions {

// The normal distribution: density e^(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi)).
class Normal {
 public:
  // loc and scale broadcast.
  // Errors: ValueError unless scale > 0, and for a NaN in loc; DTypeError unless both
  // are floating; ShapeError.
  Normal(const Tensor& loc, const Tensor& scale);
  Normal(const Tensor& loc, double scale);
  Normal(double loc, const Tensor& scale);
  Normal(double loc, double scale);

  const Tensor& loc() const { return loc_; }
  const Tensor& scale() const { return scale_; }
  const Tensor& mean() const { return loc_; }
  const Tensor& stddev() const { return scale_; }
  Tensor variance() const;
  const Shape& batch_shape() const { return loc_.shape(); }

  // Draws from the Context's generator.
  // Shapes: `shape` followed by batch_shape().
  // Grad: none.
  Tensor sample(const Shape& shape = {}) const;
  // The same as loc + scale n with n standard normal.
  // Grad: to loc, dy; to scale, dy n.
  Tensor rsample(const Shape& shape = {}) const;
  // Computes the logarithm of the density.
  // Shapes: x broadcasts with batch_shape().
  // Errors: ValueError for a NaN.
  Tensor log_prob(const Tensor& x) const;
  // Computes 1/2 + log(2 pi) / 2 + log scale.
  Tensor entropy() const;

 private:
  Tensor loc_, scale_;
};

// Give one of the two: probs are divided by their sum, logits may be any numbers.
struct CategoricalOptions {
  Tensor probs = {}, logits = {};
};

// Numbers 0 to C - 1 with probabilities along the parameters' last dimension.
class Categorical {
 public:
  // Shapes: [..., C]; batch_shape() is [...].
  // Errors: ValueError unless one of probs and logits is given, for probs that are negative, NaN, or all 0,
  // and for logits that are NaN; ShapeError for a scalar; DTypeError unless floating.
  explicit Categorical(const CategoricalOptions& options);

  const Tensor& probs() const { return probs_; }    // their sum is 1
  const Tensor& logits() const { return logits_; }  // log probs
  const Shape& batch_shape() const { return batch_shape_; }

  // Draws i64, from the Context's generator.
  // Shapes: `shape` followed by batch_shape().
  // Grad: none.
  Tensor sample(const Shape& shape = {}) const;
  // Takes logits()[..., x].
  // Shapes: x, of integers, broadcasts with batch_shape().
  // Errors: ValueError for values outside of 0 to C - 1; DTypeError unless integers.
  Tensor log_prob(const Tensor& x) const;
  // Computes -sum probs log probs.
  Tensor entropy() const;

 private:
  Tensor probs_, logits_;
  Shape batch_shape_;
};

// Give one of the two: probs lie in [0, 1], logits are log(probs / (1 - probs)).
struct BernoulliOptions {
  Tensor probs = {}, logits = {};
};

// 1 with probability probs, else 0.
class Bernoulli {
 public:
  // Errors: ValueError unless one of probs and logits is given, for probs outside of [0, 1], and for logits
  // that are NaN; DTypeError unless floating.
  explicit Bernoulli(const BernoulliOptions& options);

  const Tensor& probs() const { return probs_; }
  const Tensor& logits() const { return logits_; }
  const Tensor& mean() const { return probs_; }
  Tensor variance() const;
  const Shape& batch_shape() const { return probs_.shape(); }

  // Draws zeros and ones in the parameters' dtype, from the Context's generator.
  // Shapes: `shape` followed by batch_shape().
  // Grad: none.
  Tensor sample(const Shape& shape = {}) const;
  // Computes x log probs + (1 - x) log(1 - probs).
  // Shapes: x broadcasts with batch_shape().
  // Errors: ValueError for values other than 0 and 1.
  Tensor log_prob(const Tensor& x) const;
  // Computes -probs log probs - (1 - probs) log(1 - probs).
  Tensor entropy() const;

 private:
  Tensor probs_, logits_;
};

// Computes the divergence of q from p, the mean of log p(x) - log q(x) over p. It is infinite where p gives a
// probability to an outcome that is impossible under q.
// Shapes: those of p and q broadcast; Categoricals of equal C.
// Errors: ShapeError.
Tensor kl_divergence(const Normal& p, const Normal& q);
Tensor kl_divergence(const Categorical& p, const Categorical& q);
Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q);

}  // namespace gradus::distributions
