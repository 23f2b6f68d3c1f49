// Accounting: communication ledger, guards and budgets; checks for NaN and inf; forecasts of memory and cost.
#pragma once

#include "sharding/accounting/communication_guard.h"
#include "sharding/accounting/finite_check.h"
#include "sharding/accounting/forecast.h"
#include "sharding/accounting/ledger.h"
