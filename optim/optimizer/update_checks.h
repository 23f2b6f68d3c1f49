// Checks of Optimizer::update, made before it changes anything.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/tree/tree.h"
#include "optim/transform/transform.h"

namespace tessera::optim::detail {

// The model that an optimizer was made for: the paths and shapes of its arrays.
class MadeFor {
 public:
  template <class Model>
  explicit MadeFor(const Model& model) : MadeFor(nn::leaves(model), nn::bare_arrays(model)) {}
  MadeFor(const nn::Leaves& params, const nn::BareArrays& bare);
  // A quick test, of a few nanoseconds per array, whether the model is as at the last check and the gradients fit it.
  // If it returns false, the checks below find what does not fit, or that all fits.
  bool plainly_fits(const nn::BareArrays& params, const nn::BareArrays& grads) const;
  // Whether other arrays of the model are absent than at the last check.
  bool has_other_parts(const Arrays& params) const;
  // Errors (invalid_argument, shape_mismatch): the model has other arrays now, or arrays of other shapes.
  void check(const nn::Leaves& params, const nn::BareArrays& bare);

 private:
  struct Entry {
    std::string path;
    std::optional<Shape> shape;  // none if the array is not trained
  };
  std::shared_ptr<const std::vector<Entry>> entries_;
  std::vector<const void*> types_;  // as they were at the last check
  size_t structure_ = 0;
};

void check_gradients(const nn::Leaves& params, const nn::Leaves& grads);
// While checks_finite(): Errors (not_finite): a gradient has NaN or inf before an update; a parameter or a part of the
// state after it.
void check_finite_gradients(const nn::Leaves& grads);
void check_finite_update(const nn::Leaves& params, const nn::Leaves& state);
// Whether a guard of this thread may refuse a communication.
bool is_guarded();
// Whether no array of the state is on another mesh than the model.
bool on_mesh_of(const Arrays& params, const Arrays& state);
// Error (device_mismatch): an array of the state is on another mesh than the model.
void check_state_mesh(const nn::Leaves& params, const nn::Leaves& state);
// Whether any is not absent.
bool any_given(const Arrays& updates);
// Whether a gradient is a partial sum, or is on a mesh although its parameter is on none.
bool needs_placement(const Arrays& grads, const Arrays& params);

}  // namespace tessera::optim::detail
