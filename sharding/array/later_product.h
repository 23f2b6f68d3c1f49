// LaterProduct: a matrix product on a process's only device that is computed when it is asked for, whole or by rows.
#pragma once

#include "sharding/array/array_impl.h"

namespace tessera::detail {

class LaterProduct {
 public:
  virtual ~LaterProduct() = default;
  virtual at::Tensor place() const = 0;  // for the whole product, as a matrix without values yet
  virtual void compute(int64_t from, at::Tensor& rows) const = 0;
  virtual Tensors whole() const = 0;  // as the operation leaves it, recorded for gradients
  // The product in a place whose rows were computed, recorded alike.
  virtual Tensors recorded(const at::Tensor& place) const = 0;
  virtual bool is_recorded() const = 0;
};

// That of `a`, if it is one that was not computed yet; else null.
std::shared_ptr<const LaterProduct> later_product_now(const ArrayImpl& a);  // if it is awaited
inline std::shared_ptr<const LaterProduct> later_product(const ArrayImpl& a) {
  return a.awaited ? later_product_now(a) : nullptr;
}

// x as materialized() has it, but a later product stays one: for who needs its type alone, or makes another form of it.
inline ArrayImpl& maybe_later(const Array& x, const char* verb) {
  return x.impl() && x.impl()->awaited && later_product_now(*x.impl()) ? *x.impl() : materialized(x, verb);
}

}  // namespace tessera::detail
