// Probability distributions with tensors as parameters, with the names and results of torch.distributions.
// log_prob, entropy and kl_divergence are differentiable with respect to the parameters.
//
//   const distributions::Normal posterior(mean, exp(0.5 * log_variance));  // a VAE
//   const Tensor z = posterior.rsample();  // gradients flow to mean and log_variance
//   const Tensor kl = sum(kl_divergence(posterior, distributions::Normal(0, 1)), {1});
//
//   const distributions::Categorical policy({.logits = net(state)});  // a policy gradient
//   const Tensor action = policy.sample();
//   const Tensor loss = -mean(policy.log_prob(action) * reward + 0.01 * policy.entropy());
//
// A distribution object is a batch of independent distributions of shape batch_shape(). entropy and
// kl_divergence return one element per distribution, log_prob one per value. Constructors check parameters,
// and log_prob checks values, so that a NaN is reported where it occurs first. The checks wait for the
// device.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::distributions {

// The normal distribution: density e^(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi)).
class Normal {
 public:
  // loc and scale broadcast.
  // Errors: ValueError unless scale > 0, and for a NaN in loc; DTypeError unless floating; ShapeError.
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

  // Draws samples with the Context's generator.
  // Shapes: `shape` followed by batch_shape().
  // Grad: none.
  Tensor sample(const Shape& shape = {}) const;
  // Reparametrized samples loc + scale n with n standard normal.
  // Grad: to loc, dy; to scale, dy n.
  Tensor rsample(const Shape& shape = {}) const;
  // Returns the logarithm of the density at x.
  // Shapes: x broadcasts with batch_shape().
  // Errors: ValueError for a NaN.
  Tensor log_prob(const Tensor& x) const;
  // Returns 1/2 + log(2 pi) / 2 + log scale.
  Tensor entropy() const;

 private:
  Tensor loc_, scale_;
};

// Exactly one of probs and logits. probs are divided by their sum; logits are unnormalized log-probabilities.
struct CategoricalOptions {
  Tensor probs = {}, logits = {};
};

// The categorical distribution over 0 to C - 1, with probabilities along the last dim of the parameters.
class Categorical {
 public:
  // Shapes: [..., C]; batch_shape() is [...].
  // Errors: ValueError unless one of probs and logits is given, for probs that are negative, NaN, or all 0,
  // and for logits that are NaN or whose maximum is infinite; ShapeError for a scalar; DTypeError unless
  // floating.
  explicit Categorical(const CategoricalOptions& options);

  const Tensor& probs() const { return probs_; }    // their sum is 1
  const Tensor& logits() const { return logits_; }  // log probs
  const Shape& batch_shape() const { return batch_shape_; }

  // Draws i64 samples with the Context's generator.
  // Shapes: `shape` followed by batch_shape().
  // Grad: none.
  Tensor sample(const Shape& shape = {}) const;
  // Returns logits()[..., x].
  // Shapes: x, of integers, broadcasts with batch_shape().
  // Errors: ValueError for values outside of 0 to C - 1; DTypeError unless integers.
  Tensor log_prob(const Tensor& x) const;
  // Returns -sum probs log probs.
  Tensor entropy() const;

 private:
  Tensor probs_, logits_;
  Shape batch_shape_;
};

// Exactly one of probs in [0, 1] and logits = log(probs / (1 - probs)).
struct BernoulliOptions {
  Tensor probs = {}, logits = {};
};

// The Bernoulli distribution: 1 with probability probs, else 0.
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

  // Draws zeros and ones in the parameters' dtype with the Context's generator.
  // Shapes: `shape` followed by batch_shape().
  // Grad: none.
  Tensor sample(const Shape& shape = {}) const;
  // Returns x log probs + (1 - x) log(1 - probs).
  // Shapes: x broadcasts with batch_shape().
  // Errors: ValueError for values other than 0 and 1.
  Tensor log_prob(const Tensor& x) const;
  // Returns -probs log probs - (1 - probs) log(1 - probs).
  Tensor entropy() const;

 private:
  Tensor probs_, logits_;
};

// Returns the Kullback-Leibler divergence KL(p || q) = E_p[log p(x) - log q(x)]; infinite if an outcome of
// positive probability under p has probability 0 under q.
// Shapes: those of p and q broadcast; Categoricals of equal C.
// Errors: ShapeError.
Tensor kl_divergence(const Normal& p, const Normal& q);
Tensor kl_divergence(const Categorical& p, const Categorical& q);
Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q);

}  // namespace gradus::distributions
