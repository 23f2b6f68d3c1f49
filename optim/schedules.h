// Schedules and losses: numbers that depend on the count of updates, and Optax's losses.
#pragma once

#include "optim/schedules/losses.h"
#include "optim/schedules/schedule.h"
