// make_graph: a convolution as an operation graph of cuDNN's backend API, from which plans are made:
//   kForward:     y = conv(x, w), with a bias y = sum + bias, with relu y = relu(sum + bias)
//   kInputGrad:   dx from dy and w
//   kWeightGrad:  dw from x and dy
// sum = conv(x, w) and sum + bias are virtual tensors, which exist inside the engine alone. x and y are
// channels-last, w is row-major [O, C / groups, ...]: cuDNN infers groups from the sizes. Descriptors have
// shapes, dtypes and alignments; the addresses follow when a plan is executed. Callers guarantee: relu
// requires a bias, and a bias the forward.
#include "gradus/tensor/cuda/cudnn/conv_graph.h"

#include <limits>
#include <utility>
#include <vector>

#include "gradus/tensor/cuda/cudnn/graph_parts.h"

namespace gradus::cuda {
namespace {

// The type in which products are summed: f64 for f64, else f32.
cudnnDataType_t sum_type(const Convolution& c) {
  return c.x.dtype() == DType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

Descriptor make_image(const Calls& calls, Id id, const Tensor& t) {
  return make_tensor(calls,
                     {id, data_type(t.dtype()), t.shape(), channels_last_strides(t.shape()), alignment(t)});
}

Descriptor make_geometry(const Calls& calls, const Convolution& c) {
  Descriptor d = calls.create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t(c.geometry.rank()));
  calls.set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, sum_type(c));
  calls.set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.geometry.padding);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.geometry.padding);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, c.geometry.dilation);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.geometry.stride);
  calls.finalize(d);
  return d;
}

// cuDNN's names of an operation and its attributes. In a gradient's operation the result is dx or dw.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
};
const Names& names_of(ConvPass pass) {
  static constexpr Names names[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  return names[static_cast<int>(pass)];
}

Descriptor make_bias(const Calls& calls, const Convolution& c) {
  Shape sizes = Dims::filled(c.y.dim(), 1);
  sizes[1] = c.y.size(1);
  return make_tensor(
      calls, {kBias, data_type(c.bias.dtype()), sizes, channels_last_strides(sizes), alignment(c.bias)});
}

// y = x + b (CUDNN_POINTWISE_ADD), or y = max(0, x) without b (CUDNN_POINTWISE_RELU_FWD). NaN and infinity
// stay: by default some engines make 0 of NaN (tools/gpu_lab/records/h200/cudnn_relu.txt), and infinity would
// become the largest number of f64.
Descriptor make_pointwise(const Calls& calls, const Convolution& c, cudnnPointwiseMode_t mode,
                          const Descriptor& x, const Descriptor& b, const Descriptor& y) {
  const Descriptor how = calls.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  calls.set(how, CUDNN_ATTR_POINTWISE_MODE, mode);
  calls.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, sum_type(c));
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    calls.set(how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
    calls.set(how, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, std::numeric_limits<double>::infinity());
  }
  calls.finalize(how);
  Descriptor d = calls.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {how});
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {x});
  if (b) calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {b});
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {y});
  calls.finalize(d);
  return d;
}

}  // namespace

int64_t alignment(const Tensor& t) {
  const auto address = reinterpret_cast<uintptr_t>(t.raw_ptr()) | 16;
  return static_cast<int64_t>(address & -address);
}

Descriptor make_graph(const Calls& calls, const Convolution& c, cudnnHandle_t handle) {
  const Descriptor x = make_image(calls, kX, c.x), y = make_image(calls, kY, c.y);
  const Descriptor w = make_tensor(
      calls, {kW, data_type(c.w.dtype()), c.w.shape(), row_major_strides(c.w.shape()), alignment(c.w)});
  const Descriptor geometry = make_geometry(calls, c);
  const auto unstored = [&](Id id) {
    return make_tensor(
        calls, {id, sum_type(c), c.y.shape(), channels_last_strides(c.y.shape()), 16, GraphPlace::kVirtual});
  };
  Descriptor sum, biased, addition, rectification;
  if (c.bias) sum = unstored(kSum);
  if (c.relu)
    biased = unstored(kBiased),
    rectification = make_pointwise(calls, c, CUDNN_POINTWISE_RELU_FWD, biased, {}, y);
  if (c.bias)
    addition = make_pointwise(calls, c, CUDNN_POINTWISE_ADD, sum, make_bias(calls, c), c.relu ? biased : y);
  const Names& names = names_of(c.pass);
  Descriptor operation = calls.create(names.operation);
  calls.set(operation, names.x, {x});
  calls.set(operation, names.w, {w});
  calls.set(operation, names.y, {c.bias ? sum : y});
  calls.set(operation, names.geometry, {geometry});
  if (sum_type(c) == CUDNN_DATA_DOUBLE) {
    calls.set(operation, names.alpha, 1.0);
    calls.set(operation, names.beta, 0.0);
  } else {
    calls.set(operation, names.alpha, 1.f);
    calls.set(operation, names.beta, 0.f);
  }
  calls.finalize(operation);

  std::vector<Descriptor> operations;
  operations.push_back(std::move(operation));
  if (c.bias) operations.push_back(std::move(addition));
  if (c.relu) operations.push_back(std::move(rectification));
  return make_operation_graph(calls, operations, handle);
}

}  // namespace gradus::cuda
