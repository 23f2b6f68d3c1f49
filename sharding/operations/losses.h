// Losses of neural networks.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// The mean over all positions of -log softmax(logits)[label], a scalar. logits (..., vocab), labels (...) integers.
// Logits sharded over vocab are not gathered: two small all-reduces, (...) and (2, ...).
Array cross_entropy(Operand logits, const Array& labels);

}  // namespace tessera
