// The operations of arrays: numpy's and jax.nn's names, computed on all devices, communication inserted.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <vector>

#include "sharding/array.h"

namespace tessera {

// Every operation takes arrays of any placement and gives the same value and gradient as on one device. Where its
// operands lie together, nothing moves; where they disagree, what has to move is decided as docs/sharding.md says and
// stands in the ledger. Operands that were never placed join the mesh of the others as replicated.
// Errors of all: shapes that do not fit (shape_mismatch), arrays on different meshes (device_mismatch), absent arrays.

// An operand of an operator, which carries the line of the expression it stands in.
class Operand {
 public:
  template <class T>
  requires std::convertible_to<const T&, const Array&> Operand(
      const T& x, std::source_location where = std::source_location::current())
      : array_(static_cast<const Array&>(x)), where_(where) {}
  const Array& array() const { return array_; }
  const std::source_location& where() const { return where_; }

 private:
  const Array& array_;
  std::source_location where_;
};

using Dims = std::vector<int>;

// ---- elementwise, broadcast as in numpy; different element types are promoted as in JAX ---------------------------

Array operator+(Operand a, Operand b);
Array operator-(Operand a, Operand b);
Array operator*(Operand a, Operand b);
Array operator/(Operand a, Operand b);

// A scalar is weakly typed: it takes the array's element type. Times a scalar, a recipe stays a recipe.
Array operator+(Operand a, double b);
Array operator+(double a, Operand b);
Array operator-(Operand a, double b);
Array operator-(double a, Operand b);
Array operator*(Operand a, double b);
Array operator*(double a, Operand b);
Array operator/(Operand a, double b);
Array operator-(Operand a);

Array exp(Operand x);
Array log(Operand x);
Array sqrt(Operand x);
Array rsqrt(Operand x);  // 1 / sqrt(x)
Array square(Operand x);
Array tanh(Operand x);
Array sigmoid(Operand x);
Array relu(Operand x);
Array silu(Operand x);  // x * sigmoid(x)

// jax.nn.gelu: the tanh approximation by default, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), else x Phi(x).
// Hendrycks and Gimpel, "Gaussian error linear units" (2016).
Array gelu(Operand x, bool approximate = true);

// x in another element type. Of a recipe: a recipe.
Array astype(Operand x, DType dtype);

// x as a constant for gradients.
Array stop_gradient(Operand x);

// ---- shapes --------------------------------------------------------------------------------------------------------

// The same elements in row-major order under another shape; one size may be -1. A dim that is split or merged keeps its
// mesh axes as long as they do not cut through a part; else it is gathered first.
Array reshape(Operand x, Shape shape);

// Dim i of the result is dim `order[i]` of x; without an order, the dims reversed.
Array transpose(Operand x, Dims order = {});
Array swapaxes(Operand x, int dim0, int dim1);

// x[..., start:stop, ...] along one dim, which is gathered first unless all of it is taken.
Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim);

// numpy.concatenate: one or more arrays, one behind the other along `dim`, which is gathered first where it is sharded.
// Different element types are promoted as in JAX.
Array concatenate(const std::vector<Array>& arrays, int dim = 0,
                  std::source_location where = std::source_location::current());

// ---- reductions ----------------------------------------------------------------------------------------------------

// Over these dims, or all: mean(x), mean(x, {1}), sum(x, {0, -1}). Over a sharded dim the result is a pending sum:
// float32[4]{U:data}, summed when it is needed. Integer and boolean sums are int32.
Array sum(Operand x, Dims dims = {}, bool keepdims = false);
Array mean(Operand x, Dims dims = {}, bool keepdims = false);

// exp(x) / sum(exp(x)) along one dim, which is gathered first if it is sharded.
Array softmax(Operand x, int dim = -1);

// ---- linear algebra and neural networks

// numpy.matmul: (..., i, k) x (..., k, j) -> (..., i, j), leading dims broadcast; one-dim operands are vectors.
Array matmul(Operand a, Operand b);

// (x - mean) / sqrt(var + eps) * scale + bias over the last dim; scale and bias have its size.
// Ba, Kiros and Hinton, "Layer normalization" (2016).
Array layer_norm(Operand x, const Array& scale, const Array& bias, double eps = 1e-5);

// x / sqrt(mean(x^2) + eps) * scale over the last dim. Zhang and Sennrich, "Root mean square layer normalization"
// (2019).
Array rms_norm(Operand x, const Array& scale, double eps = 1e-5);

// table (vocab, embed), ids (...) of integers in [0, vocab) -> (..., embed). A table sharded over vocab is looked up
// where it lies: each device gives the rows that it has, and the result is a pending sum.
Array embedding(Operand table, const Array& ids);

// Rotary positions: of (..., seq, heads, head_dim), coordinates i and i + head_dim / 2 of every head are rotated by
// (offset + t) base^(-2 i / head_dim) at position t, so that products of two heads depend on their distance only. Any
// dim but head_dim may be sharded. Su et al., "RoFormer: enhanced transformer with rotary position embedding" (2021).
Array rotary_embedding(Operand x, int64_t offset = 0, double base = 10000);

// jax.nn.dot_product_attention: query (batch, seq, heads, head_dim), key and value (batch, keys, kv_heads, head_dim),
// heads a multiple of kv_heads (head h uses kv head h / (heads / kv_heads)) -> (batch, seq, heads, head_dim).
// softmax(query key^T / sqrt(head_dim)) value; `causal`: position t sees keys 0 to offset + t. Batch and heads may be
// sharded, heads over more devices than there are kv heads, too: each then has all of these. A sharded sequence is
// exchanged for sharded heads where these divide, else gathered.
Array dot_product_attention(Operand query, const Array& key, const Array& value, bool causal = false,
                            int64_t offset = 0);

// The mean over all positions of -log softmax(logits)[label], a scalar. logits (..., vocab), labels (...) integers.
// Logits sharded over vocab are not gathered: two small all-reduces, (...) and (2, ...).
Array cross_entropy(Operand logits, const Array& labels);

}  // namespace tessera
