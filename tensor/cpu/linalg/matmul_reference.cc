// The reference matrix product: Eigen maps of strided matrices, with rows divided among threads.
#include "gradus/tensor/cpu/linalg/matmul_reference.h"

#include <Eigen/Core>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

template <class T>
using Matrix = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                          Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;

template <class T> Matrix<T> matrix_at(const Tensor& x, int64_t offset) {
  const int n = x.dim();
  return Matrix<T>(x.ptr<T>() + offset, x.shape()[n - 2], x.shape()[n - 1],
                   Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(x.strides()[n - 2], x.strides()[n - 1]));
}

}  // namespace

void matmul_reference(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  dispatch_floating(out.dtype(), "matmul", [&]<class T>() {
    const int batch_dims = out.dim() - 2;
    int64_t batch = 1;
    for (int d = 0; d < batch_dims; ++d) batch *= out.shape()[d];
    for (int64_t g = 0; g < batch; ++g) {
      int64_t at_out = 0, at_a = 0, at_b = 0;
      for (int64_t d = batch_dims - 1, rest = g; d >= 0; rest /= out.shape()[d--]) {
        const int64_t i = rest % out.shape()[d];
        at_out += i * out.strides()[d], at_a += i * a.strides()[d], at_b += i * b.strides()[d];
      }
      Matrix<T> y = matrix_at<T>(out, at_out), left = matrix_at<T>(a, at_a), right = matrix_at<T>(b, at_b);
      const int64_t grain = 1 + 32768 / (1 + left.cols() * right.cols());
      parallel_for(0, y.rows(), grain, [&](int64_t first, int64_t last) {
        auto rows = y.middleRows(first, last - first);
        rows.noalias() = left.middleRows(first, last - first) * right;
        if (bias.defined())
          rows.rowwise() +=
              Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(bias.ptr<T>(), bias.numel());
      });
    }
  });
}

}  // namespace gradus
