// expect: tessera: an axis is its name and its size: Axis{"embed", 64}.
#include "nn/layers.h"

const auto layer = tessera::nn::Linear::init(tessera::Key(0), tessera::Axis{64, "embed"}, {"hidden", 128});
