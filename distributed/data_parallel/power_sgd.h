// PowerSGD: the state behind power_sgd_hook.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/group/work.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::dist::internal {

class PowerSGD : public std::enable_shared_from_this<PowerSGD> {
 public:
  explicit PowerSGD(const PowerSGDOptions& options);
  // Starts a bucket. Returns the function that completes it.
  std::function<void()> start(const GradBucket& bucket);

 private:
  // A parameter taken as a matrix, and its state from one step to the next. Factors are stored as rows.
  struct Matrix {
    Tensor parameter;
    int64_t n = 0, m = 0, r = 0;
    Tensor error;  // [n,m]: what was not sent yet
    Tensor q;      // [r,m], of the last step
  };
  // A matrix in a bucket under way.
  struct Item {
    Matrix* matrix;
    Tensor gradient;  // [n,m], in the bucket
    Tensor p;         // [r,n]
    const Tensor& source() const { return matrix->error.defined() ? matrix->error : gradient; }
  };

  // Returns the matrix of a parameter, or null if the parameter's gradient travels uncompressed.
  Matrix* find_matrix(const Tensor& parameter);
  void draw(const Tensor& x);
  void prepare(Item& item);
  void complete(const GradBucket& bucket, std::vector<Item>& items, const std::vector<Tensor>& rest,
                const Work& work);
  void end_backward();

  const PowerSGDOptions options_;
  RandomGenerator generator_;
  int64_t backwards_ = 0;
  std::unordered_map<const TensorImpl*, Matrix> matrices_;
};

}  // namespace gradus::dist::internal
