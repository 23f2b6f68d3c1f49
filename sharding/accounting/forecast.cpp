// A meter and a ledger for one scope.
#include "sharding/accounting/forecast.h"

#include "sharding/array/abstract_tensor.h"

namespace tessera {

using namespace detail;

Forecast::Forecast() : meter_(std::make_shared<Meter>()), outer_(current_meter()) {
  meter_->outer = outer_;
  set_meter(meter_);
}

Forecast::~Forecast() { set_meter(outer_); }

int64_t Forecast::live_bytes() const { return meter_->live; }
int64_t Forecast::peak_bytes() const { return meter_->peak; }
int64_t Forecast::activation_bytes() const { return meter_->activations; }
double Forecast::flops() const { return meter_->flops; }

}  // namespace tessera
