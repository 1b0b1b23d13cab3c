// Kernels and cases that exceed a limit of the kernel report (kernel_report.cc) for a known reason.
#pragma once

#include <array>

namespace report {

struct Exception {
  const char* who;  // prefix of the name of the kernel or case
  // The limit: "bytes" moved in a case, "passes" over shared memory, local "memory" of a thread, "occupancy",
  // and "runs" for kernels that no case runs.
  const char* bar;
  const char* reason;
};

inline constexpr auto kKnownExceptions = std::to_array<Exception>({
    {"find_outside_of_unit_interval<", "runs",
     "a thread reads one element and writes nothing unless it reports; //tests/cuda/faults:values_test runs "
     "it"},
    {"add bf16, a row is broadcast", "bytes",
     "each warp reads its part of the row again; on a GPU it comes from the cache, which is not counted"},
    {"add f32, one operand channels last", "bytes",
     "a lane reads 4 of 32 bytes; its block's other reads of them are near, but caches are not counted. On "
     "an H100 "
     "it took 2.2 times as long as dense operands"},
    {"copy u8, misaligned rows", "bytes",
     "a warp moves 32 bytes of two sectors, and its neighbors the rest of these; caches are not counted"},
    {"sum f32, rows of 33", "bytes",
     "of a misaligned row, the elements around the vectors are reads of their own, of sectors that were just "
     "read"},
    {"sum f32, 33 columns", "bytes",
     "rows are misaligned: neighboring warps read the sectors at their ends, too"},
    {"variance f32, 64 columns", "bytes",
     "1 MiB is cut into many pieces, to occupy the device, and their partial results are 24 bytes each: the "
     "larger "
     "the operand, the less they count"},
    {"variance f64, 64 columns", "bytes", "the same"},
    {"max f32, 64 columns", "bytes", "the same, of 16 bytes"},
    {"max f32, 64 columns", "passes",
     "an element and its position are 16 bytes side by side, so that two lanes of a half warp meet in a "
     "bank"},
    {"softmax f32, rows of 10", "bytes",
     "a warp reads two rows, which end within sectors; the rest of these is its neighbors'"},
    {"gradient of softmax f32, rows of 10", "bytes", "the same"},
    {"softmax f32, rows of 16384", "bytes",
     "rows that no block's registers hold are read twice; the second time many come from the cache"},
    {"gradient of softmax f32, rows of 16384", "bytes", "the same"},
    {"cross entropy f32, 10 classes", "bytes",
     "a warp has two samples: their targets, stats and losses are half a sector each, which it shares with "
     "its "
     "neighbors; and the target's score is read again, which was just read"},
    {"gradient of cross entropy f32, 10 classes", "bytes",
     "the same; and each warp reads the loss's gradient and the weights' total, which come from the cache"},
    {"layer norm f32, rows of 16384", "bytes",
     "rows that no block's registers hold are read in each pass; after the first one many come from the "
     "cache"},
    {"gradient of layer norm f32, rows of 16384", "bytes", "the same"},
    {"layer norm f32, with weight, rows of 768", "bytes",
     "each row reads weight and bias again; on a GPU they come from the cache, which is not counted"},
    {"gradient of layer norm f32, with weight, rows of 768", "bytes", "the same"},
    {"max pool f32, 3 x 3 by 2", "bytes", "windows overlap: what is read again comes from the cache"},
    {"max pool's gradient f32, 2 x 2", "bytes",
     "the places of a window each read its gradient; all but the first from the cache"},
    {"mean pool's gradient f32, 2 x 2", "bytes", "the same"},
    {"unfold f32, 2 x 2", "bytes",
     "a tap reads every other pixel of a sector; those between come from the cache for the next tap"},
    {"upfirdn2d f32, 4 x 4", "bytes",
     "each tap reads the image again: what is read again comes from the cache"},
    {"gradient of upfirdn2d's filter f32, 4 x 4", "bytes",
     "each tap reads both images again, from the cache"},
    {"direct convolution", "bytes",
     "each tap reads the image again, and each place the filters: what is read again comes from the cache"},
    {"batch norm f32, 33 channels", "bytes",
     "rows are misaligned, so warps read sectors at their ends, too; and one channel of the second tile, a "
     "sector of its own"},
    {"draws without replacement", "bytes",
     "a candidate searches its place in the run that is merged with its own: what many search comes from the "
     "cache"},
    {"round f32 to f16, misaligned", "bytes",
     "a warp reads 128 bytes of five sectors and writes 64 of three, and its neighbors the rest of "
     "these; caches are not counted"},
    {"index_add f32", "bytes",
     "each warp has 32 elements of a row, and reads the row's pair and those beside it: most come from "
     "the cache"},
    {"index_put f32, products", "bytes", "the same"},
    {"scatter f32", "bytes",
     "an element searches its position in the run that is merged with its own: what many search comes "
     "from the cache. Merged elements of a warp lie between those of other warps, and share sectors "
     "with them"},
    {"sort f32", "bytes",
     "the same; and values are gathered in the order of the sort, keys of columns one by one: a sector "
     "each"},
    {"median f32", "bytes", "the same, but for the values"},
    {"topk f32", "bytes", "the same; a search among the 8 elements of a run reads most of its sectors again"},
    {"kthvalue f32", "bytes", "the same"},
    {"mode f32", "bytes",
     "a thread also reads the key behind its own, and searches the first of a run: from the cache"},
    {"order of rows f32", "bytes", "it sorts each column, with the searches of a sort"},
    {"nonzero, two dims", "bytes",
     "the coordinates of an element are side by side, and stored one by one: each store writes half of "
     "a sector"},
    {"repeat_interleave", "bytes",
     "each element of the result searches the sums: most of them come from the cache"},
    {"searchsorted f32", "bytes", "each value searches the row of 4 KiB, which comes from the cache"},
    {"histc f32, 64 bins", "passes",
     "random elements of a warp count in any of 64 bins, two in a bank: what is added to one bank takes "
     "turns"},
    {"group norm f32", "bytes",
     "1 MiB is cut into many pieces, to occupy the device: a block has 16 rows for each thread, and "
     "reads the first row and the coefficients of its channels, which come from the cache"},
    {"sum over 5 channels f32", "bytes", "each element reads its neighbors again, from the cache"},
    {"bilinear f32", "bytes",
     "a pixel is read by four others, and each thread reads its rows of the matrices: again from the "
     "cache"},
    {"attention ", "bytes",
     "each tile of queries reads all keys and values, and its queries again for each tile of keys; a "
     "thread stores four neighboring columns one by one. For four tiles of f32 4 times the operands"},
    {"gradient of attention ", "bytes",
     "the same, and keys, queries and dy a second time for the sums of a tile: for four tiles of f32 "
     "4.8 times the operands of the two launches"},
    {"attend<", "occupancy",
     "the scores of a tile and the results take more than 64 registers: one or two blocks of 256 "
     "threads. A smaller tile would load more for each product"},
    {"query_gradient<", "occupancy", "the same, with two tiles of scores"},
    {"key_gradients<", "occupancy", "the same, with two tiles of scores and two results"},
    {"resample_position<", "occupancy",
     "sums over the matrices of three axes, whose pointers and sizes are in registers: 3 blocks"},
    {"scan_pieces<true, false, LogAddExp", "occupancy",
     "exp() and log() in f64 of four elements: more than 64 registers, 3 blocks"},
    {"step_elements<AdamRule<double, true>, double>", "occupancy",
     "five arrays in f64, two elements of each, and a rule that a scaled step reads: more than 64 "
     "registers"},
    {"dense<Polygamma", "memory",
     "tan() in f64, for x < 0, reduces large angles by digits of 2/pi that it chooses from an array. "
     "Arithmetic "
     "takes the time: some 15 powers an element"},
    {"strided<Polygamma", "memory", "the same"},
    {"dense<Sin,", "memory",
     "CUDA reduces large angles by digits of 2/pi that it chooses from an array. In f32 only those beyond "
     "1e15 come there"},
    {"dense<Cos,", "memory", "the same"},
    {"dense<Tan,", "memory", "the same"},
    {"strided<Sin,", "memory", "the same, in f64"},
    {"strided<Cos,", "memory", "the same, in f64"},
    {"strided<Tan,", "memory", "the same, in f64"},
    {"draw_rows<double, draws::Normal<double>", "memory", "the same: sin and cos in f64"},
    {"draw_strided<draws::Normal<double>", "memory", "the same"},
    {"dense<Polygamma", "occupancy", "the same: nvcc unrolls the sum of powers, and takes 128 registers"},
    {"strided<Polygamma", "occupancy", "the same, 106 and 111 registers"},
    {"columns<Partial<Norm<double, (Power)3>>, 2>", "memory",
     "pow() in f64: one number goes to the stack so that 4 blocks fit, 16 bytes stored, 32 loaded"},
    {"columns<Partial<Variance<float>>, 2>", "memory",
     "one number goes to the stack so that 4 blocks fit: 8 bytes stored, 8 loaded"},
    {"columns<Variance<float>, 2>", "memory", "the same"},
    {"short_rows<Extreme<unsigned char", "memory", "the same"},
    {"short_rows<Merged<Extreme<unsigned char", "memory", "the same"},
    {"short_rows<Logical<", "memory", "the same"},
    {"short_rows<Merged<Logical<", "memory", "the same"},
    {"columns<Variance<double>, 2>", "occupancy",
     "means and sums of two columns in f64: 70 registers, 3 blocks. With 4 blocks numbers would go to the "
     "stack"},
    {"columns<Partial<Variance<double>>, 2>", "occupancy", "the same"},
    {"columns<Sum<", "occupancy", "eight sums in f64 or i64: more than 64 registers, 3 blocks"},
    {"columns<Partial<Sum<", "occupancy", "the same"},
    {"dense<Div, 2, double", "memory",
     "ptxas keeps to 32 or 40 registers, and saves 8 to 30 bytes around the subroutine of a division or root "
     "in f64, "
     "a remainder, or a division in f32"},
    {"dense<Div, 2, bf16", "memory", "the same, for sm_80"},
    {"dense<TruncDivide, 2, bf16", "memory", "the same, for sm_80"},
    {"combine_channels<Forward<float>", "memory", "the same, for sm_80"},
    {"upfirdn_position<float, 4, unsigned int>", "memory", "the same, for sm_80"},
    {"dense<LossBackward<ScaledGradient<AbsoluteErrorBackward>>, 2, f16", "memory", "the same, for sm_80"},
    {"dense<Asin, 2, double", "memory", "the same"},
    {"dense<Fmod, 2, float", "memory", "the same"},
    {"dense<LossBackward<ScaledGradient<HuberBackward>>, 2, f16", "memory", "the same"},
    {"dense<LossBackward<ScaledGradient<PoissonNllBackward>>, 2, f16", "memory", "the same"},
    {"uniform numbers f32, counted on the device", "bytes",
     "each warp reads the seed and the count, two sectors for the 512 bytes that it writes; on a GPU they "
     "come "
     "from the cache"},
    {"nonzero, one dim", "bytes",
     "the emulated device takes the k-th accesses of a warp's lanes for one request. Lanes differ in the "
     "number of "
     "true elements, so it counts requests that a GPU does not make: there the lanes of one ballot access "
     "neighbors"},
    {"masked_", "bytes", "the same"},
    {"draws without replacement", "passes",
     "pairs of 16 bytes are sorted in shared memory: those compared at a distance of 1, 2 and 4 meet in the "
     "banks, "
     "by twos, in 21 of the 36 steps of a tile"},
    {"index_", "passes", "the same"},
    {"scatter f32", "passes", "the same"},
    {"sort f32", "passes", "the same"},
    {"topk f32", "passes", "the same"},
    {"kthvalue f32", "passes", "the same"},
    {"median f32", "passes", "the same"},
    {"mode f32", "passes", "the same"},
    {"order of rows f32", "passes", "the same"},
});

}  // namespace report
