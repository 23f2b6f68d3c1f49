// LossCurve: the losses of a training as one self-contained picture (SVG).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/nn/report.h>

namespace tessera::train {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;  // nats per byte, finite
};

// The losses over their steps.
nn::Curve curve_of(const std::vector<LossPoint>& points);

// Draws the losses over the steps. `training` is drawn twice: faintly as it is (for long runs the least and the largest
// of each half pixel), and as the centred mean over a twentieth of the points. `validation` is drawn as dots, the two
// entropies as level lines. The last value of each of the four is written at its end (for training that of the mean).
// Empty ones are left out. Viewers that are set to a dark scheme get dark colours.
struct LossCurve {
  std::string caption;  // a line below the title
  int64_t steps = 0;    // of the whole run: where the axis ends
  double unigram_entropy = 0, bigram_entropy = 0;
  std::vector<LossPoint> training, validation;  // in the order of their steps

  std::string svg() const;
};

}  // namespace tessera::train
