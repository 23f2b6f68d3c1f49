// Empty: c10d needs nothing of this Gloo header.
#pragma once
