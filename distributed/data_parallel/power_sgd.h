// PowerSGD: implementation and state of power_sgd_hook (comm_hook.h).
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
  // Starts the communication of a bucket. Returns the completion function.
  std::function<void()> start(const GradBucket& bucket);

 private:
  // A parameter viewed as a matrix [n,m], and its state between steps. Factors are stored transposed.
  struct Matrix {
    Tensor parameter;
    int64_t n = 0, m = 0, r = 0;
    Tensor error;  // [n,m], compression error of the last step (error feedback)
    Tensor q;      // [r,m], Q^T of the last step
  };
  // A matrix of a bucket in flight.
  struct Item {
    Matrix* matrix;
    Tensor gradient;  // [n,m], view of the bucket
    Tensor p;         // [r,n], P^T
    const Tensor& source() const { return matrix->error.defined() ? matrix->error : gradient; }
  };

  // Returns the matrix of a parameter, or null if the parameter's gradient is sent uncompressed.
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
