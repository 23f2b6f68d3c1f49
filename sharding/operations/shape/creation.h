// Arrays made from a shape and a formula, and triangles of arrays.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// Options of array creation, with the names and values of jax.numpy.
// - Without a sharding the result is not placed; with one, each device makes only its own block.
// - The default element type is float32; for arange of integers int32; for the *_like functions x's.
// (zeros(shape, dtype), ones and full are in array.h.) Error (invalid_argument) of full: a value that the type cannot
// hold, such as a fraction for integers.
struct CreationOptions {
  std::optional<DType> dtype = std::nullopt;
  std::optional<NamedSharding> out_sharding = std::nullopt;
};

Array zeros(Shape shape, const CreationOptions& options);
Array ones(Shape shape, const CreationOptions& options);
Array full(Shape shape, double value, const CreationOptions& options);

// Return an array sharded like x, but without partial sums.
Array zeros_like(const Array& x, const CreationOptions& options = {});
Array ones_like(const Array& x, const CreationOptions& options = {});
Array full_like(const Array& x, double value, const CreationOptions& options = {});

// Returns start, start + step, ... before stop. Error (invalid_argument): a step of 0.
Array arange(Number stop, const CreationOptions& options = {});
Array arange(Number start, Number stop, Number step = 1, const CreationOptions& options = {});

// Options of linspace, which returns `num` equally spaced numbers from start to stop; excluding stop without
// `endpoint`.
struct LinspaceOptions {
  bool endpoint = true;
  std::optional<DType> dtype = std::nullopt;
  std::optional<NamedSharding> out_sharding = std::nullopt;
};
Array linspace(double start, double stop, int64_t num = 50, const LinspaceOptions& options = {});

// Returns an array whose elements are their indices along `dim`, as jax.lax.broadcasted_iota.
Array broadcasted_iota(DType dtype, Shape shape, int dim, const std::optional<NamedSharding>& out_sharding = {});

// Options of eye and tri. eye: ones where column - row is k. tri: ones where column - row is at most k. `columns`
// defaults to rows.
struct DiagonalOptions {
  std::optional<int64_t> columns = std::nullopt;
  int64_t k = 0;
  std::optional<DType> dtype = std::nullopt;
  std::optional<NamedSharding> out_sharding = std::nullopt;
};
Array eye(int64_t rows, const DiagonalOptions& options = {});
Array tri(int64_t rows, const DiagonalOptions& options = {});

// Return x where column - row, in its last two dimensions, is at most k (tril) or at least k (triu), and zeros
// elsewhere. Each device masks its own block. Error (shape_mismatch): fewer than two dimensions.
Array tril(Operand x, int64_t k = 0);
Array triu(Operand x, int64_t k = 0);

}  // namespace tessera
