// expect: tessera: the loss function cannot be called with this model and these arguments. If it takes Model&, the model must be neither const nor a temporary.
#include "nn/transformations.h"

using namespace tessera;

struct Model {
  nn::Param kernel;
  nn::Buffer mean;
};

Array loss(Model& model) { return model.kernel; }

void train() { nn::accumulate_gradients(loss, 2)(Model()); }
