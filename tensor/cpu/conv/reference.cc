// Reference CPU convolution and its gradients by im2col and Eigen: y [P,Og] = patches [P,K*Cg] filters
// [K*Cg,Og], for each image and group. P is the number of output positions, K the number of taps (kernel
// elements), Cg and Og the input and output channels per group. The contract is that of ConvProblem
// (kernels.h): images x [N,C,...] and y [N,O,...] of 1 to 3 spatial dims are dense and channels-last, weights
// w [O,Cg,...] row-major; all are f32 or f64; shapes have been checked. Threads divide the images, or the
// filters for the weight gradient.
#include "gradus/tensor/cpu/conv/kernels.h"

#include <Eigen/Core>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

template <class T> using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
// The channels of one group of an image [pixels,C], as a matrix [pixels,C/groups].
template <class T> using Channels = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;

// The sizes of a convolution with 3 spatial dims. Missing leading dims have size 1. n: image, g: group.
struct Geometry {
  static Dims padded_to_3(Dims d, int64_t fill) {
    while (d.size() < 3) d.insert(0, fill);
    return d;
  }
  static Dims volume(const Shape& s) { return padded_to_3(Dims(std::span(s.begin() + 2, s.end())), 1); }

  template <class T> Channels<T> outputs(const Tensor& y, int64_t n, int64_t g) const {
    return {y.ptr<T>() + n * P * O + g * Og, P, Og, Eigen::OuterStride<>(O)};
  }
  template <class T> Eigen::Map<Eigen::RowVectorX<T>> biases(const Tensor& bias, int64_t g) const {
    return {bias.ptr<T>() + g * Og, Og};
  }

  // Calls f(index) for each index of a volume of size d, in row-major order.
  template <class F> static void for_each_index(const Dims& d, F f) {
    for (int64_t i = 0; i < d[0]; ++i)
      for (int64_t j = 0; j < d[1]; ++j)
        for (int64_t k = 0; k < d[2]; ++k) f(std::array<int64_t, 3>{i, j, k});
  }

  // Calls f(row, column, offset) for each output position and tap: Cg channels start at element (row, column)
  // of the patch matrix [P, K * Cg] and at `offset` of the image. Taps in the padding are skipped.
  template <class F> void for_each_tap(F f) const {
    int64_t row = 0;
    for_each_index(out, [&](const std::array<int64_t, 3>& p) {
      int64_t column = 0;
      for_each_index(taps, [&](const std::array<int64_t, 3>& k) {
        int64_t offset = 0;
        bool inside = true;
        for (int d = 0; d < 3; ++d) {
          const int64_t at = p[d] * stride[d] - padding[d] + k[d] * dilation[d];
          inside = inside && at >= 0 && at < in[d];
          offset = offset * in[d] + at;
        }
        if (inside) f(row, column, offset * C);
        column += Cg;
      });
      ++row;
    });
  }

  // Returns the patch matrix [P, K * Cg] of image n and group g.
  template <class T> Matrix<T> unfold(const Tensor& x, int64_t n, int64_t g) const {
    Matrix<T> patches = Matrix<T>::Zero(P, K * Cg);
    const T* image = x.ptr<T>() + n * pixels * C + g * Cg;
    for_each_tap([&](int64_t row, int64_t column, int64_t offset) {
      std::copy_n(image + offset, Cg, &patches(row, column));
    });
    return patches;
  }

  // Adds the patches to the image: the transpose of unfold.
  template <class T> void fold(const Matrix<T>& patches, const Tensor& x, int64_t n, int64_t g) const {
    T* image = x.ptr<T>() + n * pixels * C + g * Cg;
    for_each_tap([&](int64_t row, int64_t column, int64_t offset) {
      for (int64_t c = 0; c < Cg; ++c) image[offset + c] += patches(row, column + c);
    });
  }

  // Calls f(element of w [O,Cg,...], element of the filter matrix [K*Cg,Og]) for the filters of group g.
  template <class T, class F>
  void for_each_weight(const Tensor& w, int64_t g, Matrix<T>& filters, F f) const {
    T* p = w.ptr<T>() + g * Og * Cg * K;
    for (int64_t i = 0; i < Og; ++i)
      for (int64_t c = 0; c < Cg; ++c)
        for (int64_t k = 0; k < K; ++k) f(*p++, filters(k * Cg + c, i));
  }
  template <class T> Matrix<T> filters_of(const Tensor& w, int64_t g) const {
    Matrix<T> filters(K * Cg, Og);
    for_each_weight(w, g, filters, [](T& from, T& to) { to = from; });
    return filters;
  }

  // Minimum number of images per thread: about 65,000 multiplications.
  int64_t images_per_thread() const { return 1 + 65536 / std::max<int64_t>(1, P * K * Cg * Og); }
  const ConvProblem& p;
  const int64_t N = p.x.size(0), C = p.x.size(1), O = p.w.size(0), groups = p.geometry.groups;
  const Dims in = volume(p.x.shape()), taps = volume(p.w.shape()), out = volume(p.y.shape());
  const Dims stride = padded_to_3(p.geometry.stride, 1), padding = padded_to_3(p.geometry.padding, 0),
             dilation = padded_to_3(p.geometry.dilation, 1);
  const int64_t Cg = C / groups, Og = O / groups;
  const int64_t pixels = in.product(), K = taps.product(), P = out.product();
};

}  // namespace

// y = patches filters + bias.
void conv_reference(const ConvProblem& p) {
  dispatch_floating(p.y.dtype(), "conv", [&]<class T>() {
    const Geometry s{p};
    for (int64_t g = 0; g < s.groups; ++g) {
      const Matrix<T> filters = s.filters_of<T>(p.w, g);
      parallel_for(0, s.N, s.images_per_thread(), [&](int64_t first, int64_t last) {
        for (int64_t n = first; n < last; ++n) {
          auto out = s.outputs<T>(p.y, n, g);
          out.noalias() = s.unfold<T>(p.x, n, g) * filters;
          if (p.bias.defined()) out.rowwise() += s.biases<T>(p.bias, g);
        }
      });
    }
  });
}

// dx = fold(dy filters^T): writes p.x from p.y and p.w.
void conv_input_grad_reference(const ConvProblem& p) {
  dispatch_floating(p.x.dtype(), "conv_input_grad", [&]<class T>() {
    const Geometry s{p};
    std::fill_n(p.x.ptr<T>(), p.x.numel(), T(0));
    for (int64_t g = 0; g < s.groups; ++g) {
      const Matrix<T> filters = s.filters_of<T>(p.w, g);
      parallel_for(0, s.N, s.images_per_thread(), [&](int64_t first, int64_t last) {
        for (int64_t n = first; n < last; ++n) {
          const Matrix<T> patches = s.outputs<T>(p.y, n, g) * filters.transpose();
          s.fold<T>(patches, p.x, n, g);
        }
      });
    }
  });
}

// dfilters = sum over images of patches^T dy, db = sum of dy: writes p.w and p.bias from p.x and p.y.
void conv_weight_grad_reference(const ConvProblem& p) {
  dispatch_floating(p.w.dtype(), "conv_weight_grad", [&]<class T>() {
    const Geometry s{p};
    if (p.bias.defined()) std::fill_n(p.bias.ptr<T>(), p.bias.numel(), T(0));
    for (int64_t g = 0; g < s.groups; ++g) {
      Matrix<T> filters = Matrix<T>::Zero(s.K * s.Cg, s.Og);
      // Threads divide the filters. Each thread unfolds all images.
      parallel_for(0, s.Og, 1 + 65536 / std::max<int64_t>(1, s.N * s.P * s.K * s.Cg),
                   [&](int64_t first, int64_t last) {
                     auto part = filters.middleCols(first, last - first);
                     for (int64_t n = 0; n < s.N; ++n)
                       part.noalias() += s.unfold<T>(p.x, n, g).transpose() *
                                         s.outputs<T>(p.y, n, g).middleCols(first, last - first);
                   });
      for (int64_t n = 0; p.bias.defined() && n < s.N; ++n)
        s.biases<T>(p.bias, g) += s.outputs<T>(p.y, n, g).colwise().sum();
      s.for_each_weight(p.w, g, filters, [](T& to, T& from) { to = from; });
    }
  });
}

}  // namespace gradus
