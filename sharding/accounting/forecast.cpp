// Implements Forecast: a meter of memory and FLOPs, and a ledger, for one scope.
#include "sharding/accounting/forecast.h"

#include "sharding/array/abstract_tensor.h"

namespace tessera {

using namespace detail;

Forecast::Forecast()
    : meter_(std::make_shared<Meter>()), current_(current_meter(), meter_), stage_(metered_stage(), -1) {
  meter_->outer = current_.outer();
}

int64_t Forecast::live_bytes() const { return meter_->live.most(); }
int64_t Forecast::peak_bytes() const { return meter_->peak; }
int64_t Forecast::allocated_bytes() const { return meter_->allocated.most(); }
int64_t Forecast::activation_bytes() const { return meter_->activations; }
double Forecast::flops() const { return meter_->flops.most(); }
int64_t Forecast::call_count() const { return meter_->calls.most(); }
double Forecast::bubble() const {
  const auto others = static_cast<double>(meter_->flops.own.size()) - 1;
  return others > 0 ? others / (static_cast<double>(meter_->forward_passes) + others) : 0;
}

}  // namespace tessera
