// Nothing of this header of Gloo's is needed.
#pragma once
