// expect: deleted
#include <iostream>

#include "nn/layers.h"

using namespace tessera;

struct Model {
  nn::Linear layer;
};

void print(const Model& model) { std::cout << model; }
